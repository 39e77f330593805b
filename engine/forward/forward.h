/* The layer loop: one step of rows through the layers of a model, or of a slice of one, on one
 * device.
 *
 * Each layer is run by its kinds (layer_kind.h), as its spec says; no architecture has a name here.
 * A slice without the first layer begins with the rows' hidden states, which the one before it
 * sends. Used by one thread, the device's owner. */
#ifndef SL_ENGINE_FORWARD_H
#define SL_ENGINE_FORWARD_H

#include "engine/experts/expert_fetch.h"
#include "engine/kv/kv.h"
#include "engine/pass/pass.h"
#include "engine/types/plan.h"
#include "engine/step/step.h"
#include "engine/tables/table_store.h"
#include "engine/trace/timeline.h"
#include "engine/sample/vocab_pass.h"
#include "engine/weights/weights.h"

struct sl_forward;

struct sl_route_recorder;

/* All are borrowed until destroy. */
struct sl_forward_config {
    const struct sl_model *model;
    const struct sl_memory_plan *plan;
    struct sl_device *dev;
    const struct sl_weights *weights;
    const struct sl_kv_data *kv;
    struct sl_fetch
        *fetch; /* where the routed experts come from; NULL: they are among the weights */
    struct sl_table_store *table_store; /* NULL: no table is streamed */
    struct sl_timeline *timeline;       /* NULL: no trace */
    struct sl_route_recorder *routes;   /* NULL: they are not recorded */
    bool send_by_host;                  /* a slice sends its rows by way of host memory */
};

/* Binds the weights and allocates the activations that the plan counted. Refuses, by name, a tensor
 * of a type that the device lacks. */
enum sl_status sl_forward_create(const struct sl_forward_config *config,
                                 struct sl_forward **out_forward, struct sl_err *err) SL_MUST_CHECK;
void sl_forward_destroy(struct sl_forward **f);

/* Takes the changes of both page tables over, for the steps from now on. After a failure they are
 * still to be written: the next call does that too, and until then no step may run. */
enum sl_status sl_forward_set_pages(struct sl_forward *f, const struct sl_page_table *pages,
                                    const struct sl_page_table *tails) SL_MUST_CHECK;
/* Where a slice without the first layer takes hidden states [n_rows, n_embd] from, in the device's
 * memory. */
struct sl_span sl_forward_x(const struct sl_forward *f, uint32_t n_rows);
/* Where the host may put those of a step, [n_rows, n_embd], that come from another process, for
 * copy_in; NULL: nowhere. They are read until the step has been finished. */
float *sl_forward_come_host(const struct sl_forward *f, uint32_t micro_batch);
enum sl_status sl_forward_copy_in(struct sl_forward *f, uint32_t micro_batch,
                                  uint32_t n_rows) SL_MUST_CHECK;
/* Where a slice without the last layer puts those of a step, until the next in that micro-batch: in
 * the host's memory, for who waits until the run is finished; or, where this is NULL, in the
 * device's, for who waits until what start has enqueued there has run. */
const float *sl_forward_sent_host(const struct sl_forward *f, uint32_t micro_batch);
struct sl_span sl_forward_sent(const struct sl_forward *f, uint32_t micro_batch, uint32_t n_rows);

/* Has few generated rows go from one slice to the next by the devices' own ops: the first writes
 * them into the other's memory and raises a word there, which the other has been waiting for. Their
 * devices reach one another so (sl_device_reaches()), and next's has no other slice, whose ops the
 * waiting would hold up. When both are made and neither has run. */
void sl_forward_link(struct sl_forward *f, struct sl_forward *next);
/* Whether the step that was started last goes on so, when all of it is enqueued. */
bool sl_forward_sends(const struct sl_forward *f);
/* By which sequence number, if so. */
uint32_t sl_forward_seqno(const struct sl_forward *f, uint32_t micro_batch);
/* The rows last started in that micro-batch will not be sent, since the device failed: the next
 * one's goes on with whatever is there. Touches no device. */
void sl_forward_release(struct sl_forward *f, uint32_t micro_batch);

/* Runs a step that has at least one row and room for no more than the plan's: prepare enqueues what
 * does not depend on its rows, start all of it, and finish waits for its end. Between them it is
 * known which rows have failed, and a slice without output has enqueued what it sends. Rows that
 * are marked as failed, by the layers before, take part and mean nothing. The step itself is as it
 * was, until sl_forward_mark_failed, so that it can be started again. A failing op: its status,
 * with layer and op in err; then there is nothing to finish. Rows whose experts cannot be read do
 * not fail the step: see sl_step.failed.
 */
enum sl_status sl_forward_prepare(struct sl_forward *f, const struct sl_step *step,
                                  struct sl_err *err) SL_MUST_CHECK;
enum sl_status sl_forward_start(struct sl_forward *f, const struct sl_abort *give_up,
                                struct sl_err *err) SL_MUST_CHECK;
/* out_logits: all NULL when every row has failed, and from a slice that has no output.
 * out_n_experts: routed experts computed, each once a layer. */
enum sl_status sl_forward_finish(struct sl_forward *f, struct sl_logits *out_logits,
                                 uint64_t *out_n_experts, struct sl_err *err) SL_MUST_CHECK;
/* Adds to the step which rows the run that was started last has found to fail. */
void sl_forward_mark_failed(const struct sl_forward *f, struct sl_step *step);
/* Whether steps like this one are enqueued in one go, or nearly: the next slice's device had better
 * wait for it than the host. */
bool sl_forward_is_brief(const struct sl_forward *f);
/* After a run with keep_all: logits of rows [first, first + n), n at most plan.n_logit_rows. */
enum sl_status sl_forward_logits(struct sl_forward *f, uint32_t first, uint32_t n,
                                 float **out_logits, struct sl_err *err) SL_MUST_CHECK;
/* Likewise: their hidden states [n, n_embd] after the output norm, valid until the next call or
 * run. */
enum sl_status sl_forward_hidden(struct sl_forward *f, uint32_t first, uint32_t n,
                                 const float **out_rows, struct sl_err *err) SL_MUST_CHECK;

/* Rows of a draft layer, for a model with one (sl_model_add_drafts) that is not cut
 * into slices. The row of position i stands for token i, given the model's state at position i - 1.
 * It has the keys and values of position i of that layer, in the pages of the others. */
enum sl_draft_states {
    SL_DRAFT_STATES_STEP, /* those of the rows of the last step, which nothing has followed */
    SL_DRAFT_STATES_KEPT, /* the same as in the call before */
    SL_DRAFT_STATES_OWN,  /* what the rows of the call before gave: a draft behind a draft */
};
#define SL_DRAFT_NO_STATE UINT32_MAX
struct sl_draft_rows {
    const struct sl_step *step; /* out_rows: those behind which the next token is to be drafted;
                                   failed is not set */
    const uint32_t *from;       /* [n_rows] which of the states; SL_DRAFT_NO_STATE: it is not known,
                                   and taken to be 0 */
    enum sl_draft_states states;
};
/* Runs them, when a step has been finished and what it gave is not needed any more. out_logits as
 * of sl_forward_finish, of the drafts; with only_largest on a device that reads back, maxima
 * alone. out_failed: rows whose experts could not be read, whose drafts are undefined. */
enum sl_status sl_forward_draft(struct sl_forward *f, const struct sl_draft_rows *rows,
                                struct sl_logits *out_logits, uint32_t *out_failed,
                                struct sl_err *err) SL_MUST_CHECK;

/* For the plan. */
uint64_t sl_forward_activation_bytes(const struct sl_model *model,
                                     const struct sl_memory_plan *plan);
uint64_t sl_forward_host_bytes(const struct sl_model *model, const struct sl_memory_plan *plan);

#endif
