/* Argument structs of streams.cu: hyper-connections. */
#ifndef SL_BACKENDS_KERNELS_STREAMS_H
#define SL_BACKENDS_KERNELS_STREAMS_H

#include "backends/kernels/kernels.h"

/* As struct sl_op_stream_spread. grid (n_tok, ceil(n / 256)), 256 threads. */
struct sl_karg_stream_spread {
    const float *x;
    float *y;
    uint32_t n_stream, n;
};

/* As struct sl_op_stream_weights: a warp a row, grid (ceil(n_tok / 4)), 128 threads. */
struct sl_karg_stream_weights {
    float *x;
    const float *scale, *base;
    uint32_t n_tok, n_stream, n_iter, only_read;
    float eps;
};

/* As struct sl_op_stream_read. grid (n_tok, ceil(n / 256)), 256 threads. */
struct sl_karg_stream_read {
    const float *x, *w;
    float *y;
    uint32_t n_stream, n, stride_w;
};

/* As struct sl_op_stream_write. grid (n_tok, ceil(n / 256)), 256 threads. */
struct sl_karg_stream_write {
    float *x;
    const float *y, *w;
    uint32_t n_stream, n;
};

#endif
