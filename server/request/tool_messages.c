/* Conversations with tools, for templates that know nothing of them or want them otherwise. */
#include "server/request/tools.h"

#include "common/buf.h"

#include <stdlib.h>
#include <string.h>

/* The form that Hermes' and Qwen's templates teach; see model/chat/answer_format.c, "generic". */
static const char hint_before[] =
    "You can call functions. These are the functions, each with a JSON schema of its parameters, "
    "one a line:\n<tools>\n";
static const char hint_after[] =
    "</tools>\n\nTo call a function, write a JSON object with its name and its arguments between "
    "tags, and nothing after it:\n<tool_call>\n{\"name\": \"function name\", \"arguments\": "
    "{\"parameter\": \"value\"}}\n</tool_call>\nSeveral calls have a pair of tags each. The "
    "results "
    "come back between <tool_response> tags.";

static bool is_role(const json_t *message, const char *role) {
    const char *r = json_string_value(json_object_get(message, "role"));
    return r && strcmp(r, role) == 0;
}

static void put_json(struct sl_buf *b, const json_t *v) {
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    sl_buf_puts(b, text ? text : "");
    b->failed = b->failed || !text;
    free(text);
}

static void put_string(struct sl_buf *b, const json_t *v) {
    if (json_is_string(v))
        sl_buf_put(b, json_string_value(v), json_string_length(v));
}

/* Releases b; false: out of memory. */
static bool set_text(json_t *message, const char *key, struct sl_buf *b) {
    bool ok = !b->failed &&
              json_object_set_new_nocheck(message, key,
                                          json_stringn_nocheck(b->ptr ? b->ptr : "", b->len)) == 0;
    sl_buf_release(b);
    return ok;
}

static bool calls_as_text(json_t *message) {
    json_t *calls = json_object_get(message, "tool_calls");
    struct sl_buf b = {0};
    put_string(&b, json_object_get(message, "content"));
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(f, "arguments");
        sl_buf_puts(&b, b.len ? "\n<tool_call>\n{\"name\": " : "<tool_call>\n{\"name\": ");
        put_json(&b, json_object_get(f, "name"));
        sl_buf_puts(&b, ", \"arguments\": ");
        if (json_is_object(arguments))
            put_json(&b, arguments);
        else if (json_string_length(arguments))
            put_string(&b, arguments);
        else
            sl_buf_puts(&b, "{}");
        sl_buf_puts(&b, "}\n</tool_call>");
    }
    json_object_del(message, "tool_calls");
    return set_text(message, "content", &b);
}

/* Results of tools become the user's, and join each other and the user's words behind them: roles
 * take turns. The text is kept until all is there, so that many results cost no more than few. */
struct turn {
    json_t *message; /* the first one; borrowed, NULL = none is open */
    struct sl_buf text;
};

static void turn_add(struct turn *t, json_t *message, bool result) {
    if (t->message)
        sl_buf_puts(&t->text, "\n");
    else
        t->message = message;
    sl_buf_puts(&t->text, result ? "<tool_response>\n" : "");
    put_string(&t->text, json_object_get(message, "content"));
    sl_buf_puts(&t->text, result ? "\n</tool_response>" : "");
}

static bool turn_end(struct turn *t) {
    json_t *m = t->message;
    t->message = NULL;
    return !m || (set_text(m, "content", &t->text) &&
                  json_object_set_new(m, "role", json_string("user")) == 0);
}

static bool add_hint(json_t *messages, const json_t *tools, bool in_user_message) {
    json_t *first = json_array_get(messages, 0);
    size_t at = 0;
    struct sl_buf b = {0};
    if (in_user_message) {
        while (at < json_array_size(messages) && !is_role(json_array_get(messages, at), "user"))
            at++;
        first = json_array_get(messages, at);
    } else if (!is_role(first, "system")) {
        if (json_array_insert_new(messages, 0, json_pack("{s:s}", "role", "system")) != 0)
            return false;
        first = json_array_get(messages, 0);
    }
    if (!first) /* no user's message: nobody to tell it to */
        return true;
    put_string(&b, json_object_get(first, "content"));
    struct sl_buf hint = {0};
    sl_buf_puts(&hint, hint_before);
    for (size_t i = 0; i < json_array_size(tools); i++) {
        put_json(&hint, json_object_get(json_array_get(tools, i), "function"));
        sl_buf_puts(&hint, "\n");
    }
    sl_buf_puts(&hint, hint_after);
    /* In front of a user's words, behind a system's. */
    struct sl_buf *front = in_user_message ? &hint : &b, *back = in_user_message ? &b : &hint;
    sl_buf_puts(front, front->len && back->len ? "\n\n" : "");
    sl_buf_put(front, back->ptr ? back->ptr : "", back->len);
    front->failed = front->failed || back->failed;
    sl_buf_release(back);
    return set_text(first, "content", front);
}

bool sl_tools_as_text(json_t *messages, const json_t *tools, bool in_user_message) {
    struct turn turn = {0};
    size_t n = 0; /* messages that stay */
    bool ok = true;
    for (size_t i = 0; i < json_array_size(messages) && ok; i++) {
        json_t *m = json_array_get(messages, i);
        bool result = is_role(m, "tool") || is_role(m, "function"), joins = turn.message != NULL;
        if (result || (joins && is_role(m, "user"))) {
            turn_add(&turn, m, result);
            ok = result || turn_end(&turn);
            if (joins)
                continue;
        } else {
            ok = turn_end(&turn) && (!json_object_get(m, "tool_calls") || calls_as_text(m));
        }
        ok = ok && (n == i || json_array_set(messages, n, m) == 0);
        n++;
    }
    ok = turn_end(&turn) && ok;
    while (ok && json_array_size(messages) > n)
        ok = json_array_remove(messages, json_array_size(messages) - 1) == 0;
    return ok && (!tools || add_hint(messages, tools, in_user_message));
}

/* FNV-1a, 64 bits, then nine digits to the base 62. */
static void short_id(const char *id, char out[10]) {
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t h = 14695981039346656037u;
    bool fits = strlen(id) == 9;
    for (const char *p = id; *p; p++) {
        h = (h ^ (unsigned char)*p) * 1099511628211u;
        fits = fits && strchr(digits, *p);
    }
    for (int i = 0; i < 9; i++, h /= 62)
        out[i] = fits ? id[i] : digits[h % 62];
    out[9] = '\0';
}

static bool shorten(json_t *object, const char *key) {
    const char *id = json_string_value(json_object_get(object, key));
    char text[10];
    short_id(id ? id : "", text);
    return json_object_set_new(object, key, json_string(text)) == 0;
}

bool sl_tools_short_ids(json_t *messages) {
    bool ok = true;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *calls = json_object_get(m, "tool_calls");
        if (is_role(m, "tool"))
            ok = ok && shorten(m, "tool_call_id");
        for (size_t k = 0; k < json_array_size(calls); k++)
            ok = ok && shorten(json_array_get(calls, k), "id");
    }
    return ok;
}

bool sl_tools_thinking(json_t *messages, const char *key) {
    bool ok = true;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *m = json_array_get(messages, i), *thought = json_object_get(m, "reasoning_content");
        bool said = json_string_length(json_object_get(m, "content")) > 0;
        bool calls = !said && json_object_get(m, "tool_calls");
        if (json_string_length(thought) && (key || calls))
            ok = ok && json_object_set(m, key ? key : "thinking", thought) == 0;
    }
    return ok;
}
