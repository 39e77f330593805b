/* Routers that choose among the experts of their best groups, or whose experts share ids. Kernels
 * of their own: the plain ones have neither the registers nor the shared memory of this. */
#ifndef SL_BACKENDS_KERNELS_GROUPS_CUH
#define SL_BACKENDS_KERNELS_GROUPS_CUH

#include "backends/kernels/router.cuh"

struct sl_groups {
    static constexpr bool ANY = true, SHARED_IDS = false;
    uint32_t n, n_used, length; /* groups, those that are kept, experts in each */
    float *key, *good;          /* shared: [n * length], and [n] for what each group comes to */

    __device__ __forceinline__ int id(int expert) const { return expert; }

    /* Makes the keys of all groups but the n_used best -infinity; one warp. Keys are not NaN.
     * 32 >> shift groups at a time, each by a run of 1 << shift lanes. */
    __device__ __forceinline__ void keep(uint32_t lane) const {
        uint32_t shift = n > 16 ? 0 : (uint32_t)__clz((int)(n - 1)) - 27;
        uint32_t lanes = 1u << shift, sub = lane & (lanes - 1);
        for (uint32_t begin = 0; begin < n; begin += SL_WARP >> shift) {
            uint32_t g = begin + (lane >> shift);
            float first = -INFINITY, second = -INFINITY;
            if (g < n)
                for (uint32_t i = sub; i < length; i += lanes) {
                    float v = key[g * length + i];
                    second = fmaxf(second, fminf(first, v));
                    first = fmaxf(first, v);
                }
            for (uint32_t m = 1; m < lanes; m *= 2) {
                float other = sl_shfl_xor(first, (int)m);
                second = fmaxf(fmaxf(second, sl_shfl_xor(second, (int)m)), fminf(first, other));
                first = fmaxf(first, other);
            }
            float sum = first + second; /* of infinities it may be NaN */
            if (g < n && sub == 0)
                good[g] = sum == sum ? sum : -INFINITY;
        }
        __syncwarp();
        for (uint32_t begin = 0; begin < n; begin += SL_WARP >> shift) {
            uint32_t g = begin + (lane >> shift), before = 0;
            if (g >= n)
                continue;
            float mine = good[g];
            for (uint32_t h = 0; h < n; h++)
                before += sl_before(good[h], (int)h, mine, (int)g);
            if (before >= n_used)
                for (uint32_t i = sub; i < length; i += lanes)
                    key[g * length + i] = -INFINITY;
        }
        __syncwarp();
    }
};

/* The same, and `share` experts in a row have one id. */
struct sl_shared_ids : sl_groups {
    static constexpr bool SHARED_IDS = true;
    uint32_t share;
    __device__ __forceinline__ int id(int expert) const { return (int)((uint32_t)expert / share); }
};

/* Row t by a block of THREADS. */
template <int THREADS>
__device__ __forceinline__ void sl_route_groups(const struct sl_karg_router &a,
                                                const struct sl_karg_groups &of, size_t t) {
    __shared__ float key[SL_TOP_FEW], good[SL_MAX_EXPERTS / 2];
    struct sl_groups groups = {of.n, of.n_used, a.n_expert / of.n, key, good};
    sl_route_row<THREADS>(a, t, groups);
}
template <int THREADS>
__device__ __forceinline__ void sl_route_shared(const struct sl_karg_router_share &a, size_t t) {
    __shared__ float key[SL_TOP_FEW], good[SL_MAX_EXPERTS / 2];
    struct sl_shared_ids ids;
    ids.n = a.groups.n;
    ids.n_used = a.groups.n_used;
    ids.length = a.router.n_expert / a.groups.n;
    ids.key = key;
    ids.good = good;
    ids.share = a.share;
    sl_route_row<THREADS>(a.router, t, ids);
}

#endif
