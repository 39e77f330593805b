/* What graphs put in the place of several ops (backends/fuse.c): the same bits, fewer
 * launches. */
#include "backends/kernels/groups.cuh"
#include "backends/kernels/heads.cuh"
#include "backends/kernels/vec.cuh"

/* The F32 matrix of sl_vec_float: a warp a group of GROUP rows, so eight warps take 16; here eight
 * warps have one row each, read before the input is there.
 * WIDE: rows of more than 2048 and logits with a bias. Both cost the others registers and
 * instructions, so these have a kernel of their own. x: n_in floats of shared memory. choose(row):
 * the block that has all of a row's logits chooses by it. */
template <bool WIDE, class CHOOSE>
__device__ __forceinline__ void fused_route(const struct sl_karg_route &a, float *x,
                                            CHOOSE choose) {
    __shared__ bool last;
    constexpr int AHEAD = 8; /* rounds of 256 elements in registers */
    static_assert(AHEAD * 256 == SL_ROUTE_NARROW, "what is not WIDE");
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, n = a.n_in;
    uint32_t e = blockIdx.x * SL_ROUTE_EXPERTS + warp, row = blockIdx.y;
    bool mine = e < a.router.n_expert;
    const uint8_t *w = (const uint8_t *)(a.w + (size_t)(mine ? e : 0) * n);
    float ahead[AHEAD][8];
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
        if (lane * 8 + (uint32_t)j * 256 + 8 <= n)
            sl_vec_float<SL_DTYPE_F32>::load8(w + (lane * 8 + (size_t)j * 256) * 4, ahead[j]);
    if constexpr (WIDE) /* what is read last */
        for (uint32_t at = AHEAD * 256 + lane * 8; at < n; at += 256)
            sl_prefetch(w + (size_t)at * 4);
    struct sl_vec_norm_of<WIDE ? 12 : 8> norm;
    norm.fetch(a.norm, n);
    sl_grid_begin();

    norm.run(a.norm, a.x + (size_t)row * n, n, x,
             blockIdx.x == 0 ? a.norm.y + (size_t)row * n : NULL);
    float sum = 0;
    uint32_t i = lane * 8;
#pragma unroll
    for (int j = 0; j < AHEAD; j++, i += 256)
        if (i + 8 <= n) {
            float4 lo = *(const float4 *)(x + i), hi = *(const float4 *)(x + i + 4);
            float in[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
            for (int c = 0; c < 8; c++)
                sum = fmaf(ahead[j][c], in[c], sum);
        } else {
            break;
        }
    auto more = [&](uint32_t at) {
        float of[8];
        sl_vec_float<SL_DTYPE_F32>::load8(w + (size_t)at * 4, of);
#pragma unroll
        for (int c = 0; c < 8; c++)
            sum = fmaf(of[c], x[at + (uint32_t)c], sum);
    };
    if constexpr (WIDE)
#pragma unroll 4
        for (; i + 8 <= n; i += 256)
            more(i);
    else
        for (; i + 8 <= n; i += 256)
            more(i);
    for (; i < n; i++)
        sum = fmaf(((const float *)w)[i], x[i], sum);
    sum = sl_warp_sum(sum);
    if (mine && lane == 0) {
        if constexpr (WIDE)
            sum = a.logit_bias ? sum + a.logit_bias[e] : sum;
        ((float *)a.router.logits)[(size_t)row * a.router.n_expert + e] = sum;
    }
    /* Whose count completes the row has all of its logits before it. */
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence(); /* the whole block's, which the barrier has brought here */
        last = atomicAdd(&a.done[row], 1u) == gridDim.x - 1;
        if (last)
            a.done[row] = 0;
        __threadfence();
    }
    __syncthreads();
    if (!last)
        return;
    choose(row);
}

extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS)
    sl_k_fused_route(SL_KERNEL_ARGS(sl_karg_route, a)) {
    extern __shared__ uint4 shared[];
    fused_route<false>(a, (float *)shared,
                       [&](uint32_t row) { sl_route_row<SL_VEC_THREADS>(a.router, row); });
}
extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS)
    sl_k_fused_route_wide(SL_KERNEL_ARGS(sl_karg_route, a)) {
    extern __shared__ uint4 shared[];
    fused_route<true>(a, (float *)shared,
                      [&](uint32_t row) { sl_route_row<SL_VEC_THREADS>(a.router, row); });
}
extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS)
    sl_k_fused_route_groups(SL_KERNEL_ARGS(sl_karg_route_groups, a)) {
    extern __shared__ uint4 shared[];
    fused_route<true>(a.route, (float *)shared, [&](uint32_t row) {
        sl_route_groups<SL_VEC_THREADS>(a.route.router, a.groups, row);
    });
}

/* Norm of one head, then rope, then back and to the cache. */
extern "C" __global__ void __launch_bounds__(128) sl_k_fused_qkv(SL_KERNEL_ARGS(sl_karg_qkv, a)) {
    constexpr int MAX = SL_QKV_MAX_DIM;
    __shared__ float heads[4][MAX];
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, n_kv = a.kv.n_kv_heads;
    uint32_t head = blockIdx.x * 4 + warp;
    size_t t = blockIdx.y;
    if (head >= a.n_heads + 2 * n_kv) {
        sl_grid_begin();
        return;
    }
    bool is_q = head < a.n_heads, is_v = head >= a.n_heads + n_kv;
    uint32_t h = is_q ? head : is_v ? head - a.n_heads - n_kv : head - a.n_heads;
    uint32_t dim = is_v ? a.kv.dim_v : a.dim;
    float *x = heads[warp];
    float *at = is_q ? a.q + (t * a.n_heads + h) * dim : a.k + (t * n_kv + h) * dim;
    /* Weights, and the slot, which no kernel writes, before the grid's wait; all else at once. */
    struct sl_head_norm<MAX> norm;
    norm.fetch(is_q ? a.q_norm : a.k_norm, is_v ? -1.0f : is_q ? a.q_eps : a.k_eps, dim);
    uint32_t slot = is_q ? 0 : a.slot[t];
    sl_grid_begin();
    struct sl_head<MAX> v;
    struct sl_head_rope<MAX> rope;
    v.fetch(is_v ? a.v + t * a.stride_v + (size_t)h * dim : at, dim);
    rope.fetch(a.table + t * a.n_freq * 2, is_v ? 0 : a.n_freq, a.neox);
    v.norm(norm, dim);
    v.put(x);
    if (!is_v) {
        v.turn(x, rope);
        for (uint32_t i = lane; i < dim; i += SL_WARP)
            at[i] = x[i];
    }
    if (!is_q)
        sl_kv_write_slot(a.kv, slot, h, is_v, x);
}

/* A normed row in shared memory. */
template <bool BLOCK32>
__device__ __forceinline__ void quantize_row(const float *x, uint32_t n, size_t row,
                                             const struct sl_karg_qx &to) {
    uint32_t lane = threadIdx.x % SL_WARP;
    for (uint32_t g = threadIdx.x / SL_WARP; g < n / 256; g += SL_MATVEC_WARPS) {
        struct sl_quantized v;
        sl_quantize_group<BLOCK32>(x, n, g, lane, v);
        sl_quantized_put<BLOCK32>(to, row * (n / 256) + g, lane, v);
    }
}

extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS)
    sl_k_fused_norm_quantize(SL_KERNEL_ARGS(sl_karg_norm_quantize, a)) {
    extern __shared__ uint4 shared[];
    float *x = (float *)shared;
    uint32_t n = a.n_in;
    size_t row = blockIdx.x;
    struct sl_vec_norm norm;
    norm.fetch(a.norm, n);
    sl_grid_begin();
    norm.run(a.norm, a.x + row * n, n, x, a.norm.y + row * n);
    if (a.block32)
        quantize_row<true>(x, n, row, a.to);
    else
        quantize_row<false>(x, n, row, a.to);
}
