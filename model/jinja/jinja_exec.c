/* Statements: output, scopes, loops, macros. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_value.h"

#include <string.h>

struct sl_jframe *sl_j_frame(struct sl_jrt *rt, const struct sl_junit *unit, struct sl_jframe *up) {
    struct sl_jframe *f = sl_j_alloc(rt, sizeof *f + unit->n_slots * sizeof *f->slot);
    f->up = up;
    memset(f->slot, 0, unit->n_slots * sizeof *f->slot); /* all MISSING */
    return f;
}

void sl_j_enter_scope(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jscope *s) {
    sl_j_charge_n(rt, s->n_enter, 2 * SL_J_ITEM); /* also for leaving it */
    for (uint32_t i = 0; i < s->n_enter; i++) {
        const struct sl_j_enter *e = &s->enter[i];
        struct sl_jframe *from = f;
        struct sl_jv *v = NULL;
        switch (e->load) {
        case SL_L_PARAM:
            break;
        case SL_L_UNDEFINED:
            f->slot[e->slot] = sl_j_missing();
            break;
        case SL_L_ALIAS:
            sl_j_charge_n(rt, e->from_hops, SL_J_SCAN);
            for (uint32_t h = 0; h < e->from_hops; h++)
                from = from->up;
            f->slot[e->slot] = from->slot[e->from_slot];
            break;
        case SL_L_RESOLVE:
            if (rt->exported)
                v = sl_j_dict_get(rt, rt->exported, sl_j_of_str(e->name));
            if (!v)
                v = sl_j_dict_get(rt, rt->vars, sl_j_of_str(e->name));
            f->slot[e->slot] = v ? *v : sl_j_missing();
            break;
        }
    }
}

void sl_j_leave_scope(struct sl_jframe *f, const struct sl_jscope *s) {
    for (uint32_t i = 0; i < s->n_enter; i++)
        f->slot[s->enter[i].slot] = sl_j_missing();
}

static void export_name(struct sl_jrt *rt, const struct sl_jstr *name, struct sl_jv v) {
    if (rt->exported)
        sl_j_dict_set(rt, rt->exported, sl_j_of_str(name), v);
}

static void assign_tuple(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *target,
                         struct sl_jv v, bool export_) {
    if (!sl_j_iterable(v))
        sl_j_fail(rt, "cannot unpack a value of type '%s'", sl_j_type_name(v));
    struct sl_jv item;
    struct sl_jiter *it = sl_j_iter(rt, v);
    struct sl_jv l = sl_j_list_new(rt, SL_J_LIST, target->n);
    while (l.l->n <= target->n && sl_j_next(rt, it, &item))
        sl_j_list_push(rt, l.l, item);
    if (l.l->n != target->n)
        sl_j_fail(rt,
                  l.l->n < target->n ? "not enough values to unpack (expected %u)"
                                     : "too many values to unpack (expected %u)",
                  target->n);
    for (uint32_t i = 0; i < target->n; i++)
        sl_j_assign(rt, f, target->list[i], l.l->v[i], export_);
}

void sl_j_assign(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *target,
                 struct sl_jv v, bool export_) {
    rt->at = target;
    if (target->kind == SL_N_TUPLE) {
        assign_tuple(rt, f, target, v, export_);
    } else if (target->kind == SL_N_NSREF) {
        struct sl_jv ns = sl_j_eval(rt, f, target->a);
        rt->at = target;
        if (ns.type != SL_J_NS)
            sl_j_fail(rt, "cannot assign to an attribute of '%.*s', which is not a namespace",
                      (int)(target->a->name->len > 40 ? 40 : target->a->name->len),
                      target->a->name->p);
        sl_j_dict_set(rt, ns.d, sl_j_of_str(target->name), v);
    } else {
        f->slot[target->slot] = v; /* an assigned name is always of this unit */
        if (export_)
            export_name(rt, target->name, v);
    }
}

/* Runs a body into a buffer of its own and gives its text. */
static struct sl_jv capture(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *body,
                            const struct sl_jnode *filter, enum sl_j_flow *out_flow) {
    struct sl_jout o = {0}, *outer = rt->out;
    rt->out = &o;
    *out_flow = sl_j_exec(rt, f, body);
    /* A filter without operand takes what rt->out holds. */
    struct sl_jv v =
        filter && *out_flow == SL_FLOW_NEXT ? sl_j_eval(rt, f, filter) : sl_j_out_str(rt, &o);
    rt->out = outer;
    return v;
}

/* ---- loops ---- */

struct filter_state {
    struct sl_jframe *frame;
    const struct sl_jnode *node;
};

static bool loop_condition(struct sl_jrt *rt, void *state, struct sl_jv *item) {
    struct filter_state *s = state;
    sl_j_assign(rt, s->frame, s->node->test_target, *item, false);
    return sl_j_truth(rt, sl_j_eval(rt, s->frame, s->node->d));
}

/* `around`: the frame that the statement stands in; `f`: where its scope's slots are. */
static enum sl_j_flow run_loop(struct sl_jrt *rt, struct sl_jframe *around, struct sl_jframe *f,
                               const struct sl_jnode *n, struct sl_jv iterable, int64_t depth0) {
    struct sl_jloop *l = sl_j_alloc(rt, sizeof *l);
    struct sl_jv item, src = iterable;
    bool any = false;
    rt->at = n->b;
    if (n->d) {
        struct filter_state *s = sl_j_alloc(rt, sizeof *s);
        *s = (struct filter_state){sl_j_frame(rt, n->test_scope->unit, around), n};
        src = sl_j_iter_map(rt, iterable, loop_condition, s);
        sl_j_enter_scope(rt, s->frame, n->test_scope);
        iterable = sl_j_missing();
    }
    *l = (struct sl_jloop){.it = sl_j_iter(rt, src),
                           .iterable = iterable,
                           .node = n,
                           .frame = around,
                           .index0 = -1,
                           .depth0 = depth0,
                           .length = -1};
    while (sl_j_loop_next(rt, l, &item)) {
        sl_j_assign(rt, f, n->a, item, false);
        if (n->loop_slot >= 0)
            f->slot[n->loop_slot] = (struct sl_jv){.type = SL_J_LOOP, .loop = l};
        sl_j_enter_scope(rt, f, n->scope);
        enum sl_j_flow flow = sl_j_exec(rt, f, n->body);
        if (flow == SL_FLOW_BREAK)
            break;
        any |= flow == SL_FLOW_NEXT; /* Jinja's else also runs when no body came to its end */
    }
    sl_j_leave_scope(f, n->scope);
    if (any || !n->else_body)
        return SL_FLOW_NEXT;
    sl_j_enter_scope(rt, f, n->else_scope);
    enum sl_j_flow flow = sl_j_exec(rt, f, n->else_body);
    sl_j_leave_scope(f, n->else_scope);
    return flow;
}

static struct sl_jv recursive_loop(struct sl_jrt *rt, struct sl_jframe *around,
                                   const struct sl_jnode *n, struct sl_jv iterable,
                                   int64_t depth0) {
    struct sl_jout o = {0}, *outer = rt->out;
    sl_j_deeper(rt);
    rt->out = &o;
    run_loop(rt, around, sl_j_frame(rt, n->scope->unit, around), n, iterable, depth0);
    rt->out = outer;
    rt->depth--;
    return sl_j_out_str(rt, &o);
}

struct sl_jv sl_j_loop_recurse(struct sl_jrt *rt, struct sl_jloop *l, struct sl_jv iterable) {
    if (!l->node->flag)
        sl_j_fail(rt, "the loop must have the 'recursive' marker to be called recursively");
    return recursive_loop(rt, l->frame, l->node, iterable, l->depth0 + 1);
}

static enum sl_j_flow exec_for(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jv iterable = sl_j_eval(rt, f, n->b);
    if (!n->flag)
        return run_loop(rt, f, f, n, iterable, 0);
    sl_j_put_str(rt, rt->out, recursive_loop(rt, f, n, iterable, 0));
    return SL_FLOW_NEXT;
}

/* ---- macros ---- */

static void too_many(struct sl_jrt *rt, const struct sl_jnode *n, const struct sl_jargv *args,
                     const bool *kw_used) {
    const struct sl_jparams *p = n->params;
    int len = n->name ? (int)(n->name->len > 40 ? 40 : n->name->len) : 0;
    const char *name = n->name ? n->name->p : "";
    for (uint32_t k = 0; p->kwargs_slot < 0 && k < args->n_kw; k++)
        if (!kw_used[k])
            sl_j_fail(rt, "macro '%.*s' takes no keyword argument '%.*s'", len, name,
                      (int)(args->kw_name[k]->len > 40 ? 40 : args->kw_name[k]->len),
                      args->kw_name[k]->p);
    if (p->varargs_slot < 0 && args->n_pos > p->n)
        sl_j_fail(rt, "macro '%.*s' takes not more than %u arguments", len, name, p->n);
}

/* Puts the arguments where the parameters are; kw_used marks the keywords that found one. */
static void bind_params(struct sl_jrt *rt, const struct sl_jmacro *m, struct sl_jframe *f,
                        const struct sl_jargv *args, bool *kw_used) {
    const struct sl_jparams *p = m->node->params;
    bool found_caller = args->n_pos >= p->n && p->explicit_caller;
    for (uint32_t i = 0; i < p->n; i++) {
        struct sl_jv v = i < args->n_pos ? args->pos[i] : sl_j_missing();
        sl_j_charge_n(rt, i < args->n_pos ? 1 : args->n_kw + 1u,
                      SL_J_ITEM + p->name[i]->name->len * SL_J_BYTE);
        for (uint32_t k = 0; i >= args->n_pos && k < args->n_kw; k++)
            if (!kw_used[k] && sl_j_str_eq(args->kw_name[k], p->name[i]->name)) {
                v = args->kw[k];
                kw_used[k] = true;
            }
        found_caller |= i >= args->n_pos && sl_j_str_is(p->name[i]->name, "caller");
        f->slot[p->name[i]->slot] = v;
    }
    sl_j_charge_n(rt, args->n_kw, 2 * SL_J_ITEM); /* to look for a caller, and for what is left */
    if (p->caller_slot >= 0 && !found_caller) {
        struct sl_jv caller = sl_j_undef_hint(rt, "No caller defined");
        for (uint32_t k = 0; k < args->n_kw; k++)
            if (!kw_used[k] && sl_j_str_is(args->kw_name[k], "caller")) {
                if (args->kw[k].type != SL_J_NONE)
                    caller = args->kw[k];
                kw_used[k] = true;
            }
        f->slot[p->caller_slot] = caller;
    }
    too_many(rt, m->node, args, kw_used);
    if (p->kwargs_slot >= 0) {
        struct sl_jv rest = sl_j_dict_new(rt);
        for (uint32_t k = 0; k < args->n_kw; k++)
            if (!kw_used[k])
                sl_j_dict_set(rt, rest.d, sl_j_of_str(args->kw_name[k]), args->kw[k]);
        f->slot[p->kwargs_slot] = rest;
    }
    if (p->varargs_slot >= 0) {
        struct sl_jv rest = sl_j_list_new(rt, SL_J_TUPLE, 0);
        for (uint32_t i = p->n; i < args->n_pos; i++)
            sl_j_list_push(rt, rest.l, args->pos[i]);
        f->slot[p->varargs_slot] = rest;
    }
}

struct sl_jv sl_j_call_macro(struct sl_jrt *rt, const struct sl_jmacro *m,
                             const struct sl_jargv *args) {
    const struct sl_jnode *n = m->node;
    const struct sl_jparams *p = n->params;
    struct sl_jframe *f = sl_j_frame(rt, n->scope->unit, m->frame);
    bool *kw_used = sl_j_alloc_n(rt, args->n_kw, sizeof *kw_used);
    enum sl_j_flow flow;
    sl_j_deeper(rt);
    memset(kw_used, 0, args->n_kw * sizeof *kw_used);
    bind_params(rt, m, f, args, kw_used);
    sl_j_enter_scope(rt, f, n->scope);
    for (uint32_t i = 0; i < p->n; i++) {
        struct sl_jv *slot = &f->slot[p->name[i]->slot];
        if (slot->type == SL_J_MISSING)
            *slot = p->fallback[i] ? sl_j_eval(rt, f, p->fallback[i])
                                   : sl_j_undef_hint(rt, "a parameter was not provided");
    }
    struct sl_jv v = capture(rt, f, n->body, NULL, &flow);
    rt->depth--;
    return v;
}

static struct sl_jv macro_value(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    struct sl_jmacro *m = sl_j_alloc(rt, sizeof *m);
    *m = (struct sl_jmacro){n, f};
    return (struct sl_jv){.type = SL_J_MACRO, .m = m};
}

/* {% call %}: the call gets one more keyword, caller, last as in Jinja. */
static void exec_call_block(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    static const struct sl_jstr caller_name = {.p = "caller", .len = 6, .chars = 6};
    struct sl_jv caller = macro_value(rt, f, n);
    if (!n->a) { /* {% generation %} */
        struct sl_jargv none = {0};
        sl_j_put_str(rt, rt->out, sl_j_call(rt, caller, &none));
        return;
    }
    /* The call with one constant more. */
    struct sl_jnode call = *n->a, value = {.kind = SL_N_CONST, .off = n->off, .value = caller};
    struct sl_jargs args = *n->a->args;
    struct sl_jnode **kw = sl_j_alloc_n(rt, args.n_kw + 1u, sizeof *kw);
    const struct sl_jstr **names = sl_j_alloc_n(rt, args.n_kw + 1u, sizeof *names);
    sl_j_charge_n(rt, args.n_kw, SL_J_ITEM);
    for (uint32_t i = 0; i < args.n_kw; i++) {
        if (sl_j_str_is(args.kw_name[i], "caller"))
            sl_j_fail(rt, "the argument 'caller' is there twice");
        kw[i] = args.kw[i];
        names[i] = args.kw_name[i];
    }
    kw[args.n_kw] = &value;
    names[args.n_kw++] = &caller_name;
    args.kw = kw;
    args.kw_name = names;
    call.args = &args;
    struct sl_jv v = sl_j_eval(rt, f, &call);
    rt->at = n; /* `call` and `value` end with this function */
    sl_j_put_str(rt, rt->out, v);
}

/* ---- everything else ---- */

static enum sl_j_flow exec_if(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    for (uint32_t i = 0; i + 1 < n->n; i += 2)
        if (sl_j_truth(rt, sl_j_eval(rt, f, n->list[i])))
            return sl_j_exec(rt, f, n->list[i + 1]);
    return n->c ? sl_j_exec(rt, f, n->c) : SL_FLOW_NEXT;
}

static enum sl_j_flow exec_with(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    sl_j_enter_scope(rt, f, n->scope);
    for (uint32_t i = 0; i + 1 < n->n; i += 2)
        sl_j_assign(rt, f, n->list[i], sl_j_eval(rt, f, n->list[i + 1]), false);
    enum sl_j_flow flow = sl_j_exec(rt, f, n->body);
    sl_j_leave_scope(f, n->scope);
    return flow;
}

static void exec_output(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    for (uint32_t i = 0; i < n->n; i++) {
        struct sl_jv v = sl_j_eval(rt, f, n->list[i]);
        rt->at = n->list[i];
        sl_j_put_str(rt, rt->out, v);
    }
}

static enum sl_j_flow exec_set_block(struct sl_jrt *rt, struct sl_jframe *f,
                                     const struct sl_jnode *n) {
    enum sl_j_flow flow;
    sl_j_enter_scope(rt, f, n->scope);
    struct sl_jv v = capture(rt, f, n->body, n->b, &flow);
    if (flow == SL_FLOW_NEXT)
        sl_j_assign(rt, f, n->a, v, n->export_);
    sl_j_leave_scope(f, n->scope);
    return flow;
}

static enum sl_j_flow exec_filter_block(struct sl_jrt *rt, struct sl_jframe *f,
                                        const struct sl_jnode *n) {
    enum sl_j_flow flow;
    sl_j_enter_scope(rt, f, n->scope);
    struct sl_jv v = capture(rt, f, n->body, n->a, &flow);
    sl_j_leave_scope(f, n->scope);
    if (flow == SL_FLOW_NEXT)
        sl_j_put_str(rt, rt->out, v);
    return flow;
}

static void exec_block(struct sl_jrt *rt, const struct sl_jnode *n) {
    if (n->flag)
        sl_j_fail(rt, "required block '%.*s' not found",
                  (int)(n->name->len > 40 ? 40 : n->name->len), n->name->p);
    struct sl_jframe *f = sl_j_frame(rt, n->scope->unit, NULL);
    sl_j_enter_scope(rt, f, n->scope);
    sl_j_exec(rt, f, n->body);
}

static enum sl_j_flow exec(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    enum sl_j_flow flow = SL_FLOW_NEXT;
    switch ((enum sl_j_kind)n->kind) {
    case SL_N_BODY:
        for (uint32_t i = 0; i < n->n && flow == SL_FLOW_NEXT; i++)
            flow = sl_j_exec(rt, f, n->list[i]);
        return flow;
    case SL_N_OUTPUT:
        exec_output(rt, f, n);
        return flow;
    case SL_N_IF:
        return exec_if(rt, f, n);
    case SL_N_FOR:
        return exec_for(rt, f, n);
    case SL_N_SET:
        sl_j_assign(rt, f, n->a, sl_j_eval(rt, f, n->b), n->export_);
        return flow;
    case SL_N_SETBLOCK:
        return exec_set_block(rt, f, n);
    case SL_N_FILTERBLOCK:
        return exec_filter_block(rt, f, n);
    case SL_N_MACRO:
        sl_j_assign(rt, f, n->a, macro_value(rt, f, n), n->export_);
        return flow;
    case SL_N_CALLBLOCK:
        exec_call_block(rt, f, n);
        return flow;
    case SL_N_WITH:
        return exec_with(rt, f, n);
    case SL_N_SCOPE:
        sl_j_enter_scope(rt, f, n->scope);
        flow = sl_j_exec(rt, f, n->body);
        sl_j_leave_scope(f, n->scope);
        return flow;
    case SL_N_BLOCK:
        exec_block(rt, n);
        return flow;
    case SL_N_BREAK:
        return SL_FLOW_BREAK;
    case SL_N_CONTINUE:
        return SL_FLOW_CONTINUE;
    case SL_N_REFUSE:
        sl_j_fail(rt, "{%% %.*s %%} is not available: a chat template has no other files",
                  (int)n->name->len, n->name->p);
    default:
        sl_j_fail(rt, "internal error: expression %d where a statement belongs", n->kind);
    }
}

enum sl_j_flow sl_j_exec(struct sl_jrt *rt, struct sl_jframe *f, const struct sl_jnode *n) {
    rt->at = n;
    sl_j_charge(rt, SL_J_STEP);
    sl_j_deeper(rt);
    enum sl_j_flow flow = exec(rt, f, n);
    rt->depth--;
    return flow;
}

void sl_j_exec_root(struct sl_jrt *rt, const struct sl_jnode *body, const struct sl_jscope *scope) {
    rt->root = sl_j_frame(rt, scope->unit, NULL);
    sl_j_enter_scope(rt, rt->root, scope);
    sl_j_exec(rt, rt->root, body);
}
