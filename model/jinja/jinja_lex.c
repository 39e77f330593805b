/* Cuts a template into tokens, with Jinja's rules for white space around tags (trim_blocks and
 * lstrip_blocks on).
 * Source: Jinja2's template documentation ("Whitespace Control") and its lexer's behaviour. */
#include "common/utf8.h"
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1 << 20, MAX_OPEN = 512 };

struct lexer {
    struct sl_jc *c;
    const char *s, *end;
    size_t cap;
    bool line_starting; /* the text consumed last ended a line */
};

static bool is_space(const char *p, const char *end, unsigned *out_len) {
    uint32_t cp;
    *out_len = sl_j_utf8_next(p, end, &cp);
    return cp < 0x80 ? cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 31)
                     : *out_len > 1 && (sl_j_props(cp) & SL_J_SPACE);
}

static const char *skip_space(const char *p, const char *end) {
    unsigned n;
    while (p < end && is_space(p, end, &n))
        p += n;
    return p;
}

static const char *rstrip(const char *begin, const char *p) {
    while (p > begin) {
        const char *q = sl_j_utf8_prev(begin, p);
        unsigned n;
        if (!is_space(q, p, &n))
            break;
        p = q;
    }
    return p;
}

static uint32_t off_of(const struct lexer *x, const char *p) {
    return (uint32_t)(p - x->c->source);
}

static struct sl_j_token *add(struct lexer *x, enum sl_j_tok type, const char *at) {
    struct sl_jc *c = x->c;
    if (c->n_tok == x->cap) {
        if (x->cap >= MAX_TOKENS)
            sl_jc_fail(c, off_of(x, at), "the template has more than %d tokens", MAX_TOKENS);
        size_t cap = x->cap ? 2 * x->cap : 256;
        struct sl_j_token *t = sl_jc_alloc(c, cap * sizeof *t);
        if (c->n_tok)
            memcpy(t, c->tok, c->n_tok * sizeof *t);
        c->tok = t;
        x->cap = cap;
    }
    struct sl_j_token *t = &c->tok[c->n_tok++];
    t->type = (uint8_t)type;
    t->off = off_of(x, at);
    return t;
}

static void consumed(struct lexer *x, const char *to) {
    if (to > x->s)
        x->line_starting = to[-1] == '\n';
    x->s = to;
}

/* The text before a tag. sign: '-', '+' or 0; `variable` tags never strip blanks by themselves. */
static void add_data(struct lexer *x, const char *from, const char *to, int sign, bool variable) {
    if (sign == '-') {
        to = rstrip(from, to);
    } else if (sign != '+' && !variable) {
        const char *line = to;
        while (line > from && line[-1] != '\n')
            line--;
        if ((line > from || x->line_starting) && skip_space(line, to) == to)
            to = line;
    }
    if (to > from)
        add(x, SL_T_DATA, from)->u.s = sl_jc_str(x->c, from, (size_t)(to - from));
}

static int sign_at(const char *p, const char *end, const char *signs) {
    return p < end && *p && strchr(signs, *p) ? *p : 0;
}

static bool starts(const char *p, const char *end, const char *word) {
    size_t n = strlen(word);
    return (size_t)(end - p) >= n && !memcmp(p, word, n);
}

/* After "%}" or "#}" (close[0]): the end of the tag at p, or NULL when it does not end there. */
static const char *tag_end(const char *p, const char *end, char close) {
    char mark[3] = {close, '}', 0};
    if (*p == '+' && starts(p + 1, end, mark))
        return p + 3;
    if (*p == '-' && starts(p + 1, end, mark))
        return skip_space(p + 3, end);
    if (!starts(p, end, mark))
        return NULL;
    p += 2;
    return p < end && *p == '\n' ? p + 1 : p;
}

/* "{% raw %}" at p, where a tag begins: the end of it, or NULL. */
static const char *raw_begin(const char *p, const char *end, int sign) {
    p = skip_space(p + 2 + (sign != 0), end);
    if (!starts(p, end, "raw"))
        return NULL;
    p = skip_space(p + 3, end);
    if (starts(p, end, "-%}"))
        return skip_space(p + 3, end);
    return starts(p, end, "%}") ? p + 2 : NULL;
}

static void lex_raw(struct lexer *x, const char *open) {
    for (const char *p = x->s; p + 1 < x->end; p++) {
        if (p[0] != '{' || p[1] != '%')
            continue;
        int sign = sign_at(p + 2, x->end, "-+");
        const char *q = skip_space(p + 2 + (sign != 0), x->end);
        if (!starts(q, x->end, "endraw"))
            continue;
        q = skip_space(q + 6, x->end);
        const char *after = q < x->end ? tag_end(q, x->end, '%') : NULL;
        if (!after)
            continue;
        add_data(x, x->s, p, sign, false);
        consumed(x, after);
        return;
    }
    sl_jc_fail(x->c, off_of(x, open), "{%% raw %%} is never closed by {%% endraw %%}");
}

static void lex_comment(struct lexer *x, const char *open) {
    for (const char *p = x->s; p < x->end; p++) {
        const char *after = *p == '#' || *p == '-' || *p == '+' ? tag_end(p, x->end, '#') : NULL;
        if (after) {
            consumed(x, after);
            return;
        }
    }
    sl_jc_fail(x->c, off_of(x, open), "comment is never closed by #}");
}

static bool word_char(const char *p, const char *end, unsigned *out_len, bool first) {
    uint32_t cp;
    *out_len = sl_j_utf8_next(p, end, &cp);
    if (cp < 0x80)
        return (cp >= 'a' && cp <= 'z') || (cp >= 'A' && cp <= 'Z') || cp == '_' ||
               (!first && cp >= '0' && cp <= '9');
    return sl_j_props(cp) & (first ? SL_J_ALPHA : SL_J_ALNUM);
}

/* Digits of a base with single underscores between; NULL when there is none at p. */
static const char *digits(const char *p, const char *end, int base, bool under_first) {
    const char *last = NULL;
    while (p < end) {
        if (*p == '_' && (last || under_first) && p + 1 < end)
            p++;
        int d = *p >= '0' && *p <= '9'   ? *p - '0'
                : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10
                : *p >= 'A' && *p <= 'F' ? *p - 'A' + 10
                                         : 99;
        if (d >= base)
            break;
        last = ++p;
    }
    return last;
}

static void number_text(char *buf, size_t cap, const char *p, const char *end) {
    size_t n = 0;
    for (; p < end && n + 1 < cap; p++)
        if (*p != '_')
            buf[n++] = *p;
    buf[n] = 0;
}

static bool lex_number(struct lexer *x) {
    const char *p = x->s, *end = x->end, *q = digits(p, end, 10, false);
    char buf[512];
    if (!q)
        return false;
    const char *f = NULL;
    if (p == x->c->source || p[-1] != '.') {
        const char *r = q;
        if (r < end && *r == '.') {
            const char *frac = digits(r + 1, end, 10, false);
            if (frac)
                f = r = frac;
        }
        if (r < end && (*r == 'e' || *r == 'E')) {
            const char *e = r + 1 + (r + 1 < end && (r[1] == '+' || r[1] == '-'));
            e = e < end ? digits(e, end, 10, false) : NULL;
            if (e)
                f = e;
        }
    }
    if (f) {
        number_text(buf, sizeof buf, p, f);
        add(x, SL_T_FLOAT, p)->u.f = strtod(buf, NULL);
        consumed(x, f);
        return true;
    }
    int base = 10;
    if (*p == '0') {
        char kind = p + 1 < end ? (char)(p[1] | 32) : 0;
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
        const char *r = base == 10 ? NULL : digits(p + 2, end, base, true);
        if (r) {
            q = r;
        } else { /* zeros only; what follows is another token */
            base = 10;
            for (q = p + 1; q < end && (*q == '0' || (*q == '_' && q + 1 < end && q[1] == '0'));)
                q++;
        }
    }
    uint64_t v = 0;
    for (const char *r = base == 10 ? p : p + 2; r < q; r++) {
        if (*r == '_')
            continue;
        uint64_t d = (uint64_t)(*r <= '9' ? *r - '0' : (*r | 32) - 'a' + 10);
        if (v > ((uint64_t)INT64_MAX - d) / (uint64_t)base)
            sl_jc_fail(x->c, off_of(x, p), "integer is larger than 64 bits hold");
        v = v * (uint64_t)base + d;
    }
    add(x, SL_T_INT, p)->u.i = (int64_t)v;
    consumed(x, q);
    return true;
}

static int hex_digits(const char *p, const char *end, int n, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < n; i++) {
        if (p + i >= end)
            return 0;
        int ch = p[i] | 32;
        if (p[i] >= '0' && p[i] <= '9')
            *out = *out << 4 | (uint32_t)(p[i] - '0');
        else if (ch >= 'a' && ch <= 'f')
            *out = *out << 4 | (uint32_t)(ch - 'a' + 10);
        else
            return 0;
    }
    return n;
}

/* Python's "unicode-escape" on what is between the quotes. The text only gets shorter, except
 * that a backslash before a character outside ASCII spells that character out. */
static const struct sl_jstr *unescape(struct lexer *x, const char *p, const char *end) {
    if (!memchr(p, '\\', (size_t)(end - p)))
        return sl_jc_str(x->c, p, (size_t)(end - p));
    char *out = sl_jc_alloc(x->c, 6 * (size_t)(end - p) + 16);
    size_t n = 0;
    while (p < end) {
        if (*p != '\\') {
            out[n++] = *p++;
            continue;
        }
        const char *at = p++;
        static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
        uint32_t cp;
        const char *m = strchr(from, *p);
        if (*p && m) {
            out[n++] = to[m - from];
            p++;
        } else if (*p == '\n') {
            p++;
        } else if (*p >= '0' && *p <= '7') {
            cp = 0;
            for (int i = 0; i < 3 && p < end && *p >= '0' && *p <= '7'; i++)
                cp = cp * 8 + (uint32_t)(*p++ - '0');
            n += sl_utf8_put(cp, out + n);
        } else if (*p == 'x' || *p == 'u' || *p == 'U') {
            int want = *p == 'x' ? 2 : *p == 'u' ? 4 : 8;
            if (!hex_digits(p + 1, end, want, &cp))
                sl_jc_fail(x->c, off_of(x, at), "\\%c wants %d hexadecimal digits", *p, want);
            if (cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
                sl_jc_fail(x->c, off_of(x, at), "\\%c%.*s is not a character", *p, want, p + 1);
            n += sl_utf8_put(cp, out + n);
            p += 1 + want;
        } else if (*p == 'N') {
            sl_jc_fail(x->c, off_of(x, at), "characters by name (\\N) are not supported");
        } else if ((unsigned char)*p >= 0x80) {
            p += sl_j_utf8_next(p, end, &cp);
            n += (size_t)snprintf(out + n, 12,
                                  cp < 0x100     ? "\\x%02x"
                                  : cp < 0x10000 ? "\\u%04x"
                                                 : "\\U%08x",
                                  (unsigned)cp);
        } else {
            out[n++] = '\\';
        }
    }
    return sl_jc_str(x->c, out, n);
}

static void lex_string(struct lexer *x) {
    const char *p = x->s + 1;
    while (p < x->end && *p != *x->s)
        p += *p == '\\' && p + 1 < x->end ? 2 : 1;
    if (p >= x->end)
        sl_jc_fail(x->c, off_of(x, x->s), "string is never closed");
    const struct sl_jstr *s = unescape(x, x->s + 1, p);
    add(x, SL_T_STRING, x->s)->u.s = s;
    consumed(x, p + 1);
}

static void lex_operator(struct lexer *x, char *open, unsigned *n_open) {
    static const struct {
        char text[3];
        uint8_t op;
    } two[] = {{"//", SL_OP_FLOORDIV}, {"**", SL_OP_POW}, {"==", SL_OP_EQ},
               {"!=", SL_OP_NE},       {">=", SL_OP_GE},  {"<=", SL_OP_LE}};
    const char *p = x->s;
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (starts(p, x->end, two[i].text)) {
            add(x, SL_T_OP, p)->op = two[i].op;
            consumed(x, p + 2);
            return;
        }
    if (!*p || !strchr("+-/*%~[](){}><=.:|,;", *p)) {
        uint32_t cp;
        unsigned n = sl_j_utf8_next(p, x->end, &cp);
        sl_jc_fail(x->c, off_of(x, p), "unexpected character '%.*s'", (int)n, p);
    }
    if (strchr("([{", *p)) {
        if (*n_open == MAX_OPEN)
            sl_jc_fail(x->c, off_of(x, p), "brackets are nested more than %d deep", MAX_OPEN);
        open[(*n_open)++] = *p == '(' ? ')' : *p == '[' ? ']' : '}';
    } else if (strchr(")]}", *p)) {
        if (!*n_open)
            sl_jc_fail(x->c, off_of(x, p), "unexpected '%c'", *p);
        if (open[--*n_open] != *p)
            sl_jc_fail(x->c, off_of(x, p), "unexpected '%c', expected '%c'", *p, open[*n_open]);
    }
    add(x, SL_T_OP, p)->op = (uint8_t)*p;
    consumed(x, p + 1);
}

/* Inside {{ }} or {% %}. */
static void lex_tag(struct lexer *x, bool block) {
    char open[MAX_OPEN];
    unsigned n_open = 0, n;
    while (x->s < x->end) {
        const char *p = x->s, *after = NULL;
        if (!n_open) {
            if (block)
                after = tag_end(p, x->end, '%');
            else if (starts(p, x->end, "-}}"))
                after = skip_space(p + 3, x->end);
            else if (starts(p, x->end, "}}"))
                after = p + 2;
        }
        if (after) {
            add(x, block ? SL_T_BLOCK_END : SL_T_VAR_END, p);
            consumed(x, after);
            return;
        }
        if (is_space(p, x->end, &n)) {
            consumed(x, skip_space(p, x->end));
        } else if (lex_number(x)) {
            continue;
        } else if (word_char(p, x->end, &n, true)) {
            const char *q = p + n;
            while (q < x->end && word_char(q, x->end, &n, false))
                q += n;
            add(x, SL_T_NAME, p)->u.s = sl_jc_str(x->c, p, (size_t)(q - p));
            consumed(x, q);
        } else if (*p == '"' || *p == '\'') {
            lex_string(x);
        } else {
            lex_operator(x, open, &n_open);
        }
    }
}

void sl_jc_lex(struct sl_jc *c) {
    struct lexer x = {.c = c, .s = c->source, .end = c->source + c->len, .line_starting = true};
    while (x.s < x.end) {
        const char *p = x.s;
        while (p + 1 < x.end && !(p[0] == '{' && (p[1] == '{' || p[1] == '%' || p[1] == '#')))
            p++;
        if (p + 1 >= x.end) {
            add_data(&x, x.s, x.end, '+', false);
            break;
        }
        int sign = sign_at(p + 2, x.end, "-+");
        const char *open = p, *raw = p[1] == '%' ? raw_begin(p, x.end, sign) : NULL;
        char kind = p[1];
        add_data(&x, x.s, p, sign, kind == '{');
        if (raw) {
            consumed(&x, raw);
            lex_raw(&x, open);
            continue;
        }
        consumed(&x, p + 2 + (sign != 0));
        if (kind == '#') {
            lex_comment(&x, open);
        } else {
            add(&x, kind == '{' ? SL_T_VAR_BEGIN : SL_T_BLOCK_BEGIN, open);
            lex_tag(&x, kind == '%');
        }
    }
    add(&x, SL_T_EOF, x.end);
}
