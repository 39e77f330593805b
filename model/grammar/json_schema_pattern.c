#include "model/grammar/json_schema_internal.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 256u
#define MAX_GROUPS 40u
#define MAX_BYTES  (64u << 10) /* of a pattern */
#define FOREVER    SL_SCHEMA_NO_MAX

struct set {
    struct {
        uint32_t lo, hi;
    } r[MAX_RANGES];
    uint32_t n;
};

struct regex {
    const char *p, *end;
    struct sl_buf *b;
    uint32_t groups;
    struct sl_err *err;
};

/* Lengths of what a part matches, in characters. */
struct span {
    uint32_t least, most;
};

static enum sl_status alternatives(struct regex *x, struct span *out);

static enum sl_status bad(struct regex *x, const char *what) {
    return sl_fail(x->err, SL_ERR_INVALID, "pattern: %s, at '%.20s'", what, x->p);
}

static uint32_t add(uint32_t a, uint32_t b) {
    return a == FOREVER || b == FOREVER || a + b > 1u << 24 ? FOREVER : a + b;
}
static uint32_t times(uint32_t a, uint32_t b) {
    if (a == 0 || b == 0)
        return 0;
    return a == FOREVER || b == FOREVER || (uint64_t)a * b > 1u << 24 ? FOREVER : a * b;
}

static bool put_range(struct set *s, uint32_t lo, uint32_t hi) {
    if (s->n == MAX_RANGES)
        return false;
    s->r[s->n].lo = lo;
    s->r[s->n++].hi = hi;
    return true;
}

static int by_lo(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool complement(struct set *s) {
    struct set out = {.n = 0};
    uint32_t from = 0;
    qsort(s->r, s->n, sizeof *s->r, by_lo);
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->r[i].lo > from && !put_range(&out, from, s->r[i].lo - 1))
            return false;
        if (s->r[i].hi + 1 > from)
            from = s->r[i].hi + 1;
    }
    if (from <= 0x10ffff && !put_range(&out, from, 0x10ffff))
        return false;
    *s = out;
    return true;
}

static bool in_set(const struct set *s, uint32_t cp) {
    for (uint32_t i = 0; i < s->n; i++)
        if (s->r[i].lo <= cp && cp <= s->r[i].hi)
            return true;
    return false;
}

/* The set's characters as JSON writes them in a string: as they are, the quotation mark, backslash
 * and control characters escaped. Of control characters in a set that has others, only the usual
 * ones. */
static bool put_set(struct sl_buf *b, const struct set *s) {
    static const struct {
        uint32_t lo, hi;
    } raw[] = {{0x20, 0x21}, {0x23, 0x5b}, {0x5d, 0xd7ff}, {0xe000, 0x10ffff}};
    static const struct {
        uint32_t cp;
        const char *literal;
    } escaped[] = {{'"', "\\\\\\\""}, {'\\', "\\\\\\\\"}, {'\n', "\\\\n"}, {'\t', "\\\\t"},
                   {'\r', "\\\\r"},   {'\b', "\\\\b"},    {'\f', "\\\\f"}};
    bool any = false;
    sl_buf_puts(b, "(");
    for (uint32_t i = 0; i < s->n; i++)
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t lo = s->r[i].lo > raw[k].lo ? s->r[i].lo : raw[k].lo;
            uint32_t hi = s->r[i].hi < raw[k].hi ? s->r[i].hi : raw[k].hi;
            if (lo > hi)
                continue;
            if (!any)
                sl_buf_puts(b, " [");
            any = true;
            sl_buf_printf(b, "\\U%08X-\\U%08X", lo, hi);
        }
    if (any)
        sl_buf_puts(b, "]");
    for (uint32_t i = 0; i < sizeof escaped / sizeof *escaped; i++)
        if (in_set(s, escaped[i].cp)) {
            sl_buf_printf(b, "%s \"%s\"", any ? " |" : "", escaped[i].literal);
            any = true;
        }
    for (uint32_t cp = 1; !any && cp < 0x20; cp++)
        if (in_set(s, cp)) {
            sl_buf_printf(b, " \"\\\\u%04x\"", cp);
            any = true;
        }
    sl_buf_puts(b, " )");
    return any;
}

static bool class_escape(char c, struct set *s) {
    struct set t = {.n = 0};
    switch (c | 0x20) {
    case 'd':
        put_range(&t, '0', '9');
        break;
    case 'w':
        put_range(&t, '0', '9');
        put_range(&t, 'A', 'Z');
        put_range(&t, '_', '_');
        put_range(&t, 'a', 'z');
        break;
    case 's': {
        static const uint32_t space[][2] = {{9, 13},          {0x20, 0x20},     {0xa0, 0xa0},
                                            {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
                                            {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
                                            {0xfeff, 0xfeff}};
        for (uint32_t i = 0; i < sizeof space / sizeof *space; i++)
            put_range(&t, space[i][0], space[i][1]);
        break;
    }
    default:
        return false;
    }
    if (c < 'a')
        complement(&t);
    for (uint32_t i = 0; i < t.n; i++)
        if (!put_range(s, t.r[i].lo, t.r[i].hi))
            return false;
    return true;
}

static bool hex(struct regex *x, uint32_t n, uint32_t *out) {
    *out = 0;
    for (uint32_t i = 0; i < n; i++, x->p++) {
        char c = *x->p;
        uint32_t v = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                     : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                     : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                            : 16;
        if (v == 16)
            return false;
        *out = *out << 4 | v;
    }
    return true;
}

/* Behind a backslash: one character. */
static enum sl_status escape(struct regex *x, uint32_t *out) {
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
    char c = *x->p;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        x->p++;
        if (c == '0' && *x->p >= '0' && *x->p <= '9')
            return bad(x, "an octal escape is not supported");
        *out = c == '0' ? 0 : (uint32_t)to[at - from];
        return SL_OK;
    }
    if (c == 'x' || c == 'u') {
        x->p++;
        if (c == 'u' && *x->p == '{') {
            x->p++;
            *out = 0;
            uint32_t digit;
            while (*x->p != '}')
                if (!hex(x, 1, &digit) || (*out = *out << 4 | digit) > 0x10ffff)
                    return bad(x, "\\u{...} needs a code point");
            x->p++;
            return SL_OK;
        }
        if (!hex(x, c == 'x' ? 2 : 4, out))
            return bad(x, "an escape needs hexadecimal digits");
        uint32_t low;
        if (*out >= 0xd800 && *out <= 0xdbff && x->p[0] == '\\' && x->p[1] == 'u') {
            x->p += 2;
            if (!hex(x, 4, &low) || low < 0xdc00 || low > 0xdfff)
                return bad(x, "half of a surrogate pair");
            *out = 0x10000 + ((*out - 0xd800) << 10) + (low - 0xdc00);
        }
        return SL_OK;
    }
    if (c > 0 && strchr("^$\\.*+?()[]{}|/-\"'#@&%,:;=!<>~` _", c)) {
        x->p++;
        *out = (uint32_t)c;
        return SL_OK;
    }
    x->p--;
    return bad(x, "this escape is not supported");
}

static enum sl_status one_char(struct regex *x, uint32_t *out) {
    uint32_t n = sl_utf8_len((const unsigned char *)x->p, (size_t)(x->end - x->p) + 1);
    if (!n)
        return bad(x, "not UTF-8");
    *out = sl_utf8_get((const unsigned char *)x->p, n);
    x->p += n;
    return SL_OK;
}

static enum sl_status char_class(struct regex *x, struct set *s) {
    enum sl_status status = SL_OK;
    bool negate = *x->p == '^';
    x->p += negate;
    while (*x->p != ']') {
        uint32_t lo = 0, hi;
        if (!*x->p)
            return bad(x, "a class has no ']'");
        if (*x->p == '\\') {
            x->p++;
            if (*x->p && strchr("dwsDWS", *x->p)) {
                if (!class_escape(*x->p, s))
                    return bad(x, "a class has too many ranges");
                x->p++;
                continue;
            }
            if (*x->p == 'b') {
                lo = '\b';
                x->p++;
            } else {
                status = escape(x, &lo);
            }
        } else {
            status = one_char(x, &lo);
        }
        hi = lo;
        if (status == SL_OK && x->p[0] == '-' && x->p[1] != ']' && x->p[1]) {
            x->p++;
            if (*x->p == '\\') {
                x->p++;
                status = escape(x, &hi);
            } else {
                status = one_char(x, &hi);
            }
        }
        if (status != SL_OK)
            return status;
        if (hi < lo)
            return bad(x, "a range in a class ends before it begins");
        if (!put_range(s, lo, hi))
            return bad(x, "a class has too many ranges");
    }
    x->p++;
    if (negate && !complement(s))
        return bad(x, "a class has too many ranges");
    return SL_OK;
}

static enum sl_status quantifier(struct regex *x, struct span *span) {
    uint32_t least = 1, most = 1;
    switch (*x->p) {
    case '*':
        least = 0;
        most = FOREVER;
        break;
    case '+':
        most = FOREVER;
        break;
    case '?':
        least = 0;
        break;
    case '{': {
        char *end;
        if (x->p[1] < '0' || x->p[1] > '9')
            return bad(x, "{ must be escaped or begin {m,n}");
        unsigned long v = strtoul(x->p + 1, &end, 10);
        least = v > SL_SCHEMA_MAX_COUNT ? FOREVER : (uint32_t)v;
        most = least;
        if (*end == ',') {
            end++;
            most = FOREVER;
            if (*end >= '0' && *end <= '9') {
                v = strtoul(end, &end, 10);
                most = v > SL_SCHEMA_MAX_COUNT ? SL_SCHEMA_MAX_COUNT : (uint32_t)v;
            }
        }
        if (*end != '}' || least == FOREVER || most < least)
            return bad(x, "this repetition cannot be had");
        x->p = end;
        break;
    }
    default:
        return SL_OK;
    }
    x->p++;
    if (*x->p == '?') /* lazy: the same strings */
        x->p++;
    if (*x->p && strchr("*+?{", *x->p))
        return bad(x, "nothing to repeat");
    sl_buf_printf(x->b, "{%u,", least);
    if (most != FOREVER)
        sl_buf_printf(x->b, "%u", most);
    sl_buf_puts(x->b, "}");
    *span = (struct span){times(span->least, least), times(span->most, most)};
    return SL_OK;
}

/* Behind the opening parenthesis. */
static enum sl_status group(struct regex *x, struct span *out) {
    if (*x->p == '?') {
        if (x->p[1] != ':')
            return bad(x, "of the groups with (? only (?: is supported");
        x->p += 2;
    }
    if (++x->groups > MAX_GROUPS)
        return bad(x, "groups are nested too deep");
    sl_buf_puts(x->b, "(");
    enum sl_status status = alternatives(x, out);
    if (status != SL_OK)
        return status;
    if (*x->p != ')')
        return bad(x, *x->p ? "^ and $ are supported at the ends only" : "a ')' is missing");
    x->p++;
    x->groups--;
    sl_buf_puts(x->b, " )");
    return SL_OK;
}

static enum sl_status atom(struct regex *x, struct span *out) {
    enum sl_status status = SL_OK;
    struct set s = {.n = 0};
    uint32_t cp;
    *out = (struct span){1, 1};
    sl_buf_puts(x->b, " ");
    switch (*x->p) {
    case '(':
        x->p++;
        return group(x, out);
    case '[':
        x->p++;
        status = char_class(x, &s);
        break;
    case '.':
        x->p++;
        put_range(&s, '\n', '\n');
        put_range(&s, '\r', '\r');
        put_range(&s, 0x2028, 0x2029);
        complement(&s);
        break;
    case '\\':
        x->p++;
        if (*x->p && strchr("dwsDWS", *x->p)) {
            class_escape(*x->p, &s);
            x->p++;
            break;
        }
        status = escape(x, &cp);
        if (status == SL_OK)
            put_range(&s, cp, cp);
        break;
    case '*':
    case '+':
    case '?':
    case '{':
    case '}':
    case ']':
        return bad(x, "this character must be escaped here");
    default:
        status = one_char(x, &cp);
        if (status == SL_OK)
            put_range(&s, cp, cp);
    }
    if (status != SL_OK)
        return status;
    return put_set(x->b, &s) ? SL_OK : bad(x, "a class matches nothing");
}

/* Up to an anchor, alternative, closing parenthesis or the end. */
static enum sl_status sequence(struct regex *x, struct span *out) {
    *out = (struct span){0, 0};
    sl_buf_puts(x->b, " \"\"");
    while (*x->p && !strchr("|)^$", *x->p)) {
        struct span part;
        enum sl_status status = atom(x, &part);
        if (status == SL_OK)
            status = quantifier(x, &part);
        if (status == SL_OK && x->b->len > SL_SCHEMA_MAX_TEXT)
            status = bad(x, "its grammar is longer than 4 MiB here");
        if (status != SL_OK)
            return status;
        *out = (struct span){add(out->least, part.least), add(out->most, part.most)};
    }
    return SL_OK;
}

static void widen(struct span *a, const struct span *b) {
    a->least = b->least < a->least ? b->least : a->least;
    a->most = b->most > a->most ? b->most : a->most;
}

static enum sl_status alternatives(struct regex *x, struct span *out) {
    enum sl_status status = sequence(x, out);
    while (status == SL_OK && *x->p == '|') {
        struct span more;
        x->p++;
        sl_buf_puts(x->b, " |");
        status = sequence(x, &more);
        widen(out, &more);
    }
    return status;
}

enum sl_status sl_schema_pattern(const char *pattern, size_t len, struct sl_buf *b,
                                 uint32_t *out_least, uint32_t *out_most, struct sl_err *err) {
    struct regex x = {.p = pattern, .end = pattern + len, .b = b, .err = err};
    if (len > MAX_BYTES)
        return sl_fail(err, SL_ERR_INVALID, "pattern: %zu bytes; at most %u are supported", len,
                       MAX_BYTES);
    struct span all = {FOREVER, 0};
    sl_buf_puts(b, "(");
    for (bool more = true; more;) {
        struct span part;
        bool front = *x.p == '^';
        x.p += front;
        if (!front)
            sl_buf_puts(b, " " SL_SCHEMA_ANY_CHAR "*");
        enum sl_status status = sequence(&x, &part);
        if (status != SL_OK)
            return status;
        bool back = *x.p == '$';
        x.p += back;
        if (!back)
            sl_buf_puts(b, " " SL_SCHEMA_ANY_CHAR "*");
        if (*x.p && *x.p != '|')
            return bad(&x, *x.p == ')' ? "a ')' without its '('"
                                       : "^ and $ are supported at the ends only");
        if (!front || !back)
            part.most = FOREVER;
        widen(&all, &part);
        more = *x.p == '|';
        x.p += more;
        if (more)
            sl_buf_puts(b, " |");
    }
    sl_buf_puts(b, " )");
    *out_least = all.least;
    *out_most = all.most;
    return SL_OK;
}
