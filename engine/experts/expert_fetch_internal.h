/* Inside of fetching: shared by expert_fetch*.c, expert_pace.c, expert_ahead.c, expert_predict.c,
 * expert_probe.c, expert_prompt.c, expert_seen.c and expert_tiers*.c. */
#ifndef SL_ENGINE_EXPERT_FETCH_INTERNAL_H
#define SL_ENGINE_EXPERT_FETCH_INTERNAL_H

#include "backends/ops/moe.h"
#include "engine/predict/disk_demand.h"
#include "engine/experts/expert_fetch.h"
#include "engine/experts/expert_tiers.h"
#include "engine/experts/layer_run.h"
#include "engine/predict/prediction_score.h"
#include "engine/predict/prefetch_trial.h"
#include "engine/predict/prompt_shares.h"
#include "engine/reads/read_depth.h"
#include "engine/reads/read_pace.h"
#include "engine/reads/read_plan.h"
#include "engine/reads/slot_reads.h"

/* What computing some experts must take to be worth a wait, and so a system call, of its own. */
#define SL_FETCH_SPLIT_NS 30000
/* How often a wait checks whether the step was canceled. */
#define SL_FETCH_LOOK_NS 50000000

/* What is being read ahead: experts of one layer, in the order in which they are read. */
struct sl_ahead {
    uint32_t layer; /* SL_NO_ROUTED_LAYER: nothing */
    uint32_t n, cursor;
    uint32_t n_sure; /* for prompt rows: the first of them, as good as sure */
    bool prediction; /* by a router that was run early, not for prompt rows */
    enum sl_read_priority priority;
    uint32_t budget;          /* reads that may still be started */
    struct sl_expert_id *ids; /* [n_expert] surest first */
    struct sl_lease *started; /* [n_expert] the fill that was started for it; no slot: none was */
};

struct sl_prediction_read {
    struct sl_expert_id id;
    struct sl_lease fill;
};

/* Reading what early routers chose for the next layers: expert_predict.c. */
struct sl_predictions {
    struct sl_prediction_score score;
    struct sl_read_plan plan;
    struct sl_disk_demand demand;
    struct sl_prediction_read *started; /* for layers that have not begun */
    uint32_t n_started;
    void *memory; /* of all of it */
};

struct sl_fetch {
    const struct sl_expert_layout *layout;
    const struct sl_slots *slots;
    struct sl_reader *reader;
    uint64_t (*now_ns)(void *clock);
    void *clock;
    bool no_lookahead, quitting;

    struct sl_heat *heat;
    struct sl_cache *cache;
    struct sl_tiers *tiers; /* NULL: the host's slots are what the device computes from */
    struct sl_slot_reads reads;
    struct sl_timeline *timeline;       /* NULL: no trace */
    struct sl_fetch_stats traced_stats; /* when they were drawn last */

    struct sl_layer_run run;
    uint64_t last_expert_ns; /* what each expert of the last call took to compute */
    struct sl_read_pace pace;

    /* Room for calls. */
    struct sl_lease *leases;    /* [n_expert] */
    struct sl_fill *new_fills;  /* [n_expert] */
    struct sl_expert_ref *refs; /* [n_expert] */
    uint16_t *route_ids;        /* [max_rows * k] */

    struct sl_ahead ahead;
    struct sl_prompt_shares shares; /* of the plan for prompt rows */
    struct sl_read_depth depth;     /* of what is likely in it */
    struct sl_prefetch_trial trial;
    struct sl_predictions predictions;
    struct sl_expert_id *warm; /* [most_warm] hottest first */
    uint32_t most_warm;        /* slots of all tiers */
    uint32_t n_warm, warm_cursor;

    struct sl_fetch_stats stats;
};

static inline uint64_t sl_fetch_now(const struct sl_fetch *f) {
    return f->now_ns(f->clock);
}

/* Is this a layer of a few generated rows and nothing else? For such layers routers are run early
 * and reads are paced; more rows touch so many experts that system calls are few anyway. */
static inline bool sl_fetch_may_predict(const struct sl_fetch *f) {
    return f->run.rows.n && f->run.rows.n == f->run.rows.n_decode &&
           f->run.rows.n <= SL_FETCH_AHEAD_ROWS;
}

/* expert_seen.c: what a wait that begins now is for, and its end. */
enum sl_stall_cause sl_fetch_stall_cause(const struct sl_fetch *f);
void sl_fetch_stalled(struct sl_fetch *f, enum sl_stall_cause cause, uint64_t start_ns);
/* expert_seen.c: the trace; not called without one. */
void sl_fetch_trace_call(struct sl_fetch *f, uint64_t start_ns, uint32_t n_experts,
                         uint32_t n_pairs);
void sl_fetch_trace_lane(struct sl_fetch *f, uint64_t start_ns, uint32_t n_experts,
                         uint32_t n_pairs);
void sl_fetch_trace_layer(struct sl_fetch *f);

/* expert_pace.c. May the reads that are about to be started wait for the layer's first wait? */
bool sl_fetch_may_hold(const struct sl_fetch *f);
/* The layer's reads are queued but held back. Decides whether they stay so. */
void sl_fetch_pace_begin(struct sl_fetch *f, bool held);
/* Run begins. */
void sl_fetch_pace_run(struct sl_fetch *f, const struct sl_device *dev);
/* The first wait of a layer that holds its reads, while its hits are computed. */
void sl_fetch_pace_overlap(struct sl_fetch *f);
/* n experts were computed in ns. */
void sl_fetch_pace_computed(struct sl_fetch *f, uint64_t ns, uint32_t n);
/* Waits for some of the layer's reads, and submits what is held back. False: it has not waited,
 * since this kind of layer is not its business. */
bool sl_fetch_pace_wait(struct sl_fetch *f);
/* Experts of the layer that keep the disk's queue full in this step. */
uint32_t sl_fetch_queue_experts(const struct sl_fetch *f, uint32_t routed_layer);
/* Experts of that layer that the drive can read while a layer is computed. */
uint32_t sl_fetch_pace_ahead(const struct sl_fetch *f, uint32_t routed_layer);
/* A layer begins: notes how long the one before has computed. */
void sl_fetch_pace_layer(struct sl_fetch *f);

/* expert_ahead.c */
void sl_fetch_ahead_init(struct sl_fetch *f);
/* The layer has begun: judges what was read ahead for it, and plans the next for prompt rows. */
void sl_fetch_ahead_begin(struct sl_fetch *f);
/* Something was read for a token: looking ahead may pay. */
void sl_fetch_not_quiet(struct sl_fetch *f);
/* All calls of a layer have been made, on a device with a tier: copies what the next layer of
 * prompt rows will probably need. */
void sl_fetch_ahead_copy(struct sl_fetch *f);
/* Starts reads ahead and warm-up reads as far as the queue has room for them. */
void sl_fetch_pump(struct sl_fetch *f);

/* expert_prompt.c */
/* Plans what the next layer's prompt rows will choose. */
void sl_fetch_prompt_plan(struct sl_fetch *f);
/* A layer has begun while f->ahead is a plan for prompt rows, of this layer if they have come so
 * far: learns from what they chose, gives up what they did not. */
void sl_fetch_prompt_begin(struct sl_fetch *f);
/* The plan's layer will not come: drops the whole plan. */
void sl_fetch_prompt_drop(struct sl_fetch *f);
/* Reads of the plan that may be started now. */
uint32_t sl_fetch_prompt_room(struct sl_fetch *f);

/* expert_predict.c */
bool sl_fetch_prediction_create(struct sl_fetch *f);
void sl_fetch_prediction_destroy(struct sl_fetch *f);
size_t sl_fetch_prediction_bytes(uint32_t k);
/* The layer has begun: which predictions of it were right? Gives up what nobody wants. */
void sl_fetch_prediction_begin(struct sl_fetch *f);
void sl_fetch_prediction_forget(struct sl_fetch *f);
/* Notes what prediction number which says of that layer, and plans to read what of it is in no slot
 * and trusted enough. */
void sl_fetch_prediction_plan(struct sl_fetch *f, uint32_t which, uint32_t routed_layer,
                              const uint32_t *ids, uint32_t n);
/* Starts reads of what is planned, a few at a time. */
void sl_fetch_prediction_pump(struct sl_fetch *f);

#endif
