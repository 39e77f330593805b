/* POST /api/chat, /api/generate and /api/show: requests of Ollama's API as the body of a chat
 * completion, or, where no template is wanted, of a text completion.
 *
 * The model is loaded and stays so: keep_alive changes nothing, and neither do options that say how
 * to load it. Source: Ollama's API reference (docs/api.md). */
#include "server/api/ollama.h"
#include "server/api/chat.h"
#include "server/api/completion.h"
#include "server/api/handlers.h"
#include "server/api/translate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTOF(a) (sizeof(a) / sizeof *(a))

/* ------------------------------------------------------------------------------------- options */

/* Those that have the same name in a completion's body; the others are among the controls of every
 * API. */
static const char *const same_options[] = {"temperature", "top_p", "stop"};

/* -1, -2 and 0: as many tokens as there is room for. */
static bool read_num_predict(struct sl_translation *t, const json_t *options,
                             struct sl_http_error *e) {
    const json_t *v = json_object_get(options, "num_predict");
    if (!sl_json_given(v))
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < -2)
        return sl_http_bad(e, "options.num_predict",
                           "'options.num_predict' must be a whole number from -2, not %s",
                           json_is_integer(v) ? "less" : sl_json_kind(v));
    if (json_integer_value(v) > 0)
        sl_translate_copy(t, options, "num_predict", "max_tokens");
    return true;
}

/* The context is the server's: a client that asks for more would lose its text without a word. */
static bool check_num_ctx(const struct sl_exchange *ex, const json_t *options,
                          struct sl_http_error *e) {
    const json_t *v = json_object_get(options, "num_ctx");
    uint32_t ctx = ex->server->served->info.ctx_tokens;
    if (!sl_json_given(v))
        return true;
    if (!json_is_integer(v) || json_integer_value(v) < 1)
        return sl_http_bad(e, "options.num_ctx",
                           "'options.num_ctx' must be a whole number above 0");
    if (json_integer_value(v) > (json_int_t)ctx)
        return sl_http_bad(e, "options.num_ctx",
                           "'options.num_ctx' is %lld, and this server's context has %u tokens: "
                           "ask for no more, or start the server with a larger --ctx",
                           (long long)json_integer_value(v), ctx);
    return true;
}

static bool read_options(struct sl_exchange *ex, struct sl_translation *t, const json_t *body) {
    struct sl_http_error *e = &ex->error;
    const json_t *options = json_object_get(body, "options");
    if (!sl_json_given(options))
        return true;
    if (!json_is_object(options))
        return sl_http_bad(e, "options", "'options' must be an object, not %s",
                           sl_json_kind(options));
    sl_translate_controls(t, options);
    for (size_t i = 0; i < COUNTOF(same_options); i++)
        sl_translate_copy(t, options, same_options[i], same_options[i]);
    return read_num_predict(t, options, e) && check_num_ctx(ex, options, e);
}

static void rename_fields(struct sl_http_error *e, const json_t *options) {
    if (!e->http_status)
        return;
    char from[sizeof e->param], to[sizeof from + 8];
    snprintf(from, sizeof from, "%.*s", (int)strcspn(e->param, ".["), e->param);
    snprintf(to, sizeof to, "options.%s", from);
    if (sl_json_given(json_object_get(options, from)))
        sl_http_rename_field(e, from, to);
    sl_http_rename_field(e, "max_tokens", "options.num_predict");
    sl_http_rename_field(e, "reasoning_effort", "think");
    sl_http_rename_field(e, "response_format.json_schema.schema", "format");
    sl_http_rename_field(e, "response_format.json_schema", "format");
    sl_http_rename_field(e, "response_format", "format");
}

/* -------------------------------------------------------------------------------------- fields */

/* Ollama's names have a tag, which clients add where it is not given. */
static bool read_model(struct sl_exchange *ex, struct sl_translation *t, const json_t *body) {
    static const char tag[] = ":latest";
    const json_t *model = json_object_get(body, "model");
    if (!sl_json_given(model))
        model = json_object_get(body, "name"); /* its older name */
    const char *name = json_string_value(model);
    size_t n = json_string_length(model), m = sizeof tag - 1;
    if (!name)
        return sl_http_bad(&ex->error, "model", "'model' must be a string, not %s",
                           sl_json_kind(model));
    if (!sl_served_has_name(ex->server->served, name) && n > m && strcmp(name + n - m, tag) == 0) {
        char *plain = strndup(name, n - m);
        bool known = plain && sl_served_has_name(ex->server->served, plain);
        if (known && !ex->model_name)
            ex->model_name = strdup(name);
        free(plain);
        if (known)
            return ex->model_name || sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    }
    sl_translate_set(t, "model", json_incref((json_t *)model));
    return true;
}

bool sl_ollama_check_model(struct sl_exchange *ex, const json_t *body) {
    struct sl_translation t;
    sl_translation_begin(&t);
    bool ok = read_model(ex, &t, body) && sl_prompt_check_model(ex, t.chat);
    sl_translation_release(&t);
    return ok;
}

static bool read_format(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *format = json_object_get(body, "format");
    if (!sl_json_given(format) || (json_is_string(format) && json_string_length(format) == 0))
        return true;
    if (json_is_object(format)) {
        json_t *name = json_string("format");
        sl_translate_schema(t, name, format, NULL);
        json_decref(name);
        return true;
    }
    if (!sl_json_is(format, "json"))
        return sl_http_bad(e, "format", "'format' must be \"json\" or a JSON schema");
    json_t *object = json_object();
    if (json_object_set_new(object, "type", json_string("json_object")) != 0)
        t->failed = true;
    sl_translate_set(t, "response_format", object);
    return true;
}

static bool read_think(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    static const char *const efforts[] = {"low", "medium", "high", NULL};
    const json_t *think = json_object_get(body, "think");
    if (!sl_json_given(think))
        return true;
    if (!json_is_boolean(think) && !sl_json_one_of(think, efforts))
        return sl_http_bad(e, "think", "'think' must be true, false, low, medium or high");
    sl_translate_thinking(t, !json_is_false(think));
    if (json_is_string(think))
        sl_translate_copy(t, body, "think", "reasoning_effort");
    return true;
}

static bool no_images(const json_t *object, const char *where, struct sl_http_error *e) {
    const json_t *images = json_object_get(object, "images");
    if (json_array_size(images) == 0 && (!images || json_is_null(images) || json_is_array(images)))
        return true;
    return sl_http_bad(e, where, "'%s': this model takes text only", where);
}

/* What is common to both endpoints. */
static bool read_shared(struct sl_exchange *ex, struct sl_translation *t, const json_t *body) {
    /* Ollama has options in `options` alone. */
    static const struct sl_foreign_field foreign[] = {
        {"response_format", "use 'format'"},
        {"temperature", "put it into 'options'"},
        {"top_p", "put it into 'options'"},
        {"stop", "put it into 'options'"},
        {"num_predict", "put it into 'options'"},
        {"num_ctx", "put it into 'options'"},
        {"max_tokens", "use 'options.num_predict'"},
        {"max_completion_tokens", "use 'options.num_predict'"},
        {"n_predict", "use 'options.num_predict'"},
        {"reasoning_effort", "use 'think'"},
        {"reasoning", "use 'think'"},
        {"thinking", "use 'think'"},
        {"enable_thinking", "use 'think'"},
        {"tool_choice", "this API has 'tools' alone"},
        {"n", "an answer has one choice"},
        {"n_cmpl", "an answer has one choice"},
        {"best_of", "an answer has one choice"},
        {"echo", "use /v1/completions"},
        {NULL, NULL}};
    struct sl_http_error *e = &ex->error;
    const json_t *stream = json_object_get(body, "stream");
    const json_t *alive = json_object_get(body, "keep_alive");
    const json_t *logprobs = json_object_get(body, "logprobs");
    if (sl_json_given(stream) && !json_is_boolean(stream))
        return sl_http_bad(e, "stream", "'stream' must be true or false, not %s",
                           sl_json_kind(stream));
    if (sl_json_given(alive) && !json_is_number(alive) && !json_is_string(alive))
        return sl_http_bad(e, "keep_alive", "'keep_alive' must be a duration, not %s",
                           sl_json_kind(alive));
    bool wanted = sl_json_given(logprobs) && !json_is_false(logprobs);
    if (wanted || sl_json_given(json_object_get(body, "top_logprobs")))
        return sl_http_bad(e, wanted ? "logprobs" : "top_logprobs",
                           "'%s' is not supported here: /v1/chat/completions has it",
                           wanted ? "logprobs" : "top_logprobs");
    if (!sl_translate_refuse(body, foreign, e))
        return false;
    sl_translate_set(t, "stream", json_boolean(!json_is_false(stream)));
    sl_translate_controls(t, body);
    return read_model(ex, t, body) && read_options(ex, t, body) && read_format(t, body, e) &&
           read_think(t, body, e);
}

/* ------------------------------------------------------------------------------------ messages */

/* Ollama's calls have no ids, its results name their function at most: each result answers the
 * first open call of its name, or else the first. */
struct open_calls {
    json_t *list; /* of [id, name] */
    uint32_t n_made;
};

static bool read_call(struct sl_translation *t, struct open_calls *open, const json_t *call,
                      const char *where, struct sl_http_error *e) {
    const json_t *function = json_object_get(call, "function"), *name;
    struct sl_where at = sl_where_member(where, "function");
    if (!sl_want_string(function, "name", at.text, &name, e))
        return false;
    const json_t *arguments = json_object_get(function, "arguments");
    at = sl_where_member(at.text, "arguments");
    if (sl_json_given(arguments) && !json_is_object(arguments))
        return sl_http_bad(e, at.text, "'%s' must be an object, not %s", at.text,
                           sl_json_kind(arguments));
    char *text = sl_json_given(arguments) ? json_dumps(arguments, JSON_COMPACT) : strdup("{}");
    const json_t *given = json_object_get(call, "id");
    json_t *id = json_is_string(given) ? json_incref((json_t *)given)
                                       : json_sprintf("call_%u", open->n_made);
    open->n_made++;
    if (json_array_append_new(open->list, json_pack("[O,O]", id, name)) != 0)
        t->failed = true;
    sl_translate_call(t, id, name, text ? json_string(text) : NULL);
    json_decref(id);
    free(text);
    return true;
}

static void read_result(struct sl_translation *t, struct open_calls *open, const json_t *message,
                        const json_t *content) {
    const json_t *name = json_object_get(message, "tool_name");
    const json_t *id = json_object_get(message, "tool_call_id");
    const json_t *found = NULL;
    size_t at = 0;
    if (!json_is_string(name))
        name = json_object_get(message, "name");
    for (size_t i = 0; !found && i < json_array_size(open->list); i++) {
        const json_t *call = json_array_get(open->list, i);
        bool fits = json_is_string(id) ? json_equal(json_array_get(call, 0), id)
                                       : json_equal(json_array_get(call, 1), name);
        if (fits) {
            found = call;
            at = i;
        }
    }
    if (!found && !json_is_string(id))
        found = json_array_get(open->list, 0);
    json_t *call_id =
        found ? json_incref(json_array_get(found, 0)) : json_incref((json_t *)id); /* or NULL */
    if (found)
        json_array_remove(open->list, at);
    sl_translate_result(t, call_id, json_incref((json_t *)content));
    json_decref(call_id);
}

static bool read_assistant(struct sl_translation *t, struct open_calls *open, const json_t *m,
                           const json_t *content, const char *where, struct sl_http_error *e) {
    const json_t *thinking = json_object_get(m, "thinking");
    const json_t *calls = json_object_get(m, "tool_calls");
    struct sl_where at = sl_where_member(where, "tool_calls");
    if (json_string_length(thinking))
        sl_translate_think(t, thinking);
    if (json_string_length(content) || !json_array_size(calls))
        sl_translate_say(t, content);
    if (sl_json_given(calls) && !json_is_array(calls))
        return sl_http_bad(e, at.text, "'%s' must be an array, not %s", at.text,
                           sl_json_kind(calls));
    json_array_clear(open->list);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        struct sl_where call = sl_where_index(at.text, i);
        if (!read_call(t, open, json_array_get(calls, i), call.text, e))
            return false;
    }
    sl_translate_end_turn(t);
    return true;
}

static bool read_message(struct sl_translation *t, struct open_calls *open, const json_t *m,
                         const char *where, struct sl_http_error *e) {
    static const char *const roles[] = {"system", "user", "developer", NULL};
    if (!json_is_object(m))
        return sl_http_bad(e, where, "'%s' must be an object, not %s", where, sl_json_kind(m));
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    struct sl_where at = sl_where_member(where, "images");
    if (!no_images(m, at.text, e))
        return false;
    json_t *none = NULL;
    if (!sl_json_given(content) && sl_json_is(role, "assistant"))
        content = none = json_string(""); /* with calls */
    at = sl_where_member(where, "content");
    bool ok = json_is_string(content) || sl_http_bad(e, at.text, "'%s' must be a string, not %s",
                                                     at.text, sl_json_kind(content));
    if (ok && sl_json_is(role, "assistant")) {
        ok = read_assistant(t, open, m, content, where, e);
    } else if (ok && sl_json_is(role, "tool")) {
        read_result(t, open, m, content);
    } else if (ok && sl_json_one_of(role, roles)) {
        sl_translate_message(t, json_string_value(role), json_incref((json_t *)content));
    } else if (ok) {
        at = sl_where_member(where, "role");
        ok = sl_http_bad(e, at.text, "'%s' must be system, user, assistant or tool", at.text);
    }
    json_decref(none);
    return ok;
}

static bool read_messages(struct sl_translation *t, const json_t *messages,
                          struct sl_http_error *e) {
    struct open_calls open = {.list = json_array()};
    bool ok = open.list || sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        struct sl_where where = sl_where_index("messages", i);
        ok = read_message(t, &open, json_array_get(messages, i), where.text, e);
    }
    json_decref(open.list);
    return ok;
}

/* ----------------------------------------------------------------------------------- endpoints */

static const char *load_reason(const json_t *body) {
    const json_t *alive = json_object_get(body, "keep_alive");
    bool none = sl_json_is(alive, "0") || (json_is_number(alive) && json_number_value(alive) == 0);
    return none ? "unload" : "load";
}

/* The finished body goes to `answer`. options: the request's own. */
static void pass_on(struct sl_exchange *ex, struct sl_translation *t, enum sl_api api, bool raw,
                    const json_t *options) {
    json_t *body = sl_translation_end(t, &ex->error);
    if (!body)
        return;
    struct sl_request_about about = {0};
    if (raw) {
        json_object_del(body, "messages");
        sl_completion_answer(ex, api, body, NULL, &about);
    } else {
        sl_chat_answer(ex, api, body, &about);
    }
    json_decref(body);
    rename_fields(&ex->error, options);
}

void sl_ollama_chat_handle(struct sl_exchange *ex) {
    struct sl_http_error *e = &ex->error;
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    struct sl_translation t;
    sl_translation_begin(&t);
    const json_t *messages = json_object_get(body, "messages");
    if (!read_shared(ex, &t, body))
        goto out;
    if (sl_json_given(messages) && !json_is_array(messages)) {
        sl_http_bad(e, "messages", "'messages' must be an array of messages, not %s",
                    sl_json_kind(messages));
    } else if (json_array_size(messages) == 0) {
        if (sl_prompt_check_model(ex, t.chat))
            sl_ollama_loaded(ex, true, load_reason(body));
    } else if (read_messages(&t, messages, e)) {
        sl_translate_copy(&t, body, "tools", "tools");
        pass_on(ex, &t, SL_API_OLLAMA_CHAT, false, json_object_get(body, "options"));
    }
out:
    sl_translation_release(&t);
    json_decref(body);
}

/* Members of /api/generate that are text; given as null they are absent. */
static bool read_text(const json_t *body, const char *name, const json_t **out,
                      struct sl_http_error *e) {
    const json_t *v = json_object_get(body, name);
    *out = NULL;
    if (sl_json_given(v) && !json_is_string(v))
        return sl_http_bad(e, name, "'%s' must be a string, not %s", name, sl_json_kind(v));
    if (json_string_length(v))
        *out = v;
    return true;
}

static bool read_generate(struct sl_exchange *ex, struct sl_translation *t, const json_t *body,
                          bool *out_raw, bool *out_empty) {
    struct sl_http_error *e = &ex->error;
    const json_t *prompt, *suffix, *system, *own;
    const json_t *raw = json_object_get(body, "raw"), *context = json_object_get(body, "context");
    if (!read_text(body, "prompt", &prompt, e) || !read_text(body, "suffix", &suffix, e) ||
        !read_text(body, "system", &system, e) || !read_text(body, "template", &own, e) ||
        !no_images(body, "images", e))
        return false;
    if (own)
        return sl_http_bad(e, "template",
                           "'template' is not supported: the model's own template is used, or "
                           "with 'raw' none");
    if (json_array_size(context))
        return sl_http_bad(e, "context",
                           "'context' is not supported: /api/chat takes a conversation");
    if (sl_json_given(raw) && !json_is_boolean(raw))
        return sl_http_bad(e, "raw", "'raw' must be true or false, not %s", sl_json_kind(raw));
    *out_raw = json_is_true(raw) || suffix;
    *out_empty = !prompt && !suffix;
    if (*out_empty)
        return true;
    if (*out_raw && system)
        return sl_http_bad(e, "system",
                           "'system' cannot be given with 'raw' or 'suffix', which "
                           "use no template");
    if (*out_raw) {
        sl_translate_set(t, "prompt", prompt ? json_incref((json_t *)prompt) : json_string(""));
        sl_translate_copy(t, body, "suffix", "suffix");
    } else {
        if (system)
            sl_translate_message(t, "system", json_incref((json_t *)system));
        sl_translate_message(t, "user", json_incref((json_t *)prompt));
    }
    return true;
}

void sl_ollama_generate_handle(struct sl_exchange *ex) {
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    struct sl_translation t;
    bool raw = false, empty = false;
    sl_translation_begin(&t);
    if (read_shared(ex, &t, body) && read_generate(ex, &t, body, &raw, &empty)) {
        if (!empty)
            pass_on(ex, &t, SL_API_OLLAMA_GENERATE, raw, json_object_get(body, "options"));
        else if (sl_prompt_check_model(ex, t.chat))
            sl_ollama_loaded(ex, false, load_reason(body));
    }
    sl_translation_release(&t);
    json_decref(body);
}

/* {"model": name} */
void sl_ollama_show_handle(struct sl_exchange *ex) {
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    if (sl_ollama_check_model(ex, body))
        sl_ollama_put_show(ex);
    json_decref(body);
}
