/* From a request body to prompts: what the POST endpoints share. */
#ifndef SL_SERVER_PROMPT_H
#define SL_SERVER_PROMPT_H

#include "server/exchange/gen.h"

/* The body as a JSON object. NULL: ex->error is set. */
json_t *sl_prompt_body(struct sl_exchange *ex);
/* `model`, if given, must be a name of the one served; answers repeat it. */
bool sl_prompt_check_model(struct sl_exchange *ex, const json_t *body);
/* False with 400 if so many bytes cannot fit the context however they are tokenized, which saves
 * tokenizing them. field: where the text came from. */
bool sl_prompt_may_fit(struct sl_exchange *ex, size_t n_bytes, const char *field);
/* False with 400 if the prompt leaves no room for an answer. */
bool sl_prompt_fits(struct sl_exchange *ex, size_t n_tokens, const char *field);
/* The limits on renderings for a request. A rendering ends when the client leaves, when the server
 * cancels the request, and when its time (timeout_s of the body, or the server's) is over; sets
 * ex->deadline_ns for that. */
struct sl_template_limits sl_prompt_template_limits(struct sl_exchange *ex, const json_t *body);
/* Ends encodings on the same conditions. */
struct sl_encode_watch sl_prompt_watch(struct sl_exchange *ex);
/* Sets the error for a failed encoding; returns false. */
bool sl_prompt_not_encoded(struct sl_exchange *ex, enum sl_status status);
/* Encodes a prompt that the client wrote itself, including control tokens, BOS first if the file
 * asks for it and the text lacks it. Not for a conversation: see sl_chat_encode. */
bool sl_prompt_encode(struct sl_exchange *ex, const char *text, size_t len, struct sl_ids *out);
/* Reads a JSON array of token ids into out, which is empty; errors name the field. The caller
 * releases out even on failure. */
bool sl_prompt_ids(struct sl_exchange *ex, const json_t *array, const char *field,
                   struct sl_ids *out);
/* Appends an id. False: out of memory. */
bool sl_prompt_add_id(struct sl_ids *ids, uint32_t id);
/* Creates the generation, submits it and leaves it in ex->gen, or sets ex->error. Takes over all
 * arguments. */
void sl_prompt_generate(struct sl_exchange *ex, enum sl_api api, struct sl_gen_params *params,
                        struct sl_ids *prompts, char **echo, uint32_t n_prompts);

#endif
