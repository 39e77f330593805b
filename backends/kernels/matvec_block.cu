/* Decode: a few rows times weights of 32-element types. A block asks for its weights, all of them
 * or as much as it has room for twice, before its input is there; a thread has a block of 32 at a
 * time, and what rows come to is joined by a thread each, in the definition's order. */
#include "backends/kernels/block_vec.cuh"
#include "backends/kernels/vec.cuh"

template <int T>
__device__ __forceinline__ void matvec_block(const struct sl_karg_matvec_block &a) {
    using block = sl_block<T>;
    constexpr uint32_t THREADS = SL_VEC_THREADS, WARPS = THREADS / SL_WARP;
    extern __shared__ uint4 shared[];
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, n = a.n_in;
    uint32_t n_blocks = n / block::ELEMS, row_bytes = n_blocks * block::BYTES;
    uint32_t n_groups = (n + 255) / 256, stride = n_blocks | 1;
    uint32_t m = 0;
    for (uint32_t i = 1; i < a.n_mat; i++)
        m = blockIdx.x >= a.first[i] ? i : m;
    const struct sl_karg_mat mat = a.mat[m];
    uint32_t begin = (blockIdx.x - a.first[m]) * a.rows_per_block;
    uint32_t end = min(begin + a.rows_per_block, mat.n_out), step = a.rows_at_once;
    struct sl_block_group *in = (struct sl_block_group *)((char *)shared + a.in_at);
    float2 *term = (float2 *)((char *)shared + a.terms_at);
    auto stage = [&](uint32_t i) { return (uint8_t *)shared + i * a.stage_bytes; };
    auto fetch = [&](uint32_t row, uint32_t i) {
        if (row < end)
            sl_block_copy(stage(i), (const uint8_t *)mat.w + (size_t)row * row_bytes,
                          min(step, end - row) * row_bytes, threadIdx.x, THREADS);
        sl_copy_commit();
    };

    /* Weights are nobody's output: they are on their way before the input is there. */
    fetch(begin, 0);
    fetch(begin + step, 1 % a.stages);
    struct sl_vec_norm_of<12> norm;
    if (a.norm.eps >= 0)
        norm.fetch(a.norm, n);
    sl_grid_begin();

    for (uint32_t t = 0; t < a.n_tok; t++) {
        const float *x = a.x + (size_t)t * n;
        if (a.norm.eps >= 0) {
            norm.run(a.norm, x, n, (float *)term, blockIdx.x ? NULL : a.norm.y + (size_t)t * n);
            x = (const float *)term;
        }
        for (uint32_t g = warp; g < n_groups; g += WARPS) {
            float v[8];
            sl_quantize_fetch(x, n, g, lane, v);
            sl_block_put32(v, (struct sl_block_group32 *)in + t * n_groups + g);
        }
        __syncthreads();
    }
    for (uint32_t row = begin, at = 0; row < end; row += step, at = (at + 1) % a.stages) {
        uint32_t rows = min(step, end - row);
        if (a.stages > 1)
            sl_copy_wait_but_one();
        else
            sl_copy_wait();
        __syncthreads();
        for (uint32_t t = 0; t < a.n_tok; t++) {
            for (uint32_t j = threadIdx.x; j < rows * n_blocks; j += THREADS) {
                uint32_t r = j / n_blocks, b = j - r * n_blocks;
                const uint8_t *const of[1] = {stage(at) + j * block::BYTES};
                struct sl_block_sums v[1];
                sl_block_dot<T>(of, in + t * n_groups, b, v);
                term[r * stride + b] = make_float2(v[0].d, (float)v[0].sum);
            }
            __syncthreads();
            if (threadIdx.x < rows) {
                uint32_t o = row + threadIdx.x;
                const float2 *from = term + threadIdx.x * stride;
                float *y = mat.y + (size_t)t * mat.n_out + o, total = 0;
#pragma unroll 8
                for (uint32_t b = 0; b < n_blocks; b++)
                    total = fmaf(from[b].x, from[b].y, total);
                if (mat.bias)
                    total = total + mat.bias[o];
                *y = mat.add ? *y + total : total;
            }
            __syncthreads();
        }
        fetch(row + a.stages * step, at);
    }
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS, 2)                                \
        sl_k_matvec_block_##NAME(SL_KERNEL_ARGS(sl_karg_matvec_block, a)) {                        \
        matvec_block<SL_DTYPE_##NAME>(a);                                                          \
    }
KERNEL(Q8_0)
