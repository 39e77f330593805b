/* Pass-through slots: room on the device for experts that are used there once and not kept. Part of
 * the tier (expert_tiers_internal.h), used by its thread.
 *
 * A slot cycles: free, taken by the group of calls that is being built, free again when those calls
 * have been enqueued. The next copy into it waits for those calls on the device, not here. A slot
 * may also hold an expert that was copied early, before its layer asked; it waits for that layer,
 * which takes it or, if it does not want it, frees it. */
#ifndef SL_ENGINE_PASS_THROUGH_H
#define SL_ENGINE_PASS_THROUGH_H

#include "backends/buffer_pool.h"
#include "expert_cache/expert_cache.h"

enum sl_pass_state { SL_PASS_FREE, SL_PASS_TAKEN, SL_PASS_EARLY };

struct sl_pass_slot {
    enum sl_pass_state state;
    struct sl_expert_id id; /* EARLY: what is in it or on its way */
    struct sl_lease host;   /* EARLY: of the slot that it is copied from */
    sl_point up;            /* EARLY: of the copy */
    bool prediction;        /* EARLY: named by an early router */
    sl_point used;          /* FREE: its last use on OPS; 0: has run */
};

struct sl_pass_slots {
    const struct sl_buffer_pool *pool; /* NULL: there is none */
    struct sl_buffer_items items;      /* [n] */
    struct sl_pass_slot *slots;        /* [n] */
    uint32_t n, n_early, next;         /* next: where the search for a free slot begins */
};

/* The slot that holds this expert early; NULL: none. */
struct sl_pass_slot *sl_pass_find(struct sl_pass_slots *w, struct sl_expert_id id);
/* A free slot; NULL: none. The caller orders its copy behind the slot's use and sets the state. */
struct sl_pass_slot *sl_pass_room(struct sl_pass_slots *w);
/* What was taken becomes free when that point has passed; 0: as soon as they are settled.
 */
void sl_pass_used(struct sl_pass_slots *w, sl_point used);
/* Everything that was enqueued and reads the slots has run: what was taken is free. */
void sl_pass_settle(struct sl_pass_slots *w);

static inline struct sl_span sl_pass_at(const struct sl_pass_slots *w,
                                        const struct sl_pass_slot *s) {
    return sl_buffer_pool_at(w->pool, &w->items, (uint32_t)(s - w->slots));
}

#endif
