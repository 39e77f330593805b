#include "server/api/prompt.h"

#include "common/clock.h"
#include "server/api/renderers.h"
#include "server/exchange/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME_BYTES 1024u /* an answer repeats the name, a stream in each event */

json_t *sl_prompt_body(struct sl_exchange *ex) {
    const struct sl_template_watch watch = {sl_exchange_poll, ex};
    return sl_json_parse_object(ex->body.ptr, ex->body.len,
                                sl_server_json_units(&ex->server->config), &watch, &ex->error);
}

bool sl_prompt_check_model(struct sl_exchange *ex, const json_t *body) {
    const json_t *m = json_object_get(body, "model");
    const struct sl_served *v = ex->server->served;
    if (!m || json_is_null(m))
        return true;
    if (!json_is_string(m))
        return sl_http_bad(&ex->error, "model", "'model' must be a string, not %s",
                           sl_json_kind(m));
    const char *name = json_string_value(m);
    if (!sl_served_has_name(v, name))
        return sl_http_fail(&ex->error, 404, "model_not_found", "model",
                            "the model '%.100s' does not exist; this server has '%.100s'", name,
                            v->names[0]);
    if (json_string_length(m) > MAX_NAME_BYTES)
        return sl_http_bad(&ex->error, "model", "'model' has %zu bytes; the most is %u",
                           json_string_length(m), MAX_NAME_BYTES);
    if (!ex->model_name && strcmp(name, v->names[0]) != 0 && !(ex->model_name = strdup(name)))
        return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    return true;
}

bool sl_prompt_may_fit(struct sl_exchange *ex, size_t n_bytes, const char *field) {
    const struct sl_served *v = ex->server->served;
    uint64_t most = (uint64_t)v->info.ctx_tokens * (v->max_piece_bytes ? v->max_piece_bytes : 1);
    if (n_bytes <= most)
        return true;
    return sl_http_fail(&ex->error, 400, "context_length_exceeded", field,
                        "the prompt has %zu bytes; the context of %u tokens cannot hold more than "
                        "%llu: shorten it, or start the server with a larger --ctx",
                        n_bytes, v->info.ctx_tokens, (unsigned long long)most);
}

bool sl_prompt_fits(struct sl_exchange *ex, size_t n_tokens, const char *field) {
    uint32_t ctx = ex->server->served->info.ctx_tokens;
    if (n_tokens == 0)
        return sl_http_bad(&ex->error, field, "'%s' is empty: it gives no token", field);
    if (n_tokens < ctx)
        return true;
    return sl_http_fail(&ex->error, 400, "context_length_exceeded", field,
                        "the prompt has %zu tokens and the context %u, which must also hold the "
                        "answer: shorten it, or start the server with a larger --ctx",
                        n_tokens, ctx);
}

struct sl_template_limits sl_prompt_template_limits(struct sl_exchange *ex, const json_t *body) {
    struct sl_template_limits l = sl_server_template_limits(&ex->server->config);
    sl_exchange_limit(ex, json_number_value(json_object_get(body, "timeout_s"))); /* 0: no number */
    l.watch = (struct sl_template_watch){sl_exchange_poll, ex};
    return l;
}

static enum sl_status poll_exchange(void *ex) {
    return sl_exchange_poll(ex, NULL);
}

struct sl_encode_watch sl_prompt_watch(struct sl_exchange *ex) {
    return (struct sl_encode_watch){poll_exchange, ex};
}

bool sl_prompt_not_encoded(struct sl_exchange *ex, enum sl_status status) {
    struct sl_err err = {0};
    if (status == SL_ERR_TIMEOUT || status == SL_ERR_CANCELED)
        status = sl_exchange_poll(ex, &err); /* says it in words */
    return sl_http_from_status(&ex->error, status, &err);
}

bool sl_prompt_encode(struct sl_exchange *ex, const char *text, size_t len, struct sl_ids *out) {
    const struct sl_served *v = ex->server->served;
    const struct sl_encode_watch watch = sl_prompt_watch(ex);
    enum sl_status status = sl_chat_encode_prompt(&v->chat, text, len, &watch, out);
    return status == SL_OK || sl_prompt_not_encoded(ex, status);
}

bool sl_prompt_ids(struct sl_exchange *ex, const json_t *array, const char *field,
                   struct sl_ids *out) {
    size_t n = json_array_size(array);
    uint32_t n_vocab = sl_tokenizer_n_vocab(ex->server->served->tok);
    out->ids = malloc((n ? n : 1) * sizeof *out->ids);
    if (!out->ids)
        return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    out->cap = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(array, i);
        if (!json_is_integer(id))
            return sl_http_bad(&ex->error, field, "'%s[%zu]' must be a token id, not %s", field, i,
                               json_is_real(id) ? "a fraction" : sl_json_kind(id));
        json_int_t x = json_integer_value(id);
        if (x < 0 || x >= n_vocab)
            return sl_http_bad(&ex->error, field,
                               "'%s[%zu]' is %lld; token ids of this model go from 0 to %u", field,
                               i, (long long)x, n_vocab - 1);
        out->ids[out->n++] = (uint32_t)x;
    }
    return true;
}

bool sl_prompt_add_id(struct sl_ids *ids, uint32_t id) {
    if (ids->n == ids->cap) {
        size_t cap = ids->cap ? 2 * ids->cap : 16;
        uint32_t *p = realloc(ids->ids, cap * sizeof *p);
        if (!p)
            return false;
        ids->ids = p;
        ids->cap = cap;
    }
    ids->ids[ids->n++] = id;
    return true;
}

void sl_prompt_generate(struct sl_exchange *ex, enum sl_api api, struct sl_gen_params *params,
                        struct sl_ids *prompts, char **echo, uint32_t n_prompts) {
    struct sl_gen *g =
        sl_gen_create(ex, api, sl_renderer_of(api), params, prompts, echo, n_prompts);
    if (!g) {
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        return;
    }
    uint64_t bytes = sl_gen_memory_bytes(g), most = ex->server->config.max_replies_bytes;
    if (bytes > most) {
        bool embeds = g->params.embeds;
        sl_gen_destroy(g);
        if (embeds) {
            sl_http_bad(&ex->error, "input",
                        "the vectors of that many texts may take %llu bytes, and this server has "
                        "%llu for answers: send them in parts",
                        (unsigned long long)bytes, (unsigned long long)most);
            return;
        }
        sl_http_bad(&ex->error, "max_tokens",
                    "an answer of that length may take %llu bytes with all its choices, and this "
                    "server has %llu for answers: lower 'max_tokens', 'n' or the log-probabilities",
                    (unsigned long long)bytes, (unsigned long long)most);
        return;
    }
    if (sl_exchange_hold_reply(ex, bytes) > most) {
        sl_exchange_hold_reply(ex, 0);
        sl_gen_destroy(g);
        sl_http_fail(&ex->error, 503, "overloaded", NULL,
                     "the answer may not fit beside those that are being made or wait for their "
                     "clients to read; try again later, or ask for fewer tokens or choices, or "
                     "for no grammar");
        return;
    }
    /* From here on a client that leaves, or the end of the server, finds it and cancels it. */
    pthread_mutex_lock(&ex->lock);
    ex->gen = g;
    pthread_mutex_unlock(&ex->lock);
    sl_gen_submit(g);
}
