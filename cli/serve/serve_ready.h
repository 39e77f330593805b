/* The end of a server's start: warming up, and the line that says that it is ready. */
#ifndef SL_CLI_SERVE_READY_H
#define SL_CLI_SERVE_READY_H

#include "engine/engine.h"
#include "server/server.h"

#include <stdatomic.h>

/* Runs a position through the whole model, so that the first request finds warm memory and threads,
 * and then, for a quarter of a second, single positions of other tokens, as one request's steps
 * are. out_tokens_per_s: how fast those were; 0: stop was set meanwhile. Before requests run. */
enum sl_status sl_serve_warm_up(struct sl_engine *engine, const atomic_bool *stop,
                                double *out_tokens_per_s, struct sl_err *err) SL_MUST_CHECK;

#define SL_SERVE_URL_BYTES 300u
/* Where a client on this machine finds the server: http://127.0.0.1:8080, or unix:PATH where that
 * is all. */
void sl_serve_url(const struct sl_server_config *config, uint16_t port,
                  char out[SL_SERVE_URL_BYTES]);

#define SL_SERVE_READY_BYTES 800u
/* "ready after 1.2 s: http://127.0.0.1:8080 serves demo, about 40 tokens/s ...". tokens_per_s 0:
 * not known. */
void sl_serve_ready(const struct sl_engine_info *info, const char *url, const char *model,
                    double seconds, double tokens_per_s, char out[SL_SERVE_READY_BYTES]);

#endif
