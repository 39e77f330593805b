#include "server/api/translate.h"

#include "server/request/controls.h"

#include <stdio.h>
#include <string.h>

struct sl_where sl_where_index(const char *array, size_t i) {
    struct sl_where w;
    if (snprintf(w.text, sizeof w.text, "%s[%zu]", array, i) < 0)
        w.text[0] = '\0';
    return w;
}

struct sl_where sl_where_member(const char *object, const char *member) {
    struct sl_where w;
    if (snprintf(w.text, sizeof w.text, "%s.%s", object, member) < 0)
        w.text[0] = '\0';
    return w;
}

bool sl_json_given(const json_t *v) {
    return v && !json_is_null(v);
}

bool sl_json_is(const json_t *v, const char *text) {
    const char *s = json_string_value(v);
    return s && strcmp(s, text) == 0;
}

bool sl_json_one_of(const json_t *v, const char *const *texts) {
    for (; *texts; texts++)
        if (sl_json_is(v, *texts))
            return true;
    return false;
}

bool sl_want_string(const json_t *object, const char *member, const char *object_name,
                    const json_t **out, struct sl_http_error *e) {
    *out = json_object_get(object, member);
    if (json_is_string(*out))
        return true;
    struct sl_where at = sl_where_member(object_name, member);
    return sl_http_bad(e, at.text, "'%s' must be a string, not %s", at.text, sl_json_kind(*out));
}

void sl_translation_begin(struct sl_translation *t) {
    *t = (struct sl_translation){.chat = json_object(), .names = json_object()};
    json_t *messages = json_array();
    t->failed = !t->chat || !t->names || json_object_set_new(t->chat, "messages", messages) != 0;
    t->messages = t->failed ? NULL : messages;
}

void sl_translation_release(struct sl_translation *t) {
    json_decref(t->chat);
    json_decref(t->said);
    json_decref(t->calls);
    json_decref(t->names);
    sl_buf_release(&t->thought);
    *t = (struct sl_translation){0};
}

json_t *sl_translation_end(struct sl_translation *t, struct sl_http_error *e) {
    sl_translate_end_turn(t);
    json_t *chat = t->chat;
    t->chat = NULL;
    if (!t->failed)
        return chat;
    json_decref(chat);
    sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    return NULL;
}

/* value is taken over, NULL or not. */
static void set(struct sl_translation *t, json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, value) != 0)
        t->failed = true;
}

static void set_given(struct sl_translation *t, json_t *object, const char *key,
                      const json_t *value) {
    if (sl_json_given(value))
        set(t, object, key, json_incref((json_t *)value));
}

static void append(struct sl_translation *t, json_t *array, json_t *value) {
    if (json_array_append_new(array, value) != 0)
        t->failed = true;
}

void sl_translate_set(struct sl_translation *t, const char *key, json_t *value) {
    set(t, t->chat, key, value);
}

void sl_translate_copy(struct sl_translation *t, const json_t *body, const char *from,
                       const char *to) {
    set_given(t, t->chat, to, json_object_get(body, from));
}

void sl_translate_controls(struct sl_translation *t, const json_t *body) {
    static const char *const names[] = {"min_tokens",
                                        "stop_token_ids",
                                        "logit_bias",
                                        "reasoning_format",
                                        "dry_multiplier",
                                        "dry_base",
                                        "dry_allowed_length",
                                        "dry_penalty_last_n",
                                        "dry_sequence_breakers",
                                        "samplers",
                                        "xtc_probability",
                                        "xtc_threshold",
                                        "top_n_sigma",
                                        "top_k",
                                        "min_p",
                                        "typical_p",
                                        "repeat_penalty",
                                        "repetition_penalty",
                                        "repeat_last_n",
                                        "presence_penalty",
                                        "frequency_penalty",
                                        "seed",
                                        "ignore_eos",
                                        "cache_prompt",
                                        "timeout_s",
                                        "reasoning_budget",
                                        "reasoning_budget_tokens",
                                        "thinking_budget",
                                        "thinking_budget_tokens",
                                        "thinking_token_budget",
                                        "return_progress",
                                        "timings_per_token",
                                        "continue_final_message",
                                        "add_generation_prompt",
                                        "json_schema",
                                        "grammar",
                                        "guided_json",
                                        "guided_regex",
                                        "guided_choice",
                                        "guided_grammar",
                                        "guided_whitespace_pattern",
                                        "structured_outputs"};
    const char *refused;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        sl_translate_copy(t, body, names[i], names[i]);
    for (size_t i = 0; (refused = sl_controls_refused(i)); i++)
        sl_translate_copy(t, body, refused, refused);
}

static bool is_one_choice(const char *name, const json_t *v) {
    bool choices =
        strcmp(name, "n") == 0 || strcmp(name, "n_cmpl") == 0 || strcmp(name, "best_of") == 0;
    return choices && json_is_integer(v) && json_integer_value(v) == 1;
}

bool sl_translate_refuse(const json_t *body, const struct sl_foreign_field *f,
                         struct sl_http_error *e) {
    for (; f->name; f++) {
        const json_t *v = json_object_get(body, f->name);
        if (sl_json_given(v) && !json_is_false(v) && !is_one_choice(f->name, v))
            return sl_http_bad(e, f->name, "'%s' is not supported here: %s", f->name, f->instead);
    }
    return true;
}

void sl_translate_thinking(struct sl_translation *t, bool on) {
    const json_t *given = json_object_get(t->chat, "chat_template_kwargs");
    if (given && !json_is_object(given)) /* will be refused */
        return;
    json_t *kwargs = given ? json_copy((json_t *)given) : json_object();
    set(t, kwargs, "enable_thinking", json_boolean(on));
    set(t, kwargs, "thinking", json_boolean(on));
    set(t, t->chat, "chat_template_kwargs", kwargs);
}

json_t *sl_text_part(const json_t *text) {
    json_t *part = json_object();
    if (json_object_set_new(part, "type", json_string("text")) == 0 &&
        json_object_set(part, "text", (json_t *)text) == 0)
        return part;
    json_decref(part);
    return NULL;
}

/* ------------------------------------------------------------------------------- conversation */

/* Thinking alone, with nothing said or called, is no turn: it is dropped. */
void sl_translate_end_turn(struct sl_translation *t) {
    if (t->said || t->calls) {
        json_t *m = json_object();
        set(t, m, "role", json_string("assistant"));
        set(t, m, "content", t->said ? t->said : json_null());
        if (t->thought.len)
            set(t, m, "reasoning_content", json_stringn(t->thought.ptr, t->thought.len));
        if (t->calls)
            set(t, m, "tool_calls", t->calls);
        append(t, t->messages, m);
        t->said = t->calls = NULL;
    }
    t->failed = t->failed || t->thought.failed;
    sl_buf_clear(&t->thought);
}

void sl_translate_message(struct sl_translation *t, const char *role, json_t *content) {
    sl_translate_end_turn(t);
    json_t *m = json_object();
    set(t, m, "role", json_string(role));
    set(t, m, "content", content);
    append(t, t->messages, m);
}

void sl_translate_think(struct sl_translation *t, const json_t *text) {
    if (t->said || t->calls)
        sl_translate_end_turn(t);
    if (t->thought.len)
        sl_buf_puts(&t->thought, "\n");
    sl_buf_put(&t->thought, json_string_value(text), json_string_length(text));
}

void sl_translate_say(struct sl_translation *t, const json_t *text) {
    if (t->calls)
        sl_translate_end_turn(t);
    if (!t->said)
        t->said = json_array();
    append(t, t->said, sl_text_part(text));
}

void sl_translate_call(struct sl_translation *t, const json_t *id, const json_t *name,
                       json_t *arguments) {
    if (!t->calls)
        t->calls = json_array();
    json_t *function = json_object(), *call = json_object();
    set(t, function, "name", json_incref((json_t *)name));
    set(t, function, "arguments", arguments);
    set_given(t, call, "id", id);
    set(t, call, "type", json_string("function"));
    set(t, call, "function", function);
    append(t, t->calls, call);
    if (json_is_string(id))
        set(t, t->names, json_string_value(id), json_incref((json_t *)name));
}

void sl_translate_result(struct sl_translation *t, const json_t *id, json_t *content) {
    sl_translate_end_turn(t);
    json_t *m = json_object();
    set(t, m, "role", json_string("tool"));
    set_given(t, m, "tool_call_id", id);
    set_given(t, m, "name", json_object_get(t->names, json_string_value(id)));
    set(t, m, "content", content);
    append(t, t->messages, m);
}

/* --------------------------------------------------------------------------------------- tools */

void sl_translate_tool(struct sl_translation *t, const json_t *name, const json_t *description,
                       const json_t *parameters, const json_t *strict) {
    if (!t->tools) {
        t->tools = json_array();
        set(t, t->chat, "tools", t->tools);
        if (t->failed)
            t->tools = NULL;
    }
    json_t *function = json_object(), *tool = json_object();
    set(t, function, "name", json_incref((json_t *)name));
    set_given(t, function, "description", description);
    set_given(t, function, "parameters", parameters);
    set_given(t, function, "strict", strict);
    set(t, tool, "type", json_string("function"));
    set(t, tool, "function", function);
    append(t, t->tools, tool);
}

json_t *sl_translated_function(const json_t *name) {
    json_t *function = json_object(), *choice = json_object();
    if (json_object_set(function, "name", (json_t *)name) == 0 &&
        json_object_set_new(choice, "type", json_string("function")) == 0 &&
        json_object_set(choice, "function", function) == 0) {
        json_decref(function);
        return choice;
    }
    json_decref(function);
    json_decref(choice);
    return NULL;
}

void sl_translate_choose(struct sl_translation *t, const json_t *name) {
    set(t, t->chat, "tool_choice", sl_translated_function(name));
}

void sl_translate_allow(struct sl_translation *t, const json_t *mode, const json_t *functions) {
    json_t *allowed = json_object(), *choice = json_object();
    set(t, allowed, "mode", json_incref((json_t *)mode));
    set(t, allowed, "tools", json_incref((json_t *)functions));
    set(t, choice, "type", json_string("allowed_tools"));
    set(t, choice, "allowed_tools", allowed);
    set(t, t->chat, "tool_choice", choice);
}

void sl_translate_schema(struct sl_translation *t, const json_t *name, const json_t *schema,
                         const json_t *strict) {
    json_t *spec = json_object(), *format = json_object();
    set_given(t, spec, "name", name);
    set_given(t, spec, "schema", schema);
    set_given(t, spec, "strict", strict);
    set(t, format, "type", json_string("json_schema"));
    set(t, format, "json_schema", spec);
    set(t, t->chat, "response_format", format);
}
