/* Calls as parameters between tags, whose text is no JSON: Qwen3-Coder's, DeepSeek's DSML, GLM's,
 * MiniMax's, Kimi K3's. They become JSON by what the function's schema says of each parameter. */
#include "server/answer/splitter_internal.h"

#include "model/grammar/json_types.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define SPACE_AFTER_CLOSE 64u /* between a value's end and the next tag */

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static const char *function_close(const struct sl_splitter *s) {
    return s->f->function_close ? s->f->function_close : s->f->call_close;
}

#define GAP_DIGITS 8u

/* One of the words "a|b|c" at byte `at`; *out_first: it is the first. */
static enum sl_split_match word_at(const struct sl_splitter *s, size_t at, const char *words,
                                   size_t *out_end, bool *out_first) {
    bool maybe = false, first = true;
    for (const char *w = words; *w; first = false) {
        char word[32];
        size_t n = strcspn(w, "|");
        memcpy(word, w, n);
        word[n] = '\0';
        w += n + (w[n] == '|');
        enum sl_split_match m = sl_split_at(s, at, word);
        if (m == SL_SPLIT_YES) {
            *out_end = at + n;
            *out_first = first;
            return m;
        }
        maybe = maybe || m == SL_SPLIT_MAYBE;
    }
    return maybe ? SL_SPLIT_MAYBE : SL_SPLIT_NO;
}

/* A tag's end with a gap in it: "#" digits, "%" white space or, of typed keys, a word of the
 * format's types (*out_string: the string's). */
static enum sl_split_match gap_at(const struct sl_splitter *s, size_t at, const char *pattern,
                                  size_t *out_end, bool *out_string) {
    const char *gap = strpbrk(pattern, "%#");
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
    *out_string = false;
    if (*gap == '%' && s->f->types) {
        m = word_at(s, at, s->f->types, &at, out_string);
        if (m != SL_SPLIT_YES)
            return m;
    } else {
        size_t most = at + (*gap == '#' ? GAP_DIGITS : SPACE_AFTER_CLOSE);
        while (at < s->n && at < most &&
               (*gap == '#' ? sl_split_text(s)[at] >= '0' && sl_split_text(s)[at] <= '9'
                            : is_space(sl_split_text(s)[at])))
            at++;
    }
    *out_end = at + strlen(gap + 1);
    return sl_split_at(s, at, gap + 1);
}

/* The first end of a name or key from byte `from` on, by one of patterns [n], within the bytes that
 * a name may have. MAYBE: more text must come. */
static enum sl_split_match find_name_end(const struct sl_splitter *s, size_t from,
                                         const char *const *patterns, uint32_t n, size_t *out_at,
                                         size_t *out_end, bool *out_string) {
    size_t most = from + SL_SPLIT_NAME_BYTES;
    for (size_t at = from; at < s->n && at <= most; at++)
        for (uint32_t k = 0; k < n; k++) {
            enum sl_split_match m =
                patterns[k] ? gap_at(s, at, patterns[k], out_end, out_string) : SL_SPLIT_NO;
            *out_at = at;
            if (m == SL_SPLIT_YES && k > 0) /* another tag, which is not taken */
                *out_end = at;
            if (m != SL_SPLIT_NO)
                return m;
        }
    return s->n <= most && !s->ended ? SL_SPLIT_MAYBE : SL_SPLIT_NO;
}

static bool name_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = sl_split_space(s, 0), stop = 0, end = 0;
    bool unused;
    if (f->name_open) {
        enum sl_split_match m = sl_split_at(s, at, f->name_open);
        if (at == s->n || m == SL_SPLIT_MAYBE)
            return false;
        if (m == SL_SPLIT_NO)
            return sl_split_call_fail(s);
        at += strlen(f->name_open);
    }
    const char *const ends[] = {f->name_close ? f->name_close : "\n",
                                f->name_open ? NULL : f->key_open,
                                f->name_open ? NULL : function_close(s)};
    enum sl_split_match m = find_name_end(s, at, ends, 3, &stop, &end, &unused);
    if (m == SL_SPLIT_MAYBE)
        return false;
    if (m == SL_SPLIT_NO || !sl_split_call_name(s, sl_split_text(s) + at, stop - at))
        return sl_split_call_fail(s);
    sl_split_take(s, end);
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
    if (key == SL_SPLIT_YES && end == SL_SPLIT_MAYBE)
        return false;
    if (key == SL_SPLIT_YES && end == SL_SPLIT_NO) {
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

static const json_t *parameters(const struct sl_splitter *s) {
    return json_object_get(sl_split_tool(s->config->tools, s->name), "parameters");
}

static const json_t *parameter_schema(const struct sl_splitter *s) {
    const json_t *root = parameters(s);
    const json_t *schema = json_object_get(json_object_get(root, "properties"), s->key);
    return schema ? schema : json_object_get(root, "additionalProperties");
}

static bool key_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = 0, end = 0;
    bool is_string = false;
    enum sl_split_match m = find_name_end(s, 0, &f->key_close, 1, &at, &end, &is_string);
    if (m == SL_SPLIT_MAYBE)
        return false;
    if (m == SL_SPLIT_NO || at == 0 || at > SL_SPLIT_NAME_BYTES)
        return sl_split_call_fail(s);
    memcpy(s->key, sl_split_text(s), at);
    s->key_len = at;
    s->key[at] = '\0';
    snprintf(s->value_close, sizeof s->value_close, "%s%s%s", f->value_close,
             f->nested ? s->key : "", f->nested ? ">" : "");
    sl_split_take(s, end);
    s->types = !f->types   ? sl_json_types(parameters(s), parameter_schema(s))
               : is_string ? SL_JSON_STRING
                           : SL_JSON_ANY;
    s->scanned = 0;
    s->tag_depth = 0;
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
    const char *close = s->value_close;
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

/* A tag within a nested value: YES where one begins or ends, and tag_depth counts it. */
static enum sl_split_match tag_within(struct sl_splitter *s, size_t at) {
    const char *open = s->f->key_open, *close = s->f->value_close;
    enum sl_split_match opens = sl_split_at(s, at, open), closes = sl_split_at(s, at, close);
    if (opens == SL_SPLIT_MAYBE || closes == SL_SPLIT_MAYBE)
        return SL_SPLIT_MAYBE;
    if (closes == SL_SPLIT_YES && s->tag_depth == 0)
        return SL_SPLIT_NO;
    if (closes == SL_SPLIT_YES)
        s->tag_depth--;
    else if (opens == SL_SPLIT_YES)
        s->tag_depth++;
    return opens;
}

/* The first end of a value from byte `from` on, up to which nothing is looked at again; MAYBE:
 * there may be one at *out_at. */
static enum sl_split_match find_end(struct sl_splitter *s, size_t from, size_t *out_at,
                                    size_t *out_behind) {
    for (size_t i = from; i < s->n; i++) {
        if (sl_split_text(s)[i] != s->value_close[0])
            continue;
        enum sl_split_match tag = s->f->nested ? tag_within(s, i) : SL_SPLIT_NO;
        *out_at = i;
        if (tag == SL_SPLIT_MAYBE)
            return tag;
        if (tag == SL_SPLIT_YES)
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
    sl_split_put_inside(&s->fragment, text, len);
    if (s->fragment.len)
        sl_split_call_arguments(s, s->fragment.ptr, s->fragment.len);
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

static void put_value(struct sl_splitter *s, const char *text, size_t len) {
    sl_buf_clear(&s->fragment);
    if (s->f->nested)
        sl_split_put_tree(&s->fragment, s->f, parameters(s), parameter_schema(s), text, len);
    else
        sl_split_put_value(&s->fragment, s->types, s->f->types != NULL, text, len);
    sl_split_call_arguments(s, s->fragment.ptr, s->fragment.len);
}

static bool value_step(struct sl_splitter *s) {
    size_t at, behind = 0;
    if (!s->value_started && !skip_first_space(s))
        return false;
    enum sl_split_match m = find_end(s, s->scanned, &at, &behind);
    bool most = !s->config->hold_calls && at > SL_SPLIT_HELD_BYTES;
    if (most) {
        s->tag_depth = 0;
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
