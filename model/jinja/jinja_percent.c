/* printf-style formatting with %.
 * Source: Python's documentation, "printf-style String Formatting". */
#include "model/jinja/jinja_spec.h"

#include <string.h>

struct percent {
    struct sl_jv args;
    size_t used;
};

static struct sl_jv next_arg(struct sl_jrt *rt, struct percent *p) {
    if (p->args.type == SL_J_TUPLE) {
        if (p->used >= p->args.l->n)
            sl_j_fail(rt, "not enough arguments for format string");
        return p->args.l->v[p->used++];
    }
    if (p->used++)
        sl_j_fail(rt, "not enough arguments for format string");
    return p->args;
}

static int64_t read_number(struct sl_jrt *rt, const char **p, const char *end,
                           struct percent *status) {
    if (*p < end && **p == '*') {
        ++*p;
        return sl_j_need_int(rt, next_arg(rt, status), "a width given by *");
    }
    return sl_jspec_number(rt, p, end);
}

static struct sl_jv percent_one(struct sl_jrt *rt, struct sl_jspec *s, struct sl_jv v) {
    int64_t i;
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        return sl_jspec_text(rt, s, v);
    case 'c':
        return sl_jspec_char(rt, v);
    case 'd':
    case 'i':
    case 'u':
        if (v.type == SL_J_FLOAT && v.f > -9.2e18 && v.f < 9.2e18)
            v = sl_j_int((int64_t)v.f);
        s->type = 'd';
        break;
    case 'x':
    case 'X':
    case 'o':
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (v.type == SL_J_UNDEF)
            sl_j_undef_fail(rt, v);
        if (!sl_j_is_number(v))
            sl_j_fail(rt, "a number is wanted for %%%c, not %s", s->type, sl_j_type_name(v));
        return sl_jspec_float(rt, s, sl_j_as_double(v));
    default:
        sl_j_fail(rt, "unsupported format character '%c'", s->type);
    }
    i = sl_j_need_int(rt, v, "an argument of %d, %x or %o");
    if (s->precision >= 0) { /* at least so many digits */
        struct sl_jspec bare = {.type = s->type,
                                .fill = '0',
                                .align = '=',
                                .width = s->precision + (i < 0),
                                .precision = -1};
        const struct sl_jstr *t = sl_jspec_int(rt, &bare, i).s;
        char *z = sl_j_alloc(rt, t->len + 1);
        memcpy(z, t->p, t->len);
        z[t->len] = 0;
        return sl_jspec_pad(rt, s, sl_jspec_sign(s, i < 0), "", z + (i < 0));
    }
    return sl_jspec_int(rt, s, i);
}

/* "(key)", from behind the parenthesis on: the value of that key. */
static struct sl_jv percent_key(struct sl_jrt *rt, const char **p, const char *end,
                                struct sl_jv args) {
    int open = 1;
    const char *key = *p;
    for (; *p < end && open; ++*p)
        open += **p == '(' ? 1 : **p == ')' ? -1 : 0;
    if (open)
        sl_j_fail(rt, "incomplete format key");
    if (args.type != SL_J_DICT)
        sl_j_fail(rt, "format requires a mapping");
    struct sl_jv name = sl_j_str(rt, key, (size_t)(*p - 1 - key));
    struct sl_jv *found = sl_j_dict_get(rt, args.d, name);
    if (!found)
        sl_j_fail(rt, "the format names a key that is not there");
    return *found;
}

/* Flags, width, precision and type. align: '<', '>', or '=' for a number that is filled with
 * zeros. */
static void percent_spec(struct sl_jrt *rt, const char **p, const char *end, struct percent *status,
                         struct sl_jspec *s) {
    bool zero = false, left = false;
    *s = (struct sl_jspec){.precision = -1};
    for (; *p < end && **p && strchr("-+ #0", **p); ++*p) {
        left |= **p == '-';
        zero |= **p == '0';
        s->alt |= **p == '#';
        if (**p == '+' || (**p == ' ' && !s->sign))
            s->sign = **p;
    }
    s->width = read_number(rt, p, end, status);
    if (s->width < 0) {
        left = true;
        s->width = s->width < -SL_JSPEC_MAX_WIDTH ? SL_JSPEC_MAX_WIDTH : -s->width;
    }
    if (s->width > SL_JSPEC_MAX_WIDTH)
        sl_j_fail(rt, "a width in a format string is larger than %d", SL_JSPEC_MAX_WIDTH);
    if (*p < end && **p == '.') {
        ++*p;
        s->precision = read_number(rt, p, end, status);
        if (s->precision < 0)
            s->precision = 0;
    }
    while (*p < end && (**p == 'h' || **p == 'l' || **p == 'L'))
        ++*p;
    if (*p == end)
        sl_j_fail(rt, "incomplete format");
    s->type = *(*p)++;
    zero = zero && !left && strchr("diuxXoeEfFgG", s->type);
    s->align = left ? '<' : zero ? '=' : '>';
    s->fill = zero ? '0' : ' ';
}

static struct sl_jv percent_arg(struct sl_jrt *rt, struct sl_jspec *s, struct sl_jv v) {
    static const struct sl_jstr space = {.p = " ", .len = 1, .chars = 1};
    bool number = strchr("diuxXoeEfFgG", s->type) != NULL;
    struct sl_jv t = percent_one(rt, s, v);
    return number ? t : sl_j_pad(rt, t.s, s->width, s->align == '<' ? 'l' : 'r', &space);
}

struct sl_jv sl_j_percent(struct sl_jrt *rt, const struct sl_jstr *fmt, struct sl_jv args) {
    struct sl_jout o = {0};
    struct percent status = {.args = args};
    sl_j_charge_n(rt, fmt->len, 4 * SL_J_SCAN); /* keys, flags and lengths are passed twice */
    for (const char *p = fmt->p, *end = p + fmt->len; p < end;) {
        const char *mark = memchr(p, '%', (size_t)(end - p));
        sl_j_put_part(rt, &o, fmt, p, (size_t)((mark ? mark : end) - p));
        if (!mark)
            break;
        p = mark + 1;
        sl_j_charge(rt, SL_J_STEP);
        struct sl_jspec s;
        struct sl_jv v = sl_j_missing();
        if (p < end && *p == '(') {
            p++;
            v = percent_key(rt, &p, end, args);
        }
        percent_spec(rt, &p, end, &status, &s);
        if (s.type == '%') {
            sl_j_put_char(rt, &o, '%');
            continue;
        }
        if (s.precision > SL_JSPEC_MAX_PRECISION && s.type != 's' && s.type != 'r')
            sl_j_fail(rt, "a precision in a format string is larger than %d",
                      SL_JSPEC_MAX_PRECISION);
        if (!sl_j_given(v))
            v = next_arg(rt, &status);
        v = percent_arg(rt, &s, v);
        sl_j_put_all(rt, &o, v.s);
    }
    bool spare = args.type == SL_J_TUPLE
                     ? status.used < args.l->n
                     : !status.used && args.type != SL_J_DICT && args.type != SL_J_LIST &&
                           args.type != SL_J_RANGE && args.type != SL_J_UNDEF;
    if (spare)
        sl_j_fail(rt, "not all arguments converted during string formatting");
    return sl_j_out_str(rt, &o);
}
