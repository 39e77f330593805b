/* Inside the tier of the device: expert_tiers.c has its slots and copies, expert_tiers_layer.c what
 * one layer of one step does with them, expert_tiers_ahead.c what is copied before its layer asks,
 * pass_through.c the pass-through slots. */
#ifndef SL_ENGINE_EXPERT_TIERS_INTERNAL_H
#define SL_ENGINE_EXPERT_TIERS_INTERNAL_H

#include "engine/experts/expert_fetch_internal.h"
#include "engine/experts/expert_slots.h"
#include "engine/experts/expert_tiers.h"
#include "engine/experts/pass_through.h"
#include "engine/lane/cpu_lane.h"

#define SL_TIERS_NO_SLOT UINT32_MAX

/* A fill of a device slot that has been decided and not yet begun, of the bytes at src. */
struct sl_tiers_move {
    struct sl_fill fill;
    struct sl_span src; /* a slot */
    bool link;          /* src is in the host's memory */
};

/* An expert that the group computes from a pass-through slot. */
struct sl_tiers_once {
    struct sl_pass_slot *slot;
    struct sl_expert_id id;
    bool copy;          /* from the host's slot; else it was copied early, or is moved from there */
    bool early;         /* the slot's lease of the host is still to be kept */
    uint32_t host_slot; /* copy: which */
};

/* What one call of the op computes. */
enum { SL_TIERS_THERE, SL_TIERS_COPIED, SL_TIERS_LAST, SL_TIERS_PIECES };
struct sl_tiers_piece {
    uint32_t first, n_pairs, n_experts;
    sl_point up; /* 0: waits for no copy */
};

/* Does predicting what the next layer needs pay? Of the copies that predictions began, how many
 * served.
 */
struct sl_tiers_judge {
    uint32_t tried, used;
    uint32_t rest; /* layers for which nothing is predicted */
};

/* A lease that the device may still be using. */
struct sl_tiers_kept {
    struct sl_lease lease;
    bool host;
    enum sl_queue queue;
    sl_point point; /* 0: none was marked; past when the next router has been read back */
};

struct sl_tiers {
    struct sl_device *dev;
    const struct sl_expert_layout *layout;
    struct sl_heat *heat;
    struct sl_cache *host;
    struct sl_cache *cache;     /* NULL: integrated */
    struct sl_slot_spans slots; /* on the device */
    struct sl_slot_spans hosts; /* the host's: integrated devices read experts there */
    uint32_t *at;               /* [n_layer, n_expert] device slot, or SL_TIERS_NO_SLOT */
    uint32_t n_on, n_all, version;
    uint32_t warm_cursor;

    struct sl_tiers_kept *kept; /* a ring */
    uint32_t kept_head, n_kept, kept_cap;
    struct sl_lease *going_down; /* [n_expert] fills of host slots by copies down */
    uint32_t n_going_down;
    bool up_open; /* copies up of this layer whose slots are not leased */
    sl_point up_point;

    struct sl_held *hits; /* [n_expert] leased on the device, not yet computed */
    uint32_t n_hits;
    struct sl_pass_slots pass;
    struct sl_tiers_judge judge;
    uint32_t n_layer_copies;     /* that the layer which runs has begun */
    struct sl_tiers_move *moves; /* [n_expert] of the group that runs */
    uint32_t n_moves, n_moved;   /* decided; of them begun */
    struct sl_tiers_once *once;  /* [pass.n] of the group that runs */
    uint32_t n_once;
    struct sl_held *group; /* [n_expert] copied up by the group that runs */
    uint32_t n_group;
    struct sl_tiers_piece piece[SL_TIERS_PIECES];
    /* What calls of the op read: refs [n_expert], then lists of pairs [max_rows * k]; here, and in
     * the device's memory. */
    void *args;
    struct sl_buffer *dev_args;
    struct sl_lane *lane; /* NULL: none */
    uint32_t n_lane_held; /* experts that the last layer needed from the host */
    uint32_t rises_due;   /* layers since the lane left one to the link that should rise */
    struct sl_tiers_stats stats;
};

/* Where the lists of pairs begin. */
static inline uint32_t *sl_tiers_arg_pairs(const struct sl_tiers *t, void *args) {
    return (uint32_t *)((char *)args + t->layout->n_expert * sizeof(struct sl_expert_ref));
}

static inline uint32_t *sl_tiers_at(const struct sl_tiers *t, struct sl_expert_id id) {
    return &t->at[(size_t)id.layer * t->layout->n_expert + id.expert];
}

static inline struct sl_expert_ref sl_tiers_ref(const struct sl_tiers *t, struct sl_expert_id id,
                                                struct sl_span span) {
    const char *slot = sl_span_addr(span);
    return (struct sl_expert_ref){
        .gate = slot + sl_expert_layout_place(t->layout, id.layer, id.expert, 0),
        .up = slot + sl_expert_layout_place(t->layout, id.layer, id.expert, 1),
        .down = slot + sl_expert_layout_place(t->layout, id.layer, id.expert, 2),
    };
}

static inline struct sl_span sl_tiers_slot(const struct sl_tiers *t, uint32_t slot) {
    return sl_slot_span(&t->slots, slot);
}
static inline struct sl_span sl_tiers_host_slot(const struct sl_tiers *t, uint32_t slot) {
    return sl_slot_span(&t->hosts, slot);
}

/* Gives back what is kept: all has run. */
void sl_tiers_settle(struct sl_tiers *t, uint64_t now_ns);
/* Gives back the oldest leases, as far as their points have passed. */
enum sl_status sl_tiers_settle_passed(struct sl_tiers *t) SL_MUST_CHECK;
/* Keeps a lease until that point of the queue, 0: until the next router has been read back. */
enum sl_status sl_tiers_keep(struct sl_tiers *t, struct sl_lease lease, bool host,
                             enum sl_queue queue, sl_point point) SL_MUST_CHECK;
/* Copies an expert to the device slot of a fill that has been started, and what is in that slot
 * down first, if it is worth a slot there. The slot counts as filled: ops see it
 * that run after a later point of SL_QUEUE_UP. */
enum sl_status sl_tiers_copy_up(struct sl_fetch *f, const struct sl_tiers_move *move) SL_MUST_CHECK;
/* Copies the payload of an expert in the host's slot to a pass-through slot. */
enum sl_status sl_tiers_copy_once(struct sl_fetch *f, struct sl_expert_id id, uint32_t host_slot,
                                  struct sl_pass_slot *to) SL_MUST_CHECK;
/* The expert's device slot now holds another one. */
void sl_tiers_leave(struct sl_tiers *t, struct sl_expert_id id);
/* Pins what is there and ready. */
struct sl_lease sl_tiers_pin(struct sl_cache *c, struct sl_expert_id id, uint64_t now_ns);
/* A layer begins: what was copied early and is not wanted frees its slot. */
void sl_tiers_ahead_begin(struct sl_fetch *f);
/* All has run: nothing is early any more. */
void sl_tiers_ahead_forget(struct sl_tiers *t);

#endif
