/* Reads GBNF text. A rule ends where the next one, `name ::=`, begins; line breaks are white space.
 */
#include "model/grammar/grammar_internal.h"

#include "common/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define MAX_RULES      65536u
#define MAX_TOKEN_NAME 128u

struct name {
    const char *ptr; /* into the text */
    uint32_t len;
    uint32_t rule;
    size_t at; /* of the first use */
    bool defined;
};

struct parser {
    const struct sl_tokenizer *tok; /* NULL: unknown */
    struct sl_grammar *g;
    const char *text, *start;
    size_t len, at;
    uint32_t depth;
    struct sl_err *err;
    struct name *names; /* open addressing; ptr NULL = free */
    uint32_t n_names, n_slots;
    uint64_t seed;            /* of names' hashes */
    struct sl_crange *ranges; /* of the class being read */
    uint32_t cap_ranges;
};

static enum sl_status alternatives(struct parser *p, struct sl_gfrag *out);

static uint32_t line_at(const struct parser *p, size_t at) {
    uint32_t line = 1;
    for (size_t i = 0; i < at && i < p->len; i++)
        line += p->text[i] == '\n';
    return line;
}

static uint32_t line_of(const struct parser *p) {
    return line_at(p, p->at);
}

static enum sl_status bad(const struct parser *p, const char *what) {
    if (p->at >= p->len)
        return sl_fail(p->err, SL_ERR_INVALID, "line %u of the grammar: %s, but the text ends",
                       line_of(p), what);
    unsigned char c = (unsigned char)p->text[p->at];
    char near[16];
    if (c > 0x20 && c < 0x7f)
        snprintf(near, sizeof near, "'%c'", c);
    else
        snprintf(near, sizeof near, "byte 0x%02x", c);
    return sl_fail(p->err, SL_ERR_INVALID, "line %u of the grammar: %s, not %s", line_of(p), what,
                   near);
}

/* Builders say what is wrong, here is added where. */
static enum sl_status where(const struct parser *p, enum sl_status status) {
    if (status != SL_ERR_INVALID || !p->err)
        return status;
    struct sl_err e = *p->err;
    return sl_fail(p->err, status, "line %u of the grammar: %.440s", line_of(p), e.text);
}

static int peek(const struct parser *p) {
    return p->at < p->len ? (unsigned char)p->text[p->at] : -1;
}

static void skip_space(struct parser *p) {
    for (; p->at < p->len; p->at++) {
        char c = p->text[p->at];
        if (c == '#') {
            while (p->at < p->len && p->text[p->at] != '\n')
                p->at++;
            p->at--;
        } else if (c != ' ' && c != '\t' && c != '\n' && c != '\r') {
            return;
        }
    }
}

static bool name_char(int c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

/* The length of the name at the position, and whether `::=` follows. */
static uint32_t name_at(struct parser *p, bool *out_is_rule) {
    size_t from = p->at, end = p->at;
    while (end < p->len && name_char((unsigned char)p->text[end]))
        end++;
    p->at = end;
    skip_space(p);
    *out_is_rule = p->len - p->at >= 3 && memcmp(p->text + p->at, "::=", 3) == 0;
    p->at = from;
    return (uint32_t)(end - from);
}

/* Seeded: a stranger's names must not all fall into one slot. */
static uint32_t hash_name(uint64_t seed, const char *s, uint32_t n) {
    uint64_t h = seed;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ (unsigned char)s[i]) * 0x9e3779b97f4a7c15u;
        h ^= h >> 32;
    }
    return (uint32_t)(h >> 16);
}

static struct name *slot_of(const struct parser *p, struct name *names, uint32_t n_slots,
                            const char *s, uint32_t len) {
    uint32_t i = hash_name(p->seed, s, len) & (n_slots - 1);
    while (names[i].ptr && !(names[i].len == len && memcmp(names[i].ptr, s, len) == 0))
        i = (i + 1) & (n_slots - 1);
    return &names[i];
}

static enum sl_status find_name(struct parser *p, const char *s, uint32_t len,
                                struct name **out_name) {
    if (p->n_names * 2 >= p->n_slots) {
        uint32_t n = p->n_slots ? p->n_slots * 2 : 64;
        struct name *bigger = calloc(n, sizeof *bigger);
        if (!bigger)
            return sl_fail(p->err, SL_ERR_NOMEM, "out of memory");
        for (uint32_t i = 0; i < p->n_slots; i++)
            if (p->names[i].ptr)
                *slot_of(p, bigger, n, p->names[i].ptr, p->names[i].len) = p->names[i];
        free(p->names);
        p->names = bigger;
        p->n_slots = n;
    }
    struct name *e = slot_of(p, p->names, p->n_slots, s, len);
    if (!e->ptr) {
        if (p->n_names == MAX_RULES)
            return sl_fail(p->err, SL_ERR_INVALID, "the grammar has more than %u rules", MAX_RULES);
        uint32_t rule = 0;
        SL_TRY(sl_g_rule(p->g, SL_G_NONE, &rule, p->err));
        *e = (struct name){s, len, rule, p->at, false};
        p->n_names++;
    }
    *out_name = e;
    return SL_OK;
}

static enum sl_status hex(struct parser *p, uint32_t digits, uint32_t *out) {
    *out = 0;
    for (uint32_t i = 0; i < digits; i++, p->at++) {
        int c = peek(p);
        uint32_t v = c >= '0' && c <= '9'   ? (uint32_t)c - '0'
                     : c >= 'a' && c <= 'f' ? (uint32_t)c - 'a' + 10
                     : c >= 'A' && c <= 'F' ? (uint32_t)c - 'A' + 10
                                            : 16;
        if (v == 16)
            return bad(p, "a hexadecimal digit is expected");
        *out = *out << 4 | v;
    }
    if (*out > 0x10ffff || (*out >= 0xd800 && *out <= 0xdfff))
        return sl_fail(p->err, SL_ERR_INVALID, "line %u of the grammar: U+%04X is not a character",
                       line_of(p), *out);
    return SL_OK;
}

/* One character, escaped or not, in a literal or class. */
static enum sl_status character(struct parser *p, uint32_t *out_cp) {
    int c = peek(p);
    if (c == '\\') {
        p->at++;
        c = peek(p);
        static const char plain[] = "\\\"[]-^/'.";
        p->at++;
        switch (c) {
        case 'n':
            *out_cp = '\n';
            return SL_OK;
        case 'r':
            *out_cp = '\r';
            return SL_OK;
        case 't':
            *out_cp = '\t';
            return SL_OK;
        case 'x':
            return hex(p, 2, out_cp);
        case 'u':
            return hex(p, 4, out_cp);
        case 'U':
            return hex(p, 8, out_cp);
        default:
            if (c > 0 && strchr(plain, c)) {
                *out_cp = (uint32_t)c;
                return SL_OK;
            }
            p->at--;
            return bad(p, "an escape is \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\xHH \\uHHHH or "
                          "\\UHHHHHHHH");
        }
    }
    if (c < 0)
        return bad(p, "a character is expected");
    const unsigned char *s = (const unsigned char *)p->text + p->at;
    uint32_t n = sl_utf8_len(s, p->len - p->at);
    if (!n)
        return bad(p, "the text must be UTF-8");
    *out_cp = sl_utf8_get(s, n);
    p->at += n;
    return SL_OK;
}

static enum sl_status literal(struct parser *p, struct sl_gfrag *out) {
    p->at++;
    size_t from = p->at, n = 0;
    /* Escapes are at least as long as what they stand for. */
    while (peek(p) >= 0 && peek(p) != '"')
        p->at += peek(p) == '\\' ? 2 : 1;
    if (p->at >= p->len) {
        p->at = from;
        return sl_fail(p->err, SL_ERR_INVALID,
                       "line %u of the grammar: a literal has no closing quotation mark",
                       line_of(p));
    }
    char *bytes = malloc(p->at - from + 4);
    if (!bytes)
        return sl_fail(p->err, SL_ERR_NOMEM, "out of memory");
    p->at = from;
    enum sl_status status = SL_OK;
    while (status == SL_OK && peek(p) != '"') {
        uint32_t cp = 0;
        status = character(p, &cp);
        if (status == SL_OK)
            n += sl_utf8_put(cp, bytes + n);
    }
    p->at++;
    if (status == SL_OK)
        status = where(p, sl_g_literal(p->g, bytes, n, out, p->err));
    free(bytes);
    return status;
}

static enum sl_status char_class(struct parser *p, struct sl_gfrag *out) {
    p->at++;
    bool negate = peek(p) == '^';
    p->at += negate;
    uint32_t n = 0;
    while (peek(p) != ']') {
        struct sl_crange r;
        SL_TRY(character(p, &r.lo));
        r.hi = r.lo;
        if (peek(p) == '-' && p->at + 1 < p->len && p->text[p->at + 1] != ']') {
            p->at++;
            SL_TRY(character(p, &r.hi));
            if (r.hi < r.lo)
                return sl_fail(p->err, SL_ERR_INVALID,
                               "line %u of the grammar: a range in a class ends before it begins",
                               line_of(p));
        }
        if (n == p->cap_ranges) {
            uint32_t cap = n ? 2 * n : 16;
            struct sl_crange *bigger = realloc(p->ranges, cap * sizeof *bigger);
            if (!bigger)
                return sl_fail(p->err, SL_ERR_NOMEM, "out of memory");
            p->ranges = bigger;
            p->cap_ranges = cap;
        }
        p->ranges[n++] = r;
    }
    p->at++;
    return where(p, sl_g_class(p->g, p->ranges, n, negate, out, p->err));
}

static enum sl_status number(struct parser *p, uint32_t *out) {
    if (peek(p) < '0' || peek(p) > '9')
        return bad(p, "a number is expected in {m,n}");
    *out = 0;
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++)
        if ((*out = *out * 10 + (uint32_t)(peek(p) - '0')) > SL_GRAMMAR_MAX_REPEAT)
            return sl_fail(p->err, SL_ERR_INVALID,
                           "line %u of the grammar: a repetition is at most %u times", line_of(p),
                           SL_GRAMMAR_MAX_REPEAT);
    skip_space(p);
    return SL_OK;
}

void sl_grammar_token(uint32_t id, char out[SL_GRAMMAR_TOKEN_BYTES]) {
    out[0] = (char)0xff;
    for (uint32_t i = 1; i < SL_GRAMMAR_TOKEN_BYTES; i++)
        out[i] = (char)(0x80 | (id >> (7 * (i - 1)) & 0x7f));
}

/* [1234]> */
static enum sl_status token_number(struct parser *p, uint32_t *out_id) {
    uint32_t id = 0, digits = 0;
    for (p->at++; peek(p) >= '0' && peek(p) <= '9'; p->at++, digits++)
        if ((id = id * 10 + (uint32_t)(peek(p) - '0')) > SL_GRAMMAR_MAX_TOKEN)
            return bad(p, "a token's number is too large");
    if (!digits)
        return bad(p, "a token's number is expected");
    if (p->len - p->at < 2 || memcmp(p->text + p->at, "]>", 2) != 0)
        return bad(p, "']>' is expected");
    p->at += 2;
    *out_id = id;
    return SL_OK;
}

/* text> */
static enum sl_status token_named(struct parser *p, uint32_t *out_id) {
    const char *name = p->text + p->at - 1; /* with the brackets, as such tokens have them */
    size_t most = p->len - p->at < MAX_TOKEN_NAME ? p->len - p->at : MAX_TOKEN_NAME;
    const char *end = p->tok ? memchr(name + 1, '>', most) : NULL;
    if (!end)
        return bad(p, p->tok ? "a token is written <[number]> or <text>: '>' is expected"
                             : "a token is written <[number]>: '[' is expected");
    size_t len = (size_t)(end - name) + 1;
    *out_id = sl_tokenizer_find(p->tok, name, len);
    if (*out_id == SL_NO_TOKEN)
        return sl_fail(p->err, SL_ERR_INVALID,
                       "line %u of the grammar: '%.*s' is no token of this model", line_of(p),
                       (int)len, name);
    p->at += len - 1;
    return SL_OK;
}

/* <[1234]>, <text>, and with ! before them: any other. */
static enum sl_status token(struct parser *p, struct sl_gfrag *out) {
    char buf[SL_GRAMMAR_TOKEN_BYTES];
    bool other = peek(p) == '!';
    uint32_t id = 0;
    p->at += other;
    if (peek(p) != '<')
        return bad(p, "'<' of a token is expected behind '!'");
    p->at++;
    enum sl_status status = peek(p) == '[' ? token_number(p, &id) : token_named(p, &id);
    if (status == SL_OK && p->tok && id >= sl_tokenizer_n_vocab(p->tok))
        return bad(p, "the model has no token of this number");
    if (status != SL_OK || other)
        return status == SL_OK ? where(p, sl_g_other(p->g, id, out, p->err)) : status;
    struct sl_str s = {buf, SL_GRAMMAR_TOKEN_BYTES};
    sl_grammar_token(id, buf);
    if (p->tok)
        s = sl_grammar_token_text(p->tok, id, buf);
    if (!s.len)
        return bad(p, "this token has no text that could be asked for");
    return where(p, sl_g_literal(p->g, s.ptr, s.len, out, p->err));
}

/* Repetitions behind an item. */
static enum sl_status repeats(struct parser *p, struct sl_gfrag *f) {
    for (;;) {
        uint32_t least = 0, most = SL_G_NONE;
        skip_space(p);
        switch (peek(p)) {
        case '*':
            break;
        case '+':
            least = 1;
            break;
        case '?':
            most = 1;
            break;
        case '{': {
            p->at++;
            skip_space(p);
            SL_TRY(peek(p) == ',' ? SL_OK : number(p, &least));
            most = least;
            if (peek(p) == ',') {
                p->at++;
                skip_space(p);
                most = SL_G_NONE;
                if (peek(p) != '}')
                    SL_TRY(number(p, &most));
            }
            if (peek(p) != '}')
                return bad(p, "'}' is expected");
            if (most < least)
                return bad(p, "{m,n} needs n to be at least m");
            break;
        }
        default:
            return SL_OK;
        }
        p->at++;
        SL_TRY(where(p, sl_g_repeat(p->g, f, least, most, p->err)));
    }
}

static enum sl_status item(struct parser *p, struct sl_gfrag *out) {
    struct name *name = NULL;
    bool is_rule;
    int c = peek(p);
    if (c == '"')
        return literal(p, out);
    if (c == '[')
        return char_class(p, out);
    if (c == '<' || c == '!')
        return token(p, out);
    if (c == '.') {
        p->at++;
        return where(p, sl_g_class(p->g, NULL, 0, true, out, p->err));
    }
    if (c == '(') {
        if (++p->depth > SL_GRAMMAR_MAX_DEPTH)
            return sl_fail(p->err, SL_ERR_INVALID,
                           "line %u of the grammar: groups are nested more than %u deep",
                           line_of(p), SL_GRAMMAR_MAX_DEPTH);
        p->at++;
        SL_TRY(alternatives(p, out));
        if (peek(p) != ')')
            return bad(p, "')' is expected");
        p->at++;
        p->depth--;
        return SL_OK;
    }
    uint32_t n = name_at(p, &is_rule);
    if (!n)
        return bad(p, "a literal, class, group, rule name or token is expected");
    SL_TRY(find_name(p, p->text + p->at, n, &name));
    p->at += n;
    return where(p, sl_g_call(p->g, name->rule, out, p->err));
}

/* Is the sequence over? */
static bool at_end(struct parser *p) {
    skip_space(p);
    int c = peek(p);
    if (c < 0 || c == '|' || c == ')')
        return true;
    bool is_rule = false;
    return name_char(c) && name_at(p, &is_rule) && is_rule;
}

static enum sl_status sequence(struct parser *p, struct sl_gfrag *out) {
    bool any = false;
    while (!at_end(p)) {
        struct sl_gfrag f;
        SL_TRY(item(p, &f));
        SL_TRY(repeats(p, &f));
        if (any)
            sl_g_append(p->g, out, &f);
        else
            *out = f;
        any = true;
    }
    return any ? SL_OK : where(p, sl_g_empty(p->g, out, p->err));
}

static enum sl_status alternatives(struct parser *p, struct sl_gfrag *out) {
    enum sl_status status = sequence(p, out);
    while (status == SL_OK && peek(p) == '|') {
        struct sl_gfrag f;
        p->at++;
        status = sequence(p, &f);
        if (status == SL_OK)
            status = where(p, sl_g_either(p->g, out, &f, p->err));
    }
    return status;
}

static enum sl_status rule(struct parser *p) {
    bool is_rule = false;
    struct name *name = NULL;
    struct sl_gfrag f;
    uint32_t n = name_at(p, &is_rule);
    if (!n || !is_rule)
        return bad(p, "a rule, name ::= ..., is expected");
    SL_TRY(find_name(p, p->text + p->at, n, &name));
    if (name->defined)
        return sl_fail(p->err, SL_ERR_INVALID,
                       "line %u of the grammar: the rule '%.*s' is there twice", line_of(p),
                       n > 80 ? 80 : (int)n, name->ptr);
    name->defined = true;
    uint32_t id = name->rule;
    p->at += n;
    skip_space(p);
    p->at += 3;
    p->depth = 0;
    SL_TRY(alternatives(p, &f));
    if (peek(p) == ')')
        return bad(p, "the rule ends or goes on");
    p->g->nodes[f.exit].kind = SL_G_END;
    p->g->rule_start[id] = f.start;
    return SL_OK;
}

static enum sl_status check_names(const struct parser *p) {
    bool root = false;
    size_t start_len = strlen(p->start);
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const struct name *n = &p->names[i];
        if (!n->ptr)
            continue;
        if (!n->defined)
            return sl_fail(p->err, SL_ERR_INVALID,
                           "line %u of the grammar: the rule '%.*s' is used and not defined",
                           line_at(p, n->at), n->len > 80 ? 80 : (int)n->len, n->ptr);
        if (n->len == start_len && memcmp(n->ptr, p->start, start_len) == 0) {
            p->g->root = n->rule;
            root = true;
        }
    }
    return root ? SL_OK
                : sl_fail(p->err, SL_ERR_INVALID, "the grammar has no rule '%s' to start from",
                          p->start);
}

enum sl_status sl_grammar_parse(const char *text, size_t len, struct sl_grammar **out_grammar,
                                struct sl_err *err) {
    return sl_grammar_parse_from(text, len, "root", out_grammar, err);
}

enum sl_status sl_grammar_parse_from(const char *text, size_t len, const char *start,
                                     struct sl_grammar **out_grammar, struct sl_err *err) {
    return sl_grammar_parse_for(NULL, text, len, start, out_grammar, err);
}

enum sl_status sl_grammar_parse_for(const struct sl_tokenizer *tok, const char *text, size_t len,
                                    const char *start, struct sl_grammar **out_grammar,
                                    struct sl_err *err) {
    if (len > SL_GRAMMAR_MAX_TEXT_BYTES)
        return sl_fail(err, SL_ERR_INVALID, "the grammar has %zu bytes; the most is %u", len,
                       SL_GRAMMAR_MAX_TEXT_BYTES);
    struct parser p = {.tok = tok, .text = text, .start = start, .len = len, .err = err};
    if (getrandom(&p.seed, sizeof p.seed, 0) < 0)
        p.seed = (uintptr_t)&p; /* as good as nothing better */
    p.g = calloc(1, sizeof *p.g);
    if (!p.g)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    enum sl_status status = SL_OK;
    for (skip_space(&p); status == SL_OK && p.at < p.len; skip_space(&p))
        status = rule(&p);
    if (status == SL_OK)
        status = check_names(&p);
    if (status == SL_OK)
        status = sl_g_finish(p.g, err);
    free(p.names);
    free(p.ranges);
    free(p.g->class_slots);
    p.g->class_slots = NULL;
    if (status != SL_OK) {
        sl_grammar_destroy(&p.g);
        return status;
    }
    *out_grammar = p.g;
    return SL_OK;
}
