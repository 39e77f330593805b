/* Operators and member access, as Python defines them for the built-in types. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <math.h>
#include <string.h>

static _Noreturn void bad_operands(struct sl_jrt *rt, int op, struct sl_jv a, struct sl_jv b) {
    char sign[3] = {(char)op, 0, 0};
    if (a.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, a);
    if (b.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, b);
    if (op == SL_OP_FLOORDIV || op == SL_OP_POW)
        sign[0] = sign[1] = op == SL_OP_POW ? '*' : '/';
    sl_j_fail(rt, "unsupported operand types for %s: '%s' and '%s'", sign, sl_j_type_name(a),
              sl_j_type_name(b));
}

static _Noreturn void overflow(struct sl_jrt *rt) {
    sl_j_fail(rt, "the result does not fit into a 64-bit integer");
}

int64_t sl_j_int_mul(struct sl_jrt *rt, int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        overflow(rt);
    return r;
}

int64_t sl_j_int_pow(struct sl_jrt *rt, int64_t base, int64_t exp) {
    int64_t r = 1;
    for (;;) {
        if (exp & 1)
            r = sl_j_int_mul(rt, r, base);
        exp >>= 1;
        if (!exp)
            return r;
        base = sl_j_int_mul(rt, base, base);
    }
}

static struct sl_jv int_op(struct sl_jrt *rt, int op, int64_t a, int64_t b) {
    int64_t r;
    if (!b && (op == '/' || op == '%' || op == SL_OP_FLOORDIV))
        sl_j_fail(rt, "division by zero");
    switch (op) {
    case '+':
        if (__builtin_add_overflow(a, b, &r))
            overflow(rt);
        return sl_j_int(r);
    case '-':
        if (__builtin_sub_overflow(a, b, &r))
            overflow(rt);
        return sl_j_int(r);
    case '*':
        return sl_j_int(sl_j_int_mul(rt, a, b));
    case '/':
        return sl_j_float((double)((long double)a / (long double)b));
    case SL_OP_FLOORDIV:
        if (a == INT64_MIN && b == -1)
            overflow(rt);
        r = a / b;
        return sl_j_int(r - (a % b != 0 && (a < 0) != (b < 0)));
    case '%':
        if (b == -1)
            return sl_j_int(0);
        r = a % b;
        return sl_j_int(r + (r != 0 && (r < 0) != (b < 0) ? b : 0));
    default:
        if (b >= 0)
            return sl_j_int(sl_j_int_pow(rt, a, b));
        if (!a)
            sl_j_fail(rt, "0.0 cannot be raised to a negative power");
        return sl_j_float(pow((double)a, (double)b));
    }
}

static struct sl_jv float_op(struct sl_jrt *rt, int op, double a, double b) {
    double r;
    if (b == 0 && (op == '/' || op == '%' || op == SL_OP_FLOORDIV))
        sl_j_fail(rt, "float division by zero");
    switch (op) {
    case '+':
        return sl_j_float(a + b);
    case '-':
        return sl_j_float(a - b);
    case '*':
        return sl_j_float(a * b);
    case '/':
        return sl_j_float(a / b);
    case '%':
    case SL_OP_FLOORDIV: {
        double mod = fmod(a, b), div = (a - mod) / b;
        if (mod != 0 && (mod < 0) != (b < 0)) {
            mod += b;
            div -= 1;
        } else if (mod == 0) {
            mod = copysign(0.0, b);
        }
        if (op == '%')
            return sl_j_float(mod);
        r = div != 0 ? floor(div) : copysign(0.0, a / b);
        if (div != 0 && div - r > 0.5)
            r += 1;
        return sl_j_float(r);
    }
    default:
        if (a == 0 && b < 0)
            sl_j_fail(rt, "0.0 cannot be raised to a negative power");
        if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
            sl_j_fail(rt, "a negative number cannot be raised to a fractional power");
        r = pow(a, b);
        if (isinf(r) && isfinite(a) && isfinite(b))
            sl_j_fail(rt, "numerical result out of range");
        return sl_j_float(r);
    }
}

static struct sl_jv repeat(struct sl_jrt *rt, struct sl_jv v, int64_t times) {
    if (times < 0)
        times = 0;
    if (v.type == SL_J_STR) {
        size_t total;
        if (__builtin_mul_overflow(v.s->len, (size_t)times, &total))
            total = SIZE_MAX;
        char *p = sl_j_alloc(rt, total);
        sl_j_charge_n(rt, v.s->len ? (uint64_t)times : 0, SL_J_ITEM);
        for (size_t i = 0; i < total; i += v.s->len)
            memcpy(p + i, v.s->p, v.s->len);
        struct sl_jv r = sl_j_str(rt, p, total);
        struct sl_jstr *s = (struct sl_jstr *)r.s;
        s->markup = v.s->markup;
        if (total && sl_j_is_own(v.s, v.s->p, v.s->len)) {
            s->own = &sl_j_own_all;
        } else if (total && v.s->own) {
            struct sl_jown *own = sl_j_alloc(rt, sizeof *own);
            *own = (struct sl_jown){.base = p};
            for (size_t i = 0; i < total; i += v.s->len)
                sl_j_own_copy(rt, own, i, v.s, v.s->p, v.s->len);
            s->own = own;
        }
        return r;
    }
    size_t total;
    if (__builtin_mul_overflow(v.l->n, (size_t)times, &total))
        total = SIZE_MAX;
    struct sl_jv r = sl_j_list_new(rt, v.type, total);
    sl_j_charge_n(rt, total, SL_J_ITEM);
    for (size_t i = 0; v.l->n && i < total; i += v.l->n)
        memcpy(r.l->v + i, v.l->v, v.l->n * sizeof *v.l->v);
    r.l->n = total;
    return r;
}

static struct sl_jv add_lists(struct sl_jrt *rt, struct sl_jv a, struct sl_jv b) {
    struct sl_jv r = sl_j_list_new(rt, a.type, a.l->n + b.l->n);
    sl_j_charge_n(rt, a.l->n + b.l->n, SL_J_ITEM);
    if (a.l->n)
        memcpy(r.l->v, a.l->v, a.l->n * sizeof *r.l->v);
    if (b.l->n)
        memcpy(r.l->v + a.l->n, b.l->v, b.l->n * sizeof *r.l->v);
    r.l->n = a.l->n + b.l->n;
    return r;
}

static bool is_sequence(struct sl_jv v) {
    return v.type == SL_J_STR || v.type == SL_J_LIST || v.type == SL_J_TUPLE;
}

struct sl_jv sl_j_binary(struct sl_jrt *rt, int op, struct sl_jv a, struct sl_jv b) {
    int64_t i, j;
    bool ai = sl_j_as_int(a, &i), bi = sl_j_as_int(b, &j);
    if (ai && bi)
        return int_op(rt, op, i, j);
    if (sl_j_is_number(a) && sl_j_is_number(b))
        return float_op(rt, op, sl_j_as_double(a), sl_j_as_double(b));
    if (op == '+' && a.type == b.type) {
        if (a.type == SL_J_STR)
            return sl_j_concat(rt, a, b);
        if (a.type == SL_J_LIST || a.type == SL_J_TUPLE)
            return add_lists(rt, a, b);
    }
    if (op == '*' && bi && is_sequence(a))
        return repeat(rt, a, j);
    if (op == '*' && ai && is_sequence(b))
        return repeat(rt, b, i);
    if (op == '%' && a.type == SL_J_STR)
        return sl_j_percent(rt, a.s, b);
    bad_operands(rt, op, a, b);
}

bool sl_j_contains(struct sl_jrt *rt, struct sl_jv seq, struct sl_jv item) {
    struct sl_jv x;
    if (seq.type == SL_J_STR) {
        if (item.type != SL_J_STR)
            sl_j_fail(rt, "'in <string>' requires a string as left operand, not %s",
                      sl_j_type_name(item));
        return sl_j_find(rt, seq.s, seq.s->p, item.s) != NULL;
    }
    if (seq.type == SL_J_DICT || (seq.type == SL_J_VIEW && seq.view->what == 'k'))
        return sl_j_dict_get(rt, seq.type == SL_J_DICT ? seq.d : seq.view->d, item) != NULL;
    if (!sl_j_iterable(seq))
        sl_j_fail(rt, "argument of type '%s' is not iterable", sl_j_type_name(seq));
    for (struct sl_jiter *it = sl_j_iter(rt, seq); sl_j_next(rt, it, &x);)
        if (sl_j_equal(rt, x, item))
            return true;
    return false;
}

/* ---- members ---- */

static struct sl_jv bind_method(struct sl_jrt *rt, struct sl_jv self, const struct sl_jfunc *fn) {
    if (fn->changes && (self.type == SL_J_DICT ? self.d->frozen : self.l->frozen))
        return sl_j_undef_hint(
            rt, self.type == SL_J_DICT
                    ? "this dictionary was given to the template, which may change only what it "
                      "made itself, such as a copy: dict(it)"
                    : "this list was given to the template, which may change only what it made "
                      "itself, such as a copy: it|list");
    struct sl_jmethod *m = sl_j_alloc(rt, sizeof *m);
    *m = (struct sl_jmethod){self, fn};
    return (struct sl_jv){.type = SL_J_METHOD, .meth = m};
}

static struct sl_jv macro_attr(struct sl_jrt *rt, const struct sl_jnode *n,
                               const struct sl_jstr *name) {
    if (sl_j_str_is(name, "name"))
        return n->name ? sl_j_of_str(n->name) : sl_j_none();
    if (sl_j_str_is(name, "arguments")) {
        struct sl_jv t = sl_j_list_new(rt, SL_J_TUPLE, n->params->n);
        sl_j_charge_n(rt, n->params->n, SL_J_ITEM);
        for (uint32_t i = 0; i < n->params->n; i++)
            sl_j_list_push(rt, t.l, sl_j_of_str(n->params->name[i]->name));
        return t;
    }
    if (sl_j_str_is(name, "catch_kwargs"))
        return sl_j_bool(n->params->kwargs_slot >= 0);
    if (sl_j_str_is(name, "catch_varargs"))
        return sl_j_bool(n->params->varargs_slot >= 0);
    if (sl_j_str_is(name, "caller"))
        return sl_j_bool(n->params->caller_slot >= 0);
    return sl_j_missing();
}

/* What Python's getattr finds, or MISSING. */
static struct sl_jv attribute(struct sl_jrt *rt, struct sl_jv v, const struct sl_jstr *name) {
    struct sl_jv *p;
    if (name->len && name->p[0] == '_' && v.type != SL_J_NS)
        return sl_j_missing();
    const struct sl_jfunc *fn = sl_j_find_method(v.type, name);
    if (fn)
        return bind_method(rt, v, fn);
    switch (v.type) {
    case SL_J_NS:
        p = sl_j_dict_get(rt, v.d, sl_j_of_str(name));
        if (p && name->p[0] == '_')
            return sl_j_undef_hint(rt, "names that begin with '_' are not accessible");
        return p ? *p : sl_j_missing();
    case SL_J_LOOP:
        return sl_j_loop_attr(rt, v.loop, name);
    case SL_J_TUPLE:
        if (v.l->group && (sl_j_str_is(name, "grouper") || sl_j_str_is(name, "list")))
            return v.l->v[name->p[0] == 'l'];
        return sl_j_missing();
    case SL_J_MACRO:
        return macro_attr(rt, v.m->node, name);
    case SL_J_RANGE:
        if (sl_j_str_is(name, "start"))
            return sl_j_int(v.r->start);
        if (sl_j_str_is(name, "stop"))
            return sl_j_int(v.r->stop);
        if (sl_j_str_is(name, "step"))
            return sl_j_int(v.r->step);
        return sl_j_missing();
    case SL_J_BOOL:
    case SL_J_INT:
        if (sl_j_str_is(name, "real") || sl_j_str_is(name, "numerator"))
            return sl_j_int(v.type == SL_J_INT ? v.i : v.b);
        if (sl_j_str_is(name, "imag") || sl_j_str_is(name, "denominator"))
            return sl_j_int(name->p[0] == 'd');
        return sl_j_missing();
    case SL_J_FLOAT:
        if (sl_j_str_is(name, "real"))
            return v;
        return sl_j_str_is(name, "imag") ? sl_j_float(0) : sl_j_missing();
    default:
        return sl_j_missing();
    }
}

/* What Python's v[key] finds, or MISSING. */
static struct sl_jv item(struct sl_jrt *rt, struct sl_jv v, struct sl_jv key) {
    int64_t i;
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (v.type == SL_J_DICT) {
        struct sl_jv *p = sl_j_dict_find(rt, v.d, key);
        return p ? *p : sl_j_missing();
    }
    if (!sl_j_as_int(key, &i) || (!is_sequence(v) && v.type != SL_J_RANGE))
        return sl_j_missing();
    int64_t n = sl_j_length(rt, v);
    if (i < 0)
        i += n;
    if (i < 0 || i >= n)
        return sl_j_missing();
    if (v.type == SL_J_STR)
        return sl_j_substr(rt, v.s, (size_t)i, (size_t)i + 1);
    return v.type == SL_J_RANGE ? sl_j_range_at(v.r, i) : v.l->v[i];
}

struct sl_jv sl_j_getattr(struct sl_jrt *rt, struct sl_jv v, const struct sl_jstr *name) {
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    sl_j_charge(rt, SL_J_STEP); /* the tables of methods are gone through by name */
    struct sl_jv r = attribute(rt, v, name);
    if (r.type == SL_J_MISSING)
        r = item(rt, v, sl_j_of_str(name));
    return r.type == SL_J_MISSING ? sl_j_undef_member(rt, v, sl_j_of_str(name)) : r;
}

struct sl_jv sl_j_getitem(struct sl_jrt *rt, struct sl_jv v, struct sl_jv key) {
    struct sl_jv r = item(rt, v, key);
    if (r.type == SL_J_MISSING && key.type == SL_J_STR) {
        sl_j_charge(rt, SL_J_STEP);
        r = attribute(rt, v, key.s);
    }
    return r.type == SL_J_MISSING ? sl_j_undef_member(rt, v, key) : r;
}

static int64_t bound(struct sl_jrt *rt, struct sl_jv v, int64_t missing, int64_t n, int64_t lo,
                     int64_t hi) {
    int64_t i;
    if (v.type == SL_J_NONE)
        return missing;
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (!sl_j_as_int(v, &i))
        sl_j_fail(rt, "slice indices must be integers or none, not %s", sl_j_type_name(v));
    if (i < 0)
        i = i < -n ? lo : i + n;
    return i < lo ? lo : i > hi ? hi : i;
}

/* Where item i of a range is or would be; its end may lie beyond what 64 bits hold. */
static int64_t range_end(struct sl_jrt *rt, const struct sl_jrange *r, int64_t i) {
    __int128 at = (__int128)i * r->step + r->start;
    if (at < INT64_MIN || at > INT64_MAX)
        overflow(rt);
    return (int64_t)at;
}

struct sl_jv sl_j_slice(struct sl_jrt *rt, struct sl_jv v, struct sl_jv start, struct sl_jv stop,
                        struct sl_jv step) {
    int64_t by = 1;
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (!is_sequence(v) && v.type != SL_J_RANGE)
        sl_j_fail(rt, "'%s' object cannot be sliced", sl_j_type_name(v));
    if (step.type != SL_J_NONE)
        by = sl_j_need_int(rt, step, "slice step");
    if (by == 0)
        sl_j_fail(rt, "slice step cannot be zero");
    if (by == INT64_MIN)
        by++;
    int64_t n = sl_j_length(rt, v), lo = by > 0 ? 0 : -1, hi = by > 0 ? n : n - 1;
    int64_t from = bound(rt, start, by > 0 ? lo : hi, n, lo, hi);
    int64_t to = bound(rt, stop, by > 0 ? hi : lo, n, lo, hi);
    int64_t count = by > 0 ? (from < to ? (to - from - 1) / by + 1 : 0)
                           : (to < from ? (from - to - 1) / -by + 1 : 0);
    sl_j_charge_n(rt, (uint64_t)count, SL_J_STEP);
    if (v.type == SL_J_RANGE) {
        struct sl_jrange *r = sl_j_alloc(rt, sizeof *r);
        r->start = range_end(rt, v.r, from);
        r->stop = range_end(rt, v.r, to);
        r->step = sl_j_int_mul(rt, v.r->step, by);
        r->n = count;
        return (struct sl_jv){.type = SL_J_RANGE, .r = r};
    }
    if (v.type != SL_J_STR) {
        struct sl_jv r = sl_j_list_new(rt, v.type, (size_t)count);
        for (int64_t i = 0; i < count; i++)
            sl_j_list_push(rt, r.l, v.l->v[from + i * by]);
        return r;
    }
    if (by == 1 || count < 2)
        return sl_j_substr(rt, v.s, (size_t)(count ? from : 0), (size_t)(count ? from + count : 0));
    /* Byte offsets of every character, so that a reversed text is linear. */
    struct sl_jout o = {0};
    uint32_t *at = sl_j_alloc_n(rt, (size_t)n + 1, sizeof *at), cp;
    sl_j_charge_n(rt, (uint64_t)n, 2 * SL_J_SCAN);
    if (v.s->len > UINT32_MAX)
        sl_j_fail(rt, "text is too long to slice with a step");
    size_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        at[i] = (uint32_t)k;
        k += sl_j_utf8_next(v.s->p + k, v.s->p + v.s->len, &cp);
    }
    at[n] = (uint32_t)k;
    for (int64_t i = 0; i < count; i++) {
        int64_t c = from + i * by;
        sl_j_put_part(rt, &o, v.s, v.s->p + at[c], at[c + 1] - at[c]);
    }
    return sl_j_out_str(rt, &o);
}
