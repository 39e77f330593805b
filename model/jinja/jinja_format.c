/* str.format.
 * Source: Python's documentation, "Format Specification Mini-Language". */
#include "common/utf8.h"
#include "model/jinja/jinja_spec.h"
#include "model/jinja/jinja_unicode.h"

#include <string.h>

static void parse_spec(struct sl_jrt *rt, const struct sl_jstr *text, struct sl_jspec *s) {
    const char *p = text->p, *end = p + text->len;
    uint32_t cp;
    *s = (struct sl_jspec){.precision = -1};
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
    if (p < end && *p >= '0' && *p <= '9')
        s->width = sl_jspec_number(rt, &p, end);
    if (p < end && (*p == ',' || *p == '_'))
        s->group = *p++;
    if (p < end && *p == '.') {
        p++;
        if (p == end || *p < '0' || *p > '9')
            sl_j_fail(rt, "format specifier missing precision");
        s->precision = sl_jspec_number(rt, &p, end);
    }
    if (p < end)
        s->type = *p++;
    if (p < end)
        sl_j_fail(rt, "invalid format specifier");
}

static struct sl_jv format_text(struct sl_jrt *rt, struct sl_jspec *s, const struct sl_jstr *t) {
    char fill[4];
    if ((s->type && s->type != 's') || s->sign || s->align == '=' || s->alt || s->group)
        sl_j_fail(rt, "invalid format specifier for a string");
    if (s->precision >= 0 && (size_t)s->precision < sl_j_chars(rt, t))
        t = sl_j_substr(rt, t, 0, (size_t)s->precision).s;
    struct sl_jstr one = {.p = fill, .chars = 1};
    one.len = sl_utf8_put(s->fill ? s->fill : ' ', fill);
    int64_t rest = s->width - (int64_t)sl_j_chars(rt, t);
    int64_t left = s->align == '>' ? rest : s->align == '^' ? rest / 2 : 0;
    struct sl_jout o = {0};
    for (int64_t i = 0; i < left; i++)
        sl_j_put(rt, &o, one.p, one.len);
    sl_j_put_all(rt, &o, t);
    for (int64_t i = left > 0 ? left : 0; i < rest; i++)
        sl_j_put(rt, &o, one.p, one.len);
    return sl_j_out_str(rt, &o);
}

static struct sl_jv format_value(struct sl_jrt *rt, struct sl_jv v, const struct sl_jstr *text) {
    struct sl_jspec s;
    int64_t i;
    if (!text->len)
        return sl_j_of_str(sl_j_to_str(rt, v));
    sl_j_charge(rt, SL_J_STEP);
    parse_spec(rt, text, &s);
    if (v.type == SL_J_STR)
        return format_text(rt, &s, v.s);
    if (!sl_j_is_number(v))
        sl_j_fail(rt, "unsupported format for a value of type '%s'", sl_j_type_name(v));
    if (s.precision > SL_JSPEC_MAX_PRECISION)
        sl_j_fail(rt, "a precision in a format string is larger than %d", SL_JSPEC_MAX_PRECISION);
    if (sl_j_as_int(v, &i) && (!s.type || strchr("dnxXob", s.type))) {
        if (s.precision >= 0)
            sl_j_fail(rt, "precision not allowed in integer format specifier");
        if (s.group == ',' && s.type && s.type != 'd')
            sl_j_fail(rt, "cannot specify ',' with '%c'", s.type);
        return sl_jspec_int(rt, &s, i);
    }
    if (s.type == 'c' && sl_j_as_int(v, &i)) {
        s.type = 0;
        s.align = s.align ? s.align : '<';
        return format_text(rt, &s, sl_jspec_char(rt, v).s);
    }
    if (s.type && !strchr("eEfFgGn%", s.type))
        sl_j_fail(rt, "unknown format code '%c' for a number", s.type);
    return sl_jspec_float(rt, &s, sl_j_as_double(v));
}

struct format {
    struct sl_jrt *rt;
    const struct sl_jstr *fmt;
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
            if (!sl_j_parse_int(rt, &first, 10, &index, &over) || over)
                sl_j_fail(rt, "a field number is too large");
        }
        if (index >= f->args->n_pos)
            sl_j_fail(rt, "replacement index %lld out of range", (long long)index);
        v = f->args->pos[index];
    } else {
        sl_j_charge_n(rt, f->args->n_kw, SL_J_ITEM + first.len * SL_J_BYTE);
        for (uint32_t i = 0; i < f->args->n_kw; i++)
            if (sl_j_str_eq(f->args->kw_name[i], &first))
                v = f->args->kw[i];
        if (v.type == SL_J_MISSING)
            sl_j_fail(rt, "the format names '%.*s', which is not given",
                      (int)(first.len > 40 ? 40 : first.len), first.p);
    }
    while (q < end) {
        sl_j_charge(rt, SL_J_STEP);
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
            if (*from >= '0' && *from <= '9' && sl_j_parse_int(rt, key.s, 10, &index, &over) &&
                !over)
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
    /* A character is passed four times at most: as text, to find the end of its field, of the
     * field's name and of the name's parts. */
    sl_j_charge_n(rt, (uint64_t)(end - p), 4 * SL_J_SCAN);
    while (p < end) {
        if ((*p == '{' || *p == '}') && p + 1 < end && p[1] == *p && level == 2) {
            sl_j_put_part(rt, o, f->fmt, p, 1);
            p += 2;
            continue;
        }
        if (*p == '}')
            sl_j_fail(rt, "single '}' encountered in format string");
        if (*p != '{') {
            sl_j_put_part(rt, o, f->fmt, p++, 1);
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
            struct sl_jspec s = {.type = conversion, .precision = -1};
            v = sl_jspec_text(rt, &s, v);
        }
        struct sl_jv t = format_value(rt, v, sl_j_out_str(rt, &text).s);
        sl_j_put_all(rt, o, t.s);
    }
}

struct sl_jv sl_j_format(struct sl_jrt *rt, const struct sl_jstr *fmt,
                         const struct sl_jargv *args) {
    struct format f = {.rt = rt, .fmt = fmt, .args = args};
    struct sl_jout o = {0};
    format_into(&f, &o, fmt->p, fmt->p + fmt->len, 2);
    return sl_j_out_str(rt, &o);
}
