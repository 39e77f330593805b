/* A stage: a run of the model's layers, the device that computes them, and all that hangs on it.
 *
 * One model has one stage or several, a device each; what a stage hands to the next is the rows'
 * hidden states. Owned by one thread: the scheduler's, or with several stages one of its own
 * (pipeline.h). */
#ifndef SL_ENGINE_STAGE_H
#define SL_ENGINE_STAGE_H

#include "engine/observe/activity.h"
#include "engine/observe/expert_map.h"
#include "engine/experts/expert_store.h"
#include "engine/forward/forward.h"
#include "engine/stage/pipeline.h"
#include "engine/types/plan.h"

#include <stdatomic.h>

struct sl_session;

struct sl_stage {
    uint32_t index, n_stages;
    const struct sl_model *model; /* a slice, where there are several */
    const struct sl_memory_plan *plan;
    struct sl_device *dev;
    struct sl_weights *weights;
    struct sl_store *store; /* NULL: all experts are resident */
    struct sl_kv_data kv;
    struct sl_forward *forward;
    struct sl_timeline *timeline; /* NULL: no trace */
    struct sl_stage *before;      /* NULL: the first */
    bool reads_peer;              /* the device can copy from the memory of the one before */
    bool reached;                 /* and that one's ops write to its memory */
    /* [lanes] raised when a step's rows have been handed over; NULL: the next stage's device cannot
     * wait for that by itself, so the step goes on when it has ended. */
    struct sl_signal *handed[SL_MAX_STAGES];
    struct sl_stage *relay_by; /* its copies may go by way of that one's device; NULL: none */
    atomic_bool busy;          /* with a step: what it copies itself is not to be held up */
    struct sl_activity_source activity;
    struct sl_stage_metrics shown; /* counted by the stage's thread, read by any */
    struct sl_expert_map *map;     /* of all stages; set before the first step */
    struct sl_expert_map_part part;
};

/* Configures the device and opens the expert store: what the store remembers of the files then
 * covers the loading too. p->dev is taken over; known is the store's. Close also a stage that
 * failed to open. */
enum sl_status sl_stage_open(struct sl_stage *s, uint32_t index, uint32_t n_stages,
                             struct sl_stage_plan *p, const struct sl_store_heat *known,
                             struct sl_timeline *timeline, struct sl_err *err) SL_MUST_CHECK;
/* Joins it to the stage before it, when both are open and before either is loaded. */
enum sl_status sl_stage_join(struct sl_stage *s, struct sl_stage *before,
                             struct sl_err *err) SL_MUST_CHECK;
/* Lets its copies of experts go by way of the other's device too, where the two have a fast link
 * between them: while that one has no step. Both copy experts: memory for it is planned on such
 * devices alone, and no op that waits for rows may fill them (sl_op_take.alone). When all are open;
 * all end theirs before one leaves, and leave before any is closed. */
enum sl_status sl_stage_relay(struct sl_stage *s, struct sl_stage *by,
                              struct sl_err *err) SL_MUST_CHECK;
void sl_stage_end_relay(struct sl_stage *s);
void sl_stage_leave_relay(struct sl_stage *s);
/* Loads the weights and binds them. by_host: the next stage cannot copy from its device. routes:
 * NULL, or who records what routers choose. */
enum sl_status sl_stage_load(struct sl_stage *s, bool by_host, struct sl_progress *progress,
                             struct sl_route_recorder *routes, struct sl_err *err) SL_MUST_CHECK;
/* Has them hand rows on by ops where they can, when all are loaded. */
void sl_stages_link(struct sl_stage *stages, uint32_t n);
/* Ends all reading and saves the heat, on the stage's thread: no step follows. */
void sl_stage_quit(struct sl_stage *s);
void sl_stage_close(struct sl_stage *s);

static inline struct sl_fetch *sl_stage_fetch(const struct sl_stage *s) {
    return s->store ? sl_store_fetch(s->store) : NULL;
}
/* Do experts go from the host's slots to its device's, and may they go by way of others', as those'
 * by way of its? */
static inline bool sl_stage_relays(const struct sl_stage *s) {
    return s->store && s->plan->apart && s->plan->relays;
}
static inline bool sl_stage_is_last(const struct sl_stage *s) {
    return s->index + 1 == s->n_stages;
}

/* Has the text of a device's failure say which one's it is; passes the status on. */
enum sl_status sl_stage_blame(const struct sl_stage *s, enum sl_status st, struct sl_err *err);

/* Reads experts in the background, for so long at most. */
void sl_stage_idle(struct sl_stage *s, int64_t timeout_ns, struct sl_activity_sums *inout_found);
/* How fast the disk gives experts to the stage's slots: sl_fetch_disk_speed, and its errors.
 * SL_ERR_UNSUPPORTED: all of them are resident, too. */
enum sl_status sl_stage_disk_speed(struct sl_stage *s, double seconds,
                                   const struct sl_fetch_abort *give_up, double *out_bytes_per_s,
                                   struct sl_activity_sums *inout_found,
                                   struct sl_err *err) SL_MUST_CHECK;
/* Shows where the experts are to those who have asked since the last time. */
void sl_stage_show_experts(struct sl_stage *s);

/* ---- steps ---- */

/* What of a step is whose. */
struct sl_lane_share {
    struct sl_session *s; /* NULL: nobody's, or it has left */
    uint32_t first, rows; /* of the step */
    uint32_t out;         /* its row of the logits, UINT32_MAX = none */
};

/* Gives a step up when the scheduler says so, from any thread. */
struct sl_lane_abort {
    struct sl_abort base;
    atomic_bool unwanted;
};

/* What a stage finds of a step that has gone on already. */
struct sl_lane_rest {
    enum sl_status status;
    struct sl_err err;
    struct sl_activity_sums found;
    _Atomic uint64_t ended_ns; /* read by the next stage, which may be later or earlier */
};

/* A step on its way through the stages, with tables of its own. */
struct sl_lane {
    struct sl_passage passage;  /* first */
    struct sl_step step;        /* with its tables and failed */
    struct sl_page_table pages; /* changes that come with it */
    const struct sl_abort *abort;
    /* Set on the way. */
    enum sl_status status;
    struct sl_err err; /* also of the first row that failed */
    struct sl_logits logits;
    struct sl_activity_sums found;
    bool follows; /* the stage before has not ended yet: its signal says when */
    struct sl_lane_rest rest[SL_MAX_STAGES];
    /* The scheduler's. */
    bool flying;
    struct sl_lane_abort give_up;
    uint64_t start_ns;
    uint32_t n_beside;            /* sessions that generate in other steps meanwhile */
    struct sl_lane_share *shares; /* [parallel], by slot */
};

/* plan: the last stage's. */
enum sl_status sl_lane_init(struct sl_lane *l, uint32_t index,
                            const struct sl_memory_plan *plan) SL_MUST_CHECK;
void sl_lane_release(struct sl_lane *l);
/* For the plan: all lanes and the page table that they take changes from, once for all stages. */
uint64_t sl_lanes_bytes(const struct sl_memory_plan *plan);
/* Empties it for the next step. */
void sl_lane_begin(struct sl_lane *l);
/* When it has been through all stages: adds to status, err and found what they found later. */
void sl_lane_end(struct sl_lane *l);

#endif
