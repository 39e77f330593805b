/* Which variable a name means. Jinja decides this when it compiles, not when it runs: a name that a
 * scope assigns anywhere belongs to that scope throughout, a loop's body sees copies of what is
 * outside, a macro shares the variables of where it stands, and what no scope assigns is looked up
 * among the caller's variables when its scope is entered.
 *
 * Each function of the program (the template, a macro, a call block, a recursive loop, a loop's
 * condition, a block) is a unit: an array of slots. A scope's variables have slots in its unit.
 * Source: the behaviour of Jinja2's symbol analysis ("Scoping Behavior" in its documentation). */
#include "model/jinja/jinja_symbols.h"

struct walk {
    struct sl_jc *c;
    struct sl_jsymbols *sym;
    bool soft;      /* in an if: an unknown filter only fails when reached */
    bool top;       /* assignments are seen by blocks */
    uint32_t loops; /* loops of this unit around us */
};

/* ---- what a scope mentions ---- */

static void mention(struct walk *w, const struct sl_jnode *n);

static void mention_args(struct walk *w, const struct sl_jargs *a) {
    for (uint32_t i = 0; a && i < a->n_pos; i++)
        mention(w, a->pos[i]);
    for (uint32_t i = 0; a && i < a->n_kw; i++)
        mention(w, a->kw[i]);
    if (a && a->star)
        mention(w, a->star);
    if (a && a->star2)
        mention(w, a->star2);
}

static void mention_target(struct walk *w, const struct sl_jnode *n, bool param) {
    if (n->kind == SL_N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++)
            mention_target(w, n->list[i], param);
    } else if (n->kind == SL_N_NSREF) {
        sl_jc_symbol_load(w->c, w->sym, n->a->name);
    } else if (param) {
        sl_jc_symbol_param(w->c, w->sym, n->name);
    } else {
        sl_jc_symbol_store(w->c, w->sym, n->name);
    }
}

/* The arms of an if, as Jinja nests them: body, all the elifs (each an if of its own), else. */
static void mention_if(struct walk *w, const struct sl_jnode *n, uint32_t from, bool is_elif) {
    struct sl_jsymbols *base = w->sym, *branch[3];
    mention(w, n->list[from]);
    for (int b = 0; b < 3; b++) {
        w->sym = branch[b] = sl_jc_symbols_copy(w->c, base);
        if (b == 0)
            mention(w, n->list[from + 1]);
        for (uint32_t i = from + 2; b == 1 && !is_elif && i + 1 < n->n; i += 2)
            mention_if(w, n, i, true);
        if (b == 2 && !is_elif && n->c)
            mention(w, n->c);
    }
    w->sym = base;
    sl_jc_symbols_merge(w->c, base, branch, 3);
}

static void mention_list(struct walk *w, const struct sl_jnode *n) {
    for (uint32_t i = 0; i < n->n; i++)
        mention(w, n->list[i]);
}

static void mention(struct walk *w, const struct sl_jnode *n) {
    switch ((enum sl_j_kind)n->kind) {
    case SL_N_NAME:
        sl_jc_symbol_load(w->c, w->sym, n->name);
        return;
    case SL_N_IF:
        mention_if(w, n, 0, false);
        return;
    case SL_N_MACRO:
        sl_jc_symbol_store(w->c, w->sym, n->name);
        return;
    case SL_N_SET:
        mention(w, n->b);
        mention_target(w, n->a, false);
        return;
    case SL_N_SETBLOCK:
        mention_target(w, n->a, false);
        return;
    case SL_N_FOR: /* the body is a scope of its own */
        mention(w, n->b);
        return;
    case SL_N_CALLBLOCK:
    case SL_N_FILTERBLOCK:
        if (n->a)
            mention(w, n->a);
        return;
    case SL_N_WITH:
        for (uint32_t i = 1; i < n->n; i += 2)
            mention(w, n->list[i]);
        return;
    case SL_N_SCOPE:
    case SL_N_BLOCK:
        return;
    default:
        break;
    }
    const struct sl_jnode *child[] = {n->a, n->b, n->c, n->d};
    for (int i = 0; i < 4; i++)
        if (child[i])
            mention(w, child[i]);
    mention_list(w, n);
    mention_args(w, n->args);
}

/* Whether a body reads `name` before assigning it (in source order), nested scopes included. */
static int reads(struct sl_jc *c, const struct sl_jnode *n, const char *name);

static int reads_list(struct sl_jc *c, struct sl_jnode *const *v, uint32_t n, const char *name) {
    int r = 0;
    for (uint32_t i = 0; i < n && !r; i++)
        if (v[i])
            r = reads(c, v[i], name);
    return r;
}

static int assigns(const struct sl_jnode *t, const char *name) {
    int r = 0;
    if (t->kind == SL_N_NAME)
        return sl_j_str_is(t->name, name) ? -1 : 0;
    for (uint32_t i = 0; t->kind == SL_N_TUPLE && i < t->n && !r; i++)
        r = assigns(t->list[i], name);
    return r;
}

/* 1: reads it; -1: assigns it first; 0: does not mention it. */
static int reads(struct sl_jc *c, const struct sl_jnode *n, const char *name) {
    int r = 0;
    sl_jc_charge(c, 1);
    if (n->kind == SL_N_NAME)
        return sl_j_str_is(n->name, name);
    if (n->kind == SL_N_BLOCK)
        return 0;
    if (n->kind == SL_N_SET || n->kind == SL_N_FOR || n->kind == SL_N_SETBLOCK) {
        r = n->a->kind == SL_N_NSREF ? 0 : assigns(n->a, name);
    } else if (n->kind == SL_N_WITH) {
        for (uint32_t i = 0; i < n->n && !r; i += 2)
            r = assigns(n->list[i], name);
        for (uint32_t i = 1; i < n->n && !r; i += 2)
            r = reads(c, n->list[i], name);
        return r ? r : reads(c, n->body, name);
    } else if (n->kind != SL_N_MACRO && n->a) {
        r = reads(c, n->a, name);
    }
    if (n->params && !r)
        r = reads_list(c, n->params->fallback, n->params->n, name);
    for (uint32_t i = 0; n->params && !r && i < n->params->n; i++)
        r = assigns(n->params->name[i], name);
    struct sl_jnode *const child[] = {n->b, n->c, n->d, n->body, n->else_body};
    if (!r)
        r = reads_list(c, child, 5, name);
    if (!r)
        r = reads_list(c, n->list, n->n, name);
    if (n->args) {
        struct sl_jnode *const star[] = {n->args->star, n->args->star2};
        if (!r)
            r = reads_list(c, n->args->pos, n->args->n_pos, name);
        if (!r)
            r = reads_list(c, n->args->kw, n->args->n_kw, name);
        if (!r)
            r = reads_list(c, star, 2, name);
    }
    return r;
}

/* ---- resolving ---- */

static void resolve(struct walk *w, struct sl_jnode *n);

static void resolve_name(struct walk *w, struct sl_jnode *n) {
    sl_jc_symbol_find(w->c, w->sym, n->name, &n->hops, &n->slot);
}

static void resolve_target(struct walk *w, struct sl_jnode *n) {
    if (n->kind == SL_N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++)
            resolve_target(w, n->list[i]);
        return;
    }
    resolve_name(w, n->kind == SL_N_NSREF ? n->a : n);
}

static void resolve_args(struct walk *w, struct sl_jargs *a) {
    for (uint32_t i = 0; a && i < a->n_pos; i++)
        resolve(w, a->pos[i]);
    for (uint32_t i = 0; a && i < a->n_kw; i++)
        resolve(w, a->kw[i]);
    if (a && a->star)
        resolve(w, a->star);
    if (a && a->star2)
        resolve(w, a->star2);
}

static struct walk inner(struct walk *w, struct sl_junit *unit) {
    struct walk r = {.c = w->c, .loops = unit ? 0 : w->loops};
    r.sym = sl_jc_symbols(w->c, w->sym, unit);
    return r;
}

static struct sl_jnode *clone_target(struct sl_jc *c, const struct sl_jnode *n) {
    struct sl_jnode *r = sl_jc_alloc(c, sizeof *r);
    *r = *n;
    if (n->n)
        r->list = sl_jc_alloc(c, n->n * sizeof *r->list);
    for (uint32_t i = 0; i < n->n; i++)
        r->list[i] = clone_target(c, n->list[i]);
    return r;
}

static void forbid_loop_target(struct walk *w, const struct sl_jnode *n) {
    if (assigns(n, "loop"))
        sl_jc_fail(w->c, n->off, "'loop' cannot be assigned to in a for loop");
}

static void resolve_for(struct walk *w, struct sl_jnode *n) {
    static const struct sl_jstr loop_name = {.p = "loop", .len = 4, .chars = 4};
    struct sl_junit *own = n->flag ? sl_jc_unit(w->c, sl_jc_unit_of(w->sym)) : NULL;
    forbid_loop_target(w, n->a);
    struct walk body = inner(w, own);
    body.loops++;
    if (n->flag || reads(w->c, n->body, "loop") > 0)
        n->loop_slot = (int32_t)sl_jc_symbol_param(w->c, body.sym, &loop_name);
    mention_target(&body, n->a, true);
    mention(&body, n->body);
    resolve_target(&body, n->a);
    if (n->d) {
        struct walk test = inner(w, sl_jc_unit(w->c, sl_jc_unit_of(w->sym)));
        /* The condition runs as a function of where the loop stands; in a recursive loop that is
         * still the surroundings, since only they outlive one level. */
        n->test_target = clone_target(w->c, n->a);
        mention_target(&test, n->test_target, true);
        mention(&test, n->d);
        resolve_target(&test, n->test_target);
        resolve(&test, n->d);
        n->test_scope = sl_jc_scope_of(test.c, test.sym);
    }
    resolve(w, n->b);
    resolve(&body, n->body);
    n->scope = sl_jc_scope_of(body.c, body.sym);
    if (n->else_body) {
        struct walk other = inner(w, own);
        other.loops = own ? 0 : w->loops;
        mention(&other, n->else_body);
        resolve(&other, n->else_body);
        n->else_scope = sl_jc_scope_of(other.c, other.sym);
    }
}

static void resolve_macro(struct walk *w, struct sl_jnode *n) {
    static const struct sl_jstr special[] = {{.p = "caller", .len = 6, .chars = 6},
                                             {.p = "kwargs", .len = 6, .chars = 6},
                                             {.p = "varargs", .len = 7, .chars = 7}};
    struct walk m = inner(w, sl_jc_unit(w->c, sl_jc_unit_of(w->sym)));
    struct sl_jparams *p = n->params;
    int32_t *slot[] = {&p->caller_slot, &p->kwargs_slot, &p->varargs_slot};
    for (uint32_t i = 0; i < p->n; i++)
        sl_jc_symbol_param(w->c, m.sym, p->name[i]->name);
    for (uint32_t i = 0; i < p->n; i++)
        if (p->fallback[i])
            mention(&m, p->fallback[i]);
    mention(&m, n->body);
    for (int s = 0; s < 3; s++) {
        bool is_param = false;
        for (uint32_t i = 0; i < p->n; i++)
            if (sl_j_str_eq(p->name[i]->name, &special[s])) {
                is_param = true;
                if (s == 0 && !p->fallback[i] && reads(w->c, n->body, "caller") > 0)
                    sl_jc_fail(w->c, p->name[i]->off,
                               "a parameter named 'caller' must have a default");
                p->explicit_caller |= s == 0;
            }
        if (!is_param && reads(w->c, n->body, special[s].p) > 0)
            *slot[s] = (int32_t)sl_jc_symbol_param(w->c, m.sym, &special[s]);
    }
    for (uint32_t i = 0; i < p->n; i++) {
        resolve_name(&m, p->name[i]);
        if (p->fallback[i])
            resolve(&m, p->fallback[i]);
    }
    resolve(&m, n->body);
    n->scope = sl_jc_scope_of(m.c, m.sym);
}

/* A body with variables of its own in the same unit. */
static void resolve_inner(struct walk *w, struct sl_jnode *n, struct sl_jnode *filter) {
    struct walk in = inner(w, NULL);
    if (n->kind == SL_N_WITH)
        for (uint32_t i = 0; i < n->n; i += 2)
            mention_target(&in, n->list[i], true);
    mention(&in, n->body);
    if (filter)
        mention(&in, filter);
    for (uint32_t i = 0; n->kind == SL_N_WITH && i < n->n; i += 2) {
        resolve(w, n->list[i + 1]);
        resolve_target(&in, n->list[i]);
    }
    resolve(&in, n->body);
    if (filter)
        resolve(&in, filter);
    n->scope = sl_jc_scope_of(in.c, in.sym);
}

static void resolve_block(struct walk *w, struct sl_jnode *n) {
    /* A block sees no scope around it, only the top level's variables. */
    struct walk b = {.c = w->c};
    b.sym = sl_jc_symbols(w->c, NULL, sl_jc_unit(w->c, NULL));
    mention(&b, n->body);
    resolve(&b, n->body);
    n->scope = sl_jc_scope_of(b.c, b.sym);
}

static void resolve_if(struct walk *w, struct sl_jnode *n) {
    struct walk in = *w;
    in.soft = true;
    for (uint32_t i = 0; i < n->n; i++)
        resolve(&in, n->list[i]);
    if (n->c)
        resolve(&in, n->c);
}

/* Any node whose scope is that around it. */
static void resolve_expression(struct walk *w, struct sl_jnode *n) {
    struct walk soft = *w;
    if ((n->kind == SL_N_FILTER || n->kind == SL_N_TEST) && !n->impl && !w->soft)
        sl_jc_fail(w->c, n->off, "no %s is named '%.*s'",
                   n->kind == SL_N_FILTER ? "filter" : "test",
                   (int)(n->name->len > 40 ? 40 : n->name->len), n->name->p);
    if (n->kind == SL_N_COND) {
        soft.soft = true;
        w = &soft;
    }
    struct sl_jnode *const child[] = {n->a, n->b, n->c, n->d};
    for (int i = 0; i < 4; i++)
        if (child[i])
            resolve(w, child[i]);
    for (uint32_t i = 0; i < n->n; i++)
        resolve(w, n->list[i]);
    resolve_args(w, n->args);
}

static void resolve(struct walk *w, struct sl_jnode *n) {
    switch ((enum sl_j_kind)n->kind) {
    case SL_N_NAME:
        resolve_name(w, n);
        return;
    case SL_N_FOR:
        resolve_for(w, n);
        return;
    case SL_N_IF:
        resolve_if(w, n);
        return;
    case SL_N_MACRO:
        n->export_ = w->top;
        resolve_name(w, n->a);
        resolve_macro(w, n);
        return;
    case SL_N_CALLBLOCK:
        resolve_macro(w, n);
        if (n->a)
            resolve(w, n->a);
        return;
    case SL_N_SET:
        n->export_ = w->top;
        resolve(w, n->b);
        resolve_target(w, n->a);
        return;
    case SL_N_SETBLOCK:
        n->export_ = w->top;
        resolve_target(w, n->a);
        resolve_inner(w, n, n->b);
        return;
    case SL_N_FILTERBLOCK:
        resolve_inner(w, n, n->a);
        return;
    case SL_N_WITH:
    case SL_N_SCOPE:
        resolve_inner(w, n, NULL);
        return;
    case SL_N_BLOCK:
        resolve_block(w, n);
        return;
    case SL_N_BREAK:
    case SL_N_CONTINUE:
        if (!w->loops)
            sl_jc_fail(w->c, n->off, "{%% %s %%} outside of a loop",
                       n->kind == SL_N_BREAK ? "break" : "continue");
        return;
    default:
        resolve_expression(w, n);
    }
}

struct sl_jscope *sl_jc_resolve(struct sl_jc *c, struct sl_jnode *body) {
    struct walk w = {.c = c, .top = true};
    w.sym = sl_jc_symbols(c, NULL, sl_jc_unit(c, NULL));
    mention(&w, body);
    resolve(&w, body);
    return sl_jc_scope_of(w.c, w.sym);
}
