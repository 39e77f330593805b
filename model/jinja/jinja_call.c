/* Calls: matching arguments to parameters, the global functions, and finding functions by name. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_value.h"

#include <string.h>
#include <time.h>

enum { MAX_PARAMS = 8, MAX_RANGE = 100000 /* Jinja's own */ };

static unsigned split_params(const char *params, const char *name[MAX_PARAMS],
                             size_t len[MAX_PARAMS]) {
    unsigned n = 0;
    while (*params) {
        const char *comma = strchrnul(params, ',');
        name[n] = params;
        len[n++] = (size_t)(comma - params);
        params = *comma ? comma + 1 : comma;
    }
    return n;
}

struct sl_jv sl_j_call_func(struct sl_jrt *rt, const char *what, const struct sl_jfunc *f,
                            struct sl_jv self, const struct sl_jargv *args) {
    static const struct sl_jargv none = {0};
    const char *name[MAX_PARAMS];
    size_t len[MAX_PARAMS];
    struct sl_jv arg[MAX_PARAMS];
    if (!args)
        args = &none;
    if (!f->params)
        return f->fn(rt, self, NULL, args);
    unsigned n = split_params(f->params, name, len);
    if (args->n_pos > n)
        sl_j_fail(rt, "the %s %s takes at most %u arguments, %u given", what, f->name, n,
                  args->n_pos);
    for (unsigned i = 0; i < n; i++)
        arg[i] = i < args->n_pos ? args->pos[i] : sl_j_missing();
    sl_j_charge_n(rt, args->n_kw + 1u, SL_J_CHAR);
    for (uint32_t k = 0; k < args->n_kw; k++) {
        const struct sl_jstr *kw = args->kw_name[k];
        unsigned i = 0;
        while (i < n && !(kw->len == len[i] && !memcmp(kw->p, name[i], len[i])))
            i++;
        if (i == n || arg[i].type != SL_J_MISSING)
            sl_j_fail(rt, "the %s %s got an unexpected argument '%.*s'", what, f->name,
                      (int)(kw->len > 40 ? 40 : kw->len), kw->p);
        arg[i] = args->kw[k];
    }
    for (unsigned i = 0; i < f->n_required; i++)
        if (arg[i].type == SL_J_MISSING)
            sl_j_fail(rt, "the %s %s needs its argument '%.*s'", what, f->name, (int)len[i],
                      name[i]);
    return f->fn(rt, self, arg, args);
}

struct sl_jv sl_j_call(struct sl_jrt *rt, struct sl_jv f, struct sl_jargv *args) {
    switch (f.type) {
    case SL_J_UNDEF:
        sl_j_undef_fail(rt, f);
    case SL_J_METHOD:
        return sl_j_call_func(rt, "method", f.meth->fn, f.meth->self, args);
    case SL_J_FUNC:
        return sl_j_call_func(rt, "function", f.fn, sl_j_none(), args);
    case SL_J_MACRO:
        return sl_j_call_macro(rt, f.m, args);
    case SL_J_LOOP:
        if (args->n_pos != 1 || args->n_kw)
            sl_j_fail(rt, "loop() takes the iterable for the next level");
        return sl_j_loop_recurse(rt, f.loop, args->pos[0]);
    default:
        sl_j_fail(rt, "'%s' object is not callable", sl_j_type_name(f));
    }
}

const struct sl_jfunc *sl_j_find_func(const struct sl_jfunc *table, const char *p, size_t len) {
    for (; table->name; table++)
        if (table->name[0] == *p && strlen(table->name) == len && !memcmp(table->name, p, len))
            return table;
    return NULL;
}

const struct sl_jfunc *sl_j_find_filter(const char *p, size_t len) {
    const struct sl_jfunc *const tables[] = {sl_j_filters_text, sl_j_filters_seq, sl_j_filters_num};
    const struct sl_jfunc *f = NULL;
    for (int i = 0; len && i < 3 && !f; i++)
        f = sl_j_find_func(tables[i], p, len);
    return f;
}

const struct sl_jfunc *sl_j_find_test(const char *p, size_t len) {
    return len ? sl_j_find_func(sl_j_tests, p, len) : NULL;
}

const struct sl_jfunc *sl_j_find_method(enum sl_j_type type, const struct sl_jstr *name) {
    const struct sl_jfunc *table = type == SL_J_STR     ? sl_j_str_methods
                                   : type == SL_J_DICT  ? sl_j_dict_methods
                                   : type == SL_J_LIST  ? sl_j_list_methods
                                   : type == SL_J_TUPLE ? sl_j_tuple_methods
                                   : type == SL_J_RANGE ? sl_j_tuple_methods
                                   : type == SL_J_LOOP  ? sl_j_loop_methods
                                   : type == SL_J_INT || type == SL_J_BOOL || type == SL_J_FLOAT
                                       ? sl_j_number_methods
                                       : NULL;
    return table && name->len ? sl_j_find_func(table, name->p, name->len) : NULL;
}

/* ---- global functions ---- */

SL_J_FUNC(fn_range, self) {
    struct sl_jrange *r = sl_j_alloc(rt, sizeof *r);
    if (all->n_kw)
        sl_j_fail(rt, "range() takes no keyword arguments");
    r->start = 0;
    r->stop = sl_j_need_int(rt, arg[0], "an argument of range()");
    r->step = 1;
    if (arg[1].type != SL_J_MISSING) {
        r->start = r->stop;
        r->stop = sl_j_need_int(rt, arg[1], "an argument of range()");
    }
    if (arg[2].type != SL_J_MISSING)
        r->step = sl_j_need_int(rt, arg[2], "an argument of range()");
    if (r->step == 0)
        sl_j_fail(rt, "the step of range() must not be zero");
    __int128 span = r->step > 0 ? (__int128)r->stop - r->start : (__int128)r->start - r->stop;
    __int128 by = r->step > 0 ? (__int128)r->step : -(__int128)r->step;
    __int128 n = span > 0 ? (span - 1) / by + 1 : 0;
    if (n > MAX_RANGE)
        sl_j_fail(rt, "range() of more than %d items", MAX_RANGE);
    r->n = (int64_t)n;
    return (struct sl_jv){.type = SL_J_RANGE, .r = r};
}

void sl_j_dict_fill(struct sl_jrt *rt, struct sl_jdict *d, const struct sl_jargv *all,
                    const char *what) {
    if (all->n_pos > 1)
        sl_j_fail(rt, "%s() takes at most one positional argument", what);
    if (all->n_pos && all->pos[0].type == SL_J_UNDEF)
        sl_j_undef_fail(rt, all->pos[0]);
    if (all->n_pos && all->pos[0].type == SL_J_DICT) {
        for (size_t i = 0; i < all->pos[0].d->n; i++)
            sl_j_dict_set(rt, d, all->pos[0].d->e[i].key, all->pos[0].d->e[i].val);
    } else if (all->n_pos) {
        struct sl_jv pair;
        for (struct sl_jiter *it = sl_j_iter(rt, all->pos[0]); sl_j_next(rt, it, &pair);) {
            struct sl_jv two = sl_j_to_list(rt, pair);
            if (two.l->n != 2)
                sl_j_fail(rt, "%s() wants pairs, got %zu values", what, two.l->n);
            sl_j_dict_set(rt, d, two.l->v[0], two.l->v[1]);
        }
    }
    for (uint32_t i = 0; i < all->n_kw; i++)
        sl_j_dict_set(rt, d, sl_j_of_str(all->kw_name[i]), all->kw[i]);
}

SL_J_FUNC(fn_dict, self) {
    struct sl_jv d = sl_j_dict_new(rt);
    sl_j_dict_fill(rt, d.d, all, "dict");
    return d;
}

SL_J_FUNC(fn_namespace, self) {
    struct sl_jv d = sl_j_dict_new(rt);
    sl_j_dict_fill(rt, d.d, all, "namespace");
    d.type = SL_J_NS;
    return d;
}

SL_J_FUNC(fn_raise, self) {
    const struct sl_jstr *s = sl_j_to_str(rt, arg[0]);
    sl_j_fail(rt, "%.*s", (int)(s->len > 4096 ? 4096 : s->len), s->p);
}

struct sl_jv sl_j_strftime(struct sl_jrt *rt, const struct sl_jstr *fmt, int64_t now_s) {
    struct sl_jout o = {0};
    struct tm tm;
    time_t t = (time_t)now_s;
    if (!gmtime_r(&t, &tm))
        sl_j_fail(rt, "the time is out of range");
    for (const char *p = fmt->p, *end = p + fmt->len; p < end;) {
        sl_j_charge(rt, SL_J_DIGITS);
        const char *percent = memchr(p, '%', (size_t)(end - p));
        if (!percent)
            percent = end;
        sl_j_put(rt, &o, p, (size_t)(percent - p));
        p = percent;
        if (p == end)
            break;
        /* One directive at a time, flags but no widths, so that its length is bounded. */
        char spec[4] = "%", text[128];
        size_t n = 1;
        p++;
        if (p < end && *p && strchr("-_0^#", *p))
            spec[n++] = *p++;
        if (p == end) {
            sl_j_put(rt, &o, spec, n);
            break;
        }
        spec[n++] = *p++;
        char d = spec[n - 1];
        if (d == 'f')
            sl_j_puts(rt, &o, "000000");
        else if (d == 'z' || d == 'Z')
            continue; /* the time has no zone */
        else if (d == '%' || !strchr("aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyY", d))
            sl_j_put(rt, &o, d == '%' ? "%" : spec, d == '%' ? 1 : n);
        else
            sl_j_put(rt, &o, text, strftime(text, sizeof text, spec, &tm));
    }
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(fn_strftime, self) {
    if (arg[0].type != SL_J_STR)
        sl_j_fail(rt, "strftime_now() wants a string");
    return sl_j_strftime(rt, arg[0].s, rt->limits.now_s ? rt->limits.now_s : (int64_t)time(NULL));
}

const struct sl_jfunc sl_j_globals[] = {
    {"range", fn_range, "start,stop,step", 1, false},
    {"dict", fn_dict, NULL, 0, false},
    {"namespace", fn_namespace, NULL, 0, false},
    {"raise_exception", fn_raise, "message", 1, false},
    {"strftime_now", fn_strftime, "format", 1, false},
    {NULL, NULL, NULL, 0, false},
};
