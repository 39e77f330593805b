/* Latent attention (wide.cuh), and the join of parts of 512 elements. */
#include "backends/kernels/wide.cuh"

#define KEYS ((int)(SL_WIDE_DIM + SL_LATENT_ROT))

/* Grid (heads, rows), a quarter of the output's elements a thread. */
template <bool CHOSEN> __device__ __forceinline__ void join(const struct sl_karg_attention &a) {
    __shared__ float factor[SL_WIDE_MAX_SPLITS], inverse;
    uint32_t head = blockIdx.x, row = a.row0 + blockIdx.y,
             n = wide_cut(a, wide_len<CHOSEN>(a, row)).n_parts;
    const float *part = wide_part(a, blockIdx.y, head, 0);
    constexpr uint32_t NEXT = SL_ATTN_PART_FLOATS(V);
    if (threadIdx.x < SL_WARP) {
        float2 ml[SL_WIDE_MAX_SPLITS / SL_WARP];
        float top = -INFINITY, sum = 0;
#pragma unroll
        for (uint32_t j = 0; j < SL_WIDE_MAX_SPLITS / SL_WARP; j++) {
            uint32_t i = threadIdx.x + SL_WARP * j;
            ml[j] = i < n ? *(const float2 *)(part + i * NEXT + V) : make_float2(-INFINITY, 0);
            top = fmaxf(top, ml[j].x);
        }
        top = sl_warp_max(top);
#pragma unroll
        for (uint32_t j = 0; j < SL_WIDE_MAX_SPLITS / SL_WARP; j++) {
            float f = threadIdx.x + SL_WARP * j < n ? sl_dev_exp(ml[j].x - top) : 0.0f;
            factor[threadIdx.x + SL_WARP * j] = f;
            sum = fmaf(ml[j].y, f, sum);
        }
        sum = sl_warp_sum(sum);
        if (threadIdx.x == 0)
            inverse = 1.0f / sum;
    }
    __syncthreads();
    float4 y = make_float4(0, 0, 0, 0);
#pragma unroll 8
    for (uint32_t i = 0; i < n; i++) {
        float4 v = *(const float4 *)(part + i * NEXT + threadIdx.x * 4);
        float f = factor[i];
        y.x = fmaf(v.x, f, y.x), y.y = fmaf(v.y, f, y.y);
        y.z = fmaf(v.z, f, y.z), y.w = fmaf(v.w, f, y.w);
    }
    *(float4 *)(a.y + ((size_t)row * a.n_heads + head) * V + threadIdx.x * 4) =
        make_float4(y.x * inverse, y.y * inverse, y.z * inverse, y.w * inverse);
}

#define JOIN(NAME, CHOSEN)                                                                         \
    extern "C" __global__ void __launch_bounds__(SL_WIDE_DIM / 4)                                  \
        sl_k_latent_##NAME(SL_KERNEL_ARGS(sl_karg_attention, a)) {                                 \
        sl_grid_begin();                                                                           \
        join<CHOSEN>(a);                                                                           \
    }
JOIN(join, false)
JOIN(chosen_join, true)

#define KERNEL(NAME, MT, STAGES)                                                                   \
    extern "C" __global__ void __launch_bounds__((MT) == 1 ? 128 : 256)                            \
        sl_k_latent_##NAME##_##MT(SL_KERNEL_ARGS(sl_karg_attention, a)) {                          \
        sl_grid_begin();                                                                           \
        wide_##NAME<MT, KEYS, STAGES, true>(a);                                                    \
    }
KERNEL(rows, 1, 1)
KERNEL(rows, 2, 2)
KERNEL(rows, 4, 1)
KERNEL(parts, 1, 1)
KERNEL(parts, 2, 2)

#define CHOSEN(NAME, MT, DO)                                                                       \
    extern "C" __global__ void __launch_bounds__((MT) == 1 ? 128 : 256)                            \
        sl_k_latent_chosen_##NAME##_##MT(SL_KERNEL_ARGS(sl_karg_attention, a)) {                   \
        sl_grid_begin();                                                                           \
        DO(a);                                                                                     \
    }
CHOSEN(rows, 1, (wide_chosen_rows<1, KEYS, 1>))
CHOSEN(rows, 2, (wide_chosen_rows<2, KEYS, 2>))
CHOSEN(rows, 4, (wide_chosen_rows<4, KEYS, 1>))
CHOSEN(parts, 1, (wide_parts<1, KEYS, 1, true, true>))
CHOSEN(parts, 2, (wide_parts<2, KEYS, 2, true, true>))
