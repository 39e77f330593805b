/* The window: room on the device for experts that pass through it, each for one use. Part of the
 * tier (expert_tiers_internal.h), used by its thread.
 *
 * A slot goes round: free, taken by the group of calls that is being made, free again when its
 * calls have been enqueued. The next copy into it waits for those calls on the device, not here.
 * A slot may also hold an expert that was copied early, before its layer asked; it waits for that
 * layer, which takes it or, if it does not want it, frees it. */
#ifndef SL_ENGINE_EXPERT_WINDOW_H
#define SL_ENGINE_EXPERT_WINDOW_H

#include "backends/buffer_pool.h"
#include "expert_cache/expert_cache.h"

enum sl_window_state { SL_WINDOW_FREE, SL_WINDOW_TAKEN, SL_WINDOW_EARLY };

struct sl_window_slot {
    enum sl_window_state state;
    struct sl_expert_id id; /* EARLY: what is in it or on its way */
    struct sl_lease host;   /* EARLY: of the slot that it is copied from */
    sl_point up;            /* EARLY: of the copy */
    bool prediction;        /* EARLY: named by an early router */
    sl_point used;          /* FREE: its last use on OPS; 0: has run */
};

struct sl_window {
    const struct sl_buffer_pool *pool; /* NULL: there is none */
    struct sl_buffer_items items;      /* [n] */
    struct sl_window_slot *slots;      /* [n] */
    uint32_t n, n_early, next;         /* next: where the search for a free slot begins */
};

/* The slot that holds this expert early; NULL: none. */
struct sl_window_slot *sl_window_find(struct sl_window *w, struct sl_expert_id id);
/* A free slot; NULL: none. The caller orders its copy behind the slot's use and sets the state. */
struct sl_window_slot *sl_window_room(struct sl_window *w);
/* What was taken is free again when that point has passed; 0: as soon as the window is begun. */
void sl_window_used(struct sl_window *w, sl_point used);
/* Everything that was enqueued and reads the window has run: what was taken is free. */
void sl_window_settle(struct sl_window *w);

static inline struct sl_span sl_window_at(const struct sl_window *w,
                                          const struct sl_window_slot *s) {
    return sl_buffer_pool_at(w->pool, &w->items, (uint32_t)(s - w->slots));
}

#endif
