/* The one way from a conversation to an answer: whatever the API, a request becomes the body of a
 * chat completion (translate.h), and goes through template, parameters and engine from there. */
#ifndef SL_SERVER_CHAT_H
#define SL_SERVER_CHAT_H

#include "server/api/prompt.h"
#include "server/request/params.h"

/* What `reasoning_effort` may be; ends with NULL. Templates take of it what they know. */
extern const char *const sl_reasoning_efforts[];

/* Checks the body, renders and encodes it, and starts ex->gen, or sets ex->error. about is what the
 * renderer wants to know of the request; taken over, also after a failure. */
void sl_chat_answer(struct sl_exchange *ex, enum sl_api api, const json_t *body,
                    struct sl_request_about *about);
/* The prompt's tokens, without an answer. False: ex->error is set. */
bool sl_chat_count(struct sl_exchange *ex, const json_t *body, size_t *out_tokens);

#endif
