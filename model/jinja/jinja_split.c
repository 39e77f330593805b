/* Strings cut into pieces. Source: Python's documentation of str. */
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

static struct sl_jv text(struct sl_jrt *rt, const struct sl_jstr *s, const char *from,
                         const char *to) {
    sl_j_charge(rt, SL_J_ITEM);
    return sl_j_part(rt, s, from, (size_t)(to - from));
}

static void reverse_list(struct sl_jrt *rt, struct sl_jlist *l) {
    sl_j_charge_n(rt, l->n, SL_J_ITEM);
    for (size_t i = 0; i < l->n / 2; i++) {
        struct sl_jv t = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = t;
    }
}

static bool space_at(struct sl_jrt *rt, const char *p, const char *end, unsigned *out_n) {
    uint32_t cp;
    sl_j_charge(rt, SL_J_CHAR / 2);
    *out_n = sl_j_utf8_next(p, end, &cp);
    return (cp < 0x80 || *out_n > 1) && (sl_j_props(cp) & SL_J_SPACE);
}

static struct sl_jv split_spaces(struct sl_jrt *rt, const struct sl_jstr *s, int64_t max) {
    struct sl_jv l = sl_j_list_new(rt, SL_J_LIST, 0);
    const char *p = s->p, *end = p + s->len;
    unsigned n;
    for (;;) {
        while (p < end && space_at(rt, p, end, &n))
            p += n;
        if (p == end)
            return l;
        const char *from = p;
        if (max-- == 0) {
            sl_j_list_push(rt, l.l, text(rt, s, p, end));
            return l;
        }
        while (p < end && !space_at(rt, p, end, &n))
            p += n;
        sl_j_list_push(rt, l.l, text(rt, s, from, p));
    }
}

static struct sl_jv rsplit_spaces(struct sl_jrt *rt, const struct sl_jstr *s, int64_t max) {
    struct sl_jv l = sl_j_list_new(rt, SL_J_LIST, 0);
    const char *end = s->p + s->len, *q;
    unsigned n;
    for (;;) {
        while (end > s->p && (q = sl_j_utf8_prev(s->p, end), space_at(rt, q, end, &n)))
            end = q;
        if (end == s->p)
            break;
        if (max-- == 0) {
            sl_j_list_push(rt, l.l, text(rt, s, s->p, end));
            break;
        }
        const char *to = end;
        while (end > s->p && (q = sl_j_utf8_prev(s->p, end), !space_at(rt, q, end, &n)))
            end = q;
        sl_j_list_push(rt, l.l, text(rt, s, end, to));
    }
    reverse_list(rt, l.l);
    return l;
}

struct sl_jv sl_j_split(struct sl_jrt *rt, const struct sl_jstr *s, const struct sl_jstr *sep,
                        int64_t max, bool right) {
    if (!sep)
        return right ? rsplit_spaces(rt, s, max) : split_spaces(rt, s, max);
    struct sl_jv l = sl_j_list_new(rt, SL_J_LIST, 0);
    const char *p = s->p, *end = p + s->len, *hit;
    if (!sep->len)
        sl_j_fail(rt, "empty separator");
    if (!right) {
        for (; max > 0 && (hit = sl_j_find(rt, s, p, sep)); max--) {
            sl_j_list_push(rt, l.l, text(rt, s, p, hit));
            p = hit + sep->len;
        }
        sl_j_list_push(rt, l.l, text(rt, s, p, end));
        return l;
    }
    for (; max > 0 && (hit = sl_j_find_last(rt, p, end, sep)); max--) {
        sl_j_list_push(rt, l.l, text(rt, s, hit + sep->len, end));
        end = hit;
    }
    sl_j_list_push(rt, l.l, text(rt, s, p, end));
    reverse_list(rt, l.l);
    return l;
}

struct sl_jv sl_j_splitlines(struct sl_jrt *rt, const struct sl_jstr *s, bool keep) {
    struct sl_jv l = sl_j_list_new(rt, SL_J_LIST, 0);
    const char *p = s->p, *end = p + s->len, *line = p;
    while (p < end) {
        uint32_t cp;
        const char *at = p;
        sl_j_charge(rt, 2 * SL_J_SCAN);
        p += sl_j_utf8_next(p, end, &cp);
        if (!(cp >= '\n' && cp <= '\r') && !(cp >= 0x1c && cp <= 0x1e) && cp != 0x85 &&
            cp != 0x2028 && cp != 0x2029)
            continue;
        if (cp == 0x85 && p - at == 1)
            continue; /* a stray byte, not U+0085 */
        if (cp == '\r' && p < end && *p == '\n')
            p++;
        sl_j_list_push(rt, l.l, text(rt, s, line, keep ? p : at));
        line = p;
    }
    if (line < end)
        sl_j_list_push(rt, l.l, text(rt, s, line, end));
    return l;
}

static struct sl_jv three(struct sl_jrt *rt, struct sl_jv a, struct sl_jv b, struct sl_jv c) {
    struct sl_jv t = sl_j_list_new(rt, SL_J_TUPLE, 3);
    sl_j_list_push(rt, t.l, a);
    sl_j_list_push(rt, t.l, b);
    sl_j_list_push(rt, t.l, c);
    return t;
}

struct sl_jv sl_j_partition(struct sl_jrt *rt, const struct sl_jstr *s, const struct sl_jstr *sep,
                            bool right) {
    const char *p = s->p, *end = p + s->len;
    struct sl_jv self = sl_j_of_str(s), empty = sl_j_cstr(rt, "");
    if (!sep->len)
        sl_j_fail(rt, "empty separator");
    const char *hit = right ? sl_j_find_last(rt, p, end, sep) : sl_j_find(rt, s, p, sep);
    if (!hit)
        return right ? three(rt, empty, empty, self) : three(rt, self, empty, empty);
    return three(rt, text(rt, s, p, hit), sl_j_of_str(sep), text(rt, s, hit + sep->len, end));
}
