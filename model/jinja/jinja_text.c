/* Text: builders, str() and repr(). */
#include "common/utf8.h"
#include "model/jinja/jinja_ast.h"
#include "model/jinja/jinja_unicode.h"
#include "model/jinja/jinja_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct sl_jstr *sl_jc_str(struct sl_jc *c, const char *p, size_t len) {
    struct sl_jstr *s = sl_jc_alloc(c, sizeof *s);
    /* Counted now: a template's strings are shared by threads and must not change later. */
    *s = (struct sl_jstr){
        .p = p, .len = len, .chars = (int64_t)sl_j_utf8_count(p, len), .own = &sl_j_own_all};
    return s;
}

/* ---- builders ---- */

void sl_j_reserve(struct sl_jrt *rt, struct sl_jout *o, size_t more) {
    if (more <= o->cap - o->len)
        return;
    if (o->final &&
        (more > rt->limits.max_output_bytes || o->len > rt->limits.max_output_bytes - more))
        sl_j_limit(rt, "the rendered text is longer than the limit of %zu bytes",
                   rt->limits.max_output_bytes);
    size_t cap = o->cap ? 2 * o->cap : 64;
    if (more > SIZE_MAX / 4 || o->len > SIZE_MAX / 4)
        sl_j_limit(rt, "a text is too long");
    if (cap < o->len + more)
        cap = o->len + more;
    if (o->final) {
        char *p = realloc(o->p, cap + 1); /* + 1: the NUL at the end */
        if (!p)
            sl_j_no_memory(rt);
        o->p = p;
    } else {
        char *p = sl_j_alloc(rt, cap);
        if (o->len)
            memcpy(p, o->p, o->len);
        o->p = p;
    }
    o->cap = cap;
}

void sl_j_put(struct sl_jrt *rt, struct sl_jout *o, const char *p, size_t len) {
    if (!len)
        return;
    sl_j_charge(rt, SL_J_ITEM);
    sl_j_charge_n(rt, len, SL_J_BYTE);
    sl_j_reserve(rt, o, len);
    if (o->final && o->len + len > rt->limits.max_output_bytes)
        sl_j_limit(rt, "the rendered text is longer than the limit of %zu bytes",
                   rt->limits.max_output_bytes);
    memcpy(o->p + o->len, p, len);
    o->len += len;
}

void sl_j_put_char(struct sl_jrt *rt, struct sl_jout *o, char c) {
    sl_j_put(rt, o, &c, 1);
}

void sl_j_put_cp(struct sl_jrt *rt, struct sl_jout *o, uint32_t cp) {
    char buf[4];
    sl_j_put(rt, o, buf, sl_utf8_put(cp, buf));
}

void sl_j_puts(struct sl_jrt *rt, struct sl_jout *o, const char *s) {
    sl_j_put(rt, o, s, strlen(s));
}

struct sl_jv sl_j_out_str(struct sl_jrt *rt, struct sl_jout *o) {
    struct sl_jv v = sl_j_str(rt, o->p ? o->p : "", o->len);
    if (o->own.n) {
        struct sl_jown *own = sl_j_alloc(rt, sizeof *own);
        *own = o->own;
        own->base = v.s->p;
        ((struct sl_jstr *)v.s)->own = own;
    }
    return v;
}

/* ---- str() and repr() ---- */

void sl_j_put_str_repr(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s, bool ascii) {
    sl_j_charge_n(rt, s->len, SL_J_SCAN);
    char quote = memchr(s->p, '\'', s->len) && !memchr(s->p, '"', s->len) ? '"' : '\'', buf[12];
    sl_j_put_char(rt, o, quote);
    for (const char *p = s->p, *end = p + s->len; p < end;) {
        uint32_t cp;
        sl_j_charge(rt, SL_J_CHAR);
        unsigned n = sl_j_utf8_next(p, end, &cp);
        if (cp == (uint32_t)quote || cp == '\\') {
            buf[0] = '\\';
            buf[1] = (char)cp;
            sl_j_put(rt, o, buf, 2);
        } else if (cp == '\n' || cp == '\r' || cp == '\t') {
            sl_j_puts(rt, o, cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : "\\t");
        } else if (cp >= ' ' && cp < 127) {
            sl_j_put_part(rt, o, s, p, 1);
        } else if (cp >= 127 && !ascii && (sl_j_props(cp) & SL_J_PRINTABLE)) {
            sl_j_put_part(rt, o, s, p, n);
        } else {
            sl_j_charge(rt, 2 * SL_J_STEP);
            snprintf(buf, sizeof buf,
                     cp < 0x100     ? "\\x%02x"
                     : cp < 0x10000 ? "\\u%04x"
                                    : "\\U%08x",
                     (unsigned)cp);
            sl_j_puts(rt, o, buf);
        }
        p += n;
    }
    sl_j_put_char(rt, o, quote);
}

bool sl_j_open(struct sl_jrt *rt, struct sl_jopen *o, const void *p) {
    for (const struct sl_jopen *q = rt->open; q; q = q->up) {
        sl_j_charge(rt, SL_J_SCAN);
        if (q->p == p)
            return false;
    }
    *o = (struct sl_jopen){p, rt->open};
    rt->open = o;
    return true;
}

void sl_j_close(struct sl_jrt *rt) {
    rt->open = rt->open->up;
}

static void put_items(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jlist *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            sl_j_puts(rt, o, ", ");
        sl_j_put_repr(rt, o, l->v[i]);
    }
}

static void put_dict(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jdict *d) {
    sl_j_put_char(rt, o, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            sl_j_puts(rt, o, ", ");
        sl_j_put_repr(rt, o, d->e[i].key);
        sl_j_puts(rt, o, ": ");
        sl_j_put_repr(rt, o, d->e[i].val);
    }
    sl_j_put_char(rt, o, '}');
}

static void put_view(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jview *v) {
    struct sl_jopen open;
    if (!sl_j_open(rt, &open, v)) {
        sl_j_puts(rt, o, "...");
        return;
    }
    sl_j_puts(rt, o,
              v->what == 'k'   ? "dict_keys(["
              : v->what == 'v' ? "dict_values(["
                               : "dict_items([");
    for (size_t i = 0; i < v->d->n; i++) {
        const struct sl_jentry *e = &v->d->e[i];
        if (i)
            sl_j_puts(rt, o, ", ");
        sl_j_put_repr(rt, o,
                      v->what == 'k'   ? e->key
                      : v->what == 'v' ? e->val
                                       : sl_j_pair(rt, e->key, e->val));
    }
    sl_j_puts(rt, o, "])");
    sl_j_close(rt);
}

static void put_range(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jrange *r) {
    char buf[80];
    sl_j_charge(rt, 2 * SL_J_STEP);
    snprintf(buf, sizeof buf, r->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
             (long long)r->start, (long long)r->stop, (long long)r->step);
    sl_j_puts(rt, o, buf);
}

/* One that contains itself is written as dots inside of itself. */
static void put_container(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v) {
    bool is_list = v.type == SL_J_LIST || v.type == SL_J_TUPLE;
    struct sl_jopen open;
    if (v.type == SL_J_NS)
        sl_j_puts(rt, o, "<Namespace ");
    if (!sl_j_open(rt, &open, is_list ? (const void *)v.l : v.d)) {
        sl_j_puts(rt, o, v.type == SL_J_LIST ? "[...]" : is_list ? "(...)" : "{...}");
    } else if (is_list) {
        sl_j_put_char(rt, o, v.type == SL_J_LIST ? '[' : '(');
        put_items(rt, o, v.l);
        sl_j_puts(rt, o, v.type == SL_J_LIST ? "]" : v.l->n == 1 ? ",)" : ")");
        sl_j_close(rt);
    } else {
        put_dict(rt, o, v.d);
        sl_j_close(rt);
    }
    if (v.type == SL_J_NS)
        sl_j_put_char(rt, o, '>');
}

void sl_j_put_repr(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v) {
    char buf[64];
    sl_j_charge(rt, SL_J_STEP);
    sl_j_deeper(rt);
    switch (v.type) {
    case SL_J_MISSING:
    case SL_J_UNDEF:
        sl_j_puts(rt, o, "Undefined");
        break;
    case SL_J_NONE:
        sl_j_puts(rt, o, "None");
        break;
    case SL_J_BOOL:
        sl_j_puts(rt, o, v.b ? "True" : "False");
        break;
    case SL_J_INT:
        sl_j_charge(rt, 2 * SL_J_STEP);
        snprintf(buf, sizeof buf, "%lld", (long long)v.i);
        sl_j_puts(rt, o, buf);
        break;
    case SL_J_FLOAT:
        sl_j_put_float(rt, o, v.f);
        break;
    case SL_J_STR:
        if (v.s->markup)
            sl_j_puts(rt, o, "Markup(");
        sl_j_put_str_repr(rt, o, v.s, false);
        if (v.s->markup)
            sl_j_put_char(rt, o, ')');
        break;
    case SL_J_LIST:
    case SL_J_TUPLE:
    case SL_J_DICT:
    case SL_J_NS:
        put_container(rt, o, v);
        break;
    case SL_J_RANGE:
        put_range(rt, o, v.r);
        break;
    case SL_J_VIEW:
        put_view(rt, o, v.view);
        break;
    case SL_J_LOOP:
        snprintf(buf, sizeof buf, "<LoopContext %lld/%lld>", (long long)v.loop->index0 + 1,
                 (long long)sl_j_loop_length(rt, v.loop));
        sl_j_puts(rt, o, buf);
        break;
    case SL_J_MACRO:
        sl_j_puts(rt, o, "<Macro ");
        if (v.m->node->name)
            sl_j_put_str_repr(rt, o, v.m->node->name, false);
        else
            sl_j_puts(rt, o, "anonymous");
        sl_j_put_char(rt, o, '>');
        break;
    default: /* Python prints an address here */
        sl_j_put_char(rt, o, '<');
        sl_j_puts(rt, o, sl_j_type_name(v));
        sl_j_puts(rt, o, " object>");
        break;
    }
    rt->depth--;
}

void sl_j_put_str(struct sl_jrt *rt, struct sl_jout *o, struct sl_jv v) {
    if (v.type == SL_J_STR)
        sl_j_put_all(rt, o, v.s);
    else if (v.type != SL_J_UNDEF)
        sl_j_put_repr(rt, o, v);
}

const struct sl_jstr *sl_j_to_str(struct sl_jrt *rt, struct sl_jv v) {
    if (v.type == SL_J_STR)
        return v.s;
    struct sl_jout o = {0};
    sl_j_put_str(rt, &o, v);
    return sl_j_out_str(rt, &o).s;
}
