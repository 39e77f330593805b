/* Calls as a name, a separator and the arguments' JSON. */
#include "server/answer/splitter_internal.h"

#include <string.h>

/* [TOOL_CALLS]name[ARGS]{...}, with [CALL_ID]id before [ARGS], or with nothing between them. */
static bool mistral(const struct sl_splitter *s) {
    return strcmp(s->f->separator, "[ARGS]") == 0;
}

/* functions.name:3 */
static size_t without_index(const char *name, size_t len) {
    size_t n = len;
    while (n && name[n - 1] >= '0' && name[n - 1] <= '9')
        n--;
    return n && n < len && name[n - 1] == ':' ? n - 1 : len;
}

/* May what was looked for within a name's length from `from` on still come? */
static bool may_come(enum sl_split_match m, size_t from, size_t at) {
    return m == SL_SPLIT_MAYBE || (m == SL_SPLIT_NO && at < from + SL_SPLIT_NAME_BYTES);
}

static bool name_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t from = sl_split_space(s, 0), at;
    uint32_t which = 0;
    if (from == s->n)
        return false;
    if (mistral(s) && sl_split_text(s)[from] == '[' &&
        sl_split_at(s, from, f->separator) == SL_SPLIT_NO) {
        s->state = SL_SPLIT_JSON_OPEN; /* the older form */
        return true;
    }
    if (f->id_close) {
        enum sl_split_match id =
            sl_split_find(s, from, from + SL_SPLIT_NAME_BYTES, &f->id_close, 1, &at, &which);
        if (may_come(id, from, at))
            return false;
        if (id == SL_SPLIT_NO)
            return sl_split_call_fail(s);
        from = at + strlen(f->id_close);
    }
    enum sl_split_match before = sl_split_at(s, from, f->name_before);
    if (before == SL_SPLIT_MAYBE)
        return false;
    if (before == SL_SPLIT_YES)
        from += strlen(f->name_before);
    const char *const ends[] = {f->separator, mistral(s) ? "[CALL_ID]" : NULL,
                                mistral(s) ? "{" : NULL};
    enum sl_split_match m =
        sl_split_find(s, from, from + SL_SPLIT_NAME_BYTES, ends, 3, &at, &which);
    if (may_come(m, from, at))
        return false;
    const char *name = sl_split_text(s) + from;
    size_t len = m == SL_SPLIT_YES ? at - from : 0;
    if (f->name_before && strcmp(f->name_before, "functions.") == 0)
        len = without_index(name, len);
    if (!sl_split_call_name(s, name, len))
        return sl_split_call_fail(s);
    sl_split_take(s, which == 0 ? at + strlen(f->separator) : at);
    s->state = SL_SPLIT_NAME_END;
    return true;
}

/* Between the name and the arguments. */
static bool end_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = sl_split_space(s, 0), end;
    uint32_t which;
    if (at == s->n)
        return false;
    enum sl_split_match id = mistral(s) ? sl_split_at(s, at, "[CALL_ID]") : SL_SPLIT_NO;
    enum sl_split_match fence = sl_split_at(s, at, f->fence);
    if (id == SL_SPLIT_MAYBE || fence == SL_SPLIT_MAYBE)
        return false;
    if (id == SL_SPLIT_YES) {
        enum sl_split_match m =
            sl_split_find(s, at, at + SL_SPLIT_NAME_BYTES, &f->separator, 1, &end, &which);
        if (may_come(m, at, end))
            return false;
        if (m == SL_SPLIT_NO)
            return sl_split_call_fail(s);
        sl_split_take(s, end + strlen(f->separator));
        return true;
    }
    if (fence == SL_SPLIT_YES)
        at = sl_split_space(s, at + strlen(f->fence));
    if (at == s->n)
        return false;
    if (sl_split_text(s)[at] != '{')
        return sl_split_call_fail(s);
    sl_split_take(s, at);
    sl_split_call_certain(s);
    s->state = SL_SPLIT_NAME_ARGUMENTS;
    return true;
}

static bool close_step(struct sl_splitter *s) {
    const struct sl_answer_format *f = s->f;
    size_t at = sl_split_space(s, 0);
    if (s->in_call)
        sl_split_call_done(s);
    if (f->fence_close) {
        enum sl_split_match m = sl_split_at(s, at, f->fence_close);
        if (m == SL_SPLIT_MAYBE)
            return false;
        if (m == SL_SPLIT_YES)
            at = sl_split_space(s, at + strlen(f->fence_close));
    }
    return sl_split_close(s, at, f->call_close);
}

bool sl_split_named(struct sl_splitter *s) {
    switch (s->state) {
    case SL_SPLIT_NAME:
        return name_step(s);
    case SL_SPLIT_NAME_END:
        return end_step(s);
    case SL_SPLIT_NAME_ARGUMENTS:
        return sl_split_call_scan(s, SL_SPLIT_NAME_CLOSE);
    default:
        return close_step(s);
    }
}
