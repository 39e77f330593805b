/* Anthropic's Messages API: shared by its two files and http.c. */
#ifndef SL_SERVER_ANTHROPIC_H
#define SL_SERVER_ANTHROPIC_H

#include "server/types/errors.h"

#include <stdint.h>

struct sl_exchange;

/* Whether the client speaks this API, whose errors have their own shape: decided by the path or, as
 * /v1/models belongs to two APIs, by the header that its clients send with each request.
 * Connection's thread. */
bool sl_anthropic_client(const struct sl_exchange *ex);
/* {"type":"error","error":{"type","message"}}; returns the HTTP status, 529 if the server is
 * overloaded. */
unsigned sl_anthropic_error(struct sl_buf *b, const struct sl_http_error *e);

/* The Model object, and a list of them under the model's names, as clients of this API expect them.
 */
void sl_anthropic_model(struct sl_buf *b, const char *id, int64_t created_s);
void sl_anthropic_models(struct sl_buf *b, char *const *names, uint32_t n, int64_t created_s);

#endif
