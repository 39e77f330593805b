/* POST /v1/completions, /tokenize and /detokenize: text and ids without a template. */
#include "server/api/handlers.h"
#include "server/api/completion.h"
#include "server/api/translate.h"
#include "server/exchange/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The prompts of a body: their ids, and their text when it is to be echoed. */
struct prompts {
    struct sl_ids *ids;
    char **echo; /* NULL = not asked for */
    uint32_t n;
};

static void prompts_release(struct prompts *p) {
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->ids)
            sl_ids_release(&p->ids[i]);
        if (p->echo)
            free(p->echo[i]);
    }
    free(p->ids);
    free(p->echo);
    *p = (struct prompts){0};
}

static bool ids_to_text(const struct sl_tokenizer *tok, const uint32_t *ids, size_t n,
                        struct sl_buf *out) {
    struct sl_detok d = {0};
    struct sl_str s;
    bool ok = true;
    for (size_t i = 0; ok && i < n; i++) {
        ok = sl_detok_push(&d, tok, ids[i], true, &s) == SL_OK;
        if (ok)
            sl_buf_put(out, s.ptr, s.len);
    }
    ok = ok && sl_detok_finish(&d, &s) == SL_OK;
    if (ok)
        sl_buf_put(out, s.ptr, s.len);
    sl_detok_release(&d);
    return ok && !out->failed;
}

/* ids[at...] moves up and `id` goes there. */
static bool insert_id(struct sl_ids *ids, size_t at, uint32_t id) {
    if (!sl_prompt_add_id(ids, id))
        return false;
    memmove(ids->ids + at + 1, ids->ids + at, (ids->n - 1 - at) * sizeof *ids->ids);
    ids->ids[at] = id;
    return true;
}

/* From the ids of what stands before a gap, the prompt that asks for what is in it:
 * [BOS] PREFIX before SUFFIX after MIDDLE. */
static bool fill_in_the_middle(struct sl_exchange *ex, const json_t *suffix, struct sl_ids *ids) {
    const struct sl_tokenizer *tok = ex->server->served->tok;
    struct sl_ids after = {0};
    if (!sl_prompt_may_fit(ex, json_string_length(suffix), "suffix") ||
        !sl_prompt_encode(ex, json_string_value(suffix), json_string_length(suffix), &after)) {
        sl_ids_release(&after);
        return false;
    }
    uint32_t bos = sl_tokenizer_bos(tok);
    bool has_bos = ids->n && ids->ids[0] == bos;
    bool ok = insert_id(ids, has_bos, sl_tokenizer_fim(tok, SL_FIM_PREFIX)) &&
              insert_id(ids, ids->n, sl_tokenizer_fim(tok, SL_FIM_SUFFIX));
    for (size_t i = after.n && after.ids[0] == bos; ok && i < after.n; i++)
        ok = insert_id(ids, ids->n, after.ids[i]);
    ok = ok && insert_id(ids, ids->n, sl_tokenizer_fim(tok, SL_FIM_MIDDLE));
    sl_ids_release(&after);
    return ok || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
}

/* v: a string or an array of ids. gap: it stands before one, and may be empty. */
static bool read_prompt(struct sl_exchange *ex, const json_t *v, const char *field, bool gap,
                        struct prompts *p, uint32_t i) {
    const struct sl_tokenizer *tok = ex->server->served->tok;
    if (json_is_string(v)) {
        if (!sl_prompt_may_fit(ex, json_string_length(v), "prompt") ||
            !sl_prompt_encode(ex, json_string_value(v), json_string_length(v), &p->ids[i]))
            return false;
        if (p->echo && !(p->echo[i] = strdup(json_string_value(v))))
            return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    } else if (json_is_array(v)) {
        if (!sl_prompt_ids(ex, v, field, &p->ids[i]))
            return false;
        if (p->echo) {
            struct sl_buf b = {0};
            bool ok = ids_to_text(tok, p->ids[i].ids, p->ids[i].n, &b);
            sl_buf_put(&b, "", 1);
            if (!ok || b.failed) {
                sl_buf_release(&b);
                return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
            }
            p->echo[i] = b.ptr;
        }
    } else {
        return sl_http_bad(&ex->error, field,
                           "'%s' must be a string or an array of token ids, not %s", field,
                           sl_json_kind(v));
    }
    return gap || sl_prompt_fits(ex, p->ids[i].n, field);
}

/* `suffix` that is not empty, or NULL. */
static bool read_suffix(struct sl_exchange *ex, const json_t *body, const json_t **out) {
    const json_t *suffix = json_object_get(body, "suffix");
    *out = NULL;
    if (!suffix || json_is_null(suffix))
        return true;
    if (!json_is_string(suffix))
        return sl_http_bad(&ex->error, "suffix", "'suffix' must be a string, not %s",
                           sl_json_kind(suffix));
    if (json_string_length(suffix) == 0)
        return true;
    for (uint32_t mark = 0; mark < SL_FIM_NEEDED; mark++)
        if (sl_tokenizer_fim(ex->server->served->tok, (enum sl_fim)mark) == SL_NO_TOKEN)
            return sl_http_bad(&ex->error, "suffix",
                               "'suffix' is not supported by this model: it has no tokens for "
                               "filling in the middle");
    *out = suffix;
    return true;
}

static bool read_prompts(struct sl_exchange *ex, const json_t *body, bool echo, struct prompts *p) {
    const json_t *suffix;
    if (!read_suffix(ex, body, &suffix))
        return false;
    const json_t *v = json_object_get(body, "prompt");
    if (!v || json_is_null(v))
        return sl_http_bad(&ex->error, "prompt", "'prompt' is missing");
    /* [1, 2, 3] is one prompt of ids; ["a", "b"] and [[1, 2], [3]] are several prompts. */
    const json_t *first = json_is_array(v) ? json_array_get(v, 0) : NULL;
    bool several = json_is_string(first) || json_is_array(first);
    if (json_is_array(v) && !first)
        return sl_http_bad(&ex->error, "prompt", "'prompt' must not be an empty array");
    size_t n = several ? json_array_size(v) : 1;
    if (n > SL_MAX_CHOICES)
        return sl_http_bad(&ex->error, "prompt", "'prompt' holds %zu prompts; the most is %u", n,
                           SL_MAX_CHOICES);
    p->n = (uint32_t)n;
    p->ids = calloc(n, sizeof *p->ids);
    p->echo = echo ? calloc(n, sizeof *p->echo) : NULL;
    if (!p->ids || (echo && !p->echo))
        return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    for (uint32_t i = 0; i < p->n; i++) {
        char field[32] = "prompt";
        if (several)
            snprintf(field, sizeof field, "prompt[%u]", i);
        if (!read_prompt(ex, several ? json_array_get(v, i) : v, field, suffix != NULL, p, i))
            return false;
        if (suffix && (!fill_in_the_middle(ex, suffix, &p->ids[i]) ||
                       !sl_prompt_fits(ex, p->ids[i].n, "suffix")))
            return false;
    }
    return true;
}

/* The one prompt is given. */
static bool take_prompt(struct sl_exchange *ex, struct sl_ids *given, struct prompts *p) {
    p->ids = calloc(1, sizeof *p->ids);
    if (!p->ids)
        return sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    p->n = 1;
    p->ids[0] = *given;
    *given = (struct sl_ids){0};
    return true;
}

void sl_completion_answer(struct sl_exchange *ex, enum sl_api api, const json_t *body,
                          struct sl_ids *given, struct sl_request_about *about) {
    const struct sl_served *v = ex->server->served;
    struct sl_http_error *e = &ex->error;
    struct sl_gen_params params = {0};
    struct prompts prompts = {0};
    struct sl_content_form form = {0};
    bool echo = false;
    static const struct sl_field fields[] = {{"echo", SL_FIELD_BOOL, 0, 0, 0}};
    bool ok = sl_prompt_check_model(ex, body) && sl_params_read(body, api, v->tok, &params, e);
    params.about = *about;
    *about = (struct sl_request_about){0};
    if (!ok || !sl_content_form_read(body, &form, e) ||
        !sl_params_bind(&params, &form, form.rule, form.field, v->tok, e) ||
        !sl_fields_read(body, fields, 1, &echo, e))
        goto out;
    if (json_is_true(json_object_get(body, "continue_final_message"))) {
        sl_http_bad(e, "continue_final_message",
                    "'continue_final_message' needs a conversation: a text prompt is always "
                    "continued");
        goto out;
    }
    if (params.budget.given) {
        sl_http_bad(
            e, "reasoning_budget",
            "'reasoning_budget' needs a conversation: a text has no part that is reasoning");
        goto out;
    }
    params.prompt_logprobs = echo && params.logprobs;
    if (!(given ? take_prompt(ex, given, &prompts) : read_prompts(ex, body, echo, &prompts)))
        goto out;
    if (prompts.n * params.n > SL_MAX_CHOICES) {
        sl_http_bad(e, "n", "%u prompts times 'n' = %u is more than %u choices", prompts.n,
                    params.n, SL_MAX_CHOICES);
        goto out;
    }
    sl_prompt_generate(ex, api, &params, prompts.ids, prompts.echo, prompts.n);
    prompts = (struct prompts){0};
out:
    prompts_release(&prompts);
    sl_content_form_release(&form);
    sl_params_release(&params);
}

void sl_completions_handle(struct sl_exchange *ex) {
    static const struct sl_foreign_field foreign[] = {
        {"max_output_tokens", "use 'max_tokens'"},
        {"stop_sequences", "use 'stop'"},
        {"reasoning_effort", "use /v1/chat/completions"},
        {NULL, NULL}};
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    struct sl_request_about about = {0};
    if (sl_translate_refuse(body, foreign, &ex->error))
        sl_completion_answer(ex, SL_API_COMPLETIONS, body, NULL, &about);
    json_decref(body);
}

/* {"content": text, "add_special": bool, "parse_special": bool, "with_pieces": bool} */
void sl_tokenize_handle(struct sl_exchange *ex) {
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    struct {
        bool add_special, parse_special, with_pieces;
    } opt = {false, true, false};
    static const struct sl_field fields[] = {
        {"add_special", SL_FIELD_BOOL, 0, 0, 0},
        {"parse_special", SL_FIELD_BOOL, 1, 0, 0},
        {"with_pieces", SL_FIELD_BOOL, 2, 0, 0},
    };
    _Static_assert(sizeof opt == 3, "offsets above");
    const struct sl_tokenizer *tok = ex->server->served->tok;
    const json_t *content = json_object_get(body, "content");
    struct sl_ids ids = {0};
    struct sl_buf *b = &ex->reply;
    if (!sl_fields_read(body, fields, 3, &opt, &ex->error))
        goto out;
    if (!json_is_string(content)) {
        sl_http_bad(&ex->error, "content", "'content' must be a string, not %s",
                    sl_json_kind(content));
        goto out;
    }
    /* Some seconds of a worker's time, and answers with pieces grow twentyfold and more. */
    size_t max_bytes = sl_server_tokenize_bytes(&ex->server->config);
    if (json_string_length(content) > max_bytes) {
        sl_http_fail(&ex->error, 413, "request_too_large", "content",
                     "'content' has %zu bytes; the most is %zu: send it in parts",
                     json_string_length(content), max_bytes);
        goto out;
    }
    unsigned flags = (opt.add_special ? SL_ENCODE_ADD_SPECIAL : 0u) |
                     (opt.parse_special ? SL_ENCODE_PARSE_SPECIAL : 0u);
    const struct sl_encode_watch watch = sl_prompt_watch(ex);
    enum sl_status status = sl_tokenizer_encode_watched(
        tok, json_string_value(content), json_string_length(content), flags, &watch, &ids);
    if (status != SL_OK) {
        (void)sl_prompt_not_encoded(ex, status);
        goto out;
    }
    sl_buf_puts(b, "{\"tokens\":[");
    for (size_t i = 0; i < ids.n; i++) {
        if (!opt.with_pieces) {
            sl_buf_printf(b, "%s%u", i ? "," : "", ids.ids[i]);
            continue;
        }
        struct sl_str piece = sl_tokenizer_piece(tok, ids.ids[i], true);
        sl_buf_printf(b, "%s{\"id\":%u,\"piece\":", i ? "," : "", ids.ids[i]);
        sl_buf_json(b, piece.len ? piece.ptr : "", piece.len);
        sl_buf_puts(b, "}");
    }
    sl_buf_puts(b, "]}");
out:
    sl_ids_release(&ids);
    json_decref(body);
}

/* {"tokens": [ids]} */
void sl_detokenize_handle(struct sl_exchange *ex) {
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    const json_t *tokens = json_object_get(body, "tokens");
    struct sl_ids ids = {0};
    struct sl_buf text = {0};
    if (!json_is_array(tokens)) {
        sl_http_bad(&ex->error, "tokens", "'tokens' must be an array of token ids, not %s",
                    sl_json_kind(tokens));
    } else if (sl_prompt_ids(ex, tokens, "tokens", &ids)) {
        if (ids_to_text(ex->server->served->tok, ids.ids, ids.n, &text)) {
            sl_buf_puts(&ex->reply, "{\"content\":");
            sl_buf_json(&ex->reply, text.ptr ? text.ptr : "", text.len);
            sl_buf_puts(&ex->reply, "}");
        } else {
            sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        }
    }
    sl_buf_release(&text);
    sl_ids_release(&ids);
    json_decref(body);
}
