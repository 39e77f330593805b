/* Numbers between bounds, digit by digit. */
#include "model/grammar/json_schema_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INT_MOST      999999999999999999ll /* 18 digits: exact in 64 bits */
#define INT_USUAL     9999999999999999ll   /* 16 */
#define MULTIPLES_MAX 1000ll               /* to either side */
#define POINT_DIGITS  15

/* Digit strings of one length between a and b. short_ok: trailing zeros may be left away
 * (decimals).
 */
static void between(struct sl_buf *out, const char *a, const char *b, size_t n, bool short_ok) {
    if (n == 0)
        return;
    bool zeros = strspn(a, "0") >= n, nines = strspn(b, "9") >= n;
    bool may_end = short_ok && zeros;
    if (may_end)
        sl_buf_puts(out, " (");
    if (zeros && nines) {
        sl_buf_printf(out, " [0-9]{%d,%zu}", short_ok ? 1 : (int)n, n);
    } else if (a[0] == b[0]) {
        sl_buf_printf(out, " \"%c\"", a[0]);
        between(out, a + 1, b + 1, n - 1, short_ok);
    } else {
        static const char all_9[] = "99999999999999999999", all_0[] = "00000000000000000000";
        sl_buf_printf(out, " ( \"%c\"", a[0]);
        between(out, a + 1, all_9, n - 1, short_ok);
        if (b[0] - a[0] > 1) {
            sl_buf_printf(out, " | [%c-%c]", a[0] + 1, b[0] - 1);
            if (n > 1)
                sl_buf_printf(out, " [0-9]{%d,%zu}", short_ok ? 0 : (int)n - 1, n - 1);
        }
        sl_buf_printf(out, " | \"%c\"", b[0]);
        between(out, all_0, b + 1, n - 1, short_ok);
        sl_buf_puts(out, " )");
    }
    if (may_end)
        sl_buf_puts(out, " )?");
}

/* Whole numbers lo <= x <= hi, 0 <= lo, with tail behind each. */
static void whole(struct sl_buf *out, long long lo, long long hi, const char *tail, bool *any) {
    while (lo <= hi) {
        char a[24], b[24];
        snprintf(a, sizeof a, "%lld", lo);
        long long end = 9; /* the last with as many digits */
        for (size_t i = 1; i < strlen(a); i++)
            end = end * 10 + 9;
        snprintf(b, sizeof b, "%lld", end < hi ? end : hi);
        sl_buf_puts(out, *any ? " |" : " ");
        between(out, a, b, strlen(a), false);
        sl_buf_puts(out, tail);
        *any = true;
        if (end >= hi)
            return;
        lo = end + 1;
    }
}

static void integers(struct sl_buf *out, long long lo, long long hi) {
    bool any = false;
    sl_buf_puts(out, "(");
    whole(out, lo > 0 ? lo : 0, hi, "", &any);
    if (lo < 0) {
        bool inner = false;
        sl_buf_puts(out, any ? " | \"-\" (" : " \"-\" (");
        whole(out, hi < 0 ? -hi : 1, -lo, "", &inner);
        sl_buf_puts(out, " )");
    }
    sl_buf_puts(out, " )");
}

struct bound {
    bool there, open;
    long double at; /* holds every 64-bit integer */
    const char *name;
};

long double sl_schema_value(const json_t *v) {
    return json_is_integer(v) ? (long double)json_integer_value(v)
                              : (long double)json_real_value(v);
}

static void narrow(struct bound *b, const json_t *s, const char *key, const char *open_key,
                   int sign) {
    const json_t *v = json_object_get(s, key), *o = json_object_get(s, open_key);
    *b = (struct bound){.name = key};
    if (json_is_number(v)) {
        b->there = true;
        b->at = sl_schema_value(v);
        b->open = json_is_true(o); /* draft 4 */
    }
    if (json_is_number(o)) {
        long double at = sl_schema_value(o);
        if (!b->there || sign * at >= sign * b->at)
            *b = (struct bound){true, true, at, open_key};
    }
}

enum sl_status sl_schema_check_bounds(struct sl_schema *c, const json_t *s) {
    static const char *const keys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                       "multipleOf"};
    for (size_t i = 0; i < 5; i++) {
        const json_t *v = json_object_get(s, keys[i]);
        if (v && !json_is_number(v) && !(json_is_boolean(v) && (i == 2 || i == 3)))
            return sl_fail(c->err, SL_ERR_INVALID, "%s must be a number", keys[i]);
    }
    return SL_OK;
}

/* of = *out_whole / 10^*out_point, as its shortest decimals say. */
static bool to_fraction(double of, long long *out_whole, int *out_point) {
    char text[64];
    for (int point = 0; point <= 12; point++) {
        snprintf(text, sizeof text, "%.*f", point, of);
        if (strtod(text, NULL) != of)
            continue;
        char digits[64], *to = digits;
        for (const char *p = text; *p; p++)
            if (*p != '.')
                *to++ = *p;
        *to = 0;
        *out_point = point;
        *out_whole = strlen(digits) < 16 ? strtoll(digits, NULL, 10) : 0;
        return *out_whole > 0;
    }
    return false;
}

static long long power_of_10(int n) {
    long long p = 1;
    while (n-- > 0)
        p *= 10;
    return p;
}

static enum sl_status multiples(struct sl_schema *c, double of, long long lo, bool has_lo,
                                long long hi, bool has_hi, struct sl_buf *b) {
    if (!(of >= 1) || of != floor(of) || of > 1e12)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "multipleOf is supported for integers, with a whole number from 1 to 1e12");
    long long m = (long long)of;
    /* Toward the inside. */
    long long first = lo / m + (lo % m > 0), last = hi / m - (hi % m < 0);
    if (!has_lo && !has_hi) {
        first = -MULTIPLES_MAX;
        last = MULTIPLES_MAX;
    } else if (!has_lo || last - first > 2 * MULTIPLES_MAX) {
        if (has_lo)
            last = first + 2 * MULTIPLES_MAX;
        else
            first = last - 2 * MULTIPLES_MAX;
    }
    if (first > last)
        return SL_SCHEMA_NOTHING(c, "multipleOf: no multiple lies within the bounds");
    sl_buf_puts(b, "(");
    for (long long k = first; k <= last; k++)
        sl_buf_printf(b, "%s \"%lld\"", k > first ? " |" : "", k * m);
    sl_buf_puts(b, " )");
    return SL_OK;
}

enum sl_status sl_schema_integer(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    struct bound min, max;
    SL_TRY(sl_schema_check_bounds(c, s));
    narrow(&min, s, "minimum", "exclusiveMinimum", 1);
    narrow(&max, s, "maximum", "exclusiveMaximum", -1);
    long double lo_d = min.open && min.at == ceill(min.at) ? min.at + 1 : ceill(min.at);
    long double hi_d = max.open && max.at == floorl(max.at) ? max.at - 1 : floorl(max.at);
    if ((min.there && lo_d > 1e17) || (max.there && hi_d < -1e17))
        return sl_fail(c->err, SL_ERR_INVALID, "%s is out of the range of integers, up to 1e17",
                       min.there && lo_d > 1e17 ? min.name : max.name);
    long long lo = !min.there || lo_d < -1e17 ? -INT_USUAL : (long long)lo_d;
    long long hi = !max.there || hi_d > 1e17 ? INT_USUAL : (long long)hi_d;
    if (!max.there && hi < lo)
        hi = INT_MOST;
    if (!min.there && lo > hi)
        lo = -INT_MOST;
    if (lo > hi)
        return SL_SCHEMA_NOTHING(c, "no integer lies between %s and %s", min.name, max.name);
    const json_t *of = json_object_get(s, "multipleOf");
    double step_by = of ? json_number_value(of) : 1;
    long long m;
    int point;
    if (step_by != floor(step_by) && to_fraction(step_by, &m, &point)) {
        /* Whole multiples of m / 10^point. */
        long long a = m, rest = power_of_10(point);
        while (rest) {
            long long r = a % rest;
            a = rest;
            rest = r;
        }
        step_by = (double)(m / a);
    }
    enum sl_status status = SL_OK;
    if (step_by != 1)
        status = multiples(c, step_by, lo, min.there, hi, max.there, b);
    else
        integers(b, lo, hi);
    /* 1.0 is one since draft 6. Bounds must hold for what a reader makes of it. */
    bool exact = (!min.there || llabs(lo) <= SL_SCHEMA_EXACT) &&
                 (!max.there || llabs(hi) <= SL_SCHEMA_EXACT) &&
                 step_by * (2 * MULTIPLES_MAX + 1) + (double)llabs(min.there ? lo : 0) +
                         (double)llabs(max.there ? hi : 0) <=
                     (double)SL_SCHEMA_EXACT;
    sl_buf_puts(b, c->open && exact ? " (\".\" \"0\"{1,15})?" : "");
    return status;
}

/* A bound's digits: whole part and the decimals as a string of n_point digits. */
struct decimal {
    long long whole;
    char point[POINT_DIGITS + 2];
};

static bool to_decimal(double v, int n_point, struct decimal *d) {
    char text[64];
    snprintf(text, sizeof text, "%.*f", n_point, v);
    if (strtod(text, NULL) != v)
        return false;
    char *dot = strchr(text, '.');
    d->whole = strtoll(text, NULL, 10);
    snprintf(d->point, sizeof d->point, "%s", dot ? dot + 1 : "");
    return true;
}

/* d by one step of the last decimal. False: below zero. */
static bool step(struct decimal *d, int by) {
    for (size_t i = strlen(d->point); i-- > 0;) {
        if (by > 0 ? d->point[i] < '9' : d->point[i] > '0') {
            d->point[i] = (char)(d->point[i] + by);
            return true;
        }
        d->point[i] = by > 0 ? '0' : '9';
    }
    d->whole += by;
    return d->whole >= 0;
}

static void decimals(struct sl_buf *out, const char *a, const char *b, size_t n) {
    bool zeros = strspn(a, "0") >= n;
    char first_a[2] = {a[0], 0}, first_b[2] = {b[0], 0};
    if (n == 0)
        return;
    /* At least one digit behind the point: written out for the first, shortened behind it. */
    sl_buf_puts(out, zeros ? " (\".\"" : " \".\"");
    if (strcmp(first_a, first_b) == 0) {
        sl_buf_printf(out, " \"%s\"", first_a);
        between(out, a + 1, b + 1, n - 1, true);
    } else {
        static const char all_9[] = "99999999999999999999", all_0[] = "00000000000000000000";
        sl_buf_printf(out, " ( \"%s\"", first_a);
        between(out, a + 1, all_9, n - 1, true);
        if (b[0] - a[0] > 1)
            sl_buf_printf(out, " | [%c-%c] [0-9]{0,%zu}", a[0] + 1, b[0] - 1, n - 1);
        sl_buf_printf(out, " | \"%s\"", first_b);
        between(out, all_0, b + 1, n - 1, true);
        sl_buf_puts(out, " )");
    }
    if (zeros)
        sl_buf_puts(out, ")?");
}

/* Numbers lo <= x <= hi, 0 <= lo, with n decimals at most. */
static void reals(struct sl_buf *out, const struct decimal *lo, const struct decimal *hi,
                  size_t n) {
    static const char all_9[] = "99999999999999999999", all_0[] = "00000000000000000000";
    char tail[40] = "";
    if (n)
        snprintf(tail, sizeof tail, " (\".\" [0-9]{1,%zu})?", n);
    sl_buf_printf(out, "( \"%lld\"", lo->whole);
    decimals(out, lo->point, lo->whole == hi->whole ? hi->point : all_9, n);
    if (lo->whole < hi->whole) {
        bool any = true;
        whole(out, lo->whole + 1, hi->whole - 1, tail, &any);
        sl_buf_printf(out, " | \"%lld\"", hi->whole);
        decimals(out, all_0, hi->point, n);
    }
    sl_buf_puts(out, " )");
}

/* lo_d <= x <= hi_d, both from 0 up. False: nothing lies between; *bad: not to be written. */
static bool positive(struct sl_buf *b, double lo_d, bool lo_open, double hi_d, bool hi_open,
                     bool *bad) {
    int digits = 1;
    for (double v = hi_d; v >= 10; v /= 10)
        digits++;
    int n = POINT_DIGITS - digits;
    struct decimal lo, hi;
    if (digits > POINT_DIGITS - 1 || !to_decimal(lo_d, n, &lo) || !to_decimal(hi_d, n, &hi)) {
        *bad = true;
        return false;
    }
    bool ok = (!lo_open || step(&lo, 1)) && (!hi_open || step(&hi, -1));
    if (!ok || lo.whole > hi.whole || (lo.whole == hi.whole && strcmp(lo.point, hi.point) > 0))
        return false;
    reals(b, &lo, &hi, (size_t)n);
    return true;
}

/* Multiples of what is no whole number. */
static enum sl_status fractions(struct sl_schema *c, double of, const struct bound *min,
                                const struct bound *max, struct sl_buf *b) {
    long long m;
    int point;
    bool any = false;
    if (!to_fraction(of, &m, &point))
        return sl_fail(
            c->err, SL_ERR_INVALID,
            "multipleOf must be more than 0, with up to 15 digits, 12 of them behind the "
            "point");
    if (m == 1 && !min->there && !max->there) {
        sl_buf_printf(b, "(int (\".\" [0-9]{1,%d})?)", point);
        return SL_OK;
    }
    long double unit = (long double)m / (long double)power_of_10(point);
    long double first = -MULTIPLES_MAX, last = MULTIPLES_MAX;
    if (min->there) {
        first = ceill(min->at / unit);
        last = first + 2 * MULTIPLES_MAX;
    }
    if (max->there) {
        long double end = floorl(max->at / unit);
        if (!min->there)
            first = end - 2 * MULTIPLES_MAX;
        last = !min->there || end < last ? end : last;
    }
    if (!(fabsl(first) * (long double)m < 1e17L) || !(fabsl(last) * (long double)m < 1e17L))
        return sl_fail(c->err, SL_ERR_INVALID, "multipleOf: the bounds beside it are out of range");
    sl_buf_puts(b, "(");
    for (long long k = (long long)first; k <= (long long)last; k++) {
        long long n = k * m, scale = power_of_10(point), part = llabs(n % scale);
        char text[64];
        int len = snprintf(text, sizeof text, "%s%lld.%0*lld", n < 0 ? "-" : "", llabs(n / scale),
                           point, part);
        while (len && text[len - 1] == '0')
            text[--len] = 0;
        if (len && text[len - 1] == '.')
            text[--len] = 0;
        /* As a reader of the text will compare. */
        double v = strtod(text, NULL);
        if ((min->there && (v < (double)min->at || (min->open && v <= (double)min->at))) ||
            (max->there && (v > (double)max->at || (max->open && v >= (double)max->at))))
            continue;
        sl_buf_printf(b, "%s \"%s\"", any ? " |" : "", text);
        any = true;
    }
    sl_buf_puts(b, " )");
    return any ? SL_OK : SL_SCHEMA_NOTHING(c, "multipleOf: no multiple lies within the bounds");
}

enum sl_status sl_schema_number(struct sl_schema *c, const json_t *s, struct sl_buf *b) {
    struct bound min, max;
    SL_TRY(sl_schema_check_bounds(c, s));
    double of = json_number_value(json_object_get(s, "multipleOf"));
    if (json_object_get(s, "multipleOf") && of == floor(of))
        return sl_schema_integer(c, s, b);
    narrow(&min, s, "minimum", "exclusiveMinimum", 1);
    narrow(&max, s, "maximum", "exclusiveMaximum", -1);
    if (json_object_get(s, "multipleOf"))
        return fractions(c, of, &min, &max, b);
    if (!min.there && !max.there) {
        sl_buf_puts(b, "num");
        return SL_OK;
    }
    /* Far bounds, and those that are not there, give way to what can be written exactly. */
    const double far = 99999999999.0;
    double lo = min.there ? (double)min.at : -far, hi = max.there ? (double)max.at : far;
    bool lo_open = min.there && min.open, hi_open = max.there && max.open;
    if (lo < -far && hi > -far) {
        lo = -far;
        lo_open = false;
    }
    if (hi > far && lo < far) {
        hi = far;
        hi_open = false;
    }
    bool any = false, bad = false;
    struct sl_buf part = {0};
    sl_buf_puts(b, "(");
    if (hi >= 0 && positive(&part, lo > 0 ? lo : 0, lo >= 0 && lo_open, hi, hi_open, &bad)) {
        sl_buf_puts(b, " ");
        sl_buf_put(b, part.ptr, part.len);
        any = true;
    }
    sl_buf_clear(&part);
    if (lo < 0 && !bad &&
        positive(&part, hi < 0 ? -hi : 0, hi >= 0 || hi_open, -lo, lo_open, &bad)) {
        sl_buf_puts(b, any ? " | \"-\" " : " \"-\" ");
        sl_buf_put(b, part.ptr, part.len);
        any = true;
    }
    bool failed = part.failed;
    sl_buf_release(&part);
    sl_buf_puts(b, " )");
    if (failed)
        return sl_fail(c->err, SL_ERR_NOMEM, "out of memory");
    const char *name = min.there ? min.name : max.name;
    if (bad)
        return sl_fail(c->err, SL_ERR_INVALID,
                       "%s: bounds of numbers may have 14 digits, at most 11 of them before the "
                       "point",
                       name);
    if (!any)
        return SL_SCHEMA_NOTHING(c, "%s: no number lies within the bounds", name);
    return SL_OK;
}
