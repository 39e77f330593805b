/* Several stages at work at once: a thread for each, which speaks with it, and what passes through
 * all of them in order. It may be at two at once: at a stage that has passed it on, for the rest,
 * and at the next.
 *
 * Steps and everything else that a stage is asked for between two steps (copies of pages, its
 * experts, its heat) go the same way, so whatever is sent later finds every stage as the earlier
 * left it. With one stage there is no thread: what is sent has been answered when send returns.
 *
 * A stage of this process does its work on that thread, which owns its device, its reader and all
 * that hangs on them. While nothing is under way the thread has it read experts in the background.
 *
 * Threads: all calls are the scheduler's but sl_pipeline_cancel, which is any's; open and close
 * also the engine's maker's, before and after that one runs. */
#ifndef SL_ENGINE_PIPELINE_H
#define SL_ENGINE_PIPELINE_H

#include "engine/stage/stage.h"

struct sl_pipeline;

/* First in what is sent. Borrowed from send until done. */
struct sl_pipeline_item {
    /* What the stage is asked, by what those before it have answered: fills ask and the arrays of
     * its call. False: nothing. On the stage's thread, as what follows. */
    bool (*ask)(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c);
    /* The stage has answered; shown is what is known of it. NULL: nothing is to be done. */
    void (*answered)(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_metrics *shown);
    struct sl_stage_call *calls; /* [n_stages] */
    bool may_be_canceled;        /* also by the engine's end */
    /* The pipeline's. */
    struct sl_pipeline *pipeline;
    struct sl_pipeline_item *next;
    uint32_t n_left; /* stages that have not done with it, under the pipeline's lock */
    atomic_bool under_way, canceled;
};

/* Who has the pipeline. */
struct sl_pipeline_hooks {
    /* On a stage's thread, when an item is done and after reading in the background. */
    void (*arrived)(void *ctx);
    /* On the scheduler's, where that runs the only stage: between layers, and while it waits for
     * the disk. */
    void (*meanwhile)(void *ctx);
    /* Any thread: the engine is about to end, and what may be canceled is. */
    bool (*stopping)(void *ctx);
    void *ctx;
};

/* Starts the threads; the stages [n] are borrowed until close, and so is what is shown of each,
 * which any thread may read. SL_ERR_NOMEM: no memory, or no thread. */
enum sl_status sl_pipeline_open(struct sl_stage *const *stages, uint32_t n,
                                const struct sl_pipeline_hooks *hooks, struct sl_timeline *timeline,
                                struct sl_stage_metrics *shown, struct sl_pipeline **out_pipeline,
                                struct sl_err *err) SL_MUST_CHECK;
/* Waits for what is under way, then has every stage end its reading (SL_STAGE_QUIT) and joins. */
void sl_pipeline_close(struct sl_pipeline **p);

/* What each stage says of itself, asked when it was opened. */
const struct sl_stage_hello *sl_pipeline_hello(const struct sl_pipeline *p, uint32_t stage);

void sl_pipeline_send(struct sl_pipeline *p, struct sl_pipeline_item *item);
/* Has the stages give up what is under way of it. It is done all the same when they have answered.
 */
void sl_pipeline_cancel(struct sl_pipeline *p, struct sl_pipeline_item *item);
bool sl_pipeline_done(struct sl_pipeline *p, const struct sl_pipeline_item *item);
void sl_pipeline_wait(struct sl_pipeline *p, const struct sl_pipeline_item *item);
/* Looks out for its end for a moment, where there are CPUs to spare: a step of one token takes less
 * than a millisecond on a fast device, and to be woken costs a good part of that. */
void sl_pipeline_look_out(struct sl_pipeline *p, const struct sl_pipeline_item *item);
/* Adds what stages found while they read in the background, since the last call. */
void sl_pipeline_background(struct sl_pipeline *p, struct sl_activity_sums *inout_found);

/* Where the scheduler's thread is the only stage's: is there something to read in the background?
 * Reads, for so long at most. */
bool sl_pipeline_may_idle(const struct sl_pipeline *p);
void sl_pipeline_idle(struct sl_pipeline *p, uint64_t most_ns);
/* Has the only stage heat that is not in its file? Has it saved. Of several the heat is joint. */
bool sl_pipeline_heat_unsaved(const struct sl_pipeline *p);
void sl_pipeline_save_heat(struct sl_pipeline *p);

#endif
