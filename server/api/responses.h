/* OpenAI's Responses API: shared by its files. */
#ifndef SL_SERVER_RESPONSES_H
#define SL_SERVER_RESPONSES_H

#include "server/api/translate.h"
#include "server/exchange/exchange.h"
#include "server/request/params.h"

/* The prefix of reasoning that goes out as `encrypted_content`, for clients that keep and send back
 * only that field. It is not encrypted: it is the client's own answer. */
#define SL_CARRIED_REASONING "sluice-reasoning:"

/* What the request goes on from: puts the conversation of its previous_response_id, out_before
 * items, in front of its input, and what it refers to in the place of references. about gets what
 * is to be kept with the answer; NULL: nothing. False: ex->error is set. */
bool sl_responses_recall(struct sl_exchange *ex, json_t *body, struct sl_request_about *about,
                         size_t *out_before);

/* The conversation of a request. False: e is set. */
bool sl_responses_input(struct sl_translation *t, const json_t *body, struct sl_http_error *e);

/* The members of the request that a response repeats, with the API's defaults, as JSON text for
 * sl_request_about. False: out of memory. */
bool sl_responses_about(const json_t *body, char **out_members);

#endif
