/* A request body from a stranger, through everything that reads it before the engine: limits and
 * JSON, every field, messages and parts, prompts, the template, marks and stop strings. The first
 * byte chooses the endpoint. */
#include "tests/unit/server/fake_engine.c"

#include "common/clock.h"
#include "server/api/handlers.h"
#include "server/exchange/memory.h"
#include "server/exchange/renderer.h"

#include <jansson.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char template[] =
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' -}}"
    "{%- if m.content is string -%}{{- m.content -}}{%- endif -%}"
    "{%- for c in m.tool_calls or [] -%}{{- c.function.name ~ (c.function.arguments | tojson) -}}"
    "{%- endfor -%}{{- '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- for t in tools or [] -%}{{- t | tojson -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

static struct sl_tokenizer tok;
static struct sl_engine *engine;
static struct sl_server server;

static void init(void) {
    struct sl_err err;
    fake_tokenizer_init(&tok);
    fake_control_word(&tok, "<PRE>");
    fake_control_word(&tok, "<SUF>");
    fake_control_word(&tok, "<MID>");
    engine = fake_engine_create();
    engine->ctx_tokens = 300;
    engine->queue_max = 0; /* a request that gets so far is refused there */
    struct sl_server_model m = {.engine = engine,
                                .tokenizer = &tok,
                                .id = "m",
                                .chat_template = template,
                                .chat_template_bytes = sizeof template - 1};
    if (sl_served_create(&m, NULL, &server.served, &err) != SL_OK)
        abort();
    server.responses = sl_response_store_create(64 << 10);
    if (!server.responses)
        abort();
    server.config.buffer_tokens = 16;
    sl_server_defaults(&server.config);
    if (sl_server_json_units(&server.config) < 10000)
        abort(); /* it would refuse everything at once */
    json_object_seed(1);
}

static void check_json(const struct sl_buf *b) {
    json_t *v = json_loadb(b->ptr ? b->ptr : "", b->len, JSON_ALLOW_NUL, NULL);
    if (!v)
        abort();
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static void (*const handlers[])(struct sl_exchange *) = {
        sl_chat_handle,        sl_completions_handle,     sl_apply_template_handle,
        sl_tokenize_handle,    sl_detokenize_handle,      sl_responses_handle,
        sl_messages_handle,    sl_count_tokens_handle,    sl_native_handle,
        sl_infill_handle,      sl_ollama_chat_handle,     sl_ollama_generate_handle,
        sl_ollama_show_handle, sl_responses_count_handle, sl_chat_count_handle,
        sl_embeddings_handle,  sl_ollama_embed_handle,    sl_ollama_embeddings_handle,
    };
    if (!engine)
        init();
    if (size == 0)
        return 0;
    struct sl_exchange ex = {.server = &server, .refs = 1, .started_ns = sl_now_ns()};
    pthread_mutex_init(&ex.lock, NULL);
    sl_buf_put(&ex.body, (const char *)data + 1, size - 1);
    /* '0' to '4', '5' to '7', '8' to 'A' */
    handlers[data[0] < '5'   ? data[0] % 5
             : data[0] < '8' ? 5 + (data[0] - '5')
                             : 8 + (data[0] - '8') % 10](&ex);

    /* Every outcome is an answer: an error with a text, or JSON that a strict parser takes. */
    if (ex.error.http_status) {
        if (!ex.error.err.text[0] || !ex.error.type)
            abort();
        sl_buf_clear(&ex.reply);
        sl_http_error_json(&ex.reply, &ex.error);
    }
    check_json(&ex.reply);
    if (ex.gen) { /* an answer of no token at all, with all that it repeats of its request */
        sl_buf_clear(&ex.reply);
        ex.gen->renderer->whole(&ex.reply, ex.gen);
        check_json(&ex.reply);
    }
    sl_gen_destroy(ex.gen);
    sl_buf_release(&ex.body);
    sl_buf_release(&ex.reply);
    free(ex.model_name);
    pthread_mutex_destroy(&ex.lock);
    return 0;
}
