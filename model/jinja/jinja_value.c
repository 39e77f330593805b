/* Values: construction, truth, equality, order. */
#include "model/jinja/jinja_value.h"
#include "common/clock.h"
#include "model/jinja/jinja_ast.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_JSON_DEPTH = 512 };
/* Between two looks at the clock and the watch: some tens of microseconds, a millisecond under
 * sanitizers. */
#define CHECK_WORK ((uint64_t)2048 * SL_J_STEP)

static _Noreturn void fail(struct sl_jrt *rt, enum sl_status status, const char *fmt, va_list ap) {
    char text[448];
    unsigned line = 0, col = 0;
    vsnprintf(text, sizeof text, fmt, ap);
    if (rt->at)
        sl_j_position(rt->t->source, rt->t->len, rt->at->off, &line, &col);
    if (line)
        rt->status =
            sl_fail(rt->err, status, "chat template line %u, column %u: %s", line, col, text);
    else
        rt->status = sl_fail(rt->err, status, "chat template: %s", text);
    longjmp(rt->jump, 1);
}

void sl_j_fail(struct sl_jrt *rt, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail(rt, SL_ERR_INVALID, fmt, ap);
}

void sl_j_limit(struct sl_jrt *rt, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail(rt, SL_ERR_LIMIT, fmt, ap);
}

void sl_j_no_memory(struct sl_jrt *rt) {
    rt->status = sl_fail(rt->err, SL_ERR_NOMEM, "out of memory to render a chat template");
    longjmp(rt->jump, 1);
}

void *sl_j_alloc(struct sl_jrt *rt, size_t size_bytes) {
    void *p = sl_j_arena_alloc(&rt->arena, size_bytes);
    if (!p && rt->arena.no_memory)
        sl_j_no_memory(rt);
    if (!p)
        sl_j_limit(rt, "rendering needs more memory than its limit of %zu bytes",
                   rt->limits.max_memory_bytes);
    /* Its pages come from the kernel. Not before: what cannot be had is not work. */
    sl_j_charge_n(rt, size_bytes, SL_J_FRESH);
    return p;
}

void *sl_j_alloc_n(struct sl_jrt *rt, size_t n, size_t size_bytes) {
    size_t total;
    if (__builtin_mul_overflow(n, size_bytes, &total))
        total = SIZE_MAX;
    return sl_j_alloc(rt, total);
}

static void check_time(struct sl_jrt *rt) {
    const struct sl_template_watch *w = &rt->limits.watch;
    uint64_t most_ns = rt->limits.max_time_ns;
    if (w->poll) {
        rt->status = w->poll(w->ctx, rt->err);
        if (rt->status != SL_OK)
            longjmp(rt->jump, 1);
    }
    if (most_ns && sl_now_ns() - rt->start_ns > most_ns)
        sl_j_limit(rt,
                   "rendering takes longer than the limit of %.3g s: shorten the conversation, or "
                   "start the server with another chat template or a longer limit",
                   (double)most_ns * 1e-9);
}

void sl_j_check(struct sl_jrt *rt, uint64_t work) {
    uint64_t most = rt->limits.max_steps < (UINT64_MAX >> 16) ? rt->limits.max_steps * SL_J_STEP
                                                              : UINT64_MAX >> 8;
    if (rt->work > most || work > most - rt->work) {
        rt->work = most + 1;
        rt->check_at = rt->work;
        sl_j_limit(rt,
                   "rendering takes more than the limit of %llu steps: shorten the conversation, "
                   "or use a chat template that does less",
                   (unsigned long long)rt->limits.max_steps);
    }
    rt->work += work;
    rt->check_at = most - rt->work < CHECK_WORK ? most + 1 : rt->work + CHECK_WORK;
    check_time(rt);
}

void sl_j_deeper(struct sl_jrt *rt) {
    if (++rt->depth > rt->limits.max_depth)
        sl_j_limit(rt, "calls, expressions or values are nested deeper than the limit of %u",
                   rt->limits.max_depth);
}

/* ---- construction ---- */

struct sl_jv sl_j_str(struct sl_jrt *rt, const char *p, size_t len) {
    struct sl_jstr *s = sl_j_alloc(rt, sizeof *s);
    *s = (struct sl_jstr){.p = p, .len = len, .chars = -1};
    return sl_j_of_str(s);
}

struct sl_jv sl_j_cstr(struct sl_jrt *rt, const char *p) {
    return sl_j_str(rt, p, strlen(p));
}

struct sl_jv sl_j_markup(struct sl_jrt *rt, struct sl_jv v) {
    struct sl_jstr *s = sl_j_alloc(rt, sizeof *s);
    *s = *sl_j_to_str(rt, v);
    s->markup = true;
    return sl_j_of_str(s);
}

static struct sl_jv undef(struct sl_jrt *rt, struct sl_jundef init) {
    struct sl_jundef *u = sl_j_alloc(rt, sizeof *u);
    *u = init;
    return (struct sl_jv){.type = SL_J_UNDEF, .u = u};
}

struct sl_jv sl_j_undef_hint(struct sl_jrt *rt, const char *hint) {
    return undef(rt, (struct sl_jundef){.hint = hint});
}

struct sl_jv sl_j_undef_name(struct sl_jrt *rt, const struct sl_jstr *name) {
    return undef(rt, (struct sl_jundef){.name = sl_j_of_str(name)});
}

struct sl_jv sl_j_undef_member(struct sl_jrt *rt, struct sl_jv owner, struct sl_jv name) {
    return undef(rt, (struct sl_jundef){.owner = owner, .name = name});
}

void sl_j_undef_fail(struct sl_jrt *rt, struct sl_jv v) {
    const struct sl_jundef *u = v.u;
    const char *object = u->owner.type == SL_J_NONE ? "" : " object";
    if (u->hint)
        sl_j_fail(rt, "%s", u->hint);
    if (u->name.type == SL_J_STR && u->owner.type == SL_J_MISSING)
        sl_j_fail(rt, "'%.*s' is undefined", (int)(u->name.s->len > 99 ? 99 : u->name.s->len),
                  u->name.s->p);
    if (u->name.type == SL_J_STR)
        sl_j_fail(rt, "'%s%s' has no attribute '%.*s'", sl_j_type_name(u->owner), object,
                  (int)(u->name.s->len > 99 ? 99 : u->name.s->len), u->name.s->p);
    if (u->name.type == SL_J_INT)
        sl_j_fail(rt, "%s%s has no element %lld", sl_j_type_name(u->owner), object,
                  (long long)u->name.i);
    sl_j_fail(rt, "%s%s has no such element", sl_j_type_name(u->owner), object);
}

struct sl_jv sl_j_list_new(struct sl_jrt *rt, enum sl_j_type type, size_t cap) {
    struct sl_jlist *l = sl_j_alloc(rt, sizeof *l);
    *l = (struct sl_jlist){.cap = cap};
    if (cap)
        l->v = sl_j_alloc_n(rt, cap, sizeof *l->v);
    return (struct sl_jv){.type = type, .l = l};
}

void sl_j_list_push(struct sl_jrt *rt, struct sl_jlist *l, struct sl_jv v) {
    if (l->n == l->cap) {
        size_t cap = l->cap ? 2 * l->cap : 4;
        struct sl_jv *p = sl_j_alloc_n(rt, cap, sizeof *p);
        if (l->n)
            memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
}

struct sl_jv sl_j_pair(struct sl_jrt *rt, struct sl_jv a, struct sl_jv b) {
    struct sl_jv t = sl_j_list_new(rt, SL_J_TUPLE, 2);
    sl_j_list_push(rt, t.l, a);
    sl_j_list_push(rt, t.l, b);
    return t;
}

/* v, the string j, is the template's own if j itself (not its like) is among those that are. */
static struct sl_jv own_string(struct sl_jrt *rt, const json_t *j, struct sl_jv v) {
    for (size_t i = 0; i < json_array_size(rt->own); i++)
        if (json_array_get(rt->own, i) == j)
            ((struct sl_jstr *)v.s)->own = &sl_j_own_all;
    return v;
}

static struct sl_jv from_json(struct sl_jrt *rt, const json_t *j, unsigned depth) {
    if (depth > MAX_JSON_DEPTH)
        sl_j_limit(rt, "the variables are nested deeper than %d", MAX_JSON_DEPTH);
    sl_j_charge(rt, SL_J_ITEM);
    switch (json_typeof(j)) {
    case JSON_OBJECT: {
        struct sl_jv d = sl_j_dict_new(rt);
        for (void *it = json_object_iter((json_t *)j); it;
             it = json_object_iter_next((json_t *)j, it))
            sl_j_dict_set(rt, d.d, sl_j_cstr(rt, json_object_iter_key(it)),
                          from_json(rt, json_object_iter_value(it), depth + 1));
        d.d->frozen = true;
        return d;
    }
    case JSON_ARRAY: {
        size_t n = json_array_size(j);
        struct sl_jv l = sl_j_list_new(rt, SL_J_LIST, n);
        for (size_t i = 0; i < n; i++)
            sl_j_list_push(rt, l.l, from_json(rt, json_array_get(j, i), depth + 1));
        l.l->frozen = true;
        return l;
    }
    case JSON_STRING:
        return own_string(rt, j, sl_j_str(rt, json_string_value(j), json_string_length(j)));
    case JSON_INTEGER:
        return sl_j_int(json_integer_value(j));
    case JSON_REAL:
        return sl_j_float(json_real_value(j));
    case JSON_TRUE:
    case JSON_FALSE:
        return sl_j_bool(json_is_true(j));
    default:
        return sl_j_none();
    }
}

struct sl_jv sl_j_from_json(struct sl_jrt *rt, const json_t *j) {
    return from_json(rt, j, 0);
}

/* ---- what Python says of values ---- */

const char *sl_j_type_name(struct sl_jv v) {
    static const char *const name[] = {
        [SL_J_MISSING] = "missing", [SL_J_UNDEF] = "Undefined", [SL_J_NONE] = "None",
        [SL_J_BOOL] = "bool",       [SL_J_INT] = "int",         [SL_J_FLOAT] = "float",
        [SL_J_STR] = "str",         [SL_J_LIST] = "list",       [SL_J_TUPLE] = "tuple",
        [SL_J_DICT] = "dict",       [SL_J_RANGE] = "range",     [SL_J_VIEW] = "dict_items",
        [SL_J_ITER] = "generator",  [SL_J_NS] = "Namespace",    [SL_J_LOOP] = "LoopContext",
        [SL_J_MACRO] = "Macro",     [SL_J_METHOD] = "method",   [SL_J_FUNC] = "function"};
    return name[v.type];
}

bool sl_j_is_number(struct sl_jv v) {
    return v.type == SL_J_INT || v.type == SL_J_FLOAT || v.type == SL_J_BOOL;
}

bool sl_j_as_int(struct sl_jv v, int64_t *out) {
    if (v.type == SL_J_INT)
        *out = v.i;
    else if (v.type == SL_J_BOOL)
        *out = v.b;
    else
        return false;
    return true;
}

double sl_j_as_double(struct sl_jv v) {
    return v.type == SL_J_FLOAT ? v.f : v.type == SL_J_BOOL ? v.b : (double)v.i;
}

int64_t sl_j_need_int(struct sl_jrt *rt, struct sl_jv v, const char *what) {
    int64_t i;
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (!sl_j_as_int(v, &i))
        sl_j_fail(rt, "%s must be an integer, not %s", what, sl_j_type_name(v));
    return i;
}

const struct sl_jstr *sl_j_need_str(struct sl_jrt *rt, struct sl_jv v) {
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (v.type != SL_J_STR)
        sl_j_fail(rt, "a string is wanted here, not %s", sl_j_type_name(v));
    return v.s;
}

bool sl_j_has_length(struct sl_jv v) {
    switch (v.type) {
    case SL_J_UNDEF:
    case SL_J_STR:
    case SL_J_LIST:
    case SL_J_TUPLE:
    case SL_J_DICT:
    case SL_J_RANGE:
    case SL_J_VIEW:
    case SL_J_LOOP:
        return true;
    default:
        return false;
    }
}

int64_t sl_j_length(struct sl_jrt *rt, struct sl_jv v) {
    switch (v.type) {
    case SL_J_UNDEF:
        return 0;
    case SL_J_STR:
        return (int64_t)sl_j_chars(rt, v.s);
    case SL_J_LIST:
    case SL_J_TUPLE:
        return (int64_t)v.l->n;
    case SL_J_DICT:
        return (int64_t)v.d->n;
    case SL_J_RANGE:
        return v.r->n;
    case SL_J_VIEW:
        return (int64_t)v.view->d->n;
    case SL_J_LOOP:
        return sl_j_loop_length(rt, v.loop);
    default:
        sl_j_fail(rt, "object of type '%s' has no length", sl_j_type_name(v));
    }
}

bool sl_j_truth(struct sl_jrt *rt, struct sl_jv v) {
    switch (v.type) {
    case SL_J_MISSING:
    case SL_J_UNDEF:
    case SL_J_NONE:
        return false;
    case SL_J_BOOL:
        return v.b;
    case SL_J_INT:
        return v.i != 0;
    case SL_J_FLOAT:
        return v.f != 0;
    case SL_J_STR:
        return v.s->len > 0;
    default:
        return !sl_j_has_length(v) || sl_j_length(rt, v) > 0;
    }
}

/* An int against a double, exactly. */
static int compare_mixed(int64_t i, double f) {
    if (f != f)
        return 2; /* unordered */
    if (f >= 9223372036854775808.0)
        return -1;
    if (f < -9223372036854775808.0)
        return 1;
    int64_t whole = (int64_t)f;
    if (i != whole)
        return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

/* -1, 0, 1; 2 when a NaN is among them. */
static int compare_numbers(struct sl_jv a, struct sl_jv b) {
    int64_t i, j;
    bool ai = sl_j_as_int(a, &i), bi = sl_j_as_int(b, &j);
    if (ai && bi)
        return i < j ? -1 : i > j;
    if (ai)
        return compare_mixed(i, b.f);
    if (bi) {
        int r = compare_mixed(j, a.f);
        return r == 2 ? 2 : -r;
    }
    return a.f < b.f ? -1 : a.f > b.f ? 1 : a.f == b.f ? 0 : 2;
}

bool sl_j_equal(struct sl_jrt *rt, struct sl_jv a, struct sl_jv b) {
    bool same = true;
    sl_j_charge(rt, SL_J_ITEM);
    if (sl_j_is_number(a) && sl_j_is_number(b))
        return compare_numbers(a, b) == 0;
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case SL_J_UNDEF:
    case SL_J_NONE:
        return true;
    case SL_J_STR:
        sl_j_charge(rt, a.s->len == b.s->len ? a.s->len * SL_J_BYTE : 0);
        return sl_j_str_eq(a.s, b.s);
    case SL_J_LIST:
    case SL_J_TUPLE:
        if (a.l == b.l)
            return true;
        if (a.l->n != b.l->n)
            return false;
        sl_j_deeper(rt);
        for (size_t i = 0; i < a.l->n && same; i++)
            same = sl_j_equal(rt, a.l->v[i], b.l->v[i]);
        rt->depth--;
        return same;
    case SL_J_DICT:
        if (a.d == b.d)
            return true;
        sl_j_deeper(rt);
        same = sl_j_dict_equal(rt, a.d, b.d);
        rt->depth--;
        return same;
    case SL_J_RANGE:
        return a.r->n == b.r->n && (!a.r->n || a.r->start == b.r->start) &&
               (a.r->n < 2 || a.r->step == b.r->step);
    case SL_J_METHOD:
        return a.meth->fn == b.meth->fn && a.meth->self.type == b.meth->self.type &&
               a.meth->self.l == b.meth->self.l;
    default:
        return a.l == b.l; /* the same object */
    }
}

static _Noreturn void cannot_order(struct sl_jrt *rt, int op, struct sl_jv a, struct sl_jv b) {
    if (a.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, a);
    if (b.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, b);
    const char *sign = op == SL_OP_LE ? "<=" : op == SL_OP_GE ? ">=" : op == '<' ? "<" : ">";
    sl_j_fail(rt, "'%s' is not supported between '%s' and '%s'", sign, sl_j_type_name(a),
              sl_j_type_name(b));
}

bool sl_j_order(struct sl_jrt *rt, int op, struct sl_jv a, struct sl_jv b) {
    int r;
    sl_j_charge(rt, SL_J_ITEM);
    if (sl_j_is_number(a) && sl_j_is_number(b)) {
        r = compare_numbers(a, b);
        if (r == 2)
            return false;
    } else if (a.type == SL_J_STR && b.type == SL_J_STR) {
        /* UTF-8 bytes sort as the code points do. */
        size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        sl_j_charge_n(rt, n, SL_J_BYTE);
        r = n ? memcmp(a.s->p, b.s->p, n) : 0;
        r = r < 0 ? -1 : r > 0 ? 1 : a.s->len < b.s->len ? -1 : a.s->len > b.s->len;
    } else if (a.type == b.type && (a.type == SL_J_LIST || a.type == SL_J_TUPLE)) {
        size_t n = a.l->n < b.l->n ? a.l->n : b.l->n;
        sl_j_deeper(rt);
        for (size_t i = 0; i < n; i++) {
            if (sl_j_equal(rt, a.l->v[i], b.l->v[i]))
                continue;
            bool is = sl_j_order(rt, op, a.l->v[i], b.l->v[i]);
            rt->depth--;
            return is;
        }
        rt->depth--;
        r = a.l->n < b.l->n ? -1 : a.l->n > b.l->n;
    } else {
        cannot_order(rt, op, a, b);
    }
    return op == '<' ? r < 0 : op == '>' ? r > 0 : op == SL_OP_LE ? r <= 0 : r >= 0;
}
