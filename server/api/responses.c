/* POST /v1/responses: a request of OpenAI's Responses API as the body of a chat completion.
 *
 * The whole conversation comes in `input`, as Codex sends it, or goes on from a response that was
 * kept (responses_stored.c). Tools that run on OpenAI's machines (web search and the like) are
 * skipped, and so are records of their calls.
 * Source: OpenAI API reference, "Create a model response" and the input item types. */
#include "server/api/responses.h"
#include "server/api/chat.h"
#include "server/api/handlers.h"
#include "server/api/translate.h"

#include "model/chat/answer_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- fields */

struct raw {
    uint32_t max_output_tokens, max_tool_calls;
    uint32_t top_logprobs;
    bool store, parallel_tool_calls, background;
};

#define R(member) offsetof(struct raw, member)
static const struct sl_field fields[] = {
    {"max_output_tokens", SL_FIELD_U32, R(max_output_tokens), 1, INT32_MAX},
    {"max_tool_calls", SL_FIELD_U32, R(max_tool_calls), 1, INT32_MAX},
    {"top_logprobs", SL_FIELD_U32, R(top_logprobs), 0, 20},
    {"parallel_tool_calls", SL_FIELD_BOOL, R(parallel_tool_calls), 0, 0},
    {"store", SL_FIELD_BOOL, R(store), 0, 0},
    {"background", SL_FIELD_BOOL, R(background), 0, 0},
    {"instructions", SL_FIELD_STRING, 0, 0, 0},
    {"metadata", SL_FIELD_OBJECT, 0, 0, 0},
    {"user", SL_FIELD_STRING, 0, 0, 0},
    {"safety_identifier", SL_FIELD_STRING, 0, 0, 0},
    {"service_tier", SL_FIELD_STRING, 0, 0, 0},
    {"prompt_cache_key", SL_FIELD_STRING, 0, 0, 0},
    {"prompt_cache_retention", SL_FIELD_STRING, 0, 0, 0},
};

/* What would need a store of other things than responses, or run behind the client's back. */
static bool check_unsupported(const json_t *body, const struct raw *r, struct sl_http_error *e) {
    static const char *const needs_store[] = {"conversation", "prompt"};
    for (size_t i = 0; i < sizeof needs_store / sizeof *needs_store; i++)
        if (sl_json_given(json_object_get(body, needs_store[i])))
            return sl_http_bad(e, needs_store[i],
                               "'%s' is not supported, for this server stores responses only: use "
                               "'previous_response_id', or send the whole conversation in 'input'",
                               needs_store[i]);
    if (r->background)
        return sl_http_bad(e, "background",
                           "'background' must be false: this server answers on "
                           "the connection of the request");
    static const char *const truncations[] = {"auto", "disabled", NULL};
    const json_t *truncation = json_object_get(body, "truncation");
    if (sl_json_given(truncation) && !sl_json_one_of(truncation, truncations))
        return sl_http_bad(e, "truncation", "'truncation' must be 'auto' or 'disabled'");
    return true;
}

static bool check_metadata(const json_t *body, struct sl_http_error *e) {
    const json_t *m = json_object_get(body, "metadata");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)m, key, value) {
        if (!json_is_string(value))
            return sl_http_bad(e, "metadata", "'metadata.%.64s' must be a string, not %s", key,
                               sl_json_kind(value));
    }
    return true;
}

/* Fields of chat completions that have another name or no meaning here. */
static bool check_foreign(const json_t *body, struct sl_http_error *e) {
    static const struct sl_foreign_field foreign[] = {
        {"response_format", "use 'text.format'"},
        {"format", "use 'text.format'"},
        {"logprobs", "use 'top_logprobs'"},
        {"max_tokens", "use 'max_output_tokens'"},
        {"max_completion_tokens", "use 'max_output_tokens'"},
        {"n_predict", "use 'max_output_tokens'"},
        {"stop_sequences", "use 'stop'"},
        {"reasoning_effort", "use 'reasoning.effort'"},
        {"thinking", "use 'reasoning'"},
        {"enable_thinking", "use 'chat_template_kwargs'"},
        {"n", "an answer has one choice"},
        {"n_cmpl", "an answer has one choice"},
        {"best_of", "an answer has one choice"},
        {"echo", "use /v1/completions"},
        {NULL, NULL}};
    return sl_translate_refuse(body, foreign, e);
}

/* `include`: of what can be asked for, this server has the reasoning in a form that comes back, and
 * log-probabilities. */
static bool read_include(const json_t *body, bool *out_reasoning, bool *out_logprobs,
                         struct sl_http_error *e) {
    const json_t *v = json_object_get(body, "include");
    *out_reasoning = *out_logprobs = false;
    if (!sl_json_given(v))
        return true;
    if (!json_is_array(v))
        return sl_http_bad(e, "include", "'include' must be an array of strings, not %s",
                           sl_json_kind(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        if (!s)
            return sl_http_bad(e, "include", "'include[%zu]' must be a string, not %s", i,
                               sl_json_kind(json_array_get(v, i)));
        if (strcmp(s, "message.output_text.logprobs") == 0)
            *out_logprobs = true;
        if (strcmp(s, "reasoning.encrypted_content") == 0)
            *out_reasoning = true;
    }
    return true;
}

/* text.format, text.verbosity */
static bool read_text(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    static const char *const verbosities[] = {"low", "medium", "high", NULL};
    const json_t *text = json_object_get(body, "text");
    if (!sl_json_given(text))
        return true;
    if (!json_is_object(text))
        return sl_http_bad(e, "text", "'text' must be an object, not %s", sl_json_kind(text));
    const json_t *verbosity = json_object_get(text, "verbosity");
    if (sl_json_given(verbosity) && !sl_json_one_of(verbosity, verbosities))
        return sl_http_bad(e, "text.verbosity", "'text.verbosity' must be low, medium or high");
    const json_t *format = json_object_get(text, "format");
    if (!sl_json_given(format))
        return true;
    const char *type = json_string_value(json_object_get(format, "type"));
    if (!type)
        return sl_http_bad(e, "text.format", "'text.format.type' must be a string");
    if (strcmp(type, "json_schema") == 0)
        sl_translate_schema(t, json_object_get(format, "name"), json_object_get(format, "schema"),
                            json_object_get(format, "strict"));
    else
        sl_translate_set(t, "response_format", json_incref((json_t *)format));
    return true;
}

static bool read_reasoning(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *reasoning = json_object_get(body, "reasoning");
    if (!sl_json_given(reasoning))
        return true;
    if (!json_is_object(reasoning))
        return sl_http_bad(e, "reasoning", "'reasoning' must be an object, not %s",
                           sl_json_kind(reasoning));
    const json_t *effort = json_object_get(reasoning, "effort");
    if (!sl_json_given(effort))
        return true;
    if (!sl_json_one_of(effort, sl_reasoning_efforts))
        return sl_http_bad(e, "reasoning.effort",
                           "'reasoning.effort' must be none, minimal, low, medium, high, xhigh or "
                           "max");
    if (strcmp(json_string_value(effort), "none") == 0)
        sl_translate_thinking(t, false);
    else
        sl_translate_copy(t, reasoning, "effort", "reasoning_effort");
    return true;
}

/* -------------------------------------------------------------------------------------- tools */

static bool read_tools(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *tools = json_object_get(body, "tools");
    if (!sl_json_given(tools))
        return true;
    if (!json_is_array(tools))
        return sl_http_bad(e, "tools", "'tools' must be an array, not %s", sl_json_kind(tools));
    if (json_array_size(tools) > SL_MAX_TOOLS)
        return sl_http_bad(e, "tools", "'tools' holds %zu tools; at most %u are supported",
                           json_array_size(tools), SL_MAX_TOOLS);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const char *type = json_string_value(json_object_get(tool, "type"));
        struct sl_where where = sl_where_index("tools", i);
        if (!type)
            return sl_http_bad(e, where.text, "'%s.type' must be a string", where.text);
        if (strcmp(type, "function") != 0)
            continue;
        const json_t *name;
        if (!sl_want_string(tool, "name", where.text, &name, e))
            return false;
        sl_translate_tool(t, name, json_object_get(tool, "description"),
                          json_object_get(tool, "parameters"), json_object_get(tool, "strict"));
    }
    return true;
}

/* Whether a function of this name is among those of 'tools'. */
static bool is_offered(const struct sl_translation *t, const char *name) {
    for (size_t i = 0; i < json_array_size(t->tools); i++) {
        const json_t *f = json_object_get(json_array_get(t->tools, i), "function");
        if (sl_json_is(json_object_get(f, "name"), name))
            return true;
    }
    return false;
}

/* tool_choice.tools: those that may be called. The others stay in the prompt, which is what this
 * choice is for: the beginning that is known already stays the same. Types of tools that are
 * skipped in 'tools' are skipped here. */
static bool read_allowed(struct sl_translation *t, const json_t *choice, struct sl_http_error *e) {
    static const char *const modes[] = {"auto", "required", NULL};
    const json_t *tools = json_object_get(choice, "tools"), *mode = json_object_get(choice, "mode");
    if (!json_is_array(tools) || json_array_size(tools) > SL_MAX_TOOLS)
        return sl_http_bad(e, "tool_choice.tools",
                           "'tool_choice.tools' must be an array of at most %u tools",
                           SL_MAX_TOOLS);
    if (!sl_json_one_of(mode, modes))
        return sl_http_bad(e, "tool_choice.mode",
                           "'tool_choice.mode' must be 'auto' or 'required'");
    json_t *functions = json_array();
    for (size_t i = 0; functions && i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *name;
        const json_t *type = json_object_get(tool, "type");
        struct sl_where where = sl_where_index("tool_choice.tools", i);
        bool ok = json_is_string(type);
        if (!ok)
            sl_http_bad(e, where.text, "'%s.type' must be a string", where.text);
        if (ok && !sl_json_is(type, "function"))
            continue;
        ok = ok && sl_want_string(tool, "name", where.text, &name, e);
        if (ok && !is_offered(t, json_string_value(name)))
            ok = sl_http_bad(e, where.text,
                             "'%s' names the function '%.128s', which is not in 'tools'",
                             where.text, json_string_value(name));
        if (!ok) {
            json_decref(functions);
            return false;
        }
        if (json_array_append_new(functions, sl_translated_function(name)) != 0)
            t->failed = true;
    }
    if (json_array_size(functions))
        sl_translate_allow(t, mode, functions);
    else /* only tools of OpenAI's own machines */
        sl_translate_set(t, "tool_choice", json_string("none"));
    json_decref(functions);
    return true;
}

/* tool_choice: a mode, a function, or a mode over some of the tools. After the tools. */
static bool read_tool_choice(struct sl_translation *t, const json_t *body,
                             struct sl_http_error *e) {
    const json_t *choice = json_object_get(body, "tool_choice");
    const json_t *type = json_object_get(choice, "type");
    static const char *const words[] = {"auto", "none", "required", NULL};
    if (!sl_json_given(choice) || sl_json_one_of(choice, words)) {
        sl_translate_copy(t, body, "tool_choice", "tool_choice");
        return true;
    }
    if (sl_json_is(type, "function")) {
        const json_t *name = json_object_get(choice, "name");
        if (!json_is_string(name))
            return sl_http_bad(e, "tool_choice.name", "'tool_choice.name' must be a string, not %s",
                               sl_json_kind(name));
        sl_translate_choose(t, name);
        return true;
    }
    if (sl_json_is(type, "allowed_tools"))
        return read_allowed(t, choice, e);
    return sl_http_bad(e, "tool_choice",
                       "'tool_choice' must be 'auto', 'none', 'required', a function or "
                       "allowed_tools");
}

/* -------------------------------------------------------------------------------------- answer */

/* NULL: e is set. */
static json_t *translate(const json_t *body, bool *out_carry, struct sl_http_error *e) {
    struct raw r = {0};
    struct sl_translation t;
    static const char *const same[] = {"model", "stream", "temperature", "top_p",
                                       "parallel_tool_calls"};
    static const char *const extensions[] = {"stop", "chat_template_kwargs"};
    bool logprobs;
    sl_translation_begin(&t);
    json_t *chat = NULL;
    if (!sl_fields_read(body, fields, sizeof fields / sizeof *fields, &r, e) ||
        !check_unsupported(body, &r, e) || !check_metadata(body, e) ||
        !read_include(body, out_carry, &logprobs, e))
        goto out;
    if (logprobs || r.top_logprobs) {
        sl_translate_set(&t, "logprobs", json_true());
        sl_translate_copy(&t, body, "top_logprobs", "top_logprobs");
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        sl_translate_copy(&t, body, same[i], same[i]);
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++)
        sl_translate_copy(&t, body, extensions[i], extensions[i]);
    sl_translate_controls(&t, body);
    sl_translate_copy(&t, body, "max_output_tokens", "max_completion_tokens");
    if (!read_text(&t, body, e) || !read_reasoning(&t, body, e) || !read_tools(&t, body, e) ||
        !read_tool_choice(&t, body, e) || !sl_responses_input(&t, body, e))
        goto out;
    if (!t.tools && json_array_size(json_object_get(body, "tools")))
        /* those of OpenAI's own machines were all there were */
        json_object_del(t.chat, "tool_choice");
    chat = sl_translation_end(&t, e);
out:
    sl_translation_release(&t);
    return chat;
}

/* before: how many items of `input` are of earlier requests. */
static void rename_fields(struct sl_http_error *e, size_t before) {
    unsigned long long item;
    if (!e->http_status)
        return;
    if (before && sscanf(e->param, "input[%llu]", &item) == 1 && item >= before) {
        char from[48], to[48];
        snprintf(from, sizeof from, "input[%llu]", item);
        snprintf(to, sizeof to, "input[%llu]", item - before);
        sl_http_rename_field(e, from, to);
    }
    sl_http_rename_field(e, "messages", "input");
    sl_http_rename_field(e, "max_tokens", "max_output_tokens");
    sl_http_rename_field(e, "max_completion_tokens", "max_output_tokens");
    sl_http_rename_field(e, "reasoning_effort", "reasoning.effort");
    sl_http_rename_field(e, "response_format.json_schema", "text.format");
    sl_http_rename_field(e, "response_format", "text.format");
}

void sl_responses_handle(struct sl_exchange *ex) {
    struct sl_http_error *e = &ex->error;
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    if (!check_foreign(body, e)) {
        json_decref(body);
        return;
    }
    struct sl_request_about about = {0};
    size_t before;
    json_t *chat = sl_responses_recall(ex, body, &about, &before)
                       ? translate(body, &about.carry_reasoning, e)
                       : NULL;
    if (chat && !sl_responses_about(body, &about.members)) {
        sl_http_from_status(e, SL_ERR_NOMEM, NULL);
        json_decref(chat);
        chat = NULL;
    }
    json_decref(body);
    if (chat)
        sl_chat_answer(ex, SL_API_RESPONSES, chat, &about);
    else
        sl_request_about_release(&about);
    json_decref(chat);
    rename_fields(e, before);
}

void sl_responses_count_handle(struct sl_exchange *ex) {
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return;
    bool unused;
    size_t n, before;
    json_t *chat =
        sl_responses_recall(ex, body, NULL, &before) ? translate(body, &unused, &ex->error) : NULL;
    if (chat && sl_chat_count(ex, chat, &n))
        sl_buf_printf(&ex->reply, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", n);
    json_decref(chat);
    json_decref(body);
    rename_fields(&ex->error, before);
}
