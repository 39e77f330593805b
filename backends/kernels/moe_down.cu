/* Decode: the down products of all experts of a row, and their weighted sum in router order. */
#include "backends/kernels/moe.cuh"
#include "backends/kernels/vec.cuh"

template <int T> __device__ __forceinline__ void moe_down(const struct sl_karg_moe &a) {
    using vec = sl_vec<T>;
    constexpr uint32_t PIECES = SL_MOE_DOWN_ROWS / vec::GROUP; /* groups of one expert */
    extern __shared__ uint4 shared[];
    __shared__ float carry[1][32], product[SL_MOE_DOWN_MAX_K][SL_MOE_DOWN_ROWS];
    __shared__ const uint8_t *down[SL_MOE_DOWN_MAX_K];
    uint32_t tok = blockIdx.y, begin = blockIdx.x * SL_MOE_DOWN_ROWS, n_groups = a.k * PIECES;
    uint32_t row_bytes = vec::row_bytes(a.n_in);
    /* Groups go through the experts first, so that one after the other has all warps at work. The
     * multiplication divides by k, which is at most 16, and groups fewer than 128. */
    auto piece = [&](uint32_t group) { return group * a.k_inverse >> 16; };
    auto row = [&](uint32_t group, uint32_t r) {
        uint32_t p = piece(group), o = begin + p * vec::GROUP + r;
        return down[group - p * a.k] + (size_t)min(o, a.n_out - 1) * row_bytes;
    };
    /* The choice was made two kernels ago and the kernel before this one has seen it, so its experts
     * are very likely in place. What is begun with them is dropped if they turn out to be others. */
    const uint8_t *mine = NULL;
    if (threadIdx.x < a.k) {
        uint32_t id = *(volatile const uint32_t *)&a.ids[tok * a.k + threadIdx.x];
        down[threadIdx.x] = mine = (const uint8_t *)a.refs[min(id, a.n_expert - 1)].down;
    }
    bool begun = __syncthreads_and(threadIdx.x >= a.k || mine);
    vec v(a.n_in);
    typename vec::item it;
    if (begun)
        v.fetch_first(it, 0, n_groups, row);
    sl_grid_begin();
    const uint8_t *now = mine;
    if (threadIdx.x < a.k)
        now = (const uint8_t *)a.refs[a.ids[tok * a.k + threadIdx.x]].down;
    begun = __syncthreads_and(begun && now == mine);
    if (!begun) {
        if (threadIdx.x < a.k)
            down[threadIdx.x] = now;
        __syncthreads();
        v.fetch_first(it, 0, n_groups, row);
    }

    const float *h = a.h + (size_t)tok * a.k * a.n_in;
    v.load([&](uint32_t e) { return h + (size_t)e * a.n_in; }, a.k, shared);
    __syncthreads();
    v.run(
        0, n_groups, 1, carry, it, row,
        [&](uint32_t group, uint32_t) { return group - piece(group) * a.k; },
        [&](uint32_t group, uint32_t, uint32_t r, float total, bool valid) {
            uint32_t p = piece(group), e = group - p * a.k, in_block = p * vec::GROUP + r;
            uint32_t o = begin + in_block;
            if (!valid || o >= a.n_out)
                return;
            total = sl_moe_biased(
                a.expert.down_bias, [&] { return a.ids[tok * a.k + e]; }, a.n_out, o, total);
            product[e][in_block] = total;
            a.y[((size_t)tok * a.k + e) * a.n_out + o] = total;
        });
    __syncthreads();
    uint32_t o = begin + threadIdx.x;
    if (threadIdx.x >= SL_MOE_DOWN_ROWS || o >= a.n_out)
        return;
    float y = a.sum_y[(size_t)tok * a.n_out + o];
    for (uint32_t e = 0; e < a.k; e++)
        y = fmaf(product[e][threadIdx.x], a.weights[tok * a.k + e], y);
    a.sum_y[(size_t)tok * a.n_out + o] = y;
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS, SL_MOE_VEC_BLOCKS)                                \
        sl_k_moe_down_##NAME(SL_KERNEL_ARGS(sl_karg_moe, a)) {                                     \
        moe_down<SL_DTYPE_##NAME>(a);                                                              \
    }
SL_QUANT_TYPES(KERNEL)
SL_FLOAT_TYPES(KERNEL)
