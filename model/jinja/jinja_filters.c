/* Filters on text and numbers.
 * Source: Jinja2's list of built-in filters. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SL_J_FUNC(f_upper, v) {
    return sl_j_str_case(rt, sl_j_to_str(rt, v), 'u');
}

SL_J_FUNC(f_lower, v) {
    return sl_j_str_case(rt, sl_j_to_str(rt, v), 'l');
}

SL_J_FUNC(f_capitalize, v) {
    return sl_j_str_case(rt, sl_j_to_str(rt, v), 'c');
}

/* Jinja's own title: a word begins after white space or one of - ( { [ <. */
SL_J_FUNC(f_title, v) {
    const struct sl_jstr *s = sl_j_to_str(rt, v);
    struct sl_jout o = {0};
    const char *p = s->p, *end = p + s->len;
    while (p < end) {
        uint32_t cp;
        const char *q = p;
        unsigned n = 0;
        for (; q < end; q += n) { /* the separators */
            n = sl_j_utf8_next(q, end, &cp);
            sl_j_charge(rt, SL_J_CHAR);
            if (!(cp && cp < 0x80 && strchr("-({[<", (int)cp)) && !(sl_j_props(cp) & SL_J_SPACE))
                break;
        }
        sl_j_put_part(rt, &o, s, p, (size_t)(q - p));
        p = q;
        if (p == end)
            break;
        const char *first_end = p + n;
        for (q = first_end; q < end; q += n) {
            n = sl_j_utf8_next(q, end, &cp);
            sl_j_charge(rt, SL_J_CHAR);
            if ((cp && cp < 0x80 && strchr("-({[<", (int)cp)) || (sl_j_props(cp) & SL_J_SPACE))
                break;
        }
        struct sl_jv first = sl_j_part(rt, s, p, (size_t)(first_end - p));
        struct sl_jv rest = sl_j_part(rt, s, first_end, (size_t)(q - first_end));
        sl_j_put_str(rt, &o, sl_j_str_case(rt, first.s, 'u'));
        sl_j_put_str(rt, &o, sl_j_str_case(rt, rest.s, 'l'));
        p = q;
    }
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(f_trim, v) {
    const struct sl_jstr *chars =
        sl_j_given(arg[0]) && arg[0].type != SL_J_NONE ? sl_j_need_str(rt, arg[0]) : NULL;
    return sl_j_strip(rt, sl_j_to_str(rt, v), 'b', chars);
}

SL_J_FUNC(f_replace, v) {
    int64_t count =
        sl_j_given(arg[2]) && arg[2].type != SL_J_NONE ? sl_j_need_int(rt, arg[2], "count") : -1;
    struct sl_jstr s = *sl_j_to_str(rt, v);
    s.markup = false;
    return sl_j_replace(rt, &s, sl_j_to_str(rt, arg[0]), sl_j_to_str(rt, arg[1]), count);
}

SL_J_FUNC(f_string, v) {
    return sl_j_of_str(sl_j_to_str(rt, v));
}

SL_J_FUNC(f_safe, v) {
    return sl_j_markup(rt, v);
}

SL_J_FUNC(f_escape, v) {
    return sl_j_escape(rt, v);
}

SL_J_FUNC(f_forceescape, v) {
    struct sl_jstr *s = sl_j_alloc(rt, sizeof *s);
    *s = *sl_j_to_str(rt, v);
    s->markup = false;
    return sl_j_escape(rt, sl_j_of_str(s));
}

SL_J_FUNC(f_center, v) {
    static const struct sl_jstr space = {.p = " ", .len = 1, .chars = 1};
    return sl_j_pad(rt, sl_j_to_str(rt, v),
                    sl_j_given(arg[0]) ? sl_j_need_int(rt, arg[0], "width") : 80, 'c', &space);
}

SL_J_FUNC(f_indent, v) {
    const struct sl_jstr *s = sl_j_need_str(rt, v), *by;
    struct sl_jout o = {0};
    if (sl_j_given(arg[0]) && arg[0].type == SL_J_STR)
        by = arg[0].s;
    else
        by = sl_j_binary(rt, '*', sl_j_cstr(rt, " "),
                         sl_j_int(sl_j_given(arg[0]) ? sl_j_need_int(rt, arg[0], "width") : 4))
                 .s;
    bool blank = sl_j_truth(rt, arg[2]);
    if (sl_j_truth(rt, arg[1]))
        sl_j_put_all(rt, &o, by);
    /* A newline more, so that a last empty line counts as one. */
    struct sl_jstr *more = (struct sl_jstr *)sl_j_concat(rt, v, sl_j_cstr(rt, "\n")).s;
    struct sl_jv lines = sl_j_splitlines(rt, more, false);
    for (size_t i = 0; i < lines.l->n; i++) {
        const struct sl_jstr *line = lines.l->v[i].s;
        if (i)
            sl_j_put_char(rt, &o, '\n');
        if (i && (blank || line->len))
            sl_j_put_all(rt, &o, by);
        sl_j_put_all(rt, &o, line);
    }
    (void)s;
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(f_truncate, v) {
    static const struct sl_jstr dots = {.p = "...", .len = 3, .chars = 3};
    const struct sl_jstr *s = sl_j_need_str(rt, v),
                         *end = sl_j_given(arg[2]) ? sl_j_need_str(rt, arg[2]) : &dots;
    int64_t length = sl_j_given(arg[0]) ? sl_j_need_int(rt, arg[0], "length") : 255;
    int64_t leeway =
        sl_j_given(arg[3]) && arg[3].type != SL_J_NONE ? sl_j_need_int(rt, arg[3], "leeway") : 5;
    int64_t n = (int64_t)sl_j_chars(rt, s), n_end = (int64_t)sl_j_chars(rt, end);
    if (length < n_end || leeway < 0)
        sl_j_fail(rt, "truncate wants a length of at least %lld and a leeway of at least 0",
                  (long long)n_end);
    if (n <= length || n - length <= leeway)
        return v;
    struct sl_jv head = sl_j_substr(rt, s, 0, (size_t)(length - n_end));
    if (!sl_j_truth(rt, arg[1])) {
        sl_j_charge_n(rt, head.s->len, SL_J_SCAN);
        const char *space = memrchr(head.s->p, ' ', head.s->len);
        if (space)
            head = sl_j_part(rt, head.s, head.s->p, (size_t)(space - head.s->p));
    }
    return sl_j_concat(rt, head, sl_j_of_str(end));
}

SL_J_FUNC(f_wordcount, v) {
    const struct sl_jstr *s = sl_j_to_str(rt, v);
    int64_t n = 0;
    bool in_word = false;
    for (const char *p = s->p, *end = p + s->len; p < end;) {
        uint32_t cp;
        sl_j_charge(rt, SL_J_CHAR);
        p += sl_j_utf8_next(p, end, &cp);
        bool word = cp == '_' || (sl_j_props(cp) & SL_J_ALNUM);
        n += word && !in_word;
        in_word = word;
    }
    return sl_j_int(n);
}

SL_J_FUNC(f_format, v) {
    const struct sl_jstr *fmt = sl_j_to_str(rt, v);
    if (all->n_pos && all->n_kw)
        sl_j_fail(rt, "format cannot take positional and keyword arguments at the same time");
    if (all->n_kw) {
        struct sl_jv d = sl_j_dict_new(rt);
        for (uint32_t i = 0; i < all->n_kw; i++)
            sl_j_dict_set(rt, d.d, sl_j_of_str(all->kw_name[i]), all->kw[i]);
        return sl_j_percent(rt, fmt, d);
    }
    struct sl_jv t = sl_j_list_new(rt, SL_J_TUPLE, all->n_pos);
    for (uint32_t i = 0; i < all->n_pos; i++)
        sl_j_list_push(rt, t.l, all->pos[i]);
    return sl_j_percent(rt, fmt, t);
}

/* Tags and comments go, runs of white space become one space, the common entities characters. */
SL_J_FUNC(f_striptags, v) {
    static const struct {
        const char *name, *text;
    } entity[] = {{"&amp;", "&"},  {"&lt;", "<"},  {"&gt;", ">"},  {"&quot;", "\""},
                  {"&#34;", "\""}, {"&#39;", "'"}, {"&apos;", "'"}};
    const struct sl_jstr *s = sl_j_to_str(rt, v);
    struct sl_jout bare = {0}, o = {0};
    for (const char *p = s->p, *end = p + s->len; p < end;) {
        const char *close = NULL;
        if (*p == '<') /* looked for twice, and perhaps in vain each time */
            sl_j_charge_n(rt, (uint64_t)(end - p), 2 * SL_J_SCAN);
        if (end - p >= 7 && !memcmp(p, "<!--", 4) &&
            (close = memmem(p + 4, (size_t)(end - p - 4), "-->", 3)))
            close += 2;
        else if (*p == '<')
            close = memchr(p, '>', (size_t)(end - p));
        if (!close)
            sl_j_put_part(rt, &bare, s, p++, 1);
        else
            p = close + 1;
    }
    struct sl_jv empty = sl_j_list_new(rt, SL_J_TUPLE, 2), text = sl_j_out_str(rt, &bare);
    sl_j_list_push(rt, empty.l, sl_j_missing());
    sl_j_list_push(rt, empty.l, sl_j_missing());
    const struct sl_jfunc *split = sl_j_find_func(sl_j_str_methods, "split", 5);
    struct sl_jv words = split->fn(rt, text, empty.l->v, all);
    for (size_t i = 0; i < words.l->n; i++) {
        const struct sl_jstr *w = words.l->v[i].s;
        if (i)
            sl_j_put_char(rt, &o, ' ');
        for (size_t k = 0; k < w->len; k++) {
            sl_j_charge(rt, SL_J_CHAR);
            size_t e = 0, n = sizeof entity / sizeof *entity;
            while (e < n && !(w->len - k >= strlen(entity[e].name) &&
                              !memcmp(w->p + k, entity[e].name, strlen(entity[e].name))))
                e++;
            if (e < n) {
                sl_j_puts(rt, &o, entity[e].text);
                k += strlen(entity[e].name) - 1;
            } else {
                sl_j_put_part(rt, &o, w, w->p + k, 1);
            }
        }
    }
    return sl_j_out_str(rt, &o);
}

static void quote(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s, bool query) {
    char buf[8];
    for (size_t i = 0; i < s->len; i++) {
        unsigned char c = (unsigned char)s->p[i];
        bool plain = (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z' && c < 0x80) ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        if (query && c == ' ') {
            sl_j_put_char(rt, o, '+');
        } else if (plain) {
            sl_j_put_char(rt, o, (char)c);
        } else {
            sl_j_charge(rt, 2 * SL_J_STEP);
            snprintf(buf, sizeof buf, "%%%02X", c);
            sl_j_puts(rt, o, buf);
        }
    }
}

SL_J_FUNC(f_urlencode, v) {
    struct sl_jout o = {0};
    struct sl_jv pair;
    bool first = true;
    if (v.type == SL_J_STR || !sl_j_iterable(v)) {
        quote(rt, &o, sl_j_to_str(rt, v), false);
        return sl_j_out_str(rt, &o);
    }
    if (v.type == SL_J_DICT)
        v = sl_j_call_func(rt, "method", sl_j_find_func(sl_j_dict_methods, "items", 5), v, NULL);
    for (struct sl_jiter *it = sl_j_iter(rt, v); sl_j_next(rt, it, &pair); first = false) {
        struct sl_jv two = sl_j_to_list(rt, pair);
        if (two.l->n != 2)
            sl_j_fail(rt, "urlencode wants pairs");
        if (!first)
            sl_j_put_char(rt, &o, '&');
        quote(rt, &o, sl_j_to_str(rt, two.l->v[0]), true);
        sl_j_put_char(rt, &o, '=');
        quote(rt, &o, sl_j_to_str(rt, two.l->v[1]), true);
    }
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(f_xmlattr, v) {
    struct sl_jout o = {0};
    if (v.type != SL_J_DICT)
        sl_j_fail(rt, "xmlattr wants a mapping, not %s", sl_j_type_name(v));
    for (size_t i = 0; i < v.d->n; i++) {
        struct sl_jv key = v.d->e[i].key, val = v.d->e[i].val;
        sl_j_charge(rt, SL_J_ITEM);
        if (val.type == SL_J_NONE || val.type == SL_J_UNDEF)
            continue;
        const struct sl_jstr *k = sl_j_need_str(rt, key);
        sl_j_charge_n(rt, k->len, 2 * SL_J_SCAN);
        for (size_t c = 0; c < k->len; c++)
            if (!k->p[c] || strchr(" \t\n\r\f\v/>=", k->p[c]))
                sl_j_fail(rt, "invalid character in an attribute name");
        if (o.len || !sl_j_given(arg[0]) || sl_j_truth(rt, arg[0]))
            sl_j_put_char(rt, &o, ' ');
        sl_j_put_str(rt, &o, sl_j_escape(rt, key));
        sl_j_puts(rt, &o, "=\"");
        sl_j_put_str(rt, &o, sl_j_escape(rt, val));
        sl_j_put_char(rt, &o, '"');
    }
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(f_refused, v) {
    sl_j_fail(rt, "this filter is not available in chat templates");
}

const struct sl_jfunc sl_j_filters_text[] = {
    {"trim", f_trim, "chars", 0, false},
    {"tojson", sl_j_tojson, "ensure_ascii,indent,separators,sort_keys", 0, false},
    {"string", f_string, "", 0, false},
    {"upper", f_upper, "", 0, false},
    {"lower", f_lower, "", 0, false},
    {"capitalize", f_capitalize, "", 0, false},
    {"title", f_title, "", 0, false},
    {"replace", f_replace, "old,new,count", 2, false},
    {"safe", f_safe, "", 0, false},
    {"escape", f_escape, "", 0, false},
    {"e", f_escape, "", 0, false},
    {"forceescape", f_forceescape, "", 0, false},
    {"indent", f_indent, "width,first,blank", 0, false},
    {"truncate", f_truncate, "length,killwords,end,leeway", 0, false},
    {"center", f_center, "width", 0, false},
    {"wordcount", f_wordcount, "", 0, false},
    {"format", f_format, NULL, 0, false},
    {"striptags", f_striptags, "", 0, false},
    {"urlencode", f_urlencode, "", 0, false},
    {"xmlattr", f_xmlattr, "autospace", 0, false},
    {"wordwrap", f_refused, NULL, 0, false},
    {"urlize", f_refused, NULL, 0, false},
    {"pprint", f_refused, NULL, 0, false},
    {"random", f_refused, NULL, 0, false},
    {NULL, NULL, NULL, 0, false},
};

/* ---- numbers ---- */

/* Python's int(float): towards zero, within 64 bits here. */
static struct sl_jv truncated(struct sl_jrt *rt, double f) {
    if (!(f > -9223372036854775809.0 && f < 9223372036854775808.0))
        sl_j_fail(rt, "cannot convert %s to a 64-bit integer",
                  isinf(f) ? "infinity" : "a number this large");
    return sl_j_int((int64_t)f);
}

SL_J_FUNC(f_int, v) {
    struct sl_jv fallback = sl_j_given(arg[0]) ? arg[0] : sl_j_int(0);
    int64_t i, base = sl_j_given(arg[1]) ? sl_j_need_int(rt, arg[1], "base") : 10;
    double f;
    bool over;
    switch (v.type) {
    case SL_J_UNDEF:
        sl_j_undef_fail(rt, v);
    case SL_J_BOOL:
    case SL_J_INT:
        return sl_j_int(v.type == SL_J_INT ? v.i : v.b);
    case SL_J_FLOAT:
        return v.f != v.f ? fallback : truncated(rt, v.f);
    case SL_J_STR:
        if ((base == 0 || (base >= 2 && base <= 36)) &&
            sl_j_parse_int(rt, v.s, (int)base, &i, &over)) {
            if (over)
                sl_j_fail(rt, "the integer does not fit into 64 bits");
            return sl_j_int(i);
        }
        if (sl_j_parse_float(rt, v.s, &f) && f == f)
            return truncated(rt, f);
        return fallback;
    default:
        return fallback;
    }
}

SL_J_FUNC(f_float, v) {
    struct sl_jv fallback = sl_j_given(arg[0]) ? arg[0] : sl_j_float(0);
    double f;
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (sl_j_is_number(v))
        return sl_j_float(sl_j_as_double(v));
    return v.type == SL_J_STR && sl_j_parse_float(rt, v.s, &f) ? sl_j_float(f) : fallback;
}

SL_J_FUNC(f_abs, v) {
    int64_t i;
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (v.type == SL_J_FLOAT)
        return sl_j_float(fabs(v.f));
    if (!sl_j_as_int(v, &i))
        sl_j_fail(rt, "bad operand type for abs: '%s'", sl_j_type_name(v));
    return i < 0 ? sl_j_binary(rt, '-', sl_j_int(0), sl_j_int(i)) : sl_j_int(i);
}

/* Half to even, on the exact decimal value: what printf does. */
static double round_double(struct sl_jrt *rt, double f, int64_t digits) {
    char buf[700];
    sl_j_charge(rt, 4 * SL_J_DIGITS);
    if (!isfinite(f) || digits > 330)
        return f;
    if (digits < -330)
        return copysign(0.0, f);
    if (digits < 0) {
        double unit = pow(10, (double)-digits), y = f / unit;
        return isinf(unit) ? copysign(0.0, f) : nearbyint(y) * unit;
    }
    snprintf(buf, sizeof buf, "%.*f", (int)digits, f);
    return strtod(buf, NULL);
}

static struct sl_jv round_int(struct sl_jrt *rt, int64_t i, int64_t digits) {
    if (digits >= 0)
        return sl_j_int(i);
    if (digits < -19)
        return sl_j_int(0);
    __int128 unit = 1, x = i;
    for (int64_t k = digits; k < 0; k++)
        unit *= 10;
    __int128 q = x / unit, r = x % unit;
    if (r < 0) {
        r += unit;
        q--;
    }
    if (2 * r > unit || (2 * r == unit && (q & 1)))
        q++;
    x = q * unit;
    if (x > INT64_MAX || x < INT64_MIN)
        sl_j_fail(rt, "the result does not fit into a 64-bit integer");
    return sl_j_int((int64_t)x);
}

SL_J_FUNC(f_round, v) {
    int64_t digits = sl_j_given(arg[0]) ? sl_j_need_int(rt, arg[0], "precision") : 0, i;
    const char *method = "common";
    if (sl_j_given(arg[1])) {
        const struct sl_jstr *m = sl_j_need_str(rt, arg[1]);
        method = sl_j_str_is(m, "ceil")     ? "ceil"
                 : sl_j_str_is(m, "floor")  ? "floor"
                 : sl_j_str_is(m, "common") ? "common"
                                            : NULL;
    }
    if (!method)
        sl_j_fail(rt, "the method of round must be common, ceil or floor");
    if (v.type == SL_J_UNDEF)
        sl_j_undef_fail(rt, v);
    if (!sl_j_is_number(v))
        sl_j_fail(rt, "round wants a number, not %s", sl_j_type_name(v));
    if (*method == 'c' && method[1] == 'o')
        return sl_j_as_int(v, &i) ? round_int(rt, i, digits)
                                  : sl_j_float(round_double(rt, v.f, digits));
    struct sl_jv unit = sl_j_binary(rt, SL_OP_POW, sl_j_int(10), sl_j_int(digits));
    double scaled = sl_j_as_double(sl_j_binary(rt, '*', v, unit));
    scaled = *method == 'c' ? ceil(scaled) : floor(scaled);
    return sl_j_binary(rt, '/', truncated(rt, scaled), unit);
}

SL_J_FUNC(f_filesizeformat, v) {
    static const char letter[] = "kMGTPEZY";
    struct sl_jv bytes_v = f_float(rt, v, (struct sl_jv[]){sl_j_none()}, all);
    bool binary = sl_j_truth(rt, arg[0]);
    double base = binary ? 1024 : 1000, unit = base;
    char buf[512];
    sl_j_charge(rt, 2 * SL_J_DIGITS);
    if (bytes_v.type != SL_J_FLOAT)
        sl_j_fail(rt, "filesizeformat wants a number");
    double bytes = bytes_v.f;
    if (bytes == 1) {
        return sl_j_cstr(rt, "1 Byte");
    } else if (bytes < base) {
        snprintf(buf, sizeof buf, "%lld Bytes", (long long)truncated(rt, bytes).i);
    } else {
        int i = 0;
        for (; i < 7 && bytes >= unit * base; i++)
            unit *= base;
        snprintf(buf, sizeof buf, "%.1f %c%s", bytes / unit, binary && i == 0 ? 'K' : letter[i],
                 binary ? "iB" : "B");
    }
    size_t n = strlen(buf);
    char *p = sl_j_alloc(rt, n);
    memcpy(p, buf, n);
    return sl_j_str(rt, p, n);
}

const struct sl_jfunc sl_j_filters_num[] = {
    {"int", f_int, "default,base", 0, false},
    {"float", f_float, "default", 0, false},
    {"abs", f_abs, "", 0, false},
    {"round", f_round, "precision,method", 0, false},
    {"filesizeformat", f_filesizeformat, "binary", 0, false},
    {NULL, NULL, NULL, 0, false},
};
