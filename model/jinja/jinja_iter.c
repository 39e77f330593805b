/* Iteration: one protocol for everything that can be gone through, lazily like Python's. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

enum iter_kind {
    IT_EMPTY, /* also one that has come to its end: what is added later does not revive it */
    IT_LIST,
    IT_BACK,
    IT_STR,
    IT_DICT,
    IT_RANGE,
    IT_STEP,
    IT_ITER,
    IT_LOOP
};

struct sl_jiter {
    enum iter_kind kind;
    struct sl_jv src;
    size_t i;           /* IT_BACK: items left */
    char what;          /* IT_DICT: 'k', 'v', 'i' */
    uint64_t n_changes; /* IT_DICT: of the dictionary, when it began */
    struct sl_jiter *inner;
    sl_j_step_fn *step;
    void *state;
};

bool sl_j_iterable(struct sl_jv v) {
    return v.type == SL_J_ITER || sl_j_has_length(v);
}

struct sl_jiter *sl_j_iter(struct sl_jrt *rt, struct sl_jv v) {
    if (v.type == SL_J_ITER)
        return v.it;
    struct sl_jiter *it = sl_j_alloc(rt, sizeof *it);
    *it = (struct sl_jiter){.src = v, .what = 'k'};
    switch (v.type) {
    case SL_J_UNDEF:
        it->kind = IT_EMPTY;
        break;
    case SL_J_STR:
        it->kind = IT_STR;
        break;
    case SL_J_LIST:
    case SL_J_TUPLE:
        it->kind = IT_LIST;
        break;
    case SL_J_VIEW:
        it->what = v.view->what;
        it->src.d = (struct sl_jdict *)v.view->d;
        it->kind = IT_DICT;
        break;
    case SL_J_DICT:
        it->kind = IT_DICT;
        break;
    case SL_J_RANGE:
        it->kind = IT_RANGE;
        break;
    case SL_J_LOOP:
        it->kind = IT_LOOP;
        break;
    default:
        sl_j_fail(rt, "'%s' object is not iterable", sl_j_type_name(v));
    }
    if (it->kind == IT_DICT)
        it->n_changes = it->src.d->n_changes;
    return it;
}

struct sl_jv sl_j_iter_back(struct sl_jrt *rt, struct sl_jv list) {
    struct sl_jiter *it = sl_j_alloc(rt, sizeof *it);
    *it = (struct sl_jiter){.kind = IT_BACK, .src = list, .i = list.l->n};
    return (struct sl_jv){.type = SL_J_ITER, .it = it};
}

struct sl_jv sl_j_iter_over(struct sl_jrt *rt, struct sl_jv list) {
    return (struct sl_jv){.type = SL_J_ITER, .it = sl_j_iter(rt, list)};
}

struct sl_jv sl_j_iter_map(struct sl_jrt *rt, struct sl_jv src, sl_j_step_fn *fn, void *state) {
    struct sl_jiter *it = sl_j_alloc(rt, sizeof *it);
    *it =
        (struct sl_jiter){.kind = IT_STEP, .inner = sl_j_iter(rt, src), .step = fn, .state = state};
    return (struct sl_jv){.type = SL_J_ITER, .it = it};
}

static struct sl_jv dict_item(struct sl_jrt *rt, const struct sl_jentry *e, char what) {
    return what == 'k' ? e->key : what == 'v' ? e->val : sl_j_pair(rt, e->key, e->val);
}

/* The list may have become longer or shorter meanwhile. */
static bool next_of_list(struct sl_jiter *it, struct sl_jv *out) {
    const struct sl_jlist *l = it->src.l;
    size_t i = it->kind == IT_BACK ? it->i - 1 : it->i; /* behind the first: SIZE_MAX */
    if (i >= l->n) {
        it->kind = IT_EMPTY;
        return false;
    }
    *out = l->v[i];
    it->i = it->kind == IT_BACK ? i : i + 1;
    return true;
}

/* Python also allows keys to come and go as long as their number is the same. What is gone through
 * then depends on how its dictionaries are built. */
static bool next_of_dict(struct sl_jrt *rt, struct sl_jiter *it, struct sl_jv *out) {
    const struct sl_jdict *d = it->src.d;
    if (it->n_changes != d->n_changes)
        sl_j_fail(rt, "the dictionary's keys changed while it was gone through");
    if (it->i >= d->n) {
        it->kind = IT_EMPTY;
        return false;
    }
    *out = dict_item(rt, &d->e[it->i++], it->what);
    return true;
}

bool sl_j_next(struct sl_jrt *rt, struct sl_jiter *it, struct sl_jv *out) {
    bool more = false;
    sl_j_charge(rt, SL_J_STEP);
    switch (it->kind) {
    case IT_EMPTY:
    case IT_ITER:
        return false;
    case IT_LIST:
    case IT_BACK:
        return next_of_list(it, out);
    case IT_STR: {
        uint32_t cp;
        const struct sl_jstr *s = it->src.s;
        if (it->i >= s->len)
            return false;
        unsigned n = sl_j_utf8_next(s->p + it->i, s->p + s->len, &cp);
        *out = sl_j_part(rt, s, s->p + it->i, n);
        it->i += n;
        return true;
    }
    case IT_DICT:
        return next_of_dict(rt, it, out);
    case IT_RANGE:
        if ((int64_t)it->i >= it->src.r->n)
            return false;
        *out = sl_j_range_at(it->src.r, (int64_t)it->i++);
        return true;
    case IT_LOOP: { /* pairs of the item and the loop itself, as Python's loop context gives */
        struct sl_jv item;
        /* A loop over a loop over a loop goes down the C stack. */
        sl_j_deeper(rt);
        more = sl_j_loop_next(rt, it->src.loop, &item);
        rt->depth--;
        if (more)
            *out = sl_j_pair(rt, item, it->src);
        return more;
    }
    case IT_STEP:
        /* A chain of filters on filters goes down the C stack, so it counts as nesting. */
        sl_j_deeper(rt);
        while ((more = sl_j_next(rt, it->inner, out)) && !it->step(rt, it->state, out))
            ;
        rt->depth--;
        return more;
    }
    return false;
}

struct sl_jv sl_j_to_list(struct sl_jrt *rt, struct sl_jv v) {
    struct sl_jv l, item;
    size_t n = sl_j_has_length(v) && v.type != SL_J_LOOP ? (size_t)sl_j_length(rt, v) : 0;
    struct sl_jiter *it = sl_j_iter(rt, v);
    l = sl_j_list_new(rt, SL_J_LIST, n);
    while (sl_j_next(rt, it, &item))
        sl_j_list_push(rt, l.l, item);
    return l;
}

/* ---- the loop variable ---- */

bool sl_j_loop_next(struct sl_jrt *rt, struct sl_jloop *l, struct sl_jv *out) {
    struct sl_jv item;
    if (l->after.type != SL_J_MISSING) {
        item = l->after;
        l->after = sl_j_missing();
    } else if (!sl_j_next(rt, l->it, &item)) {
        return false;
    }
    l->index0++;
    l->before = l->current;
    l->current = item;
    *out = item;
    return true;
}

static bool peek(struct sl_jrt *rt, struct sl_jloop *l) {
    struct sl_jv item;
    if (l->after.type == SL_J_MISSING && sl_j_next(rt, l->it, &item))
        l->after = item;
    return l->after.type != SL_J_MISSING;
}

int64_t sl_j_loop_length(struct sl_jrt *rt, struct sl_jloop *l) {
    if (l->length >= 0)
        return l->length;
    if (l->iterable.type != SL_J_MISSING && sl_j_has_length(l->iterable)) {
        sl_j_deeper(rt); /* it may be a loop itself */
        l->length = sl_j_length(rt, l->iterable);
        rt->depth--;
    } else { /* a generator: read the rest to count it */
        struct sl_jv rest = sl_j_to_list(rt, (struct sl_jv){.type = SL_J_ITER, .it = l->it});
        l->it = sl_j_iter(rt, rest);
        l->length = (int64_t)rest.l->n + l->index0 + 1 + (l->after.type != SL_J_MISSING);
    }
    return l->length;
}

struct sl_jv sl_j_loop_attr(struct sl_jrt *rt, struct sl_jloop *l, const struct sl_jstr *name) {
    if (sl_j_str_is(name, "index"))
        return sl_j_int(l->index0 + 1);
    if (sl_j_str_is(name, "index0"))
        return sl_j_int(l->index0);
    if (sl_j_str_is(name, "first"))
        return sl_j_bool(l->index0 == 0);
    if (sl_j_str_is(name, "last"))
        return sl_j_bool(!peek(rt, l));
    if (sl_j_str_is(name, "length"))
        return sl_j_int(sl_j_loop_length(rt, l));
    if (sl_j_str_is(name, "revindex"))
        return sl_j_int(sl_j_loop_length(rt, l) - l->index0);
    if (sl_j_str_is(name, "revindex0"))
        return sl_j_int(sl_j_loop_length(rt, l) - l->index0 - 1);
    if (sl_j_str_is(name, "previtem"))
        return l->index0 == 0 ? sl_j_undef_hint(rt, "there is no previous item") : l->before;
    if (sl_j_str_is(name, "nextitem"))
        return peek(rt, l) ? l->after : sl_j_undef_hint(rt, "there is no next item");
    if (sl_j_str_is(name, "depth"))
        return sl_j_int(l->depth0 + 1);
    if (sl_j_str_is(name, "depth0"))
        return sl_j_int(l->depth0);
    return sl_j_missing();
}
