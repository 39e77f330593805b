/* The single path from a conversation to an answer: whatever the API, a request becomes the body of
 * a chat completion (translate.h), and passes through template, parameters and engine from there.
 */
#ifndef SL_SERVER_CHAT_H
#define SL_SERVER_CHAT_H

#include "server/api/prompt.h"
#include "server/request/params.h"

/* The values of `reasoning_effort`; ends with NULL. Templates use those they know. */
extern const char *const sl_reasoning_efforts[];

/* Checks the body, renders and encodes it, and starts ex->gen, or sets ex->error. about: what the
 * renderer needs to know of the request; taken over, even on failure. */
void sl_chat_answer(struct sl_exchange *ex, enum sl_api api, const json_t *body,
                    struct sl_request_about *about);
/* Counts the prompt's tokens, without an answer. False: ex->error is set. */
bool sl_chat_count(struct sl_exchange *ex, const json_t *body, size_t *out_tokens);

#endif
