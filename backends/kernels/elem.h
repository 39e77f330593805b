/* Argument structs of elem.cu: ops that go element by element and that not every model has. */
#ifndef SL_BACKENDS_KERNELS_ELEM_H
#define SL_BACKENDS_KERNELS_ELEM_H

#include "backends/kernels/kernels.h"

/* As struct sl_op_gelu_mul. grid (ceil(n / 256)), 256 threads. */
struct sl_karg_gelu_mul {
    const float *gate, *up;
    float *y;
    uint64_t n;
};

/* As struct sl_op_scale, y never NULL. grid (n_tok, ceil(n / 256)), 256 threads. */
struct sl_karg_scale {
    const float *x, *by, *rows;
    float *y;
    uint32_t n;
    float scale, cap;
};

/* weights[i] *= scale[ids[i]], i < n: what sl_op_router's expert_scale does to weights that are
 * chosen. grid (ceil(n / 256)), 256 threads. */
struct sl_karg_scale_chosen {
    const uint32_t *ids;
    float *weights;
    const float *scale;
    uint32_t n;
};

/* As struct sl_op_gate_heads. grid (n_tok * n_heads, ceil(n / 256)), 256 threads. */
struct sl_karg_gate_heads {
    const float *gate;
    float *y;
    uint32_t n;
    bool per_head, softplus;
};

/* As struct sl_op_temper. grid (n_tok, ceil(n / 1024)), 256 threads. */
struct sl_karg_temper {
    float *x;
    const int32_t *pos;
    uint32_t n, span, offset;
    float scale;
};

/* As struct sl_op_center. grid (n_tok), 256 threads. */
struct sl_karg_center {
    const float *x;
    float *y;
    uint32_t n;
};

/* As struct sl_op_clamp. grid (ceil(n / 256)), 256 threads. */
struct sl_karg_clamp {
    float *x;
    uint64_t n;
    float limit;
};

/* As struct sl_op_relu_squared. grid (ceil(n / 256)), 256 threads. */
struct sl_karg_relu_squared {
    float *x;
    uint64_t n;
};

/* As struct sl_op_bias. grid (n_tok, ceil(n / 256)), 256 threads. */
struct sl_karg_bias {
    float *x;
    const float *b;
    uint32_t n;
};

/* As struct sl_op_gelu_rows. grid (n_tok, ceil(n / 256)), 256 threads. */
struct sl_karg_gelu_rows {
    const float *gate, *up;
    const uint32_t *rows;
    float *y;
    uint32_t n, stride_up;
};

/* As struct sl_op_limited_glu; elem_cut_glu: as struct sl_op_cut_glu. grid (ceil(n / 256)), 256
 * threads. */
struct sl_karg_limited_glu {
    const float *gate, *up;
    float *y;
    uint64_t n;
    float limit;
};

/* As struct sl_op_clamped_glu; alpha and limit as in struct sl_karg_experts. grid (ceil(n / 256)),
 * 256 threads. */
struct sl_karg_clamped_glu {
    const float *gate, *up;
    float *y;
    uint64_t n;
    float alpha, limit;
};

#endif
