/* Attention of prompt rows over paged f16 KV on tensor cores (FlashAttention: Dao et al. 2022).
 *
 * A block takes 64 (row, head) pairs whose heads share a KV head, 16 to a warp, and goes through
 * the positions page by page. Tensor cores take f16: queries, scaled by a power of two per row, and
 * probabilities are each the sum of two f16 (22 bits), so that the result is that of f32 arithmetic
 * but for rounding; K and V are f16 as they are.
 *
 * Pages are aligned to position 0 and a page that a row does not see leaves its state untouched to
 * the bit, so a row's result does not depend on the others of its step. Over chosen blocks a tile
 * has one row, whose positions count from 0. */
#include "backends/kernels/attention.cuh"

#define WARPS   4
#define THREADS (WARPS * SL_WARP)
#define PAIRS   ((int)SL_ATTN_TILE_PAIRS)
#define PAGE    64

static_assert(PAIRS == WARPS * 16, "sixteen pairs a warp");

/* The tile's rows of one sequence at a time. */
struct part {
    uint32_t seq, lo, len; /* positions that any of the rows sees */
    uint32_t sure;         /* all of the tile's rows see what lies before; 0 with a window */
};

template <int D, int SEES = SL_SEES_ALL>
__device__ __forceinline__ void attention_tile(const struct sl_karg_attention &a) {
    constexpr int STRIDE = D + 8; /* halves */
    extern __shared__ uint4 shared[];
    __half *q_high = (__half *)shared, *q_low = q_high + PAIRS * STRIDE;
    __half *ks = q_low + PAIRS * STRIDE, *vs = ks + PAGE * STRIDE;
    __shared__ float q_factor[PAIRS];
    __shared__ uint32_t seq_of[PAIRS], len_of[PAIRS];
    __shared__ struct part now;

    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, g = lane / 4,
             quad = lane % 4;
    uint32_t group = a.n_heads / a.kv.n_kv_heads, width = min(group, (uint32_t)SL_ATTN_HEAD_BLOCK);
    uint32_t blocks = (group + width - 1) / width;
    uint32_t kv_head = blockIdx.y / blocks, in_group = blockIdx.y % blocks * width;
    uint32_t head0 = kv_head * group + in_group, n_heads = min(width, group - in_group);
    uint32_t rows = SEES == SL_SEES_ALL ? PAIRS / width : 1, row0 = blockIdx.x * rows;
    uint32_t n_rows = min(rows, a.n_rows - row0);
    uint32_t dim_k = a.kv.dim_k, dim_v = a.kv.dim_v;

    for (uint32_t r = threadIdx.x; r < n_rows; r += THREADS) {
        seq_of[r] = a.row_seq[a.row0 + row0 + r];
        len_of[r] = sl_attn_row_range<false, SEES>(a, a.row0 + row0 + r).len;
    }
    struct sl_attn_places<SEES> places(a, a.row0 + row0, kv_head); /* of the only row */
    /* Pair p is row p / width, head p % width. Each warp brings its own pairs' queries. */
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t p = warp * 16 + i, r = p / width, h = p % width;
        bool valid = r < n_rows && h < n_heads;
        const float *q = a.q + (size_t)(a.row0 + row0 + (valid ? r : 0)) * a.stride_q +
                         (size_t)(head0 + (valid ? h : 0)) * dim_k;
        float v[D / SL_WARP], most = 0;
#pragma unroll
        for (int j = 0; j < D / SL_WARP; j++) {
            uint32_t at = lane + SL_WARP * (uint32_t)j;
            v[j] = valid && at < dim_k ? q[at] : 0.0f;
            most = fmaxf(most, fabsf(v[j]));
        }
        most = sl_warp_max(most);
        float up, down = sl_attn_query_scale(most, up);
#pragma unroll
        for (int j = 0; j < D / SL_WARP; j++) {
            uint32_t at = p * STRIDE + lane + SL_WARP * (uint32_t)j;
            float x = v[j] * down;
            __half high = __float2half_rn(x);
            q_high[at] = high;
            q_low[at] = __float2half_rn(x - __half2float(high));
        }
        if (lane == 0)
            q_factor[p] = up * a.scale;
    }
    __syncthreads();

    /* This thread's two pairs: in the fragments' rows g and g + 8. */
    uint32_t pair[2] = {warp * 16 + g, warp * 16 + g + 8};
    uint32_t my_seq[2], my_lo[2], my_len[2];
    float factor[2], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, o[D / 8][4];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t r = pair[i] / width;
        bool valid = r < n_rows && pair[i] % width < n_heads;
        my_seq[i] = valid ? seq_of[r] : UINT32_MAX;
        my_len[i] = valid ? len_of[r] : 0;
        my_lo[i] = a.window && my_len[i] > a.window ? my_len[i] - a.window : 0;
        factor[i] = q_factor[pair[i]];
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[n][i] = 0;

    uint32_t tile = lane / 8, in = lane % 8;
    const __half *pq = q_high + (warp * 16 + (tile & 1) * 8 + in) * STRIDE + (tile >> 1) * 8;
    const __half *pk = ks + ((tile >> 1) * 8 + in) * STRIDE + (tile & 1) * 8;
    const __half *pv = vs + ((tile & 1) * 8 + in) * STRIDE + (tile >> 1) * 8;

    for (uint32_t first = 0; first < n_rows;) {
        if (threadIdx.x == 0) { /* the rows of one sequence, which come together */
            struct part s = {seq_of[first], UINT32_MAX, 0, a.window ? 0 : UINT32_MAX};
            uint32_t r = first;
            for (; r < n_rows && seq_of[r] == s.seq; r++) {
                s.lo = min(s.lo, a.window && len_of[r] > a.window ? len_of[r] - a.window : 0u);
                s.len = max(s.len, len_of[r]);
                s.sure = min(s.sure, len_of[r]);
            }
            /* Rows of another sequence do not. A tile of one row has pairs of none besides. */
            if (SEES != SL_SEES_ALL || first || r < n_rows)
                s.sure = 0;
            now = s;
        }
        __syncthreads();
        struct part s = now;
        uint32_t next = first;
        while (next < n_rows && seq_of[next] == s.seq)
            next++;
        bool mine[2];
#pragma unroll
        for (int i = 0; i < 2; i++)
            mine[i] = my_seq[i] == s.seq && pair[i] / width >= first && pair[i] / width < next;
        const uint32_t *pages = a.page_table + (size_t)s.seq * a.max_pages;
        for (uint32_t page = s.lo / PAGE; page * PAGE < s.len; page++) {
            const uint8_t *k = (const uint8_t *)a.kv.k + pages[page] * a.kv.k_page_bytes +
                               (size_t)kv_head * PAGE * dim_k * 2;
            const uint8_t *v = (const uint8_t *)a.kv.v + pages[page] * a.kv.v_page_bytes +
                               (size_t)kv_head * PAGE * dim_v * 2;
            uint32_t n_valid = min((uint32_t)PAGE, s.len - page * PAGE);
            /* Position j of the page: of K, of V. */
            auto k_at = [&](uint32_t j) {
                if (SEES == SL_SEES_ALL)
                    return k + (size_t)j * dim_k * 2;
                uint32_t pos = places.at(page * PAGE + min(j, n_valid - 1));
                return (const uint8_t *)a.kv.k + pages[pos / PAGE] * a.kv.k_page_bytes +
                       ((size_t)kv_head * PAGE + pos % PAGE) * dim_k * 2;
            };
            auto v_at = [&](uint32_t j) {
                if (SEES == SL_SEES_ALL)
                    return v + (size_t)j * dim_v * 2;
                uint32_t pos = places.at(page * PAGE + min(j, n_valid - 1));
                return (const uint8_t *)a.kv.v + pages[pos / PAGE] * a.kv.v_page_bytes +
                       ((size_t)kv_head * PAGE + pos % PAGE) * dim_v * 2;
            };
            __syncthreads();
            for (uint32_t i = threadIdx.x; i < PAGE * (D / 8); i += THREADS) {
                uint32_t j = i / (D / 8), at = i % (D / 8) * 8;
                sl_copy16(ks + j * STRIDE + at, k_at(j) + at * 2, j < n_valid && at < dim_k);
                sl_copy16(vs + j * STRIDE + at, v_at(j) + at * 2, j < n_valid && at < dim_v);
            }
            sl_copy_wait();
            __syncthreads();
            /* Probability zero times an infinity is NaN: where some row must not see a position
             * that another does, values that are no numbers are set aside. */
            uint32_t odd = 0;
            if (page * PAGE + PAGE > s.sure) {
                for (uint32_t i = threadIdx.x; i < PAGE * (D / 2); i += THREADS) {
                    uint32_t j = i / (D / 2), at = i % (D / 2);
                    uint32_t *pair_of = (uint32_t *)(vs + j * STRIDE) + at, w = *pair_of;
                    uint32_t bad = ((w & 0x7c00u) == 0x7c00u ? 0xffffu : 0u) |
                                   ((w & 0x7c000000u) == 0x7c000000u ? 0xffff0000u : 0u);
                    if (bad) {
                        *pair_of = w & ~bad;
                        odd = 1;
                    }
                }
                odd = (uint32_t)__syncthreads_or((int)odd);
            }
            bool sees = false;
#pragma unroll
            for (int i = 0; i < 2; i++)
                sees |= mine[i] && page * PAGE < my_len[i] && page * PAGE + PAGE > my_lo[i];
            if (!sl_warp_any(sees))
                continue;

            float sc[PAGE / 8][4];
#pragma unroll
            for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    sc[n][i] = 0;
#pragma unroll 2
            for (int kk = 0; kk < D / 16; kk++) {
                uint32_t high[4], low[4];
                sl_ldmatrix4(high, pq + kk * 16);
                sl_ldmatrix4(low, pq + PAIRS * STRIDE + kk * 16);
#pragma unroll
                for (int n = 0; n < PAGE / 8; n += 2) {
                    uint32_t b[4];
                    sl_ldmatrix4(b, pk + n * 8 * STRIDE + kk * 16);
                    sl_mma_f16(sc[n], low, b[0], b[1]);
                    sl_mma_f16(sc[n], high, b[0], b[1]);
                    sl_mma_f16(sc[n + 1], low, b[2], b[3]);
                    sl_mma_f16(sc[n + 1], high, b[2], b[3]);
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float top = m[i];
#pragma unroll
                for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        uint32_t pos = page * PAGE + (uint32_t)n * 8 + quad * 2 + (uint32_t)c;
                        bool seen = mine[i] && pos >= my_lo[i] && pos < my_len[i];
                        float &x = sc[n][2 * i + c];
                        x = seen ? x * factor[i] : -INFINITY;
                        top = fmaxf(top, x);
                    }
                top = fmaxf(top, sl_shfl_xor(top, 1));
                top = fmaxf(top, sl_shfl_xor(top, 2));
                float base = top == -INFINITY ? 0.0f : top, f = sl_dev_exp(m[i] - base), sum = 0;
#pragma unroll
                for (int n = 0; n < PAGE / 8; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        float &x = sc[n][2 * i + c];
                        x = sl_dev_exp(x - base);
                        sum += x;
                    }
                sum += sl_shfl_xor(sum, 1);
                sum += sl_shfl_xor(sum, 2);
                l[i] = fmaf(l[i], f, sum);
                m[i] = top;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    o[n][2 * i] *= f;
                    o[n][2 * i + 1] *= f;
                }
            }
#pragma unroll
            for (int kk = 0; kk < PAGE / 16; kk++) {
                uint32_t high[4], low[4];
                sl_split_f16(sc[2 * kk][0], sc[2 * kk][1], high[0], low[0]);
                sl_split_f16(sc[2 * kk][2], sc[2 * kk][3], high[1], low[1]);
                sl_split_f16(sc[2 * kk + 1][0], sc[2 * kk + 1][1], high[2], low[2]);
                sl_split_f16(sc[2 * kk + 1][2], sc[2 * kk + 1][3], high[3], low[3]);
#pragma unroll
                for (int n = 0; n < D / 8; n += 2) {
                    uint32_t b[4];
                    sl_ldmatrix4_trans(b, pv + kk * 16 * STRIDE + n * 8);
                    sl_mma_f16(o[n], low, b[0], b[1]);
                    sl_mma_f16(o[n], high, b[0], b[1]);
                    sl_mma_f16(o[n + 1], low, b[2], b[3]);
                    sl_mma_f16(o[n + 1], high, b[2], b[3]);
                }
            }
            for (uint32_t j = 0; odd && j < n_valid; j++) {
                uint32_t pos = page * PAGE + j;
                const __half *row = (const __half *)v_at(j);
#pragma unroll
                for (int n = 0; n < D / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        uint32_t at = (uint32_t)n * 8 + quad * 2 + (uint32_t)(i & 1);
                        bool seen = mine[i / 2] && pos >= my_lo[i / 2] && pos < my_len[i / 2];
                        float x = seen && at < dim_v ? __half2float(row[at]) : 0.0f;
                        if (!(fabsf(x) < INFINITY))
                            o[n][i] += x;
                    }
            }
        }
        __syncthreads();
        first = next;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t r = pair[i] / width, h = pair[i] % width;
        if (r >= n_rows || h >= n_heads)
            continue;
        float f = 1.0f, sum = l[i];
        if (a.sinks) {
            float sink = a.sinks[head0 + h], top = fmaxf(m[i], sink);
            f = sl_dev_exp(m[i] - top);
            sum = fmaf(sum, f, sl_dev_exp(sink - top));
        }
        f = f * (1.0f / sum);
        float *y = a.y + ((size_t)(a.row0 + row0 + r) * a.n_heads + head0 + h) * dim_v;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                uint32_t at = (uint32_t)n * 8 + quad * 2 + (uint32_t)c;
                if (at < dim_v)
                    y[at] = o[n][2 * i + c] * f;
            }
    }
}

#define KERNEL(D)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        sl_k_attention_tile_##D(SL_KERNEL_ARGS(sl_karg_attention, a)) {                            \
        sl_grid_begin();                                                                           \
        attention_tile<D>(a);                                                                      \
    }
KERNEL(64)
KERNEL(128)
KERNEL(256)

#define BLOCKS(D)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        sl_k_attention_tile_blocks_##D(SL_KERNEL_ARGS(sl_karg_attention, a)) {                     \
        sl_grid_begin();                                                                           \
        attention_tile<D, SL_SEES_BLOCKS>(a);                                                      \
    }
BLOCKS(64)
BLOCKS(128)
BLOCKS(256)
