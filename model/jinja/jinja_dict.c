/* Dictionaries: entries in order of insertion, and above eight of them an index by hash. */
#include "model/jinja/jinja_value.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 32)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 32);
}

/* Equal values have equal hashes: 1, 1.0 and true are one key. Returns MISSING, or the value inside
 * of v that cannot be hashed. */
static struct sl_jv try_hash(struct sl_jrt *rt, struct sl_jv v, uint64_t *out_hash) {
    uint64_t h = rt->hash_seed;
    int64_t i;
    sl_j_charge(rt, SL_J_ITEM);
    if (sl_j_as_int(v, &i)) {
        *out_hash = mix(h ^ (uint64_t)i);
        return sl_j_missing();
    }
    switch (v.type) {
    case SL_J_FLOAT:
        if (v.f >= -9.2e18 && v.f <= 9.2e18 && v.f == floor(v.f))
            i = (int64_t)v.f;
        else
            memcpy(&i, &v.f, sizeof i);
        *out_hash = mix(h ^ (uint64_t)i);
        return sl_j_missing();
    case SL_J_STR:
        sl_j_charge_n(rt, v.s->len, SL_J_SCAN);
        for (size_t k = 0; k < v.s->len; k += 8) {
            uint64_t word = 0;
            memcpy(&word, v.s->p + k, v.s->len - k < 8 ? v.s->len - k : 8);
            h = mix(h ^ word) + k;
        }
        *out_hash = mix(h ^ v.s->len);
        return sl_j_missing();
    case SL_J_TUPLE:
        sl_j_deeper(rt);
        for (size_t k = 0; k < v.l->n; k++) {
            uint64_t inner;
            struct sl_jv bad = try_hash(rt, v.l->v[k], &inner);
            if (sl_j_given(bad)) {
                rt->depth--;
                return bad;
            }
            h = mix(h ^ inner);
        }
        rt->depth--;
        *out_hash = h;
        return sl_j_missing();
    case SL_J_LIST:
    case SL_J_DICT:
    case SL_J_VIEW:
        return v;
    default:
        *out_hash = mix(h ^ v.type);
        return sl_j_missing();
    }
}

static uint64_t hash(struct sl_jrt *rt, struct sl_jv v) {
    uint64_t h = 0;
    struct sl_jv bad = try_hash(rt, v, &h);
    if (sl_j_given(bad))
        sl_j_fail(rt, "unhashable type: '%s'", sl_j_type_name(bad));
    return h;
}

struct sl_jv sl_j_dict_new(struct sl_jrt *rt) {
    struct sl_jdict *d = sl_j_alloc(rt, sizeof *d);
    *d = (struct sl_jdict){0};
    return (struct sl_jv){.type = SL_J_DICT, .d = d};
}

static struct sl_jentry *dict_find(struct sl_jrt *rt, const struct sl_jdict *d, struct sl_jv key,
                                   uint64_t h) {
    if (!d->index) {
        sl_j_charge_n(rt, d->n, SL_J_SCAN); /* eight at most */
        for (size_t i = 0; i < d->n; i++)
            if (d->e[i].hash == h && sl_j_equal(rt, d->e[i].key, key))
                return &d->e[i];
        return NULL;
    }
    for (size_t i = h & (d->n_index - 1); d->index[i]; i = (i + 1) & (d->n_index - 1)) {
        struct sl_jentry *e = &d->e[d->index[i] - 1];
        sl_j_charge(rt, SL_J_ITEM); /* each: keys of one hash are possible (NaN, macros) */
        if (e->hash == h && sl_j_equal(rt, e->key, key))
            return e;
    }
    return NULL;
}

/* Puts entry `at` into the index. */
static void index_add(struct sl_jrt *rt, struct sl_jdict *d, size_t at) {
    size_t i = d->e[at].hash & (d->n_index - 1);
    for (; d->index[i]; i = (i + 1) & (d->n_index - 1))
        sl_j_charge(rt, SL_J_ITEM);
    sl_j_charge(rt, SL_J_ITEM);
    d->index[i] = (uint32_t)(at + 1);
}

static void dict_index(struct sl_jrt *rt, struct sl_jdict *d) {
    d->n_index = 4 * d->cap;
    d->index = sl_j_alloc_n(rt, d->n_index, sizeof *d->index);
    memset(d->index, 0, d->n_index * sizeof *d->index);
    for (size_t k = 0; k < d->n; k++)
        index_add(rt, d, k);
}

/* The place in the index of entry `at`. */
static size_t index_place(struct sl_jrt *rt, const struct sl_jdict *d, size_t at) {
    size_t i = d->e[at].hash & (d->n_index - 1);
    for (; d->index[i] != at + 1; i = (i + 1) & (d->n_index - 1))
        sl_j_charge(rt, SL_J_ITEM);
    return i;
}

/* Empties a place and closes the gap, so that no search ends early. */
static void index_remove(struct sl_jrt *rt, struct sl_jdict *d, size_t hole) {
    size_t mask = d->n_index - 1;
    d->index[hole] = 0;
    for (size_t i = (hole + 1) & mask; d->index[i]; i = (i + 1) & mask) {
        size_t home = d->e[d->index[i] - 1].hash & mask;
        sl_j_charge(rt, SL_J_ITEM);
        if (((i - home) & mask) < ((i - hole) & mask))
            continue; /* its search does not come by the hole */
        d->index[hole] = d->index[i];
        d->index[i] = 0;
        hole = i;
    }
}

void sl_j_dict_remove(struct sl_jrt *rt, struct sl_jdict *d, const struct sl_jv *val) {
    const char *entry = (const char *)val - offsetof(struct sl_jentry, val);
    size_t at = (size_t)((const struct sl_jentry *)entry - d->e);
    bool last = at + 1 == d->n;
    if (d->index)
        index_remove(rt, d, index_place(rt, d, at));
    if (!last) {
        sl_j_charge_n(rt, d->n - at, SL_J_ITEM);
        memmove(&d->e[at], &d->e[at + 1], (d->n - at - 1) * sizeof *d->e);
    }
    if (d->index && !last) {
        sl_j_charge_n(rt, d->n_index, SL_J_SCAN);
        for (size_t i = 0; i < d->n_index; i++)
            d->index[i] -= d->index[i] > at;
    }
    d->n--;
    d->n_changes++;
}

void sl_j_dict_set(struct sl_jrt *rt, struct sl_jdict *d, struct sl_jv key, struct sl_jv val) {
    uint64_t h = hash(rt, key);
    struct sl_jentry *e = dict_find(rt, d, key, h);
    if (e) {
        e->val = val;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap ? 2 * d->cap : 4;
        if (cap > UINT32_MAX / 8)
            sl_j_limit(rt, "a dictionary has too many entries");
        struct sl_jentry *p = sl_j_alloc_n(rt, cap, sizeof *p);
        if (d->n)
            memcpy(p, d->e, d->n * sizeof *p);
        d->e = p;
        d->cap = cap;
        if (cap > 8)
            dict_index(rt, d);
    }
    d->e[d->n++] = (struct sl_jentry){key, val, h};
    d->n_changes++;
    if (d->index)
        index_add(rt, d, d->n - 1);
}

struct sl_jv *sl_j_dict_get(struct sl_jrt *rt, const struct sl_jdict *d, struct sl_jv key) {
    struct sl_jentry *e = dict_find(rt, d, key, hash(rt, key));
    return e ? &e->val : NULL;
}

struct sl_jv *sl_j_dict_find(struct sl_jrt *rt, const struct sl_jdict *d, struct sl_jv key) {
    uint64_t h;
    if (sl_j_given(try_hash(rt, key, &h)))
        return NULL;
    struct sl_jentry *e = dict_find(rt, d, key, h);
    return e ? &e->val : NULL;
}

bool sl_j_dict_equal(struct sl_jrt *rt, const struct sl_jdict *a, const struct sl_jdict *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        struct sl_jentry *e = dict_find(rt, b, a->e[i].key, a->e[i].hash);
        if (!e || !sl_j_equal(rt, a->e[i].val, e->val))
            return false;
    }
    return true;
}
