/* A stage in this process: a run of the model's layers, the device that computes them, and all that
 * hangs on it. What it hands to the next one is the rows' hidden states.
 *
 * Opened, joined, loaded and linked by the engine's maker; from then on one thread at a time uses
 * it, through its calls (stage.h), which it answers before send returns. */
#ifndef SL_ENGINE_STAGE_LOCAL_H
#define SL_ENGINE_STAGE_LOCAL_H

#include "engine/experts/expert_store.h"
#include "engine/tables/table_store.h"
#include "engine/forward/forward.h"
#include "engine/observe/activity.h"
#include "engine/stage/stage.h"
#include "engine/types/plan.h"

#include <stdatomic.h>

/* What a stage knows of the one before it, when both are of this process: found out when they are
 * joined and linked. What is behind the pointers is memory that the other's device writes. */
struct sl_stage_neighbour {
    struct sl_device *dev; /* NULL: its rows come with the requests */
    bool linked;
    bool copies;                        /* rows are taken from handed */
    struct sl_span sent[SL_MAX_STAGES]; /* [micro-batches] where it leaves them: a batch each */
    struct sl_signal *signal[SL_MAX_STAGES]; /* [micro-batches] NULL: its device raises none */
};

struct sl_stage_local {
    struct sl_stage base; /* first */
    uint32_t index, n_stages;
    const struct sl_model *model; /* a slice, where there are several */
    const struct sl_memory_plan *plan;
    struct sl_device *dev;
    struct sl_weights *weights;
    struct sl_store *store;             /* NULL: all experts are resident */
    struct sl_table_store *table_store; /* NULL: no table is streamed */
    struct sl_kv_data kv;
    struct sl_forward *forward;
    struct sl_timeline *timeline; /* NULL: no trace */
    struct sl_stage_neighbour before;
    bool reached; /* the ops of the one before write to its device's memory */
    /* [micro-batches] raised when a step's rows have been sent; NULL: the next stage's
     * device cannot wait for that by itself, so the step goes on when it has ended. */
    struct sl_signal *sent[SL_MAX_STAGES];
    /* [micro-batches] its device waits for them, where rows come after their steps; NULL: steps
     * come with their rows. */
    struct sl_signal *arrival[SL_MAX_STAGES];
    struct sl_stage_local *relay_by; /* its copies may go by way of that one's device; NULL: none */
    atomic_bool busy;                /* with a step: what it copies itself is not to be held up */
    struct sl_activity_source activity;
    struct sl_stage_metrics shown;    /* what it counts; the stage's thread's */
    uint32_t n_routed;                /* layers with routed experts */
    uint32_t n_kept;                  /* rows of the last step, if it kept all of them; else 0 */
    struct sl_stage_name before_name; /* whom it was joined to */
    /* Among the open stages of this process. */
    uint64_t number;
    struct sl_stage_local *next_open;
};

/* Configures the device and opens the expert store: what the store remembers of the files then
 * covers the loading too. p->dev is taken over; known is the store's. Close also a stage that
 * failed to open. */
enum sl_status sl_stage_local_open(struct sl_stage_local *s, uint32_t index, uint32_t n_stages,
                                   struct sl_stage_plan *p, const struct sl_store_heat *known,
                                   struct sl_timeline *timeline, struct sl_err *err) SL_MUST_CHECK;
/* Lets its copies of experts go by way of the other's device too, where the two have a fast link
 * between them: while that one has no step. Both copy experts: memory for it is planned on such
 * devices alone, and no op that waits for rows may fill them (sl_op_receive.alone). When all are
 * open; all end theirs before one leaves, and leave before any is closed. */
enum sl_status sl_stage_local_relay(struct sl_stage_local *s, struct sl_stage_local *by,
                                    struct sl_err *err) SL_MUST_CHECK;
void sl_stage_local_end_relay(struct sl_stage_local *s);
void sl_stage_local_leave_relay(struct sl_stage_local *s);
/* Loads the weights and binds them. by_host: the next stage does not read its device's memory.
 * routes: NULL, or who records what routers choose. */
enum sl_status sl_stage_local_load(struct sl_stage_local *s, bool by_host,
                                   struct sl_progress *progress, struct sl_route_recorder *routes,
                                   struct sl_err *err) SL_MUST_CHECK;
/* Has its device none of the other stages? */
bool sl_stage_local_is_alone(const struct sl_stage_local *stages, uint32_t n, uint32_t i);
void sl_stage_local_close(struct sl_stage_local *s);

static inline struct sl_fetch *sl_stage_fetch(const struct sl_stage_local *s) {
    return s->store ? sl_store_fetch(s->store) : NULL;
}
static inline bool sl_stage_is_last(const struct sl_stage_local *s) {
    return s->index + 1 == s->n_stages;
}
/* Has the text of a device's failure say which one's it is; passes the status on. */
enum sl_status sl_stage_local_blame(const struct sl_stage_local *s, enum sl_status status,
                                    struct sl_err *err);
/* stage_local_step.c: SL_STAGE_STEP. */
enum sl_status sl_stage_local_step(struct sl_stage_local *s, struct sl_stage_call *c) SL_MUST_CHECK;

/* stage_local_step.c: as in struct sl_stage_ops. */
void sl_stage_local_rows(struct sl_stage *stage, struct sl_stage_call *c, const float *rows);
float *sl_stage_local_place(struct sl_stage *stage, uint32_t micro_batch);

/* stage_local_step.c: rows of the draft layer, behind the stage's last step and before
 * anything else is asked of it. Of the only stage, on the thread that has it. SL_AGAIN: the drafts
 * are worth nothing. */
enum sl_status sl_stage_local_draft(struct sl_stage_local *s, const struct sl_draft_rows *rows,
                                    struct sl_logits *out_logits, uint32_t *out_failed,
                                    struct sl_err *err) SL_MUST_CHECK;

/* Do experts go from the host's slots to its device's, and may they go by way of others', as those'
 * by way of its? */
static inline bool sl_stage_relays(const struct sl_stage_local *s) {
    return s->store && s->plan->discrete && s->plan->relays;
}

#endif
