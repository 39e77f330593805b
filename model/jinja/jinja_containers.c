/* Methods of lists, tuples and dictionaries. Those that change one are found only on what the
 * template itself made (jinja_ops.c), so the caller's values stay as they are.
 * Source: Python's documentation of the built-in types. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_value.h"

#include <string.h>

/* The arguments of a method that takes them by position alone. */
static void count_args(struct sl_jrt *rt, const struct sl_jargv *all, const char *method,
                       uint32_t least, uint32_t most) {
    if (all->n_kw)
        sl_j_fail(rt, "%s() takes no keyword arguments", method);
    if (all->n_pos < least || all->n_pos > most)
        sl_j_fail(rt, "%s() takes %u to %u arguments, %u given", method, least, most, all->n_pos);
}

/* ---- lists that stay as they are ---- */

SL_J_FUNC(list_count, self) {
    struct sl_jv v;
    int64_t n = 0;
    for (struct sl_jiter *it = sl_j_iter(rt, self); sl_j_next(rt, it, &v);)
        n += sl_j_equal(rt, v, arg[0]);
    return sl_j_int(n);
}

SL_J_FUNC(list_index, self) {
    int64_t n = sl_j_length(rt, self), i = 0;
    int64_t start = sl_j_given(arg[1]) ? sl_j_need_int(rt, arg[1], "start") : 0;
    int64_t stop = sl_j_given(arg[2]) ? sl_j_need_int(rt, arg[2], "stop") : n;
    struct sl_jv v;
    start = start < 0 ? (start < -n ? 0 : start + n) : start;
    stop = stop < 0 ? (stop < -n ? 0 : stop + n) : stop;
    for (struct sl_jiter *it = sl_j_iter(rt, self); sl_j_next(rt, it, &v); i++)
        if (i >= start && i < stop && sl_j_equal(rt, v, arg[0]))
            return sl_j_int(i);
    sl_j_fail(rt, "the value is not in the %s", sl_j_type_name(self));
}

SL_J_FUNC(list_copy, self) {
    return sl_j_to_list(rt, self);
}

/* ---- lists that change ---- */

/* Takes item `at` out. The first one costs nothing, for lists are used as queues. */
static struct sl_jv take_item(struct sl_jrt *rt, struct sl_jlist *l, size_t at) {
    struct sl_jv v = l->v[at];
    if (at == 0) {
        l->v++;
        l->cap--;
    } else {
        sl_j_charge_n(rt, l->n - at, SL_J_ITEM);
        memmove(&l->v[at], &l->v[at + 1], (l->n - at - 1) * sizeof *l->v);
    }
    l->n--;
    return v;
}

SL_J_FUNC(list_append, self) {
    count_args(rt, all, "append", 1, 1);
    sl_j_list_push(rt, self.l, all->pos[0]);
    return sl_j_none();
}

SL_J_FUNC(list_extend, self) {
    count_args(rt, all, "extend", 1, 1);
    struct sl_jv from = all->pos[0], item;
    if (from.type == SL_J_LIST || from.type == SL_J_TUPLE) {
        size_t n = from.l->n; /* it may be the list itself */
        sl_j_charge_n(rt, n, SL_J_ITEM);
        for (size_t i = 0; i < n; i++)
            sl_j_list_push(rt, self.l, from.l->v[i]);
        return sl_j_none();
    }
    for (struct sl_jiter *it = sl_j_iter(rt, from); sl_j_next(rt, it, &item);)
        sl_j_list_push(rt, self.l, item);
    return sl_j_none();
}

SL_J_FUNC(list_insert, self) {
    count_args(rt, all, "insert", 2, 2);
    struct sl_jlist *l = self.l;
    int64_t n = (int64_t)l->n, at = sl_j_need_int(rt, all->pos[0], "the index of insert()");
    at = at < 0 ? (at < -n ? 0 : at + n) : at > n ? n : at;
    sl_j_list_push(rt, l, all->pos[1]);
    sl_j_charge_n(rt, (uint64_t)(n - at), SL_J_ITEM);
    memmove(&l->v[at + 1], &l->v[at], (size_t)(n - at) * sizeof *l->v);
    l->v[at] = all->pos[1];
    return sl_j_none();
}

SL_J_FUNC(list_pop, self) {
    count_args(rt, all, "pop", 0, 1);
    int64_t n = (int64_t)self.l->n;
    int64_t at = all->n_pos ? sl_j_need_int(rt, all->pos[0], "the index of pop()") : -1;
    at += at < 0 ? n : 0;
    if (at < 0 || at >= n)
        sl_j_fail(rt, n ? "pop index out of range" : "pop from empty list");
    return take_item(rt, self.l, (size_t)at);
}

SL_J_FUNC(list_remove, self) {
    count_args(rt, all, "remove", 1, 1);
    for (size_t i = 0; i < self.l->n; i++) {
        if (sl_j_equal(rt, self.l->v[i], all->pos[0])) {
            take_item(rt, self.l, i);
            return sl_j_none();
        }
    }
    sl_j_fail(rt, "the value to remove is not in the list");
}

SL_J_FUNC(list_clear, self) {
    count_args(rt, all, "clear", 0, 0);
    self.l->n = 0;
    return sl_j_none();
}

SL_J_FUNC(list_reverse, self) {
    count_args(rt, all, "reverse", 0, 0);
    struct sl_jlist *l = self.l;
    sl_j_charge_n(rt, l->n, SL_J_ITEM);
    for (size_t i = 0; i < l->n / 2; i++) {
        struct sl_jv t = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = t;
    }
    return sl_j_none();
}

/* sort(key=a function, reverse=a truth) */
SL_J_FUNC(list_sort, self) {
    struct sl_jv key = sl_j_none();
    struct sl_jlist *l = self.l, whole = *l;
    bool reverse = false;
    if (all->n_pos)
        sl_j_fail(rt, "sort() takes no positional arguments");
    for (uint32_t i = 0; i < all->n_kw; i++) {
        if (sl_j_str_is(all->kw_name[i], "key"))
            key = all->kw[i];
        else if (sl_j_str_is(all->kw_name[i], "reverse"))
            reverse = sl_j_need_int(rt, all->kw[i], "sort's reverse") != 0;
        else
            sl_j_fail(rt, "sort() takes the arguments key and reverse");
    }
    struct sl_jsort_item *items = sl_j_alloc_n(rt, whole.n, sizeof *items);
    /* Empty meanwhile, so that a key function cannot change what is being sorted. */
    *l = (struct sl_jlist){0};
    for (size_t i = 0; i < whole.n; i++) {
        struct sl_jargv one = {.pos = &whole.v[i], .n_pos = 1};
        sl_j_charge(rt, SL_J_STEP);
        items[i].val = whole.v[i];
        items[i].key = key.type == SL_J_NONE ? whole.v[i] : sl_j_call(rt, key, &one);
    }
    sl_j_sort(rt, items, whole.n, reverse);
    if (l->v)
        sl_j_fail(rt, "the list was changed while it was sorted");
    sl_j_charge_n(rt, whole.n, SL_J_ITEM);
    for (size_t i = 0; i < whole.n; i++)
        whole.v[i] = items[i].val;
    *l = whole;
    return sl_j_none();
}

const struct sl_jfunc sl_j_list_methods[] = {
    {"append", list_append, NULL, 0, true},
    {"pop", list_pop, NULL, 0, true},
    {"extend", list_extend, NULL, 0, true},
    {"insert", list_insert, NULL, 0, true},
    {"remove", list_remove, NULL, 0, true},
    {"clear", list_clear, NULL, 0, true},
    {"sort", list_sort, NULL, 0, true},
    {"reverse", list_reverse, NULL, 0, true},
    {"index", list_index, "value,start,stop", 1, false},
    {"count", list_count, "value", 1, false},
    {"copy", list_copy, "", 0, false},
    {NULL, NULL, NULL, 0, false},
};

const struct sl_jfunc sl_j_tuple_methods[] = {
    {"index", list_index, "value,start,stop", 1, false},
    {"count", list_count, "value", 1, false},
    {NULL, NULL, NULL, 0, false},
};

/* ---- dictionaries that stay as they are ---- */

static struct sl_jv view(struct sl_jrt *rt, struct sl_jv self, char what) {
    struct sl_jview *v = sl_j_alloc(rt, sizeof *v);
    *v = (struct sl_jview){self.d, what};
    return (struct sl_jv){.type = SL_J_VIEW, .view = v};
}

SL_J_FUNC(dict_keys, self) {
    return view(rt, self, 'k');
}

SL_J_FUNC(dict_values, self) {
    return view(rt, self, 'v');
}

SL_J_FUNC(dict_items, self) {
    return view(rt, self, 'i');
}

SL_J_FUNC(dict_get, self) {
    struct sl_jv *p = sl_j_dict_get(rt, self.d, arg[0]);
    return p ? *p : sl_j_given(arg[1]) ? arg[1] : sl_j_none();
}

SL_J_FUNC(dict_copy, self) {
    struct sl_jv d = sl_j_dict_new(rt);
    for (size_t i = 0; i < self.d->n; i++)
        sl_j_dict_set(rt, d.d, self.d->e[i].key, self.d->e[i].val);
    return d;
}

SL_J_FUNC(dict_fromkeys, self) {
    count_args(rt, all, "fromkeys", 1, 2);
    struct sl_jv d = sl_j_dict_new(rt), key;
    struct sl_jv value = all->n_pos > 1 ? all->pos[1] : sl_j_none();
    for (struct sl_jiter *it = sl_j_iter(rt, all->pos[0]); sl_j_next(rt, it, &key);)
        sl_j_dict_set(rt, d.d, key, value);
    return d;
}

/* ---- dictionaries that change ---- */

SL_J_FUNC(dict_update, self) {
    sl_j_dict_fill(rt, self.d, all, "update");
    return sl_j_none();
}

SL_J_FUNC(dict_pop, self) {
    count_args(rt, all, "pop", 1, 2);
    struct sl_jv *p = sl_j_dict_get(rt, self.d, all->pos[0]);
    if (!p && all->n_pos < 2)
        sl_j_fail(rt, "the key to pop is not in the dictionary");
    if (!p)
        return all->pos[1];
    struct sl_jv v = *p;
    sl_j_dict_remove(rt, self.d, p);
    return v;
}

SL_J_FUNC(dict_popitem, self) {
    count_args(rt, all, "popitem", 0, 0);
    if (!self.d->n)
        sl_j_fail(rt, "popitem(): dictionary is empty");
    const struct sl_jentry *last = &self.d->e[self.d->n - 1];
    struct sl_jv pair = sl_j_pair(rt, last->key, last->val);
    sl_j_dict_remove(rt, self.d, &self.d->e[self.d->n - 1].val);
    return pair;
}

SL_J_FUNC(dict_setdefault, self) {
    count_args(rt, all, "setdefault", 1, 2);
    struct sl_jv *p = sl_j_dict_get(rt, self.d, all->pos[0]);
    if (p)
        return *p;
    struct sl_jv value = all->n_pos > 1 ? all->pos[1] : sl_j_none();
    sl_j_dict_set(rt, self.d, all->pos[0], value);
    return value;
}

SL_J_FUNC(dict_clear, self) {
    count_args(rt, all, "clear", 0, 0);
    *self.d = (struct sl_jdict){.n_changes = self.d->n_changes + (self.d->n > 0)};
    return sl_j_none();
}

const struct sl_jfunc sl_j_dict_methods[] = {
    {"items", dict_items, "", 0, false},
    {"get", dict_get, "key,default", 1, false},
    {"keys", dict_keys, "", 0, false},
    {"values", dict_values, "", 0, false},
    {"copy", dict_copy, "", 0, false},
    {"fromkeys", dict_fromkeys, NULL, 0, false},
    {"update", dict_update, NULL, 0, true},
    {"pop", dict_pop, NULL, 0, true},
    {"popitem", dict_popitem, NULL, 0, true},
    {"clear", dict_clear, NULL, 0, true},
    {"setdefault", dict_setdefault, NULL, 0, true},
    {NULL, NULL, NULL, 0, false},
};
