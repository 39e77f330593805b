/* Expressions. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_value.h"

#include <string.h>

static void eval_args(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jargs *a,
                      struct sl_jargv *out) {
    struct sl_jv extra = sl_j_missing(), more = sl_j_missing();
    *out = (struct sl_jargv){0};
    if (!a)
        return;
    size_t n_star = 0, n_star2 = 0;
    out->pos = sl_j_alloc_n(rt, a->n_pos, sizeof *out->pos);
    for (uint32_t i = 0; i < a->n_pos; i++)
        out->pos[i] = sl_j_eval(rt, f, a->pos[i]);
    if (a->star) {
        extra = sl_j_to_list(rt, sl_j_eval(rt, f, a->star));
        n_star = extra.l->n;
        struct sl_jv *pos = sl_j_alloc_n(rt, a->n_pos + n_star, sizeof *pos);
        if (a->n_pos)
            memcpy(pos, out->pos, a->n_pos * sizeof *pos);
        if (n_star)
            memcpy(pos + a->n_pos, extra.l->v, n_star * sizeof *pos);
        out->pos = pos;
    }
    struct sl_jv *kw = sl_j_alloc_n(rt, a->n_kw, sizeof *kw);
    for (uint32_t i = 0; i < a->n_kw; i++)
        kw[i] = sl_j_eval(rt, f, a->kw[i]);
    if (a->star2) {
        more = sl_j_eval(rt, f, a->star2);
        if (more.type != SL_J_DICT)
            sl_j_fail(rt, "the argument after ** must be a mapping, not %s", sl_j_type_name(more));
        n_star2 = more.d->n;
    }
    if (n_star > UINT32_MAX / 2 || n_star2 > UINT32_MAX / 2)
        sl_j_fail(rt, "too many arguments");
    out->kw = sl_j_alloc_n(rt, a->n_kw + n_star2, sizeof *out->kw);
    out->kw_name = sl_j_alloc_n(rt, a->n_kw + n_star2, sizeof *out->kw_name);
    for (uint32_t i = 0; i < a->n_kw; i++) {
        out->kw[i] = kw[i];
        out->kw_name[i] = a->kw_name[i];
    }
    for (size_t i = 0; i < n_star2; i++) {
        if (more.d->e[i].key.type != SL_J_STR)
            sl_j_fail(rt, "keywords must be strings");
        sl_j_charge_n(rt, a->n_kw + 1u, SL_J_ITEM + more.d->e[i].key.s->len * SL_J_BYTE);
        for (uint32_t k = 0; k < a->n_kw; k++)
            if (sl_j_str_eq(a->kw_name[k], more.d->e[i].key.s))
                sl_j_fail(rt, "an argument is given twice");
        out->kw[a->n_kw + i] = more.d->e[i].val;
        out->kw_name[a->n_kw + i] = more.d->e[i].key.s;
    }
    out->n_pos = (uint32_t)(a->n_pos + n_star);
    out->n_kw = (uint32_t)(a->n_kw + n_star2);
}

static struct sl_jv eval_name(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    sl_j_charge_n(rt, n->hops, SL_J_SCAN);
    for (uint32_t i = 0; i < n->hops; i++)
        f = f->up;
    struct sl_jv v = f->slot[n->slot];
    return v.type == SL_J_MISSING ? sl_j_undef_name(rt, n->name) : v;
}

static bool compare_step(struct sl_jrt *rt, int op, struct sl_jv a, struct sl_jv b) {
    switch (op) {
    case SL_OP_EQ:
        return sl_j_equal(rt, a, b);
    case SL_OP_NE:
        return !sl_j_equal(rt, a, b);
    case SL_OP_IN:
        return sl_j_contains(rt, b, a);
    case SL_OP_NOTIN:
        return !sl_j_contains(rt, b, a);
    default:
        return sl_j_order(rt, op, a, b);
    }
}

static struct sl_jv eval_compare(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jv left = sl_j_eval(rt, f, n->list[0]);
    for (uint32_t i = 1; i < n->n; i++) {
        struct sl_jv right = sl_j_eval(rt, f, n->list[i]);
        rt->at = n;
        if (!compare_step(rt, n->ops[i - 1], left, right))
            return sl_j_bool(false);
        left = right;
    }
    return sl_j_bool(true);
}

static struct sl_jv eval_concat(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jout o = {0};
    struct sl_jv *part = sl_j_alloc_n(rt, n->n, sizeof *part);
    for (uint32_t i = 0; i < n->n; i++)
        part[i] = sl_j_eval(rt, f, n->list[i]);
    /* Text only now: an operand may have changed one before it. */
    for (uint32_t i = 0; i < n->n; i++)
        sl_j_put_str(rt, &o, part[i]);
    return sl_j_out_str(rt, &o);
}

static struct sl_jv eval_sign(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jv v = sl_j_eval(rt, f, n->a);
    bool neg = n->kind == SL_N_NEG;
    int64_t i;
    rt->at = n;
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (v.type == SL_J_FLOAT)
        return sl_j_float(neg ? -v.f : v.f);
    if (!sl_j_as_int(v, &i))
        sl_j_fail(rt, "bad operand type for unary %c: '%s'", neg ? '-' : '+', sl_j_type_name(v));
    if (neg && i == INT64_MIN)
        sl_j_fail(rt, "the result does not fit into a 64-bit integer");
    return sl_j_int(neg ? -i : i);
}

static struct sl_jv eval_slice(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jv v = sl_j_eval(rt, f, n->a), part[3];
    const struct sl_jnode *const node[3] = {n->b, n->c, n->d};
    for (int i = 0; i < 3; i++)
        part[i] = node[i] ? sl_j_eval(rt, f, node[i]) : sl_j_none();
    rt->at = n;
    return sl_j_slice(rt, v, part[0], part[1], part[2]);
}

static struct sl_jv eval_list(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n,
                              enum sl_j_type type) {
    struct sl_jv l = sl_j_list_new(rt, type, n->n);
    for (uint32_t i = 0; i < n->n; i++)
        sl_j_list_push(rt, l.l, sl_j_eval(rt, f, n->list[i]));
    return l;
}

static struct sl_jv eval_dict(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jv d = sl_j_dict_new(rt);
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        struct sl_jv key = sl_j_eval(rt, f, n->list[i]), val = sl_j_eval(rt, f, n->list[i + 1]);
        rt->at = n;
        sl_j_dict_set(rt, d.d, key, val);
    }
    return d;
}

/* A filter's or test's function with its argument and arguments. `block`: the text of the block
 * that a filter without an operand works on. */
static struct sl_jv eval_func(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    const char *what = n->kind == SL_N_FILTER ? "filter" : "test";
    struct sl_jv self = n->a ? sl_j_eval(rt, f, n->a) : sl_j_out_str(rt, rt->out);
    struct sl_jargv args;
    if (n->args)
        eval_args(rt, f, n->args, &args);
    rt->at = n;
    if (!n->impl)
        sl_j_fail(rt, "no %s is named '%.*s'", what, (int)(n->name->len > 40 ? 40 : n->name->len),
                  n->name->p);
    return sl_j_call_func(rt, what, n->impl, self, n->args ? &args : NULL);
}

static struct sl_jv eval_math(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jv v = sl_j_eval(rt, f, n->list[0]);
    for (uint32_t i = 1; i < n->n; i++) {
        struct sl_jv w = sl_j_eval(rt, f, n->list[i]);
        rt->at = n->list[i];
        v = sl_j_binary(rt, n->ops[i - 1], v, w);
    }
    return v;
}

static struct sl_jv eval_logic(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    for (uint32_t i = 0;; i++) {
        struct sl_jv v = sl_j_eval(rt, f, n->list[i]);
        if (i + 1 == n->n || sl_j_truth(rt, v) == (n->kind == SL_N_OR))
            return v;
    }
}

static struct sl_jv eval_cond(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    if (sl_j_truth(rt, sl_j_eval(rt, f, n->a)))
        return sl_j_eval(rt, f, n->b);
    if (n->c)
        return sl_j_eval(rt, f, n->c);
    return sl_j_undef_hint(rt, "the inline if-expression evaluated to false and no else "
                               "section was defined");
}

static struct sl_jv eval_call(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jargv args;
    struct sl_jv v = sl_j_eval(rt, f, n->a);
    eval_args(rt, f, n->args, &args);
    rt->at = n;
    return sl_j_call(rt, v, &args);
}

static struct sl_jv eval(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jv v, w;
    switch ((enum sl_j_kind)n->kind) {
    case SL_N_CONST:
    case SL_N_DATA:
        return n->value;
    case SL_N_NAME:
        return eval_name(rt, f, n);
    case SL_N_TUPLE:
        return eval_list(rt, f, n, SL_J_TUPLE);
    case SL_N_LIST:
        return eval_list(rt, f, n, SL_J_LIST);
    case SL_N_DICT:
        return eval_dict(rt, f, n);
    case SL_N_MATH:
        return eval_math(rt, f, n);
    case SL_N_COMPARE:
        return eval_compare(rt, f, n);
    case SL_N_AND:
    case SL_N_OR:
        return eval_logic(rt, f, n);
    case SL_N_CONCAT:
        return eval_concat(rt, f, n);
    case SL_N_NOT:
        return sl_j_bool(!sl_j_truth(rt, sl_j_eval(rt, f, n->a)));
    case SL_N_NEG:
    case SL_N_POS:
        return eval_sign(rt, f, n);
    case SL_N_COND:
        return eval_cond(rt, f, n);
    case SL_N_GETATTR:
        v = sl_j_eval(rt, f, n->a);
        rt->at = n;
        return sl_j_getattr(rt, v, n->name);
    case SL_N_GETITEM:
        v = sl_j_eval(rt, f, n->a);
        w = sl_j_eval(rt, f, n->b);
        rt->at = n;
        return sl_j_getitem(rt, v, w);
    case SL_N_SLICE:
        return eval_slice(rt, f, n);
    case SL_N_CALL:
        return eval_call(rt, f, n);
    case SL_N_FILTER:
    case SL_N_TEST:
        return eval_func(rt, f, n);
    default:
        sl_j_fail(rt, "internal error: statement %d where an expression belongs", n->kind);
    }
}

struct sl_jv sl_j_eval(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    rt->at = n;
    sl_j_charge(rt, SL_J_STEP);
    sl_j_deeper(rt);
    struct sl_jv v = eval(rt, f, n);
    rt->depth--;
    return v;
}
