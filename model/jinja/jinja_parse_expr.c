/* Expressions of a template. Runs of one precedence become one node with a list, so that a long sum
 * is not a deep tree.
 * Source: Jinja2's template documentation, "Expressions"; its operator precedence. */
#include "model/jinja/jinja_ast.h"

#include <string.h>

static struct sl_jnode *or_expr(struct sl_jc *c);
static struct sl_jnode *unary(struct sl_jc *c, bool with_filter);

static struct sl_jnode *list_node(struct sl_jc *c, enum sl_j_kind kind, uint32_t off,
                                  struct sl_jlist_of *l, uint8_t *ops) {
    struct sl_jnode *n = sl_jc_node(c, kind, off);
    n->list = l->v;
    n->n = l->n;
    for (uint32_t i = 0; i < n->n; i++)
        sl_jc_child(c, n, n->list[i]);
    if (ops) {
        n->ops = sl_jc_alloc(c, n->n);
        memcpy(n->ops, ops, n->n - 1);
    }
    return n;
}

enum { MAX_RUN = 4096 }; /* operands of one run */

static void run_push(struct sl_jc *c, struct sl_jlist_of *l, uint8_t **ops, int op,
                     struct sl_jnode *n) {
    if (l->n >= MAX_RUN)
        sl_jc_fail(c, n->off, "more than %d operands in a row", MAX_RUN);
    uint32_t i = l->n - 1;
    if (i == 0 || (i >= 8 && (i & (i - 1)) == 0)) {
        uint8_t *grown = sl_jc_alloc(c, i ? 2 * i : 8);
        if (i)
            memcpy(grown, *ops, i);
        *ops = grown;
    }
    (*ops)[i] = (uint8_t)op;
    sl_jc_push(c, l, n);
}

static struct sl_jnode *pow_expr(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    uint8_t *ops = NULL;
    sl_jc_push(c, &l, unary(c, true));
    while (sl_jc_skip_op(c, SL_OP_POW))
        run_push(c, &l, &ops, SL_OP_POW, unary(c, true));
    return l.n == 1 ? l.v[0] : list_node(c, SL_N_MATH, off, &l, ops);
}

static struct sl_jnode *product(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    uint8_t *ops = NULL;
    sl_jc_push(c, &l, pow_expr(c));
    while (sl_jc_is_op(c, '*') || sl_jc_is_op(c, '/') || sl_jc_is_op(c, '%') ||
           sl_jc_is_op(c, SL_OP_FLOORDIV)) {
        int op = sl_jc_next(c)->op;
        run_push(c, &l, &ops, op, pow_expr(c));
    }
    return l.n == 1 ? l.v[0] : list_node(c, SL_N_MATH, off, &l, ops);
}

static struct sl_jnode *concat(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    sl_jc_push(c, &l, product(c));
    while (sl_jc_skip_op(c, '~'))
        sl_jc_push(c, &l, product(c));
    return l.n == 1 ? l.v[0] : list_node(c, SL_N_CONCAT, off, &l, NULL);
}

static struct sl_jnode *sum(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    uint8_t *ops = NULL;
    sl_jc_push(c, &l, concat(c));
    while (sl_jc_is_op(c, '+') || sl_jc_is_op(c, '-')) {
        int op = sl_jc_next(c)->op;
        run_push(c, &l, &ops, op, concat(c));
    }
    return l.n == 1 ? l.v[0] : list_node(c, SL_N_MATH, off, &l, ops);
}

static struct sl_jnode *compare(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    uint8_t *ops = NULL;
    sl_jc_push(c, &l, sum(c));
    for (;;) {
        int op;
        const struct sl_j_token *t = sl_jc_tok(c), *look = sl_jc_look(c);
        if (sl_jc_is_op(c, SL_OP_EQ) || sl_jc_is_op(c, SL_OP_NE) || sl_jc_is_op(c, '<') ||
            sl_jc_is_op(c, '>') || sl_jc_is_op(c, SL_OP_LE) || sl_jc_is_op(c, SL_OP_GE)) {
            op = t->op;
        } else if (sl_jc_is_name(c, "in")) {
            op = SL_OP_IN;
        } else if (sl_jc_is_name(c, "not") && look->type == SL_T_NAME &&
                   sl_j_str_is(look->u.s, "in")) {
            op = SL_OP_NOTIN;
            sl_jc_next(c);
        } else {
            break;
        }
        sl_jc_next(c);
        run_push(c, &l, &ops, op, sum(c));
    }
    return l.n == 1 ? l.v[0] : list_node(c, SL_N_COMPARE, off, &l, ops);
}

static struct sl_jnode *not_expr(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    if (!sl_jc_skip_name(c, "not"))
        return compare(c);
    sl_jc_enter(c);
    struct sl_jnode *n = sl_jc_node(c, SL_N_NOT, off);
    n->a = not_expr(c);
    sl_jc_leave(c);
    sl_jc_child(c, n, n->a);
    return n;
}

static struct sl_jnode *and_expr(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    sl_jc_push(c, &l, not_expr(c));
    while (sl_jc_skip_name(c, "and"))
        sl_jc_push(c, &l, not_expr(c));
    return l.n == 1 ? l.v[0] : list_node(c, SL_N_AND, off, &l, NULL);
}

static struct sl_jnode *or_expr(struct sl_jc *c) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    sl_jc_push(c, &l, and_expr(c));
    while (sl_jc_skip_name(c, "or"))
        sl_jc_push(c, &l, and_expr(c));
    return l.n == 1 ? l.v[0] : list_node(c, SL_N_OR, off, &l, NULL);
}

struct sl_jnode *sl_jc_expression(struct sl_jc *c, bool with_cond) {
    uint32_t off = sl_jc_tok(c)->off;
    sl_jc_enter(c);
    struct sl_jnode *n = or_expr(c);
    while (with_cond && sl_jc_skip_name(c, "if")) {
        struct sl_jnode *cond = sl_jc_node(c, SL_N_COND, off);
        cond->b = n;
        cond->a = or_expr(c);
        if (sl_jc_skip_name(c, "else"))
            cond->c = sl_jc_expression(c, true);
        sl_jc_child(c, cond, cond->a);
        sl_jc_child(c, cond, cond->b);
        sl_jc_child(c, cond, cond->c);
        n = cond;
    }
    sl_jc_leave(c);
    return n;
}

static bool tuple_end(struct sl_jc *c, const char *end) {
    const struct sl_j_token *t = sl_jc_tok(c);
    return t->type == SL_T_VAR_END || t->type == SL_T_BLOCK_END || sl_jc_is_op(c, ')') ||
           (end && sl_jc_is_name(c, end));
}

struct sl_jnode *sl_jc_tuple(struct sl_jc *c, unsigned flags, const char *end) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jlist_of l = {0};
    bool is_tuple = false;
    for (;;) {
        if (l.n)
            sl_jc_expect_op(c, ',');
        if (tuple_end(c, end))
            break;
        sl_jc_push(c, &l,
                   flags & SL_TUPLE_SIMPLE ? sl_jc_primary(c)
                                           : sl_jc_expression(c, !(flags & SL_TUPLE_NO_COND)));
        if (!sl_jc_is_op(c, ','))
            break;
        is_tuple = true;
    }
    if (!is_tuple && l.n)
        return l.v[0];
    if (!is_tuple && !(flags & SL_TUPLE_PARENS))
        sl_jc_unexpected(c, "an expression");
    return list_node(c, SL_N_TUPLE, off, &l, NULL);
}

static struct sl_jnode *string_const(struct sl_jc *c) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_CONST, sl_jc_tok(c)->off);
    const struct sl_jstr *s = sl_jc_next(c)->u.s;
    size_t first = c->pos, total = s->len;
    while (sl_jc_tok(c)->type == SL_T_STRING)
        total += sl_jc_next(c)->u.s->len;
    if (c->pos > first) { /* neighbours are one string */
        char *p = sl_jc_alloc(c, total + 1), *q = p;
        memcpy(q, s->p, s->len);
        q += s->len;
        for (size_t i = first; i < c->pos; i++) {
            memcpy(q, c->tok[i].u.s->p, c->tok[i].u.s->len);
            q += c->tok[i].u.s->len;
        }
        s = sl_jc_str(c, p, total);
    }
    n->value = sl_j_of_str(s);
    return n;
}

/* [a, b,] or {k: v,}: up to the closing bracket. */
static struct sl_jnode *brackets(struct sl_jc *c, enum sl_j_kind kind, int close) {
    uint32_t off = sl_jc_next(c)->off;
    struct sl_jlist_of l = {0};
    while (!sl_jc_is_op(c, close)) {
        if (l.n) {
            sl_jc_expect_op(c, ',');
            if (sl_jc_is_op(c, close))
                break;
        }
        sl_jc_push(c, &l, sl_jc_expression(c, true));
        if (kind == SL_N_DICT) {
            sl_jc_expect_op(c, ':');
            sl_jc_push(c, &l, sl_jc_expression(c, true));
        }
    }
    sl_jc_expect_op(c, close);
    return list_node(c, kind, off, &l, NULL);
}

struct sl_jnode *sl_jc_primary(struct sl_jc *c) {
    struct sl_j_token *t = sl_jc_tok(c);
    struct sl_jnode *n;
    if (t->type == SL_T_STRING)
        return string_const(c);
    if (sl_jc_is_op(c, '[') || sl_jc_is_op(c, '{') || sl_jc_is_op(c, '(')) {
        sl_jc_enter(c);
        if (t->op == '(') {
            sl_jc_next(c);
            n = sl_jc_tuple(c, SL_TUPLE_PARENS, NULL);
            sl_jc_expect_op(c, ')');
        } else {
            n = t->op == '[' ? brackets(c, SL_N_LIST, ']') : brackets(c, SL_N_DICT, '}');
        }
        sl_jc_leave(c);
        return n;
    }
    n = sl_jc_node(c, SL_N_CONST, t->off);
    if (t->type == SL_T_INT) {
        n->value = sl_j_int(t->u.i);
    } else if (t->type == SL_T_FLOAT) {
        n->value = sl_j_float(t->u.f);
    } else if (sl_jc_is_name(c, "true") || sl_jc_is_name(c, "True")) {
        n->value = sl_j_bool(true);
    } else if (sl_jc_is_name(c, "false") || sl_jc_is_name(c, "False")) {
        n->value = sl_j_bool(false);
    } else if (sl_jc_is_name(c, "none") || sl_jc_is_name(c, "None")) {
        n->value = sl_j_none();
    } else if (t->type == SL_T_NAME) {
        n->kind = SL_N_NAME;
        n->name = t->u.s;
    } else {
        sl_jc_unexpected(c, "an expression");
    }
    sl_jc_next(c);
    return n;
}

/* ---- what may follow an operand ---- */

static struct sl_jargs *call_args(struct sl_jc *c, struct sl_jnode *owner) {
    struct sl_jargs *a = sl_jc_alloc(c, sizeof *a);
    struct sl_jlist_of pos = {0}, kw = {0}, names = {0};
    uint32_t off = sl_jc_tok(c)->off;
    bool comma = false, ok = true;
    sl_jc_expect_op(c, '(');
    while (!sl_jc_is_op(c, ')')) {
        if (comma) {
            sl_jc_expect_op(c, ',');
            if (sl_jc_is_op(c, ')'))
                break;
        }
        comma = true;
        const struct sl_j_token *look = sl_jc_look(c);
        if (sl_jc_skip_op(c, '*')) {
            ok &= !a->star && !a->star2;
            sl_jc_child(c, owner, a->star = sl_jc_expression(c, true));
        } else if (sl_jc_skip_op(c, SL_OP_POW)) {
            ok &= !a->star2;
            sl_jc_child(c, owner, a->star2 = sl_jc_expression(c, true));
        } else if (sl_jc_is_name(c, NULL) && look->type == SL_T_OP && look->op == '=') {
            ok &= !a->star2;
            struct sl_jnode *name = sl_jc_node(c, SL_N_NAME, sl_jc_tok(c)->off);
            name->name = sl_jc_next(c)->u.s;
            sl_jc_next(c);
            sl_jc_charge(c, names.n);
            for (uint32_t i = 0; i < names.n; i++)
                if (sl_j_str_eq(names.v[i]->name, name->name))
                    sl_jc_fail(c, name->off, "the argument '%.*s' is there twice",
                               (int)name->name->len, name->name->p);
            sl_jc_push(c, &names, name);
            sl_jc_push(c, &kw, sl_jc_expression(c, true));
            sl_jc_child(c, owner, kw.v[kw.n - 1]);
        } else {
            ok &= !a->star && !a->star2 && !kw.n;
            sl_jc_push(c, &pos, sl_jc_expression(c, true));
            sl_jc_child(c, owner, pos.v[pos.n - 1]);
        }
        if (!ok)
            sl_jc_fail(c, off, "arguments of this call are in the wrong order");
    }
    sl_jc_expect_op(c, ')');
    a->pos = pos.v;
    a->n_pos = pos.n;
    a->kw = kw.v;
    a->n_kw = kw.n;
    a->kw_name = sl_jc_alloc(c, names.n * sizeof *a->kw_name);
    for (uint32_t i = 0; i < names.n; i++)
        a->kw_name[i] = names.v[i]->name;
    return a;
}

static struct sl_jnode *call(struct sl_jc *c, struct sl_jnode *f) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_CALL, f->off);
    n->a = f;
    sl_jc_child(c, n, f);
    n->args = call_args(c, n);
    return n;
}

static struct sl_jnode *subscript(struct sl_jc *c, struct sl_jnode *of) {
    struct sl_jnode *n = sl_jc_node(c, SL_N_GETITEM, sl_jc_tok(c)->off);
    n->a = of;
    if (sl_jc_skip_op(c, '.')) {
        n->off = sl_jc_tok(c)->off;
        if (sl_jc_is_name(c, NULL)) {
            n->kind = SL_N_GETATTR;
            n->name = sl_jc_next(c)->u.s;
        } else if (sl_jc_tok(c)->type == SL_T_INT) {
            n->b = sl_jc_primary(c);
        } else {
            sl_jc_unexpected(c, "a name or number after '.'");
        }
        sl_jc_child(c, n, of);
        return n;
    }
    sl_jc_next(c);
    struct sl_jlist_of l = {0};
    struct sl_jnode *part[3] = {0};
    int colons = 0;
    uint32_t off = sl_jc_tok(c)->off;
    while (!sl_jc_is_op(c, ']')) {
        if (sl_jc_is_op(c, ':') && colons < 2 && l.n == 0) {
            sl_jc_next(c);
            colons++;
        } else if (sl_jc_is_op(c, ',') && !colons) {
            sl_jc_push(c, &l, part[0]);
            part[0] = NULL;
            if (!l.v[l.n - 1])
                sl_jc_unexpected(c, "an expression");
            sl_jc_next(c);
        } else if (!part[colons]) {
            part[colons] = sl_jc_expression(c, true);
        } else {
            sl_jc_unexpected(c, "']'");
        }
    }
    sl_jc_next(c);
    if (colons) {
        n->kind = SL_N_SLICE;
        n->b = part[0];
        n->c = part[1];
        n->d = part[2];
        for (int i = 0; i < 3; i++)
            sl_jc_child(c, n, part[i]);
    } else if (l.n || !part[0]) {
        if (part[0])
            sl_jc_push(c, &l, part[0]);
        n->b = list_node(c, SL_N_TUPLE, off, &l, NULL);
    } else {
        n->b = part[0];
    }
    sl_jc_child(c, n, n->b);
    sl_jc_child(c, n, of);
    return n;
}

static struct sl_jnode *postfix(struct sl_jc *c, struct sl_jnode *n) {
    for (;;) {
        if (sl_jc_is_op(c, '.') || sl_jc_is_op(c, '['))
            n = subscript(c, n);
        else if (sl_jc_is_op(c, '('))
            n = call(c, n);
        else
            return n;
    }
}

/* A filter's or test's name may have dots; no such name exists here, so they only make it unknown.
 */
static const struct sl_jstr *dotted_name(struct sl_jc *c) {
    const struct sl_jstr *s = sl_jc_expect_name(c);
    while (sl_jc_skip_op(c, '.')) {
        const struct sl_jstr *more = sl_jc_expect_name(c);
        s = sl_jc_str(c, s->p, (size_t)(more->p + more->len - s->p));
    }
    return s;
}

struct sl_jnode *sl_jc_filters(struct sl_jc *c, struct sl_jnode *n, bool inline_first) {
    while (inline_first || sl_jc_skip_op(c, '|')) {
        inline_first = false;
        struct sl_jnode *f = sl_jc_node(c, SL_N_FILTER, sl_jc_tok(c)->off);
        f->a = n;
        f->name = dotted_name(c);
        f->impl = sl_j_find_filter(f->name->p, f->name->len);
        if (n)
            sl_jc_child(c, f, n);
        if (sl_jc_is_op(c, '('))
            f->args = call_args(c, f);
        n = f;
    }
    return n;
}

static struct sl_jnode *test(struct sl_jc *c, struct sl_jnode *of) {
    uint32_t off = sl_jc_next(c)->off; /* is */
    bool negated = sl_jc_skip_name(c, "not");
    struct sl_jnode *n = sl_jc_node(c, SL_N_TEST, off);
    n->a = of;
    n->name = dotted_name(c);
    n->impl = sl_j_find_test(n->name->p, n->name->len);
    sl_jc_child(c, n, of);
    const struct sl_j_token *t = sl_jc_tok(c);
    if (sl_jc_is_op(c, '(')) {
        n->args = call_args(c, n);
    } else if ((t->type == SL_T_NAME && !sl_jc_is_name(c, "else") && !sl_jc_is_name(c, "or") &&
                !sl_jc_is_name(c, "and")) ||
               t->type == SL_T_STRING || t->type == SL_T_INT || t->type == SL_T_FLOAT ||
               sl_jc_is_op(c, '[') || sl_jc_is_op(c, '{')) {
        if (sl_jc_is_name(c, "is"))
            sl_jc_fail(c, t->off, "tests cannot be chained with 'is'");
        n->args = sl_jc_alloc(c, sizeof *n->args);
        n->args->pos = sl_jc_alloc(c, sizeof *n->args->pos);
        n->args->pos[0] = postfix(c, sl_jc_primary(c));
        n->args->n_pos = 1;
        sl_jc_child(c, n, n->args->pos[0]);
    }
    if (!negated)
        return n;
    struct sl_jnode *not_node = sl_jc_node(c, SL_N_NOT, off);
    not_node->a = n;
    sl_jc_child(c, not_node, n);
    return not_node;
}

static struct sl_jnode *unary(struct sl_jc *c, bool with_filter) {
    uint32_t off = sl_jc_tok(c)->off;
    struct sl_jnode *n;
    if (sl_jc_is_op(c, '-') || sl_jc_is_op(c, '+')) {
        n = sl_jc_node(c, sl_jc_next(c)->op == '-' ? SL_N_NEG : SL_N_POS, off);
        sl_jc_enter(c);
        n->a = unary(c, false);
        sl_jc_leave(c);
        sl_jc_child(c, n, n->a);
    } else {
        n = sl_jc_primary(c);
    }
    n = postfix(c, n);
    while (with_filter) {
        if (sl_jc_is_op(c, '|'))
            n = sl_jc_filters(c, n, false);
        else if (sl_jc_is_name(c, "is"))
            n = test(c, n);
        else if (sl_jc_is_op(c, '('))
            n = call(c, n);
        else
            break;
    }
    return n;
}
