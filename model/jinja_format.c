/* printf-style formatting with % and str.format.
 * Source: Python's documentation, "printf-style String Formatting" and "Format Specification
 * Mini-Language". */
#include "common/utf8.h"
#include "model/jinja_ast.h"
#include "model/jinja_unicode.h"
#include "model/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 300 };

struct spec {
    uint32_t fill;
    char align, sign, type, group; /* 0 when not given */
    bool alt;
    int64_t width, precision; /* -1: none */
};

/* Digits with separators into buf; digits may have a fraction, which is left alone. */
static void group_digits(char *buf, size_t cap, const char *digits, char sep, int every) {
    size_t whole = strspn(digits, "0123456789abcdefABCDEF"), n = 0;
    for (size_t i = 0; digits[i] && n + 2 < cap; i++) {
        if (i && i < whole && (whole - i) % (size_t)every == 0)
            buf[n++] = sep;
        buf[n++] = digits[i];
    }
    buf[n] = 0;
}

static struct sl_jv pad_number(struct sl_jrt *rt, const struct spec *s, const char *sign,
                               const char *prefix, const char *body) {
    char fill[4], align = s->align ? s->align : '>';
    struct sl_jout o = {0};
    unsigned n_fill = sl_utf8_put(s->fill ? s->fill : ' ', fill);
    int64_t n = (int64_t)(strlen(sign) + strlen(prefix) + strlen(body)), rest = s->width - n;
    int64_t left = align == '>' ? rest : align == '^' ? rest / 2 : 0;
    for (int64_t i = 0; i < left; i++)
        sl_j_put(rt, &o, fill, n_fill);
    sl_j_puts(rt, &o, sign);
    sl_j_puts(rt, &o, prefix);
    for (int64_t i = 0; align == '=' && i < rest; i++)
        sl_j_put(rt, &o, fill, n_fill);
    sl_j_puts(rt, &o, body);
    for (int64_t i = align == '=' ? rest : left > 0 ? left : 0; i < rest; i++)
        sl_j_put(rt, &o, fill, n_fill);
    return sl_j_out_str(rt, &o);
}

static const char *sign_text(const struct spec *s, bool negative) {
    return negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
}

static struct sl_jv format_int(struct sl_jrt *rt, const struct spec *s, int64_t i) {
    char digits[80], grouped[128], prefix[3] = "";
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    int base = s->type == 'x' || s->type == 'X' ? 16 : s->type == 'o' ? 8 : s->type == 'b' ? 2 : 10;
    size_t n = sizeof digits - 1;
    digits[n] = 0;
    do {
        digits[--n] =
            (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[u % (unsigned)base];
        u /= (unsigned)base;
    } while (u);
    if (s->alt && base != 10)
        snprintf(prefix, sizeof prefix, "0%c", s->type);
    if (s->group)
        group_digits(grouped, sizeof grouped, digits + n, s->group, base == 10 ? 3 : 4);
    return pad_number(rt, s, sign_text(s, i < 0), prefix, s->group ? grouped : digits + n);
}

static struct sl_jv format_float(struct sl_jrt *rt, const struct spec *s, double f) {
    char body[1024], grouped[1400], fmt[16];
    bool negative = signbit(f) && f == f;
    char type = s->type == '%' ? 'f' : s->type ? s->type : 'g';
    int precision = (int)(s->precision < 0 ? 6 : s->precision);
    f = fabs(f);
    if (s->type == '%')
        f *= 100;
    if (isnan(f) || isinf(f)) {
        bool up = type >= 'A' && type <= 'Z';
        snprintf(body, sizeof body, "%s", isnan(f) ? (up ? "NAN" : "nan") : up ? "INF" : "inf");
    } else if (!s->type && s->precision < 0) {
        struct sl_jout o = {0};
        sl_j_put_float(rt, &o, f);
        snprintf(body, sizeof body, "%.*s", (int)o.len, o.p);
    } else {
        snprintf(fmt, sizeof fmt, "%%%s.*%c", s->alt ? "#" : "", type == 'n' ? 'g' : type);
        snprintf(body, sizeof body, fmt, precision, f);
        if (!s->type && !strpbrk(body, ".e")) { /* like repr, a float shows that it is one */
            size_t n = strlen(body);
            if (n >= (size_t)(precision ? precision : 1)) /* no room for ".0": switch */
                snprintf(body, sizeof body, "%.*e", precision > 0 ? precision - 1 : 0, f);
            else
                snprintf(body + n, sizeof body - n, ".0");
        }
    }
    if (s->type == '%')
        strncat(body, "%", sizeof body - strlen(body) - 1);
    if (s->group)
        group_digits(grouped, sizeof grouped, body, s->group, 3);
    return pad_number(rt, s, sign_text(s, negative), "", s->group ? grouped : body);
}

/* ---- % ---- */

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

static int64_t read_number(struct sl_jrt *rt, const char **p, const char *end, struct percent *st) {
    int64_t n = 0;
    if (*p < end && **p == '*') {
        ++*p;
        return sl_j_need_int(rt, next_arg(rt, st), "a width given by *");
    }
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p)
        if ((n = n * 10 + (**p - '0')) > MAX_WIDTH)
            sl_j_fail(rt, "a width in a format string is larger than %d", MAX_WIDTH);
    return n;
}

static struct sl_jv percent_text(struct sl_jrt *rt, struct spec *s, struct sl_jv v) {
    struct sl_jout o = {0};
    if (s->type == 's')
        sl_j_put_str(rt, &o, v);
    else if (s->type == 'a' && v.type == SL_J_STR)
        sl_j_put_str_repr(rt, &o, v.s, true);
    else
        sl_j_put_repr(rt, &o, v);
    struct sl_jv t = sl_j_out_str(rt, &o);
    if (s->precision >= 0 && (size_t)s->precision < sl_j_chars(t.s))
        t = sl_j_substr(rt, t.s, 0, (size_t)s->precision);
    return t;
}

static struct sl_jv percent_char(struct sl_jrt *rt, struct sl_jv v) {
    char buf[4];
    if (v.type == SL_J_STR && sl_j_chars(v.s) == 1)
        return v;
    int64_t cp = sl_j_need_int(rt, v, "%c");
    if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        sl_j_fail(rt, "%%c: %lld is not a character", (long long)cp);
    unsigned n = sl_utf8_put((uint32_t)cp, buf);
    char *p = sl_j_alloc(rt, n);
    memcpy(p, buf, n);
    return sl_j_str(rt, p, n);
}

static struct sl_jv percent_one(struct sl_jrt *rt, struct spec *s, struct sl_jv v) {
    int64_t i;
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        return percent_text(rt, s, v);
    case 'c':
        return percent_char(rt, v);
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
        return format_float(rt, s, sl_j_as_double(v));
    default:
        sl_j_fail(rt, "unsupported format character '%c'", s->type);
    }
    i = sl_j_need_int(rt, v, "an argument of %d, %x or %o");
    if (s->precision >= 0) { /* at least so many digits */
        struct spec bare = {.type = s->type,
                            .fill = '0',
                            .align = '=',
                            .width = s->precision + (i < 0),
                            .precision = -1};
        const struct sl_jstr *t = format_int(rt, &bare, i).s;
        char *z = sl_j_alloc(rt, t->len + 1);
        memcpy(z, t->p, t->len);
        z[t->len] = 0;
        return pad_number(rt, s, sign_text(s, i < 0), "", z + (i < 0));
    }
    return format_int(rt, s, i);
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
static void percent_spec(struct sl_jrt *rt, const char **p, const char *end, struct percent *st,
                         struct spec *s) {
    bool zero = false, left = false;
    *s = (struct spec){.precision = -1};
    for (; *p < end && **p && strchr("-+ #0", **p); ++*p) {
        left |= **p == '-';
        zero |= **p == '0';
        s->alt |= **p == '#';
        if (**p == '+' || (**p == ' ' && !s->sign))
            s->sign = **p;
    }
    s->width = read_number(rt, p, end, st);
    if (s->width < 0) {
        left = true;
        s->width = s->width < -MAX_WIDTH ? MAX_WIDTH : -s->width;
    }
    if (s->width > MAX_WIDTH)
        sl_j_fail(rt, "a width in a format string is larger than %d", MAX_WIDTH);
    if (*p < end && **p == '.') {
        ++*p;
        s->precision = read_number(rt, p, end, st);
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

static struct sl_jv percent_arg(struct sl_jrt *rt, struct spec *s, struct sl_jv v) {
    static const struct sl_jstr space = {.p = " ", .len = 1, .chars = 1};
    bool number = strchr("diuxXoeEfFgG", s->type) != NULL;
    struct sl_jv t = percent_one(rt, s, v);
    return number ? t : sl_j_pad(rt, t.s, s->width, s->align == '<' ? 'l' : 'r', &space);
}

struct sl_jv sl_j_percent(struct sl_jrt *rt, const struct sl_jstr *fmt, struct sl_jv args) {
    struct sl_jout o = {0};
    struct percent st = {.args = args};
    for (const char *p = fmt->p, *end = p + fmt->len; p < end;) {
        const char *mark = memchr(p, '%', (size_t)(end - p));
        sl_j_put(rt, &o, p, (size_t)((mark ? mark : end) - p));
        if (!mark)
            break;
        p = mark + 1;
        sl_j_work(rt, 1);
        struct spec s;
        struct sl_jv v = sl_j_missing();
        if (p < end && *p == '(') {
            p++;
            v = percent_key(rt, &p, end, args);
        }
        percent_spec(rt, &p, end, &st, &s);
        if (s.type == '%') {
            sl_j_put_char(rt, &o, '%');
            continue;
        }
        if (s.precision > MAX_PRECISION && s.type != 's' && s.type != 'r')
            sl_j_fail(rt, "a precision in a format string is larger than %d", MAX_PRECISION);
        if (!sl_j_given(v))
            v = next_arg(rt, &st);
        v = percent_arg(rt, &s, v);
        sl_j_put(rt, &o, v.s->p, v.s->len);
    }
    bool spare = args.type == SL_J_TUPLE
                     ? st.used < args.l->n
                     : !st.used && args.type != SL_J_DICT && args.type != SL_J_LIST &&
                           args.type != SL_J_RANGE && args.type != SL_J_UNDEF;
    if (spare)
        sl_j_fail(rt, "not all arguments converted during string formatting");
    return sl_j_out_str(rt, &o);
}

/* ---- str.format ---- */

static void parse_spec(struct sl_jrt *rt, const struct sl_jstr *text, struct spec *s) {
    const char *p = text->p, *end = p + text->len;
    uint32_t cp;
    *s = (struct spec){.precision = -1};
    if (p < end) {
        unsigned n = sl_j_utf8_next(p, end, &cp);
        if (p + n < end && strchr("<>=^", p[n]) && p[n]) {
            s->fill = cp;
            s->align = p[n];
            p += n + 1;
        } else if (strchr("<>=^", *p) && *p) {
            s->align = *p++;
        }
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' '))
        s->sign = *p++;
    if (p < end && *p == '#') {
        s->alt = true;
        p++;
    }
    if (p < end && *p == '0') {
        if (!s->fill)
            s->fill = '0';
        if (!s->align)
            s->align = '=';
        p++;
    }
    struct percent none = {0};
    if (p < end && *p >= '0' && *p <= '9')
        s->width = read_number(rt, &p, end, &none);
    if (p < end && (*p == ',' || *p == '_'))
        s->group = *p++;
    if (p < end && *p == '.') {
        p++;
        if (p == end || *p < '0' || *p > '9')
            sl_j_fail(rt, "format specifier missing precision");
        s->precision = read_number(rt, &p, end, &none);
    }
    if (p < end)
        s->type = *p++;
    if (p < end)
        sl_j_fail(rt, "invalid format specifier");
}

static struct sl_jv format_text(struct sl_jrt *rt, struct spec *s, const struct sl_jstr *t) {
    char fill[4];
    if ((s->type && s->type != 's') || s->sign || s->align == '=' || s->alt || s->group)
        sl_j_fail(rt, "invalid format specifier for a string");
    if (s->precision >= 0 && (size_t)s->precision < sl_j_chars(t))
        t = sl_j_substr(rt, t, 0, (size_t)s->precision).s;
    struct sl_jstr one = {.p = fill, .chars = 1};
    one.len = sl_utf8_put(s->fill ? s->fill : ' ', fill);
    int64_t rest = s->width - (int64_t)sl_j_chars(t);
    int64_t left = s->align == '>' ? rest : s->align == '^' ? rest / 2 : 0;
    struct sl_jout o = {0};
    for (int64_t i = 0; i < left; i++)
        sl_j_put(rt, &o, one.p, one.len);
    sl_j_put(rt, &o, t->p, t->len);
    for (int64_t i = left > 0 ? left : 0; i < rest; i++)
        sl_j_put(rt, &o, one.p, one.len);
    return sl_j_out_str(rt, &o);
}

static struct sl_jv format_value(struct sl_jrt *rt, struct sl_jv v, const struct sl_jstr *text) {
    struct spec s;
    int64_t i;
    if (!text->len)
        return sl_j_of_str(sl_j_to_str(rt, v));
    parse_spec(rt, text, &s);
    if (v.type == SL_J_STR)
        return format_text(rt, &s, v.s);
    if (!sl_j_is_number(v))
        sl_j_fail(rt, "unsupported format for a value of type '%s'", sl_j_type_name(v));
    if (s.precision > MAX_PRECISION)
        sl_j_fail(rt, "a precision in a format string is larger than %d", MAX_PRECISION);
    if (sl_j_as_int(v, &i) && (!s.type || strchr("dnxXob", s.type))) {
        if (s.precision >= 0)
            sl_j_fail(rt, "precision not allowed in integer format specifier");
        if (s.group == ',' && s.type && s.type != 'd')
            sl_j_fail(rt, "cannot specify ',' with '%c'", s.type);
        return format_int(rt, &s, i);
    }
    if (s.type == 'c' && sl_j_as_int(v, &i)) {
        s.type = 0;
        s.align = s.align ? s.align : '<';
        return format_text(rt, &s, percent_char(rt, v).s);
    }
    if (s.type && !strchr("eEfFgGn%", s.type))
        sl_j_fail(rt, "unknown format code '%c' for a number", s.type);
    return format_float(rt, &s, sl_j_as_double(v));
}

struct format {
    struct sl_jrt *rt;
    const struct sl_jargv *args;
    int64_t auto_index; /* -1: the fields are numbered by hand */
};

/* "name.attr[key]" */
static struct sl_jv format_field(struct format *f, const char *p, const char *end) {
    struct sl_jrt *rt = f->rt;
    const char *q = p;
    struct sl_jv v = sl_j_missing();
    int64_t index;
    bool over;
    while (q < end && *q != '.' && *q != '[')
        q++;
    struct sl_jstr first = {.p = p, .len = (size_t)(q - p), .chars = -1};
    bool digits = first.len > 0 && strspn(p, "0123456789") >= first.len;
    if (!first.len || digits) {
        if (!first.len && f->auto_index < 0)
            sl_j_fail(rt, "cannot switch from manual field specification to automatic numbering");
        if (first.len && f->auto_index > 0)
            sl_j_fail(rt, "cannot switch from automatic field numbering to manual specification");
        index = first.len ? 0 : f->auto_index++;
        if (first.len) {
            f->auto_index = -1;
            if (!sl_j_parse_int(&first, 10, &index, &over) || over)
                sl_j_fail(rt, "a field number is too large");
        }
        if (index >= f->args->n_pos)
            sl_j_fail(rt, "replacement index %lld out of range", (long long)index);
        v = f->args->pos[index];
    } else {
        for (uint32_t i = 0; i < f->args->n_kw; i++)
            if (sl_j_str_eq(f->args->kw_name[i], &first))
                v = f->args->kw[i];
        if (v.type == SL_J_MISSING)
            sl_j_fail(rt, "the format names '%.*s', which is not given",
                      (int)(first.len > 40 ? 40 : first.len), first.p);
    }
    while (q < end) {
        sl_j_work(rt, 1);
        char kind = *q++;
        const char *from = q;
        while (q < end && (kind == '[' ? *q != ']' : *q != '.' && *q != '['))
            q++;
        struct sl_jv key = sl_j_str(rt, from, (size_t)(q - from));
        if (!key.s->len || (kind == '[' && q == end))
            sl_j_fail(rt, "empty attribute in format string");
        if (kind == '[') {
            q++;
            if (q < end && *q != '.' && *q != '[')
                sl_j_fail(rt, "only '.' or '[' may follow ']' in a format field");
            if (*from >= '0' && *from <= '9' && sl_j_parse_int(key.s, 10, &index, &over) && !over)
                key = sl_j_int(index);
            v = sl_j_getitem(rt, v, key);
        } else {
            v = sl_j_getattr(rt, v, key.s);
        }
    }
    return v;
}

static void format_into(struct format *f, struct sl_jout *o, const char *p, const char *end,
                        int level) {
    struct sl_jrt *rt = f->rt;
    while (p < end) {
        if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p && level == 2) {
            sl_j_put(rt, o, p, 1);
            p += 2;
            continue;
        }
        if (*p == '}')
            sl_j_fail(rt, "single '}' encountered in format string");
        if (*p != '{') {
            sl_j_put(rt, o, p++, 1);
            continue;
        }
        if (level == 0)
            sl_j_fail(rt, "a format string is nested too deep");
        const char *field = ++p, *name_end;
        int open = 1, bracket = 0;
        for (; p < end && open; p++) {
            open += *p == '{' ? 1 : *p == '}' ? -1 : 0;
            (void)bracket;
        }
        if (open)
            sl_j_fail(rt, "expected '}' before end of string");
        const char *stop = p - 1, *q = field;
        while (q < stop && *q != '!' && *q != ':') {
            if (*q == '[')
                while (q < stop && *q != ']')
                    q++;
            q += q < stop;
        }
        name_end = q;
        char conversion = 0;
        if (q < stop && *q == '!') {
            if (q + 1 >= stop || !strchr("rsa", q[1]) || (q + 2 < stop && q[2] != ':'))
                sl_j_fail(rt, "a format field's conversion must be !r, !s or !a");
            conversion = q[1];
            q += 2;
        }
        struct sl_jv v = format_field(f, field, name_end);
        struct sl_jout text = {0};
        if (q < stop)
            format_into(f, &text, q + 1, stop, level - 1);
        if (conversion) {
            struct spec s = {.type = conversion, .precision = -1};
            v = percent_text(rt, &s, v);
        }
        struct sl_jv t = format_value(rt, v, sl_j_out_str(rt, &text).s);
        sl_j_put(rt, o, t.s->p, t.s->len);
    }
}

struct sl_jv sl_j_format(struct sl_jrt *rt, const struct sl_jstr *fmt,
                         const struct sl_jargv *args) {
    struct format f = {.rt = rt, .args = args};
    struct sl_jout o = {0};
    format_into(&f, &o, fmt->p, fmt->p + fmt->len, 2);
    return sl_j_out_str(rt, &o);
}
