/* What the compiler's files share: errors and where they are, nodes of the tree and how deep it is,
 * the token that comes. */
#include "model/jinja/jinja_ast.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The parser's frames and the evaluator's are some hundred bytes each. */
enum { MAX_NESTING = 150, MAX_TREE_DEPTH = 400, MAX_WORK = 100000000 };

void sl_j_position(const char *source, size_t len, uint32_t off, unsigned *out_line,
                   unsigned *out_col) {
    *out_line = 1;
    *out_col = 1;
    for (size_t i = 0; i < off && i < len; i++) {
        if (source[i] == '\n') {
            ++*out_line;
            *out_col = 1;
        } else if (((unsigned char)source[i] & 0xc0) != 0x80) {
            ++*out_col;
        }
    }
}

void sl_jc_fail(struct sl_jc *c, uint32_t off, const char *fmt, ...) {
    char text[384];
    unsigned line, col;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    sl_j_position(c->source, c->len, off, &line, &col);
    c->status =
        sl_fail(c->err, SL_ERR_INVALID, "chat template line %u, column %u: %s", line, col, text);
    longjmp(c->jump, 1);
}

void *sl_jc_alloc(struct sl_jc *c, size_t size_bytes) {
    void *p = sl_j_arena_alloc(&c->arena, size_bytes);
    if (!p) {
        c->status = sl_fail(c->err, SL_ERR_INVALID,
                            "chat template: needs more than %zu MiB of "
                            "memory to compile",
                            c->arena.limit_bytes >> 20);
        longjmp(c->jump, 1);
    }
    return memset(p, 0, size_bytes);
}

void sl_jc_charge(struct sl_jc *c, uint64_t n) {
    if (n <= MAX_WORK - c->work) {
        c->work += n;
        return;
    }
    c->status = sl_fail(c->err, SL_ERR_INVALID,
                        "chat template: takes too long to compile: it has too many variables, "
                        "arguments or nested blocks; use a smaller one");
    longjmp(c->jump, 1);
}

struct sl_jnode *sl_jc_node(struct sl_jc *c, enum sl_j_kind kind, uint32_t off) {
    struct sl_jnode *n = sl_jc_alloc(c, sizeof *n);
    n->kind = (uint8_t)kind;
    n->off = off;
    n->loop_slot = -1;
    return n;
}

void sl_jc_child(struct sl_jc *c, struct sl_jnode *n, const struct sl_jnode *child) {
    if (!child || child->depth < n->depth)
        return;
    if (child->depth >= MAX_TREE_DEPTH)
        sl_jc_fail(c, n->off, "expression is nested more than %d deep", MAX_TREE_DEPTH);
    n->depth = (uint16_t)(child->depth + 1);
}

void sl_jc_push(struct sl_jc *c, struct sl_jlist_of *l, struct sl_jnode *n) {
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 4;
        struct sl_jnode **v = sl_jc_alloc(c, cap * sizeof *v);
        if (l->n)
            memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
}

void sl_jc_enter(struct sl_jc *c) {
    if (++c->depth > MAX_NESTING)
        sl_jc_fail(c, sl_jc_tok(c)->off, "nested more than %d deep", MAX_NESTING);
}

void sl_jc_leave(struct sl_jc *c) {
    c->depth--;
}

struct sl_j_token *sl_jc_tok(struct sl_jc *c) {
    return &c->tok[c->pos];
}

struct sl_j_token *sl_jc_look(struct sl_jc *c) {
    return &c->tok[c->pos + (c->pos + 1 < c->n_tok)];
}

struct sl_j_token *sl_jc_next(struct sl_jc *c) {
    struct sl_j_token *t = &c->tok[c->pos];
    if (c->pos + 1 < c->n_tok)
        c->pos++;
    return t;
}

static bool tok_is_name(const struct sl_j_token *t, const char *name) {
    return t->type == SL_T_NAME && (!name || sl_j_str_is(t->u.s, name));
}

bool sl_jc_is_op(struct sl_jc *c, int op) {
    const struct sl_j_token *t = sl_jc_tok(c);
    return t->type == SL_T_OP && t->op == op;
}

bool sl_jc_is_name(struct sl_jc *c, const char *name) {
    return tok_is_name(sl_jc_tok(c), name);
}

bool sl_jc_skip_op(struct sl_jc *c, int op) {
    bool is = sl_jc_is_op(c, op);
    if (is)
        sl_jc_next(c);
    return is;
}

bool sl_jc_skip_name(struct sl_jc *c, const char *name) {
    bool is = sl_jc_is_name(c, name);
    if (is)
        sl_jc_next(c);
    return is;
}

const char *sl_jc_describe(struct sl_jc *c, const struct sl_j_token *t) {
    static const char *const kind[] = {
        "end of template", "text",       "{{",      "}}", "{%", "%}", "",
        "a string",        "an integer", "a number"};
    if (t->type == SL_T_NAME || t->type == SL_T_OP) {
        size_t n = t->type == SL_T_NAME ? t->u.s->len : t->op >= 128 ? 2 : 1;
        if (n > 40)
            n = 40;
        char *s = sl_jc_alloc(c, n + 3);
        snprintf(s, n + 3, "'%.*s'", (int)n, c->source + t->off);
        return s;
    }
    return kind[t->type];
}

void sl_jc_unexpected(struct sl_jc *c, const char *wanted) {
    sl_jc_fail(c, sl_jc_tok(c)->off, "expected %s, got %s", wanted,
               sl_jc_describe(c, sl_jc_tok(c)));
}

void sl_jc_expect_op(struct sl_jc *c, int op) {
    char want[4] = {'\'', (char)op, '\'', 0};
    if (!sl_jc_skip_op(c, op))
        sl_jc_unexpected(c, want);
}

const struct sl_jstr *sl_jc_expect_name(struct sl_jc *c) {
    if (!sl_jc_is_name(c, NULL))
        sl_jc_unexpected(c, "a name");
    return sl_jc_next(c)->u.s;
}
