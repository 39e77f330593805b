/* Anthropic's Messages API: what its two files and http.c share. */
#ifndef SL_SERVER_ANTHROPIC_H
#define SL_SERVER_ANTHROPIC_H

#include "server/types/errors.h"

#include <stdint.h>

struct sl_exchange;

/* Whether the client speaks this API, whose errors have a shape of their own: by the path, or, as
 * /v1/models belongs to two APIs, by the header that its clients send with each request.
 * Connection's thread. */
bool sl_anthropic_client(const struct sl_exchange *ex);
/* {"type":"error","error":{"type","message"}}; gives the HTTP status, which is 529 for a server
 * that has too much to do. */
unsigned sl_anthropic_error(struct sl_buf *b, const struct sl_http_error *e);

/* The Model object and a list of this one, as clients of this API expect them. */
void sl_anthropic_model(struct sl_buf *b, const char *id, int64_t created_s);
void sl_anthropic_models(struct sl_buf *b, const char *id, int64_t created_s);

#endif
