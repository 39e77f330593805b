/* What the attention kernels share. */
#ifndef SL_BACKENDS_KERNELS_ATTENTION_CUH
#define SL_BACKENDS_KERNELS_ATTENTION_CUH

#include "backends/kernels/blocks.cuh"

/* A single row's positions, and how they are cut into parts of whole pages: by its length alone. */
struct sl_attn_range {
    uint32_t lo, len;
    uint32_t first_page, n_pages, pages_per_part;
};
/* What rows attend to: all of their positions, but for a window; those that were chosen; those of
 * the blocks that were chosen for their KV head, of which there are as many for each; rows that
 * stand for blocks, then the positions of a window. What is not all positions counts from 0, as if
 * it were the whole sequence. */
enum sl_attn_sees { SL_SEES_ALL, SL_SEES_CHOSEN, SL_SEES_BLOCKS, SL_SEES_COMPRESSED };

/* The blocks of a row, of which the last is its own and may not be whole. */
__device__ __forceinline__ uint32_t sl_attn_blocks(const struct sl_karg_attention &a,
                                                   uint32_t len) {
    return (len - 1) / a.block + 1;
}
/* The rows of blocks that a row sees. */
__device__ __forceinline__ uint32_t sl_attn_block_rows(const struct sl_karg_attention &a,
                                                       uint32_t len) {
    uint32_t n = a.of.ratio ? len / a.of.ratio : 0;
    return a.chosen ? min(n, a.n_top) : n;
}

/* How many positions, or rows, a row attends to, but for a window. */
template <int SEES>
__device__ __forceinline__ uint32_t sl_attn_len(const struct sl_karg_attention &a, uint32_t row) {
    uint32_t len = a.row_len[row];
    if constexpr (SEES == SL_SEES_CHOSEN)
        len = min(len, a.n_top);
    if constexpr (SEES == SL_SEES_BLOCKS) {
        uint32_t blocks = sl_attn_blocks(a, len);
        len -= blocks > a.n_top ? (blocks - a.n_top) * a.block : 0;
    }
    if constexpr (SEES == SL_SEES_COMPRESSED)
        len = sl_attn_block_rows(a, len) + min(a.window, len);
    return len;
}

/* CHUNKS: rows may see their own chunk alone. */
template <bool CHUNKS = false, int SEES = SL_SEES_ALL>
__device__ __forceinline__ struct sl_attn_range sl_attn_row_range(const struct sl_karg_attention &a,
                                                                  uint32_t row) {
    struct sl_attn_range r;
    r.len = sl_attn_len<SEES>(a, row);
    r.lo = SEES != SL_SEES_COMPRESSED && a.window && r.len > a.window ? r.len - a.window : 0;
    if constexpr (CHUNKS)
        r.lo = a.chunk ? (r.len - 1) / a.chunk * a.chunk : r.lo;
    r.first_page = r.lo / 64;
    r.n_pages = (r.len + 63) / 64 - r.first_page;
    r.pages_per_part = (r.n_pages + SL_ATTN_SPLITS - 1) / SL_ATTN_SPLITS;
    return r;
}

/* Where in its sequence the positions lie that a row sees. */
template <int SEES> struct sl_attn_places {
    const uint32_t *chosen; /* NULL: it sees all */
    uint32_t block;

    __device__ __forceinline__ sl_attn_places(const struct sl_karg_attention &a, uint32_t row,
                                              uint32_t kv_head) {
        chosen = NULL;
        if constexpr (SEES == SL_SEES_CHOSEN)
            chosen = a.chosen + (size_t)row * a.n_top;
        if constexpr (SEES == SL_SEES_BLOCKS)
            if (sl_attn_blocks(a, a.row_len[row]) > a.n_top)
                chosen = a.chosen + ((size_t)row * a.kv.n_kv_heads + kv_head) * a.n_top;
        block = a.block;
    }
    __device__ __forceinline__ uint32_t at(uint32_t pos) const {
        if constexpr (SEES == SL_SEES_CHOSEN)
            return chosen[pos];
        if constexpr (SEES == SL_SEES_BLOCKS)
            return chosen ? chosen[pos / block] * block + pos % block : pos;
        return pos;
    }
    /* The positions from a multiple of 64 on are those of one page. */
    __device__ __forceinline__ bool by_pages() const {
        return SEES == SL_SEES_ALL || (SEES == SL_SEES_BLOCKS && (!chosen || block % 64 == 0));
    }
};

/* Of the rows that a row sees the first n_blocks stand for blocks; the others are of the positions
 * from `first` on. */
template <> struct sl_attn_places<SL_SEES_COMPRESSED> {
    uint32_t n_blocks, first;
    const uint32_t *chosen, *pages, *block_pages; /* chosen NULL: all blocks */

    __device__ __forceinline__ sl_attn_places(const struct sl_karg_attention &a, uint32_t row,
                                              uint32_t) {
        uint32_t len = a.row_len[row];
        size_t seq = (size_t)a.row_seq[row] * a.max_pages;
        n_blocks = sl_attn_block_rows(a, len);
        first = len - min(a.window, len);
        chosen = a.chosen ? a.chosen + (size_t)row * a.n_top : NULL;
        pages = a.page_table + seq;
        block_pages = a.block_table + seq;
    }
    __device__ __forceinline__ const uint8_t *row(const struct sl_karg_attention &a, uint32_t i,
                                                  size_t row_bytes) const {
        if (i < n_blocks) {
            uint32_t at, page = sl_block_at(a.of, chosen ? chosen[i] : i, at);
            return (const uint8_t *)a.blocks + block_pages[page] * a.block_page_bytes +
                   at * row_bytes;
        }
        uint32_t pos = first + i - n_blocks;
        return (const uint8_t *)a.kv.k + pages[pos / 64] * a.kv.k_page_bytes + pos % 64 * row_bytes;
    }
};

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
