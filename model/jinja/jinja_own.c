/* Which bytes of a text are the template's own (chat_template.h). */
#include "model/jinja/jinja_value.h"

#include <string.h>

const struct sl_jown sl_j_own_all = {.all = true};

void sl_j_own_add(struct sl_jrt *rt, struct sl_jown *own, size_t from, size_t to) {
    if (from == to)
        return;
    if (own->n && own->run[own->n - 1].to == from) {
        own->run[own->n - 1].to = to;
        return;
    }
    if (own->n == own->cap) {
        size_t cap = own->cap ? 2 * own->cap : 4;
        struct sl_range *run = sl_j_alloc_n(rt, cap, sizeof *run);
        if (own->n)
            memcpy(run, own->run, own->n * sizeof *run);
        own->run = run;
        own->cap = cap;
    }
    own->run[own->n++] = (struct sl_range){from, to};
}

/* The first run that ends behind `at`. */
static size_t first_run(const struct sl_jown *own, size_t at) {
    size_t lo = 0, hi = own->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (own->run[mid].to > at)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

void sl_j_own_copy(struct sl_jrt *rt, struct sl_jown *to, size_t at, const struct sl_jstr *s,
                   const char *p, size_t len) {
    const struct sl_jown *own = s->own;
    if (!own || !len)
        return;
    if (own->all) {
        sl_j_own_add(rt, to, at, at + len);
        return;
    }
    size_t from = (size_t)(p - own->base), end = from + len, i = first_run(own, from), n = 0;
    for (; i < own->n && own->run[i].from < end; i++, n++) {
        size_t a = own->run[i].from > from ? own->run[i].from : from;
        size_t b = own->run[i].to < end ? own->run[i].to : end;
        sl_j_own_add(rt, to, at + (a - from), at + (b - from));
    }
    sl_j_charge_n(rt, n, SL_J_ITEM);
}

bool sl_j_is_own(const struct sl_jstr *s, const char *p, size_t len) {
    const struct sl_jown *own = s->own;
    if (!own || own->all)
        return own != NULL;
    size_t from = (size_t)(p - own->base), i = first_run(own, from);
    return i < own->n && own->run[i].from <= from && own->run[i].to >= from + len;
}

struct sl_jv sl_j_part(struct sl_jrt *rt, const struct sl_jstr *s, const char *p, size_t len) {
    struct sl_jv v = sl_j_str(rt, p, len);
    ((struct sl_jstr *)v.s)->own = s->own;
    return v;
}

void sl_j_put_part(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s, const char *p,
                   size_t len) {
    size_t at = o->len;
    sl_j_put(rt, o, p, len);
    sl_j_own_copy(rt, &o->own, at, s, p, len);
}

void sl_j_put_all(struct sl_jrt *rt, struct sl_jout *o, const struct sl_jstr *s) {
    sl_j_put_part(rt, o, s, s->p, s->len);
}
