/* Decode: generated rows times weights. */
#include "backends/kernels/vec.cuh"

template <int T> __device__ __forceinline__ void matvec(const struct sl_karg_matvec &a) {
    extern __shared__ uint4 shared[];
    __shared__ float2 stage[SL_MATVEC_WARPS][SL_VEC_STAGE];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, m = 0;
    for (uint32_t i = 1; i < a.n_mat; i++)
        m = blockIdx.x >= a.first[i] ? i : m;
    const struct sl_karg_mat mat = a.mat[m];
    uint32_t begin = (blockIdx.x - a.first[m]) * a.rows_per_block;
    uint32_t end = min(begin + a.rows_per_block, mat.n_out);

    sl_vec<T> v;
    v.load(a.x + (size_t)blockIdx.y * a.n_in, a.n_in, shared);
    __syncthreads();
    size_t row_bytes = sl_vec<T>::row_bytes(a.n_in);
    for (uint32_t r0 = begin + warp * 4; r0 < end; r0 += SL_MATVEC_WARPS * 4) {
        const uint8_t *row[4];
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            row[r] = (const uint8_t *)mat.w + min(r0 + r, mat.n_out - 1) * row_bytes;
        float total = v.dot(row, stage[warp]);
        uint32_t o = r0 + lane;
        if (lane < 4 && o < end) {
            float *y = mat.y + (size_t)blockIdx.y * mat.n_out + o;
            if (mat.bias)
                total = total + mat.bias[o];
            *y = mat.add ? *y + total : total;
        }
    }
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(SL_MATVEC_WARPS * 32)                             \
        sl_k_matvec_##NAME(SL_KERNEL_ARGS(sl_karg_matvec, a)) {                                    \
        matvec<SL_DTYPE_##NAME>(a);                                                                \
    }
SL_QUANT_TYPES(KERNEL)
SL_FLOAT_TYPES(KERNEL)
