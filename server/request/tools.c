#include "server/request/tools.h"

#include "server/request/fields.h"

#include <stdio.h>
#include <string.h>

static bool read_list(const json_t *tools, struct sl_tool_use *out, struct sl_http_error *e) {
    struct sl_err err;
    size_t index;
    char where[48] = "tools";
    if (sl_tools_check(tools, &index, &err) != SL_OK) {
        if (index < SL_MAX_TOOLS)
            snprintf(where, sizeof where, "tools[%zu]", index);
        return sl_http_bad(e, where, "'%s' %.400s", where, err.text);
    }
    if (json_array_size(tools))
        out->shown = tools;
    return true;
}

static const json_t *function_named(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *n = json_object_get(json_object_get(tool, "function"), "name");
        if (strcmp(json_string_value(n), name) == 0)
            return tool;
    }
    return NULL;
}

/* {"type": "function", "function": {"name": ...}} among the tools; NULL: e is set. */
static const json_t *chosen(const json_t *choice, const struct sl_tool_use *u,
                            struct sl_http_error *e) {
    static const char *const field = "tool_choice";
    const char *type = json_string_value(json_object_get(choice, "type"));
    const char *name =
        json_string_value(json_object_get(json_object_get(choice, "function"), "name"));
    if (!type || strcmp(type, "function") != 0 || !name) {
        sl_http_bad(e, field,
                    "'tool_choice' must be 'auto', 'none', 'required' or a function, "
                    "{\"type\": \"function\", \"function\": {\"name\": ...}}");
        return NULL;
    }
    const json_t *tool = function_named(u->shown, name);
    if (!tool)
        sl_http_bad(e, field, "'tool_choice' names the function '%.128s', which is not in 'tools'",
                    name);
    return tool;
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}} */
static bool read_allowed(const json_t *choice, struct sl_tool_use *u, struct sl_http_error *e) {
    static const char *const field = "tool_choice.allowed_tools";
    const json_t *allowed = json_object_get(choice, "allowed_tools");
    const json_t *tools = json_object_get(allowed, "tools");
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    if (!mode || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0))
        return sl_http_bad(e, field, "'%s.mode' must be 'auto' or 'required'", field);
    if (!json_array_size(tools) || json_array_size(tools) > SL_MAX_TOOLS)
        return sl_http_bad(e, field, "'%s.tools' must be an array of 1 to %u functions", field,
                           SL_MAX_TOOLS);
    u->choice = strcmp(mode, "auto") == 0 ? SL_TOOLS_AUTO : SL_TOOLS_REQUIRED;
    u->only_some = true;
    u->callable = json_array();
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = chosen(json_array_get(tools, i), u, e);
        if (!tool)
            return false;
        const char *name =
            json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        if (!function_named(u->callable, name) &&
            json_array_append(u->callable, (json_t *)tool) != 0)
            return sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    }
    return true;
}

static bool read_choice(const json_t *choice, struct sl_tool_use *u, struct sl_http_error *e) {
    static const char *const field = "tool_choice";
    const char *word = json_string_value(choice);
    if (choice && !json_is_null(choice) && !word && !json_is_object(choice))
        return sl_http_bad(e, field, "'tool_choice' must be a string or an object, not %s",
                           sl_json_kind(choice));
    u->choice = u->shown ? SL_TOOLS_AUTO : SL_TOOLS_NONE;
    if (word && strcmp(word, "none") == 0) {
        u->shown = NULL;
        u->choice = SL_TOOLS_NONE;
        return true;
    }
    if (word && strcmp(word, "required") == 0)
        u->choice = SL_TOOLS_REQUIRED;
    else if (word && strcmp(word, "auto") != 0)
        return sl_http_bad(e, field,
                           "'tool_choice' must be 'auto', 'none', 'required' or a function");
    if (json_is_object(choice) && json_string_value(json_object_get(choice, "type")) &&
        strcmp(json_string_value(json_object_get(choice, "type")), "allowed_tools") == 0)
        return read_allowed(choice, u, e);
    if (json_is_object(choice)) {
        const json_t *tool = chosen(choice, u, e);
        if (!tool)
            return false;
        u->choice = SL_TOOLS_REQUIRED;
        u->parallel = false;
        u->callable = json_pack("[O]", tool);
        return u->callable || sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    }
    if (u->choice == SL_TOOLS_REQUIRED && !u->shown)
        return sl_http_bad(e, field, "'tool_choice' is 'required', but there are no 'tools'");
    return true;
}

static bool any_strict(const json_t *tools) {
    for (size_t i = 0; i < json_array_size(tools); i++)
        if (json_is_true(
                json_object_get(json_object_get(json_array_get(tools, i), "function"), "strict")))
            return true;
    return false;
}

bool sl_tool_use_read(const json_t *body, struct sl_tool_use *out, struct sl_http_error *e) {
    const json_t *tools = json_object_get(body, "tools");
    const json_t *parallel = json_object_get(body, "parallel_tool_calls");
    *out = (struct sl_tool_use){.parallel = true};
    if (parallel && !json_is_null(parallel) && !json_is_boolean(parallel))
        return sl_http_bad(e, "parallel_tool_calls",
                           "'parallel_tool_calls' must be true or false, not %s",
                           sl_json_kind(parallel));
    out->parallel = !json_is_false(parallel);
    if (tools && !json_is_null(tools) && !read_list(tools, out, e))
        return false;
    if (!read_choice(json_object_get(body, "tool_choice"), out, e))
        return false;
    if (out->shown && !out->callable)
        out->callable = json_incref((json_t *)out->shown);
    out->bound = out->choice == SL_TOOLS_REQUIRED ||
                 (out->choice == SL_TOOLS_AUTO &&
                  (!out->parallel || out->only_some || any_strict(out->callable)));
    return true;
}

uint64_t sl_tools_memory_bytes(const json_t *v) {
    uint64_t n = 64 + (json_is_string(v) ? json_string_length(v) : 0);
    const char *key;
    json_t *member;
    if (!v)
        return 0;
    for (size_t i = 0; i < json_array_size(v); i++)
        n += 16 + sl_tools_memory_bytes(json_array_get(v, i));
    if (json_is_object(v))
        n += 256; /* its table */
    json_object_foreach((json_t *)v, key, member) n +=
        112 + strlen(key) + sl_tools_memory_bytes(member);
    return n;
}

void sl_tool_use_release(struct sl_tool_use *u) {
    json_decref(u->callable);
    *u = (struct sl_tool_use){0};
}
