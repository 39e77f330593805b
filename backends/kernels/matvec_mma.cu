/* Decode: a few generated rows times weights, on tensor cores. */
#include "backends/kernels/mma_q8.cuh"
#include "backends/kernels/mma_vec.cuh"

/* What a block of threads takes: of which weight tiles from `first` on, which input rows. */
struct part {
    struct sl_karg_mat mat;
    uint32_t first, n_tiles, tok, n;

    __device__ __forceinline__ explicit part(const struct sl_karg_matvec_mma &a) {
        uint32_t m = 0;
        for (uint32_t i = 1; i < a.n_mat; i++)
            m = blockIdx.x >= a.first[i] ? i : m;
        mat = a.mat[m];
        n_tiles = a.rows_per_block / SL_MMA_TILE;
        first = (blockIdx.x - a.first[m]) * n_tiles;
        tok = blockIdx.y * a.tok_per_block, n = min(a.tok_per_block, a.n_tok - tok);
    }
    /* The lane's products of the tile that begins with row `from`, without its first `skip` rows.
     */
    __device__ __forceinline__ void put(uint32_t from, uint32_t skip,
                                        const float (&total)[4]) const {
        uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t t = lane % 4 * 2 + i % 2, row = lane / 4 + i / 2 * 8, o = from + row;
            if (t >= n || row < skip)
                continue;
            float *y = mat.y + (size_t)(tok + t) * mat.n_out + o, sum = total[i];
            if (mat.bias)
                sum = sum + mat.bias[o];
            *y = mat.add ? *y + sum : sum;
        }
    }
};

template <int T> __device__ __forceinline__ void matvec_mma(const struct sl_karg_matvec_mma &a) {
    extern __shared__ uint4 shared[];
    const struct part part(a);
    typename sl_mma_vec<T>::tiles tiles(a.n_in / 256, part.mat.n_out, SL_MMA_TILE, part.first,
                                        part.n_tiles);
    const uint8_t *w = (const uint8_t *)part.mat.w;
    /* Weights are nobody's output: they are on their way before the input is there. */
    sl_mma_vec<T> v;
    v.begin(shared, a.slots, w, w + 8 * tiles.row_bytes, tiles);
    sl_grid_begin();

    struct sl_mma_in in((char *)shared + a.in_at, a.n_in);
    in.copy(a.qx, part.tok, part.n);
    __syncthreads();
    v.run(in, part.n,
          [&](uint32_t tile, const float(&total)[4]) { part.put(tile * SL_MMA_TILE, 0, total); });
}

template <>
__device__ __forceinline__ void matvec_mma<SL_DTYPE_Q8_0>(const struct sl_karg_matvec_mma &a) {
    extern __shared__ uint4 shared[];
    const struct part part(a);
    struct sl_mma_q8 v;
    v.begin(shared, a.slots, a.log_split, (const uint8_t *)part.mat.w, a.n_in, part.mat.n_out,
            part.first, part.n_tiles);
    sl_grid_begin();

    struct sl_mma_in32 in((char *)shared + a.in_at, a.n_in);
    in.copy(a.qx, part.tok, part.n);
    __syncthreads();
    auto put = [&](uint32_t row, uint32_t skip, const float(&total)[4]) {
        part.put(row, skip, total);
    };
    if (a.log_split)
        v.run<true>(in, part.n, put);
    else
        v.run<false>(in, part.n, put);
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_MMA_THREADS, SL_MMA_BLOCKS)                    \
        sl_k_matvec_mma_##NAME(SL_KERNEL_ARGS(sl_karg_matvec_mma, a)) {                            \
        matvec_mma<SL_DTYPE_##NAME>(a);                                                            \
    }
KERNEL(Q4_K)
KERNEL(Q5_K)
KERNEL(Q6_K)
KERNEL(Q8_0)
