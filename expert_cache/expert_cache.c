#include "expert_cache/expert_cache.h"

#include "expert_cache/cache_internal.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

/* A prefetched expert is taken to be used with this probability until its layer has been routed:
 * what running a router one layer early is known to be right about, at the least. */
#define PREFETCH_PROBABILITY 0.5f
/* An expert moves between tiers when it is worth so much more than the one that goes for it: what
 * is known of either is an estimate, and moving both for nothing costs the link. */
#define MOVE_GAIN 2.0f

static struct pool *pool_of(struct sl_cache *c, uint32_t layer) {
    return &c->pools[c->layers[layer].pool];
}

static uint32_t expert_at(const struct sl_cache *c, struct sl_expert_id id) {
    assert(id.layer < c->n_layer && id.expert < c->layers[id.layer].n_expert);
    return (uint32_t)id.layer * c->n_expert + id.expert;
}

static struct slot *leased(const struct sl_cache *c, struct sl_lease lease) {
    assert(lease.slot < c->n_slots);
    struct slot *s = &c->slots[lease.slot];
    assert(s->generation == lease.generation && s->state != SLOT_FREE);
    return s;
}

/* ---- what may be evicted ---- */

static void set_evictable(struct sl_cache *c, struct slot *s, bool evictable) {
    struct layer *l = &c->layers[s->id.layer];
    struct pool *p = &c->pools[l->pool];
    uint32_t e = expert_at(c, s->id);
    if (c->evictable[e] == evictable)
        return;
    c->evictable[e] = evictable;
    if (evictable) {
        l->n_evictable++;
        p->n_evictable++;
    } else {
        l->n_evictable--;
        p->n_evictable--;
    }
    l->stale = true;
}

/* A look-ahead wants the expert in its slot: its worth is raised until the layer is routed. */
static void want(struct sl_cache *c, uint32_t at) {
    struct slot *s = &c->slots[at];
    struct layer *l = &c->layers[s->id.layer];
    s->wanted = l->wanted = sl_heat_version(c->heat, s->id.layer);
    l->stale = true;
}

static bool is_wanted(const struct sl_cache *c, uint32_t layer, uint32_t expert, uint32_t version) {
    return c->slots[c->slot_of[(size_t)layer * c->n_expert + expert]].wanted == version;
}

/* Finds the layer's evictable expert of least worth. */
static void find_least(struct sl_cache *c, uint32_t layer) {
    struct layer *l = &c->layers[layer];
    uint32_t version = sl_heat_version(c->heat, layer);
    if (!l->stale && l->version == version)
        return;
    const float *p = sl_heat_layer(c->heat, layer);
    const uint8_t *evictable = c->evictable + (size_t)layer * c->n_expert;
    const uint8_t *elsewhere = c->elsewhere + (size_t)layer * c->n_expert;
    bool some_wanted = l->wanted == version;
    l->least_worth = 3.0f; /* above any probability */
    for (uint32_t e = 0; e < l->n_expert; e++) {
        if (!evictable[e])
            continue;
        float w = elsewhere[e] ? 0 : p[e];
        if (some_wanted && w < PREFETCH_PROBABILITY && is_wanted(c, layer, e, version))
            w = PREFETCH_PROBABILITY;
        if (w < l->least_worth) {
            l->least_worth = w;
            l->least = (uint16_t)e;
        }
    }
    l->stale = false;
    l->version = version;
}

/* Layers from the one routed last to the next turn of this one: 1..n_layer. */
static float distance(const struct sl_cache *c, uint32_t layer) {
    uint32_t at = sl_heat_position(c->heat);
    return (float)(layer > at ? layer - at : c->n_layer - at + layer);
}

/* The slot to evict next, or SL_SLOT_NONE; *out_score is its worth per time. */
static uint32_t find_victim(struct sl_cache *c, const struct pool *p, float *out_score) {
    uint32_t victim = SL_SLOT_NONE;
    float best = 0;
    for (uint32_t l = p->first_layer; l != LAYER_NONE; l = c->layers[l].next) {
        if (c->layers[l].n_evictable == 0)
            continue;
        find_least(c, l);
        float score = c->layers[l].least_worth / distance(c, l);
        if (victim == SL_SLOT_NONE || score < best) {
            best = score;
            victim = c->slot_of[(size_t)l * c->n_expert + c->layers[l].least];
        }
    }
    *out_score = best;
    return victim;
}

/* ---- slots ---- */

static void free_slot(struct sl_cache *c, uint32_t at) {
    struct slot *s = &c->slots[at];
    struct pool *p = pool_of(c, s->id.layer);
    s->state = SLOT_FREE;
    s->next_free = p->first_free;
    p->first_free = at;
    p->n_free++;
}

static void evict(struct sl_cache *c, uint32_t at) {
    struct slot *s = &c->slots[at];
    assert(s->state == SLOT_READY && s->pins == 0);
    set_evictable(c, s, false);
    c->slot_of[expert_at(c, s->id)] = SL_SLOT_NONE;
    c->evicted = s->id;
    c->stats.evictions++;
    if (s->kind == FILL_LOOKAHEAD)
        c->stats.prefetch_wasted++;
    free_slot(c, at);
}

/* Gives a free slot to the expert; its fill has started. */
static struct sl_lease claim(struct sl_cache *c, struct sl_expert_id id, enum fill_kind kind,
                             uint64_t now_ns) {
    struct pool *p = pool_of(c, id.layer);
    uint32_t at = p->first_free;
    assert(at != SL_SLOT_NONE);
    struct slot *s = &c->slots[at];
    assert(s->state == SLOT_FREE && s->pins == 0);
    p->first_free = s->next_free;
    p->n_free--;
    p->n_speculative += kind != FILL_DEMAND;
    s->state = SLOT_LOADING;
    s->kind = (uint8_t)kind;
    s->id = id;
    s->generation++;
    s->start_ns = now_ns;
    s->wanted = 0; /* no version */
    c->slot_of[expert_at(c, id)] = at;
    if (kind == FILL_LOOKAHEAD)
        want(c, at);
    return (struct sl_lease){at, s->generation};
}

/* ---- acquire ---- */

/* Counts of a call: what would be pinned that could be evicted, and what needs a slot. */
static void count_needs(struct sl_cache *c, const struct sl_expert_id *id, uint32_t n,
                        uint32_t *out_hits_evictable, uint32_t *out_misses) {
    uint32_t hits = 0, misses = 0;
    c->stamp++;
    for (uint32_t i = 0; i < n; i++) {
        assert(id[i].layer == id[0].layer);
        uint32_t e = expert_at(c, id[i]);
        assert(c->stamps[id[i].expert] != c->stamp); /* distinct */
        c->stamps[id[i].expert] = c->stamp;
        hits += c->evictable[e];
        misses += c->slot_of[e] == SL_SLOT_NONE;
    }
    *out_hits_evictable = hits;
    *out_misses = misses;
}

static void add_fill(struct sl_cache *c, struct sl_expert_id id, struct sl_lease lease,
                     enum sl_fill_action action, uint32_t index, struct sl_fill *out_fill,
                     uint32_t *n_fill) {
    bool evicted = action == SL_FILL_START && c->evicted.layer != LAYER_GONE;
    out_fill[(*n_fill)++] = (struct sl_fill){.id = id,
                                             .lease = lease,
                                             .action = action,
                                             .source = c->source,
                                             .index = index,
                                             .evicted = evicted,
                                             .victim = evicted ? c->evicted : id};
}

static void take_present(struct sl_cache *c, struct sl_expert_id id, uint32_t index,
                         struct sl_lease *out_lease, struct sl_fill *out_fill, uint32_t *n_fill) {
    uint32_t at = c->slot_of[expert_at(c, id)];
    struct slot *s = &c->slots[at];
    *out_lease = (struct sl_lease){at, s->generation};
    s->pins++;
    if (s->state == SLOT_READY) {
        set_evictable(c, s, false);
        c->stats.hits++;
        c->stats.prefetch_used += s->kind == FILL_LOOKAHEAD;
        s->kind = FILL_DEMAND;
        return;
    }
    assert(s->state == SLOT_LOADING);
    s->kind_before = FILL_DEMAND;
    c->stats.waits++;
    if (s->kind == FILL_DEMAND) {
        add_fill(c, id, *out_lease, SL_FILL_WAIT, index, out_fill, n_fill);
        return;
    }
    c->stats.prefetch_late += s->kind == FILL_LOOKAHEAD;
    s->kind = FILL_DEMAND;
    pool_of(c, id.layer)->n_speculative--;
    add_fill(c, id, *out_lease, SL_FILL_RAISE, index, out_fill, n_fill);
}

enum sl_status sl_cache_acquire_some(struct sl_cache *c, const struct sl_expert_id *id, uint32_t n,
                                     uint32_t max_misses, uint64_t now_ns,
                                     struct sl_lease *out_lease, struct sl_fill *out_fill,
                                     uint32_t *out_n_fill, uint32_t *out_n_taken) {
    uint32_t n_fill = 0, n_taken = 0, hits, misses;
    *out_n_fill = 0;
    *out_n_taken = 0;
    if (n == 0)
        return SL_OK;
    count_needs(c, id, n, &hits, &misses);
    /* All that are there are pinned before the first eviction, so that none makes room for another
     * of the same call. */
    for (uint32_t i = 0; i < n; i++) {
        out_lease[i] = (struct sl_lease){SL_SLOT_NONE, 0};
        if (c->slot_of[expert_at(c, id[i])] != SL_SLOT_NONE) {
            take_present(c, id[i], i, &out_lease[i], out_fill, &n_fill);
            n_taken++;
        }
    }
    struct pool *p = pool_of(c, id[0].layer);
    if (misses > max_misses)
        misses = max_misses;
    for (uint32_t i = 0; i < n && misses; i++) {
        if (out_lease[i].slot != SL_SLOT_NONE)
            continue;
        c->evicted.layer = LAYER_GONE;
        if (p->n_free == 0) {
            float score;
            uint32_t victim = find_victim(c, p, &score);
            if (victim == SL_SLOT_NONE)
                break;
            evict(c, victim);
        }
        out_lease[i] = claim(c, id[i], FILL_DEMAND, now_ns);
        c->slots[out_lease[i].slot].pins = 1;
        c->stats.misses++;
        add_fill(c, id[i], out_lease[i], SL_FILL_START, i, out_fill, &n_fill);
        n_taken++;
        misses--;
    }
    *out_n_fill = n_fill;
    *out_n_taken = n_taken;
    c->stats.partial += n_taken < n;
    c->stats.again += n_taken == 0;
    return n_taken ? SL_OK : SL_AGAIN;
}

enum sl_status sl_cache_acquire(struct sl_cache *c, const struct sl_expert_id *id, uint32_t n,
                                uint64_t now_ns, struct sl_lease *out_lease,
                                struct sl_fill *out_fill, uint32_t *out_n_fill) {
    uint32_t hits, misses, n_taken;
    *out_n_fill = 0;
    if (n == 0)
        return SL_OK;
    count_needs(c, id, n, &hits, &misses);
    const struct pool *p = pool_of(c, id[0].layer);
    if (misses > p->n_free + p->n_evictable - hits) {
        c->stats.again++;
        return SL_AGAIN;
    }
    enum sl_status status =
        sl_cache_acquire_some(c, id, n, n, now_ns, out_lease, out_fill, out_n_fill, &n_taken);
    assert(status == SL_OK && n_taken == n);
    return status;
}

static void settle(struct sl_cache *c, uint32_t at) {
    struct slot *s = &c->slots[at];
    if (s->pins > 0)
        return;
    if (s->state == SLOT_FAILED)
        free_slot(c, at);
    else if (s->state == SLOT_READY)
        set_evictable(c, s, true);
}

void sl_cache_release(struct sl_cache *c, const struct sl_lease *lease, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        if (lease[i].slot == SL_SLOT_NONE)
            continue;
        struct slot *s = leased(c, lease[i]);
        assert(s->pins > 0);
        s->pins--;
        settle(c, lease[i].slot);
    }
}

enum sl_status sl_cache_ready(const struct sl_cache *c, struct sl_lease lease) {
    const struct slot *s = leased(c, lease);
    assert(s->pins > 0);
    if (s->state == SLOT_FAILED)
        return s->failure;
    return s->state == SLOT_READY ? SL_OK : SL_AGAIN;
}

/* ---- fills ---- */

/* What must be worth less than an expert's worth per time for the expert to take its slot. */
static float bid(struct sl_cache *c, struct sl_expert_id id, enum sl_prefetch kind) {
    float d = distance(c, id.layer);
    if (kind == SL_PREFETCH_MOVE)
        return sl_heat_layer(c->heat, id.layer)[id.expert] / (MOVE_GAIN * d);
    /* Warming up takes free slots, and those whose expert is in a faster tier too. */
    return kind == SL_PREFETCH_WARMUP ? FLT_MIN : PREFETCH_PROBABILITY / d;
}

/* Is there a slot for a fill that nobody waits for? *out_victim: the one to empty; SL_SLOT_NONE:
 * one is free. */
static bool has_room(struct sl_cache *c, struct pool *p, struct sl_expert_id id,
                     enum sl_prefetch kind, uint32_t *out_victim) {
    bool full = kind == SL_PREFETCH_MOVE ? 2 * p->n_speculative >= p->n_slots
                                         : p->n_speculative + p->k >= p->n_slots;
    *out_victim = SL_SLOT_NONE;
    if (full)
        return false;
    if (p->n_free > 0)
        return true;
    float score;
    *out_victim = find_victim(c, p, &score);
    return *out_victim != SL_SLOT_NONE && score < bid(c, id, kind);
}

/* Makes sure of one. */
static bool room_for(struct sl_cache *c, struct pool *p, struct sl_expert_id id,
                     enum sl_prefetch kind) {
    uint32_t victim;
    if (!has_room(c, p, id, kind, &victim))
        return false;
    c->evicted.layer = LAYER_GONE;
    if (victim != SL_SLOT_NONE)
        evict(c, victim);
    return true;
}

bool sl_cache_would_prefetch(struct sl_cache *c, enum sl_prefetch kind, struct sl_expert_id id) {
    uint32_t victim;
    return c->slot_of[expert_at(c, id)] == SL_SLOT_NONE &&
           has_room(c, pool_of(c, id.layer), id, kind, &victim);
}

uint32_t sl_cache_prefetch(struct sl_cache *c, enum sl_prefetch kind, const struct sl_expert_id *id,
                           uint32_t n, uint64_t now_ns, struct sl_fill *out_fill) {
    uint32_t n_fill = 0;
    /* What is predicted and there must not make room for the rest of the prediction. */
    for (uint32_t i = 0; i < n && kind == SL_PREFETCH_LOOKAHEAD; i++) {
        uint32_t at = c->slot_of[expert_at(c, id[i])];
        if (at != SL_SLOT_NONE)
            want(c, at);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (c->slot_of[expert_at(c, id[i])] != SL_SLOT_NONE)
            continue;
        if (!room_for(c, pool_of(c, id[i].layer), id[i], kind)) {
            c->stats.prefetch_refused += kind != SL_PREFETCH_MOVE;
            continue;
        }
        static const enum fill_kind kinds[] = {[SL_PREFETCH_LOOKAHEAD] = FILL_LOOKAHEAD,
                                               [SL_PREFETCH_WARMUP] = FILL_WARMUP,
                                               [SL_PREFETCH_MOVE] = FILL_MOVE};
        struct sl_lease lease = claim(c, id[i], kinds[kind], now_ns);
        c->stats.prefetches += kind == SL_PREFETCH_LOOKAHEAD;
        c->stats.warmups += kind == SL_PREFETCH_WARMUP;
        add_fill(c, id[i], lease, SL_FILL_START, i, out_fill, &n_fill);
    }
    return n_fill;
}

bool sl_cache_refill(struct sl_cache *c, uint32_t slot, struct sl_expert_id *out_id,
                     struct sl_lease *out_lease) {
    assert(slot < c->n_slots);
    struct slot *s = &c->slots[slot];
    if (s->state != SLOT_READY || s->pins > 0)
        return false;
    set_evictable(c, s, false);
    s->state = SLOT_LOADING;
    s->again = true;
    s->kind_before = s->kind;
    s->kind = FILL_DEMAND; /* it is not for a prefetch that it loads */
    *out_id = s->id;
    *out_lease = (struct sl_lease){slot, s->generation};
    return true;
}

static void refilled(struct sl_cache *c, struct slot *s, enum sl_status result) {
    s->again = false;
    s->kind = s->kind_before;
    if (result == SL_OK) {
        s->state = SLOT_READY;
        return;
    }
    s->state = SLOT_FAILED;
    s->failure = result;
    c->slot_of[expert_at(c, s->id)] = SL_SLOT_NONE;
    c->stats.prefetch_wasted += s->kind == FILL_LOOKAHEAD;
}

void sl_cache_filled(struct sl_cache *c, struct sl_lease lease, enum sl_status result,
                     uint64_t now_ns) {
    struct slot *s = leased(c, lease);
    assert(s->state == SLOT_LOADING && result != SL_AGAIN);
    if (s->again) {
        refilled(c, s, result);
        settle(c, lease.slot);
        return;
    }
    uint64_t took_ns = now_ns > s->start_ns ? now_ns - s->start_ns : 0;
    c->stats.fill_ns += took_ns;
    if (took_ns > c->stats.fill_max_ns)
        c->stats.fill_max_ns = took_ns;
    pool_of(c, s->id.layer)->n_speculative -= s->kind != FILL_DEMAND;
    if (result == SL_OK) {
        s->state = SLOT_READY;
        c->stats.fills++;
    } else {
        s->state = SLOT_FAILED;
        s->failure = result;
        c->slot_of[expert_at(c, s->id)] = SL_SLOT_NONE;
        c->stats.prefetch_wasted += s->kind == FILL_LOOKAHEAD;
        if (result == SL_ERR_CANCELED)
            c->stats.fills_canceled++;
        else
            c->stats.fills_failed++;
    }
    settle(c, lease.slot);
}

void sl_cache_elsewhere(struct sl_cache *c, struct sl_expert_id id, bool elsewhere) {
    uint32_t e = expert_at(c, id);
    if (c->elsewhere[e] == elsewhere)
        return;
    c->elsewhere[e] = elsewhere;
    c->layers[id.layer].stale = true;
}

void sl_cache_forget(struct sl_cache *c) {
    for (uint32_t i = 0; i < c->n_slots; i++) {
        assert(c->slots[i].state == SLOT_FREE ||
               (c->slots[i].state == SLOT_READY && c->slots[i].pins == 0));
        if (c->slots[i].state == SLOT_READY)
            evict(c, i);
    }
}
