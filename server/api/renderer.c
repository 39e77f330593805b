#include "server/api/renderers.h"

const struct sl_renderer *sl_renderer_of(enum sl_api api) {
    switch (api) {
    case SL_API_COMPLETIONS:
        return &sl_completions_renderer;
    case SL_API_RESPONSES:
        return &sl_responses_renderer;
    case SL_API_MESSAGES:
        return &sl_messages_renderer;
    case SL_API_OLLAMA_CHAT:
    case SL_API_OLLAMA_GENERATE:
        return &sl_ollama_renderer;
    case SL_API_NATIVE:
        return &sl_native_renderer;
    case SL_API_EMBEDDINGS:
        return &sl_embeddings_renderer;
    case SL_API_OLLAMA_EMBED:
        return &sl_ollama_embed_renderer;
    case SL_API_OLLAMA_EMBEDDINGS:
        return &sl_ollama_embeddings_renderer;
    case SL_API_CHAT:
        break;
    }
    return &sl_chat_renderer;
}
