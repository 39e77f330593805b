/* Several stages that work at once, each called by a thread of its own. Items pass through all of
 * them in order. An item may be at two stages at once: at one that has passed it on and still ends
 * its part, and at the next.
 *
 * Steps and everything else that a stage is asked for between two steps (copies of pages, its
 * experts, its heat) go the same way, so whatever is sent later finds every stage as the earlier
 * left it. With one stage there is no thread: what is sent has been answered when send returns.
 *
 * Waking a thread takes as long as a hand-over between machines does, so a brief step is not given
 * to one where it need not be: whoever ends a stage's part of it sends it on to a stage that only
 * takes it over (sl_stage_ops.posts), and if it has the pipeline to itself, its sender computes the
 * first stage's part, if that stage may be asked from there. Both only while the stage's thread has
 * nothing to do, so that the order remains.
 *
 * A stage of this process does its work on that thread, which owns its device, its reader and all
 * that depends on them. While nothing is under way the thread has it read experts in the
 * background.
 *
 * Threads: any may call sl_pipeline_cancel and nudge; the rest is for the scheduler's, open and
 * close also for the thread that creates and destroys the engine, while the scheduler does not run.
 */
#ifndef SL_ENGINE_PIPELINE_H
#define SL_ENGINE_PIPELINE_H

#include "engine/stage/stage.h"

struct sl_pipeline;

/* First in what is sent. Borrowed from send until done. */
struct sl_pipeline_item {
    /* Fills ask and the arrays of the stage's call, from what the stages before it have answered.
     * False: nothing is asked. On the stage's thread, unless stated otherwise, as what follows. */
    bool (*ask)(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c);
    /* The same before the previous stage has answered: the call goes ahead of its rows
     * (SL_SENT_LATER). False, or NULL: it must not. On the previous stage's thread, under a lock.
     */
    bool (*ask_ahead)(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c);
    /* Then, once the previous stage has answered: the rows, NULL if there are none. */
    const float *(*rows)(struct sl_pipeline_item *p, uint32_t stage);
    /* The stage has answered; shown: its metrics. NULL: not called. */
    void (*answered)(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_metrics *shown);
    struct sl_stage_call *calls; /* [n_stages] */
    bool may_be_canceled;        /* also by the engine's end */
    bool is_brief;               /* all its calls are SL_STAGE_STEP, of few generated rows */
    /* The pipeline's. */
    struct sl_pipeline *pipeline;
    struct sl_pipeline_item *next;
    /* Under the pipeline's lock. */
    uint32_t n_left;              /* stages that are not done with it */
    uint64_t number;              /* counts items in the order in which they were sent */
    uint8_t ahead[SL_MAX_STAGES]; /* enum ahead, of each stage */
    atomic_bool under_way, canceled;
};

/* Who has the pipeline. */
struct sl_pipeline_hooks {
    /* On a stage's thread, when an item is done and after reading in the background. */
    void (*arrived)(void *ctx);
    /* On the scheduler's, where that runs the only stage, or the first one's part of a brief step:
     * between layers, and while it waits for the disk. */
    void (*meanwhile)(void *ctx);
    /* Any thread. The engine is about to end: items that may be canceled are. */
    bool (*stopping)(void *ctx);
    void *ctx;
};

/* Starts the threads. stages [n] and shown [n], their metrics, are borrowed until close; any thread
 * may read the metrics. looks_out: there are CPUs to spare (sl_cpus_spare). SL_ERR_NOMEM: no
 * memory, or no thread. */
enum sl_status sl_pipeline_open(struct sl_stage *const *stages, uint32_t n, bool looks_out,
                                const struct sl_pipeline_hooks *hooks, struct sl_timeline *timeline,
                                struct sl_stage_metrics *shown, struct sl_pipeline **out_pipeline,
                                struct sl_err *err) SL_MUST_CHECK;
/* Waits for what is under way, then has every stage end its reading (SL_STAGE_QUIT) and joins. */
void sl_pipeline_close(struct sl_pipeline **p);

/* What each stage says of itself, asked when it was opened. */
const struct sl_stage_hello *sl_pipeline_hello(const struct sl_pipeline *p, uint32_t stage);

void sl_pipeline_send(struct sl_pipeline *p, struct sl_pipeline_item *item);
/* Has the stages give up their parts of it. It still counts as under way until they have answered.
 */
void sl_pipeline_cancel(struct sl_pipeline *p, struct sl_pipeline_item *item);
bool sl_pipeline_done(struct sl_pipeline *p, const struct sl_pipeline_item *item);
void sl_pipeline_wait(struct sl_pipeline *p, const struct sl_pipeline_item *item);
/* As sl_stage_ops.attend, of the stage at which the item is, if it can be: for who would wait for
 * it and for other things, which nudge. False: it cannot be. */
bool sl_pipeline_attend(struct sl_pipeline *p, const struct sl_pipeline_item *item,
                        uint64_t until_ns);
/* Whoever attends, or is about to, returns. Any thread. */
void sl_pipeline_nudge(struct sl_pipeline *p);
/* Spins for a moment until it is done, where there are CPUs to spare: a step of one token takes
 * less than a millisecond on a fast device, and waking up takes a good part of that. */
void sl_pipeline_look_out(struct sl_pipeline *p, const struct sl_pipeline_item *item);
/* Adds what stages found while they read in the background, since the last call. */
void sl_pipeline_background(struct sl_pipeline *p, struct sl_activity_sums *inout_found);

/* Where the scheduler's thread calls the only stage: whether there is something to read in the
 * background; and reads it, for at most that long. */
bool sl_pipeline_may_idle(const struct sl_pipeline *p);
void sl_pipeline_idle(struct sl_pipeline *p, uint64_t most_ns);
/* Whether the only stage has heat that is not in its file; and saves it. Several stages have a
 * joint heat file. */
bool sl_pipeline_heat_unsaved(const struct sl_pipeline *p);
void sl_pipeline_save_heat(struct sl_pipeline *p);

#endif
