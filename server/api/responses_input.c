/* `input` and `instructions` of a Responses request: items become messages. Records of tools that
 * run on OpenAI's machines are skipped, as those tools are. Source: OpenAI API reference, "Create a
 * model response", the input item types. */
#include "server/api/responses.h"

#include <stdlib.h>
#include <string.h>

/* The text of a content part. NULL: e is set. */
static const json_t *part_text(const json_t *part, const char *where, struct sl_http_error *e) {
    static const char *const texts[] = {"input_text",     "output_text",  "text",
                                        "reasoning_text", "summary_text", NULL};
    static const char *const refusals[] = {"refusal", NULL};
    const json_t *type = json_object_get(part, "type");
    if (!sl_json_one_of(type, texts) && !sl_json_one_of(type, refusals)) {
        const char *s = json_string_value(type);
        if (s && strncmp(s, "input_", 6) == 0)
            sl_http_bad(e, where, "'%s' is of type '%.40s': this model takes text only", where, s);
        else
            sl_http_bad(e, where, "'%s.type' must be 'input_text' or 'output_text'", where);
        return NULL;
    }
    const char *member = sl_json_one_of(type, refusals) ? "refusal" : "text";
    const json_t *text = json_object_get(part, member);
    if (!json_is_string(text)) {
        sl_http_bad(e, where, "'%s.%s' must be a string, not %s", where, member,
                    sl_json_kind(text));
        return NULL;
    }
    return text;
}

/* Content as chat takes it. NULL: e is set, or, without an error, out of memory. */
static json_t *read_content(const json_t *content, const char *where, struct sl_http_error *e) {
    if (json_is_string(content))
        return json_incref((json_t *)content);
    if (!json_is_array(content)) {
        sl_http_bad(e, where, "'%s' must be a string or an array of parts, not %s", where,
                    sl_json_kind(content));
        return NULL;
    }
    json_t *parts = json_array();
    for (size_t i = 0; parts && i < json_array_size(content); i++) {
        struct sl_where at = sl_where_index(where, i);
        const json_t *text = part_text(json_array_get(content, i), at.text, e);
        if (!text || json_array_append_new(parts, sl_text_part(text)) != 0) {
            json_decref(parts);
            return NULL;
        }
    }
    return parts;
}

/* Each text of an array of parts (or a string) to one of the assistant's functions. */
static bool each_text(struct sl_translation *t, const json_t *content, const char *where,
                      void (*take)(struct sl_translation *, const json_t *),
                      struct sl_http_error *e) {
    if (json_is_string(content)) {
        take(t, content);
        return true;
    }
    if (!json_is_array(content))
        return sl_http_bad(e, where, "'%s' must be a string or an array of parts, not %s", where,
                           sl_json_kind(content));
    for (size_t i = 0; i < json_array_size(content); i++) {
        struct sl_where at = sl_where_index(where, i);
        const json_t *text = part_text(json_array_get(content, i), at.text, e);
        if (!text)
            return false;
        take(t, text);
    }
    return true;
}

static bool read_message(struct sl_translation *t, const json_t *item, const char *where,
                         struct sl_http_error *e) {
    static const char *const roles[] = {"user", "system", "developer", NULL};
    static const char *const assistant[] = {"assistant", NULL};
    const json_t *role = json_object_get(item, "role");
    const json_t *content = json_object_get(item, "content");
    struct sl_where at = sl_where_member(where, "content");
    if (sl_json_one_of(role, assistant))
        return each_text(t, content, at.text, sl_translate_say, e);
    if (!sl_json_one_of(role, roles)) {
        at = sl_where_member(where, "role");
        return sl_http_bad(e, at.text, "'%s' must be user, assistant, system or developer",
                           at.text);
    }
    json_t *text = read_content(content, at.text, e);
    sl_translate_message(t, json_string_value(role), text);
    return text || e->http_status == 0;
}

/* Its text is in content; in encrypted_content if the client kept only that, and we wrote it; else
 * in the summary. */
static bool read_reasoning_item(struct sl_translation *t, const json_t *item, const char *where,
                                struct sl_http_error *e) {
    static const size_t mark = sizeof SL_CARRIED_REASONING - 1;
    const json_t *content = json_object_get(item, "content");
    const json_t *carried = json_object_get(item, "encrypted_content");
    const json_t *summary = json_object_get(item, "summary");
    const char *s = json_string_value(carried);
    if (json_array_size(content)) {
        struct sl_where at = sl_where_member(where, "content");
        return each_text(t, content, at.text, sl_translate_think, e);
    }
    if (s && strncmp(s, SL_CARRIED_REASONING, mark) == 0) {
        json_t *text = json_stringn(s + mark, json_string_length(carried) - mark);
        if (text)
            sl_translate_think(t, text);
        json_decref(text);
        return text || sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    }
    if (!json_array_size(summary))
        return true;
    struct sl_where at = sl_where_member(where, "summary");
    return each_text(t, summary, at.text, sl_translate_think, e);
}

/* A function's call, or with `input` a custom tool's, whose free text becomes its one argument. */
static bool read_call(struct sl_translation *t, const json_t *item, const char *member,
                      const char *where, struct sl_http_error *e) {
    const json_t *id, *name, *arguments;
    if (!sl_want_string(item, "call_id", where, &id, e) ||
        !sl_want_string(item, "name", where, &name, e) ||
        !sl_want_string(item, member, where, &arguments, e))
        return false;
    json_t *text;
    if (strcmp(member, "input") == 0) {
        json_t *object = json_object();
        char *dump = json_object_set(object, "input", (json_t *)arguments) == 0
                         ? json_dumps(object, JSON_COMPACT)
                         : NULL;
        text = dump ? json_string(dump) : NULL;
        free(dump);
        json_decref(object);
    } else {
        text = json_incref((json_t *)arguments);
    }
    sl_translate_call(t, id, name, text);
    return true;
}

static bool read_output(struct sl_translation *t, const json_t *item, const char *where,
                        struct sl_http_error *e) {
    const json_t *id;
    if (!sl_want_string(item, "call_id", where, &id, e))
        return false;
    struct sl_where at = sl_where_member(where, "output");
    json_t *content = read_content(json_object_get(item, "output"), at.text, e);
    sl_translate_result(t, id, content);
    return content || e->http_status == 0;
}

static bool read_item(struct sl_translation *t, const json_t *item, const char *where,
                      struct sl_http_error *e) {
    static const char *const records[] = {"web_search_call",
                                          "file_search_call",
                                          "code_interpreter_call",
                                          "computer_call",
                                          "computer_call_output",
                                          "image_generation_call",
                                          "mcp_list_tools",
                                          "mcp_call",
                                          "mcp_approval_request",
                                          "mcp_approval_response",
                                          NULL};
    if (!json_is_object(item))
        return sl_http_bad(e, where, "'%s' must be an object, not %s", where, sl_json_kind(item));
    const json_t *type = json_object_get(item, "type");
    const char *s = sl_json_given(type) ? json_string_value(type) : "message";
    if (!s)
        return sl_http_bad(e, where, "'%s.type' must be a string, not %s", where,
                           sl_json_kind(type));
    if (strcmp(s, "message") == 0)
        return read_message(t, item, where, e);
    if (strcmp(s, "reasoning") == 0)
        return read_reasoning_item(t, item, where, e);
    if (strcmp(s, "function_call") == 0)
        return read_call(t, item, "arguments", where, e);
    if (strcmp(s, "custom_tool_call") == 0)
        return read_call(t, item, "input", where, e);
    if (strcmp(s, "function_call_output") == 0 || strcmp(s, "custom_tool_call_output") == 0)
        return read_output(t, item, where, e);
    if (strcmp(s, "item_reference") == 0)
        return sl_http_bad(e, where,
                           "'%s' refers to a stored item, and this server stores nothing: "
                           "send the item itself",
                           where);
    if (sl_json_one_of(type, records))
        return true;
    return sl_http_bad(e, where, "'%s' is of type '%.40s', which this server does not know", where,
                       s);
}

/* instructions and what of `input` tells the model how to behave before anything is said become one
 * system message: many templates take no second one. */
static bool read_head(struct sl_translation *t, const json_t *body, size_t *out_n,
                      struct sl_http_error *e) {
    static const char *const roles[] = {"system", "developer", NULL};
    const json_t *instructions = json_object_get(body, "instructions");
    const json_t *input = json_object_get(body, "input");
    json_t *parts = json_array();
    if (json_is_string(instructions) && json_string_length(instructions))
        t->failed |= json_array_append_new(parts, sl_text_part(instructions)) != 0;
    size_t i = 0;
    for (; json_is_array(input) && i < json_array_size(input); i++) {
        const json_t *item = json_array_get(input, i);
        if (!sl_json_one_of(json_object_get(item, "role"), roles))
            break;
        struct sl_where where = sl_where_index("input", i);
        struct sl_where at = sl_where_member(where.text, "content");
        json_t *content = read_content(json_object_get(item, "content"), at.text, e);
        if (json_is_array(content))
            t->failed |= json_array_extend(parts, content) != 0;
        else
            t->failed |= !content || json_array_append_new(parts, sl_text_part(content)) != 0;
        json_decref(content);
        if (e->http_status) {
            json_decref(parts);
            return false;
        }
    }
    *out_n = i;
    if (json_array_size(parts))
        sl_translate_message(t, "system", parts);
    else
        json_decref(parts);
    return true;
}

bool sl_responses_input(struct sl_translation *t, const json_t *body, struct sl_http_error *e) {
    const json_t *input = json_object_get(body, "input");
    size_t i;
    if (!json_is_string(input) && !json_is_array(input))
        return sl_http_bad(e, "input", "'input' must be a string or an array of items, not %s",
                           sl_json_kind(input));
    if (!read_head(t, body, &i, e))
        return false;
    if (json_is_string(input))
        sl_translate_message(t, "user", json_incref((json_t *)input));
    for (; json_is_array(input) && i < json_array_size(input); i++) {
        struct sl_where where = sl_where_index("input", i);
        if (!read_item(t, json_array_get(input, i), where.text, e))
            return false;
    }
    sl_translate_end_turn(t);
    if (json_array_size(t->messages) == 0 && !t->failed)
        return sl_http_bad(e, "input", "'input' must hold at least one message");
    return true;
}
