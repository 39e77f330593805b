#include "server/api/final_message.h"

#include "model/jinja/chat_template.h"
#include "server/api/translate.h"

#include <string.h>

static const char field[] = "continue_final_message";

bool sl_final_message_asked(const json_t *body) {
    return json_is_true(json_object_get(body, field));
}

bool sl_final_message_read_mark(json_t *body, struct sl_http_error *e) {
    static const char *const marks[] = {"prefix", "partial"};
    const json_t *messages = json_object_get(body, "messages");
    size_t n = json_array_size(messages);
    const json_t *last = n ? json_array_get(messages, n - 1) : NULL;
    if (!sl_json_is(json_object_get(last, "role"), "assistant"))
        return true;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const json_t *v = json_object_get(last, marks[i]);
        struct sl_where message = sl_where_index("messages", n - 1);
        struct sl_where at = sl_where_member(message.text, marks[i]);
        if (sl_json_given(v) && !json_is_boolean(v))
            return sl_http_bad(e, at.text, "'%s' must be true or false, not %s", at.text,
                               sl_json_kind(v));
        if (json_is_true(v) && !sl_json_given(json_object_get(body, field)) &&
            json_object_set_new(body, field, json_true()) != 0)
            return sl_http_from_status(e, SL_ERR_NOMEM, NULL);
    }
    return true;
}

bool sl_final_message_check(const struct sl_served *v, const json_t *body,
                            struct sl_http_error *e) {
    const json_t *asked = json_object_get(body, field);
    if (sl_json_given(asked) && !json_is_boolean(asked))
        return sl_http_bad(e, field, "'%s' must be true or false, not %s", field,
                           sl_json_kind(asked));
    if (!json_is_true(asked))
        return true;
    if (json_is_true(json_object_get(body, "add_generation_prompt")))
        return sl_http_bad(e, field,
                           "'%s' cannot be true with 'add_generation_prompt': one goes "
                           "on with a turn, the other opens a new one",
                           field);
    if (v->format->syntax == SL_CALL_HARMONY)
        return sl_http_bad(e, field,
                           "'%s' is not supported with this model, which writes its answers as "
                           "messages in channels",
                           field);
    return true;
}

/* Where the last `what` ends; 0: nowhere. */
static size_t end_of_last(const struct sl_rendered *r, const char *what, size_t n) {
    for (size_t end = r->len; n && end >= n; end--)
        if (memcmp(r->text + end - n, what, n) == 0)
            return end;
    return 0;
}

static bool is_own(const struct sl_rendered *r, size_t from) {
    const struct sl_range *last = r->n_own ? &r->own[r->n_own - 1] : NULL;
    return from == r->len || (last && last->from <= from && last->to >= r->len);
}

static void cut(struct sl_rendered *r, size_t len) {
    r->len = len;
    r->text[len] = '\0';
    while (r->n_own && r->own[r->n_own - 1].from >= len)
        r->n_own--;
    if (r->n_own && r->own[r->n_own - 1].to > len)
        r->own[r->n_own - 1].to = len;
}

bool sl_final_message_open(const json_t *messages, struct sl_rendered *r, struct sl_http_error *e) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const json_t *content = json_object_get(last, "content");
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    if (!role || strcmp(role, "assistant") != 0 || !n || json_object_get(last, "tool_calls"))
        return sl_http_bad(e, field,
                           "'%s' needs an assistant's message with text, and no calls, at the end "
                           "of 'messages'",
                           field);
    size_t end = end_of_last(r, text, n);
    if (!end || !is_own(r, end)) {
        while (n && strchr(" \t\r\n", text[n - 1])) /* many templates trim it */
            n--;
        end = end_of_last(r, text, n);
    }
    if (!end || !is_own(r, end))
        return sl_http_bad(e, field,
                           "'%s': the model's chat template does not write that message as it is "
                           "at the end of the prompt",
                           field);
    cut(r, end);
    return true;
}
