/* Decode: generated rows times weights. */
#include "backends/kernels/vec.cuh"

template <int T> __device__ __forceinline__ void matvec(const struct sl_karg_matvec &a) {
    using vec = sl_vec<T>;
    extern __shared__ uint4 shared[];
    __shared__ float carry[SL_VEC_MAX_TOK][32];
    uint32_t m = 0;
    for (uint32_t i = 1; i < a.n_mat; i++)
        m = blockIdx.x >= a.first[i] ? i : m;
    const struct sl_karg_mat mat = a.mat[m];
    uint32_t begin = (blockIdx.x - a.first[m]) * a.rows_per_block;
    uint32_t end = min(begin + a.rows_per_block, mat.n_out);
    uint32_t tok = blockIdx.y * a.tok_per_block, n = min(a.tok_per_block, a.n_tok - tok);
    uint32_t g0 = begin / vec::GROUP, g1 = (end + vec::GROUP - 1) / vec::GROUP;
    uint32_t row_bytes = vec::row_bytes(a.n_in);
    auto row = [&](uint32_t group, uint32_t r) {
        return (const uint8_t *)mat.w + (size_t)min(group * vec::GROUP + r, mat.n_out - 1) * row_bytes;
    };
    /* Weights are nobody's output: they are on their way before the input is there. */
    vec v(a.n_in);
    typename vec::item it;
    struct sl_vec_norm norm;
    v.fetch_first(it, g0, g1, row);
    if (a.norm.eps >= 0)
        norm.fetch(a.norm, a.n_in);
    sl_grid_begin();

    const float *x = a.x + (size_t)tok * a.n_in;
    if (a.norm.eps >= 0) {
        float *normed = (float *)((char *)shared + a.norm_at);
        for (uint32_t t = 0; t < n; t++)
            norm.run(a.norm, x + (size_t)t * a.n_in, a.n_in, normed + (size_t)t * a.n_in,
                     blockIdx.x == 0 ? a.norm.y + (size_t)(tok + t) * a.n_in : NULL);
        x = normed;
    }
    v.load([&](uint32_t t) { return x + (size_t)t * a.n_in; }, n, shared);
    __syncthreads();
    v.run(
        g0, g1, n, carry, it, row, [](uint32_t, uint32_t t) { return t; },
        [&](uint32_t group, uint32_t t, uint32_t r, float total, bool valid) {
            uint32_t o = group * vec::GROUP + r;
            if (!valid || o >= end)
                return;
            float *y = mat.y + (size_t)(tok + t) * mat.n_out + o;
            if (mat.bias)
                total = total + mat.bias[o];
            *y = mat.add ? *y + total : total;
        });
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_VEC_THREADS, SL_MATVEC_BLOCKS)                                \
        sl_k_matvec_##NAME(SL_KERNEL_ARGS(sl_karg_matvec, a)) {                                    \
        matvec<SL_DTYPE_##NAME>(a);                                                                \
    }
SL_QUANT_TYPES(KERNEL)
SL_FLOAT_TYPES(KERNEL)
