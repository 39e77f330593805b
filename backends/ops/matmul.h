/* Products with weights: one input with several matrices, and a matrix for each head. Who owns the
 * arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_MATMUL_H
#define SL_BACKENDS_OPS_MATMUL_H

#include "backends/ops/weight.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_MATMUL_MAX_W 4u

/* For each of n_w matrices that share the input:
 *   y[t,o] = (add ? y[t,o] : 0) + sum_i w[o,i] * x[t,i] + bias[o]
 * x [n_tok, n_in] f32 contiguous, y [n_tok, n_out] f32 contiguous, bias [n_out] f32 or NULL. */
struct sl_matmul_out {
    struct sl_weight w;
    const float *bias;
    float *y;
    bool add;
};
struct sl_op_matmul {
    const float *x;
    uint32_t n_tok, n_decode, n_w;
    struct sl_matmul_out out[SL_MATMUL_MAX_W];
};

/* One matrix for each head, all of one shape. For head h of token t:
 *   y[o] = sum_i w[h][o,i] * x[i], o < n_out       rows of n_in weights, sums as in sl_op_matmul
 *   y[o] = fma(w[h][i,o], x[i], y[o]) for i = 0 to n_in - 1, from 0      transposed: n_in rows of
 *                                                                       n_out weights
 *   y[n_out + i] = x[n_in + i], i < n_keep         the rest of x is copied to y unchanged
 * x: head h of token t at x + (t*n_heads + h)*stride_x, y alike; stride_x >= n_in + n_keep,
 * stride_y >= n_out + n_keep, and they do not overlap. w: head h's matrix at w + h*head_bytes. */
struct sl_op_head_matmul {
    const float *x;
    float *y;
    const void *w;
    enum sl_dtype dtype;
    size_t head_bytes;
    uint32_t n_tok, n_decode, n_heads, n_in, n_out, n_keep, stride_x, stride_y;
    bool transposed;
};

#endif
