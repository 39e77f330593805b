/* Ops that go element by element and that not every model has: elem.cu. */
#include "backends/gpu/ops_internal.h"

#define BLOCK ((struct sl_dim3){256, 1, 1})

enum sl_status sl_gpu_gelu_mul(struct sl_device *d, const struct sl_op_gelu_mul *a) {
    struct sl_karg_gelu_mul k = {a->gate, a->up, a->y, a->n};
    struct sl_dim3 grid = {sl_ceil_div(a->n, 256), 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_gelu_mul, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_scale(struct sl_device *d, const struct sl_op_scale *a) {
    struct sl_karg_scale k = {a->x, a->by, a->rows, a->y ? a->y : a->x, a->n, a->scale, a->cap};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_scale, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_scale_chosen(struct sl_gpu *c, const struct sl_op_router *a) {
    if (!a->expert_scale)
        return SL_OK;
    struct sl_karg_scale_chosen k = {a->ids, a->weights, a->expert_scale, a->n_tok * a->k};
    struct sl_dim3 grid = {sl_ceil_div(k.n, 256), 1, 1};
    return SL_LAUNCH(c, SL_KERNEL_elem_scale_chosen, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_gate_heads(struct sl_device *d, const struct sl_op_gate_heads *a) {
    struct sl_karg_gate_heads k = {a->gate, a->y, a->n, a->per_head, a->softplus};
    struct sl_dim3 grid = {a->n_tok * a->n_heads, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_gate_heads, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_temper(struct sl_device *d, const struct sl_op_temper *a) {
    struct sl_karg_temper k = {a->x, a->pos, a->n, a->span, a->offset, a->scale};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n, 1024), 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_temper, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_center(struct sl_device *d, const struct sl_op_center *a) {
    struct sl_karg_center k = {a->x, a->y, a->n};
    struct sl_dim3 grid = {a->n_tok, 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_center, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_clamp(struct sl_device *d, const struct sl_op_clamp *a) {
    struct sl_karg_clamp k = {a->x, a->n, a->limit};
    struct sl_dim3 grid = {sl_ceil_div(a->n, 256), 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_clamp, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_relu_squared(struct sl_device *d, const struct sl_op_relu_squared *a) {
    struct sl_karg_relu_squared k = {a->x, a->n};
    struct sl_dim3 grid = {sl_ceil_div(a->n, 256), 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_relu_squared, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_limited_glu(struct sl_device *d, const struct sl_op_limited_glu *a) {
    struct sl_karg_limited_glu k = {a->gate, a->up, a->y, a->n, a->limit};
    struct sl_dim3 grid = {sl_ceil_div(a->n, 256), 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_limited_glu, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_cut_glu(struct sl_device *d, const struct sl_op_cut_glu *a) {
    struct sl_karg_limited_glu k = {a->gate, a->up, a->y, a->n, a->limit};
    struct sl_dim3 grid = {sl_ceil_div(a->n, 256), 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_cut_glu, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_clamped_glu(struct sl_device *d, const struct sl_op_clamped_glu *a) {
    struct sl_karg_clamped_glu k = {
        a->gate, a->up, a->y, a->n, SL_SWIGLU_CLAMPED_ALPHA, SL_SWIGLU_CLAMPED_LIMIT};
    struct sl_dim3 grid = {sl_ceil_div(a->n, 256), 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_clamped_glu, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_bias(struct sl_device *d, const struct sl_op_bias *a) {
    struct sl_karg_bias k = {a->x, a->b, a->n};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_bias, grid, BLOCK, 0, k);
}

enum sl_status sl_gpu_gelu_rows(struct sl_device *d, const struct sl_op_gelu_rows *a) {
    struct sl_karg_gelu_rows k = {a->gate, a->up, a->rows, a->y, a->n, a->stride_up};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_elem_gelu_rows, grid, BLOCK, 0, k);
}
