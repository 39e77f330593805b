/* What runs of layers are asked, and give. */
#ifndef SL_ENGINE_PASS_H
#define SL_ENGINE_PASS_H

#include "engine/sample/vocab_pass.h"
#include "engine/types/plan.h"
#include "model/arch/model.h"

/* Asked between layers; true gives the step up with SL_ERR_CANCELED (its KV positions are then
 * undefined and must be written again before use). */
struct sl_abort {
    bool (*asked)(const struct sl_abort *a);
};

/* Logits in host memory, valid and writable until the next run in the step's micro-batch. A device
 * whose memory the host cannot follow tells of the rows' blocks too, [n_out,
 * SL_VOCAB_BLOCKS(n_vocab)]: maxima, where they are, and sums at the step's sums_at; with
 * only_largest the former two alone, and no rows. blocks.inv_t is a row's own (sl_step.sums_at),
 * and not set here. */
struct sl_logits {
    float *rows; /* [n_out, n_vocab]; NULL: none */
    struct sl_vocab_blocks blocks;
};

/* For the plan. */
/* Where results must be read back. */
uint64_t sl_forward_pinned_bytes(const struct sl_hparams *hp, const struct sl_memory_plan *plan);
/* What the CPU lane needs of the layers in host memory, besides its scratch. */
uint64_t sl_forward_lane_bytes(const struct sl_model *model);

#endif
