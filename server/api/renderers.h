/* The list of renderers (server/exchange/renderer.h). */
#ifndef SL_SERVER_RENDERERS_H
#define SL_SERVER_RENDERERS_H

#include "server/exchange/renderer.h"

const struct sl_renderer *sl_renderer_of(enum sl_api api);

extern const struct sl_renderer sl_chat_renderer, sl_completions_renderer, sl_responses_renderer,
    sl_messages_renderer, sl_ollama_renderer, sl_native_renderer, sl_embeddings_renderer,
    sl_ollama_embed_renderer, sl_ollama_embeddings_renderer;

#endif
