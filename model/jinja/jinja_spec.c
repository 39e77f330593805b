#include "model/jinja/jinja_spec.h"

#include "common/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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

struct sl_jv sl_jspec_pad(struct sl_jrt *rt, const struct sl_jspec *s, const char *sign,
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

const char *sl_jspec_sign(const struct sl_jspec *s, bool negative) {
    return negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
}

struct sl_jv sl_jspec_int(struct sl_jrt *rt, const struct sl_jspec *s, int64_t i) {
    char digits[80], grouped[128], prefix[3] = "";
    sl_j_charge(rt, 4 * SL_J_STEP);
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
    return sl_jspec_pad(rt, s, sl_jspec_sign(s, i < 0), prefix, s->group ? grouped : digits + n);
}

struct sl_jv sl_jspec_float(struct sl_jrt *rt, const struct sl_jspec *s, double f) {
    char body[1024], grouped[1400], fmt[16];
    sl_j_charge(rt, 2 * SL_J_DIGITS + (s->precision > 0 ? (uint64_t)s->precision : 0) * SL_J_CHAR);
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
    return sl_jspec_pad(rt, s, sl_jspec_sign(s, negative), "", s->group ? grouped : body);
}

struct sl_jv sl_jspec_text(struct sl_jrt *rt, const struct sl_jspec *s, struct sl_jv v) {
    struct sl_jout o = {0};
    if (s->type == 's')
        sl_j_put_str(rt, &o, v);
    else if (s->type == 'a' && v.type == SL_J_STR)
        sl_j_put_str_repr(rt, &o, v.s, true);
    else
        sl_j_put_repr(rt, &o, v);
    struct sl_jv t = sl_j_out_str(rt, &o);
    if (s->precision >= 0 && (size_t)s->precision < sl_j_chars(rt, t.s))
        t = sl_j_substr(rt, t.s, 0, (size_t)s->precision);
    return t;
}

struct sl_jv sl_jspec_char(struct sl_jrt *rt, struct sl_jv v) {
    char buf[4];
    if (v.type == SL_J_STR && sl_j_chars(rt, v.s) == 1)
        return v;
    int64_t cp = sl_j_need_int(rt, v, "%c");
    if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        sl_j_fail(rt, "%%c: %lld is not a character", (long long)cp);
    unsigned n = sl_utf8_put((uint32_t)cp, buf);
    char *p = sl_j_alloc(rt, n);
    memcpy(p, buf, n);
    return sl_j_str(rt, p, n);
}

int64_t sl_jspec_number(struct sl_jrt *rt, const char **p, const char *end) {
    int64_t n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        sl_j_charge(rt, SL_J_SCAN);
        if ((n = n * 10 + (**p - '0')) > SL_JSPEC_MAX_WIDTH)
            sl_j_fail(rt, "a width in a format string is larger than %d", SL_JSPEC_MAX_WIDTH);
    }
    return n;
}
