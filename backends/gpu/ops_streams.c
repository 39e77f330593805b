/* Hyper-connections: streams.cu. */
#include "backends/gpu/ops_internal.h"

#define BLOCK ((struct sl_dim3){256, 1, 1})

_Static_assert(SL_MAX_STREAMS == 8, "streams.cu has so many in registers");

static struct sl_dim3 elements(uint32_t n_tok, uint32_t n) {
    return (struct sl_dim3){n_tok, sl_ceil_div(n, 256), 1};
}

enum sl_status sl_gpu_stream_spread(struct sl_device *d, const struct sl_op_stream_spread *a) {
    struct sl_karg_stream_spread k = {a->x, a->y, a->n_stream, a->n};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_streams_spread, elements(a->n_tok, a->n), BLOCK,
                     0, k);
}

enum sl_status sl_gpu_stream_weights(struct sl_device *d, const struct sl_op_stream_weights *a) {
    struct sl_karg_stream_weights k = {.x = a->x,
                                       .scale = a->scale,
                                       .base = a->base,
                                       .n_tok = a->n_tok,
                                       .n_stream = a->n_stream,
                                       .n_iter = a->n_iter,
                                       .only_read = a->only_read,
                                       .eps = a->eps};
    struct sl_dim3 grid = {sl_ceil_div(a->n_tok, 4), 1, 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_streams_weights, grid,
                     ((struct sl_dim3){128, 1, 1}), 0, k);
}

enum sl_status sl_gpu_stream_read(struct sl_device *d, const struct sl_op_stream_read *a) {
    struct sl_karg_stream_read k = {a->x, a->w, a->y, a->n_stream, a->n, a->stride_w};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_streams_read, elements(a->n_tok, a->n), BLOCK, 0,
                     k);
}

enum sl_status sl_gpu_stream_write(struct sl_device *d, const struct sl_op_stream_write *a) {
    struct sl_karg_stream_write k = {a->x, a->y, a->w, a->n_stream, a->n};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_streams_write, elements(a->n_tok, a->n), BLOCK,
                     0, k);
}
