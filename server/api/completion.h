/* The single path from a text prompt to an answer, whatever the API. */
#ifndef SL_SERVER_COMPLETION_H
#define SL_SERVER_COMPLETION_H

#include "server/api/prompt.h"

/* Checks the body, a text completion's, encodes its prompts and starts ex->gen, or sets ex->error.
 */
void sl_completion_answer(struct sl_exchange *ex, enum sl_api api, const json_t *body);

#endif
