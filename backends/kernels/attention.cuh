/* What the attention kernels share. */
#ifndef SL_BACKENDS_KERNELS_ATTENTION_CUH
#define SL_BACKENDS_KERNELS_ATTENTION_CUH

#include "backends/kernels/device.cuh"

/* A single row's positions, and how they are cut into parts of whole pages: by its length alone. */
struct sl_attn_range {
    uint32_t lo, len;
    uint32_t first_page, n_pages, pages_per_part;
};
/* CHUNKS: rows may see their own chunk alone. CHOSEN: they see as many as were chosen. */
template <bool CHUNKS = false, bool CHOSEN = false>
__device__ __forceinline__ struct sl_attn_range sl_attn_row_range(const struct sl_karg_attention &a,
                                                                  uint32_t row) {
    struct sl_attn_range r;
    r.len = a.row_len[row];
    if constexpr (CHOSEN)
        r.len = min(r.len, a.n_top);
    r.lo = a.window && r.len > a.window ? r.len - a.window : 0;
    if constexpr (CHUNKS)
        r.lo = a.chunk ? (r.len - 1) / a.chunk * a.chunk : r.lo;
    r.first_page = r.lo / 64;
    r.n_pages = (r.len + 63) / 64 - r.first_page;
    r.pages_per_part = (r.n_pages + SL_ATTN_SPLITS - 1) / SL_ATTN_SPLITS;
    return r;
}

__device__ __forceinline__ uint32_t sl_attn_parts(const struct sl_attn_range &r) {
    return (r.n_pages + r.pages_per_part - 1) / r.pages_per_part;
}

/* Where part 0 of a head of row row0 + wave_row is kept; the next is SL_ATTN_PART_FLOATS on. */
__device__ __forceinline__ float *sl_attn_part(const struct sl_karg_attention &a, uint32_t wave_row,
                                               uint32_t head) {
    return a.part +
           ((size_t)wave_row * a.n_heads + head) * SL_ATTN_SPLITS * SL_ATTN_PART_FLOATS(a.kv.dim_v);
}

/* Joining a head's n parts of row row0 + wave_row, in ascending order. One warp: what each part
 * counts, and, last, one over the sum. */
__device__ __forceinline__ void sl_attn_join_factors(const struct sl_karg_attention &a,
                                                     uint32_t wave_row, uint32_t head, uint32_t n,
                                                     float *factor) {
    uint32_t dim_v = a.kv.dim_v, lane = threadIdx.x % SL_WARP, next = SL_ATTN_PART_FLOATS(dim_v);
    const float *part = sl_attn_part(a, wave_row, head);
    bool mine = lane < n;
    float m = mine ? part[lane * next + dim_v] : -INFINITY;
    float top = sl_warp_max(m), sink = 0;
    if (a.sinks) {
        top = fmaxf(top, a.sinks[head]);
        sink = sl_dev_exp(a.sinks[head] - top);
    }
    float f = mine ? sl_dev_exp(m - top) : 0.0f;
    float l = sl_warp_sum(mine ? part[lane * next + dim_v + 1] * f : 0.0f) + sink;
    factor[lane] = f;
    if (lane == 0)
        factor[SL_ATTN_SPLITS] = 1.0f / l;
}
__device__ __forceinline__ void sl_attn_join(const struct sl_karg_attention &a, uint32_t wave_row,
                                             uint32_t head, uint32_t n, const float *factor,
                                             uint32_t thread, uint32_t n_threads) {
    uint32_t dim_v = a.kv.dim_v, next = SL_ATTN_PART_FLOATS(dim_v);
    const float *part = sl_attn_part(a, wave_row, head);
    float *to = a.y + ((size_t)(a.row0 + wave_row) * a.n_heads + head) * dim_v;
    for (uint32_t i = thread; i < dim_v; i += n_threads) {
        float y = 0;
        for (uint32_t s = 0; s < n; s++)
            y = fmaf(part[s * next + i], factor[s], y);
        to[i] = y * factor[SL_ATTN_SPLITS];
    }
}

/* Two floats as the sum of two pairs of f16. */
__device__ __forceinline__ void sl_split_f16(float x, float y, uint32_t &high, uint32_t &low) {
    __half2 h = __floats2half2_rn(x, y);
    float2 f = __half22float2(h);
    __half2 l = __floats2half2_rn(x - f.x, y - f.y);
    high = *(uint32_t *)&h;
    low = *(uint32_t *)&l;
}

/* A power of two that brings the largest of a query to [1, 2), and its inverse; tiny ones stay. */
__device__ __forceinline__ float sl_attn_query_scale(float most, float &inverse) {
    int e = (__float_as_int(most) >> 23 & 255) - 127;
    e = e < -100 ? 0 : min(e, 100);
    inverse = __int_as_float((127 + e) << 23);
    return __int_as_float((127 - e) << 23);
}

#endif
