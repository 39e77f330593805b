/* Numbers as text: written as Python's repr() does, read as int() and float() do. */
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shortest digits that read back as f, nearest to it among those: Python's repr. */
static void shortest(struct sl_jrt *rt, double f, char digits[24], int *out_exp) {
    char buf[40];
    int frexp_exp;
    bool power_of_two = fabs(frexp(f, &frexp_exp)) == 0.5;
    for (int p = 1; p <= 17; p++) {
        sl_j_charge(rt, SL_J_DIGITS);
        snprintf(buf, sizeof buf, "%.*e", p - 1, f);
        bool good = strtod(buf, NULL) == f;
        if (!good && power_of_two && p > 1) {
            /* Below a power of two the doubles are closer: the next decimal above may do. */
            char *last = strchr(buf, 'e') - 1;
            if (*last < '9') {
                ++*last;
                good = strtod(buf, NULL) == f;
            }
        }
        if (good || p == 17)
            break;
    }
    char *e = strchr(buf, 'e');
    *out_exp = atoi(e + 1);
    size_t n = 0;
    for (const char *q = buf; q < e; q++)
        if (*q >= '0' && *q <= '9')
            digits[n++] = *q;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
}

void sl_j_put_float(struct sl_jrt *rt, struct sl_jout *o, double f) {
    char digits[24];
    int exp;
    if (f != f) {
        sl_j_puts(rt, o, "nan");
        return;
    }
    if (signbit(f))
        sl_j_put_char(rt, o, '-');
    f = fabs(f);
    if (isinf(f)) {
        sl_j_puts(rt, o, "inf");
        return;
    }
    if (f == 0) {
        sl_j_puts(rt, o, "0.0");
        return;
    }
    shortest(rt, f, digits, &exp);
    int n = (int)strlen(digits);
    if (exp < -4 || exp >= 16) {
        char buf[16];
        sl_j_put(rt, o, digits, 1);
        if (n > 1) {
            sl_j_put_char(rt, o, '.');
            sl_j_puts(rt, o, digits + 1);
        }
        snprintf(buf, sizeof buf, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
        sl_j_puts(rt, o, buf);
        return;
    }
    if (exp < 0) {
        sl_j_puts(rt, o, "0.");
        for (int i = -1; i > exp; i--)
            sl_j_put_char(rt, o, '0');
        sl_j_puts(rt, o, digits);
        return;
    }
    for (int i = 0; i <= exp || i < n; i++) {
        if (i == exp + 1)
            sl_j_put_char(rt, o, '.');
        sl_j_put_char(rt, o, i < n ? digits[i] : '0');
    }
    if (n <= exp + 1)
        sl_j_puts(rt, o, ".0");
}

/* Moves both ends past white space. */
static void trim(struct sl_jrt *rt, const char **p, const char **end) {
    uint32_t cp;
    while (*p < *end) {
        unsigned n = sl_j_utf8_next(*p, *end, &cp);
        sl_j_charge(rt, SL_J_CHAR);
        if (!(sl_j_props(cp) & SL_J_SPACE))
            break;
        *p += n;
    }
    while (*p < *end) {
        const char *q = sl_j_utf8_prev(*p, *end);
        sl_j_utf8_next(q, *end, &cp);
        sl_j_charge(rt, SL_J_CHAR);
        if (!(sl_j_props(cp) & SL_J_SPACE))
            break;
        *end = q;
    }
}

/* Moves p past 0x, 0o or 0b where the base allows it. Returns the base of the digits that follow,
 * 0: none may. */
static int digits_base(struct sl_jrt *rt, const char **p, const char *end, int base) {
    if (end - *p > 2 && **p == '0') {
        char k = (char)((*p)[1] | 32);
        int prefix = k == 'x' ? 16 : k == 'o' ? 8 : k == 'b' ? 2 : 0;
        if (prefix && (base == prefix || base == 0)) {
            base = prefix;
            *p += 2;
            if (**p == '_')
                ++*p;
        }
    }
    if (base == 0) { /* as in source: no leading zeros */
        base = 10;
        if (end - *p > 1 && **p == '0') {
            sl_j_charge_n(rt, (uint64_t)(end - *p), SL_J_SCAN);
            for (const char *q = *p; q < end; q++)
                if (*q != '0' && *q != '_')
                    return 0;
        }
    }
    return base;
}

bool sl_j_parse_int(struct sl_jrt *rt, const struct sl_jstr *s, int base, int64_t *out,
                    bool *out_overflow) {
    const char *p = s->p, *end = p + s->len;
    *out_overflow = false;
    trim(rt, &p, &end);
    bool neg = p < end && *p == '-';
    if (p < end && (*p == '-' || *p == '+'))
        p++;
    base = digits_base(rt, &p, end, base);
    if (base < 2 || base > 36 || p >= end)
        return false;
    uint64_t v = 0, limit = (uint64_t)INT64_MAX + neg;
    bool digit_before = false;
    while (p < end) {
        uint32_t cp;
        unsigned n = sl_j_utf8_next(p, end, &cp);
        sl_j_charge(rt, SL_J_CHAR);
        if (cp == '_' && digit_before && p + 1 < end) {
            digit_before = false;
            p++;
            continue;
        }
        int d = sl_j_decimal(cp);
        if (d < 0 && ((cp | 32) >= 'a' && (cp | 32) <= 'z'))
            d = (int)((cp | 32) - 'a' + 10);
        if (d < 0 || d >= base)
            return false;
        if (v > (limit - (uint64_t)d) / (uint64_t)base)
            *out_overflow = true;
        else
            v = v * (uint64_t)base + (uint64_t)d;
        digit_before = true;
        p += n;
    }
    *out = neg ? (int64_t)(0 - v) : (int64_t)v;
    return digit_before;
}

bool sl_j_parse_float(struct sl_jrt *rt, const struct sl_jstr *s, double *out) {
    static const char *const word[] = {"inf", "infinity", "nan"};
    const struct sl_jstr *t = sl_j_strip(rt, s, 'b', NULL).s;
    if (!t->len || t->len > 4096)
        return false;
    sl_j_charge(rt, SL_J_DIGITS + t->len * SL_J_STEP);
    char *buf = sl_j_alloc(rt, t->len + 1), *end;
    size_t n = 0;
    uint32_t cp;
    for (const char *p = t->p, *e = p + t->len; p < e;) {
        unsigned k = sl_j_utf8_next(p, e, &cp);
        int d = sl_j_decimal(cp);
        if (cp == '_') { /* only between digits */
            if (p == t->p || p + 1 == e || p[-1] < '0' || p[-1] > '9' || p[1] < '0' || p[1] > '9')
                return false;
        } else if (d >= 0) {
            buf[n++] = (char)('0' + d);
        } else if (cp < 0x80) {
            buf[n++] = (char)cp;
        } else {
            return false;
        }
        p += k;
    }
    buf[n] = 0;
    const char *body = buf + (*buf == '-' || *buf == '+');
    for (int i = 0; i < 3; i++)
        if (!strcasecmp(body, word[i])) {
            *out = i == 2 ? NAN : *buf == '-' ? -INFINITY : INFINITY;
            return true;
        }
    for (const char *p = body; *p; p++) /* no hexadecimal, which strtod would take */
        if (!strchr("0123456789.eE+-", *p))
            return false;
    *out = strtod(buf, &end);
    return *end == 0 && n > 0 && strpbrk(buf, "0123456789");
}
