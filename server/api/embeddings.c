/* POST /v1/embeddings, and Ollama's /api/embed and /api/embeddings: texts as vectors, which are
 * made of the served model's hidden states after its output norm. Source: OpenAI API reference,
 * "Create embeddings"; Ollama's API reference (docs/api.md). */
#include "server/api/handlers.h"
#include "server/api/ollama.h"
#include "server/api/prompt.h"
#include "server/api/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* OpenAI's limit. */
#define MAX_INPUTS 2048u

struct inputs {
    struct sl_ids *ids; /* [n] */
    uint32_t n;
    bool truncates; /* what is longer than the context is cut */
};

static void inputs_release(struct inputs *in) {
    for (uint32_t i = 0; in->ids && i < in->n; i++)
        sl_ids_release(&in->ids[i]);
    free(in->ids);
    *in = (struct inputs){0};
}

/* With the BOS and EOS that the file asks for, as embedding models were trained; what is written
 * like a control token is text. */
static bool read_text(struct sl_exchange *ex, const struct inputs *in, const json_t *v,
                      const char *field, struct sl_ids *out) {
    const struct sl_served *served = ex->server->served;
    const struct sl_encode_watch watch = sl_prompt_watch(ex);
    size_t n = json_string_length(v);
    uint64_t most = (uint64_t)served->info.ctx_tokens * served->max_piece_bytes;
    if (!in->truncates && !sl_prompt_may_fit(ex, n, field))
        return false;
    if (in->truncates && n > most) /* the rest would be cut */
        n = (size_t)most;
    enum sl_status status = sl_tokenizer_encode_watched(served->tok, json_string_value(v), n,
                                                        SL_ENCODE_ADD_SPECIAL, &watch, out);
    if (status != SL_OK)
        return sl_prompt_not_encoded(ex, status);
    if (in->truncates && out->n >= served->info.ctx_tokens)
        out->n = served->info.ctx_tokens - 1;
    return sl_prompt_fits(ex, out->n, field);
}

static bool read_input(struct sl_exchange *ex, const struct inputs *in, const json_t *v,
                       const char *field, struct sl_ids *out) {
    if (json_is_string(v))
        return read_text(ex, in, v, field, out);
    if (json_is_array(v))
        return sl_prompt_ids(ex, v, field, out) && sl_prompt_fits(ex, out->n, field);
    return sl_http_bad(&ex->error, field, "'%s' must be a string or an array of token ids, not %s",
                       field, sl_json_kind(v));
}

/* A text, ids, or an array of either. */
static bool read_inputs(struct sl_exchange *ex, const json_t *v, const char *name,
                        struct inputs *in) {
    const json_t *first = json_is_array(v) ? json_array_get(v, 0) : NULL;
    bool several = json_is_string(first) || json_is_array(first);
    size_t n = several ? json_array_size(v) : 1;
    if (!sl_json_given(v))
        return sl_http_bad(&ex->error, name, "'%s' is missing", name);
    if (json_is_array(v) && !first)
        return sl_http_bad(&ex->error, name, "'%s' must not be an empty array", name);
    if (n > MAX_INPUTS)
        return sl_http_bad(&ex->error, name, "'%s' holds %zu texts; the most is %u", name, n,
                           MAX_INPUTS);
    in->ids = calloc(n, sizeof *in->ids);
    if (!in->ids)
        return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    in->n = (uint32_t)n;
    for (uint32_t i = 0; i < in->n; i++) {
        char field[32];
        snprintf(field, sizeof field, several ? "%s[%u]" : "%s", name, i);
        if (!read_input(ex, in, several ? json_array_get(v, i) : v, field, &in->ids[i]))
            return false;
    }
    return true;
}

static bool read_word(const json_t *body, const char *name, const char *off, const char *on,
                      bool *inout, struct sl_http_error *e) {
    const json_t *v = json_object_get(body, name);
    if (!sl_json_given(v))
        return true;
    *inout = sl_json_is(v, on);
    return *inout || sl_json_is(v, off) ||
           sl_http_bad(e, name, "'%s' must be '%s' or '%s'", name, off, on);
}

/* Other servers' settings, with the one value that this one has. */
static bool check_foreign(const json_t *body, struct sl_http_error *e) {
    static const struct sl_foreign_field foreign[] = {
        {"messages", "a conversation has no vector; send its text as 'input'"}, {NULL, NULL}};
    static const char *const usual[] = {"normalize", "add_special_tokens"};
    const json_t *norm = json_object_get(body, "embd_normalize");
    const json_t *cut = json_object_get(body, "truncate_prompt_tokens");
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        const json_t *v = json_object_get(body, usual[i]);
        if (sl_json_given(v) && !json_is_true(v))
            return sl_http_bad(e, usual[i], "'%s' can only be true here", usual[i]);
    }
    if (sl_json_given(norm) && !(json_is_integer(norm) && json_integer_value(norm) == 2))
        return sl_http_bad(e, "embd_normalize",
                           "'embd_normalize' can only be 2: vectors have length 1");
    if (sl_json_given(cut) && !(json_is_integer(cut) && json_integer_value(cut) == -1))
        return sl_http_bad(e, "truncate_prompt_tokens",
                           "'truncate_prompt_tokens' is not supported: leave it out");
    return sl_translate_refuse(body, foreign, e);
}

/* What all of the endpoints take. */
static bool read_params(struct sl_exchange *ex, const json_t *body, struct sl_gen_params *p) {
    const struct sl_served *v = ex->server->served;
    struct sl_http_error *e = &ex->error;
    uint32_t dimensions = v->info.n_embd;
    float timeout_s = 0;
    static const struct sl_field timeout[] = {{"timeout_s", SL_FIELD_F32, 0, 0.001, 86400}};
    static const struct sl_field width[] = {{"dimensions", SL_FIELD_U32, 0, 1, INT32_MAX}};
    p->n = p->max_tokens = 1;
    p->prompt_only = p->embeds = true;
    p->pools_last = v->pools_last;
    p->sampling = sl_sampling_default;
    if (!check_foreign(body, e) || !sl_fields_read(body, timeout, 1, &timeout_s, e) ||
        !sl_fields_read(body, width, 1, &dimensions, e) ||
        !read_word(body, "pooling", "mean", "last", &p->pools_last, e))
        return false;
    p->timeout_s = timeout_s;
    return dimensions == v->info.n_embd ||
           sl_http_bad(e, "dimensions",
                       "'dimensions' must be %u, which this model's vectors have: shorter ones "
                       "were not trained",
                       v->info.n_embd);
}

static void embed(struct sl_exchange *ex, enum sl_api api, const json_t *body, const char *name,
                  struct inputs *in) {
    struct sl_gen_params params = {0};
    if (read_params(ex, body, &params) &&
        read_word(body, "encoding_format", "float", "base64", &params.base64, &ex->error) &&
        read_inputs(ex, json_object_get(body, name), name, in)) {
        sl_prompt_generate(ex, api, &params, in->ids, NULL, in->n);
        *in = (struct inputs){0};
    }
    inputs_release(in);
    sl_params_release(&params);
}

void sl_embeddings_handle(struct sl_exchange *ex) {
    json_t *body = sl_prompt_body(ex);
    struct inputs in = {0};
    char unused;
    static const struct sl_field fields[] = {{"user", SL_FIELD_STRING, 0, 0, 0}};
    if (body && sl_prompt_check_model(ex, body) &&
        sl_fields_read(body, fields, 1, &unused, &ex->error))
        embed(ex, SL_API_EMBEDDINGS, body, "input", &in);
    json_decref(body);
}

/* Ollama cuts what is too long unless it is told not to. */
static void handle_ollama(struct sl_exchange *ex, enum sl_api api, const char *name) {
    json_t *body = sl_prompt_body(ex);
    struct inputs in = {.truncates = true};
    static const struct sl_field fields[] = {{"truncate", SL_FIELD_BOOL, 0, 0, 0}};
    if (body && sl_ollama_check_model(ex, body) &&
        sl_fields_read(body, fields, 1, &in.truncates, &ex->error))
        embed(ex, api, body, name, &in);
    json_decref(body);
}

void sl_ollama_embed_handle(struct sl_exchange *ex) {
    handle_ollama(ex, SL_API_OLLAMA_EMBED, "input");
}

void sl_ollama_embeddings_handle(struct sl_exchange *ex) {
    handle_ollama(ex, SL_API_OLLAMA_EMBEDDINGS, "prompt");
}
