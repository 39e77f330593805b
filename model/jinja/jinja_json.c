/* tojson as transformers defines it: Python's json.dumps without HTML escaping.
 * Source: RFC 8259; Python's json module documentation. */
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct dump {
    struct sl_jrt *rt;
    struct sl_jout o;
    bool ascii, sort;
    const struct sl_jstr *indent; /* one level, or NULL: on one line */
    const struct sl_jstr *item_sep, *key_sep;
};

static void put_string(struct dump *d, const struct sl_jstr *s) {
    struct sl_jrt *rt = d->rt;
    const char *p = s->p, *end = p + s->len, *from = p;
    char buf[16];
    sl_j_put_char(rt, &d->o, '"');
    while (p < end) {
        uint32_t cp = (unsigned char)*p;
        unsigned n = 1;
        sl_j_charge(rt, 2 * SL_J_SCAN);
        if (cp >= 0x80 && d->ascii)
            n = sl_j_utf8_next(p, end, &cp);
        if ((cp >= ' ' && cp != '"' && cp != '\\' && cp != 127 && cp < 0x80) ||
            (cp >= 127 && !d->ascii) || cp == 127) {
            p++;
            continue;
        }
        sl_j_put_part(rt, &d->o, s, from, (size_t)(p - from));
        sl_j_charge(rt, 2 * SL_J_STEP);
        static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
        const char *m = cp && cp < 0x80 ? strchr(plain, (int)cp) : NULL;
        if (m)
            snprintf(buf, sizeof buf, "\\%c", letter[m - plain]);
        else if (cp < 0x10000)
            snprintf(buf, sizeof buf, "\\u%04x", (unsigned)cp);
        else
            snprintf(buf, sizeof buf, "\\u%04x\\u%04x", (unsigned)(0xd800 + ((cp - 0x10000) >> 10)),
                     (unsigned)(0xdc00 + ((cp - 0x10000) & 0x3ff)));
        sl_j_puts(rt, &d->o, buf);
        p += n;
        from = p;
    }
    sl_j_put_part(rt, &d->o, s, from, (size_t)(p - from));
    sl_j_put_char(rt, &d->o, '"');
}

static void put_number(struct dump *d, struct sl_jv v) {
    if (v.type == SL_J_FLOAT && v.f != v.f)
        sl_j_puts(d->rt, &d->o, "NaN");
    else if (v.type == SL_J_FLOAT && isinf(v.f))
        sl_j_puts(d->rt, &d->o, v.f < 0 ? "-Infinity" : "Infinity");
    else if (v.type == SL_J_BOOL)
        sl_j_puts(d->rt, &d->o, v.b ? "true" : "false");
    else
        sl_j_put_repr(d->rt, &d->o, v);
}

static void newline(struct dump *d, unsigned level) {
    if (!d->indent)
        return;
    sl_j_put_char(d->rt, &d->o, '\n');
    for (unsigned i = 0; i < level; i++)
        sl_j_put_all(d->rt, &d->o, d->indent);
}

static void put_key(struct dump *d, struct sl_jv key) {
    if (key.type == SL_J_STR) {
        put_string(d, key.s);
        return;
    }
    if (!sl_j_is_number(key) && key.type != SL_J_NONE)
        sl_j_fail(d->rt, "keys must be str, int, float, bool or None, not %s", sl_j_type_name(key));
    sl_j_put_char(d->rt, &d->o, '"');
    if (key.type == SL_J_NONE)
        sl_j_puts(d->rt, &d->o, "null");
    else
        put_number(d, key);
    sl_j_put_char(d->rt, &d->o, '"');
}

static void put_value(struct dump *d, struct sl_jv v, unsigned level);

static void put_dict(struct dump *d, const struct sl_jdict *dict, unsigned level) {
    size_t *order = sl_j_alloc_n(d->rt, dict->n, sizeof *order);
    for (size_t i = 0; i < dict->n; i++) {
        order[i] = i;
        size_t k = i; /* insertion sort: keys of one object are few */
        for (;
             d->sort && k > 0 && sl_j_order(d->rt, '<', dict->e[i].key, dict->e[order[k - 1]].key);
             k--) {
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
    sl_j_put_char(d->rt, &d->o, '{');
    for (size_t i = 0; i < dict->n; i++) {
        if (i)
            sl_j_put_all(d->rt, &d->o, d->item_sep);
        newline(d, level + 1);
        put_key(d, dict->e[order[i]].key);
        sl_j_put_all(d->rt, &d->o, d->key_sep);
        put_value(d, dict->e[order[i]].val, level + 1);
    }
    if (dict->n)
        newline(d, level);
    sl_j_put_char(d->rt, &d->o, '}');
}

static void put_list(struct dump *d, const struct sl_jlist *l, unsigned level) {
    sl_j_put_char(d->rt, &d->o, '[');
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            sl_j_put_all(d->rt, &d->o, d->item_sep);
        newline(d, level + 1);
        put_value(d, l->v[i], level + 1);
    }
    if (l->n)
        newline(d, level);
    sl_j_put_char(d->rt, &d->o, ']');
}

static void put_container(struct dump *d, struct sl_jv v, unsigned level) {
    struct sl_jopen open;
    if (!sl_j_open(d->rt, &open, v.type == SL_J_DICT ? (const void *)v.d : v.l))
        sl_j_fail(d->rt, "a %s that contains itself cannot be written as JSON", sl_j_type_name(v));
    if (v.type == SL_J_DICT)
        put_dict(d, v.d, level);
    else
        put_list(d, v.l, level);
    sl_j_close(d->rt);
}

static void put_value(struct dump *d, struct sl_jv v, unsigned level) {
    sl_j_charge(d->rt, SL_J_STEP);
    sl_j_deeper(d->rt);
    switch (v.type) {
    case SL_J_NONE:
        sl_j_puts(d->rt, &d->o, "null");
        break;
    case SL_J_BOOL:
    case SL_J_INT:
    case SL_J_FLOAT:
        put_number(d, v);
        break;
    case SL_J_STR:
        put_string(d, v.s);
        break;
    case SL_J_LIST:
    case SL_J_TUPLE:
    case SL_J_DICT:
        put_container(d, v, level);
        break;
    default:
        sl_j_fail(d->rt, "an object of type %s cannot be written as JSON", sl_j_type_name(v));
    }
    d->rt->depth--;
}

/* {value|tojson(ensure_ascii, indent, separators, sort_keys)} */
struct sl_jv sl_j_tojson(struct sl_jrt *rt, struct sl_jv self, struct sl_jv *arg,
                         const struct sl_jargv *all) {
    struct dump d = {.rt = rt};
    (void)all;
    d.ascii = sl_j_truth(rt, arg[0]);
    if (arg[1].type == SL_J_STR) {
        d.indent = arg[1].s;
    } else if (arg[1].type != SL_J_MISSING && arg[1].type != SL_J_NONE) {
        int64_t n = sl_j_need_int(rt, arg[1], "tojson's indent");
        d.indent = sl_j_binary(rt, '*', sl_j_cstr(rt, " "), sl_j_int(n)).s;
    }
    d.item_sep = sl_j_cstr(rt, d.indent ? "," : ", ").s;
    d.key_sep = sl_j_cstr(rt, ": ").s;
    if (arg[2].type != SL_J_MISSING && arg[2].type != SL_J_NONE) {
        struct sl_jv two = sl_j_to_list(rt, arg[2]);
        if (two.l->n != 2 || two.l->v[0].type != SL_J_STR || two.l->v[1].type != SL_J_STR)
            sl_j_fail(rt, "tojson's separators must be two strings");
        d.item_sep = two.l->v[0].s;
        d.key_sep = two.l->v[1].s;
    }
    d.sort = sl_j_truth(rt, arg[3]);
    put_value(&d, self, 0);
    return sl_j_out_str(rt, &d.o);
}
