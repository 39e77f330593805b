/* Filters on sequences and mappings. map, select and their like are lazy, as in Jinja.
 * Source: Jinja2's list of built-in filters. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <string.h>

/* ---- attribute paths: "a.b.0", several of them with commas ---- */

struct path {
    struct sl_jv *part;
    size_t n;
    struct sl_jv fallback; /* MISSING or NONE: none */
};

static struct path path_of(struct sl_jrt *rt, struct sl_jv attribute, struct sl_jv fallback) {
    struct path p = {.fallback = fallback};
    if (!sl_j_given(attribute) || attribute.type == SL_J_NONE)
        return p;
    if (attribute.type != SL_J_STR) {
        p.part = sl_j_alloc(rt, sizeof *p.part);
        p.part[p.n++] = attribute;
        return p;
    }
    static const struct sl_jstr dot = {.p = ".", .len = 1, .chars = 1};
    struct sl_jv parts = sl_j_split(rt, attribute.s, &dot, INT64_MAX, false);
    p.part = parts.l->v;
    p.n = parts.l->n;
    for (size_t i = 0; i < p.n; i++) {
        int64_t index;
        bool over, digits = p.part[i].s->len > 0;
        sl_j_charge_n(rt, p.part[i].s->len, SL_J_SCAN);
        for (size_t k = 0; k < p.part[i].s->len; k++)
            digits &= p.part[i].s->p[k] >= '0' && p.part[i].s->p[k] <= '9';
        if (digits && sl_j_parse_int(rt, p.part[i].s, 10, &index, &over) && !over)
            p.part[i] = sl_j_int(index);
    }
    return p;
}

static struct sl_jv follow(struct sl_jrt *rt, const struct path *p, struct sl_jv v) {
    for (size_t i = 0; i < p->n; i++) {
        sl_j_charge(rt, SL_J_STEP);
        v = sl_j_getitem(rt, v, p->part[i]);
        if (v.type == SL_J_UNDEF && sl_j_given(p->fallback) && p->fallback.type != SL_J_NONE)
            v = p->fallback;
    }
    return v;
}

static struct sl_jv fold_case(struct sl_jrt *rt, struct sl_jv v, bool case_sensitive) {
    return !case_sensitive && v.type == SL_J_STR ? sl_j_str_case(rt, v.s, 'l') : v;
}

/* ---- lazy ones ---- */

struct call_state {
    const struct sl_jfunc *fn; /* NULL: truth, or nothing for map */
    const char *what;
    struct sl_jargv args;
    struct path path;
    bool negate;
};

static bool map_step(struct sl_jrt *rt, void *state, struct sl_jv *item) {
    struct call_state *s = state;
    sl_j_charge(rt, SL_J_STEP);
    *item =
        s->fn ? sl_j_call_func(rt, s->what, s->fn, *item, &s->args) : follow(rt, &s->path, *item);
    return true;
}

static bool select_step(struct sl_jrt *rt, void *state, struct sl_jv *item) {
    struct call_state *s = state;
    sl_j_charge(rt, SL_J_STEP);
    struct sl_jv v = follow(rt, &s->path, *item);
    if (s->fn)
        v = sl_j_call_func(rt, s->what, s->fn, v, &s->args);
    return sl_j_truth(rt, v) != s->negate;
}

static bool fail_step(struct sl_jrt *rt, void *state, struct sl_jv *item) {
    (void)item;
    sl_j_fail(rt, "%s", (const char *)state);
}

/* A generator that fails when it is first used, as Jinja's do. */
static struct sl_jv failing(struct sl_jrt *rt, const char *text) {
    struct sl_jv one = sl_j_list_new(rt, SL_J_LIST, 1);
    sl_j_list_push(rt, one.l, sl_j_none());
    return sl_j_iter_map(rt, one, fail_step, (void *)text);
}

static struct sl_jv empty_iter(struct sl_jrt *rt) {
    return sl_j_iter_over(rt, sl_j_list_new(rt, SL_J_LIST, 0));
}

static struct sl_jargv args_after(const struct sl_jargv *all, uint32_t n) {
    struct sl_jargv a = *all;
    a.pos += n;
    a.n_pos -= n;
    return a;
}

SL_J_FUNC(f_map, v) {
    struct call_state *s = sl_j_alloc(rt, sizeof *s);
    *s = (struct call_state){.what = "filter"};
    if (!sl_j_truth(rt, v))
        return empty_iter(rt);
    struct sl_jv attribute = sl_j_missing(), fallback = sl_j_missing();
    bool other = false;
    sl_j_charge_n(rt, all->n_kw, SL_J_ITEM);
    for (uint32_t i = 0; i < all->n_kw; i++) {
        if (sl_j_str_is(all->kw_name[i], "attribute"))
            attribute = all->kw[i];
        else if (sl_j_str_is(all->kw_name[i], "default"))
            fallback = all->kw[i];
        else
            other = true;
    }
    if (!all->n_pos && sl_j_given(attribute)) {
        if (other)
            return failing(rt, "map got an unexpected keyword argument");
        s->path = path_of(rt, attribute, fallback);
    } else {
        if (!all->n_pos)
            return failing(rt, "map requires a filter argument");
        if (all->pos[0].type != SL_J_STR)
            return failing(rt, "map wants the name of a filter");
        s->fn = sl_j_find_filter(all->pos[0].s->p, all->pos[0].s->len);
        if (!s->fn)
            return failing(rt, "map names a filter that does not exist");
        s->args = args_after(all, 1);
    }
    if (!sl_j_iterable(v))
        return failing(rt, "map wants something that can be iterated");
    return sl_j_iter_map(rt, v, map_step, s);
}

static struct sl_jv selecting(struct sl_jrt *rt, struct sl_jv v, const struct sl_jargv *all,
                              bool by_attr, bool negate) {
    struct call_state *s = sl_j_alloc(rt, sizeof *s);
    uint32_t off = by_attr;
    *s = (struct call_state){.what = "test", .negate = negate};
    if (!sl_j_truth(rt, v))
        return empty_iter(rt);
    if (by_attr && !all->n_pos)
        return failing(rt, "the name of an attribute is missing");
    if (by_attr)
        s->path = path_of(rt, all->pos[0], sl_j_missing());
    if (all->n_pos > off) {
        struct sl_jv name = all->pos[off];
        if (name.type == SL_J_STR)
            s->fn = sl_j_find_test(name.s->p, name.s->len);
        if (!s->fn)
            return failing(rt, "a test of this name does not exist");
        s->args = args_after(all, off + 1);
    }
    if (!sl_j_iterable(v))
        return failing(rt, "only what can be iterated can be selected from");
    return sl_j_iter_map(rt, v, select_step, s);
}

SL_J_FUNC(f_select, v) {
    return selecting(rt, v, all, false, false);
}

SL_J_FUNC(f_reject, v) {
    return selecting(rt, v, all, false, true);
}

SL_J_FUNC(f_selectattr, v) {
    return selecting(rt, v, all, true, false);
}

SL_J_FUNC(f_rejectattr, v) {
    return selecting(rt, v, all, true, true);
}

SL_J_FUNC(f_items, v) {
    if (v.type == SL_J_UNDEF)
        return empty_iter(rt);
    if (v.type != SL_J_DICT)
        return failing(rt, "item pairs can only be taken from a mapping");
    struct sl_jview *view = sl_j_alloc(rt, sizeof *view);
    *view = (struct sl_jview){v.d, 'i'};
    return sl_j_iter_over(rt, (struct sl_jv){.type = SL_J_VIEW, .view = view});
}

/* ---- sorting ---- */

static void merge_sort(struct sl_jrt *rt, struct sl_jsort_item *v, struct sl_jsort_item *tmp,
                       size_t n, bool reverse) {
    if (n < 2)
        return;
    size_t half = n / 2, i = 0, j = half, k = 0;
    sl_j_charge_n(rt, n, 2 * SL_J_ITEM);
    merge_sort(rt, v, tmp, half, reverse);
    merge_sort(rt, v + half, tmp, n - half, reverse);
    while (i < half && j < n) {
        bool right = reverse ? sl_j_order(rt, '<', v[i].key, v[j].key)
                             : sl_j_order(rt, '<', v[j].key, v[i].key);
        tmp[k++] = right ? v[j++] : v[i++];
    }
    while (i < half)
        tmp[k++] = v[i++];
    memcpy(v, tmp, k * sizeof *v);
}

void sl_j_sort(struct sl_jrt *rt, struct sl_jsort_item *v, size_t n, bool reverse) {
    merge_sort(rt, v, sl_j_alloc_n(rt, n, sizeof *v), n, reverse);
}

static struct sl_jv sort_by(struct sl_jrt *rt, struct sl_jsort_item *v, size_t n, bool reverse) {
    struct sl_jv out = sl_j_list_new(rt, SL_J_LIST, n);
    sl_j_sort(rt, v, n, reverse);
    for (size_t i = 0; i < n; i++)
        sl_j_list_push(rt, out.l, v[i].val);
    return out;
}

SL_J_FUNC(f_sort, v) {
    struct sl_jv in = sl_j_to_list(rt, v);
    bool sensitive = sl_j_truth(rt, arg[1]);
    struct path one = {0}, *paths = &one;
    size_t n_paths = 1;
    if (sl_j_given(arg[2]) && arg[2].type == SL_J_STR) {
        const struct sl_jfunc *split = sl_j_find_func(sl_j_str_methods, "split", 5);
        struct sl_jv sep[2] = {sl_j_cstr(rt, ","), sl_j_missing()};
        struct sl_jv names = split->fn(rt, arg[2], sep, NULL);
        n_paths = names.l->n;
        paths = sl_j_alloc_n(rt, n_paths, sizeof *paths);
        for (size_t i = 0; i < n_paths; i++)
            paths[i] = path_of(rt, names.l->v[i], sl_j_missing());
    } else {
        one = path_of(rt, arg[2], sl_j_missing());
    }
    struct sl_jsort_item *items = sl_j_alloc_n(rt, in.l->n, sizeof *items);
    for (size_t i = 0; i < in.l->n; i++) {
        sl_j_charge(rt, SL_J_STEP);
        items[i].val = in.l->v[i];
        items[i].key = sl_j_list_new(rt, SL_J_LIST, n_paths);
        for (size_t k = 0; k < n_paths; k++)
            sl_j_list_push(rt, items[i].key.l,
                           fold_case(rt, follow(rt, &paths[k], in.l->v[i]), sensitive));
    }
    return sort_by(rt, items, in.l->n, sl_j_truth(rt, arg[0]));
}

SL_J_FUNC(f_dictsort, v) {
    bool by_value = false, sensitive = sl_j_truth(rt, arg[0]);
    if (sl_j_given(arg[1])) {
        if (arg[1].type != SL_J_STR ||
            (!sl_j_str_is(arg[1].s, "key") && !sl_j_str_is(arg[1].s, "value")))
            sl_j_fail(rt, "dictsort sorts by \"key\" or \"value\"");
        by_value = arg[1].s->p[0] == 'v';
    }
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (v.type != SL_J_DICT)
        sl_j_fail(rt, "dictsort wants a mapping, not %s", sl_j_type_name(v));
    struct sl_jsort_item *items = sl_j_alloc_n(rt, v.d->n, sizeof *items);
    for (size_t i = 0; i < v.d->n; i++) {
        items[i].val = sl_j_pair(rt, v.d->e[i].key, v.d->e[i].val);
        items[i].key = fold_case(rt, by_value ? v.d->e[i].val : v.d->e[i].key, sensitive);
    }
    return sort_by(rt, items, v.d->n, sl_j_truth(rt, arg[2]));
}

SL_J_FUNC(f_groupby, v) {
    struct sl_jv in = sl_j_to_list(rt, v), out = sl_j_list_new(rt, SL_J_LIST, 0);
    struct path path = path_of(rt, arg[0], arg[1]);
    bool sensitive = sl_j_truth(rt, arg[2]);
    struct sl_jsort_item *items = sl_j_alloc_n(rt, in.l->n, sizeof *items);
    for (size_t i = 0; i < in.l->n; i++) {
        sl_j_charge(rt, SL_J_ITEM);
        items[i].val = in.l->v[i];
        items[i].key = fold_case(rt, follow(rt, &path, in.l->v[i]), sensitive);
    }
    sl_j_sort(rt, items, in.l->n, false);
    for (size_t i = 0; i < in.l->n;) {
        struct sl_jv members = sl_j_list_new(rt, SL_J_LIST, 0);
        size_t first = i;
        for (; i < in.l->n && sl_j_equal(rt, items[first].key, items[i].key); i++)
            sl_j_list_push(rt, members.l, items[i].val);
        if (i == first) /* a NaN equals nothing, itself included */
            sl_j_list_push(rt, members.l, items[i++].val);
        struct sl_jv key = sensitive ? items[first].key : follow(rt, &path, items[first].val);
        struct sl_jv group = sl_j_pair(rt, key, members);
        group.l->group = true;
        sl_j_list_push(rt, out.l, group);
    }
    return out;
}

static struct sl_jv extreme(struct sl_jrt *rt, struct sl_jv v, struct sl_jv *arg, int op) {
    struct path path = path_of(rt, arg[1], sl_j_missing());
    bool sensitive = sl_j_truth(rt, arg[0]), any = false;
    struct sl_jv item, best = sl_j_missing(), best_key = best;
    for (struct sl_jiter *it = sl_j_iter(rt, v); sl_j_next(rt, it, &item); any = true) {
        struct sl_jv key = fold_case(rt, follow(rt, &path, item), sensitive);
        if (any && !sl_j_order(rt, op, key, best_key))
            continue;
        best = item;
        best_key = key;
    }
    return any ? best : sl_j_undef_hint(rt, "No aggregated item, sequence was empty.");
}

SL_J_FUNC(f_min, v) {
    return extreme(rt, v, arg, '<');
}

SL_J_FUNC(f_max, v) {
    return extreme(rt, v, arg, '>');
}

/* ---- the rest ---- */

struct unique_state {
    struct path path;
    struct sl_jdict *seen;
    bool case_sensitive;
};

static bool unique_step(struct sl_jrt *rt, void *state, struct sl_jv *item) {
    struct unique_state *s = state;
    struct sl_jv key = fold_case(rt, follow(rt, &s->path, *item), s->case_sensitive);
    if (sl_j_dict_get(rt, s->seen, key))
        return false;
    sl_j_dict_set(rt, s->seen, key, sl_j_none());
    return true;
}

SL_J_FUNC(f_unique, v) {
    struct unique_state *s = sl_j_alloc(rt, sizeof *s);
    s->path = path_of(rt, arg[1], sl_j_missing());
    s->seen = sl_j_dict_new(rt).d;
    s->case_sensitive = sl_j_truth(rt, arg[0]);
    if (!sl_j_iterable(v))
        return failing(rt, "unique wants something that can be iterated");
    return sl_j_iter_map(rt, v, unique_step, s);
}

SL_J_FUNC(f_list, v) {
    return sl_j_to_list(rt, v);
}

SL_J_FUNC(f_length, v) {
    return sl_j_int(sl_j_length(rt, v));
}

SL_J_FUNC(f_first, v) {
    struct sl_jv item;
    if (sl_j_next(rt, sl_j_iter(rt, v), &item))
        return item;
    return sl_j_undef_hint(rt, "No first item, sequence was empty.");
}

static bool reversible(struct sl_jv v) {
    return v.type != SL_J_ITER && v.type != SL_J_LOOP && sl_j_iterable(v);
}

static struct sl_jv reversed(struct sl_jrt *rt, struct sl_jv v) {
    struct sl_jv l = sl_j_to_list(rt, v);
    sl_j_charge_n(rt, l.l->n, SL_J_ITEM);
    for (size_t i = 0; i < l.l->n / 2; i++) {
        struct sl_jv t = l.l->v[i];
        l.l->v[i] = l.l->v[l.l->n - 1 - i];
        l.l->v[l.l->n - 1 - i] = t;
    }
    return l;
}

SL_J_FUNC(f_last, v) {
    if (!reversible(v))
        sl_j_fail(rt, "'%s' object is not reversible", sl_j_type_name(v));
    if (sl_j_length(rt, v) == 0)
        return sl_j_undef_hint(rt, "No last item, sequence was empty.");
    if (v.type == SL_J_DICT || v.type == SL_J_VIEW)
        return reversed(rt, v).l->v[0];
    return sl_j_getitem(rt, v, sl_j_int(-1));
}

SL_J_FUNC(f_reverse, v) {
    if (v.type == SL_J_STR)
        return sl_j_slice(rt, v, sl_j_none(), sl_j_none(), sl_j_int(-1));
    if (v.type == SL_J_LIST)
        return sl_j_iter_back(rt, v);
    struct sl_jv l = reversed(rt, v);
    return reversible(v) ? sl_j_iter_over(rt, l) : l;
}

SL_J_FUNC(f_join, v) {
    struct path path = path_of(rt, arg[1], sl_j_missing());
    const struct sl_jstr *sep = sl_j_given(arg[0]) ? sl_j_to_str(rt, arg[0]) : NULL;
    struct sl_jout o = {0};
    struct sl_jv item;
    bool first = true;
    for (struct sl_jiter *it = sl_j_iter(rt, v); sl_j_next(rt, it, &item); first = false) {
        if (!first && sep)
            sl_j_put_all(rt, &o, sep);
        sl_j_put_str(rt, &o, follow(rt, &path, item));
    }
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(f_default, v) {
    if (v.type == SL_J_UNDEF || (sl_j_truth(rt, arg[1]) && !sl_j_truth(rt, v)))
        return sl_j_given(arg[0]) ? arg[0] : sl_j_cstr(rt, "");
    return v;
}

SL_J_FUNC(f_sum, v) {
    struct path path = path_of(rt, arg[0], sl_j_missing());
    struct sl_jv sum = sl_j_given(arg[1]) ? arg[1] : sl_j_int(0), item;
    if (sum.type == SL_J_STR)
        sl_j_fail(rt, "strings cannot be summed, use join");
    for (struct sl_jiter *it = sl_j_iter(rt, v); sl_j_next(rt, it, &item);)
        sum = sl_j_binary(rt, '+', sum, follow(rt, &path, item));
    return sum;
}

SL_J_FUNC(f_batch, v) {
    int64_t n = sl_j_need_int(rt, arg[0], "the size of a batch");
    struct sl_jv out = sl_j_list_new(rt, SL_J_LIST, 0), row = sl_j_list_new(rt, SL_J_LIST, 0), item;
    for (struct sl_jiter *it = sl_j_iter(rt, v); sl_j_next(rt, it, &item);) {
        if ((int64_t)row.l->n == n) {
            sl_j_list_push(rt, out.l, row);
            row = sl_j_list_new(rt, SL_J_LIST, 0);
        }
        sl_j_list_push(rt, row.l, item);
    }
    if (row.l->n) {
        bool fill = sl_j_given(arg[1]) && arg[1].type != SL_J_NONE;
        while (fill && (int64_t)row.l->n < n) {
            sl_j_charge(rt, SL_J_STEP);
            sl_j_list_push(rt, row.l, arg[1]);
        }
        sl_j_list_push(rt, out.l, row);
    }
    return sl_j_iter_over(rt, out);
}

SL_J_FUNC(f_slice, v) {
    int64_t slices = sl_j_need_int(rt, arg[0], "the number of slices");
    struct sl_jv in = sl_j_to_list(rt, v), out = sl_j_list_new(rt, SL_J_LIST, 0);
    int64_t n = (int64_t)in.l->n, at = 0;
    if (slices == 0)
        sl_j_fail(rt, "slice into zero parts");
    for (int64_t i = 0; i < slices; i++) {
        int64_t take = n / slices + (i < n % slices);
        struct sl_jv part = sl_j_list_new(rt, SL_J_LIST, (size_t)take + 1);
        sl_j_charge(rt, SL_J_STEP + (uint64_t)take * SL_J_ITEM);
        for (int64_t k = 0; k < take; k++)
            sl_j_list_push(rt, part.l, in.l->v[at++]);
        if (sl_j_given(arg[1]) && arg[1].type != SL_J_NONE && i >= n % slices)
            sl_j_list_push(rt, part.l, arg[1]);
        sl_j_list_push(rt, out.l, part);
    }
    return sl_j_iter_over(rt, out);
}

SL_J_FUNC(f_attr, v) {
    if (arg[0].type != SL_J_STR)
        sl_j_fail(rt, "the name of an attribute must be a string");
    if (v.type == SL_J_DICT && !sl_j_find_method(SL_J_DICT, arg[0].s))
        return sl_j_undef_member(rt, v, arg[0]); /* an attribute, never an item */
    return sl_j_getattr(rt, v, arg[0].s);
}

const struct sl_jfunc sl_j_filters_seq[] = {
    {"length", f_length, "", 0, false},
    {"count", f_length, "", 0, false},
    {"default", f_default, "default_value,boolean", 0, false},
    {"d", f_default, "default_value,boolean", 0, false},
    {"join", f_join, "d,attribute", 0, false},
    {"list", f_list, "", 0, false},
    {"items", f_items, "", 0, false},
    {"map", f_map, NULL, 0, false},
    {"select", f_select, NULL, 0, false},
    {"reject", f_reject, NULL, 0, false},
    {"selectattr", f_selectattr, NULL, 0, false},
    {"rejectattr", f_rejectattr, NULL, 0, false},
    {"first", f_first, "", 0, false},
    {"last", f_last, "", 0, false},
    {"reverse", f_reverse, "", 0, false},
    {"sort", f_sort, "reverse,case_sensitive,attribute", 0, false},
    {"dictsort", f_dictsort, "case_sensitive,by,reverse", 0, false},
    {"groupby", f_groupby, "attribute,default,case_sensitive", 1, false},
    {"unique", f_unique, "case_sensitive,attribute", 0, false},
    {"min", f_min, "case_sensitive,attribute", 0, false},
    {"max", f_max, "case_sensitive,attribute", 0, false},
    {"sum", f_sum, "attribute,start", 0, false},
    {"batch", f_batch, "linecount,fill_with", 1, false},
    {"slice", f_slice, "slices,fill_with", 1, false},
    {"attr", f_attr, "name", 1, false},
    {NULL, NULL, NULL, 0, false},
};
