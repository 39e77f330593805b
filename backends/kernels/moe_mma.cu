/* Decode: experts of a few generated rows, on tensor cores. */
#include "backends/kernels/mma_vec.cuh"
#include "backends/kernels/moe.cuh"

/* The listed pairs that want the expert of pair i; none if another block does them. */
__device__ __forceinline__ uint32_t gather(const struct sl_karg_moe &a, uint32_t i, uint32_t id,
                                           uint32_t *list) {
    uint32_t lane = threadIdx.x % SL_WARP;
    uint64_t all = 0;
    uint32_t same[2];
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t j = lane + SL_WARP * h, pair = j < a.n_pairs ? a.pairs ? a.pairs[j] : j : 0;
        same[h] = j < a.n_pairs && pair >= a.tok_begin * a.k && pair < a.tok_end * a.k &&
                  a.ids[pair] == id;
        all |= (uint64_t)sl_ballot(same[h]) << (SL_WARP * h);
    }
    uint32_t before = __popcll(all & ((1ull << i) - 1));
    if (before % SL_VEC_MAX_TOK || !(all >> i & 1))
        return 0;
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t j = lane + SL_WARP * h, at = __popcll(all & ((1ull << j) - 1)) - before;
        if (same[h] && at < SL_VEC_MAX_TOK)
            list[at] = j;
    }
    return min(SL_VEC_MAX_TOK, (uint32_t)__popcll(all) - before);
}

/* The pairs of tile i, and their expert. */
__device__ __forceinline__ uint32_t sorted(const struct sl_karg_moe &a, uint32_t i, uint32_t *id,
                                           uint32_t *list) {
    if (i >= *a.n_tiles)
        return 0;
    const struct sl_karg_tile tile = a.tiles[i];
    uint32_t lane = threadIdx.x % SL_WARP;
    if (lane < tile.n)
        list[lane] = a.order[tile.begin + lane];
    *id = tile.expert;
    return tile.n;
}

template <int T> __device__ __forceinline__ void moe_mma(const struct sl_karg_moe &a) {
    extern __shared__ uint4 shared[];
    __shared__ uint32_t list[SL_VEC_MAX_TOK];
    sl_grid_begin();
    uint32_t i = blockIdx.x, id, n;
    if (a.tiles) {
        n = sorted(a, i, &id, list); /* every warp writes the same */
    } else {
        id = a.ids[a.pairs ? a.pairs[i] : i];
        n = gather(a, i, id, list);
    }
    if (!n)
        return;
    const struct sl_karg_ref ref = a.refs[id];
    bool both = a.mode == SL_MOE_GATE_UP, down = a.mode == SL_MOE_DOWN;
    const uint8_t *w0 = (const uint8_t *)(down                  ? ref.down
                                          : a.mode == SL_MOE_UP ? ref.up
                                                                : ref.gate);
    const uint8_t *w1 = (const uint8_t *)ref.up;
    /* Eight rows of gate and the same of up, or 16 rows of one matrix. */
    uint32_t rows = both ? SL_MMA_TILE / 2 : SL_MMA_TILE;
    typename sl_mma_vec<T>::tiles tiles(
        a.n_in / 256, a.n_out, rows, blockIdx.y * a.rows_per_block / rows, a.rows_per_block / rows);
    sl_mma_vec<T> v;
    v.begin(shared, a.slots, w0, both ? w1 : w0 + 8 * tiles.row_bytes, tiles);
    __syncthreads();

    struct sl_mma_in in((char *)shared + a.in_at, a.n_in);
    in.quantize(
        [&](uint32_t col) {
            uint32_t j = list[col];
            return down ? a.h + (size_t)j * a.n_in
                        : a.x + (size_t)((a.pairs ? a.pairs[j] : j) / a.k) * a.n_in;
        },
        n);
    __syncthreads();
    v.run(in, n, [&](uint32_t tile, const float(&total)[4]) {
        uint32_t lane = threadIdx.x % SL_WARP, o = tile * rows + lane / 4;
        const struct sl_karg_experts &of = a.expert;
        auto expert = [&] { return id; };
#pragma unroll
        for (int c = 0; c < 2; c++) {
            uint32_t col = lane % 4 * 2 + (uint32_t)c;
            if (col >= n)
                continue;
            uint32_t j = list[col];
            if (both) {
                a.h[(size_t)j * a.n_out + o] =
                    sl_moe_gated(of, expert, a.n_out, o, total[c], total[2 + c]);
                continue;
            }
#pragma unroll
            for (uint32_t r = 0; r < 2; r++) {
                const float *bias = down                    ? of.down_bias
                                    : a.mode == SL_MOE_GATE ? of.gate_bias
                                                            : of.up_bias;
                float *h = a.h + (size_t)j * a.n_out + o + 8 * r;
                float sum = sl_moe_biased(bias, expert, a.n_out, o + 8 * r, total[2 * r + c]);
                if (down)
                    a.y[(size_t)(a.pairs ? a.pairs[j] : j) * a.n_out + o + 8 * r] = sum;
                else
                    *h =
                        a.mode == SL_MOE_GATE ? sum : sl_moe_activated(of, sl_moe_gate(of, h), sum);
            }
        }
    });
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_MMA_THREADS, SL_MMA_BLOCKS)                    \
        sl_k_moe_mma_##NAME(SL_KERNEL_ARGS(sl_karg_moe, a)) {                                      \
        moe_mma<SL_DTYPE_##NAME>(a);                                                               \
    }
KERNEL(Q4_K)
KERNEL(Q5_K)
KERNEL(Q6_K)
