/* The experts of each row, and the sum of what they give. Who owns the arguments, and until when:
 * backend.h. */
#ifndef SL_BACKENDS_OPS_MOE_H
#define SL_BACKENDS_OPS_MOE_H

#include "backends/ops/activation.h"
#include "common/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* Where one expert's matrices are: gate and up [n_ff, n_embd], down [n_embd, n_ff]. Of experts
 * without a gate (SL_RELU_SQUARED) gate, its type and its bias are not looked at. */
struct sl_expert_ref {
    const void *gate, *up, *down;
};

/* A pair, and where its expert is. */
struct sl_placed_pair {
    struct sl_expert_ref ref;
    uint32_t pair;
};
#define SL_MOE_MAX_PLACED 16u

#define SL_SWIGLU_CLAMPED_ALPHA 1.702f
#define SL_SWIGLU_CLAMPED_LIMIT 7.0f

/* For each listed pair p = t*k + r, with e = ids[p]:
 *   pair_y[p,:] = down_e activation(gate_e x[t] + gate_bias[e], up_e x[t] + up_bias[e]) +
 *                 down_bias[e]
 * x [n_tok, n_embd]; ids [n_tok, k] < n_expert; pair_y [n_tok*k, n_embd]; gate_bias, up_bias
 * [n_expert, n_ff] and down_bias [n_expert, n_embd] f32, wherever the experts are: NULL = none.
 * pairs [n_pairs] lists the pairs to compute, ascending; NULL = all, n_pairs = n_tok*k. Experts of
 * listed pairs must be resident in refs. Weighted sums happen in sl_op_moe_combine, in router
 * order, so that the result does not depend on the order in which experts become resident. */
struct sl_op_moe {
    const float *x;
    const uint32_t *ids;
    const uint32_t *pairs;
    float *pair_y;
    const struct sl_expert_ref *refs; /* [n_expert] in host memory, or NULL and */
    const struct sl_expert_ref
        *device_refs; /* [n_expert] in device memory, read when the op runs */
    /* [n_pairs] in host memory, instead of pairs and refs: so few that they travel with the launch
     * (caps.moe_placed). Generated rows alone, at most SL_MOE_MAX_PLACED pairs. */
    const struct sl_placed_pair *placed;
    enum sl_dtype gate_dtype, up_dtype, down_dtype;
    uint32_t n_tok, n_decode, k, n_pairs, n_expert, n_embd, n_ff;
    const float *gate_bias, *up_bias, *down_bias; /* caps.moe_bias */
    /* caps.swiglu_clamped, .geglu, .swiglu_limited, .reglu, .swiglu_cut, .relu_squared, .situ */
    enum sl_activation activation;
    float limit;    /* of SL_SWIGLU_LIMITED, SL_SWIGLU_CUT and SL_SITU, above 0 */
    float limit_up; /* of SL_SITU; 0: none */
    /* Called once on the caller's thread before the op returns, if there are pairs; NULL: nothing.
     * A device that can compute meanwhile does (caps.overlap); otherwise this runs afterwards. May
     * block; must call no op. */
    void (*overlap)(void *ctx);
    void *overlap_ctx;
    uint64_t *out_end_ns; /* when the computation alongside it had ended (sl_now_ns); NULL, or where
                             the device does not know: not set */
};

/* y[t,:] += sum_r weights[t,r] * pair_y[t*k+r,:], r ascending, one fused multiply-add each; set
 * (caps.extra_args): from 0 instead of y. */
struct sl_op_moe_combine {
    const float *pair_y, *weights;
    float *y;
    uint32_t n_tok, k, n;
    bool set;
};

#endif
