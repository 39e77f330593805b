/* Calls as parameters between tags, whose text is no JSON: Qwen3-Coder's, DeepSeek's DSML, GLM's,
 * MiniMax's. They become JSON by what the function's schema says of each parameter. */
#include "server/answer/splitter_internal.h"

#include "model/grammar/json_types.h"

#include <jansson.h>
#include <string.h>

#define SPACE_AFTER_CLOSE 64u /* between a value's end and the next tag */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static const char *function_close(const struct sl_splitter *s) {
    return s->f->function_close ? s->f->function_close : s->f->call_close;
}

static bool name_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = sl_split_space(s, 0), end;
    uint32_t which = 0;
    if (f->name_open) {
        enum sl_split_match m = sl_split_at(s, at, f->name_open);
        if (at == s->n || m == SL_SPLIT_MAYBE)
            return false;
        if (m == SL_SPLIT_NO)
            return sl_split_call_fail(s);
        at += strlen(f->name_open);
    }
    const char *const ends[] = {f->name_open ? f->name_close : "\n",
                                f->name_open ? NULL : f->key_open,
                                f->name_open ? NULL : function_close(s)};
    enum sl_split_match m = sl_split_find(s, at, at + SL_SPLIT_NAME_BYTES, ends, 3, &end, &which);
    if (m == SL_SPLIT_MAYBE || (m == SL_SPLIT_NO && end < at + SL_SPLIT_NAME_BYTES))
        return false;
    if (m == SL_SPLIT_NO || !sl_split_call_name(s, sl_split_text(s) + at, end - at))
        return sl_split_call_fail(s);
    sl_split_take(s, end + (which == 0 ? strlen(ends[0]) : 0));
    sl_split_call_certain(s);
    s->state = SL_SPLIT_TAG_BODY;
    return true;
}

static bool body_step(struct sl_splitter *s) {
    const char *open = s->f->key_open, *close = function_close(s);
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    enum sl_split_match key = sl_split_at(s, at, open), end = sl_split_at(s, at, close);
    if (key == SL_SPLIT_YES) {
        sl_split_take(s, at + strlen(open));
        s->state = SL_SPLIT_TAG_KEY;
        return true;
    }
    if (end == SL_SPLIT_YES) {
        sl_split_take(s, at + strlen(close));
        sl_split_call_arguments(s, "{}", s->n_params ? 0 : 2);
        sl_split_call_arguments(s, "}", s->n_params ? 1 : 0);
        sl_split_call_done(s);
        s->state = SL_SPLIT_TAG_CLOSE;
        return true;
    }
    return key == SL_SPLIT_NO && end == SL_SPLIT_NO && sl_split_call_fail(s);
}

/* A tag's end with a gap "%" in it: white space, or of typed keys true or false (*out_true). */
static enum sl_split_match gap_at(const struct sl_splitter *s, size_t at, const char *pattern,
                                  size_t *out_end, bool *out_true) {
    const char *gap = strchr(pattern, '%');
    char first[64];
    size_t n = gap ? (size_t)(gap - pattern) : strlen(pattern);
    memcpy(first, pattern, n);
    first[n] = '\0';
    enum sl_split_match m = sl_split_at(s, at, first);
    if (m != SL_SPLIT_YES || !gap) {
        *out_end = at + n;
        return m;
    }
    at += n;
    *out_true = false;
    if (s->f->typed) {
        enum sl_split_match yes = sl_split_at(s, at, "true"), no = sl_split_at(s, at, "false");
        if (yes != SL_SPLIT_YES && no != SL_SPLIT_YES)
            return yes == SL_SPLIT_MAYBE || no == SL_SPLIT_MAYBE ? SL_SPLIT_MAYBE : SL_SPLIT_NO;
        *out_true = yes == SL_SPLIT_YES;
        at += yes == SL_SPLIT_YES ? 4 : 5;
    } else {
        size_t most = at + SPACE_AFTER_CLOSE;
        while (at < s->n && at < most && is_space(sl_split_text(s)[at]))
            at++;
    }
    *out_end = at + strlen(gap + 1);
    return sl_split_at(s, at, gap + 1);
}

static uint32_t parameter_types(const struct sl_splitter *s) {
    const json_t *root = json_object_get(sl_split_tool(s->config->tools, s->name), "parameters");
    const json_t *schema = json_object_get(json_object_get(root, "properties"), s->key);
    return sl_json_types(root, schema ? schema : json_object_get(root, "additionalProperties"));
}

static bool key_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = 0, end = 0;
    bool is_string = false;
    enum sl_split_match m = SL_SPLIT_NO;
    for (; at < s->n && at <= SL_SPLIT_NAME_BYTES; at++)
        if ((m = gap_at(s, at, f->key_close, &end, &is_string)) != SL_SPLIT_NO)
            break;
    if (m == SL_SPLIT_MAYBE || (m == SL_SPLIT_NO && at == s->n && at <= SL_SPLIT_NAME_BYTES))
        return false;
    if (m == SL_SPLIT_NO || at == 0)
        return sl_split_call_fail(s);
    memcpy(s->key, sl_split_text(s), at);
    s->key_len = at;
    s->key[at] = '\0';
    sl_split_take(s, end);
    s->types = f->typed ? is_string ? SL_JSON_STRING : SL_JSON_ANY : parameter_types(s);
    s->scanned = 0;
    s->value_started = false;
    s->state = s->types == SL_JSON_STRING ? SL_SPLIT_TAG_STRING : SL_SPLIT_TAG_VALUE;
    sl_buf_clear(&s->fragment);
    sl_buf_puts(&s->fragment, s->n_params++ ? ", " : "{");
    sl_buf_json(&s->fragment, s->key, s->key_len);
    sl_buf_puts(&s->fragment, ": ");
    sl_split_call_arguments(s, s->fragment.ptr, s->fragment.len);
    return true;
}

/* Does a value end at byte `at`? A closing tag that no other tag follows is part of the value. */
static enum sl_split_match value_ends(const struct sl_splitter *s, size_t at, size_t *out_behind) {
    const char *close = s->f->value_close;
    enum sl_split_match m = sl_split_at(s, at, close);
    if (m != SL_SPLIT_YES)
        return m;
    at += strlen(close);
    *out_behind = at;
    size_t most = at + SPACE_AFTER_CLOSE;
    while (at < s->n && at < most && is_space(sl_split_text(s)[at]))
        at++;
    if (at == s->n)
        return s->ended ? SL_SPLIT_YES : SL_SPLIT_MAYBE;
    enum sl_split_match key = sl_split_at(s, at, s->f->key_open);
    enum sl_split_match end = sl_split_at(s, at, function_close(s));
    if (key == SL_SPLIT_YES || end == SL_SPLIT_YES)
        return SL_SPLIT_YES;
    return key == SL_SPLIT_MAYBE || end == SL_SPLIT_MAYBE ? SL_SPLIT_MAYBE : SL_SPLIT_NO;
}

/* The first end of a value from byte `from` on; MAYBE: there may be one at *out_at. */
static enum sl_split_match find_end(const struct sl_splitter *s, size_t from, size_t *out_at,
                                    size_t *out_behind) {
    for (size_t i = from; i < s->n; i++) {
        if (sl_split_text(s)[i] != s->f->value_close[0])
            continue;
        enum sl_split_match m = value_ends(s, i, out_behind);
        *out_at = i;
        if (m != SL_SPLIT_NO)
            return m;
    }
    *out_at = s->n;
    return SL_SPLIT_NO;
}

static void put_string(struct sl_splitter *s, const char *text, size_t len) {
    sl_buf_clear(&s->fragment);
    sl_buf_json(&s->fragment, text, len);
    if (s->fragment.len > 2)
        sl_split_call_arguments(s, s->fragment.ptr + 1, s->fragment.len - 2);
}

/* The line break that stands behind the opening tag. */
static bool skip_first_space(struct sl_splitter *s) {
    enum sl_split_match m = sl_split_at(s, 0, s->f->value_space);
    if (m == SL_SPLIT_MAYBE)
        return false;
    if (m == SL_SPLIT_YES)
        sl_split_take(s, strlen(s->f->value_space));
    return s->value_started = true;
}

static size_t last_space(const struct sl_splitter *s, size_t n) {
    size_t len = s->f->value_space ? strlen(s->f->value_space) : 0;
    return n >= len && len && memcmp(sl_split_text(s) + n - len, s->f->value_space, len) == 0 ? len
                                                                                              : 0;
}

static bool string_step(struct sl_splitter *s) {
    size_t at, behind = 0;
    if (!s->value_started) {
        if (!skip_first_space(s))
            return false;
        sl_split_call_arguments(s, "\"", 1);
    }
    enum sl_split_match m = find_end(s, 0, &at, &behind);
    size_t keep = last_space(s, at);
    put_string(s, sl_split_text(s), at - keep);
    if (m != SL_SPLIT_YES) {
        sl_split_take(s, at - keep);
        return false;
    }
    sl_split_take(s, behind);
    sl_split_call_arguments(s, "\"", 1);
    s->state = SL_SPLIT_TAG_BODY;
    return true;
}

/* Python's words, which models write for JSON's. */
static const char *python_word(const char *text, size_t len) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (len == strlen(words[i][0]) && memcmp(text, words[i][0], len) == 0)
            return words[i][1];
    return NULL;
}

/* The type of the one JSON value that text is, which goes to s->fragment; 0: it is none. */
static uint32_t json_value(struct sl_splitter *s, const char *text, size_t len) {
    struct sl_json_scan scan = {0};
    size_t taken;
    sl_buf_clear(&s->fragment);
    sl_json_scan_put(&scan, text, len, &taken, &s->fragment);
    if (taken < len || !sl_json_scan_may_end(&scan))
        return 0;
    switch (text[0]) {
    case '{':
        return SL_JSON_OBJECT;
    case '[':
        return SL_JSON_ARRAY;
    case '"':
        return SL_JSON_STRING;
    case 'n':
        return SL_JSON_NULL;
    case 't':
    case 'f':
        return SL_JSON_BOOLEAN;
    default:
        return SL_JSON_NUMBER;
    }
}

/* Digits stay as the model wrote them. */
static void put_value(struct sl_splitter *s, const char *text, size_t len) {
    const char *from = text, *word;
    size_t n = len;
    while (n && is_space(*from))
        from++, n--;
    while (n && is_space(from[n - 1]))
        n--;
    if (!(s->types & SL_JSON_STRING) && (word = python_word(from, n)) != NULL)
        from = word, n = strlen(word);
    uint32_t type = json_value(s, from, n);
    /* A text in quotation marks is JSON only where the key or the type says that it is none. */
    if ((type & s->types) && (type != SL_JSON_STRING || s->f->typed)) {
        sl_split_call_arguments(s, s->fragment.ptr, s->fragment.len);
        return;
    }
    sl_split_call_arguments(s, "\"", 1);
    put_string(s, text, len);
    sl_split_call_arguments(s, "\"", 1);
}

static bool value_step(struct sl_splitter *s) {
    size_t at, behind = 0;
    if (!s->value_started && !skip_first_space(s))
        return false;
    enum sl_split_match m = find_end(s, s->scanned, &at, &behind);
    bool most = !s->config->hold_calls && at > SL_SPLIT_HELD_BYTES;
    if (most) {
        s->state = SL_SPLIT_TAG_STRING;
        sl_split_call_arguments(s, "\"", 1);
        return true;
    }
    s->scanned = at;
    if (m != SL_SPLIT_YES)
        return false;
    put_value(s, sl_split_text(s), at - last_space(s, at));
    sl_split_take(s, behind);
    s->state = SL_SPLIT_TAG_BODY;
    return true;
}

void sl_split_tagged_cut(struct sl_splitter *s) {
    if (s->state == SL_SPLIT_TAG_STRING && s->value_started)
        put_string(s, sl_split_text(s), s->n);
    sl_split_take(s, s->n);
}

static bool close_step(struct sl_splitter *s) {
    return sl_split_close(s, sl_split_space(s, 0), s->f->function_close ? s->f->call_close : NULL);
}

bool sl_split_tagged(struct sl_splitter *s) {
    switch (s->state) {
    case SL_SPLIT_TAG_NAME:
        return name_step(s);
    case SL_SPLIT_TAG_BODY:
        return body_step(s);
    case SL_SPLIT_TAG_KEY:
        return key_step(s);
    case SL_SPLIT_TAG_STRING:
        return string_step(s);
    case SL_SPLIT_TAG_VALUE:
        return value_step(s);
    default:
        return close_step(s);
    }
}
