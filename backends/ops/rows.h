/* Ops that give a row for a row or an id: embeddings, rows picked out, the largest of each block of
 * a row. Who owns the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_ROWS_H
#define SL_BACKENDS_OPS_ROWS_H

#include "backends/ops/weight.h"

#include <stdint.h>

/* y[t,:] = w[ids[t],:] * scale             ids [n_tok] < w.n_out; y [n_tok, w.n_in] */
struct sl_op_embed {
    struct sl_weight w;
    const uint32_t *ids;
    float *y;
    uint32_t n_tok;
    float scale;
};

/* y[j,:] = x[rows[j],:]; rows of n f32, j < n_out */
struct sl_op_gather_rows {
    const float *x;
    const uint32_t *rows;
    float *y;
    uint32_t n_out, n;
};

/* max[t,b] = the largest of x[t,i] over block b of the row, i in [b*B, min(b*B + B, n)), B =
 * SL_BLOCK_MAX_ELEMS: NaN where one of them is NaN, and +0 above -0 (IEEE 754-2019's maximum)
 * at[t,b] = the first i - b*B whose x[t,i] == max[t,b], zeros being equal; 0 beside NaN
 * sum[t,b] = the sum over the block of sl_exp_neg((x[t,i] - max[t,b]) * inv_t[t]): 16 sums of every
 * 16th in order, then of the two halves until one is left; 0 where max[t,b] is not finite or
 * inv_t[t] is not above 0. This gives a sampler the mass of a block without reading it.
 * x [n_tok, n]; max [n_tok, ceil(n / B)]; at and sum likewise, or NULL if not wanted; inv_t
 * [n_tok], needed only with sum */
#define SL_BLOCK_MAX_ELEMS 64u
struct sl_op_block_max {
    const float *x;
    float *max;
    uint32_t *at;
    float *sum;
    const float *inv_t;
    uint32_t n_tok, n;
};

#endif
