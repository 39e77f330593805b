/* Decode: gate, up or down products of single (row, expert) pairs. */
#include "backends/kernels/moe.cuh"
#include "backends/kernels/vec.cuh"

template <int T> __device__ __forceinline__ void moe_vec(const struct sl_karg_moe &a) {
    using vec = sl_vec<T>;
    extern __shared__ uint4 shared[];
    __shared__ float carry[1][32];
    sl_grid_begin();
    uint32_t lane = threadIdx.x % SL_WARP;
    uint32_t i = blockIdx.y, pair = a.n_placed ? a.placed[i].pair : a.pairs ? a.pairs[i] : i;
    uint32_t tok = pair / a.k;
    if (tok < a.tok_begin || tok >= a.tok_end)
        return;
    const struct sl_karg_ref ref = a.n_placed ? a.placed[i].ref : a.refs[a.ids[pair]];
    bool both = a.mode == SL_MOE_GATE_UP, down = a.mode == SL_MOE_DOWN;
    const uint8_t *w0 = (const uint8_t *)(down                  ? ref.down
                                          : a.mode == SL_MOE_UP ? ref.up
                                                                : ref.gate);
    const uint8_t *w1 = both ? (const uint8_t *)ref.up : w0;
    /* A group is half of gate and the same half of up, or rows of one matrix. */
    constexpr uint32_t HALF = vec::GROUP / 2;
    uint32_t rows = both ? HALF : vec::GROUP, shift = both ? 0 : HALF;
    uint32_t begin = blockIdx.x * a.rows_per_block;
    uint32_t end = min(begin + a.rows_per_block, a.n_out);
    uint32_t g0 = begin / rows, g1 = (end + rows - 1) / rows;
    uint32_t row_bytes = vec::row_bytes(a.n_in);
    auto row = [&](uint32_t group, uint32_t r) {
        uint32_t o = group * rows + (r < HALF ? r : r - HALF + shift);
        return (r < HALF ? w0 : w1) + (size_t)min(o, a.n_out - 1) * row_bytes;
    };
    vec v(a.n_in);
    typename vec::item it;
    v.fetch_first(it, g0, g1, row);

    const float *x = down ? a.h + (size_t)i * a.n_in : a.x + (size_t)tok * a.n_in;
    v.load([&](uint32_t) { return x; }, 1, shared);
    __syncthreads();
    float *h = a.h + (size_t)i * a.n_out, *y = a.y + (size_t)pair * a.n_out;
    auto expert = [&] { return a.ids[pair]; };
    v.run(
        g0, g1, 1, carry, it, row, [](uint32_t, uint32_t) { return 0u; },
        [&](uint32_t group, uint32_t, uint32_t r, float total, bool valid) {
            float other = sl_shfl(total, (int)(lane + HALF) & (SL_WARP - 1));
            uint32_t o = group * rows + r;
            if (!valid || r >= rows || o >= end)
                return;
            const struct sl_karg_experts &of = a.expert;
            if (both)
                h[o] = sl_moe_gated(of, expert, a.n_out, o, total, other);
            else if (a.mode == SL_MOE_GATE)
                h[o] = sl_moe_biased(of.gate_bias, expert, a.n_out, o, total);
            else if (a.mode == SL_MOE_UP)
                h[o] = sl_moe_activated(of, sl_moe_gate(of, h + o),
                                        sl_moe_biased(of.up_bias, expert, a.n_out, o, total));
            else
                y[o] = sl_moe_biased(of.down_bias, expert, a.n_out, o, total);
        });
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS, SL_MOE_VEC_BLOCKS)                \
        sl_k_moe_vec_##NAME(SL_KERNEL_ARGS(sl_karg_moe, a)) {                                      \
        moe_vec<SL_DTYPE_##NAME>(a);                                                               \
    }
SL_QUANT_TYPES(KERNEL)
SL_FLOAT_TYPES(KERNEL)
