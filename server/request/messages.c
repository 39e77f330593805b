/* The messages of a conversation: checked, and reshaped for templates that take less. */
#include "server/request/messages.h"

#include "common/buf.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static bool bad_part(struct sl_http_error *e, const char *where, const json_t *type) {
    const char *t = json_string_value(type);
    if (t && (strncmp(t, "image", 5) == 0 || strstr(t, "audio") || strstr(t, "video") ||
              strstr(t, "file")))
        return sl_http_bad(e, where, "'%s' is of type '%.40s': this model takes text only", where,
                           t);
    return sl_http_bad(e, where, "'%s.type' must be 'text'", where);
}

/* Content in parts becomes one string; parts are joined by line breaks. */
static json_t *join_parts(const json_t *parts, size_t message, struct sl_http_error *e) {
    struct sl_buf b = {0};
    char where[64];
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *p = json_array_get(parts, i);
        snprintf(where, sizeof where, "messages[%zu].content[%zu]", message, i);
        if (!json_is_object(p)) {
            sl_http_bad(e, where, "'%s' must be an object, not %s", where, sl_json_kind(p));
            goto fail;
        }
        const json_t *type = json_object_get(p, "type");
        const char *t = json_string_value(type);
        bool refusal = t && strcmp(t, "refusal") == 0;
        if (!refusal && (!t || strcmp(t, "text") != 0)) {
            bad_part(e, where, type);
            goto fail;
        }
        const json_t *text = json_object_get(p, refusal ? "refusal" : "text");
        if (!json_is_string(text)) {
            sl_http_bad(e, where, "'%s.%s' must be a string, not %s", where,
                        refusal ? "refusal" : "text", sl_json_kind(text));
            goto fail;
        }
        if (i)
            sl_buf_puts(&b, "\n");
        sl_buf_put(&b, json_string_value(text), json_string_length(text));
    }
    json_t *joined = b.failed ? NULL : json_stringn_nocheck(b.ptr ? b.ptr : "", b.len);
    sl_buf_release(&b);
    if (!joined)
        sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    return joined;
fail:
    sl_buf_release(&b);
    return NULL;
}

static bool check_tool_calls(const json_t *calls, size_t message, struct sl_http_error *e) {
    char where[80];
    snprintf(where, sizeof where, "messages[%zu].tool_calls", message);
    if (!json_is_array(calls))
        return sl_http_bad(e, where, "'%s' must be an array, not %s", where, sl_json_kind(calls));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = json_object_get(json_array_get(calls, i), "function");
        snprintf(where, sizeof where, "messages[%zu].tool_calls[%zu]", message, i);
        if (!json_is_object(f) || !json_is_string(json_object_get(f, "name")))
            return sl_http_bad(e, where, "'%s.function.name' must be a string", where);
        const json_t *a = json_object_get(f, "arguments");
        if (a && !json_is_string(a) && !json_is_object(a))
            return sl_http_bad(e, where, "'%s.function.arguments' must be a string, not %s", where,
                               sl_json_kind(a));
    }
    return true;
}

/* A checked copy of one message, content as one string. NULL: e is set. */
static json_t *read_message(const json_t *m, size_t i, struct sl_http_error *e) {
    static const char *const roles[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    char where[64];
    snprintf(where, sizeof where, "messages[%zu]", i);
    if (!json_is_object(m)) {
        sl_http_bad(e, where, "'%s' must be an object, not %s", where, sl_json_kind(m));
        return NULL;
    }
    const char *role = json_string_value(json_object_get(m, "role"));
    bool known = false;
    for (size_t k = 0; role && k < sizeof roles / sizeof *roles; k++)
        known = known || strcmp(role, roles[k]) == 0;
    if (!known) {
        snprintf(where, sizeof where, "messages[%zu].role", i);
        sl_http_bad(e, where,
                    "'%s' must be one of system, developer, user, assistant, tool, function",
                    where);
        return NULL;
    }
    const json_t *calls = json_object_get(m, "tool_calls");
    bool has_calls = calls && !json_is_null(calls);
    if (has_calls && !check_tool_calls(calls, i, e))
        return NULL;

    const json_t *content = json_object_get(m, "content");
    json_t *text = NULL;
    snprintf(where, sizeof where, "messages[%zu].content", i);
    if (json_is_string(content)) {
        text = json_incref((json_t *)content);
    } else if (json_is_array(content)) {
        text = join_parts(content, i, e);
        if (!text)
            return NULL;
    } else if ((!content || json_is_null(content)) && strcmp(role, "assistant") == 0) {
        text = json_null();
    } else {
        sl_http_bad(e, where, "'%s' must be a string or an array of text parts, not %s", where,
                    sl_json_kind(content));
        return NULL;
    }
    json_t *copy = json_copy((json_t *)m); /* shallow: only members are replaced */
    if (!copy || json_object_set_new(copy, "content", text) != 0 ||
        (strcmp(role, "developer") == 0 &&
         json_object_set_new(copy, "role", json_string("system")) != 0)) {
        json_decref(copy);
        sl_http_from_status(e, SL_ERR_NOMEM, NULL);
        return NULL;
    }
    if (!has_calls)
        json_object_del(copy, "tool_calls");
    return copy;
}

/* An agent's line of accounting at the front of its system prompt, different in each request: left
 * there it would keep every request from sharing the prefix of the one before. It is of no use to
 * a model, so it goes. False: out of memory. */
static bool drop_changing_header(json_t *messages) {
    static const char header[] = "x-anthropic-billing-header:";
    json_t *first = json_array_get(messages, 0);
    const json_t *content = json_object_get(first, "content");
    const char *role = json_string_value(json_object_get(first, "role"));
    const char *text = json_string_value(content);
    if (!text || strcmp(role, "system") != 0 || strncasecmp(text, header, sizeof header - 1) != 0)
        return true;
    const char *end = text + json_string_length(content);
    const char *rest = memchr(text, '\n', (size_t)(end - text));
    rest = rest ? rest + 1 : end;
    if (rest == end) /* that was all of it */
        return json_array_remove(messages, 0) == 0;
    return json_object_set_new(first, "content", json_stringn(rest, (size_t)(end - rest))) == 0;
}

json_t *sl_messages_read(const json_t *body, struct sl_http_error *e) {
    const json_t *messages = json_object_get(body, "messages");
    if (!json_is_array(messages)) {
        sl_http_bad(e, "messages", "'messages' must be an array of messages, not %s",
                    sl_json_kind(messages));
        return NULL;
    }
    if (json_array_size(messages) == 0) {
        sl_http_bad(e, "messages", "'messages' must hold at least one message");
        return NULL;
    }
    json_t *out = json_array();
    for (size_t i = 0; out && i < json_array_size(messages); i++) {
        json_t *m = read_message(json_array_get(messages, i), i, e);
        if (!m || json_array_append_new(out, m) != 0) {
            json_decref(out);
            if (m)
                sl_http_from_status(e, SL_ERR_NOMEM, NULL);
            return NULL;
        }
    }
    if (!out || !drop_changing_header(out)) {
        json_decref(out);
        sl_http_from_status(e, SL_ERR_NOMEM, NULL);
        return NULL;
    }
    return out;
}

/* ------------------------------------------------------------------------------------ reshaping */

/* The user's message that is being put together, out of one or several. */
struct joined {
    struct sl_buf text;
    bool open;
};

static bool close_joined(struct joined *j, json_t *out) {
    if (!j->open)
        return true;
    json_t *m = json_object();
    bool ok = !j->text.failed &&
              json_object_set_new(m, "content",
                                  json_stringn(j->text.ptr ? j->text.ptr : "", j->text.len)) == 0 &&
              json_object_set_new(m, "role", json_string("user")) == 0;
    if (ok)
        ok = json_array_append_new(out, m) == 0;
    else
        json_decref(m);
    sl_buf_clear(&j->text);
    j->open = false;
    return ok;
}

json_t *sl_messages_reshape(const json_t *messages, enum sl_messages_shape shape) {
    struct joined joined = {0};
    json_t *out = json_array();
    bool ok = out != NULL;
    for (size_t i = 0; ok && i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i);
        const json_t *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        bool system = role && strcmp(role, "system") == 0;
        bool keep =
            system ? i == 0 && shape == SL_SHAPE_ONE_SYSTEM : !role || strcmp(role, "user") != 0;
        if (keep || !json_is_string(content)) {
            ok = close_joined(&joined, out) && json_array_append(out, m) == 0;
            continue;
        }
        if (joined.open)
            sl_buf_puts(&joined.text, "\n\n");
        joined.open = true;
        sl_buf_put(&joined.text, json_string_value(content), json_string_length(content));
    }
    ok = ok && close_joined(&joined, out);
    sl_buf_release(&joined.text);
    if (ok)
        return out;
    json_decref(out);
    return NULL;
}

static bool has_system(const json_t *messages) {
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const char *role = json_string_value(json_object_get(json_array_get(messages, i), "role"));
        if (role && strcmp(role, "system") == 0)
            return true;
    }
    return false;
}

enum sl_status sl_messages_render(const struct sl_chat *chat, const json_t *messages,
                                  const struct sl_template_limits *limits,
                                  const struct sl_messages_renderer *r, struct sl_rendered *out,
                                  struct sl_err *out_err) {
    struct sl_err err;
    uint64_t steps = 0;
    struct sl_template_limits all = *limits;
    all.steps = &steps;
    json_t *last = NULL;
    enum sl_status status = SL_ERR_INVALID;
    bool refused = !chat->takes_system && has_system(messages);
    for (int shape = refused ? SL_SHAPE_NO_SYSTEM : SL_SHAPE_AS_SENT;
         shape < SL_SHAPE_COUNT && status == SL_ERR_INVALID; shape++) {
        json_t *m = shape == SL_SHAPE_AS_SENT
                        ? json_incref((json_t *)messages)
                        : sl_messages_reshape(messages, (enum sl_messages_shape)shape);
        if (!m)
            status = SL_ERR_NOMEM;
        else if (!last || !json_equal(m, last))
            status = r->render(r->ctx, m, &all, out, last ? &err : out_err);
        if (status == SL_ERR_LIMIT && last)
            *out_err = err;
        json_decref(last);
        last = m;
    }
    json_decref(last);
    return status;
}
