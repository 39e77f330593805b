/* POST /completion and /infill: llama.cpp's own requests as the body of a text completion.
 *
 * Prompts of its forms become texts or ids; a gap between two texts becomes ids, for what clients
 * write around it must not become control tokens. Source: llama.cpp, tools/server/README.md. */
#include "server/api/completion.h"
#include "server/api/handlers.h"
#include "server/api/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define COUNTOF(a) (sizeof(a) / sizeof *(a))
#define MAX_WANTED 64u

/* -------------------------------------------------------------------------------------- fields */

static bool is_off(const json_t *v) {
    return !sl_json_given(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) <= 0) ||
           (json_is_array(v) && json_array_size(v) == 0);
}

/* Fields of text completions that have no meaning here. */
static bool check_fields(const json_t *body, struct sl_http_error *e) {
    static const struct sl_foreign_field foreign[] = {

        {"best_of", "use /v1/completions"},
        {"echo", "use /v1/completions"},
        {"max_output_tokens", "use 'n_predict'"},
        {"stop_sequences", "use 'stop'"},
        {"reasoning_effort", "use /v1/chat/completions"},
        {NULL, NULL}};
    const json_t *suffix = json_object_get(body, "suffix");
    if (!is_off(json_object_get(body, "image_data")))
        return sl_http_bad(e, "image_data", "'image_data': this model takes text only");
    if (!is_off(json_object_get(body, "top_logprobs")))
        return sl_http_bad(e, "top_logprobs",
                           "'top_logprobs' is not supported here: use 'n_probs'");
    if (sl_json_given(suffix) && json_string_length(suffix) > 0)
        return sl_http_bad(e, "suffix", "'suffix' is not supported here: use /infill");
    return sl_translate_refuse(body, foreign, e);
}

/* n_predict (or max_tokens): -1 and -2, as many as there is room for. */
static bool read_length(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const char *name =
        sl_json_given(json_object_get(body, "n_predict")) ? "n_predict" : "max_tokens";
    const json_t *v = json_object_get(body, name);
    if (!sl_json_given(v))
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < -2)
        return sl_http_bad(e, name, "'%s' must be a whole number from 0 up, or -1: no limit", name);
    if (json_integer_value(v) >= 0)
        sl_translate_copy(t, body, name, "max_tokens");
    return true;
}

/* n_probs, or logprobs, as llama.cpp reads it. */
static bool read_probs(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const char *name = sl_json_given(json_object_get(body, "n_probs")) ? "n_probs" : "logprobs";
    const json_t *v = json_object_get(body, name);
    if (!sl_json_given(v))
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < 0 ||
        json_integer_value(v) > SL_MAX_TOP_LOGPROBS)
        return sl_http_bad(e, name, "'%s' must be a whole number from 0 to %u", name,
                           SL_MAX_TOP_LOGPROBS);
    if (json_integer_value(v) == 0)
        return true;
    sl_translate_set(t, "logprobs", json_true());
    sl_translate_copy(t, body, name, "top_logprobs");
    return true;
}

/* response_fields: members of the answer by name, or by path: "generation_settings/seed". */
static bool read_wanted(const json_t *body, struct sl_request_about *about,
                        struct sl_http_error *e) {
    json_t *v = json_object_get(body, "response_fields");
    if (!sl_json_given(v))
        return true;
    if (!json_is_array(v) || json_array_size(v) > MAX_WANTED)
        return sl_http_bad(e, "response_fields",
                           "'response_fields' must be an array of at most %u strings", MAX_WANTED);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_is_string(json_array_get(v, i)))
            return sl_http_bad(e, "response_fields",
                               "'response_fields[%zu]' must be a string, not %s", i,
                               sl_json_kind(json_array_get(v, i)));
    about->fields = json_array_size(v) ? json_incref(v) : NULL;
    return true;
}

/* Everything but the prompt. */
static bool read_shared(struct sl_translation *t, const json_t *body,
                        struct sl_request_about *about, struct sl_http_error *e) {
    /* Read here, or by nothing. */
    static const char *const own[] = {
        "prompt",       "n_predict",    "max_tokens",      "n_probs",
        "seed",         "input_extra",  "return_tokens",   "logprobs",
        "top_logprobs", "input_prefix", "input_suffix",    "suffix",
        "echo",         "json_schema",  "response_fields", "stream_options"};
    const json_t *seed = json_object_get(body, "seed");
    const struct sl_field field = {"return_tokens", SL_FIELD_BOOL, 0, 0, 0};
    const char *key;
    json_t *value;
    if (!check_fields(body, e) || !sl_fields_read(body, &field, 1, &about->return_tokens, e) ||
        !read_length(t, body, e) || !read_probs(t, body, e) || !read_wanted(body, about, e))
        return false;
    json_object_foreach((json_t *)body, key, value) {
        bool mine = false;
        for (size_t i = 0; i < COUNTOF(own); i++)
            mine = mine || strcmp(key, own[i]) == 0;
        if (!mine)
            sl_translate_copy(t, body, key, key);
    }
    const json_t *schema = json_object_get(body, "json_schema");
    if (sl_json_given(schema)) {
        json_t *name = json_string("json_schema");
        sl_translate_schema(t, name, schema, NULL);
        json_decref(name);
    }
    /* -1 asks for any, also where it was stored without its sign. The answer tells which was taken,
     * in a number that every client can send back. */
    json_int_t s = json_integer_value(seed);
    uint32_t any = 0;
    if (sl_json_given(seed) && (!json_is_integer(seed) || (s != -1 && s != (json_int_t)UINT32_MAX)))
        sl_translate_copy(t, body, "seed", "seed");
    else if (getrandom(&any, sizeof any, 0) == sizeof any)
        sl_translate_set(t, "seed", json_integer((json_int_t)(any >> 1)));
    return true;
}

/* given: instead of the body's prompts; NULL = none. */
static void answer(struct sl_exchange *ex, struct sl_translation *t, struct sl_ids *given,
                   struct sl_request_about *about) {
    json_t *body = sl_translation_end(t, &ex->error);
    if (!body)
        return;
    json_object_del(body, "messages");
    sl_completion_answer(ex, SL_API_NATIVE, body, given, about);
    json_decref(body);
    sl_http_rename_field(&ex->error, "max_tokens", "n_predict");
    sl_http_rename_field(&ex->error, "top_logprobs", "n_probs");
    sl_http_rename_field(&ex->error, "response_format.json_schema.schema", "json_schema");
    sl_http_rename_field(&ex->error, "response_format.json_schema", "json_schema");
}

/* ------------------------------------------------------------------------------------- prompts */

/* Appends the ids of some text to an array. */
static bool put_ids(struct sl_exchange *ex, const json_t *text, unsigned flags, const char *field,
                    json_t *out) {
    struct sl_ids ids = {0};
    size_t len = json_string_length(text);
    const struct sl_encode_watch watch = sl_prompt_watch(ex);
    bool ok = sl_prompt_may_fit(ex, len, field);
    enum sl_status status =
        ok ? sl_tokenizer_encode_watched(ex->server->served->tok, json_string_value(text), len,
                                         flags, &watch, &ids)
           : SL_OK;
    if (status != SL_OK)
        ok = sl_prompt_not_encoded(ex, status);
    for (size_t i = 0; ok && i < ids.n; i++)
        if (json_array_append_new(out, json_integer((json_int_t)ids.ids[i])) != 0)
            ok = sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    sl_ids_release(&ids);
    return ok;
}

/* An array of ids and texts as one of ids; BOS where the first is a text. NULL: ex->error is set.
 */
static json_t *mixed(struct sl_exchange *ex, const json_t *parts, const char *field) {
    json_t *out = json_array();
    bool ok = out || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    for (size_t i = 0; ok && i < json_array_size(parts); i++) {
        json_t *v = json_array_get(parts, i);
        if (json_is_string(v))
            ok = put_ids(ex, v, SL_ENCODE_PARSE_SPECIAL | (i ? 0u : SL_ENCODE_ADD_SPECIAL), field,
                         out);
        else if (json_array_append(out, v) != 0)
            ok = sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    }
    if (!ok) {
        json_decref(out);
        return NULL;
    }
    return out;
}

static bool holds(const json_t *array, bool (*is)(const json_t *)) {
    for (size_t i = 0; i < json_array_size(array); i++)
        if (is(json_array_get(array, i)))
            return true;
    return false;
}

static bool is_text(const json_t *v) {
    return json_is_string(v);
}

static bool is_number(const json_t *v) {
    return json_is_number(v);
}

/* One prompt as a text or an array of ids. NULL: ex->error is set. */
static json_t *one_prompt(struct sl_exchange *ex, const json_t *v, const char *field) {
    if (json_is_object(v)) {
        const json_t *data = json_object_get(v, "multimodal_data");
        if (!is_off(data)) {
            sl_http_bad(&ex->error, field, "'%s.multimodal_data': this model takes text only",
                        field);
            return NULL;
        }
        v = json_object_get(v, "prompt_string");
    }
    if (json_is_array(v) && holds(v, is_text))
        return mixed(ex, v, field);
    if (json_is_string(v) || json_is_array(v))
        return json_incref((json_t *)v);
    sl_http_bad(&ex->error, field,
                "'%s' must be a string, an array of token ids and strings, or an object with "
                "'prompt_string', not %s",
                field, sl_json_kind(v));
    return NULL;
}

/* [1, "a"] is one prompt; ["a", [1]] are two. */
static json_t *read_prompts(struct sl_exchange *ex, const json_t *v) {
    if (!json_is_array(v) || json_array_size(v) == 0 || holds(v, is_number))
        return one_prompt(ex, v, "prompt");
    json_t *all = json_array();
    for (size_t i = 0; all && i < json_array_size(v); i++) {
        struct sl_where where = sl_where_index("prompt", i);
        json_t *p = one_prompt(ex, json_array_get(v, i), where.text);
        if (!p || json_array_append_new(all, p) != 0) {
            json_decref(all);
            all = NULL;
        }
    }
    if (!all && !ex->error.http_status)
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    return all;
}

void sl_native_handle(struct sl_exchange *ex) {
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    struct sl_translation t;
    struct sl_request_about about = {0};
    sl_translation_begin(&t);
    const json_t *prompt = json_object_get(body, "prompt");
    if (!sl_json_given(prompt)) {
        sl_http_bad(&ex->error, "prompt", "'prompt' is missing");
    } else if (read_shared(&t, body, &about, &ex->error)) {
        json_t *prompts = read_prompts(ex, prompt);
        if (prompts) {
            sl_translate_set(&t, "prompt", prompts);
            answer(ex, &t, NULL, &about);
        }
    }
    sl_request_about_release(&about);
    sl_translation_release(&t);
    json_decref(body);
}

/* -------------------------------------------------------------------------------------- infill */

struct infill {
    const json_t *prefix, *suffix, *prompt, *extra;
};

static bool read_infill(const json_t *body, struct infill *f, struct sl_http_error *e) {
    static const char *const names[] = {"input_prefix", "input_suffix", "prompt"};
    const json_t **outs[] = {&f->prefix, &f->suffix, &f->prompt};
    for (size_t i = 0; i < COUNTOF(names); i++) {
        const json_t *v = *outs[i] = json_object_get(body, names[i]);
        bool needed = i < 2;
        if (!json_is_string(v) && (needed || sl_json_given(v)))
            return sl_http_bad(e, names[i], "'%s' must be a string, not %s", names[i],
                               sl_json_kind(v));
    }
    f->extra = json_object_get(body, "input_extra");
    if (sl_json_given(f->extra) && !json_is_array(f->extra))
        return sl_http_bad(e, "input_extra", "'input_extra' must be an array, not %s",
                           sl_json_kind(f->extra));
    for (size_t i = 0; i < json_array_size(f->extra); i++) {
        const json_t *chunk = json_array_get(f->extra, i), *text;
        const json_t *name = json_object_get(chunk, "filename");
        struct sl_where where = sl_where_index("input_extra", i);
        if (!sl_want_string(chunk, "text", where.text, &text, e))
            return false;
        if (sl_json_given(name) && !json_is_string(name))
            return sl_http_bad(e, where.text, "'%s.filename' must be a string, not %s", where.text,
                               sl_json_kind(name));
    }
    return true;
}

static bool put_mark(struct sl_exchange *ex, enum sl_fim mark, struct sl_ids *out) {
    uint32_t id = sl_tokenizer_fim(ex->server->served->tok, mark);
    return id == SL_NO_TOKEN || sl_prompt_add_id(out, id) ||
           sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
}

/* Text without control tokens, whatever it looks like. */
static bool put_text(struct sl_exchange *ex, const char *text, size_t len, const char *field,
                     struct sl_ids *out) {
    const struct sl_encode_watch watch = sl_prompt_watch(ex);
    if (!sl_prompt_may_fit(ex, len, field))
        return false;
    enum sl_status status =
        sl_tokenizer_encode_watched(ex->server->served->tok, text, len, 0, &watch, out);
    return status == SL_OK || sl_prompt_not_encoded(ex, status);
}

static bool put_string(struct sl_exchange *ex, const json_t *v, const char *field,
                       struct sl_ids *out) {
    return put_text(ex, json_string_value(v), json_string_length(v), field, out);
}

static bool has_mark(const struct sl_exchange *ex, enum sl_fim mark) {
    return sl_tokenizer_fim(ex->server->served->tok, mark) != SL_NO_TOKEN;
}

static bool put_words(struct sl_exchange *ex, const char *words, struct sl_ids *out) {
    return put_text(ex, words, strlen(words), "input_extra", out);
}

/* A file's name and text, in the form that such models were trained on. */
static bool put_file(struct sl_exchange *ex, const json_t *file, struct sl_ids *out) {
    const json_t *name = json_object_get(file, "filename"), *text = json_object_get(file, "text");
    bool ok = has_mark(ex, SL_FIM_FILE)
                  ? put_mark(ex, SL_FIM_FILE, out) &&
                        (json_is_string(name) ? put_string(ex, name, "input_extra", out)
                                              : put_words(ex, "tmp", out)) &&
                        put_words(ex, "\n", out)
                  : put_words(ex, "\n\n--- snippet ---\n\n", out);
    return ok && put_string(ex, text, "input_extra", out);
}

/* As many of the last files as `room` holds: a client's most recent ones. */
static bool put_files(struct sl_exchange *ex, const json_t *extra, size_t room,
                      struct sl_ids *out) {
    size_t n = json_array_size(extra), first = n, used = 0;
    struct sl_ids *files = calloc(n ? n : 1, sizeof *files);
    bool ok = files || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    while (ok && first > 0) {
        ok = put_file(ex, json_array_get(extra, first - 1), &files[first - 1]);
        used += files[first - 1].n;
        if (used > room)
            break;
        first--;
    }
    for (size_t i = first; ok && i < n; i++)
        for (size_t k = 0; ok && k < files[i].n; k++)
            ok = sl_prompt_add_id(out, files[i].ids[k]) ||
                 sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    for (size_t i = 0; files && i < n; i++)
        sl_ids_release(&files[i]);
    free(files);
    return ok;
}

/* [BOS] [REPO project FILE name text... FILE name] PREFIX prefix prompt SUFFIX suffix MIDDLE */
static bool put_prompt(struct sl_exchange *ex, const struct infill *f, uint32_t max_tokens,
                       struct sl_ids *out) {
    const struct sl_served *v = ex->server->served;
    struct sl_ids gap = {0};
    bool ok = put_mark(ex, SL_FIM_PREFIX, &gap) &&
              put_string(ex, f->prefix, "input_prefix", &gap) &&
              (!json_is_string(f->prompt) || put_string(ex, f->prompt, "prompt", &gap)) &&
              put_mark(ex, SL_FIM_SUFFIX, &gap) &&
              put_string(ex, f->suffix, "input_suffix", &gap) && put_mark(ex, SL_FIM_MIDDLE, &gap);
    if (ok && v->chat.prepend_bos)
        ok = sl_prompt_add_id(out, sl_tokenizer_bos(v->tok)) ||
             sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    if (ok && has_mark(ex, SL_FIM_REPO))
        ok = put_mark(ex, SL_FIM_REPO, out) && put_words(ex, "myproject\n", out);
    struct sl_ids name = {0};
    if (ok && has_mark(ex, SL_FIM_FILE))
        ok = put_mark(ex, SL_FIM_FILE, &name) && put_words(ex, "filename\n", &name);
    size_t taken = out->n + name.n + gap.n + max_tokens + 1;
    ok = ok &&
         put_files(ex, f->extra, v->info.ctx_tokens > taken ? v->info.ctx_tokens - taken : 0, out);
    const struct sl_ids *rest[] = {&name, &gap};
    for (size_t i = 0; ok && i < COUNTOF(rest); i++)
        for (size_t k = 0; ok && k < rest[i]->n; k++)
            ok = sl_prompt_add_id(out, rest[i]->ids[k]) ||
                 sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    sl_ids_release(&name);
    sl_ids_release(&gap);
    return ok && sl_prompt_fits(ex, out->n, "input_prefix");
}

void sl_infill_handle(struct sl_exchange *ex) {
    struct sl_http_error *e = &ex->error;
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    struct sl_translation t;
    struct sl_request_about about = {0};
    struct infill f;
    struct sl_ids prompt = {0};
    sl_translation_begin(&t);
    bool ok = true;
    for (uint32_t mark = 0; ok && mark < SL_FIM_NEEDED; mark++)
        if (!has_mark(ex, (enum sl_fim)mark))
            ok = sl_http_bad(e, NULL, "this model cannot fill a gap: it has no tokens for that");
    if (ok && read_infill(body, &f, e) && read_shared(&t, body, &about, e)) {
        json_int_t wanted = json_integer_value(json_object_get(t.chat, "max_tokens"));
        json_int_t most = ex->server->served->info.ctx_tokens;
        if (put_prompt(ex, &f, (uint32_t)(wanted < most ? wanted : most), &prompt))
            answer(ex, &t, &prompt, &about);
    }
    sl_ids_release(&prompt);
    sl_request_about_release(&about);
    sl_translation_release(&t);
    json_decref(body);
}
