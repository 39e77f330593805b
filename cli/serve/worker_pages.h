/* The worker's /health and /metrics (--http). */
#ifndef SL_CLI_WORKER_PAGES_H
#define SL_CLI_WORKER_PAGES_H

#include "common/status.h"

#include <stdint.h>

struct sl_worker;
struct sl_worker_pages;

/* address: HOST:PORT or [V6]:PORT. worker is borrowed until stop. SL_ERR_CONFIG: it is no such
 * address, or cannot be listened on. */
enum sl_status sl_worker_pages_start(const char *address, struct sl_worker *worker,
                                     struct sl_worker_pages **out_pages,
                                     struct sl_err *err) SL_MUST_CHECK;
void sl_worker_pages_stop(struct sl_worker_pages **p);

#endif
