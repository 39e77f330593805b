/* Several stages at work at once: a thread for each, and what passes through all of them in order.
 * It may be at two at once: at a stage that has passed it on, for the rest, and at the next.
 *
 * Steps and everything else that a stage must do between two steps (copies of pages, looks at its
 * experts) go the same way, so whatever is sent later finds every stage as the earlier left it.
 * With one stage there is no thread: what is sent has been done when send returns.
 *
 * A stage's thread owns its device, its reader and all that hangs on them. Between passages, while
 * nothing is under way, it reads experts in the background.
 *
 * Threads: all calls are the scheduler's but sl_pipeline_pass_on, a stage's thread's; open and
 * close also the engine's maker's, before and after that one runs. */
#ifndef SL_ENGINE_PIPELINE_H
#define SL_ENGINE_PIPELINE_H

#include "common/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_pipeline;
struct sl_stage;
struct sl_activity_sums;

/* First in what is sent. Borrowed from send until done. */
struct sl_passage {
    /* What is done at each stage, on its thread. If it passes this on, what it touches from then on
     * of what is sent must be no other stage's. */
    void (*at_stage)(struct sl_passage *p, struct sl_stage *stage);
    /* The pipeline's. */
    struct sl_pipeline *pipeline;
    struct sl_passage *next;
    uint32_t n_left; /* stages that have not done with it, under the pipeline's lock */
    atomic_bool under_way;
};

/* arrived: called on a stage's thread when a passage is done and after reading in the background.
 * Starts the threads; stages [n] are borrowed until close. SL_ERR_NOMEM: no memory, or no thread.
 */
enum sl_status sl_pipeline_open(struct sl_stage *stages, uint32_t n, void (*arrived)(void *ctx),
                                void *ctx, struct sl_pipeline **out_pipeline,
                                struct sl_err *err) SL_MUST_CHECK;
/* Waits for what is under way, then has every stage end its reading (sl_stage_quit) and joins. */
void sl_pipeline_close(struct sl_pipeline **p);

void sl_pipeline_send(struct sl_pipeline *p, struct sl_passage *passage);
/* From at_stage, once at most, where a stage follows: that one begins now, beside the rest of what
 * this one does. The passage is done when both are. */
void sl_pipeline_pass_on(struct sl_passage *passage, const struct sl_stage *stage);
bool sl_pipeline_done(struct sl_pipeline *p, const struct sl_passage *passage);
void sl_pipeline_wait(struct sl_pipeline *p, const struct sl_passage *passage);
/* Looks out for its end for a moment, where there are CPUs to spare: a step of one token takes less
 * than a millisecond on a fast device, and to be woken costs a good part of that. */
void sl_pipeline_look_out(struct sl_pipeline *p, const struct sl_passage *passage);
/* Adds what stages found while they read in the background, since the last call. */
void sl_pipeline_background(struct sl_pipeline *p, struct sl_activity_sums *inout_found);

#endif
