/* Ops that go element by element and that not every model has: elem.cu. */
#include "backends/cuda/ops_internal.h"

enum sl_status sl_cuda_gelu_mul(struct sl_device *d, const struct sl_op_gelu_mul *a) {
    struct sl_karg_gelu_mul k = {a->gate, a->up, a->y, a->n};
    struct sl_dim3 grid = {sl_ceil_div(a->n, 256), 1, 1};
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_elem_gelu_mul, grid,
                     ((struct sl_dim3){256, 1, 1}), 0, k);
}

enum sl_status sl_cuda_scale(struct sl_device *d, const struct sl_op_scale *a) {
    struct sl_karg_scale k = {a->x, a->by, a->rows, a->y ? a->y : a->x, a->n, a->scale, a->cap};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_elem_scale, grid, ((struct sl_dim3){256, 1, 1}),
                     0, k);
}

enum sl_status sl_cuda_scale_chosen(struct sl_cuda *c, const struct sl_op_router *a) {
    if (!a->expert_scale)
        return SL_OK;
    struct sl_karg_scale_chosen k = {a->ids, a->weights, a->expert_scale, a->n_tok * a->k};
    struct sl_dim3 grid = {sl_ceil_div(k.n, 256), 1, 1};
    return SL_LAUNCH(c, SL_KERNEL_elem_scale_chosen, grid, ((struct sl_dim3){256, 1, 1}), 0, k);
}
