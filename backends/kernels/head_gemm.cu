/* Prompt rows times one matrix for each head, on the integer tensor cores: gemm.cuh with a head in
 * place of a weight. */
#include "backends/kernels/gemm.cuh"
#include "backends/kernels/quantize.cuh"

__device__ __forceinline__ bool sl_gemm_start(const struct sl_karg_head_gemm &a, uint32_t tile_n,
                                              struct sl_gemm_tile &t) {
    t.w0 = t.w1 = (const uint8_t *)a.w + blockIdx.z * a.head_bytes;
    t.bias = NULL;
    t.y = NULL;
    t.add = t.both = false;
    t.n_out = a.n_out;
    t.o0 = blockIdx.y * SL_GEMM_M;
    t.begin = blockIdx.x * tile_n;
    t.n = min(tile_n, a.n_tok - t.begin);
    return true;
}
__device__ __forceinline__ bool sl_gemm_is_plain(const struct sl_karg_head_gemm &) {
    return true;
}
__device__ __forceinline__ uint32_t sl_gemm_source(const struct sl_karg_head_gemm &a,
                                                   uint32_t pos) {
    return pos * a.n_heads + blockIdx.z;
}
template <bool PLAIN>
__device__ __forceinline__ void sl_gemm_store(const struct sl_karg_head_gemm &a,
                                              const struct sl_gemm_tile &, uint32_t pos, uint32_t o,
                                              float v, float) {
    a.y[((size_t)pos * a.n_heads + blockIdx.z) * a.stride_y + o] = v;
}

/* Quantises the part of each head of each row, and keeps what stands behind it. */
template <bool B32> __device__ __forceinline__ void quantize(const struct sl_karg_head_gemm &a) {
    uint32_t lane = threadIdx.x % SL_WARP,
             g = blockIdx.y * (blockDim.x / SL_WARP) + threadIdx.x / SL_WARP;
    uint32_t n_groups = (a.n_in + 255) / 256;
    size_t row = blockIdx.x;
    const float *x = a.x + row * a.stride_x;
    if (blockIdx.y == 0)
        for (uint32_t i = threadIdx.x; i < a.n_keep; i += blockDim.x)
            a.y[row * a.stride_y + a.n_out + i] = x[a.n_in + i];
    if (g >= n_groups)
        return;
    struct sl_quantized v;
    sl_quantize_group<B32>(x, a.n_in, g, lane, v);
    sl_quantized_put<B32>(a.qx, row * n_groups + g, lane, v);
}
extern "C" __global__ void __launch_bounds__(256)
    sl_k_head_gemm_quantize(SL_KERNEL_ARGS(sl_karg_head_gemm, a)) {
    sl_grid_begin();
    if (a.block32)
        quantize<true>(a);
    else
        quantize<false>(a);
}

#define KERNEL(NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 2)                                           \
        sl_k_head_gemm_##NAME(SL_KERNEL_ARGS(sl_karg_head_gemm, a)) {                              \
        sl_grid_begin();                                                                           \
        sl_gemm<SL_DTYPE_##NAME, (int)SL_GEMM_N_LARGE> g;                                          \
        g.run(a);                                                                                  \
    }
KERNEL(Q4_0)
KERNEL(Q5_0)
KERNEL(Q8_0)
KERNEL(Q4_K)
KERNEL(Q5_K)
KERNEL(Q6_K)
