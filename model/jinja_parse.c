/* Statements of a template. The parser descends one C frame per nested statement or bracket, so its
 * depth is bounded.
 * Source: Jinja2's template documentation. */
#include "model/jinja_ast.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The parser's frames and the evaluator's are some hundred bytes each. */
enum { MAX_NESTING = 150, MAX_TREE_DEPTH = 400 };

/* ---- shared by the compiler's files ---- */

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

static void expect_word(struct sl_jc *c, const char *word) {
    char want[32];
    snprintf(want, sizeof want, "'%s'", word);
    if (!sl_jc_skip_name(c, word))
        sl_jc_unexpected(c, want);
}

/* ---- statements ---- */

static struct sl_jnode *statement(struct sl_jc *c);

/* Up to a tag whose first word is one of `ends` (NULL: the end of the template); stops at that
 * word. */
static struct sl_jnode *body_until(struct sl_jc *c, const char *const *ends, uint32_t open) {
    struct sl_jlist_of body = {0}, text = {0};
    struct sl_jnode *n = sl_jc_node(c, SL_N_BODY, open);
    sl_jc_enter(c);
    for (;;) {
        struct sl_j_token *t = sl_jc_tok(c);
        struct sl_jnode *piece = NULL;
        if (t->type == SL_T_DATA) {
            piece = sl_jc_node(c, SL_N_DATA, t->off);
            piece->value = sl_j_of_str(sl_jc_next(c)->u.s);
        } else if (t->type == SL_T_VAR_BEGIN) {
            sl_jc_next(c);
            piece = sl_jc_tuple(c, 0, NULL);
            if (sl_jc_tok(c)->type != SL_T_VAR_END)
                sl_jc_unexpected(c, "'}}'");
            sl_jc_next(c);
        }
        if (piece) {
            sl_jc_push(c, &text, piece);
            continue;
        }
        if (text.n) {
            struct sl_jnode *o = sl_jc_node(c, SL_N_OUTPUT, text.v[0]->off);
            o->list = text.v;
            o->n = text.n;
            for (uint32_t i = 0; i < o->n; i++)
                sl_jc_child(c, o, o->list[i]);
            sl_jc_push(c, &body, o);
            text = (struct sl_jlist_of){0};
        }
        if (t->type == SL_T_EOF) {
            if (ends)
                sl_jc_fail(c, open,
                           "this block is never closed: the template ends without {%% %s %%}",
                           ends[0]);
            break;
        }
        sl_jc_next(c); /* {% */
        bool done = false;
        for (const char *const *e = ends; e && *e; e++)
            done |= sl_jc_is_name(c, *e);
        if (done)
            break;
        sl_jc_push(c, &body, statement(c));
        if (sl_jc_tok(c)->type != SL_T_BLOCK_END)
            sl_jc_unexpected(c, "'%}'");
        sl_jc_next(c);
    }
    sl_jc_leave(c);
    n->list = body.v;
    n->n = body.n;
    for (uint32_t i = 0; i < n->n; i++)
        sl_jc_child(c, n, n->list[i]);
    return n;
}

/* "%} ... {% end"; with ends of one word that word is passed too. */
static struct sl_jnode *block_body(struct sl_jc *c, const char *const *ends, uint32_t open) {
    sl_jc_skip_op(c, ':');
    if (sl_jc_tok(c)->type != SL_T_BLOCK_END)
        sl_jc_unexpected(c, "'%}'");
    sl_jc_next(c);
    struct sl_jnode *n = body_until(c, ends, open);
    if (!ends[1])
        sl_jc_next(c);
    return n;
}

static struct sl_jnode *simple_body(struct sl_jc *c, const char *end, uint32_t open) {
    const char *const ends[] = {end, NULL};
    return block_body(c, ends, open);
}

static void check_target(struct sl_jc *c, const struct sl_jnode *n) {
    if (n->kind == SL_N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++)
            check_target(c, n->list[i]);
    } else if (n->kind != SL_N_NAME) {
        sl_jc_fail(c, n->off, "cannot assign to this");
    }
}

static struct sl_jnode *name_node(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jnode *n = sl_jc_node(c, SL_N_NAME, off);
    n->name = sl_jc_expect_name(c);
    static const char *const constant[] = {"true", "false", "none", "True", "False", "None"};
    for (size_t i = 0; i < sizeof constant / sizeof *constant; i++)
        if (sl_j_str_is(n->name, constant[i]))
            sl_jc_fail(c, off, "cannot assign to '%s'", constant[i]);
    return n;
}

static struct sl_jnode *target(struct sl_jc *c, bool with_ns, const char *end) {
    struct sl_j_token *look = sl_jc_look(c);
    if (with_ns && look->type == SL_T_OP && look->op == '.') {
        struct sl_jnode *n = sl_jc_node(c, SL_N_NSREF, sl_jc_tok(c)->off);
        n->a = sl_jc_node(c, SL_N_NAME, n->off);
        n->a->name = sl_jc_expect_name(c);
        sl_jc_next(c);
        n->name = sl_jc_expect_name(c);
        return n;
    }
    struct sl_jnode *n = sl_jc_tuple(c, SL_TUPLE_SIMPLE, end);
    check_target(c, n);
    return n;
}

static struct sl_jnode *parse_for(struct sl_jc *c, uint32_t off) {
    static const char *const ends[] = {"endfor", "else", NULL};
    struct sl_jnode *n = sl_jc_node(c, SL_N_FOR, off);
    n->a = target(c, false, "in");
    expect_word(c, "in");
    n->b = sl_jc_tuple(c, SL_TUPLE_NO_COND, "recursive");
    if (sl_jc_skip_name(c, "if"))
        n->d = sl_jc_expression(c, true);
    n->flag = sl_jc_skip_name(c, "recursive");
    n->body = block_body(c, ends, off);
    if (sl_jc_is_name(c, "else")) {
        sl_jc_next(c);
        n->else_body = simple_body(c, "endfor", off);
    } else {
        sl_jc_next(c);
    }
    return n;
}

static struct sl_jnode *parse_if(struct sl_jc *c, uint32_t off) {
    static const char *const ends[] = {"endif", "elif", "else", NULL};
    struct sl_jnode *n = sl_jc_node(c, SL_N_IF, off);
    struct sl_jlist_of l = {0};
    for (;;) {
        sl_jc_push(c, &l, sl_jc_tuple(c, SL_TUPLE_NO_COND, NULL));
        sl_jc_push(c, &l, block_body(c, ends, off));
        bool more = sl_jc_is_name(c, "elif"), last = sl_jc_is_name(c, "else");
        sl_jc_next(c);
        if (more)
            continue;
        if (last)
            n->c = simple_body(c, "endif", off);
        break;
    }
    n->list = l.v;
    n->n = l.n;
    for (uint32_t i = 0; i < n->n; i++)
        sl_jc_child(c, n, n->list[i]);
    return n;
}

static struct sl_jparams *signature(struct sl_jc *c, bool present) {
    struct sl_jparams *p = sl_jc_alloc(c, sizeof *p);
    struct sl_jlist_of names = {0}, fallbacks = {0};
    p->caller_slot = p->kwargs_slot = p->varargs_slot = -1;
    if (!present)
        return p;
    bool optional = false;
    sl_jc_expect_op(c, '(');
    while (!sl_jc_is_op(c, ')')) {
        if (names.n)
            sl_jc_expect_op(c, ',');
        struct sl_jnode *name = name_node(c), *fallback = NULL;
        for (uint32_t i = 0; i < names.n; i++)
            if (sl_j_str_eq(names.v[i]->name, name->name))
                sl_jc_fail(c, name->off, "the parameter '%.*s' is there twice",
                           (int)name->name->len, name->name->p);
        if (sl_jc_skip_op(c, '=')) {
            fallback = sl_jc_expression(c, true);
            optional = true;
        } else if (optional) {
            sl_jc_fail(c, name->off, "parameter without a default after one with a default");
        }
        sl_jc_push(c, &names, name);
        sl_jc_push(c, &fallbacks, fallback);
    }
    sl_jc_next(c);
    p->name = names.v;
    p->fallback = fallbacks.v;
    p->n = names.n;
    return p;
}

static struct sl_jnode *parse_call_block(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_CALLBLOCK, off);
    n->params = signature(c, sl_jc_is_op(c, '('));
    n->a = sl_jc_expression(c, true);
    if (n->a->kind != SL_N_CALL)
        sl_jc_fail(c, off, "{%% call %%} wants a call");
    n->body = simple_body(c, "endcall", off);
    return n;
}

static struct sl_jnode *parse_set(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_SET, off);
    n->a = target(c, true, NULL);
    if (sl_jc_skip_op(c, '=')) {
        n->b = sl_jc_tuple(c, 0, NULL);
        return n;
    }
    n->kind = SL_N_SETBLOCK;
    n->b = sl_jc_filters(c, NULL, false);
    n->body = simple_body(c, "endset", off);
    return n;
}

static struct sl_jnode *parse_with(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_WITH, off);
    struct sl_jlist_of l = {0};
    while (sl_jc_tok(c)->type != SL_T_BLOCK_END) {
        if (l.n)
            sl_jc_expect_op(c, ',');
        struct sl_jnode *t = target(c, false, NULL);
        sl_jc_push(c, &l, t);
        sl_jc_expect_op(c, '=');
        sl_jc_push(c, &l, sl_jc_expression(c, true));
    }
    n->list = l.v;
    n->n = l.n;
    for (uint32_t i = 0; i < n->n; i++)
        sl_jc_child(c, n, n->list[i]);
    n->body = simple_body(c, "endwith", off);
    return n;
}

static struct sl_jnode *parse_block(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_BLOCK, off);
    n->name = sl_jc_expect_name(c);
    if (sl_jc_skip_name(c, "scoped"))
        sl_jc_fail(c, off, "scoped blocks are not supported");
    n->flag = sl_jc_skip_name(c, "required");
    n->body = simple_body(c, "endblock", off);
    if (sl_jc_is_name(c, NULL) && sl_j_str_eq(sl_jc_tok(c)->u.s, n->name))
        sl_jc_next(c);
    c->has_blocks = true;
    return n;
}

/* Tags that would read other files: they parse, and fail when reached. */
static struct sl_jnode *parse_refused(struct sl_jc *c, uint32_t off, const struct sl_jstr *tag) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_REFUSE, off);
    n->name = tag;
    while (sl_jc_tok(c)->type != SL_T_BLOCK_END && sl_jc_tok(c)->type != SL_T_EOF)
        sl_jc_next(c);
    return n;
}

static struct sl_jnode *parse_macro(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_MACRO, off);
    n->a = name_node(c);
    n->name = n->a->name;
    n->params = signature(c, true);
    n->body = simple_body(c, "endmacro", off);
    return n;
}

static struct sl_jnode *parse_filter_block(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_FILTERBLOCK, off);
    n->a = sl_jc_filters(c, NULL, true);
    n->body = simple_body(c, "endfilter", off);
    return n;
}

static struct sl_jnode *parse_generation(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_CALLBLOCK, off);
    n->params = signature(c, false);
    n->body = simple_body(c, "endgeneration", off);
    return n;
}

static struct sl_jnode *parse_autoescape(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_SCOPE, off), *on = sl_jc_expression(c, true);
    if (on->kind != SL_N_CONST || on->value.type != SL_J_BOOL || on->value.b)
        sl_jc_fail(c, off, "{%% autoescape %%} other than false is not supported");
    n->body = simple_body(c, "endautoescape", off);
    return n;
}

static struct sl_jnode *parse_print(struct sl_jc *c, uint32_t off) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_OUTPUT, off);
    struct sl_jlist_of l = {0};
    while (sl_jc_tok(c)->type != SL_T_BLOCK_END) {
        if (l.n)
            sl_jc_expect_op(c, ',');
        sl_jc_push(c, &l, sl_jc_expression(c, true));
        sl_jc_child(c, n, l.v[l.n - 1]);
    }
    n->list = l.v;
    n->n = l.n;
    return n;
}

static struct sl_jnode *parse_break(struct sl_jc *c, uint32_t off) {
    return sl_jc_node(c, SL_N_BREAK, off);
}

static struct sl_jnode *parse_continue(struct sl_jc *c, uint32_t off) {
    return sl_jc_node(c, SL_N_CONTINUE, off);
}

static struct sl_jnode *parse_tag(struct sl_jc *c, uint32_t off, const struct sl_jstr *tag) {
    static const struct {
        const char *name;
        struct sl_jnode *(*parse)(struct sl_jc *c, uint32_t off);
    } tags[] = {{"for", parse_for},
                {"if", parse_if},
                {"set", parse_set},
                {"with", parse_with},
                {"call", parse_call_block},
                {"block", parse_block},
                {"macro", parse_macro},
                {"filter", parse_filter_block},
                {"generation", parse_generation},
                {"autoescape", parse_autoescape},
                {"print", parse_print},
                {"break", parse_break},
                {"continue", parse_continue}};
    static const char *const refused[] = {"include", "import", "from", "extends"};
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (sl_j_str_is(tag, tags[i].name))
            return tags[i].parse(c, off);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (sl_j_str_is(tag, refused[i]))
            return parse_refused(c, off, tag);
    sl_jc_fail(c, off, "unknown tag '%.*s'", (int)(tag->len > 40 ? 40 : tag->len), tag->p);
}

static struct sl_jnode *statement(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    if (!sl_jc_is_name(c, NULL))
        sl_jc_unexpected(c, "a tag name");
    sl_jc_enter(c);
    struct sl_jnode *n = parse_tag(c, off, sl_jc_next(c)->u.s);
    sl_jc_leave(c);
    sl_jc_child(c, n, n->a);
    sl_jc_child(c, n, n->b);
    sl_jc_child(c, n, n->c);
    sl_jc_child(c, n, n->d);
    sl_jc_child(c, n, n->body);
    sl_jc_child(c, n, n->else_body);
    for (uint32_t i = 0; n->params && i < n->params->n; i++)
        sl_jc_child(c, n, n->params->fallback[i]);
    return n;
}

struct sl_jnode *sl_jc_parse(struct sl_jc *c) {
    return body_until(c, NULL, 0);
}
