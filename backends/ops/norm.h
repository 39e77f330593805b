/* Norms of rows and of heads. Who owns the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_NORM_H
#define SL_BACKENDS_OPS_NORM_H

#include <stdint.h>

/* y[r,i] = x[r,i] / sqrt(mean_i x[r,i]^2 + eps) * w[i]
 * x, y: n_rows rows of n elements, stride elements apart; y may be x. w [n] f32, NULL = ones.
 * Also the per-head q/k norm: rows are then heads. */
struct sl_op_rms_norm {
    const float *x, *w;
    float *y;
    uint32_t n_rows, n, stride_x, stride_y;
    float eps;
};

/* x[t,h,i] /= sqrt(sum_i x[t,h,i]^2 + eps), in place
 * head h of token t at x + t*stride + h*head_dim */
struct sl_op_l2_norm {
    float *x;
    uint32_t n_tok, n_heads, head_dim, stride;
    float eps;
};

/* y[t,i] = x[t,i] - mean_i x[t,i], the mean summed as in sl_op_rms_norm; y may be x. With
 * sl_op_rms_norm behind it this is layer normalisation (Ba et al. 2016) without a bias.
 * x, y [n_tok, n] contiguous. */
struct sl_op_center {
    const float *x;
    float *y;
    uint32_t n_tok, n;
};

#endif
