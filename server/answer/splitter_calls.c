/* A call in the making, whatever its syntax: what is kept, what is given out, and when. */
#include "server/answer/splitter_internal.h"

#include "common/utf8.h"

#include <string.h>

enum sl_split_state sl_split_call_state(const struct sl_splitter *s) {
    switch (s->f->syntax) {
    case SL_CALL_NAMED:
        return SL_SPLIT_NAME;
    case SL_CALL_TAGGED:
        return SL_SPLIT_TAG_NAME;
    case SL_CALL_LITERAL:
        return s->f->array ? SL_SPLIT_LITERAL_OPEN : SL_SPLIT_LITERAL_NAME;
    case SL_CALL_HARMONY:
        return SL_SPLIT_HEADER;
    default:
        return SL_SPLIT_JSON_OPEN;
    }
}

void sl_split_call_begin(struct sl_splitter *s) {
    s->in_call = s->keep_raw = true;
    s->called = s->has_early = s->is_early_done = s->bare_list = false;
    s->value_started = false;
    s->n_params = 0;
    s->prompt_bytes = 0;
    s->name[0] = '\0';
    s->scan = (struct sl_json_scan){0};
    s->literal = (struct sl_literal_scan){0};
    sl_buf_clear(&s->raw);
    sl_buf_clear(&s->arguments);
    sl_buf_clear(&s->early);
}

void sl_split_call_next(struct sl_splitter *s) {
    bool bare = s->bare_list;
    sl_split_call_begin(s);
    s->bare = s->bare_list = bare;
}

enum sl_split_match sl_split_bare(struct sl_splitter *s, size_t at) {
    if (!s->config->tools || !s->f->bare || at >= s->n)
        return SL_SPLIT_NO;
    char c = sl_split_text(s)[at];
    if (!c || !strchr(s->f->bare, c))
        return SL_SPLIT_NO;
    enum sl_split_state state = SL_SPLIT_JSON_ITEM;
    if (c == '[') {
        size_t inside = sl_split_space(s, at + 1);
        if (inside == s->n)
            return s->ended ? SL_SPLIT_NO : SL_SPLIT_MAYBE;
        state = sl_split_text(s)[inside] == '{' ? SL_SPLIT_JSON_OPEN : SL_SPLIT_LITERAL_OPEN;
    }
    sl_split_call_begin(s);
    s->bare = s->bare_list = true;
    s->in_array = false;
    sl_split_take(s, at);
    s->state = state;
    return SL_SPLIT_YES;
}

const json_t *sl_split_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *n = json_string_value(json_object_get(f, "name"));
        if (n && strcmp(n, name) == 0)
            return f;
    }
    return NULL;
}

bool sl_split_call_name(struct sl_splitter *s, const char *name, size_t len) {
    while (len && sl_split_is_space(*name))
        name++, len--;
    while (len && sl_split_is_space(name[len - 1]))
        len--;
    if (len == 0 || len > SL_SPLIT_NAME_BYTES)
        return false;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c >= 0x80 || (c && strchr("_-.:/", c));
        if (!ok)
            return false;
    }
    memcpy(s->name, name, len);
    s->name[len] = '\0';
    /* Without a marker only a function of the request's tells a call from an answer in JSON. */
    return !s->bare || sl_split_tool(s->config->tools, s->name) != NULL;
}

void sl_split_call_certain(struct sl_splitter *s) {
    s->called = true;
    if (s->config->hold_calls)
        return;
    sl_split_emit(s, SL_PART_CALL, s->name, strlen(s->name));
    s->keep_raw = false;
    sl_buf_clear(&s->raw);
}

void sl_split_call_arguments(struct sl_splitter *s, const char *text, size_t len) {
    if (s->config->hold_calls)
        sl_buf_put(&s->arguments, text, len);
    else
        sl_split_emit(s, SL_PART_ARGUMENTS, text, len);
}

bool sl_split_call_scan(struct sl_splitter *s, enum sl_split_state next) {
    size_t taken;
    if (s->n == 0)
        return false;
    sl_buf_clear(&s->fragment);
    enum sl_json_scan_result r =
        sl_json_scan_put(&s->scan, sl_split_text(s), s->n, &taken, &s->fragment);
    sl_split_take(s, taken);
    if (s->fragment.len)
        sl_split_call_arguments(s, s->fragment.ptr, s->fragment.len);
    if (r == SL_JSON_SCAN_BAD)
        return sl_split_call_fail(s);
    if (r == SL_JSON_SCAN_DONE)
        s->state = next;
    return r == SL_JSON_SCAN_DONE;
}

void sl_split_call_done(struct sl_splitter *s) {
    if (s->config->hold_calls) {
        sl_split_emit(s, SL_PART_CALL, s->name, strlen(s->name));
        sl_split_emit(s, SL_PART_ARGUMENTS, s->arguments.ptr, s->arguments.len);
    }
    s->n_calls++;
    s->in_call = s->called = s->keep_raw = s->bare = false;
    sl_buf_clear(&s->raw);
}

bool sl_split_call_fail(struct sl_splitter *s) {
    /* Something is taken, or the same text would be tried as a call again. */
    if (s->keep_raw && s->raw.len == 0 && s->n) {
        uint32_t len = sl_utf8_len((const unsigned char *)sl_split_text(s), s->n);
        sl_split_take(s, len ? len : 1);
    }
    if (s->keep_raw && s->raw.len > s->prompt_bytes)
        sl_split_emit(s, SL_PART_CONTENT, s->raw.ptr + s->prompt_bytes,
                      s->raw.len - s->prompt_bytes);
    else if (s->called && !s->config->hold_calls)
        s->n_calls++; /* it is out, as far as it came */
    s->in_call = s->called = s->keep_raw = s->bare = s->strip = false;
    sl_buf_clear(&s->raw);
    s->state = SL_SPLIT_CONTENT;
    return true;
}
