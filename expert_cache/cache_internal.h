/* The cache's storage, shared by expert_cache.c and cache_setup.c. */
#ifndef SL_EXPERT_CACHE_CACHE_INTERNAL_H
#define SL_EXPERT_CACHE_CACHE_INTERNAL_H

#include "expert_cache/expert_cache.h"

#define LAYER_NONE UINT32_MAX
#define LAYER_GONE UINT16_MAX /* of an expert: none */

enum slot_state { SLOT_FREE, SLOT_LOADING, SLOT_READY, SLOT_FAILED };
enum fill_kind { FILL_DEMAND, FILL_LOOKAHEAD, FILL_WARMUP, FILL_MOVE };

struct slot {
    struct sl_expert_id id; /* also of a free slot: any expert of its class */
    uint8_t state;          /* enum slot_state */
    uint8_t kind;           /* enum fill_kind; becomes demand when first leased */
    bool again;             /* loading what it held already */
    uint8_t kind_before;    /* ... and of this kind; becomes demand likewise */
    uint32_t generation;
    uint32_t pins;
    uint32_t next_free;     /* in the pool's list of free slots */
    enum sl_status failure; /* when failed */
    uint32_t wanted;        /* version of the layer's heat for which look-ahead predicted it */
    uint64_t start_ns;
};

struct pool { /* the slots of one size class */
    uint32_t first_slot, n_slots;
    uint32_t first_free, n_free;
    uint32_t n_evictable;   /* ready and not pinned */
    uint32_t n_speculative; /* loading for nobody yet */
    uint32_t first_layer;   /* of the class; then layer.next */
    uint32_t k;             /* of the class's layers the most that one token uses */
};

struct layer {
    uint32_t pool, next;
    uint32_t n_expert;
    uint32_t n_evictable;
    uint32_t version;  /* of the heat, when least was found */
    uint32_t wanted;   /* the last version for which look-ahead wanted one of its experts */
    float least_worth; /* the evictable expert of least worth; valid unless stale */
    uint16_t least;
    bool stale;
};

struct sl_cache {
    struct sl_heat *heat;
    enum sl_tier source;
    uint32_t n_layer, n_expert, n_slots, n_pools; /* n_expert: of the layer that has most */
    uint32_t stamp;
    struct sl_cache_stats stats;
    struct pool pools[SL_CACHE_CLASSES];
    struct slot *slots;          /* [n_slots] */
    struct layer *layers;        /* [n_layer] */
    uint32_t *slot_of;           /* [n_layer, n_expert] loading or ready, else SL_SLOT_NONE */
    uint32_t *stamps;            /* [n_expert] finds an id that is given twice */
    uint8_t *evictable;          /* [n_layer, n_expert] */
    uint8_t *elsewhere;          /* [n_layer, n_expert] in a faster tier too */
    struct sl_expert_id evicted; /* by the call that runs; layer LAYER_GONE: none */
};

#endif
