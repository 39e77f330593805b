/* Text: builders, str() and repr(), and the string operations that filters and methods share. */
#include "common/utf8.h"
#include "model/jinja_ast.h"
#include "model/jinja_unicode.h"
#include "model/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct sl_jstr *sl_jc_str(struct sl_jc *c, const char *p, size_t len) {
    struct sl_jstr *s = sl_jc_alloc(c, sizeof *s);
    /* Counted now: a template's strings are shared by threads and must not change later. */
    *s = (struct sl_jstr){.p = p, .len = len, .chars = (int64_t)sl_j_utf8_count(p, len)};
    return s;
}

/* ---- builders ---- */

static void reserve(struct sl_jrt *rt, struct sl_jout *o, size_t more) {
    if (more <= o->cap - o->len)
        return;
    if (o->final &&
        (more > rt->limits.max_output_bytes || o->len > rt->limits.max_output_bytes - more))
        sl_j_limit(rt, "the rendered text is longer than the limit of %zu bytes",
                   rt->limits.max_output_bytes);
    size_t cap = o->cap ? 2 * o->cap : 64;
    if (more > SIZE_MAX / 4 || o->len > SIZE_MAX / 4)
        sl_j_limit(rt, "a text is too long");
    if (cap < o->len + more)
        cap = o->len + more;
    if (o->final) {
        char *p = realloc(o->p, cap + 1); /* + 1: the NUL at the end */
        if (!p)
            sl_j_no_memory(rt);
        o->p = p;
    } else {
        char *p = sl_j_alloc(rt, cap);
        if (o->len)
            memcpy(p, o->p, o->len);
        o->p = p;
    }
    o->cap = cap;
}

void sl_j_put(struct sl_jrt *rt, struct sl_jout *o, const char *p, size_t len) {
    if (!len)
        return;
    sl_j_work(rt, len >> 8);
    reserve(rt, o, len);
    if (o->final && o->len + len > rt->limits.max_output_bytes)
        sl_j_limit(rt, "the rendered text is longer than the limit of %zu bytes",
                   rt->limits.max_output_bytes);
    memcpy(o->p + o->len, p, len);
    o->len += len;
}

void sl_j_put_char(struct sl_jrt *rt, struct sl_jout *o, char c) {
    sl_j_put(rt, o, &c, 1);
}

void sl_j_put_cp(struct sl_jrt *rt, struct sl_jout *o, uint32_t cp) {
    char buf[4];
    sl_j_put(rt, o, buf, sl_utf8_put(cp, buf));
}

void sl_j_puts(struct sl_jrt *rt, struct sl_jout *o, const char *s) {
    sl_j_put(rt, o, s, strlen(s));
}

struct sl_jv sl_j_out_str(struct sl_jrt *rt, struct sl_jout *o) {
    return sl_j_str(rt, o->p ? o->p : "", o->len);
}

/* ---- numbers ---- */

/* The shortest digits that read back as f, nearest to it among those: Python's repr. */
static void shortest(double f, char digits[24], int *out_exp) {
    char buf[40];
    int frexp_exp;
    bool power_of_two = fabs(frexp(f, &frexp_exp)) == 0.5;
    for (int p = 1; p <= 17; p++) {
        snprintf(buf, sizeof buf, "%.*e", p - 1, f);
        bool good = strtod(buf, NULL) == f;
        if (!good && power_of_two && p > 1) {
            /* Below a power of two the doubles are closer: the next decimal above may do. */
            char *last = strchr(buf, 'e') - 1;
            if (*last < '9') {
                ++*last;
                good = strtod(buf, NULL) == f;
            }
        }
        if (good || p == 17)
            break;
    }
    char *e = strchr(buf, 'e');
    *out_exp = atoi(e + 1);
    size_t n = 0;
    for (const char *q = buf; q < e; q++)
        if (*q >= '0' && *q <= '9')
            digits[n++] = *q;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
}

void sl_j_put_float(struct sl_jrt *rt, struct sl_jout *o, double f) {
    char digits[24];
    int exp;
    if (f != f) {
        sl_j_puts(rt, o, "nan");
        return;
    }
    if (signbit(f))
        sl_j_put_char(rt, o, '-');
    f = fabs(f);
    if (isinf(f)) {
        sl_j_puts(rt, o, "inf");
        return;
    }
    if (f == 0) {
        sl_j_puts(rt, o, "0.0");
        return;
    }
    shortest(f, digits, &exp);
    int n = (int)strlen(digits);
    if (exp < -4 || exp >= 16) {
        char buf[16];
        sl_j_put(rt, o, digits, 1);
        if (n > 1) {
            sl_j_put_char(rt, o, '.');
            sl_j_puts(rt, o, digits + 1);
        }
        snprintf(buf, sizeof buf, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
        sl_j_puts(rt, o, buf);
        return;
    }
    if (exp < 0) {
        sl_j_puts(rt, o, "0.");
        for (int i = -1; i > exp; i--)
            sl_j_put_char(rt, o, '0');
        sl_j_puts(rt, o, digits);
        return;
    }
    for (int i = 0; i <= exp || i < n; i++) {
        if (i == exp + 1)
            sl_j_put_char(rt, o, '.');
        sl_j_put_char(rt, o, i < n ? digits[i] : '0');
    }
    if (n <= exp + 1)
        sl_j_puts(rt, o, ".0");
}

bool sl_j_parse_int(const struct sl_jstr *s, int base, int64_t *out, bool *out_overflow) {
    const char *p = s->p, *end = p + s->len;
    uint32_t cp;
    *out_overflow = false;
    while (p < end) { /* white space around is allowed */
        unsigned n = sl_j_utf8_next(p, end, &cp);
        if (!(sl_j_props(cp) & SL_J_SPACE))
            break;
        p += n;
    }
    while (p < end) {
        const char *q = sl_j_utf8_prev(p, end);
        sl_j_utf8_next(q, end, &cp);
        if (!(sl_j_props(cp) & SL_J_SPACE))
            break;
        end = q;
    }
    bool neg = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    if (end - p > 2 && *p == '0') {
        char k = (char)(p[1] | 32);
        int prefix = k == 'x' ? 16 : k == 'o' ? 8 : k == 'b' ? 2 : 0;
        if (prefix && (base == prefix || base == 0)) {
            base = prefix;
            p += 2;
            if (*p == '_')
                p++;
        }
    }
    if (base == 0) { /* as in source: no leading zeros */
        base = 10;
        if (end - p > 1 && *p == '0')
            for (const char *q = p; q < end; q++)
                if (*q != '0' && *q != '_')
                    return false;
    }
    if (base < 2 || base > 36 || p >= end)
        return false;
    uint64_t v = 0, limit = (uint64_t)INT64_MAX + neg;
    bool digit_before = false;
    while (p < end) {
        unsigned n = sl_j_utf8_next(p, end, &cp);
        if (cp == '_' && digit_before && p + 1 < end) {
            digit_before = false;
            p++;
            continue;
        }
        int d = sl_j_decimal(cp);
        if (d < 0 && ((cp | 32) >= 'a' && (cp | 32) <= 'z'))
            d = (int)((cp | 32) - 'a' + 10);
        if (d < 0 || d >= base)
            return false;
        if (v > (limit - (uint64_t)d) / (uint64_t)base)
            *out_overflow = true;
        else
            v = v * (uint64_t)base + (uint64_t)d;
        digit_before = true;
        p += n;
    }
    *out = neg ? (int64_t)(0 - v) : (int64_t)v;
    return digit_before;
}

bool sl_j_parse_float(struct sl_jrt *rt, const struct sl_jstr *s, double *out) {
    static const char *const word[] = {"inf", "infinity", "nan"};
    const struct sl_jstr *t = sl_j_strip(rt, s, 'b', NULL).s;
    if (!t->len || t->len > 4096)
        return false;
    char *buf = sl_j_alloc(rt, t->len + 1), *end;
    size_t n = 0;
    uint32_t cp;
    for (const char *p = t->p, *e = p + t->len; p < e;) {
        unsigned k = sl_j_utf8_next(p, e, &cp);
        int d = sl_j_decimal(cp);
        if (cp == '_') { /* only between digits */
            if (p == t->p || p + 1 == e || p[-1] < '0' || p[-1] > '9' || p[1] < '0' || p[1] > '9')
                return false;
        } else if (d >= 0) {
            buf[n++] = (char)('0' + d);
        } else if (cp < 0x80) {
            buf[n++] = (char)cp;
        } else {
            return false;
        }
        p += k;
    }
    buf[n] = 0;
    const char *body = buf + (*buf == '-' || *buf == '+');
    for (int i = 0; i < 3; i++)
        if (!strcasecmp(body, word[i])) {
            *out = i == 2 ? NAN : *buf == '-' ? -INFINITY : INFINITY;
            return true;
        }
    for (const char *p = body; *p; p++) /* no hexadecimal, which strtod would take */
        if (!strchr("0123456789.eE+-", *p))
            return false;
    *out = strtod(buf, &end);
    return *end == 0 && n > 0 && strpbrk(buf, "0123456789");
}

/* ---- str() and repr() ---- */

void sl_j_put_str_repr(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s, bool ascii) {
    char quote = memchr(s->p, '\'', s->len) && !memchr(s->p, '"', s->len) ? '"' : '\'', buf[12];
    sl_j_put_char(rt, o, quote);
    sl_j_work(rt, s->len >> 2);
    for (const char *p = s->p, *end = p + s->len; p < end;) {
        uint32_t cp;
        unsigned n = sl_j_utf8_next(p, end, &cp);
        if (cp == (uint32_t)quote || cp == '\\') {
            buf[0] = '\\';
            buf[1] = (char)cp;
            sl_j_put(rt, o, buf, 2);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            sl_j_puts(rt, o, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        } else if (cp >= ' ' && cp < 127) {
            sl_j_put(rt, o, p, 1);
        } else if (cp >= 127 && !ascii && (sl_j_props(cp) & SL_J_PRINTABLE)) {
            sl_j_put(rt, o, p, n);
        } else {
            snprintf(buf, sizeof buf,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
            sl_j_puts(rt, o, buf);
        }
        p += n;
    }
    sl_j_put_char(rt, o, quote);
}

bool sl_j_open(struct sl_jrt *rt, struct sl_jopen *o, const void *p) {
    uint64_t n = 0;
    for (const struct sl_jopen *q = rt->open; q; q = q->up, n++)
        if (q->p == p)
            return false;
    sl_j_work(rt, n >> 4);
    *o = (struct sl_jopen){p, rt->open};
    rt->open = o;
    return true;
}

void sl_j_close(struct sl_jrt *rt) {
    rt->open = rt->open->up;
}

static void put_items(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jlist *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            sl_j_puts(rt, o, ", ");
        sl_j_put_repr(rt, o, l->v[i]);
    }
}

static void put_dict(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jdict *d) {
    sl_j_put_char(rt, o, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            sl_j_puts(rt, o, ", ");
        sl_j_put_repr(rt, o, d->e[i].key);
        sl_j_puts(rt, o, ": ");
        sl_j_put_repr(rt, o, d->e[i].val);
    }
    sl_j_put_char(rt, o, '}');
}

static void put_view(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jview *v) {
    struct sl_jopen open;
    if (!sl_j_open(rt, &open, v)) {
        sl_j_puts(rt, o, "...");
        return;
    }
    sl_j_puts(rt, o,
              v->what == 'k'   ? "dict_keys(["
              : v->what == 'v' ? "dict_values(["
                               : "dict_items([");
    for (size_t i = 0; i < v->d->n; i++) {
        const struct sl_jentry *e = &v->d->e[i];
        if (i)
            sl_j_puts(rt, o, ", ");
        sl_j_put_repr(rt, o,
                      v->what == 'k'   ? e->key
                      : v->what == 'v' ? e->val
                                       : sl_j_pair(rt, e->key, e->val));
    }
    sl_j_puts(rt, o, "])");
    sl_j_close(rt);
}

static void put_range(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jrange *r) {
    char buf[80];
    snprintf(buf, sizeof buf, r->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
             (long long)r->start, (long long)r->stop, (long long)r->step);
    sl_j_puts(rt, o, buf);
}

/* One that contains itself is written as dots inside of itself. */
static void put_container(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v) {
    bool is_list = v.type == SL_J_LIST || v.type == SL_J_TUPLE;
    struct sl_jopen open;
    if (v.type == SL_J_NS)
        sl_j_puts(rt, o, "<Namespace ");
    if (!sl_j_open(rt, &open, is_list ? (const void *)v.l : v.d)) {
        sl_j_puts(rt, o, v.type == SL_J_LIST ? "[...]" : is_list ? "(...)" : "{...}");
    } else if (is_list) {
        sl_j_put_char(rt, o, v.type == SL_J_LIST ? '[' : '(');
        put_items(rt, o, v.l);
        sl_j_puts(rt, o, v.type == SL_J_LIST ? "]" : v.l->n == 1 ? ",)" : ")");
        sl_j_close(rt);
    } else {
        put_dict(rt, o, v.d);
        sl_j_close(rt);
    }
    if (v.type == SL_J_NS)
        sl_j_put_char(rt, o, '>');
}

void sl_j_put_repr(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v) {
    char buf[64];
    sl_j_work(rt, 1);
    sl_j_deeper(rt);
    switch (v.type) {
    case SL_J_MISSING:
    case SL_J_UNDEF:
        sl_j_puts(rt, o, "Undefined");
        break;
    case SL_J_NONE:
        sl_j_puts(rt, o, "None");
        break;
    case SL_J_BOOL:
        sl_j_puts(rt, o, v.b ? "True" : "False");
        break;
    case SL_J_INT:
        snprintf(buf, sizeof buf, "%lld", (long long)v.i);
        sl_j_puts(rt, o, buf);
        break;
    case SL_J_FLOAT:
        sl_j_put_float(rt, o, v.f);
        break;
    case SL_J_STR:
        if (v.s->markup)
            sl_j_puts(rt, o, "Markup(");
        sl_j_put_str_repr(rt, o, v.s, false);
        if (v.s->markup)
            sl_j_put_char(rt, o, ')');
        break;
    case SL_J_LIST:
    case SL_J_TUPLE:
    case SL_J_DICT:
    case SL_J_NS:
        put_container(rt, o, v);
        break;
    case SL_J_RANGE:
        put_range(rt, o, v.r);
        break;
    case SL_J_VIEW:
        put_view(rt, o, v.view);
        break;
    case SL_J_LOOP:
        snprintf(buf, sizeof buf, "<LoopContext %lld/%lld>", (long long)v.loop->index0 + 1,
                 (long long)sl_j_loop_length(rt, v.loop));
        sl_j_puts(rt, o, buf);
        break;
    case SL_J_MACRO:
        sl_j_puts(rt, o, "<Macro ");
        if (v.m->node->name)
            sl_j_put_str_repr(rt, o, v.m->node->name, false);
        else
            sl_j_puts(rt, o, "anonymous");
        sl_j_put_char(rt, o, '>');
        break;
    default: /* Python prints an address here */
        sl_j_put_char(rt, o, '<');
        sl_j_puts(rt, o, sl_j_type_name(v));
        sl_j_puts(rt, o, " object>");
        break;
    }
    rt->depth--;
}

void sl_j_put_str(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v) {
    if (v.type == SL_J_STR)
        sl_j_put(rt, o, v.s->p, v.s->len);
    else if (v.type != SL_J_UNDEF)
        sl_j_put_repr(rt, o, v);
}

const struct sl_jstr *sl_j_to_str(struct sl_jrt *rt, struct sl_jv v) {
    if (v.type == SL_J_STR)
        return v.s;
    struct sl_jout o = {0};
    sl_j_put_str(rt, &o, v);
    return sl_j_out_str(rt, &o).s;
}

/* ---- string operations ---- */

struct sl_jv sl_j_escape(struct sl_jrt *rt, struct sl_jv v) {
    const struct sl_jstr *s = sl_j_to_str(rt, v);
    struct sl_jout o = {0};
    if (s->markup)
        return sl_j_of_str(s);
    sl_j_work(rt, s->len >> 2);
    for (size_t i = 0; i < s->len; i++) {
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
    sl_j_work(rt, r->len >> 8);
    struct sl_jbuf *buf = l->buf;
    if (!buf || l->p + l->len != buf->p + buf->used || r->len > buf->cap - buf->used) {
        sl_j_work(rt, l->len >> 8);
        size_t total = l->len + r->len;
        buf = sl_j_alloc(rt, sizeof *buf);
        *buf = (struct sl_jbuf){.cap = l->buf ? 2 * total : total + 48};
        buf->p = sl_j_alloc(rt, buf->cap);
        memcpy(buf->p, l->p, l->len);
        buf->used = l->len;
    }
    memcpy(buf->p + buf->used, r->p, r->len);
    buf->used += r->len;
    struct sl_jstr *s = sl_j_alloc(rt, sizeof *s);
    *s = (struct sl_jstr){.p = buf->p + buf->used - l->len - r->len,
                          .len = l->len + r->len,
                          .chars = l->chars >= 0 && r->chars >= 0 ? l->chars + r->chars : -1,
                          .buf = buf,
                          .markup = markup};
    return sl_j_of_str(s);
}

size_t sl_j_chars(const struct sl_jstr *s) {
    if (s->chars < 0) /* only strings of this rendering are not counted yet */
        ((struct sl_jstr *)s)->chars = (int64_t)sl_j_utf8_count(s->p, s->len);
    return (size_t)s->chars;
}

static const char *char_at(const struct sl_jstr *s, size_t i) {
    const char *p = s->p, *end = p + s->len;
    uint32_t cp;
    if (sl_j_chars(s) == s->len)
        return p + i;
    for (; i > 0 && p < end; i--)
        p += sl_j_utf8_next(p, end, &cp);
    return p;
}

struct sl_jv sl_j_substr(struct sl_jrt *rt, const struct sl_jstr *s, size_t from, size_t to) {
    const char *a, *b;
    sl_j_work(rt, sl_j_chars(s) == s->len ? 1 : s->len >> 4);
    a = char_at(s, from);
    b = from < to ? char_at(s, to) : a;
    struct sl_jv r = sl_j_str(rt, a, (size_t)(b - a));
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
    if (needle->len > (size_t)(end - from))
        return NULL;
    if (!needle->len)
        return from;
    const char *hit = memmem(from, (size_t)(end - from), needle->p, needle->len);
    sl_j_work(rt, (uint64_t)((hit ? hit : end) - from) >> 6);
    return hit;
}

/* Python lowers a capital sigma at the end of a word to the final form. */
static bool final_sigma(const struct sl_jstr *s, const char *at, const char *after) {
    uint32_t cp;
    const char *p = at, *end = s->p + s->len;
    bool before = false;
    while (p > s->p) {
        p = sl_j_utf8_prev(s->p, p);
        sl_j_utf8_next(p, end, &cp);
        if (sl_j_props(cp) & SL_J_CASE_IGNORABLE)
            continue;
        before = sl_j_props(cp) & SL_J_CASED;
        break;
    }
    for (p = after; before && p < end;) {
        p += sl_j_utf8_next(p, end, &cp);
        if (sl_j_props(cp) & SL_J_CASE_IGNORABLE)
            continue;
        return !(sl_j_props(cp) & SL_J_CASED);
    }
    return before;
}

struct sl_jv sl_j_str_case(struct sl_jrt *rt, const struct sl_jstr *s, char kind) {
    struct sl_jout o = {0};
    bool in_word = false;
    sl_j_work(rt, s->len >> 2);
    reserve(rt, &o, s->len);
    for (const char *p = s->p, *end = p + s->len; p < end;) {
        uint32_t cp, to[3] = {0};
        unsigned n = sl_j_utf8_next(p, end, &cp), m;
        char k = kind;
        unsigned props = cp < 0x80 ? 0 : sl_j_props(cp);
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
                to[0] = final_sigma(s, p, p + n) ? 0x3c2 : 0x3c3;
            for (unsigned i = 0; i < m; i++)
                sl_j_put_cp(rt, &o, to[i]);
        } else {
            sl_j_put(rt, &o, p, n);
        }
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
    uint64_t each = 1 + (chars ? chars->len >> 4 : 0);
    while (side != 'r' && p < end) {
        unsigned n = sl_j_utf8_next(p, end, &cp);
        if (!strips(chars, p, n, cp))
            break;
        sl_j_work(rt, each);
        p += n;
    }
    while (side != 'l' && p < end) {
        const char *q = sl_j_utf8_prev(p, end);
        unsigned n = sl_j_utf8_next(q, end, &cp);
        if (!strips(chars, q, n, cp))
            break;
        sl_j_work(rt, each);
        end = q;
    }
    if ((size_t)(end - p) == s->len)
        return sl_j_of_str(s);
    struct sl_jv r = sl_j_str(rt, p, (size_t)(end - p));
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
        sl_j_work(rt, 1);
        if (!hit)
            break;
        sl_j_put(rt, &o, p, (size_t)(hit - p));
        sl_j_put(rt, &o, new_->p, new_->len);
        p = hit + old->len;
        if (!old->len) { /* between all characters, and at both ends */
            uint32_t cp;
            if (p == end)
                break;
            unsigned n = sl_j_utf8_next(p, end, &cp);
            sl_j_put(rt, &o, p, n);
            p += n;
        }
    }
    sl_j_put(rt, &o, p, (size_t)(end - p));
    struct sl_jv r = sl_j_out_str(rt, &o);
    ((struct sl_jstr *)r.s)->markup = s->markup;
    return r;
}

struct sl_jv sl_j_splitlines(struct sl_jrt *rt, const struct sl_jstr *s, bool keep) {
    struct sl_jv l = sl_j_list_new(rt, SL_J_LIST, 0);
    const char *p = s->p, *end = p + s->len, *line = p;
    sl_j_work(rt, s->len >> 4);
    while (p < end) {
        uint32_t cp;
        const char *at = p;
        p += sl_j_utf8_next(p, end, &cp);
        if (!(cp >= '\n' && cp <= '\r') && !(cp >= 0x1c && cp <= 0x1e) && cp != 0x85 &&
            cp != 0x2028 && cp != 0x2029)
            continue;
        if (cp == 0x85 && p - at == 1)
            continue; /* a stray byte, not U+0085 */
        if (cp == '\r' && p < end && *p == '\n')
            p++;
        sl_j_list_push(rt, l.l, sl_j_str(rt, line, (size_t)((keep ? p : at) - line)));
        sl_j_work(rt, 1);
        line = p;
    }
    if (line < end)
        sl_j_list_push(rt, l.l, sl_j_str(rt, line, (size_t)(end - line)));
    return l;
}

struct sl_jv sl_j_pad(struct sl_jrt *rt, const struct sl_jstr *s, int64_t width, char side,
                      const struct sl_jstr *fill) {
    int64_t n = (int64_t)sl_j_chars(s), left = 0, right = 0;
    struct sl_jout o = {0};
    if (sl_j_chars(fill) != 1)
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
    reserve(rt, &o, s->len + (size_t)(width - n) * fill->len);
    for (; left > 0; left--)
        sl_j_put(rt, &o, fill->p, fill->len);
    sl_j_put(rt, &o, s->p, s->len);
    for (; right > 0; right--)
        sl_j_put(rt, &o, fill->p, fill->len);
    return sl_j_out_str(rt, &o);
}
