/* A micro-batch: a step on its way through the stages, with tables of its own, so that several may
 * be under way. To each stage it is a request; what a stage answers goes into the request to the
 * next.
 */
#ifndef SL_ENGINE_LANE_H
#define SL_ENGINE_LANE_H

#include "engine/stage/pipeline.h"
#include "engine/types/plan.h"

struct sl_session;

/* What of a step is whose. */
struct sl_micro_batch_share {
    struct sl_session *s; /* NULL: nobody's, or it has left */
    uint32_t first, rows; /* of the step */
    uint32_t pos;         /* of the first in its session */
    uint32_t drafts;      /* the last of these, whose tokens are drafted: each has logits too */
    uint32_t out;         /* its first row of the logits, UINT32_MAX = none */
};

struct sl_micro_batch {
    struct sl_pipeline_item item; /* first */
    struct sl_step step;          /* with its arrays and failed */
    struct sl_page_table pages;   /* changes that come with it */
    struct sl_page_table tails;   /* ... of tail pages; empty where there are none */
    struct sl_stage_call calls[SL_MAX_STAGES];
    _Atomic uint64_t
        ended_ns[SL_MAX_STAGES]; /* when each stage said that it had ended; 0: not yet */
    /* Set by sl_micro_batch_end: what has become of it. */
    enum sl_status status;
    struct sl_err err; /* also of the first row that failed */
    struct sl_logits logits;
    struct sl_activity_sums found;
    /* The scheduler's. */
    bool flying;
    uint64_t start_ns;
    uint64_t took_ns;                    /* from then on, or since the step before it ended */
    uint32_t n_elsewhere;                /* sessions that generate in other steps meanwhile */
    struct sl_micro_batch_share *shares; /* [parallel], by slot */
};

/* plan: the last stage's. */
enum sl_status sl_micro_batch_init(struct sl_micro_batch *l, uint32_t index,
                                   const struct sl_memory_plan *plan) SL_MUST_CHECK;
void sl_micro_batch_release(struct sl_micro_batch *l);
/* For the plan: all micro-batches and the page table that they take changes from, once for all
 * stages. */
uint64_t sl_micro_batches_bytes(const struct sl_memory_plan *plan);
/* Empties it for the next step. */
void sl_micro_batch_begin(struct sl_micro_batch *l);
/* When it has been through all n_stages: joins what they answered. */
void sl_micro_batch_end(struct sl_micro_batch *l, uint32_t n_stages);

#endif
