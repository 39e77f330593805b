/* One file over several connections, into its part file.
 *
 * Each connection fetches a span. One that has finished takes half of what the slowest has left.
 * A connection that is cut goes on with the next byte. A server that sends no ranges is asked for
 * everything, over one connection.
 *
 * Threads: none; one call, one thread. */
#ifndef SL_PULL_DOWNLOAD_H
#define SL_PULL_DOWNLOAD_H

#include "pull/http.h"
#include "pull/part_file.h"

#define SL_PULL_MAX_CONNECTIONS 16u

struct sl_download {
    const struct sl_pull_http *http;
    const char *url;
    const char *etag; /* that every response must have; "" = any */
    uint32_t connections;
    bool ranges; /* the server sends them, as far as known */
    /* Told a few times a second. */
    void (*moved)(void *ctx, uint64_t done_bytes);
    void *ctx;
};

/* Until all of f is there. SL_ERR_CANCELED: a signal came. SL_ERR_CORRUPT: what the server has is
 * another file than it was; what is there is worth nothing. Else the part file can be gone on
 * with; its state is saved in any case. */
enum sl_status sl_download_run(const struct sl_download *d, struct sl_part_file *f,
                               struct sl_err *err) SL_MUST_CHECK;

#endif
