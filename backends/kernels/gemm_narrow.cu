/* Prefill of few outputs in f32: routers, and the gates of shared experts and of delta nets. The tiles of
 * gemm_small leave most multiprocessors idle there, and wait for every 16 elements; these are a quarter of
 * their size, and three stages are on their way. Each sum is that of gemm.cuh's: ascending, from 0. */
#include "backends/kernels/device.cuh"

#define M       ((int)SL_GEMM_NARROW_M)
#define N       ((int)SL_GEMM_NARROW_N)
#define K       ((int)SL_GEMM_NARROW_K)
#define STRIDE  (K + 4) /* 16 bytes to spread banks */
#define STAGES  ((int)SL_GEMM_NARROW_STAGES)
#define THREADS ((int)SL_GEMM_NARROW_THREADS)

static_assert(SL_GEMM_NARROW_SMEM == STAGES * (M + N) * STRIDE * 4, "as the host has it");

extern "C" __global__ void __launch_bounds__(THREADS)
    sl_k_gemm_narrow_F32(SL_KERNEL_ARGS(sl_karg_gemm, a)) {
    extern __shared__ float4 shared[];
    float *stages = (float *)shared;
    uint32_t m = 0;
    for (uint32_t i = 1; i < a.n_mat; i++)
        m = blockIdx.y >= a.first[i] ? i : m;
    const struct sl_karg_mat mat = a.mat[m];
    const float *w = (const float *)mat.w;
    uint32_t o0 = (blockIdx.y - a.first[m]) * M, t0 = blockIdx.x * N, n_in = a.n_in;
    /* Rows of weights, then of the input; what is beyond an edge is zeros. */
    auto load = [&](uint32_t k0, bool weights) {
        float *to = stages + k0 / K % STAGES * (M + N) * STRIDE;
        constexpr uint32_t PER = K / 4;
        for (uint32_t i = threadIdx.x; i < M * PER; i += THREADS) {
            uint32_t r = i / PER, k = k0 + i % PER * 4;
            bool in = k < n_in;
            if (weights) {
                bool valid = in && o0 + r < mat.n_out;
                sl_copy16(to + r * STRIDE + i % PER * 4,
                          w + (valid ? (size_t)(o0 + r) * n_in + k : 0), valid);
            } else {
                bool valid = in && t0 + r < a.n_tok;
                sl_copy16(to + (M + r) * STRIDE + i % PER * 4,
                          a.x + (valid ? (size_t)(t0 + r) * n_in + k : 0), valid);
            }
        }
    };
    static_assert(M == N, "one loop loads either");
    /* Weights are nobody's output: they are on their way before the input is there. */
    for (uint32_t s = 0; s < STAGES - 1; s++)
        if (s * K < n_in)
            load(s * K, true);
    sl_grid_begin();
    for (uint32_t s = 0; s < STAGES - 1; s++) {
        if (s * K < n_in)
            load(s * K, false);
        sl_copy_commit();
    }
    uint32_t tm = threadIdx.x % 8, tn = threadIdx.x / 8;
    float acc[4][2];
#pragma unroll
    for (int i = 0; i < 8; i++)
        acc[i / 2][i % 2] = 0;
    for (uint32_t k0 = 0; k0 < n_in; k0 += K) {
        sl_copy_wait_but_one(); /* this one has come */
        __syncthreads();        /* to all, and all have read the one that is filled next */
        if (k0 + (STAGES - 1) * K < n_in) {
            load(k0 + (STAGES - 1) * K, true);
            load(k0 + (STAGES - 1) * K, false);
        }
        sl_copy_commit();
        const float *ws = stages + k0 / K % STAGES * (M + N) * STRIDE, *xs = ws + M * STRIDE;
        uint32_t n = min((uint32_t)K, n_in - k0);
#pragma unroll 4
        for (uint32_t k = 0; k < n; k += 4) {
            float4 wv[4], xv[2];
#pragma unroll
            for (int i = 0; i < 4; i++)
                wv[i] = *(const float4 *)(ws + (tm + 8 * i) * STRIDE + k);
#pragma unroll
            for (int j = 0; j < 2; j++)
                xv[j] = *(const float4 *)(xs + (tn + 16 * j) * STRIDE + k);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float s = acc[i][j];
                    s = fmaf(wv[i].x, xv[j].x, s);
                    s = fmaf(wv[i].y, xv[j].y, s);
                    s = fmaf(wv[i].z, xv[j].z, s);
                    acc[i][j] = fmaf(wv[i].w, xv[j].w, s);
                }
        }
    }
    sl_copy_wait();
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t o = o0 + tm + 8 * (uint32_t)i, t = t0 + tn + 16 * (uint32_t)j;
            if (o >= mat.n_out || t >= a.n_tok)
                continue;
            float *y = mat.y + (size_t)t * mat.n_out + o, v = acc[i][j];
            if (mat.bias)
                v = v + mat.bias[o];
            *y = mat.add ? *y + v : v;
        }
}
