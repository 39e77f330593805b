/* Methods of strings, numbers and the loop variable.
 * Source: Python's documentation of the built-in types. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <math.h>
#include <string.h>

/* ---- strings ---- */

#define CASE_METHOD(name, kind)                                                                    \
    SL_J_FUNC(name, self) {                                                                        \
        return sl_j_str_case(rt, self.s, kind);                                                    \
    }
CASE_METHOD(str_upper, 'u')
CASE_METHOD(str_lower, 'l')
CASE_METHOD(str_title, 't')
CASE_METHOD(str_capitalize, 'c')
CASE_METHOD(str_swapcase, 's')

#define STRIP_METHOD(name, side)                                                                   \
    SL_J_FUNC(name, self) {                                                                        \
        const struct sl_jstr *chars =                                                              \
            sl_j_given(arg[0]) && arg[0].type != SL_J_NONE ? sl_j_need_str(rt, arg[0]) : NULL;     \
        return sl_j_strip(rt, self.s, side, chars);                                                \
    }
STRIP_METHOD(str_strip, 'b')
STRIP_METHOD(str_lstrip, 'l')
STRIP_METHOD(str_rstrip, 'r')

static struct sl_jv split(struct sl_jrt *rt, struct sl_jv self, struct sl_jv *arg, bool right) {
    int64_t max = sl_j_given(arg[1]) ? sl_j_need_int(rt, arg[1], "maxsplit") : -1;
    bool spaces = !sl_j_given(arg[0]) || arg[0].type == SL_J_NONE;
    return sl_j_split(rt, self.s, spaces ? NULL : sl_j_need_str(rt, arg[0]),
                      max < 0 ? INT64_MAX : max, right);
}

SL_J_FUNC(str_split, self) {
    return split(rt, self, arg, false);
}

SL_J_FUNC(str_rsplit, self) {
    return split(rt, self, arg, true);
}

SL_J_FUNC(str_splitlines, self) {
    return sl_j_splitlines(rt, self.s, sl_j_truth(rt, arg[0]));
}

SL_J_FUNC(str_partition, self) {
    return sl_j_partition(rt, self.s, sl_j_need_str(rt, arg[0]), false);
}

SL_J_FUNC(str_rpartition, self) {
    return sl_j_partition(rt, self.s, sl_j_need_str(rt, arg[0]), true);
}

/* The part of self that optional bounds (characters) select; false when start is past the end. */
static bool select_part(struct sl_jrt *rt, struct sl_jv self, const struct sl_jv *bound,
                        struct sl_jv *out, int64_t *out_start) {
    int64_t n = (int64_t)sl_j_chars(rt, self.s), start = 0, stop = n;
    if (sl_j_given(bound[0]) && bound[0].type != SL_J_NONE)
        start = sl_j_need_int(rt, bound[0], "start");
    if (sl_j_given(bound[1]) && bound[1].type != SL_J_NONE)
        stop = sl_j_need_int(rt, bound[1], "end");
    start = start < 0 ? (start < -n ? 0 : start + n) : start;
    stop = stop < 0 ? (stop < -n ? 0 : stop + n) : stop > n ? n : stop;
    *out_start = start;
    *out = self;
    if (start > n || stop < start)
        return false;
    if (start > 0 || stop < n)
        *out = sl_j_substr(rt, self.s, (size_t)start, (size_t)stop);
    return true;
}

static struct sl_jv affix(struct sl_jrt *rt, struct sl_jv self, struct sl_jv *arg, bool at_end) {
    struct sl_jv part, one = arg[0];
    int64_t start;
    bool in = select_part(rt, self, arg + 1, &part, &start);
    struct sl_jv *v = &one;
    size_t n = 1;
    if (arg[0].type == SL_J_TUPLE) {
        v = arg[0].l->v;
        n = arg[0].l->n;
    }
    for (size_t i = 0; i < n; i++) {
        const struct sl_jstr *s = sl_j_need_str(rt, v[i]);
        sl_j_charge(rt, SL_J_ITEM);
        sl_j_charge_n(rt, s->len, SL_J_BYTE);
        if (in && s->len <= part.s->len &&
            !memcmp(part.s->p + (at_end ? part.s->len - s->len : 0), s->p, s->len))
            return sl_j_bool(true);
    }
    return sl_j_bool(false);
}

SL_J_FUNC(str_startswith, self) {
    return affix(rt, self, arg, false);
}

SL_J_FUNC(str_endswith, self) {
    return affix(rt, self, arg, true);
}

static struct sl_jv find(struct sl_jrt *rt, struct sl_jv self, struct sl_jv *arg, bool right,
                         bool must) {
    const struct sl_jstr *needle = sl_j_need_str(rt, arg[0]);
    struct sl_jv part;
    int64_t start;
    const char *hit = NULL;
    if (select_part(rt, self, arg + 1, &part, &start))
        hit = right ? sl_j_find_last(rt, part.s->p, part.s->p + part.s->len, needle)
                    : sl_j_find(rt, part.s, part.s->p, needle);
    if (!hit && must)
        sl_j_fail(rt, "substring not found");
    return sl_j_int(hit ? start + (int64_t)sl_j_count(rt, part.s->p, (size_t)(hit - part.s->p))
                        : -1);
}

#define FIND_METHOD(name, right, must)                                                             \
    SL_J_FUNC(name, self) {                                                                        \
        return find(rt, self, arg, right, must);                                                   \
    }
FIND_METHOD(str_find, false, false)
FIND_METHOD(str_rfind, true, false)
FIND_METHOD(str_index, false, true)
FIND_METHOD(str_rindex, true, true)

SL_J_FUNC(str_count, self) {
    const struct sl_jstr *needle = sl_j_need_str(rt, arg[0]);
    struct sl_jv part;
    int64_t start, n = 0;
    if (!select_part(rt, self, arg + 1, &part, &start))
        return sl_j_int(0);
    if (!needle->len)
        return sl_j_int((int64_t)sl_j_chars(rt, part.s) + 1);
    for (const char *p = part.s->p; (p = sl_j_find(rt, part.s, p, needle)); p += needle->len) {
        sl_j_charge(rt, SL_J_ITEM);
        n++;
    }
    return sl_j_int(n);
}

SL_J_FUNC(str_replace, self) {
    return sl_j_replace(rt, self.s, sl_j_need_str(rt, arg[0]), sl_j_need_str(rt, arg[1]),
                        sl_j_given(arg[2]) ? sl_j_need_int(rt, arg[2], "count") : -1);
}

SL_J_FUNC(str_join, self) {
    struct sl_jout o = {0};
    struct sl_jv v;
    bool first = true;
    for (struct sl_jiter *it = sl_j_iter(rt, arg[0]); sl_j_next(rt, it, &v); first = false) {
        const struct sl_jstr *s = sl_j_need_str(rt, v);
        if (!first)
            sl_j_put_all(rt, &o, self.s);
        sl_j_put_all(rt, &o, s);
    }
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(str_format, self) {
    return sl_j_format(rt, self.s, all);
}

SL_J_FUNC(str_format_map, self) {
    if (all->n_pos != 1 || all->n_kw || all->pos[0].type != SL_J_DICT)
        sl_j_fail(rt, "format_map() takes one mapping");
    const struct sl_jdict *d = all->pos[0].d;
    struct sl_jargv a = {.n_kw = (uint32_t)d->n};
    a.kw = sl_j_alloc_n(rt, d->n, sizeof *a.kw);
    a.kw_name = sl_j_alloc_n(rt, d->n, sizeof *a.kw_name);
    for (size_t i = 0; i < d->n; i++) {
        a.kw[i] = d->e[i].val;
        a.kw_name[i] = sl_j_to_str(rt, d->e[i].key);
    }
    return sl_j_format(rt, self.s, &a);
}

static struct sl_jv pad(struct sl_jrt *rt, struct sl_jv self, struct sl_jv *arg, char side) {
    static const struct sl_jstr space = {.p = " ", .len = 1, .chars = 1};
    return sl_j_pad(rt, self.s, sl_j_need_int(rt, arg[0], "width"), side,
                    sl_j_given(arg[1]) ? sl_j_need_str(rt, arg[1]) : &space);
}

#define PAD_METHOD(name, side)                                                                     \
    SL_J_FUNC(name, self) {                                                                        \
        return pad(rt, self, arg, side);                                                           \
    }
PAD_METHOD(str_center, 'c')
PAD_METHOD(str_ljust, 'l')
PAD_METHOD(str_rjust, 'r')

SL_J_FUNC(str_zfill, self) {
    static const struct sl_jstr zero = {.p = "0", .len = 1, .chars = 1};
    int64_t width = sl_j_need_int(rt, arg[0], "width");
    const struct sl_jstr *s = self.s;
    if (s->len && (*s->p == '-' || *s->p == '+')) {
        struct sl_jv sign = sl_j_part(rt, s, s->p, 1);
        struct sl_jv rest = sl_j_part(rt, s, s->p + 1, s->len - 1);
        return sl_j_concat(rt, sign, sl_j_pad(rt, rest.s, width - (width > INT64_MIN), 'r', &zero));
    }
    return sl_j_pad(rt, s, width, 'r', &zero);
}

SL_J_FUNC(str_removeprefix, self) {
    const struct sl_jstr *s = self.s, *x = sl_j_need_str(rt, arg[0]);
    sl_j_charge_n(rt, x->len, SL_J_BYTE);
    bool is = x->len <= s->len && !memcmp(s->p, x->p, x->len);
    return is ? sl_j_part(rt, s, s->p + x->len, s->len - x->len) : self;
}

SL_J_FUNC(str_removesuffix, self) {
    const struct sl_jstr *s = self.s, *x = sl_j_need_str(rt, arg[0]);
    sl_j_charge_n(rt, x->len, SL_J_BYTE);
    bool is = x->len <= s->len && !memcmp(s->p + s->len - x->len, x->p, x->len);
    return is ? sl_j_part(rt, s, s->p, s->len - x->len) : self;
}

SL_J_FUNC(str_expandtabs, self) {
    int64_t size = sl_j_given(arg[0]) ? sl_j_need_int(rt, arg[0], "tabsize") : 8, col = 0;
    struct sl_jout o = {0};
    uint32_t cp;
    for (const char *p = self.s->p, *end = p + self.s->len; p < end;) {
        unsigned n = sl_j_utf8_next(p, end, &cp);
        if (cp == '\t') {
            for (int64_t k = size > 0 ? size - col % size : 0; k > 0; k--, col++)
                sl_j_put_char(rt, &o, ' ');
            sl_j_charge(rt, SL_J_ITEM);
        } else {
            sl_j_put_part(rt, &o, self.s, p, n);
            col = cp == '\n' || cp == '\r' ? 0 : col + 1;
        }
        p += n;
    }
    return sl_j_out_str(rt, &o);
}

SL_J_FUNC(str_casefold, self) {
    /* Folding differs from lowering for a few letters only; none that a template compares. */
    return sl_j_str_case(rt, self.s, 'l');
}

/* All characters have one of the properties, and there is one. */
static struct sl_jv all_have(struct sl_jrt *rt, const struct sl_jstr *s, unsigned props,
                             bool empty) {
    uint32_t cp;
    for (const char *p = s->p, *end = p + s->len; p < end; p += sl_j_utf8_next(p, end, &cp)) {
        sl_j_utf8_next(p, end, &cp);
        sl_j_charge(rt, SL_J_CHAR);
        if (!(sl_j_props(cp) & props))
            return sl_j_bool(false);
    }
    return sl_j_bool(empty || s->len > 0);
}

#define IS_METHOD(name, props, empty)                                                              \
    SL_J_FUNC(name, self) {                                                                        \
        return all_have(rt, self.s, props, empty);                                                 \
    }
IS_METHOD(str_isalpha, SL_J_ALPHA, false)
IS_METHOD(str_isalnum, SL_J_ALNUM, false)
IS_METHOD(str_isdecimal, SL_J_DECIMAL, false)
IS_METHOD(str_isdigit, SL_J_DIGIT, false)
IS_METHOD(str_isnumeric, SL_J_NUMERIC, false)
IS_METHOD(str_isspace, SL_J_SPACE, false)
IS_METHOD(str_isprintable, SL_J_PRINTABLE, true)

SL_J_FUNC(str_isascii, self) {
    sl_j_charge_n(rt, self.s->len, SL_J_SCAN);
    for (size_t i = 0; i < self.s->len; i++)
        if ((unsigned char)self.s->p[i] >= 0x80)
            return sl_j_bool(false);
    return sl_j_bool(true);
}

static struct sl_jv is_case(struct sl_jrt *rt, const struct sl_jstr *s, unsigned yes, unsigned no) {
    uint32_t cp;
    bool any = false;
    for (const char *p = s->p, *end = p + s->len; p < end;) {
        sl_j_charge(rt, 2 * SL_J_CHAR);
        p += sl_j_utf8_next(p, end, &cp);
        if (sl_j_props(cp) & no)
            return sl_j_bool(false);
        any |= (sl_j_props(cp) & yes) != 0;
    }
    return sl_j_bool(any);
}

SL_J_FUNC(str_isupper, self) {
    return is_case(rt, self.s, SL_J_UPPER, SL_J_LOWER | SL_J_TITLE);
}

SL_J_FUNC(str_islower, self) {
    return is_case(rt, self.s, SL_J_LOWER, SL_J_UPPER | SL_J_TITLE);
}

SL_J_FUNC(str_istitle, self) {
    uint32_t cp;
    bool any = false, in_word = false;
    for (const char *p = self.s->p, *end = p + self.s->len; p < end;) {
        sl_j_charge(rt, SL_J_CHAR);
        p += sl_j_utf8_next(p, end, &cp);
        unsigned props = sl_j_props(cp);
        if (props & (SL_J_UPPER | SL_J_TITLE)) {
            if (in_word)
                return sl_j_bool(false);
            any = in_word = true;
        } else if (props & SL_J_LOWER) {
            if (!in_word)
                return sl_j_bool(false);
            any = true;
        } else {
            in_word = false;
        }
    }
    return sl_j_bool(any);
}

SL_J_FUNC(str_isidentifier, self) {
    uint32_t cp;
    const char *p = self.s->p, *end = p + self.s->len;
    for (const char *q = p; q < end;) {
        sl_j_charge(rt, SL_J_CHAR);
        unsigned n = sl_j_utf8_next(q, end, &cp);
        if (cp != '_' && !(sl_j_props(cp) & (q == p ? SL_J_ALPHA : SL_J_ALNUM)))
            return sl_j_bool(false);
        q += n;
    }
    return sl_j_bool(p < end);
}

const struct sl_jfunc sl_j_str_methods[] = {
    {"split", str_split, "sep,maxsplit", 0, false},
    {"strip", str_strip, "chars", 0, false},
    {"lstrip", str_lstrip, "chars", 0, false},
    {"rstrip", str_rstrip, "chars", 0, false},
    {"startswith", str_startswith, "prefix,start,end", 1, false},
    {"endswith", str_endswith, "suffix,start,end", 1, false},
    {"replace", str_replace, "old,new,count", 2, false},
    {"upper", str_upper, "", 0, false},
    {"lower", str_lower, "", 0, false},
    {"title", str_title, "", 0, false},
    {"capitalize", str_capitalize, "", 0, false},
    {"swapcase", str_swapcase, "", 0, false},
    {"casefold", str_casefold, "", 0, false},
    {"rsplit", str_rsplit, "sep,maxsplit", 0, false},
    {"splitlines", str_splitlines, "keepends", 0, false},
    {"partition", str_partition, "sep", 1, false},
    {"rpartition", str_rpartition, "sep", 1, false},
    {"find", str_find, "sub,start,end", 1, false},
    {"rfind", str_rfind, "sub,start,end", 1, false},
    {"index", str_index, "sub,start,end", 1, false},
    {"rindex", str_rindex, "sub,start,end", 1, false},
    {"count", str_count, "sub,start,end", 1, false},
    {"join", str_join, "iterable", 1, false},
    {"format", str_format, NULL, 0, false},
    {"format_map", str_format_map, NULL, 0, false},
    {"center", str_center, "width,fillchar", 1, false},
    {"ljust", str_ljust, "width,fillchar", 1, false},
    {"rjust", str_rjust, "width,fillchar", 1, false},
    {"zfill", str_zfill, "width", 1, false},
    {"removeprefix", str_removeprefix, "prefix", 1, false},
    {"removesuffix", str_removesuffix, "suffix", 1, false},
    {"expandtabs", str_expandtabs, "tabsize", 0, false},
    {"isalpha", str_isalpha, "", 0, false},
    {"isalnum", str_isalnum, "", 0, false},
    {"isdecimal", str_isdecimal, "", 0, false},
    {"isdigit", str_isdigit, "", 0, false},
    {"isnumeric", str_isnumeric, "", 0, false},
    {"isspace", str_isspace, "", 0, false},
    {"isprintable", str_isprintable, "", 0, false},
    {"isascii", str_isascii, "", 0, false},
    {"isupper", str_isupper, "", 0, false},
    {"islower", str_islower, "", 0, false},
    {"istitle", str_istitle, "", 0, false},
    {"isidentifier", str_isidentifier, "", 0, false},
    {NULL, NULL, NULL, 0, false},
};

/* ---- numbers, loop ---- */

SL_J_FUNC(number_is_integer, self) {
    if (self.type != SL_J_FLOAT)
        sl_j_fail(rt, "'%s' object has no method is_integer", sl_j_type_name(self));
    return sl_j_bool(isfinite(self.f) && self.f == floor(self.f));
}

SL_J_FUNC(number_bit_length, self) {
    int64_t i;
    if (!sl_j_as_int(self, &i))
        sl_j_fail(rt, "'float' object has no method bit_length");
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    return sl_j_int(u ? 64 - __builtin_clzll(u) : 0);
}

const struct sl_jfunc sl_j_number_methods[] = {
    {"is_integer", number_is_integer, "", 0, false},
    {"bit_length", number_bit_length, "", 0, false},
    {NULL, NULL, NULL, 0, false},
};

SL_J_FUNC(loop_cycle, self) {
    if (!all->n_pos || all->n_kw)
        sl_j_fail(rt, "no items for cycling given");
    return all->pos[self.loop->index0 % all->n_pos];
}

SL_J_FUNC(loop_changed, self) {
    struct sl_jv now = sl_j_list_new(rt, SL_J_TUPLE, all->n_pos);
    sl_j_charge_n(rt, all->n_pos, SL_J_ITEM);
    for (uint32_t i = 0; i < all->n_pos; i++)
        sl_j_list_push(rt, now.l, all->pos[i]);
    if (self.loop->changed.type != SL_J_MISSING && sl_j_equal(rt, self.loop->changed, now))
        return sl_j_bool(false);
    self.loop->changed = now;
    return sl_j_bool(true);
}

const struct sl_jfunc sl_j_loop_methods[] = {
    {"cycle", loop_cycle, NULL, 0, false},
    {"changed", loop_changed, NULL, 0, false},
    {NULL, NULL, NULL, 0, false},
};
