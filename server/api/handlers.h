/* The endpoints that do work. Each runs in a worker: it starts ex->gen, fills ex->reply, or sets
 * ex->error.
 */
#ifndef SL_SERVER_HANDLERS_H
#define SL_SERVER_HANDLERS_H

struct sl_exchange;

void sl_chat_handle(struct sl_exchange *ex);            /* /v1/chat/completions */
void sl_apply_template_handle(struct sl_exchange *ex);  /* /apply-template */
void sl_responses_handle(struct sl_exchange *ex);       /* /v1/responses */
void sl_responses_count_handle(struct sl_exchange *ex); /* /v1/responses/input_tokens */
void sl_response_get_handle(struct sl_exchange *ex); /* GET /v1/responses/{id}, .../input_items */
void sl_response_delete_handle(struct sl_exchange *ex);   /* DELETE /v1/responses/{id} */
void sl_chat_count_handle(struct sl_exchange *ex);        /* /v1/chat/completions/input_tokens */
void sl_messages_handle(struct sl_exchange *ex);          /* /v1/messages */
void sl_count_tokens_handle(struct sl_exchange *ex);      /* /v1/messages/count_tokens */
void sl_completions_handle(struct sl_exchange *ex);       /* /v1/completions */
void sl_embeddings_handle(struct sl_exchange *ex);        /* /v1/embeddings */
void sl_ollama_embed_handle(struct sl_exchange *ex);      /* /api/embed */
void sl_ollama_embeddings_handle(struct sl_exchange *ex); /* /api/embeddings */
void sl_ollama_chat_handle(struct sl_exchange *ex);       /* /api/chat */
void sl_ollama_generate_handle(struct sl_exchange *ex);   /* /api/generate */
void sl_ollama_show_handle(struct sl_exchange *ex);       /* /api/show */
void sl_native_handle(struct sl_exchange *ex);            /* /completion */
void sl_infill_handle(struct sl_exchange *ex);            /* /infill */
void sl_tokenize_handle(struct sl_exchange *ex);          /* /tokenize */
void sl_detokenize_handle(struct sl_exchange *ex);        /* /detokenize */

#endif
