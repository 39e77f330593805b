/* The expert cache: which experts are in which slots of one memory tier. A state machine and no
 * more: it knows slots as indices, starts no read, has no thread and no clock, so that recorded
 * router traces run through it in a test.
 *
 * One layer of one step, as engine/experts/expert_fetch.c drives it (ids distinct, of that layer):
 *
 *     sl_heat_route(heat, layer, router_ids, n_rows, k, phase);    once per layer and step
 *     while (some of ids have not run) {
 *         sl_cache_acquire_some(cache, ids, n, k, now, leases, fills, &n_fills, &n_taken);
 *         for each fill, by its action:
 *             START: submit a read into slot fill.lease.slot
 *             RAISE: its read is under way as prefetch: make it urgent
 *             WAIT:  its read is under way
 *         run every leased expert that has no fill                 the hits, at once
 *         as reads end:
 *             sl_cache_filled(cache, fill.lease, result, now)      once per START, for all who wait
 *             if sl_cache_ready(cache, lease) is SL_OK: run it     the late ones
 *             if it is an error: fail the rows that need it
 *         sl_cache_release(cache, leases, n)                       when the kernels have read them
 *     }
 *
 * The loop runs once unless the step misses more than k experts or needs more than the pool has
 * slots; then each turn is a wave over the ids that have not run, and k slots are enough to end.
 * sl_cache_prefetch may be called between any two steps.
 *
 * States of a slot: free -> loading -> ready -> (evicted) free, or loading -> failed -> free.
 *   Ready -> loading again is sl_cache_refill's.
 * - A lease pins its slot and names the slot's generation, which changes each time the slot is
 *   given to an expert. A stale lease asserts.
 * - Loading and leased slots are never evicted. An acquire of a loading expert shares its fill.
 * - A failed fill is never published: the expert is forgotten at once, so that the next acquire
 *   starts a new fill, in another slot while leases hold this one; those all read the failure from
 *   sl_cache_ready. Leases of a loading slot may be released: the fill still owns it until filled.
 *
 * Whom to evict: the expert with the least p / d, where p is its probability of use by the next
 * token (heat.h) and d the part of a token's layers until its turn comes: a slot kept for an expert
 * earns p hits over a time d. Since the layers take turns, the expert of the layer that just ran is
 * the farthest away, and below one token's worth of slots the cache holds on to the probable
 * instead of cycling through all. The search is bounded: layers of the pool + experts of a layer.
 *
 * Size classes: layers whose experts differ in bytes use different pools of slots, and a pool only
 * ever evicts its own, so one class can neither starve nor thrash another. sl_cache_split gives
 * each class the same share of its experts, and never less than one layer's top-k.
 *
 * Tiers: this is one tier; the CPU backend has no more, RAM slots over disk. Two tiers are two
 * caches that share a heat (engine/experts/expert_tiers.c): a miss of the device's asks the host's
 * for a lease, whose own miss is filled from disk first, and whose slot is read in place or is the
 * source of a copy up. sl_cache_elsewhere tells the host's cache what is on the device: such
 * experts go first, so that the two do not hold the same. A fill names the expert that lost its
 * slot, so that it can move down instead of being dropped.
 *
 * Threads: no locks; the stage thread that owns it. Nothing allocates after create. */
#ifndef SL_EXPERT_CACHE_EXPERT_CACHE_H
#define SL_EXPERT_CACHE_EXPERT_CACHE_H

#include "common/status.h"
#include "common/tier.h"
#include "expert_cache/heat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_SLOT_NONE     UINT32_MAX
#define SL_CACHE_CLASSES 32u /* size classes at most */

/* A pin. slot counts through all classes: class c has the slots first_c .. first_c + n_c - 1,
 * first_c being the sum of the classes before it. */
struct sl_lease {
    uint32_t slot; /* SL_SLOT_NONE: not taken */
    uint32_t generation;
};

enum sl_fill_action {
    SL_FILL_START, /* the caller owes a read and, exactly once, sl_cache_filled */
    SL_FILL_WAIT,  /* shares a fill that somebody started for a demand */
    SL_FILL_RAISE, /* shares a fill that was started as prefetch or warm-up: raise its priority */
};

/* A leased expert whose bytes are not there yet. */
struct sl_fill {
    struct sl_expert_id id;
    struct sl_lease lease; /* identifies the fill; a pin only where acquire says so */
    enum sl_fill_action action;
    enum sl_tier source;
    uint32_t index; /* of id among the ids that were asked for */
    /* START: the slot was taken from victim, whose bytes are in it until the fill writes. */
    bool evicted;
    struct sl_expert_id victim;
};

enum sl_prefetch {
    SL_PREFETCH_LOOKAHEAD, /* a layer's router was run early; may evict what is worth less */
    SL_PREFETCH_WARMUP, /* after a start; takes only free slots, and of those that are elsewhere */
    SL_PREFETCH_MOVE,   /* it is in another tier: takes a slot whose expert is clearly colder */
};

/* All counts since create. */
struct sl_cache_stats {
    uint64_t hits;         /* leases of ready experts */
    uint64_t waits;        /* leases that share a demand fill */
    uint64_t misses;       /* leases that start a fill */
    uint64_t fills;        /* fills that were published, of any kind */
    uint64_t fills_failed; /* ended in an error other than SL_ERR_CANCELED */
    uint64_t fills_canceled;
    uint64_t fill_ns; /* sum over ended fills of the time from start to filled */
    uint64_t fill_max_ns;
    uint64_t evictions;
    uint64_t again;            /* acquires that found every slot pinned or loading */
    uint64_t partial;          /* acquire_some calls that took less than all: waves */
    uint64_t prefetches;       /* look-ahead fills started */
    uint64_t prefetch_used;    /* ... and later leased when ready */
    uint64_t prefetch_late;    /* ... leased while still loading */
    uint64_t prefetch_wasted;  /* ... evicted, failed or canceled unused */
    uint64_t prefetch_refused; /* not started: no slot worth less */
    uint64_t warmups;          /* warm-up fills started */
};

struct sl_cache;

struct sl_cache_config {
    struct sl_heat *heat;        /* borrowed for the cache's life; its shape is the cache's */
    const uint8_t *layer_class;  /* [n_layer] borrowed until create returns; NULL: one class */
    uint32_t n_class;            /* 1..SL_CACHE_CLASSES */
    const uint32_t *class_slots; /* [n_class] borrowed until create returns; each at least the most
                                    that one token uses of a layer of the class */
    enum sl_tier source;         /* where fills come from; only copied into sl_fill */
};

/* SL_ERR_INVALID: out of range, a layer of no class, or too few slots in a class.
 * SL_ERR_NOMEM. */
enum sl_status sl_cache_create(const struct sl_cache_config *config, struct sl_cache **out_cache,
                               struct sl_err *err) SL_MUST_CHECK;
/* Outstanding leases and fills end with it. */
void sl_cache_destroy(struct sl_cache **cache);
/* What create allocates, for the memory plan. */
size_t sl_cache_bytes(const struct sl_heat_config *shape, uint32_t n_slots);

/* Pins n distinct experts of one layer. out_lease [n], in the order of id. out_fill [n] gets the
 * leases that are not ready, *out_n_fill their number. SL_AGAIN: the slots that are neither pinned
 * nor loading are too few; nothing was taken or evicted. now_ns: any monotonic clock. */
enum sl_status sl_cache_acquire(struct sl_cache *cache, const struct sl_expert_id *id, uint32_t n,
                                uint64_t now_ns, struct sl_lease *out_lease,
                                struct sl_fill *out_fill, uint32_t *out_n_fill) SL_MUST_CHECK;
/* As acquire, but takes what there are slots for: first all that are ready or loading, then misses
 * in the order of id, max_misses at most. The leases of those not taken have slot SL_SLOT_NONE;
 * *out_n_taken is the number of the others. SL_AGAIN: nothing was taken.
 * max_misses: a prompt's chunk or a large batch touches most experts of a layer. Taken all at once
 * they would push out what the other layers need; taken k at a time, each released when it has run,
 * they pass through few slots and the rest of the cache stays as it was. */
enum sl_status sl_cache_acquire_some(struct sl_cache *cache, const struct sl_expert_id *id,
                                     uint32_t n, uint32_t max_misses, uint64_t now_ns,
                                     struct sl_lease *out_lease, struct sl_fill *out_fill,
                                     uint32_t *out_n_fill, uint32_t *out_n_taken) SL_MUST_CHECK;
/* Unpins; leases with slot SL_SLOT_NONE are passed over. */
void sl_cache_release(struct sl_cache *cache, const struct sl_lease *lease, uint32_t n);

/* SL_OK: the slot holds the expert. SL_AGAIN: loading. An error: what sl_cache_filled was given. */
enum sl_status sl_cache_ready(const struct sl_cache *cache, struct sl_lease lease) SL_MUST_CHECK;

/* Starts fills of experts that are not there and that nobody has asked for yet, of any layers; pins
 * nothing. out_fill [n] gets those to start; each is owed sl_cache_filled, with SL_ERR_CANCELED if
 * the read was dropped. Leaves at least the k slots of every class to demand. Returns their number.
 */
uint32_t sl_cache_prefetch(struct sl_cache *cache, enum sl_prefetch kind,
                           const struct sl_expert_id *id, uint32_t n, uint64_t now_ns,
                           struct sl_fill *out_fill);

/* Would a prefetch of that kind start a fill of this expert now? */
bool sl_cache_would_prefetch(struct sl_cache *cache, enum sl_prefetch kind, struct sl_expert_id id);

/* The end of a started fill: SL_OK publishes the slot, an error does not and tells all leases. */
void sl_cache_filled(struct sl_cache *cache, struct sl_lease lease, enum sl_status result,
                     uint64_t now_ns);

/* Starts to fill a slot again with the expert that is in it, for a measurement: where that is ready
 * and not leased. It is loading until sl_cache_filled, which is owed; an error then forgets it.
 * Counts as no fill, and changes nothing of what is evicted next. False: nothing was started. */
bool sl_cache_refill(struct sl_cache *cache, uint32_t slot, struct sl_expert_id *out_id,
                     struct sl_lease *out_lease);

/* Whether a faster tier has the expert too: then its slot here is the first to go. */
void sl_cache_elsewhere(struct sl_cache *cache, struct sl_expert_id id, bool elsewhere);

/* Empties every slot: their bytes can no longer be trusted. With no lease and no fill out. */
void sl_cache_forget(struct sl_cache *cache);

/* ---- looking in ---- */

const struct sl_cache_stats *sl_cache_stats(const struct sl_cache *cache);
bool sl_cache_is_ready(const struct sl_cache *cache, struct sl_expert_id id);
/* Ready or being filled. */
bool sl_cache_has(const struct sl_cache *cache, struct sl_expert_id id);
struct sl_cache_usage {
    uint32_t free, loading, ready, pinned,
        failed; /* slots; pinned are also loading, ready, failed */
};
void sl_cache_usage(const struct sl_cache *cache, struct sl_cache_usage *out_usage);
/* Asserts every invariant of the state; O(slots + experts). For tests. */
void sl_cache_check(const struct sl_cache *cache);

/* ---- planning ---- */

struct sl_cache_class {
    uint32_t n_expert;   /* experts in all layers of the class */
    uint32_t k;          /* of a layer the most that one token uses: the least number of slots */
    uint64_t slot_bytes; /* what one slot takes */
};
/* Divides bytes over n classes: the same share of its experts to each, never less than its k nor
 * more than n_expert. SL_ERR_CONFIG names the least number of bytes that would do. */
enum sl_status sl_cache_split(const struct sl_cache_class *classes, uint32_t n, uint64_t bytes,
                              uint32_t *out_slots, struct sl_err *err) SL_MUST_CHECK;

#endif
