/* The layer loop: one step of rows through all layers of the model on one device.
 *
 * Driven by struct sl_hparams and by which tensor roles a layer has; knows no architecture by name.
 * Used by one thread, the device's owner. */
#ifndef SL_ENGINE_FORWARD_H
#define SL_ENGINE_FORWARD_H

#include "engine/expert_fetch.h"
#include "engine/kv.h"
#include "engine/memory_plan.h"
#include "engine/timeline.h"
#include "engine/weights.h"

/* The rows of one step, filled by the scheduler in host memory. Rows [0, n_decode) are generated
 * rows, the others prompt rows; rows of one session ascend in position. */
struct sl_step {
    uint32_t n_rows, n_decode;
    uint32_t n_out;     /* rows whose logits are wanted, at most plan.n_logit_rows */
    bool keep_all;      /* keep all rows' hidden states for sl_forward_logits; n_out is ignored */
    uint32_t *ids;      /* [n_rows] token */
    int32_t *pos;       /* [n_rows] position in its session */
    uint32_t *slot;     /* [n_rows] KV position: page * SL_KV_PAGE_TOKENS + index */
    uint32_t *row_seq;  /* [n_rows] session's row of the page table */
    uint32_t *row_len;  /* [n_rows] positions that the row attends to, itself included */
    uint32_t *out_rows; /* [n_out] ascending */
    /* Set by the run: */
    uint8_t *failed;    /* [n_rows] an expert that the row needs could not be read: its logits and
                           KV positions are undefined */
    uint32_t n_failed;  /* and why, of the first: in the run's err */
    uint64_t n_experts; /* routed experts computed, each once a layer */
};

struct sl_forward;

/* Binds the weights and allocates the activations that the plan counted. Refuses, by name, a tensor
 * of a type that the device lacks. fetch: where the routed experts come from; NULL: they are among
 * the weights. All arguments are borrowed until destroy. */
enum sl_status sl_forward_create(const struct sl_model *model, const struct sl_memory_plan *plan,
                                 struct sl_device *dev, const struct sl_weights *weights,
                                 const struct sl_kv_pool *kv, struct sl_fetch *fetch,
                                 struct sl_timeline *timeline, struct sl_forward **out_forward,
                                 struct sl_err *err) SL_MUST_CHECK;
void sl_forward_destroy(struct sl_forward **f);

/* The step to fill; its arrays have room for plan.config.batch_tokens rows. */
struct sl_step *sl_forward_begin(struct sl_forward *f);
/* Page `index` of session row `seq` is `page` from the next step on. */
enum sl_status sl_forward_set_page(struct sl_forward *f, uint32_t seq, uint32_t index,
                                   uint32_t page) SL_MUST_CHECK;
/* The page that was set. */
uint32_t sl_forward_page(const struct sl_forward *f, uint32_t seq, uint32_t index);

/* Asked between layers; true gives the step up with SL_ERR_CANCELED (its KV positions are then
 * undefined and must be written again before use). */
struct sl_abort {
    bool (*asked)(const struct sl_abort *a);
};

/* Runs the step. out_logits: [n_out, n_vocab] in host memory, valid and writable until the next
 * call; NULL when every row has failed. A failing op: its status, with layer and op in err. Rows
 * whose experts cannot be read do not fail the step: see sl_step.failed. */
enum sl_status sl_forward_run(struct sl_forward *f, const struct sl_abort *give_up,
                              float **out_logits, struct sl_err *err) SL_MUST_CHECK;
/* After a run with keep_all: logits of rows [first, first + n), n at most plan.n_logit_rows. */
enum sl_status sl_forward_logits(struct sl_forward *f, uint32_t first, uint32_t n,
                                 float **out_logits, struct sl_err *err) SL_MUST_CHECK;

/* For the plan. */
uint64_t sl_forward_activation_bytes(const struct sl_hparams *hp,
                                     const struct sl_memory_plan *plan);
uint64_t sl_forward_host_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *plan);
/* Where results must be read back. */
uint64_t sl_forward_pinned_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *plan);

#endif
