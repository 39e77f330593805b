/* OpenAI's Responses API: shared by its files. */
#ifndef SL_SERVER_RESPONSES_H
#define SL_SERVER_RESPONSES_H

#include "server/api/translate.h"

/* The prefix of reasoning that goes out as `encrypted_content`, for clients that keep and send back
 * only that field. It is not encrypted: it is the client's own answer. */
#define SL_CARRIED_REASONING "sluice-reasoning:"

/* The conversation of a request. False: e is set. */
bool sl_responses_input(struct sl_translation *t, const json_t *body, struct sl_http_error *e);

/* The members of the request that a response repeats, with the API's defaults, as JSON text for
 * sl_request_about. False: out of memory. */
bool sl_responses_about(const json_t *body, char **out_members);

#endif
