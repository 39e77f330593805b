/* The scans of state spaces. */
#include "backends/kernels/state_columns.cuh"

/* Mamba-2: one decay a head. */
SL_COLUMNS_KERNELS(recurrent_scan, SL_COLUMNS_SCAN)

/* Mamba-1: each channel has a vector of at most MAX states, of which four lanes have every fourth,
 * and each state a decay of its own. Sums over the states: each lane's ascend, one fused
 * multiply-add each, from 0; then (0 + 1) + (2 + 3). */
template <int MAX> struct scan_stage {
    float b[SL_WARP][MAX], c[SL_WARP][MAX];
    uint32_t row[SL_WARP];
    const float *from[SL_WARP];
    float *to[SL_WARP];
    bool first[SL_WARP];
    uint32_t n;
};

template <int MAX> struct scan_channel {
    static constexpr int PER = MAX / 4;
    float s[PER], decay[PER];
    uint32_t quarter, channel;
    bool in;

    /* Four rows' x and step, one a lane: a step is in double precision, which some GPUs are slow
     * at. */
    __device__ __forceinline__ void ask(const struct sl_karg_channel_scan &a,
                                        const struct scan_stage<MAX> &stage, uint32_t r, float &x,
                                        float &dt) const {
        size_t at = (size_t)stage.row[min(r + quarter, stage.n - 1)] * a.n + channel;
        x = in ? a.x[at] : 0.0f;
        dt = in ? a.dt[at] : 0.0f;
    }
    __device__ __forceinline__ void load(const struct sl_karg_channel_scan &a, const float *from) {
#pragma unroll
        for (int n = 0; n < PER; n++) {
            uint32_t i = quarter + 4 * (uint32_t)n;
            s[n] = from && in && i < a.n_state ? from[(size_t)i * a.n + channel] : 0.0f;
        }
    }
    __device__ __forceinline__ void store(const struct sl_karg_channel_scan &a, float *to) const {
#pragma unroll
        for (int n = 0; n < PER; n++) {
            uint32_t i = quarter + 4 * (uint32_t)n;
            if (in && i < a.n_state)
                to[(size_t)i * a.n + channel] = s[n];
        }
    }
    __device__ __forceinline__ float step(const float *b, const float *c, float d, float u) {
        float sum = 0;
#pragma unroll
        for (int n = 0; n < PER; n++) {
            uint32_t i = quarter + 4 * (uint32_t)n;
            s[n] = fmaf(b[i], u, sl_dev_exp(decay[n] * d) * s[n]);
            sum = fmaf(s[n], c[i], sum);
        }
        sum += sl_shfl_xor(sum, 1);
        return sum + sl_shfl_xor(sum, 2);
    }
    __device__ __forceinline__ void run(const struct sl_karg_channel_scan &a,
                                        const struct scan_stage<MAX> &stage, float skip) {
        float x_next, dt_next;
        ask(a, stage, 0, x_next, dt_next);
        for (uint32_t r0 = 0; r0 < stage.n; r0 += 4) {
            float x_own = x_next, d_own = sl_dev_softplus(dt_next);
            ask(a, stage, r0 + 4, x_next, dt_next);
            for (uint32_t k = 0; k < 4 && r0 + k < stage.n; k++) {
                uint32_t r = r0 + k, lane = (threadIdx.x & 28u) + k;
                float x = sl_shfl(x_own, (int)lane), d = sl_shfl(d_own, (int)lane);
                if (stage.first[r])
                    load(a, stage.from[r]);
                float sum = step(stage.b[r], stage.c[r], d, d * x);
                if (in && quarter == 0)
                    a.y[(size_t)stage.row[r] * a.n + channel] = fmaf(skip, x, sum);
                if (stage.to[r])
                    store(a, stage.to[r]);
            }
        }
    }
};

template <int MAX> __device__ __forceinline__ void scan(const struct sl_karg_channel_scan &a) {
    __shared__ struct scan_stage<MAX> stage;
    const struct sl_karg_state &s = a.state;
    sl_grid_begin();
    if (gridDim.y == s.n_tok && sl_state_follows(s, blockIdx.y))
        return;
    for (uint32_t i = threadIdx.x; i < SL_WARP * MAX; i += SL_SCAN_THREADS)
        stage.b[i / MAX][i % MAX] = stage.c[i / MAX][i % MAX] = 0;
    struct scan_channel<MAX> of;
    of.quarter = threadIdx.x % 4;
    of.channel = blockIdx.x * (SL_SCAN_THREADS / 4) + threadIdx.x / 4;
    of.in = of.channel < a.n;
#pragma unroll
    for (int n = 0; n < MAX / 4; n++) {
        uint32_t i = of.quarter + 4 * (uint32_t)n;
        of.decay[n] = of.in && i < a.n_state ? a.a[(size_t)of.channel * a.n_state + i] : 0.0f;
        of.s[n] = 0;
    }
    float skip = of.in ? a.skip[of.channel] : 0.0f;
    struct sl_state_rows rows;
    bool feeds = threadIdx.x < SL_WARP;
    if (feeds)
        rows.begin(s, blockIdx.y, gridDim.y);
    for (;;) {
        __syncthreads();
        if (feeds) {
            uint32_t n = 0;
            while (!n && rows.at < rows.end) {
                n = rows.next(s, SL_WARP, 0);
                if (rows.mine) {
                    uint32_t i = rows.place();
                    stage.row[i] = rows.t;
                    stage.first[i] = rows.first;
                    stage.from[i] = rows.from;
                    stage.to[i] = rows.to;
                }
                rows.advance(s, SL_WARP);
            }
            if (threadIdx.x == 0)
                stage.n = n;
        }
        __syncthreads();
        uint32_t n = stage.n;
        if (!n)
            break;
        for (uint32_t i = threadIdx.x; i < n * a.n_state; i += SL_SCAN_THREADS) {
            uint32_t r = i / a.n_state, e = i - r * a.n_state;
            stage.b[r][e] = a.b[(size_t)stage.row[r] * a.n_state + e];
            stage.c[r][e] = a.c[(size_t)stage.row[r] * a.n_state + e];
        }
        __syncthreads();
        of.run(a, stage, skip);
    }
}

#define SCAN(MAX)                                                                                  \
    extern "C" __global__ void __launch_bounds__(SL_SCAN_THREADS)                                  \
        sl_k_recurrent_scan_channel_##MAX(SL_KERNEL_ARGS(sl_karg_channel_scan, a)) {               \
        scan<MAX>(a);                                                                              \
    }
SCAN(16)
SCAN(64)
