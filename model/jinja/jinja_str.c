/* The string operations that operators, filters and methods share. */
#include "common/utf8.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <string.h>

/* Of a search: how much is looked at before it is charged. */
enum { FIRST_PIECE = 1024, LAST_PIECE = 256 << 10 };

struct sl_jv sl_j_escape(struct sl_jrt *rt, struct sl_jv v) {
    const struct sl_jstr *s = sl_j_to_str(rt, v);
    struct sl_jout o = {0};
    if (s->markup)
        return sl_j_of_str(s);
    for (size_t i = 0; i < s->len; i++) {
        size_t at = o.len;
        char c = s->p[i];
        const char *to = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
        if (to)
            sl_j_puts(rt, &o, to);
        else
            sl_j_put_char(rt, &o, c);
        if (sl_j_is_own(s, s->p + i, 1))
            sl_j_own_add(rt, &o.own, at, o.len);
    }
    return sl_j_markup(rt, sl_j_out_str(rt, &o));
}

/* Appends in place when the left side ends where its buffer's text ends: a loop that adds to a text
 * costs its length, not the square of it. The left string does not change, it only shares. */
struct sl_jv sl_j_concat(struct sl_jrt *rt, struct sl_jv a, struct sl_jv b) {
    bool markup = a.s->markup || b.s->markup;
    if (markup) {
        a = sl_j_escape(rt, a);
        b = sl_j_escape(rt, b);
    }
    const struct sl_jstr *l = a.s, *r = b.s;
    if (!markup && (!l->len || !r->len))
        return l->len ? a : b;
    sl_j_charge_n(rt, r->len, SL_J_BYTE);
    struct sl_jbuf *buf = l->buf;
    if (!buf || l->p + l->len != buf->p + buf->used || r->len > buf->cap - buf->used) {
        size_t total = l->len + r->len;
        buf = sl_j_alloc(rt, sizeof *buf);
        *buf = (struct sl_jbuf){.cap = l->buf ? 2 * total : total + 48};
        buf->p = sl_j_alloc(rt, buf->cap); /* and is charged for the copy */
        buf->own.base = buf->p;
        memcpy(buf->p, l->p, l->len);
        sl_j_own_copy(rt, &buf->own, 0, l, l->p, l->len);
        buf->used = l->len;
    }
    memcpy(buf->p + buf->used, r->p, r->len);
    sl_j_own_copy(rt, &buf->own, buf->used, r, r->p, r->len);
    buf->used += r->len;
    struct sl_jstr *s = sl_j_alloc(rt, sizeof *s);
    *s = (struct sl_jstr){.p = buf->p + buf->used - l->len - r->len,
                          .len = l->len + r->len,
                          .chars = l->chars >= 0 && r->chars >= 0 ? l->chars + r->chars : -1,
                          .buf = buf,
                          .own = &buf->own,
                          .markup = markup};
    return sl_j_of_str(s);
}

size_t sl_j_count(struct sl_jrt *rt, const char *p, size_t len) {
    sl_j_charge_n(rt, len, SL_J_SCAN);
    return sl_j_utf8_count(p, len);
}

size_t sl_j_chars(struct sl_jrt *rt, const struct sl_jstr *s) {
    if (s->chars < 0) /* only strings of this rendering are not counted yet */
        ((struct sl_jstr *)s)->chars = (int64_t)sl_j_count(rt, s->p, s->len);
    return (size_t)s->chars;
}

static const char *char_at(struct sl_jrt *rt, const struct sl_jstr *s, size_t i) {
    const char *p = s->p, *end = p + s->len;
    uint32_t cp;
    if (sl_j_chars(rt, s) == s->len)
        return p + i;
    sl_j_charge_n(rt, i, 2 * SL_J_SCAN);
    for (; i > 0 && p < end; i--)
        p += sl_j_utf8_next(p, end, &cp);
    return p;
}

struct sl_jv sl_j_substr(struct sl_jrt *rt, const struct sl_jstr *s, size_t from, size_t to) {
    const char *a, *b;
    a = char_at(rt, s, from);
    b = from < to ? char_at(rt, s, to) : a;
    struct sl_jv r = sl_j_part(rt, s, a, (size_t)(b - a));
    if (from < to)
        ((struct sl_jstr *)r.s)->chars = (int64_t)(to - from);
    return r;
}

bool sl_j_str_eq(const struct sl_jstr *a, const struct sl_jstr *b) {
    return a->len == b->len && !memcmp(a->p, b->p, a->len);
}

bool sl_j_str_is(const struct sl_jstr *a, const char *b) {
    return a->len == strlen(b) && !memcmp(a->p, b, a->len);
}

const char *sl_j_find(struct sl_jrt *rt, const struct sl_jstr *s, const char *from,
                      const struct sl_jstr *needle) {
    const char *end = s->p + s->len;
    size_t m = needle->len, piece = FIRST_PIECE;
    if (!m)
        return from;
    /* Piece by piece, so that what is charged is what was searched. They overlap by what may be
     * the start of a hit, and are larger than that: the sum stays linear. */
    while (m <= (size_t)(end - from)) {
        size_t left = (size_t)(end - from), n = piece + m < left ? piece + m : left;
        const char *hit = memmem(from, n, needle->p, m);
        sl_j_charge_n(rt, hit ? (size_t)(hit - from) + m : n, SL_J_SCAN);
        if (hit || n == left)
            return hit;
        from += n - m + 1;
        piece = piece < LAST_PIECE ? 2 * piece : piece;
        piece = piece < m ? m : piece;
    }
    return NULL;
}

const char *sl_j_find_last(struct sl_jrt *rt, const char *begin, const char *end,
                           const struct sl_jstr *needle) {
    size_t m = needle->len;
    if (m > (size_t)(end - begin))
        return NULL;
    if (!m)
        return end;
    /* Where its last byte is, from the end on; each of these costs a comparison. A text in which
     * many of them nearly match is paid for by its author. */
    const char *first = begin + m - 1;
    while (end > first) {
        size_t left = (size_t)(end - first), n = left < LAST_PIECE ? left : LAST_PIECE;
        const char *from = end - n, *at = memrchr(from, needle->p[m - 1], n);
        sl_j_charge_n(rt, at ? (size_t)(end - at) : n, SL_J_SCAN);
        end = at ? at : from;
        if (!at)
            continue;
        sl_j_charge_n(rt, m, SL_J_BYTE);
        sl_j_charge(rt, SL_J_ITEM);
        if (!memcmp(at - (m - 1), needle->p, m - 1))
            return at - (m - 1);
    }
    return NULL;
}

/* Python lowers a capital sigma at the end of a word to the final form. */
static bool final_sigma(struct sl_jrt *rt, const struct sl_jstr *s, const char *at,
                        const char *after) {
    uint32_t cp;
    const char *p = at, *end = s->p + s->len;
    bool before = false;
    while (p > s->p) {
        p = sl_j_utf8_prev(s->p, p);
        sl_j_utf8_next(p, end, &cp);
        sl_j_charge(rt, SL_J_CHAR);
        if (sl_j_props(cp) & SL_J_CASE_IGNORABLE)
            continue;
        before = sl_j_props(cp) & SL_J_CASED;
        break;
    }
    for (p = after; before && p < end;) {
        p += sl_j_utf8_next(p, end, &cp);
        sl_j_charge(rt, SL_J_CHAR);
        if (sl_j_props(cp) & SL_J_CASE_IGNORABLE)
            continue;
        return !(sl_j_props(cp) & SL_J_CASED);
    }
    return before;
}

struct sl_jv sl_j_str_case(struct sl_jrt *rt, const struct sl_jstr *s, char kind) {
    struct sl_jout o = {0};
    bool in_word = false;
    sl_j_reserve(rt, &o, s->len);
    for (const char *p = s->p, *end = p + s->len; p < end;) {
        uint32_t cp, to[3] = {0};
        sl_j_charge(rt, SL_J_CHAR);
        unsigned n = sl_j_utf8_next(p, end, &cp), m;
        char k = kind;
        unsigned props = cp < 0x80 ? 0 : sl_j_props(cp);
        size_t at = o.len;
        if (kind == 'c')
            k = p == s->p ? 't' : 'l';
        else if (kind == 't') /* title case of every word */
            k = in_word ? 'l' : 't';
        else if (kind == 's') /* swapped */
            k = sl_j_props(cp) & SL_J_UPPER ? 'l' : sl_j_props(cp) & SL_J_LOWER ? 'u' : 0;
        if (cp < 0x80)
            in_word = (cp | 32) >= 'a' && (cp | 32) <= 'z';
        else
            in_word = props & SL_J_CASED;
        if (k && (cp < 0x80 || n > 1)) {
            m = sl_j_case(cp, k, to);
            if (k == 'l' && cp == 0x3a3)
                to[0] = final_sigma(rt, s, p, p + n) ? 0x3c2 : 0x3c3;
            for (unsigned i = 0; i < m; i++)
                sl_j_put_cp(rt, &o, to[i]);
        } else {
            sl_j_put(rt, &o, p, n);
        }
        if (sl_j_is_own(s, p, n))
            sl_j_own_add(rt, &o.own, at, o.len);
        p += n;
    }
    struct sl_jv r = sl_j_out_str(rt, &o);
    ((struct sl_jstr *)r.s)->markup = s->markup;
    return r;
}

static bool strips(const struct sl_jstr *chars, const char *p, unsigned n, uint32_t cp) {
    if (!chars)
        return sl_j_props(cp) & SL_J_SPACE;
    for (const char *q = chars->p, *end = q + chars->len; q < end;) {
        uint32_t c;
        unsigned k = sl_j_utf8_next(q, end, &c);
        if (k == n && !memcmp(p, q, n))
            return true;
        q += k;
    }
    return false;
}

struct sl_jv sl_j_strip(struct sl_jrt *rt, const struct sl_jstr *s, char side,
                        const struct sl_jstr *chars) {
    const char *p = s->p, *end = p + s->len;
    uint32_t cp;
    uint64_t each = SL_J_CHAR + (chars ? chars->len : 0) * 2 * SL_J_SCAN;
    while (side != 'r' && p < end) {
        unsigned n = sl_j_utf8_next(p, end, &cp);
        sl_j_charge(rt, each);
        if (!strips(chars, p, n, cp))
            break;
        p += n;
    }
    while (side != 'l' && p < end) {
        const char *q = sl_j_utf8_prev(p, end);
        unsigned n = sl_j_utf8_next(q, end, &cp);
        sl_j_charge(rt, each);
        if (!strips(chars, q, n, cp))
            break;
        end = q;
    }
    if ((size_t)(end - p) == s->len)
        return sl_j_of_str(s);
    struct sl_jv r = sl_j_part(rt, s, p, (size_t)(end - p));
    ((struct sl_jstr *)r.s)->markup = s->markup;
    return r;
}

struct sl_jv sl_j_replace(struct sl_jrt *rt, const struct sl_jstr *s, const struct sl_jstr *old,
                          const struct sl_jstr *new_, int64_t count) {
    struct sl_jout o = {0};
    const char *p = s->p, *end = p + s->len;
    if (count < 0)
        count = INT64_MAX;
    for (; count > 0; count--) {
        const char *hit = sl_j_find(rt, s, p, old);
        sl_j_charge(rt, SL_J_STEP);
        if (!hit)
            break;
        sl_j_put_part(rt, &o, s, p, (size_t)(hit - p));
        sl_j_put_all(rt, &o, new_);
        p = hit + old->len;
        if (!old->len) { /* between all characters, and at both ends */
            uint32_t cp;
            if (p == end)
                break;
            unsigned n = sl_j_utf8_next(p, end, &cp);
            sl_j_put_part(rt, &o, s, p, n);
            p += n;
        }
    }
    sl_j_put_part(rt, &o, s, p, (size_t)(end - p));
    struct sl_jv r = sl_j_out_str(rt, &o);
    ((struct sl_jstr *)r.s)->markup = s->markup;
    return r;
}

struct sl_jv sl_j_pad(struct sl_jrt *rt, const struct sl_jstr *s, int64_t width, char side,
                      const struct sl_jstr *fill) {
    int64_t n = (int64_t)sl_j_chars(rt, s), left = 0, right = 0;
    struct sl_jout o = {0};
    if (sl_j_chars(rt, fill) != 1)
        sl_j_fail(rt, "the fill character must be exactly one character long");
    if (width <= n)
        return sl_j_of_str(s);
    if (side == 'c')
        left = (width - n) / 2 + ((width - n) & width & 1);
    else if (side == 'r')
        left = width - n; /* the text to the right */
    right = width - n - left;
    if ((uint64_t)width > rt->limits.max_memory_bytes)
        sl_j_fail(rt, "a text of %lld characters passes the memory limit", (long long)width);
    sl_j_reserve(rt, &o, s->len + (size_t)(width - n) * fill->len);
    for (; left > 0; left--)
        sl_j_put_all(rt, &o, fill);
    sl_j_put_all(rt, &o, s);
    for (; right > 0; right--)
        sl_j_put_all(rt, &o, fill);
    return sl_j_out_str(rt, &o);
}
