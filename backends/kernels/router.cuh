/* Choosing experts, and what blocks do together. */
#ifndef SL_BACKENDS_KERNELS_ROUTER_CUH
#define SL_BACKENDS_KERNELS_ROUTER_CUH

#include "backends/kernels/device.cuh"
#include "common/limits.h"

/* Sum over a block of whole warps; every thread gets the same bits. shared: 32 floats. */
__device__ __forceinline__ float sl_block_sum(float v, float *shared) {
    v = sl_warp_sum(v);
    if (threadIdx.x % SL_WARP == 0)
        shared[threadIdx.x / SL_WARP] = v;
    __syncthreads();
    v = 0;
    for (uint32_t i = 0; i < blockDim.x / SL_WARP; i++)
        v += shared[i];
    __syncthreads();
    return v;
}
__device__ __forceinline__ float sl_block_max(float v, float *shared) {
    v = sl_warp_max(v);
    if (threadIdx.x % SL_WARP == 0)
        shared[threadIdx.x / SL_WARP] = v;
    __syncthreads();
    for (uint32_t i = 0; i < blockDim.x / SL_WARP; i++)
        v = fmaxf(v, shared[i]);
    __syncthreads();
    return v;
}

/* Larger first, then the lower index. */
__device__ __forceinline__ bool sl_before(float v, int i, float w, int j) {
    return v > w || (v == w && i < j);
}

/* chosen[r] = the index of the r-th of n keys, r < k; many keys: k rounds of taking the largest. */
template <int THREADS>
__device__ __forceinline__ void sl_top_rounds(const float *key, uint32_t n, uint32_t k,
                                              int *chosen) {
    __shared__ float best_key[THREADS / SL_WARP];
    __shared__ int best_id[THREADS / SL_WARP];
    uint32_t lane = threadIdx.x % SL_WARP, warp = threadIdx.x / SL_WARP;
    /* Each thread keeps its best of those that are left; only the winner looks again. */
    float mine = -INFINITY;
    int id = INT32_MAX;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        if (id == INT32_MAX || sl_before(key[i], (int)i, mine, id))
            mine = key[i], id = (int)i;
    for (uint32_t r = 0; r < k; r++) {
        float v = mine;
        int at = id;
#pragma unroll
        for (int m = SL_WARP / 2; m; m /= 2) {
            float w = sl_shfl_xor(v, m);
            int j = sl_shfl_xor(at, m);
            if (sl_before(w, j, v, at))
                v = w, at = j;
        }
        if (lane == 0)
            best_key[warp] = v, best_id[warp] = at;
        __syncthreads();
        v = best_key[0], at = best_id[0];
        for (int i = 1; i < THREADS / SL_WARP; i++)
            if (sl_before(best_key[i], best_id[i], v, at))
                v = best_key[i], at = best_id[i];
        if (threadIdx.x == 0)
            chosen[r] = at;
        if (id == at) {
            /* The next of this thread's own behind the one just taken. */
            float next = -INFINITY;
            int next_id = INT32_MAX;
            for (uint32_t i = threadIdx.x; i < n; i += THREADS)
                if (sl_before(v, at, key[i], (int)i) &&
                    (next_id == INT32_MAX || sl_before(key[i], (int)i, next, next_id)))
                    next = key[i], next_id = (int)i;
            mine = next, id = next_id;
        }
        __syncthreads();
    }
}

/* The same for few keys: each thread counts those before its own. */
template <int THREADS>
__device__ __forceinline__ void sl_top_ranks(const float *key, uint32_t n, uint32_t k,
                                             int *chosen) {
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        float mine = key[i];
        uint32_t rank = 0;
#pragma unroll 8
        for (uint32_t j = 0; j < n; j++)
            rank += sl_before(key[j], (int)j, mine, (int)i);
        if (rank < k)
            chosen[rank] = (int)i;
    }
    __syncthreads();
}

#define SL_TOP_FEW 256u

/* Divides k weights by their sum, taken in ascending order; unless_zero: not by 0. One warp. */
__device__ __forceinline__ void sl_share_out(float *weight, uint32_t k, uint32_t lane,
                                             bool unless_zero) {
    float total = 0;
    for (uint32_t r = 0; r < k; r++)
        total += weight[r];
    __syncwarp();
    if (!unless_zero || total != 0)
        for (uint32_t r = lane; r < k; r += SL_WARP)
            weight[r] /= total;
    __syncwarp();
}

/* Integers in the order of the numbers, -0 as 0 and NaN as -infinity. */
__device__ __forceinline__ int sl_ordered(float v) {
    int bits = __float_as_int(v == v ? v + 0.0f : -INFINITY);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ __forceinline__ float sl_of_ordered(int v) {
    return __int_as_float(v ^ (v >> 31 & 0x7fffffff));
}

#define SL_TOP_WARP 16u /* choices that one warp makes */

/* What keeps keys back before the choice, and the id of an expert that is chosen: nothing, and its
 * own. Others: groups.cuh. */
struct sl_no_groups {
    static constexpr bool ANY = false, SHARED_IDS = false;
    __device__ __forceinline__ int id(int expert) const { return expert; }
};

/* Row t, by one warp: lane l has experts l + 32 j, j < PER; k at most SL_TOP_WARP. No barriers, and
 * what else the definition adds up in order is added in that order. weight: [SL_TOP_WARP] in shared
 * memory. */
template <int PER, class GROUPS>
__device__ __forceinline__ void sl_route_warp(const struct sl_karg_router &a, size_t t,
                                              float *weight, const GROUPS &groups) {
    uint32_t lane = threadIdx.x % SL_WARP, n = a.n_expert;
    const float *x = a.logits + t * n;
    float score[PER];
    int key[PER];
#pragma unroll
    for (int j = 0; j < PER; j++)
        score[j] = lane + SL_WARP * (uint32_t)j < n ? __ldcg(x + lane + SL_WARP * j) : -INFINITY;
    if (a.sigmoid && !a.softmax_topk) {
#pragma unroll
        for (int j = 0; j < PER; j++)
            score[j] = sl_dev_sigmoid(score[j]);
    } else if (!a.softmax_topk) {
        int most = sl_ordered(-INFINITY);
#pragma unroll
        for (int j = 0; j < PER; j++)
            most = max(most, sl_ordered(score[j]));
        float max = sl_of_ordered(sl_warp_max_int(most)), sum = 0;
        /* Partial sum i % 16 in ascending order, then a tree. */
#pragma unroll
        for (int j = 0; j < PER; j++) {
            score[j] = lane + SL_WARP * (uint32_t)j < n ? sl_dev_exp(score[j] - max) : 0.0f;
            sum += score[j];
            sum += sl_shfl(score[j], (int)(lane ^ 16));
        }
#pragma unroll
        for (int m = 8; m; m /= 2)
            sum += sl_shfl_xor(sum, m);
        sum = sl_shfl(sum, 0);
#pragma unroll
        for (int j = 0; j < PER; j++)
            score[j] = score[j] / sum;
    }
#pragma unroll
    for (int j = 0; j < PER; j++) {
        uint32_t i = lane + SL_WARP * (uint32_t)j;
        key[j] = i >= n ? INT32_MIN : sl_ordered(a.bias ? score[j] + a.bias[i] : score[j]);
    }
    if constexpr (GROUPS::ANY) {
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (lane + SL_WARP * (uint32_t)j < n)
                groups.key[lane + SL_WARP * j] = sl_of_ordered(key[j]);
        __syncwarp();
        groups.keep(lane);
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (lane + SL_WARP * (uint32_t)j < n)
                key[j] = sl_ordered(groups.key[lane + SL_WARP * j]);
    }
    int chosen = 0;
    for (uint32_t r = 0; r < a.k; r++) {
        int best = key[0], at = (int)lane;
#pragma unroll
        for (int j = 1; j < PER; j++)
            if (key[j] > best)
                best = key[j], at = (int)lane + SL_WARP * j;
        int top = sl_warp_max_int(best);
        at = -sl_warp_max_int(best == top ? -at : INT32_MIN);
        int id = groups.id(at);
        chosen = r == lane ? id : chosen;
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (at == (int)lane + SL_WARP * j) {
                if constexpr (!GROUPS::SHARED_IDS)
                    weight[r] = score[j];
                key[j] = INT32_MIN;
            }
        if constexpr (GROUPS::SHARED_IDS)
#pragma unroll
            for (int j = 0; j < PER; j++)
                if (id == (int)lane + SL_WARP * j)
                    weight[r] = score[j];
    }
    __syncwarp();
    float w = lane < a.k ? weight[lane] : 0.0f;
    auto total = [&] {
        float sum = 0;
#pragma unroll
        for (int r = 0; r < (int)SL_TOP_WARP; r++) {
            float v = sl_shfl(w, r);
            sum = (uint32_t)r < a.k ? sum + v : sum;
        }
        return sum;
    };
    if (a.softmax_topk && a.sigmoid) {
        w = sl_dev_sigmoid(w);
    } else if (a.softmax_topk) {
        w = sl_dev_exp(w - sl_of_ordered(sl_warp_max_int(sl_ordered(lane < a.k ? w : -INFINITY))));
        w = w / total();
    }
    if (a.normalize) {
        float sum = total();
        w = sum != 0 ? w / sum : w;
    }
    if (lane < a.k) {
        a.ids[t * a.k + lane] = (uint32_t)chosen;
        a.weights[t * a.k + lane] = w * a.scale;
    }
}

/* Row t, by a block of THREADS: scores, then the k largest. */
template <int THREADS, class GROUPS>
__device__ __forceinline__ void sl_route_block(const struct sl_karg_router &a, size_t t,
                                               GROUPS groups) {
    __shared__ float score[SL_MAX_EXPERTS], key[SL_MAX_EXPERTS], shared[32],
        weight[SL_MAX_EXPERTS_USED];
    __shared__ int chosen[SL_MAX_EXPERTS_USED];
    const float *x = a.logits + t * a.n_expert;
    uint32_t lane = threadIdx.x % SL_WARP, warp = threadIdx.x / SL_WARP;

    float max = -INFINITY, sum = 1;
    if (!a.sigmoid && !a.softmax_topk) {
        for (uint32_t i = threadIdx.x; i < a.n_expert; i += THREADS)
            max = x[i] > max ? x[i] : max;
        max = sl_block_max(max, shared);
        /* The sum in the definition's order: partial i % 16, then a tree. */
        for (uint32_t i = threadIdx.x; i < a.n_expert; i += THREADS)
            score[i] = sl_dev_exp(x[i] - max);
        __syncthreads();
        if (warp == 0) {
            float part = 0;
            if (lane < 16)
                for (uint32_t i = lane; i < a.n_expert; i += 16)
                    part += score[i];
#pragma unroll
            for (int m = 8; m; m /= 2)
                part += sl_shfl_xor(part, m);
            if (lane == 0)
                shared[0] = part;
        }
        __syncthreads();
        sum = shared[0];
    }
    for (uint32_t i = threadIdx.x; i < a.n_expert; i += THREADS) {
        float s = a.softmax_topk ? x[i] : a.sigmoid ? sl_dev_sigmoid(x[i]) : score[i] / sum;
        score[i] = s;
        float v = a.bias ? s + a.bias[i] : s;
        key[i] = v == v ? v : -INFINITY;
    }
    __syncthreads();
    if constexpr (GROUPS::ANY) {
        groups.key = key;
        if (warp == 0)
            groups.keep(lane);
        __syncthreads();
    }
    if (a.n_expert <= SL_TOP_FEW)
        sl_top_ranks<THREADS>(key, a.n_expert, a.k, chosen);
    else
        sl_top_rounds<THREADS>(key, a.n_expert, a.k, chosen);
    if (warp != 0)
        return;
    /* A lane a choice; sums go through all in the definition's order in every lane. */
    for (uint32_t r = lane; r < a.k; r += SL_WARP)
        weight[r] = score[groups.id(chosen[r])];
    __syncwarp();
    if (a.softmax_topk && a.sigmoid) {
        for (uint32_t r = lane; r < a.k; r += SL_WARP)
            weight[r] = sl_dev_sigmoid(weight[r]);
        __syncwarp();
    } else if (a.softmax_topk) {
        float top = -INFINITY;
        for (uint32_t r = 0; r < a.k; r++)
            top = weight[r] > top ? weight[r] : top;
        __syncwarp();
        for (uint32_t r = lane; r < a.k; r += SL_WARP)
            weight[r] = sl_dev_exp(weight[r] - top);
        __syncwarp();
        sl_share_out(weight, a.k, lane, false);
    }
    if (a.normalize)
        sl_share_out(weight, a.k, lane, true);
    for (uint32_t r = lane; r < a.k; r += SL_WARP) {
        a.ids[t * a.k + r] = (uint32_t)groups.id(chosen[r]);
        a.weights[t * a.k + r] = weight[r] * a.scale;
    }
}

/* Row t, by one warp of the block where that can. */
template <int THREADS, class GROUPS = sl_no_groups>
__device__ __forceinline__ void sl_route_row(const struct sl_karg_router &a, size_t t,
                                             const GROUPS &groups = GROUPS()) {
    __shared__ float weight[SL_TOP_WARP];
    if (a.n_expert > SL_TOP_FEW || a.k > SL_TOP_WARP) {
        sl_route_block<THREADS>(a, t, groups);
    } else if (threadIdx.x < SL_WARP) {
        if (a.n_expert <= 128)
            sl_route_warp<4>(a, t, weight, groups);
        else
            sl_route_warp<8>(a, t, weight, groups);
    }
}

#endif
