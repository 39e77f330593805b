/* Hyper-connections: streams of the residual, the weights between them, and what layers read of and
 * write to them. Bits are those of the CPU's definitions. */
#include "backends/kernels/device.cuh"
#include "backends/kernels/streams.h"

#define MAX_STREAMS 8

extern "C" __global__ void __launch_bounds__(256)
    sl_k_streams_spread(SL_KERNEL_ARGS(sl_karg_stream_spread, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    float v = a.x[t * a.n + i];
    for (uint32_t s = 0; s < a.n_stream; s++)
        a.y[(t * a.n_stream + s) * a.n + i] = v;
}

/* ---- weights ---- */

/* The mixture of a row, by one warp: lane 8 (s % 4) + d has how much of streams s and s + 4 goes to
 * stream d. Sums go through all terms in their order, in every lane that wants them. */
struct mixture {
    static constexpr int PER = MAX_STREAMS / 4;
    float v[PER];
    uint32_t n, s, d;

    __device__ __forceinline__ bool has(int j) const { return d < n && s + 4 * (uint32_t)j < n; }

    /* Of stream s's row. */
    template <class JOIN> __device__ __forceinline__ float over_row(int j, JOIN join) const {
        float all = sl_shfl(v[j], (int)(s * 8));
        for (uint32_t i = 1; i < n; i++)
            all = join(all, sl_shfl(v[j], (int)(s * 8 + i)));
        return all;
    }
    __device__ __forceinline__ float row_sum(int j) const {
        return over_row(j, [](float x, float y) { return x + y; });
    }
    __device__ __forceinline__ void divide_rows(float eps) {
#pragma unroll
        for (int j = 0; j < PER; j++) {
            if (4 * (uint32_t)j >= n)
                break;
            float sum = row_sum(j);
            if (has(j))
                v[j] = v[j] / (sum + eps);
        }
    }
    __device__ __forceinline__ void divide_columns(float eps) {
        float sum = sl_shfl(v[0], (int)d);
#pragma unroll
        for (int i = 1; i < MAX_STREAMS; i++)
            if ((uint32_t)i < n)
                sum += sl_shfl(v[i / 4], (int)((uint32_t)(i % 4) * 8 + d));
        sum += eps;
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (has(j))
                v[j] = v[j] / sum;
    }
};

__device__ __forceinline__ void mix(const struct sl_karg_stream_weights &a, float *x,
                                    const float *base) {
    uint32_t lane = threadIdx.x % SL_WARP;
    struct mixture m;
    m.n = a.n_stream, m.s = lane / 8, m.d = lane % 8;
#pragma unroll
    for (int j = 0; j < mixture::PER; j++) {
        uint32_t i = (m.s + 4 * (uint32_t)j) * m.n + m.d;
        if (4 * (uint32_t)j >= m.n) {
            m.v[j] = 0;
            break;
        }
        m.v[j] = m.has(j) ? x[i] * a.scale[2] + base[i] : -INFINITY;
        float max = m.over_row(j, [](float u, float w) { return w > u ? w : u; });
        m.v[j] = m.has(j) ? sl_dev_exp(m.v[j] - max) : 0.0f;
        float sum = m.row_sum(j);
        m.v[j] = m.has(j) ? m.v[j] / sum + a.eps : 0.0f;
    }
    m.divide_columns(a.eps);
    for (uint32_t i = 1; i < a.n_iter; i++) {
        m.divide_rows(a.eps);
        m.divide_columns(a.eps);
    }
#pragma unroll
    for (int j = 0; j < mixture::PER; j++)
        if (m.has(j))
            x[(m.s + 4 * (uint32_t)j) * m.n + m.d] = m.v[j];
}

extern "C" __global__ void __launch_bounds__(128)
    sl_k_streams_weights(SL_KERNEL_ARGS(sl_karg_stream_weights, a)) {
    sl_grid_begin();
    uint32_t t = blockIdx.x * 4 + threadIdx.x / SL_WARP, i = threadIdx.x % SL_WARP, n = a.n_stream;
    if (t >= a.n_tok)
        return;
    float *x = a.x + (size_t)t * (a.only_read ? n : n * (2 + n));
    if (i < n)
        x[i] = sl_dev_sigmoid(x[i] * a.scale[0] + a.base[i]) + a.eps;
    else if (!a.only_read && i < 2 * n)
        x[i] = 2.0f * sl_dev_sigmoid(x[i] * a.scale[1] + a.base[i]);
    if (!a.only_read)
        mix(a, x + 2 * n, a.base + 2 * n);
}

/* ---- reading and writing ---- */

extern "C" __global__ void __launch_bounds__(256)
    sl_k_streams_read(SL_KERNEL_ARGS(sl_karg_stream_read, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    if (i >= a.n)
        return;
    const float *x = a.x + t * a.n_stream * a.n + i, *w = a.w + t * a.stride_w;
    float v[MAX_STREAMS];
#pragma unroll
    for (int s = 0; s < MAX_STREAMS; s++)
        v[s] = (uint32_t)s < a.n_stream ? x[(size_t)s * a.n] : 0.0f;
    float y = w[0] * v[0];
#pragma unroll
    for (int s = 1; s < MAX_STREAMS; s++)
        if ((uint32_t)s < a.n_stream)
            y = fmaf(w[s], v[s], y);
    a.y[t * a.n + i] = y;
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_streams_write(SL_KERNEL_ARGS(sl_karg_stream_write, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * 256 + threadIdx.x;
    uint32_t n = a.n_stream;
    if (i >= a.n)
        return;
    float *x = a.x + t * n * a.n + i, y = a.y[t * a.n + i], old[MAX_STREAMS];
    const float *w = a.w + t * n * (2 + n);
#pragma unroll
    for (int s = 0; s < MAX_STREAMS; s++)
        old[s] = (uint32_t)s < n ? x[(size_t)s * a.n] : 0.0f;
    for (uint32_t d = 0; d < n; d++) {
        float v = w[n + d] * y;
#pragma unroll
        for (int s = 0; s < MAX_STREAMS; s++)
            if ((uint32_t)s < n)
                v = fmaf(w[2 * n + (uint32_t)s * n + d], old[s], v);
        x[(size_t)d * a.n] = v;
    }
}
