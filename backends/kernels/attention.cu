/* Attention over paged KV, row by row: each block takes one part of a row's positions for up to
 * eight heads that share a KV head, with f32 arithmetic and an online softmax (Dao et al. 2022).
 *
 * A row is cut into parts by its own length alone, and parts are joined in ascending order, so that
 * a row's bits do not depend on what else is in the call. */
#include "backends/kernels/attention.cuh"

#define CHUNK   ((int)SL_ATTN_CHUNK)
#define HEADS   ((int)SL_ATTN_HEAD_BLOCK)
#define THREADS 128

/* CHUNK rows from position `from` on to f32, the first dim elements of each; rows outside [lo, len)
 * become zeros. row_at(pos): where one is. */
template <class ROW_AT>
__device__ __forceinline__ void load_rows(ROW_AT row_at, uint32_t from, uint32_t lo, uint32_t len,
                                          uint32_t dim, bool q8, float *to) {
    uint32_t lane = threadIdx.x % SL_WARP, warp = threadIdx.x / SL_WARP;
    const uint8_t *row[CHUNK / 4];
#pragma unroll
    for (int n = 0; n < CHUNK / 4; n++) {
        uint32_t pos = from + warp + 4 * (uint32_t)n;
        row[n] = pos >= lo && pos < len ? row_at(pos) : NULL;
    }
    for (uint32_t i = lane; i < dim; i += SL_WARP) {
        float v[CHUNK / 4];
#pragma unroll
        for (int n = 0; n < CHUNK / 4; n++) { /* loads of all rows before the first use */
            v[n] = 0;
            if (row[n]) {
                if (q8) {
                    const uint8_t *b = row[n] + i / 32 * 34;
                    v[n] = __half2float(*(const __half *)b) * (float)(int8_t)b[2 + i % 32];
                } else {
                    v[n] = __half2float(((const __half *)row[n])[i]);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < CHUNK / 4; n++)
            to[(warp + 4 * (uint32_t)n) * (dim + 1) + i] = v[n];
    }
}

/* dim_v is at most DIMS * 128. */
template <bool LATENT, bool ANY, int SEES = SL_SEES_ALL, int DIMS = SL_ATTN_MAX_DIM_V / THREADS>
__device__ __forceinline__ void attention_row(const struct sl_karg_attention &a) {
    extern __shared__ float shared[];
    uint32_t dim_k = a.kv.dim_k, dim_v = a.kv.dim_v;
    uint32_t row = a.row0 + blockIdx.z;
    struct sl_attn_range r = sl_attn_row_range<ANY, SEES>(a, row);
    uint32_t p0 = blockIdx.x * r.pages_per_part, p1 = min(p0 + r.pages_per_part, r.n_pages);
    if (p0 >= r.n_pages)
        return;
    float *q = shared, *p = q + HEADS * dim_k, *factor = p + HEADS * CHUNK,
          *kv = factor + HEADS * 4;
    uint32_t group = a.n_heads / a.kv.n_kv_heads, blocks = (group + HEADS - 1) / HEADS;
    uint32_t kv_head = blockIdx.y / blocks, in_group = blockIdx.y % blocks * HEADS;
    uint32_t head = kv_head * group + in_group, n_heads = min((uint32_t)HEADS, group - in_group);
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
    uint32_t v_elems = LATENT ? dim_k : dim_v;
    size_t k_bytes = a.kv.q8 ? dim_k / 32 * 34 : dim_k * 2;
    size_t v_bytes = a.kv.q8 ? v_elems / 32 * 34 : v_elems * 2;
    size_t k_head = (size_t)kv_head * 64 * k_bytes, v_head = (size_t)kv_head * 64 * v_bytes;
    const uint32_t *pages = a.page_table + (size_t)a.row_seq[row] * a.max_pages;

    for (uint32_t i = threadIdx.x; i < n_heads * dim_k; i += THREADS)
        q[i] = a.q[(size_t)row * a.stride_q + (size_t)head * dim_k + i];
    float o[HEADS][DIMS], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < HEADS; h++)
#pragma unroll
        for (int d = 0; d < DIMS; d++)
            o[h][d] = 0;

    uint32_t begin = max(r.lo, (r.first_page + p0) * 64) / CHUNK * CHUNK;
    uint32_t end = min(r.len, (r.first_page + p1) * 64);
    struct sl_attn_places<SEES> places(a, row, kv_head);
    for (uint32_t from = begin; from < end; from += CHUNK) {
        /* All of a chunk are of one page, but for chosen ones. */
        size_t page = SEES == SL_SEES_ALL ? pages[from / 64] : 0;
        auto row_of = [&](const void *kv_pages, uint64_t page_bytes, size_t head_at,
                          size_t row_bytes) {
            return [&, page, kv_pages, page_bytes, head_at, row_bytes](uint32_t pos) {
                if constexpr (SEES == SL_SEES_COMPRESSED) {
                    return places.row(a, pos, row_bytes);
                } else {
                    uint32_t at = places.at(pos);
                    size_t p = SEES == SL_SEES_ALL ? page : pages[at / 64];
                    return (const uint8_t *)kv_pages + p * page_bytes + head_at +
                           at % 64 * row_bytes;
                }
            };
        };
        __syncthreads();
        load_rows(row_of(a.kv.k, a.kv.k_page_bytes, k_head, k_bytes), from, r.lo, end, dim_k,
                  a.kv.q8, kv);
        __syncthreads();
        bool valid = from + lane >= r.lo && from + lane < end;
        float dot[2] = {0, 0};
        if (warp < n_heads) { /* the second head may be beyond the last: it is not used then */
            const float *q0 = q + warp * dim_k, *q1 = q + min(warp + 4, n_heads - 1) * dim_k;
#pragma unroll 4
            for (uint32_t i = 0; i < dim_k; i++) {
                float x = kv[lane * (dim_k + 1) + i];
                dot[0] = fmaf(q0[i], x, dot[0]);
                dot[1] = fmaf(q1[i], x, dot[1]);
            }
        }
#pragma unroll
        for (int n = 0; n < 2; n++) {
            uint32_t h = warp + 4 * (uint32_t)n;
            if (h >= n_heads)
                continue;
            float s = valid ? dot[n] * a.scale : -INFINITY;
            if constexpr (ANY)
                s = valid && a.softcap > 0 ? sl_dev_softcap(s, a.softcap) : s;
            float top = fmaxf(m[n], sl_warp_max(s)), f = sl_dev_exp(m[n] - top);
            float e = valid ? sl_dev_exp(s - top) : 0.0f;
            l[n] = fmaf(l[n], f, sl_warp_sum(e));
            m[n] = top;
            p[h * CHUNK + lane] = e;
            if (lane == 0)
                factor[h] = f;
        }
        __syncthreads();
        load_rows(row_of(a.kv.v, a.kv.v_page_bytes, v_head, v_bytes), from, r.lo, end, dim_v,
                  a.kv.q8, kv);
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DIMS; d++) {
            uint32_t i = threadIdx.x + THREADS * (uint32_t)d;
            if (i >= dim_v)
                continue;
#pragma unroll
            for (int h = 0; h < HEADS; h++)
                if ((uint32_t)h < n_heads)
                    o[h][d] *= factor[h];
            for (int j = 0; j < CHUNK; j++) {
                float v = kv[(uint32_t)j * (dim_v + 1) + i];
#pragma unroll
                for (int h = 0; h < HEADS; h++)
                    if ((uint32_t)h < n_heads)
                        o[h][d] = fmaf(p[h * CHUNK + j], v, o[h][d]);
            }
        }
    }
    float *part = sl_attn_part(a, blockIdx.z, head) + blockIdx.x * SL_ATTN_PART_FLOATS(dim_v);
    size_t next = (size_t)SL_ATTN_SPLITS * SL_ATTN_PART_FLOATS(dim_v);
#pragma unroll
    for (int d = 0; d < DIMS; d++) {
        uint32_t i = threadIdx.x + THREADS * (uint32_t)d;
#pragma unroll
        for (int h = 0; h < HEADS; h++)
            if (i < dim_v && (uint32_t)h < n_heads)
                part[h * next + i] = o[h][d];
    }
#pragma unroll
    for (int n = 0; n < 2; n++) {
        uint32_t h = warp + 4 * (uint32_t)n;
        if (h < n_heads && lane == 0) {
            part[h * next + dim_v] = m[n];
            part[h * next + dim_v + 1] = l[n];
        }
    }
}

template <bool ANY, int SEES = SL_SEES_ALL>
__device__ __forceinline__ void attention_join(const struct sl_karg_attention &a) {
    __shared__ float factor[SL_ATTN_SPLITS + 1];
    uint32_t row = a.row0 + blockIdx.y;
    uint32_t n = sl_attn_parts(sl_attn_row_range<ANY, SEES>(a, row));
    if (threadIdx.x < SL_WARP)
        sl_attn_join_factors(a, blockIdx.y, blockIdx.x, n, factor);
    __syncthreads();
    sl_attn_join(a, blockIdx.y, blockIdx.x, n, factor, threadIdx.x, THREADS);
}

#define KERNEL(NAME, DO)                                                                           \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        sl_k_attention_##NAME(SL_KERNEL_ARGS(sl_karg_attention, a)) {                              \
        sl_grid_begin();                                                                           \
        DO(a);                                                                                     \
    }
KERNEL(row, (attention_row<false, false>))
KERNEL(row_any, (attention_row<false, true>))
KERNEL(latent, (attention_row<true, false>))
KERNEL(latent_long, (attention_row<true, false, SL_SEES_ALL, SL_LATENT_MAX_DIM_V / THREADS>))
KERNEL(chosen, (attention_row<true, false, SL_SEES_CHOSEN>))
KERNEL(blocks, (attention_row<false, false, SL_SEES_BLOCKS>))
KERNEL(compressed, (attention_row<true, false, SL_SEES_COMPRESSED>))
KERNEL(join, attention_join<false>)
KERNEL(chosen_join, (attention_join<false, SL_SEES_CHOSEN>))
KERNEL(blocks_join, (attention_join<false, SL_SEES_BLOCKS>))
KERNEL(compressed_join, (attention_join<false, SL_SEES_COMPRESSED>))
KERNEL(join_any, attention_join<true>)
