/* Decode: experts of single (row, expert) pairs. */
#include "backends/kernels/vec.cuh"

template <int T> __device__ __forceinline__ void moe_vec(const struct sl_karg_moe &a) {
    extern __shared__ uint4 shared[];
    __shared__ float2 stage[SL_MATVEC_WARPS][SL_VEC_STAGE];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t i = blockIdx.y, pair = a.pairs ? a.pairs[i] : i, tok = pair / a.k;
    if (tok < a.tok_begin || tok >= a.tok_end)
        return;
    const struct sl_karg_ref ref = a.refs[a.ids[pair]];
    bool both = a.mode == SL_MOE_GATE_UP, down = a.mode == SL_MOE_DOWN;
    const uint8_t *w0 = (const uint8_t *)(down                  ? ref.down
                                          : a.mode == SL_MOE_UP ? ref.up
                                                                : ref.gate);
    const uint8_t *w1 = both ? (const uint8_t *)ref.up : w0;
    /* Output rows of a warp: two of gate and the same two of up, or four of one matrix. */
    uint32_t step = both ? 2 : 4, shift = both ? 0 : 2;
    uint32_t begin = blockIdx.x * a.rows_per_block;
    uint32_t end = min(begin + a.rows_per_block, a.n_out);

    sl_vec<T> v;
    v.load(down ? a.h + (size_t)i * a.n_in : a.x + (size_t)tok * a.n_in, a.n_in, shared);
    __syncthreads();
    size_t row_bytes = sl_vec<T>::row_bytes(a.n_in);
    float *h = a.h + (size_t)i * a.n_out, *y = a.y + (size_t)pair * a.n_out;
    for (uint32_t r0 = begin + warp * step; r0 < end; r0 += SL_MATVEC_WARPS * step) {
        const uint8_t *row[4];
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            row[r] =
                (r < 2 ? w0 : w1) + min(r0 + (r < 2 ? r : r - 2 + shift), a.n_out - 1) * row_bytes;
        float total = v.dot(row, stage[warp]);
        float other = sl_shfl(total, (int)(lane + 2) & 31);
        uint32_t o = r0 + lane;
        if (lane >= step || o >= end)
            continue;
        if (both)
            h[o] = sl_dev_silu(total) * other;
        else if (a.mode == SL_MOE_GATE)
            h[o] = total;
        else if (a.mode == SL_MOE_UP)
            h[o] = sl_dev_silu(h[o]) * total;
        else
            y[o] = total;
    }
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_MATVEC_WARPS * 32)                             \
        sl_k_moe_vec_##NAME(SL_KERNEL_ARGS(sl_karg_moe, a)) {                                      \
        moe_vec<SL_DTYPE_##NAME>(a);                                                               \
    }
SL_QUANT_TYPES(KERNEL)
SL_FLOAT_TYPES(KERNEL)
