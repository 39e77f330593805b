/* One head of q, k or v of one row by one warp, between its product and attention: norm as
 * sl_k_rms_norm sums it with 32 threads, then rope. MAX: the longest head. */
#ifndef SL_BACKENDS_KERNELS_HEADS_CUH
#define SL_BACKENDS_KERNELS_HEADS_CUH

#include "backends/kernels/quantize.cuh"

/* Weights of a norm; no kernel writes them, so they may be fetched before the grid's wait. */
template <int MAX> struct sl_head_norm {
    static constexpr int PER = MAX / SL_WARP;
    float by[PER], eps;
    bool has_w;

    /* eps < 0: no norm. */
    __device__ __forceinline__ void fetch(const float *w, float e, uint32_t dim) {
        uint32_t lane = threadIdx.x % SL_WARP;
        eps = e, has_w = w != NULL;
#pragma unroll
        for (int j = 0; j < PER; j++)
            by[j] = e >= 0 && w && lane + SL_WARP * (uint32_t)j < dim
                        ? __ldg(w + lane + SL_WARP * j)
                        : 1.0f;
    }
};

template <int MAX> struct sl_head_rope {
    static constexpr int PER = MAX / 64;
    float c[PER], s[PER];
    uint32_t n_freq;
    bool neox;

    /* table: the row's [n_freq][2]. n 0: no rope. */
    __device__ __forceinline__ void fetch(const float *table, uint32_t n, bool is_neox) {
        uint32_t lane = threadIdx.x % SL_WARP;
        n_freq = n, neox = is_neox;
#pragma unroll
        for (int j = 0; j < PER; j++) {
            uint32_t i = lane + SL_WARP * (uint32_t)j;
            float2 cs = i < n ? ((const float2 *)table)[i] : make_float2(1, 0);
            c[j] = cs.x, s[j] = cs.y;
        }
    }
};

template <int MAX> struct sl_head {
    static constexpr int PER = MAX / SL_WARP;
    float v[PER];

    __device__ __forceinline__ void fetch(const float *from, uint32_t dim) {
        uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
        for (int j = 0; j < PER; j++)
            v[j] = lane + SL_WARP * (uint32_t)j < dim ? from[lane + SL_WARP * j] : 0.0f;
    }
    /* As it is to x [dim] in shared memory; what is beyond dim becomes zeros up to MAX. */
    __device__ __forceinline__ void put(float *x) const {
        uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
        for (int j = 0; j < PER; j++)
            x[lane + SL_WARP * j] = v[j];
        __syncwarp();
    }
    __device__ __forceinline__ void norm(const struct sl_head_norm<MAX> &by, uint32_t dim) {
        float sum = 0;
        if (by.eps < 0)
            return;
#pragma unroll
        for (int j = 0; j < PER; j++)
            sum = fmaf(v[j], v[j], sum);
        float inv = 1.0f / sqrtf(sl_warp_sum(sum) / (float)dim + by.eps);
#pragma unroll
        for (int j = 0; j < PER; j++)
            v[j] = by.has_w ? v[j] * inv * by.by[j] : v[j] * inv;
    }
    __device__ __forceinline__ static void turn(float *x, const struct sl_head_rope<MAX> &by) {
        uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
        for (int j = 0; j < sl_head_rope<MAX>::PER; j++) {
            uint32_t i = lane + SL_WARP * (uint32_t)j;
            if (i >= by.n_freq)
                break;
            uint32_t at = by.neox ? i : 2 * i, other = by.neox ? i + by.n_freq : 2 * i + 1;
            float e = x[at], f = x[other];
            x[at] = fmaf(e, by.c[j], -(f * by.s[j]));
            x[other] = fmaf(e, by.s[j], f * by.c[j]);
        }
        __syncwarp();
    }
};

/* Head h of K or of V of one row to its place in the cache, by one warp. */
__device__ __forceinline__ void sl_kv_write_slot(const struct sl_karg_kv &kv, uint32_t slot,
                                                 uint32_t h, bool is_v, const float *x) {
    uint32_t dim = is_v ? kv.dim_v : kv.dim_k, row_bytes = kv.q8 ? dim / 32 * 34 : dim * 2;
    uint8_t *page = is_v ? (uint8_t *)kv.v + slot / 64 * kv.v_page_bytes
                         : (uint8_t *)kv.k + slot / 64 * kv.k_page_bytes;
    sl_kv_write_head(x, page + ((size_t)h * 64 + slot % 64) * row_bytes, dim, kv.q8,
                     threadIdx.x % SL_WARP, 32);
}

#endif
