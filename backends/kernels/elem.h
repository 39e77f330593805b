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

#endif
