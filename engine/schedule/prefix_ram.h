/* The prefix tree's level in host memory, for discrete devices: pages whose room the device needs
 * are copied out, and copied back when their text comes again.
 *
 * Used by the scheduler's thread, which waits for the copies: that takes a fraction of the time of
 * computing a page. */
#ifndef SL_ENGINE_PREFIX_RAM_H
#define SL_ENGINE_PREFIX_RAM_H

#include "common/status.h"

#include <stdint.h>

struct sl_engine;
struct sl_session;
struct sl_prefix_ram;

/* page_bytes: sl_plan_copy_bytes(). */
enum sl_status sl_prefix_ram_create(struct sl_engine *e, uint32_t n_slots, uint64_t page_bytes,
                                    struct sl_prefix_ram **out_ram,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_prefix_ram_destroy(struct sl_prefix_ram **r);

/* The node is about to lose its page. A failure is the device's. */
enum sl_status sl_prefix_ram_keep(struct sl_prefix_ram *r, uint32_t node) SL_MUST_CHECK;
/* Before a step: takes what is known of the sessions' next text. A failure is the device's. */
enum sl_status sl_prefix_ram_adopt(struct sl_prefix_ram *r, struct sl_session *s) SL_MUST_CHECK;

#endif
