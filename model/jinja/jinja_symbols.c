#include "model/jinja/jinja_symbols.h"

#include <string.h>

enum { MAX_VARIABLES = 4096 }; /* of one scope; they are searched one by one */

struct ident { /* a variable of one scope; branches of an if share it */
    const struct sl_jstr *name;
    uint32_t slot;
};

struct frame_names {
    struct sl_junit *unit;
    struct ident *v;
    uint32_t n, cap;
};

enum { HAS_REF = 1, HAS_LOAD = 2, STORED = 4 };
struct sym { /* of the ident with the same index */
    uint8_t has;
    uint8_t load;
    uint32_t alias_hops, alias_slot;
};

struct sl_jsymbols {
    struct sl_jsymbols *parent;
    struct frame_names *names; /* shared by copies */
    struct sym *v;
    uint32_t n, cap;
};

struct sl_junit *sl_jc_unit(struct sl_jc *c, struct sl_junit *parent) {
    struct sl_junit *u = sl_jc_alloc(c, sizeof *u);
    u->parent = parent;
    return u;
}

struct sl_jsymbols *sl_jc_symbols(struct sl_jc *c, struct sl_jsymbols *parent,
                                  struct sl_junit *unit) {
    struct sl_jsymbols *s = sl_jc_alloc(c, sizeof *s);
    s->parent = parent;
    s->names = sl_jc_alloc(c, sizeof *s->names);
    s->names->unit = unit ? unit : parent->names->unit;
    return s;
}

/* The index of a name in its scope, made when new. */
static uint32_t ident_of(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name) {
    struct frame_names *f = s->names;
    uint32_t i = 0;
    while (i < f->n && !sl_j_str_eq(f->v[i].name, name))
        i++;
    sl_jc_charge(c, i);
    if (i == f->n) {
        if (f->n == MAX_VARIABLES)
            sl_jc_fail(c, (uint32_t)0, "more than %d variables in one scope", MAX_VARIABLES);
        if (f->n == f->cap) {
            uint32_t cap = f->cap ? 2 * f->cap : 8;
            struct ident *v = sl_jc_alloc(c, cap * sizeof *v);
            if (f->n)
                memcpy(v, f->v, f->n * sizeof *v);
            f->v = v;
            f->cap = cap;
        }
        f->v[f->n++] = (struct ident){name, f->unit->n_slots++};
    }
    if (i >= s->cap) {
        uint32_t cap = 2 * i + 8;
        struct sym *v = sl_jc_alloc(c, cap * sizeof *v);
        if (s->n)
            memcpy(v, s->v, s->n * sizeof *v);
        s->v = v;
        s->cap = cap;
    }
    if (i >= s->n)
        s->n = i + 1;
    return i;
}

static struct sym *sym_find(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name,
                            uint32_t *out_slot) {
    sl_jc_charge(c, s->n);
    for (uint32_t i = 0; i < s->n; i++)
        if ((s->v[i].has & HAS_REF) && sl_j_str_eq(s->names->v[i].name, name)) {
            *out_slot = s->names->v[i].slot;
            return &s->v[i];
        }
    return NULL;
}

/* Looks outwards from s; hops counts the units between `from` and the variable's. */
static bool find_ref(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_junit *from,
                     const struct sl_jstr *name, uint32_t *out_hops, uint32_t *out_slot) {
    for (; s; s = s->parent) {
        if (!sym_find(c, s, name, out_slot))
            continue;
        *out_hops = 0;
        for (const struct sl_junit *u = from; u != s->names->unit; u = u->parent)
            ++*out_hops;
        return true;
    }
    return false;
}

static uint32_t define(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name,
                       enum sl_j_load load) {
    uint32_t i = ident_of(c, s, name);
    s->v[i].has |= HAS_REF | HAS_LOAD;
    s->v[i].load = (uint8_t)load;
    return s->names->v[i].slot;
}

uint32_t sl_jc_symbol_param(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name) {
    uint32_t slot = define(c, s, name, SL_L_PARAM), i = ident_of(c, s, name);
    s->v[i].has |= STORED;
    return slot;
}

static void set_alias(struct sl_jsymbols *s, uint32_t i, uint32_t hops, uint32_t slot) {
    s->v[i].has |= HAS_LOAD;
    s->v[i].load = SL_L_ALIAS;
    s->v[i].alias_hops = hops;
    s->v[i].alias_slot = slot;
}

void sl_jc_symbol_store(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name) {
    uint32_t i = ident_of(c, s, name), hops, slot;
    s->v[i].has |= STORED;
    if (s->v[i].has & HAS_REF)
        return;
    define(c, s, name, SL_L_UNDEFINED);
    if (s->parent && find_ref(c, s->parent, s->names->unit, name, &hops, &slot))
        set_alias(s, i, hops, slot);
}

void sl_jc_symbol_load(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name) {
    uint32_t hops, slot;
    if (!find_ref(c, s, s->names->unit, name, &hops, &slot))
        define(c, s, name, SL_L_RESOLVE);
}

void sl_jc_symbol_find(struct sl_jc *c, struct sl_jsymbols *s, const struct sl_jstr *name,
                       uint32_t *out_hops, uint32_t *out_slot) {
    if (find_ref(c, s, s->names->unit, name, out_hops, out_slot))
        return;
    /* A name that the analysis did not meet, as in a set block's filter: look it up here. */
    *out_slot = define(c, s, name, SL_L_RESOLVE);
    *out_hops = 0;
}

struct sl_jsymbols *sl_jc_symbols_copy(struct sl_jc *c, const struct sl_jsymbols *s) {
    struct sl_jsymbols *r = sl_jc_alloc(c, sizeof *r);
    *r = *s;
    sl_jc_charge(c, s->cap);
    r->v = sl_jc_alloc(c, (s->cap ? s->cap : 1) * sizeof *r->v);
    if (s->n)
        memcpy(r->v, s->v, s->n * sizeof *r->v);
    return r;
}

void sl_jc_symbols_merge(struct sl_jc *c, struct sl_jsymbols *base, struct sl_jsymbols **branch,
                         uint32_t n) {
    uint32_t n_ident = base->names->n, hops, slot;
    uint8_t *count = sl_jc_alloc(c, n_ident + 1);
    sl_jc_charge(c, 4u * n_ident);
    for (uint32_t b = 0; b < n; b++)
        for (uint32_t i = 0; i < branch[b]->n; i++)
            if ((branch[b]->v[i].has & STORED) && !(i < base->n && (base->v[i].has & STORED)))
                count[i]++;
    for (uint32_t b = 0; b < n; b++)
        for (uint32_t i = 0; i < branch[b]->n; i++) {
            struct sym from = branch[b]->v[i];
            if (!from.has)
                continue;
            uint32_t k = ident_of(c, base, base->names->v[i].name); /* may move base->v */
            struct sym *to = &base->v[k];
            uint8_t had = to->has;
            if (from.has & HAS_LOAD)
                *to = from;
            to->has = had | from.has;
        }
    for (uint32_t i = 0; i < n_ident; i++) {
        if (!count[i] || count[i] == n)
            continue;
        if (base->parent &&
            find_ref(c, base->parent, base->names->unit, base->names->v[i].name, &hops, &slot)) {
            set_alias(base, i, hops, slot);
        } else {
            base->v[i].has |= HAS_LOAD;
            base->v[i].load = SL_L_RESOLVE;
        }
    }
}

struct sl_jscope *sl_jc_scope_of(struct sl_jc *c, const struct sl_jsymbols *s) {
    struct sl_jscope *r = sl_jc_alloc(c, sizeof *r);
    r->unit = s->names->unit;
    sl_jc_charge(c, s->n);
    r->enter = sl_jc_alloc(c, (s->n + 1) * sizeof *r->enter);
    for (uint32_t i = 0; i < s->n; i++)
        if (s->v[i].has & HAS_LOAD)
            r->enter[r->n_enter++] = (struct sl_j_enter){
                .load = (enum sl_j_load)s->v[i].load,
                .slot = s->names->v[i].slot,
                .name = s->names->v[i].name,
                .from_hops = s->v[i].alias_hops,
                .from_slot = s->v[i].alias_slot,
            };
    return r;
}

struct sl_junit *sl_jc_unit_of(const struct sl_jsymbols *s) {
    return s->names->unit;
}
