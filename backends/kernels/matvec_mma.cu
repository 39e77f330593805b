/* Decode: a few generated rows times weights, on tensor cores. */
#include "backends/kernels/mma_vec.cuh"

template <int T>
__device__ __forceinline__ void matvec_mma(const struct sl_karg_matvec_mma &a) {
    extern __shared__ uint4 shared[];
    uint32_t m = 0;
    for (uint32_t i = 1; i < a.n_mat; i++)
        m = blockIdx.x >= a.first[i] ? i : m;
    const struct sl_karg_mat mat = a.mat[m];
    uint32_t per_block = a.rows_per_block / SL_MMA_TILE;
    typename sl_mma_vec<T>::tiles tiles(a.n_in / 256, mat.n_out, SL_MMA_TILE,
                                        (blockIdx.x - a.first[m]) * per_block, per_block);
    uint32_t tok = blockIdx.y * a.tok_per_block, n = min(a.tok_per_block, a.n_tok - tok);
    const uint8_t *w = (const uint8_t *)mat.w;
    /* Weights are nobody's output: they are on their way before the input is there. */
    sl_mma_vec<T> v;
    v.begin(shared, a.slots, w, w + 8 * tiles.row_bytes, tiles);
    sl_grid_begin();

    struct sl_mma_in in((char *)shared + a.in_at, a.n_in);
    in.copy(a.qx, tok, n);
    __syncthreads();
    v.run(in, n, [&](uint32_t tile, const float(&total)[4]) {
        uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t t = lane % 4 * 2 + i % 2, o = tile * SL_MMA_TILE + lane / 4 + i / 2 * 8;
            if (t >= n)
                continue;
            float *y = mat.y + (size_t)(tok + t) * mat.n_out + o, sum = total[i];
            if (mat.bias)
                sum = sum + mat.bias[o];
            *y = mat.add ? *y + sum : sum;
        }
    });
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_MMA_THREADS, SL_MMA_BLOCKS)                 \
        sl_k_matvec_mma_##NAME(SL_KERNEL_ARGS(sl_karg_matvec_mma, a)) {                                \
        matvec_mma<SL_DTYPE_##NAME>(a);                                   \
    }
KERNEL(Q4_K)
KERNEL(Q5_K)
KERNEL(Q6_K)
