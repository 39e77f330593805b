/* POST /v1/messages and /v1/messages/count_tokens: a request of Anthropic's Messages API as the
 * body of a chat completion.
 *
 * Tools that Anthropic runs or defines are skipped; marks for its prompt cache are ignored, for
 * here every prefix is found by itself; signatures of thinking are not checked.
 * Source: Anthropic API reference, "Messages", "Count tokens in a message". */
#include "server/api/chat.h"
#include "server/api/handlers.h"
#include "server/api/translate.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------------------------- content */

/* The text of a text block. NULL: e is set. */
static const json_t *block_text(const json_t *block, const char *where, struct sl_http_error *e) {
    const json_t *type = json_object_get(block, "type");
    if (!json_is_string(type)) {
        sl_http_bad(e, where, "'%s.type' must be a string, not %s", where, sl_json_kind(type));
        return NULL;
    }
    if (!sl_json_is(type, "text")) {
        sl_http_bad(e, where,
                    sl_json_is(type, "image") || sl_json_is(type, "document")
                        ? "'%s' is of type '%.40s': this model takes text only"
                        : "'%s' is of type '%.40s', which cannot be used here",
                    where, json_string_value(type));
        return NULL;
    }
    const json_t *text = json_object_get(block, "text");
    if (!json_is_string(text)) {
        sl_http_bad(e, where, "'%s.text' must be a string, not %s", where, sl_json_kind(text));
        return NULL;
    }
    return text;
}

/* A string, or an array of text blocks, as chat takes it. NULL: e is set, or, without an error,
 * out of memory. */
static json_t *read_text(const json_t *content, const char *where, struct sl_http_error *e) {
    if (json_is_string(content))
        return json_incref((json_t *)content);
    if (!json_is_array(content)) {
        sl_http_bad(e, where, "'%s' must be a string or an array of content blocks, not %s", where,
                    sl_json_kind(content));
        return NULL;
    }
    json_t *parts = json_array();
    for (size_t i = 0; parts && i < json_array_size(content); i++) {
        struct sl_where at = sl_where_index(where, i);
        const json_t *text = block_text(json_array_get(content, i), at.text, e);
        if (!text || json_array_append_new(parts, sl_text_part(text)) != 0) {
            json_decref(parts);
            return NULL;
        }
    }
    return parts;
}

static bool read_system(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *system = json_object_get(body, "system");
    if (!sl_json_given(system) || (json_is_string(system) && json_string_length(system) == 0) ||
        (json_is_array(system) && json_array_size(system) == 0))
        return true;
    json_t *text = read_text(system, "system", e);
    sl_translate_message(t, "system", text);
    return text || e->http_status == 0;
}

/* ------------------------------------------------------------------------------------ messages */

static bool read_tool_result(struct sl_translation *t, const json_t *block, const char *where,
                             struct sl_http_error *e) {
    const json_t *id, *content = json_object_get(block, "content");
    if (!sl_want_string(block, "tool_use_id", where, &id, e))
        return false;
    struct sl_where at = sl_where_member(where, "content");
    json_t *text = sl_json_given(content) ? read_text(content, at.text, e) : json_string("");
    sl_translate_result(t, id, text);
    return text || e->http_status == 0;
}

static bool read_tool_use(struct sl_translation *t, const json_t *block, const char *where,
                          struct sl_http_error *e) {
    const json_t *id, *name, *input = json_object_get(block, "input");
    if (!sl_want_string(block, "id", where, &id, e) ||
        !sl_want_string(block, "name", where, &name, e))
        return false;
    if (!json_is_object(input)) {
        struct sl_where at = sl_where_member(where, "input");
        return sl_http_bad(e, at.text, "'%s' must be an object, not %s", at.text,
                           sl_json_kind(input));
    }
    char *arguments = json_dumps(input, JSON_COMPACT);
    sl_translate_call(t, id, name, arguments ? json_string(arguments) : NULL);
    free(arguments);
    return true;
}

static bool read_assistant_block(struct sl_translation *t, const json_t *block, const char *where,
                                 struct sl_http_error *e) {
    const json_t *type = json_object_get(block, "type"), *text;
    if (sl_json_is(type, "tool_use"))
        return read_tool_use(t, block, where, e);
    if (sl_json_is(type, "redacted_thinking"))
        return true;
    if (sl_json_is(type, "thinking")) {
        if (!sl_want_string(block, "thinking", where, &text, e))
            return false;
        sl_translate_think(t, text);
        return true;
    }
    text = block_text(block, where, e);
    if (!text)
        return false;
    sl_translate_say(t, text);
    return true;
}

static bool read_assistant(struct sl_translation *t, const json_t *content, const char *where,
                           struct sl_http_error *e) {
    if (json_is_string(content)) {
        sl_translate_say(t, content);
        return true;
    }
    for (size_t i = 0; i < json_array_size(content); i++) {
        struct sl_where at = sl_where_index(where, i);
        if (!read_assistant_block(t, json_array_get(content, i), at.text, e))
            return false;
    }
    return true;
}

/* Results of tools become messages of their own, in the order of the blocks. */
static bool read_user(struct sl_translation *t, const json_t *content, const char *where,
                      struct sl_http_error *e) {
    if (json_is_string(content)) {
        sl_translate_message(t, "user", json_incref((json_t *)content));
        return true;
    }
    json_t *parts = NULL;
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *block = json_array_get(content, i);
        struct sl_where at = sl_where_index(where, i);
        if (sl_json_is(json_object_get(block, "type"), "tool_result")) {
            if (parts)
                sl_translate_message(t, "user", parts);
            parts = NULL;
            ok = read_tool_result(t, block, at.text, e);
            continue;
        }
        const json_t *text = block_text(block, at.text, e);
        ok = text != NULL;
        if (!parts)
            parts = json_array();
        if (ok && json_array_append_new(parts, sl_text_part(text)) != 0)
            t->failed = true;
    }
    if (parts)
        sl_translate_message(t, "user", parts);
    return ok;
}

static bool read_message(struct sl_translation *t, const json_t *m, const char *where,
                         struct sl_http_error *e) {
    if (!json_is_object(m))
        return sl_http_bad(e, where, "'%s' must be an object, not %s", where, sl_json_kind(m));
    const json_t *role = json_object_get(m, "role"), *content = json_object_get(m, "content");
    struct sl_where at = sl_where_member(where, "content");
    if (!json_is_string(content) && !json_is_array(content))
        return sl_http_bad(e, at.text,
                           "'%s' must be a string or an array of content blocks, not %s", at.text,
                           sl_json_kind(content));
    if (sl_json_is(role, "user"))
        return read_user(t, content, at.text, e);
    if (sl_json_is(role, "assistant"))
        return read_assistant(t, content, at.text, e);
    if (sl_json_is(role, "system")) { /* some agents change their orders in the middle */
        json_t *text = read_text(content, at.text, e);
        sl_translate_message(t, "system", text);
        return text || e->http_status == 0;
    }
    at = sl_where_member(where, "role");
    return sl_http_bad(e, at.text, "'%s' must be 'user' or 'assistant'", at.text);
}

static bool read_messages(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *messages = json_object_get(body, "messages");
    if (!json_is_array(messages))
        return sl_http_bad(e, "messages", "'messages' must be an array of messages, not %s",
                           sl_json_kind(messages));
    if (json_array_size(messages) == 0)
        return sl_http_bad(e, "messages", "'messages' must hold at least one message");
    for (size_t i = 0; i < json_array_size(messages); i++) {
        struct sl_where where = sl_where_index("messages", i);
        if (!read_message(t, json_array_get(messages, i), where.text, e))
            return false;
    }
    return true;
}

/* --------------------------------------------------------------------------------------- tools */

static bool read_tools(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *tools = json_object_get(body, "tools");
    if (!sl_json_given(tools))
        return true;
    if (!json_is_array(tools))
        return sl_http_bad(e, "tools", "'tools' must be an array, not %s", sl_json_kind(tools));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i), *name;
        const json_t *type = json_object_get(tool, "type");
        struct sl_where where = sl_where_index("tools", i);
        if (sl_json_given(type) && !json_is_string(type))
            return sl_http_bad(e, where.text, "'%s.type' must be a string, not %s", where.text,
                               sl_json_kind(type));
        if (sl_json_given(type) && !sl_json_is(type, "custom"))
            continue;
        if (!sl_want_string(tool, "name", where.text, &name, e))
            return false;
        const json_t *schema = json_object_get(tool, "input_schema");
        if (!json_is_object(schema)) {
            struct sl_where at = sl_where_member(where.text, "input_schema");
            return sl_http_bad(e, at.text, "'%s' must be an object, not %s", at.text,
                               sl_json_kind(schema));
        }
        sl_translate_tool(t, name, json_object_get(tool, "description"), schema,
                          json_object_get(tool, "strict"));
    }
    return true;
}

static bool read_tool_choice(struct sl_translation *t, const json_t *body,
                             struct sl_http_error *e) {
    static const struct {
        const char *here, *chat;
    } modes[] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    const json_t *choice = json_object_get(body, "tool_choice");
    if (!sl_json_given(choice))
        return true;
    const json_t *type = json_object_get(choice, "type"), *name;
    const json_t *serial = json_object_get(choice, "disable_parallel_tool_use");
    if (sl_json_given(serial) && !json_is_boolean(serial))
        return sl_http_bad(e, "tool_choice.disable_parallel_tool_use",
                           "'tool_choice.disable_parallel_tool_use' must be true or false, not %s",
                           sl_json_kind(serial));
    if (json_is_true(serial))
        sl_translate_set(t, "parallel_tool_calls", json_false());
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (sl_json_is(type, modes[i].here)) {
            sl_translate_set(t, "tool_choice", json_string(modes[i].chat));
            return true;
        }
    }
    if (!sl_json_is(type, "tool"))
        return sl_http_bad(e, "tool_choice", "'tool_choice.type' must be auto, any, tool or none");
    if (!sl_want_string(choice, "name", "tool_choice", &name, e))
        return false;
    sl_translate_choose(t, name);
    return true;
}

/* -------------------------------------------------------------------------------------- fields */

static bool read_thinking(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *thinking = json_object_get(body, "thinking");
    if (!sl_json_given(thinking))
        return true;
    const json_t *type = json_object_get(thinking, "type");
    bool on = sl_json_is(type, "enabled") || sl_json_is(type, "adaptive") ||
              sl_json_is(type, "between_tools");
    if (!on && !sl_json_is(type, "disabled"))
        return sl_http_bad(e, "thinking", "'thinking.type' must be enabled, adaptive or disabled");
    const json_t *budget = json_object_get(thinking, "budget_tokens");
    if (sl_json_given(budget) && (!json_is_integer(budget) || json_integer_value(budget) < 1))
        return sl_http_bad(e, "thinking.budget_tokens",
                           "'thinking.budget_tokens' must be a positive integer");
    if (on)
        sl_translate_copy(t, thinking, "budget_tokens", "reasoning_budget");
    sl_translate_thinking(t, on);
    return true;
}

/* output_config: effort, and the schema of the answer (output_format is its older name) */
static bool read_output_config(struct sl_translation *t, const json_t *body,
                               struct sl_http_error *e) {
    static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
    const json_t *config = json_object_get(body, "output_config");
    if (sl_json_given(config) && !json_is_object(config))
        return sl_http_bad(e, "output_config", "'output_config' must be an object, not %s",
                           sl_json_kind(config));
    const json_t *effort = json_object_get(config, "effort");
    if (sl_json_given(effort)) {
        bool known = false;
        for (size_t i = 0; i < sizeof efforts / sizeof *efforts; i++)
            known = known || sl_json_is(effort, efforts[i]);
        if (!known)
            return sl_http_bad(e, "output_config.effort",
                               "'output_config.effort' must be low, medium, high, xhigh or max");
        sl_translate_copy(t, config, "effort", "reasoning_effort");
    }
    const json_t *format = json_object_get(config, "format");
    const char *where = "output_config.format";
    if (!sl_json_given(format)) {
        format = json_object_get(body, "output_format");
        where = "output_format";
    }
    if (!sl_json_given(format))
        return true;
    if (!sl_json_is(json_object_get(format, "type"), "json_schema"))
        return sl_http_bad(e, where, "'%s.type' must be 'json_schema'", where);
    sl_translate_schema(t, NULL, json_object_get(format, "schema"), NULL);
    return true;
}

static bool read_stop_sequences(struct sl_translation *t, const json_t *body,
                                struct sl_http_error *e) {
    const json_t *stop = json_object_get(body, "stop_sequences");
    if (sl_json_given(stop) && !json_is_array(stop))
        return sl_http_bad(e, "stop_sequences", "'stop_sequences' must be an array, not %s",
                           sl_json_kind(stop));
    sl_translate_copy(t, body, "stop_sequences", "stop");
    return true;
}

/* Fields of other APIs that have another name or no meaning here, and tools that this server cannot
 * reach. */
static bool check_foreign(const json_t *body, struct sl_http_error *e) {
    static const struct sl_foreign_field foreign[] = {
        {"response_format", "use 'output_config.format'"},
        {"format", "use 'output_config.format'"},
        {"stop", "use 'stop_sequences'"},
        {"logprobs", "other endpoints have them"},
        {"top_logprobs", "other endpoints have them"},
        {"max_completion_tokens", "use 'max_tokens'"},
        {"max_output_tokens", "use 'max_tokens'"},
        {"n_predict", "use 'max_tokens'"},
        {"reasoning_effort", "use 'output_config.effort'"},
        {"reasoning", "use 'thinking'"},
        {"enable_thinking", "use 'thinking'"},
        {"n", "an answer has one choice"},
        {"n_cmpl", "an answer has one choice"},
        {"best_of", "an answer has one choice"},
        {"echo", "use /v1/completions"},
        {NULL, NULL}};
    const json_t *servers = json_object_get(body, "mcp_servers");
    if (sl_json_given(servers) && !(json_is_array(servers) && json_array_size(servers) == 0))
        return sl_http_bad(e, "mcp_servers", "'mcp_servers' is not supported: leave it out");
    return sl_translate_refuse(body, foreign, e);
}

/* NULL: e is set. */
static json_t *translate(const json_t *body, struct sl_http_error *e) {
    static const struct sl_field fields[] = {{"service_tier", SL_FIELD_STRING, 0, 0, 0},
                                             {"metadata", SL_FIELD_OBJECT, 0, 0, 0}};
    static const char *const same[] = {"model", "stream", "temperature", "top_p", "top_k"};
    bool unused;
    struct sl_translation t;
    json_t *chat = NULL;
    sl_translation_begin(&t);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        sl_translate_copy(&t, body, same[i], same[i]);
    sl_translate_copy(&t, body, "chat_template_kwargs", "chat_template_kwargs");
    sl_translate_controls(&t, body);
    sl_translate_copy(&t, body, "max_tokens", "max_tokens");
    if (sl_fields_read(body, fields, sizeof fields / sizeof *fields, &unused, e) &&
        check_foreign(body, e) && read_stop_sequences(&t, body, e) && read_thinking(&t, body, e) &&
        read_output_config(&t, body, e) && read_tools(&t, body, e) &&
        read_tool_choice(&t, body, e) && read_system(&t, body, e) && read_messages(&t, body, e)) {
        if (!t.tools && json_array_size(json_object_get(body, "tools")))
            /* Anthropic's own were all there were */
            json_object_del(t.chat, "tool_choice");
        chat = sl_translation_end(&t, e);
    }
    sl_translation_release(&t);
    return chat;
}

static void rename_fields(struct sl_http_error *e) {
    if (!e->http_status)
        return;
    sl_http_rename_field(e, "stop", "stop_sequences");
    sl_http_rename_field(e, "reasoning_budget", "thinking.budget_tokens");
    sl_http_rename_field(e, "reasoning_effort", "output_config.effort");
    sl_http_rename_field(e, "response_format.json_schema", "output_config.format");
    sl_http_rename_field(e, "response_format", "output_config.format");
}

/* The body as a chat's. NULL: ex->error is set. */
static json_t *read_body(struct sl_exchange *ex, bool needs_max_tokens) {
    json_t *body = sl_prompt_body(ex);
    if (!body)
        return NULL;
    json_t *chat = NULL;
    if (!sl_json_given(json_object_get(body, "model")))
        sl_http_bad(&ex->error, "model", "'model' is missing");
    else if (needs_max_tokens && !sl_json_given(json_object_get(body, "max_tokens")))
        sl_http_bad(&ex->error, "max_tokens", "'max_tokens' is missing");
    else
        chat = translate(body, &ex->error);
    json_decref(body);
    return chat;
}

void sl_messages_handle(struct sl_exchange *ex) {
    json_t *chat = read_body(ex, true);
    if (!chat)
        return;
    struct sl_request_about about = {0};
    sl_chat_answer(ex, SL_API_MESSAGES, chat, &about);
    json_decref(chat);
    rename_fields(&ex->error);
}

void sl_count_tokens_handle(struct sl_exchange *ex) {
    json_t *chat = read_body(ex, false);
    if (!chat)
        return;
    size_t n;
    if (sl_chat_count(ex, chat, &n))
        sl_buf_printf(&ex->reply, "{\"input_tokens\":%zu}", n);
    json_decref(chat);
    rename_fields(&ex->error);
}
