/* Regular expressions as patterns write them (ECMA-262, with the u flag). Read into a tree first;
 * the tree is built from its end to its beginning, each part with what follows it, so that a
 * look-ahead is a condition on the rest, and ^ and $ are known to hold or not.
 *
 * Taken: characters, `.`, classes, \\d \\w \\s and their opposites, character escapes, groups,
 * alternatives, repetition, ^ and $, look-ahead (not within a repetition without bound). */
#include "model/grammar/json_schema_regex.h"

#include "common/utf8.h"

#include <stdlib.h>
#include <string.h>

#define MAX_RANGES 256u
#define MAX_GROUPS 40u
#define MAX_BYTES  (64u << 10) /* of a pattern */
#define MAX_UNROLL 16u         /* repetitions of what has ^, $ or a look-ahead within */
#define FOREVER    SL_SCHEMA_NO_MAX

struct set {
    struct sl_rx_range r[MAX_RANGES];
    uint32_t n;
};

enum part_kind {
    PART_SET,
    PART_SEQUENCE,
    PART_CHOICE,
    PART_REPEAT,
    PART_AHEAD,
    PART_FRONT,
    PART_BACK
};

struct part {
    uint8_t kind;
    bool negative;     /* AHEAD */
    bool impure;       /* what follows, or where it stands, matters to it */
    bool consumes;     /* a character at least */
    bool has_front;    /* ^ is in it */
    uint32_t first, n; /* SEQUENCE, CHOICE: kids[]; SET: first is a node; others: first is a part */
    uint32_t least, most; /* REPEAT */
};

struct regex {
    struct sl_rx *rx;
    const char *p, *end;
    uint32_t groups;
    struct part *parts;
    uint32_t *kids, *open; /* open: parts of sequences that are being read */
    uint32_t n_parts, cap_parts, n_kids, cap_kids, n_open, cap_open;
};

static bool alternatives(struct regex *x, uint32_t *out);

static bool bad(struct regex *x, const char *what) {
    if (x->rx->status == SL_OK)
        x->rx->status = sl_fail(x->rx->err, SL_ERR_INVALID, "pattern: %s, at '%.20s'", what, x->p);
    return false;
}

static bool put_range(struct set *s, uint32_t lo, uint32_t hi) {
    if (s->n == MAX_RANGES)
        return false;
    s->r[s->n].lo = lo;
    s->r[s->n++].hi = hi;
    return true;
}

static int by_lo(const void *a, const void *b) {
    uint32_t x = ((const struct sl_rx_range *)a)->lo, y = ((const struct sl_rx_range *)b)->lo;
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
static bool escape(struct regex *x, uint32_t *out) {
    static const char from[] = "tnrfv0", to[] = "\t\n\r\f\v";
    char c = *x->p;
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        x->p++;
        if (c == '0' && *x->p >= '0' && *x->p <= '9')
            return bad(x, "an octal escape is not supported");
        *out = c == '0' ? 0 : (uint32_t)to[at - from];
        return true;
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
            return true;
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
        return true;
    }
    if (c > 0 && strchr("^$\\.*+?()[]{}|/-\"'#@&%,:;=!<>~` _", c)) {
        x->p++;
        *out = (uint32_t)c;
        return true;
    }
    x->p--;
    return bad(x, "this escape is not supported");
}

static bool one_char(struct regex *x, uint32_t *out) {
    uint32_t n = sl_utf8_len((const unsigned char *)x->p, (size_t)(x->end - x->p) + 1);
    if (!n)
        return bad(x, "not UTF-8");
    *out = sl_utf8_get((const unsigned char *)x->p, n);
    x->p += n;
    return true;
}

static bool char_class(struct regex *x, struct set *s) {
    bool ok = true;
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
                ok = escape(x, &lo);
            }
        } else {
            ok = one_char(x, &lo);
        }
        hi = lo;
        if (ok && x->p[0] == '-' && x->p[1] != ']' && x->p[1]) {
            x->p++;
            if (*x->p == '\\') {
                x->p++;
                ok = escape(x, &hi);
            } else {
                ok = one_char(x, &hi);
            }
        }
        if (!ok)
            return false;
        if (hi < lo)
            return bad(x, "a range in a class ends before it begins");
        if (!put_range(s, lo, hi))
            return bad(x, "a class has too many ranges");
    }
    x->p++;
    if (negate && !complement(s))
        return bad(x, "a class has too many ranges");
    return true;
}

/* ---- reading ---- */

static bool room(struct regex *x, void **array, uint32_t *cap, uint32_t need, size_t size) {
    if (need <= *cap)
        return true;
    uint32_t more = *cap ? 2 * *cap : 64;
    while (more < need)
        more *= 2;
    void *p = realloc(*array, more * size);
    if (!p) {
        sl_rx_fail(x->rx, SL_ERR_NOMEM, "out of memory");
        return false;
    }
    *array = p;
    *cap = more;
    return true;
}

static bool add_part(struct regex *x, struct part p, uint32_t *out) {
    if (!room(x, (void **)&x->parts, &x->cap_parts, x->n_parts + 1, sizeof p))
        return false;
    *out = x->n_parts;
    x->parts[x->n_parts++] = p;
    return true;
}

/* A sequence or choice of the parts in open[from..]. */
static bool close_list(struct regex *x, enum part_kind kind, uint32_t from, uint32_t *out) {
    struct part p = {.kind = (uint8_t)kind, .first = x->n_kids, .n = x->n_open - from};
    if (!room(x, (void **)&x->kids, &x->cap_kids, x->n_kids + p.n, sizeof *x->kids))
        return false;
    p.consumes = kind == PART_CHOICE;
    for (uint32_t i = from; i < x->n_open; i++) {
        const struct part *kid = &x->parts[x->open[i]];
        p.impure = p.impure || kid->impure;
        p.has_front = p.has_front || kid->has_front;
        p.consumes =
            kind == PART_CHOICE ? p.consumes && kid->consumes : p.consumes || kid->consumes;
        x->kids[x->n_kids++] = x->open[i];
    }
    x->n_open = from;
    return add_part(x, p, out);
}

static bool push(struct regex *x, uint32_t part) {
    if (!room(x, (void **)&x->open, &x->cap_open, x->n_open + 1, sizeof *x->open))
        return false;
    x->open[x->n_open++] = part;
    return true;
}

static bool quantifier(struct regex *x, uint32_t *part) {
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
        return true;
    }
    x->p++;
    if (*x->p == '?') /* lazy: the same strings */
        x->p++;
    if (*x->p && strchr("*+?{", *x->p))
        return bad(x, "nothing to repeat");
    const struct part *of = &x->parts[*part];
    return add_part(x,
                    (struct part){.kind = PART_REPEAT,
                                  .impure = of->impure,
                                  .has_front = of->has_front,
                                  .consumes = of->consumes && least,
                                  .first = *part,
                                  .least = least,
                                  .most = most},
                    part);
}

/* Behind the opening parenthesis. */
static bool group(struct regex *x, uint32_t *out) {
    bool ahead = false, negative = false;
    if (*x->p == '?') {
        ahead = x->p[1] == '=' || x->p[1] == '!';
        negative = x->p[1] == '!';
        if (x->p[1] != ':' && !ahead)
            return bad(x, "of the groups with (? only (?:, (?= and (?! are supported");
        x->p += 2;
    }
    if (++x->groups > MAX_GROUPS)
        return bad(x, "groups are nested too deep");
    if (!alternatives(x, out))
        return false;
    if (*x->p != ')')
        return bad(x, "a ')' is missing");
    x->p++;
    x->groups--;
    if (!ahead)
        return true;
    if (*x->p && strchr("*+?{", *x->p))
        return bad(x, "a look-ahead cannot be repeated");
    return add_part(x,
                    (struct part){.kind = PART_AHEAD,
                                  .negative = negative,
                                  .impure = true,
                                  .first = *out,
                                  .has_front = x->parts[*out].has_front},
                    out);
}

static bool anchor(struct regex *x, enum part_kind kind, uint32_t *out) {
    x->p++;
    if (*x->p && strchr("*+?{", *x->p))
        return bad(x, "nothing to repeat");
    return add_part(
        x, (struct part){.kind = (uint8_t)kind, .impure = true, .has_front = kind == PART_FRONT},
        out);
}

static bool atom(struct regex *x, uint32_t *out) {
    struct set s = {.n = 0};
    uint32_t cp;
    bool ok = true;
    switch (*x->p) {
    case '(':
        x->p++;
        return group(x, out);
    case '^':
        return anchor(x, PART_FRONT, out);
    case '$':
        return anchor(x, PART_BACK, out);
    case '[':
        x->p++;
        ok = char_class(x, &s);
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
        ok = escape(x, &cp) && put_range(&s, cp, cp);
        break;
    case '*':
    case '+':
    case '?':
    case '{':
    case '}':
    case ']':
        return bad(x, "this character must be escaped here");
    default:
        ok = one_char(x, &cp) && put_range(&s, cp, cp);
    }
    if (!ok)
        return false;
    if (!s.n)
        return bad(x, "a class matches nothing");
    uint32_t node = sl_rx_set(x->rx, s.r, s.n);
    return x->rx->status == SL_OK &&
           add_part(x, (struct part){.kind = PART_SET, .consumes = true, .first = node}, out);
}

static bool alternatives(struct regex *x, uint32_t *out) {
    uint32_t from = x->n_open, part;
    for (bool more = true; more;) {
        uint32_t first = x->n_open;
        while (*x->p && *x->p != '|' && *x->p != ')')
            if (!atom(x, &part) || !quantifier(x, &part) || !push(x, part))
                return false;
        if (!close_list(x, PART_SEQUENCE, first, &part) || !push(x, part))
            return false;
        more = *x->p == '|';
        x->p += more;
    }
    return close_list(x, PART_CHOICE, from, out);
}

/* ---- building ---- */

/* Is the place where a part stands the front of the string? */
enum place { AT_FRONT, NOT_AT_FRONT, PERHAPS_AT_FRONT };

/* The part, then rest. */
static uint32_t build(struct regex *x, uint32_t part, uint32_t rest, enum place place) {
    struct sl_rx *rx = x->rx;
    const struct part p = x->parts[part];
    uint32_t out = SL_RX_NONE, node;
    if (rx->status != SL_OK)
        return SL_RX_NONE;
    switch ((enum part_kind)p.kind) {
    case PART_SET:
        return sl_rx_cat(rx, p.first, rest);
    case PART_FRONT:
        if (place == PERHAPS_AT_FRONT)
            sl_rx_fail(rx, SL_ERR_INVALID, "pattern: ^ behind what may be empty is not supported");
        return place == AT_FRONT ? rest : SL_RX_NONE;
    case PART_BACK:
        return sl_rx_and(rx, SL_RX_EMPTY, rest);
    case PART_AHEAD:
        node = build(x, p.first, SL_RX_ANY, place);
        return sl_rx_and(rx, rest, p.negative ? sl_rx_not(rx, node) : node);
    case PART_CHOICE:
        if (!p.impure && p.n > 1 && rest != SL_RX_EMPTY)
            return sl_rx_cat(rx, build(x, part, SL_RX_EMPTY, place), rest);
        for (uint32_t i = p.n; i-- > 0;)
            out = sl_rx_alt(rx, build(x, x->kids[p.first + i], rest, place), out);
        return out;
    case PART_SEQUENCE: {
        /* Behind parts that take nothing the place is the same, behind a character it is not. */
        uint32_t n_before = 0, taken = 0;
        while (n_before < p.n && x->parts[x->kids[p.first + n_before]].kind >= PART_AHEAD)
            n_before++;
        while (taken < p.n && !x->parts[x->kids[p.first + taken]].consumes)
            taken++;
        out = rest;
        for (uint32_t i = p.n; i-- > 0;) {
            enum place here = i <= n_before ? place : i > taken ? NOT_AT_FRONT : PERHAPS_AT_FRONT;
            out = build(x, x->kids[p.first + i], out, place == NOT_AT_FRONT ? place : here);
        }
        return out;
    }
    case PART_REPEAT:
        if (!p.impure)
            return sl_rx_cat(
                rx, sl_rx_repeat(rx, build(x, p.first, SL_RX_EMPTY, place), p.least, p.most), rest);
        if (p.most > MAX_UNROLL)
            sl_rx_fail(
                rx, SL_ERR_INVALID,
                "pattern: ^, $ or a look-ahead in what is repeated more than 16 times is not "
                "supported");
        out = rest;
        if (place == AT_FRONT && p.most > 1)
            place = PERHAPS_AT_FRONT;
        for (uint32_t i = p.most; rx->status == SL_OK && i-- > 0;) {
            node = build(x, p.first, out, place);
            out = i < p.least ? node : sl_rx_alt(rx, node, rest);
        }
        return out;
    }
    return SL_RX_NONE;
}

uint32_t sl_rx_pattern(struct sl_rx *rx, const char *pattern, size_t len) {
    struct regex x = {.rx = rx, .p = pattern, .end = pattern + len};
    uint32_t root = 0, out = SL_RX_NONE;
    if (len > MAX_BYTES) {
        if (rx->status == SL_OK)
            rx->status = sl_fail(rx->err, SL_ERR_INVALID,
                                 "pattern: %zu bytes; at most %u are supported", len, MAX_BYTES);
        return SL_RX_NONE;
    }
    bool ok = rx->status == SL_OK && alternatives(&x, &root);
    if (ok && *x.p)
        ok = bad(&x, "a ')' without its '('");
    const struct part top = ok ? x.parts[root] : (struct part){0};
    for (uint32_t i = top.n; ok && i-- > 0;) {
        uint32_t one = x.kids[top.first + i];
        uint32_t later = build(&x, one, SL_RX_ANY, NOT_AT_FRONT);
        if (x.parts[one].has_front) {
            /* Found at the front, or behind at least one character. */
            later = sl_rx_cat(rx, sl_rx_lengths(rx, 1, SL_SCHEMA_NO_MAX), later);
            later = sl_rx_alt(rx, build(&x, one, SL_RX_ANY, AT_FRONT), later);
        } else {
            later = sl_rx_cat(rx, SL_RX_ANY, later);
        }
        out = sl_rx_alt(rx, later, out);
    }
    free(x.parts);
    free(x.kids);
    free(x.open);
    return out;
}
