/* Argument structs of recurrent.cu, as those in kernels.h: ops of layers whose state every row
 * replaces. */
#ifndef SL_BACKENDS_KERNELS_RECURRENT_H
#define SL_BACKENDS_KERNELS_RECURRENT_H

#include "backends/kernels/kernels.h"

/* As struct sl_state_view. */
struct sl_karg_state {
    void *pages;
    uint64_t page_bytes;
    const uint32_t *page_table, *slot, *row_seq, *row_len;
    uint32_t max_pages, n_tok;
};

/* As struct sl_op_mul_sigmoid. grid (n_rows, ceil(n / 256)). */
struct sl_karg_mul_sigmoid {
    const float *gate;
    float *y;
    uint32_t n, stride_gate;
};

/* As struct sl_op_l2_norm; one warp a head. grid (n_tok, ceil(n_heads / 4)), 128 threads. */
struct sl_karg_l2_norm {
    float *x;
    uint32_t n_heads, head_dim, stride;
    float eps;
};

/* As struct sl_op_conv_silu, and as struct sl_op_short_conv, which has no bias: a thread a channel
 * of `rows` rows. grid (ceil(n / SL_CONV_THREADS), ceil(n_tok / rows)); rows at most SL_CONV_ROWS.
 */
#define SL_CONV_THREADS 256u
#define SL_CONV_ROWS    16u
struct sl_karg_conv {
    const float *x, *w, *bias;
    float *y;
    struct sl_karg_state state;
    uint32_t n, n_taps, rows;
};

/* state_columns.cuh: recurrent_delta_DIM as struct sl_op_delta_rule; recurrent_delta_channel_DIM as
 * struct sl_op_channel_delta, alpha as keys are; recurrent_scan_DIM as struct sl_op_state_scan,
 * with c, b and x for q, k and v, dt for alpha, its bias for dt, n_state and head_dim for
 * head_dim_k and head_dim_v, groups for the heads of keys. Rows of q and k at stride, of v at
 * stride_v. Keys of at most DIM. grid (ceil(head_dim_v / SL_DELTA_COLS), n_heads, z): block z takes
 * every z-th sequence of the call, or, if z is n_tok, the one that row z begins. */
#define SL_DELTA_COLS    32u
#define SL_DELTA_THREADS 160u
#define SL_DELTA_MAX_DIM 256u
#define SL_DELTA_FEW     32u /* rows up to which each has its blocks */
#define SL_DELTA_Z       8u  /* for more rows */
struct sl_karg_delta {
    const float *q, *k, *v, *alpha, *beta, *a, *dt, *skip;
    float *y;
    struct sl_karg_state state;
    uint32_t n_heads, n_heads_k, head_dim_k, head_dim_v, stride, stride_v;
    uint32_t stride_gate, gate_group, gate_group_stride, grouped;
    float scale, bound;
};

/* As struct sl_op_channel_scan: recurrent_scan_channel_MAX, at most MAX states. grid (ceil(n /
 * (SL_SCAN_THREADS / 4)), z), z as above. */
#define SL_SCAN_THREADS 128u
struct sl_karg_channel_scan {
    const float *x, *b, *c, *dt, *a, *skip;
    float *y;
    struct sl_karg_state state;
    uint32_t n, n_state;
};

#endif
