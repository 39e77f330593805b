/* The dashboard: a page that is part of the program, and what it shows of the machine beside
 * /metrics.
 *
 * The page itself is public and knows nothing: everything that it shows comes from endpoints that
 * want the API key, if there is one. It takes nothing from elsewhere, and its
 * Content-Security-Policy lets it run nothing but its own files: text of a model that got past its
 * renderer stays text. */
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

/* The answer with ex->file, from where it is: it takes no memory. Compressed where the client takes
 * that; 304 and nothing where it has this version already. NULL: no memory for the rest.
 * Connection's thread.
 * source: RFC 9110, 8.8.3 (ETag), 12.5.3 (Accept-Encoding), 13.1.2 (If-None-Match) */
struct MHD_Response *sl_dashboard_response(const struct sl_exchange *ex, unsigned *out_status);
const char *sl_dashboard_content_type(const struct sl_web_file *f);

/* GET /, GET /dashboard/NAME */
void sl_dashboard_handle(struct sl_exchange *ex);
/* GET /v1/sluice/machine: what does not change while the model serves. */
void sl_machine_handle(struct sl_exchange *ex);
/* ,"devices":[...]: which layers are on which, and what each may take of its own memory (0: it
 * computes in the host's) and was planned with. For /props too. */
void sl_devices_put(struct sl_buf *b, const struct sl_engine_info *info);
/* GET /v1/sluice/experts: where every expert is (engine/observe/expert_map.h). */
void sl_experts_handle(struct sl_exchange *ex);

#endif
