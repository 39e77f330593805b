/* The single path from a text prompt to an answer, whatever the API. */
#ifndef SL_SERVER_COMPLETION_H
#define SL_SERVER_COMPLETION_H

#include "server/api/prompt.h"

/* Checks the body, a text completion's, encodes its prompts and starts ex->gen, or sets ex->error.
 * given: the one prompt, instead of the body's; taken over if it is used. NULL = none. about: what
 * the renderer needs to know of the request; taken over. */
void sl_completion_answer(struct sl_exchange *ex, enum sl_api api, const json_t *body,
                          struct sl_ids *given, struct sl_request_about *about);

#endif
