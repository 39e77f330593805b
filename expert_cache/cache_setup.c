/* Create, destroy, look into and plan an expert cache. */
#include "expert_cache/cache_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- create ---- */

size_t sl_cache_bytes(const struct sl_heat_config *shape, uint32_t n_slots) {
    size_t n = (size_t)shape->n_layer * shape->n_expert;
    return sizeof(struct sl_cache) + n_slots * sizeof(struct slot) +
           shape->n_layer * sizeof(struct layer) + (n + shape->n_expert) * sizeof(uint32_t) + 2 * n;
}

/* Of a class's layers the most that one token uses; of a class without layers, of any. */
static uint32_t class_k(const struct sl_cache_config *config, const struct sl_heat_config *shape,
                        uint32_t class) {
    uint32_t k = 0;
    for (uint32_t l = 0; l < shape->n_layer; l++)
        if ((config->layer_class ? config->layer_class[l] : 0) == class && shape->layers[l].k > k)
            k = shape->layers[l].k;
    return k ? k : shape->k;
}

static enum sl_status check_config(const struct sl_cache_config *config,
                                   const struct sl_heat_config *shape, uint32_t *out_n_slots,
                                   struct sl_err *err) {
    if (config->n_class < 1 || config->n_class > SL_CACHE_CLASSES)
        return sl_fail(err, SL_ERR_INVALID, "expert cache: %u size classes; 1 to %u are possible",
                       config->n_class, SL_CACHE_CLASSES);
    uint64_t n_slots = 0;
    for (uint32_t i = 0; i < config->n_class; i++) {
        uint32_t k = class_k(config, shape, i);
        if (config->class_slots[i] < k)
            return sl_fail(
                err, SL_ERR_INVALID,
                "expert cache: size class %u has %u slots, but one token needs the %u of "
                "a layer at the same time; raise the memory budget",
                i, config->class_slots[i], k);
        n_slots += config->class_slots[i];
    }
    if (n_slots > INT32_MAX)
        return sl_fail(err, SL_ERR_INVALID, "expert cache: %llu slots are too many",
                       (unsigned long long)n_slots);
    for (uint32_t l = 0; config->layer_class && l < shape->n_layer; l++)
        if (config->layer_class[l] >= config->n_class)
            return sl_fail(err, SL_ERR_INVALID, "expert cache: layer %u is of size class %u of %u",
                           l, config->layer_class[l], config->n_class);
    *out_n_slots = (uint32_t)n_slots;
    return SL_OK;
}

static void init_pools(struct sl_cache *c, const struct sl_cache_config *config,
                       const struct sl_heat_config *shape) {
    uint32_t at = 0;
    for (uint32_t i = 0; i < c->n_pools; i++) {
        c->pools[i] = (struct pool){.first_slot = at,
                                    .n_slots = config->class_slots[i],
                                    .first_free = at,
                                    .n_free = config->class_slots[i],
                                    .first_layer = LAYER_NONE,
                                    .k = class_k(config, shape, i)};
        for (uint32_t j = 0; j < config->class_slots[i]; j++, at++)
            c->slots[at].next_free = j + 1 < config->class_slots[i] ? at + 1 : SL_SLOT_NONE;
    }
    for (uint32_t l = c->n_layer; l-- > 0;) {
        struct pool *p = &c->pools[config->layer_class ? config->layer_class[l] : 0];
        c->layers[l] = (struct layer){.pool = (uint32_t)(p - c->pools),
                                      .next = p->first_layer,
                                      .n_expert = shape->layers[l].n_expert,
                                      .stale = true};
        p->first_layer = l;
    }
}

enum sl_status sl_cache_create(const struct sl_cache_config *config, struct sl_cache **out_cache,
                               struct sl_err *err) {
    const struct sl_heat_config *shape = sl_heat_config(config->heat);
    uint32_t n_slots = 0;
    SL_TRY(check_config(config, shape, &n_slots, err));
    size_t n = (size_t)shape->n_layer * shape->n_expert, bytes = sl_cache_bytes(shape, n_slots);
    struct sl_cache *c = calloc(1, bytes);
    if (!c)
        return sl_fail(err, SL_ERR_NOMEM, "expert cache: out of memory for %zu bytes", bytes);
    c->heat = config->heat;
    c->source = config->source;
    c->n_layer = shape->n_layer;
    c->n_expert = shape->n_expert;
    c->n_slots = n_slots;
    c->n_pools = config->n_class;
    c->slots = (struct slot *)(c + 1);
    c->layers = (struct layer *)(c->slots + n_slots);
    c->slot_of = (uint32_t *)(c->layers + c->n_layer);
    c->stamps = c->slot_of + n;
    c->evictable = (uint8_t *)(c->stamps + c->n_expert);
    c->elsewhere = c->evictable + n;
    memset(c->slot_of, 0xff, n * sizeof *c->slot_of);
    init_pools(c, config, shape);
    *out_cache = c;
    return SL_OK;
}

void sl_cache_destroy(struct sl_cache **cache) {
    free(*cache);
    *cache = NULL;
}

/* ---- looking in ---- */

const struct sl_cache_stats *sl_cache_stats(const struct sl_cache *cache) {
    return &cache->stats;
}

bool sl_cache_is_ready(const struct sl_cache *c, struct sl_expert_id id) {
    assert(id.layer < c->n_layer && id.expert < c->layers[id.layer].n_expert);
    uint32_t at = c->slot_of[(size_t)id.layer * c->n_expert + id.expert];
    return at != SL_SLOT_NONE && c->slots[at].state == SLOT_READY;
}

bool sl_cache_has(const struct sl_cache *c, struct sl_expert_id id) {
    assert(id.layer < c->n_layer && id.expert < c->layers[id.layer].n_expert);
    return c->slot_of[(size_t)id.layer * c->n_expert + id.expert] != SL_SLOT_NONE;
}

void sl_cache_usage(const struct sl_cache *c, struct sl_cache_usage *out_usage) {
    struct sl_cache_usage u = {0};
    for (uint32_t i = 0; i < c->n_slots; i++) {
        const struct slot *s = &c->slots[i];
        u.free += s->state == SLOT_FREE;
        u.loading += s->state == SLOT_LOADING;
        u.ready += s->state == SLOT_READY;
        u.failed += s->state == SLOT_FAILED;
        u.pinned += s->pins > 0;
    }
    *out_usage = u;
}

static void check_slot(const struct sl_cache *c, uint32_t at, uint32_t pool) {
    const struct slot *s = &c->slots[at];
    if (s->state == SLOT_FREE) {
        assert(s->pins == 0);
        return;
    }
    assert(c->layers[s->id.layer].pool == pool);
    size_t e = (size_t)s->id.layer * c->n_expert + s->id.expert;
    if (s->state == SLOT_FAILED) {
        assert(s->pins > 0 && s->failure != SL_OK && c->slot_of[e] != at);
        return;
    }
    assert(c->slot_of[e] == at);
    assert(c->evictable[e] == (s->state == SLOT_READY && s->pins == 0));
}

void sl_cache_check(const struct sl_cache *c) {
    uint32_t n_mapped = 0, n_live = 0;
    for (uint32_t i = 0; i < c->n_pools; i++) {
        const struct pool *p = &c->pools[i];
        uint32_t n_free = 0, n_evictable = 0, n_speculative = 0, n_listed = 0;
        for (uint32_t at = p->first_slot; at < p->first_slot + p->n_slots; at++) {
            const struct slot *s = &c->slots[at];
            check_slot(c, at, i);
            n_free += s->state == SLOT_FREE;
            n_evictable += s->state == SLOT_READY && s->pins == 0;
            n_speculative += s->state == SLOT_LOADING && s->kind != FILL_DEMAND;
            n_live += s->state == SLOT_LOADING || s->state == SLOT_READY;
        }
        for (uint32_t at = p->first_free; at != SL_SLOT_NONE; at = c->slots[at].next_free) {
            assert(at >= p->first_slot && at < p->first_slot + p->n_slots);
            assert(c->slots[at].state == SLOT_FREE && ++n_listed <= p->n_slots);
        }
        assert(n_free == p->n_free && n_listed == n_free && n_evictable == p->n_evictable);
        assert(n_speculative == p->n_speculative);
        uint32_t in_layers = 0;
        for (uint32_t l = p->first_layer; l != LAYER_NONE; l = c->layers[l].next)
            in_layers += c->layers[l].n_evictable;
        assert(in_layers == n_evictable);
    }
    for (size_t e = 0; e < (size_t)c->n_layer * c->n_expert; e++) {
        assert(c->slot_of[e] != SL_SLOT_NONE || !c->evictable[e]);
        n_mapped += c->slot_of[e] != SL_SLOT_NONE;
    }
    assert(n_mapped == n_live); /* with slot_of[expert of slot] == slot: no slot is used twice */
}

/* ---- planning ---- */

/* Slots of a class at the share num / 2^32. */
static uint64_t slots_at(const struct sl_cache_class *cl, uint64_t share) {
    uint64_t n = (cl->n_expert * share) >> 32;
    return n < cl->k ? cl->k : n;
}

static uint64_t bytes_at(const struct sl_cache_class *classes, uint32_t n, uint64_t share) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t b;
        if (__builtin_mul_overflow(slots_at(&classes[i], share), classes[i].slot_bytes, &b) ||
            __builtin_add_overflow(sum, b, &sum))
            return UINT64_MAX;
    }
    return sum;
}

enum sl_status sl_cache_split(const struct sl_cache_class *classes, uint32_t n, uint64_t bytes,
                              uint32_t *out_slots, struct sl_err *err) {
    uint64_t least = bytes_at(classes, n, 0), n_least = 0;
    for (uint32_t i = 0; i < n; i++)
        n_least += classes[i].k;
    if (bytes < least)
        return sl_fail(err, SL_ERR_CONFIG,
                       "%llu bytes for expert slots are too few: the least is %llu, for %llu slots "
                       "of %u size classes; raise the memory budget",
                       (unsigned long long)bytes, (unsigned long long)least,
                       (unsigned long long)n_least, n);
    /* The largest share that fits; the sum grows with the share. */
    uint64_t lo = 0, hi = UINT64_C(1) << 32;
    if (bytes_at(classes, n, hi) <= bytes)
        lo = hi;
    while (hi - lo > 1) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (bytes_at(classes, n, mid) <= bytes)
            lo = mid;
        else
            hi = mid;
    }
    uint64_t left = bytes - bytes_at(classes, n, lo);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t slots = slots_at(&classes[i], lo);
        if (slots < classes[i].n_expert && classes[i].slot_bytes <= left) {
            slots++; /* what rounding down left over */
            left -= classes[i].slot_bytes;
        }
        out_slots[i] = (uint32_t)slots;
    }
    return SL_OK;
}
