/* From a request body to prompts: what the POST endpoints share. */
#ifndef SL_SERVER_PROMPT_H
#define SL_SERVER_PROMPT_H

#include "server/exchange/gen.h"

/* The body as a JSON object. NULL: ex->error is set. */
json_t *sl_prompt_body(struct sl_exchange *ex);
/* `model`, if given, must be the one served. */
bool sl_prompt_check_model(struct sl_exchange *ex, const json_t *body);
/* False with 400 when so many bytes cannot fit the context however they are tokenized: spares the
 * work. field: where the text came from. */
bool sl_prompt_may_fit(struct sl_exchange *ex, size_t n_bytes, const char *field);
/* False with 400 when the prompt leaves no room for an answer. */
bool sl_prompt_fits(struct sl_exchange *ex, size_t n_tokens, const char *field);
/* The limits of renderings for a request. They end when its client leaves, when the server cancels
 * it, and when its time (timeout_s of the body, or the server's) is over; ex->deadline_ns is set
 * for that. */
struct sl_template_limits sl_prompt_template_limits(struct sl_exchange *ex, const json_t *body);
/* Ends encodings where renderings end. */
struct sl_encode_watch sl_prompt_watch(struct sl_exchange *ex);
/* Sets the error of an encoding that failed; false. */
bool sl_prompt_not_encoded(struct sl_exchange *ex, enum sl_status status);
/* Encodes a prompt that the client wrote itself, control tokens included, BOS first if the file
 * asks for it and the text lacks it. Not for a conversation: see sl_chat_encode. */
bool sl_prompt_encode(struct sl_exchange *ex, const char *text, size_t len, struct sl_ids *out);
/* Reads a JSON array of token ids into out, which is empty; the field is named in errors. The
 * caller releases out also after a failure. */
bool sl_prompt_ids(struct sl_exchange *ex, const json_t *array, const char *field,
                   struct sl_ids *out);
/* Makes the generation, submits it and leaves it in ex->gen, or sets ex->error. Takes everything
 * over. */
void sl_prompt_generate(struct sl_exchange *ex, enum sl_api api, struct sl_gen_params *params,
                        struct sl_ids *prompts, char **echo, uint32_t n_prompts);

#endif
