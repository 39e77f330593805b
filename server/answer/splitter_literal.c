/* Calls as Python or a kin of it writes them: a name and keyword arguments, alone or in a list. */
#include "server/answer/splitter_internal.h"

#include <string.h>

static bool open_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    if (sl_split_text(s)[at] != '[')
        return sl_split_call_fail(s);
    size_t inside = sl_split_space(s, at + 1);
    if (inside == s->n)
        return false;
    if (sl_split_text(s)[inside] == '{') { /* some write JSON when told to */
        s->state = SL_SPLIT_JSON_OPEN;
        return true;
    }
    s->in_array = true;
    sl_split_take(s, at + 1);
    s->state = SL_SPLIT_LITERAL_NAME;
    return true;
}

/* What may stand in a name: the first other byte ends it, so that a text which only looks like a
 * call is not held back. */
static bool in_name(char c) {
    unsigned char u = (unsigned char)c;
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           u >= 0x80 || (c && strchr("_-.:/", c));
}

/* Llama 3's form has none of its own: what it writes beside JSON is Python. */
static const char *separator(const struct sl_splitter *s) {
    return s->f->separator && s->f->syntax == SL_CALL_LITERAL ? s->f->separator : "(";
}

static bool name_step(struct sl_splitter *s) {
    size_t from = sl_split_space(s, 0);
    enum sl_split_match before =
        s->f->syntax == SL_CALL_LITERAL ? sl_split_at(s, from, s->f->name_before) : SL_SPLIT_NO;
    if (from == s->n || before == SL_SPLIT_MAYBE)
        return false;
    if (before == SL_SPLIT_YES)
        from += strlen(s->f->name_before);
    size_t at = from;
    while (at < s->n && at - from <= SL_SPLIT_NAME_BYTES && in_name(sl_split_text(s)[at]))
        at++;
    if (at == s->n && at - from <= SL_SPLIT_NAME_BYTES)
        return false;
    enum sl_split_match open = sl_split_at(s, at, separator(s));
    if (open == SL_SPLIT_NO || !sl_split_call_name(s, sl_split_text(s) + from, at - from))
        return sl_split_call_fail(s);
    sl_split_take(s, at + strlen(separator(s)));
    sl_split_call_certain(s);
    s->state = SL_SPLIT_LITERAL_ARGUMENTS;
    return true;
}

static bool arguments_step(struct sl_splitter *s) {
    static const struct sl_literal_dialect python = {'=', ')', NULL};
    const struct sl_answer_format *f = s->f;
    bool own = f->syntax == SL_CALL_LITERAL;
    const struct sl_literal_dialect d =
        own ? (struct sl_literal_dialect){f->key_close[0], f->function_close[0], f->quote} : python;
    size_t taken;
    if (s->n == 0)
        return false;
    sl_buf_clear(&s->fragment);
    enum sl_json_scan_result r = sl_literal_scan_put(&s->literal, &d, sl_split_text(s), s->n,
                                                     s->ended, &taken, &s->fragment);
    sl_split_take(s, taken);
    if (s->fragment.len)
        sl_split_call_arguments(s, s->fragment.ptr, s->fragment.len);
    if (r == SL_JSON_SCAN_BAD)
        return sl_split_call_fail(s);
    if (r == SL_JSON_SCAN_MORE)
        return false;
    sl_split_call_done(s);
    s->state = s->in_array ? SL_SPLIT_LITERAL_MORE : SL_SPLIT_LITERAL_CLOSE;
    return true;
}

static bool more_step(struct sl_splitter *s) {
    size_t at = sl_split_space(s, 0);
    if (at == s->n)
        return false;
    char c = sl_split_text(s)[at];
    if (c != ',' && c != ']')
        return sl_split_call_fail(s);
    s->state = SL_SPLIT_LITERAL_CLOSE;
    if (c == ',') {
        sl_split_call_next(s);
        s->state = SL_SPLIT_LITERAL_NAME;
    }
    sl_split_take(s, at + 1);
    return true;
}

bool sl_split_literal(struct sl_splitter *s) {
    switch (s->state) {
    case SL_SPLIT_LITERAL_OPEN:
        return open_step(s);
    case SL_SPLIT_LITERAL_NAME:
        return name_step(s);
    case SL_SPLIT_LITERAL_ARGUMENTS:
        return arguments_step(s);
    case SL_SPLIT_LITERAL_MORE:
        return more_step(s);
    default:
        return sl_split_close(s, sl_split_space(s, 0), s->f->call_close);
    }
}
