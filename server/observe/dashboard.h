/* The dashboard: a page that is part of the program, and the data it shows beside /metrics.
 *
 * The page itself is public and has no data: everything it shows comes from endpoints that require
 * the API key, if there is one. It loads nothing from elsewhere, and its Content-Security-Policy
 * lets it run only its own files: model text that got past its renderer stays text. */
#ifndef SL_SERVER_DASHBOARD_H
#define SL_SERVER_DASHBOARD_H

#include <microhttpd.h>
#include <stddef.h>

struct sl_exchange;
struct sl_buf;
struct sl_engine_info;

/* A file of web/, embedded (mk/web.mk). */
struct sl_web_file {
    const char *name;
    const char *data;
    size_t bytes;
    const char *gzip; /* the same, compressed */
    size_t gzip_bytes;
};

/* The answer with ex->file, served from where it is, without a copy. Compressed if the client
 * accepts that; 304 without a body if it has this version already. NULL: out of memory.
 * Connection's thread.
 * source: RFC 9110, 8.8.3 (ETag), 12.5.3 (Accept-Encoding), 13.1.2 (If-None-Match) */
struct MHD_Response *sl_dashboard_response(const struct sl_exchange *ex, unsigned *out_status);
const char *sl_dashboard_content_type(const struct sl_web_file *f);

/* GET /, GET /dashboard/NAME */
void sl_dashboard_handle(struct sl_exchange *ex);
/* GET /v1/sluice/machine: what does not change while the model serves. */
void sl_machine_handle(struct sl_exchange *ex);
/* ,"devices":[...]: the layers of each, its memory budget (0: it computes in the host's memory) and
 * how much of that is planned. For /props too. */
void sl_devices_put(struct sl_buf *b, const struct sl_engine_info *info);
/* GET /v1/sluice/experts: where every expert is (engine/observe/expert_map.h). */
void sl_experts_handle(struct sl_exchange *ex);

#endif
