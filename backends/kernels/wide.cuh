/* Attention over paged f16 KV whose values have 512 elements, on tensor cores (FlashAttention: Dao
 * et al. 2022): heads of 512, and latents (DeepSeek-AI 2024), which are one KV head's keys of 576
 * elements and, without their rotated end, its values; latents of 1024 and 64, of which rows may
 * see a window, too (latent_long.cu). A block reads a position once for 16 MT
 * pairs of (row, head).
 *
 * Of a chunk of 32 positions, the warps first share the scores (MT tiles of 16 pairs, and
 * positions), then meet over maxima, sums and probabilities in shared memory, then share the
 * elements of the output. As in attention_tile.cu, queries and probabilities go in as the sum of
 * two f16 each, and keys and values as they are. Chunks begin at position 0 and one that a row does
 * not see leaves its state as it is, so a row's bits do not depend on the others of its step.
 *
 * Generated rows: the heads of one row, one part of its chunks a block, joined by latent_join. */
#ifndef SL_BACKENDS_KERNELS_WIDE_CUH
#define SL_BACKENDS_KERNELS_WIDE_CUH

#include "backends/kernels/attention.cuh"

#define CHUNK   ((int)SL_WIDE_CHUNK)
#define PSTRIDE (CHUNK + 8)

/* The first position that a row of len sees. */
__device__ __forceinline__ uint32_t wide_first(const struct sl_karg_attention &a, uint32_t len) {
    return a.window && len > a.window ? len - a.window : 0;
}

/* What lies beside queries and positions in shared memory. */
template <int PAIRS, int GROUPS> struct wide_shared {
    alignas(16) __half p[2][PAIRS][PSTRIDE]; /* high, low */
    float top[GROUPS][PAIRS], sum[GROUPS][PAIRS], factor[PAIRS], scale[PAIRS];
    uint32_t seq[PAIRS], len[PAIRS];
};

/* MT: tiles of 16 pairs of a block; K: elements of a key; STAGES: chunks in shared memory; LATENT:
 * a value is the first V elements of its key; CHOSEN: a block has one row, and the positions that
 * it has chosen count from 0; WINDOW: rows may see a window alone. */
template <int MT, int K, int STAGES, bool LATENT, bool CHOSEN = false, bool WINDOW = false>
struct wide {
    static constexpr int V = LATENT ? K - (int)SL_LATENT_ROT : K;
    static constexpr int STRIDE = K + 8;                /* halves: 16 bytes to spread banks */
    static constexpr bool OWN_ROWS = !LATENT && MT > 1; /* values do not take the place of keys */
    static constexpr int WARPS = MT == 1 ? 4 : 8, THREADS = WARPS * SL_WARP, PAIRS = MT * 16;
    static constexpr int GROUPS = WARPS / MT;     /* warps that share a tile's scores */
    static constexpr int NT = CHUNK / 8 / GROUPS; /* tiles of 8 positions of each */
    static constexpr int COLS = V / WARPS / 8;    /* tiles of 8 elements of the output */
    static_assert(NT >= 1 && GROUPS * NT * 8 == CHUNK, "the warps share a chunk");
    static_assert(LATENT || STAGES == 1, "two kinds of rows have one stage");
    static_assert(LATENT || !CHOSEN, "values would have to be found too");
    static_assert(LATENT || !WINDOW, "nor have heads windows");

    const struct sl_karg_attention &a;
    __half *q, *ks;
    struct wide_shared<PAIRS, GROUPS> &s;
    uint32_t kv_head, warp, lane, g, quad, mt, group;
    float m[2], l[2], o[MT][COLS][4];
    const uint32_t *chosen; /* CHOSEN: the row's */

    __device__ __forceinline__ wide(const struct sl_karg_attention &args, uint32_t of_kv_head,
                                    __half *shared, struct wide_shared<PAIRS, GROUPS> &small)
        : a(args), q(shared), ks(shared + 2 * PAIRS * STRIDE), s(small), kv_head(of_kv_head) {
        warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, g = lane / 4, quad = lane % 4;
        mt = warp % MT, group = warp / MT;
        m[0] = m[1] = -INFINITY, l[0] = l[1] = 0;
#pragma unroll
        for (int i = 0; i < MT * COLS * 4; i++)
            o[i / (COLS * 4)][i / 4 % COLS][i % 4] = 0;
    }

    /* The query of pair p, which is element `from` of q, or zeros. */
    __device__ __forceinline__ void load_query(uint32_t p, const float *from) {
        float v[K / SL_WARP], most = 0;
#pragma unroll
        for (int j = 0; j < K / SL_WARP; j++) {
            v[j] = from ? from[lane + SL_WARP * j] : 0.0f;
            most = fmaxf(most, fabsf(v[j]));
        }
        most = sl_warp_max(most);
        float up, down = sl_attn_query_scale(most, up);
#pragma unroll
        for (int j = 0; j < K / SL_WARP; j++) {
            uint32_t at = p * STRIDE + lane + SL_WARP * (uint32_t)j;
            float x = v[j] * down;
            __half high = __float2half_rn(x);
            q[at] = high;
            q[PAIRS * STRIDE + at] = __float2half_rn(x - __half2float(high));
        }
        if (lane == 0)
            s.scale[p] = up * a.scale;
    }

    __device__ __forceinline__ __half *keys(uint32_t chunk) {
        return ks + (STAGES > 1 ? chunk % STAGES : 0) * CHUNK * STRIDE;
    }
    __device__ __forceinline__ __half *values(uint32_t chunk) {
        return OWN_ROWS ? ks + CHUNK * STRIDE : keys(chunk);
    }
    __device__ __forceinline__ size_t place(uint32_t chunk) {
        return ((size_t)kv_head * 64 + chunk % 2 * CHUNK) * K * 2;
    }

    /* Asks for a chunk's keys; positions from len on become zeros. */
    __device__ __forceinline__ void copy(uint32_t chunk, const uint32_t *pages, uint32_t len) {
        if constexpr (CHOSEN)
            copy_chosen(keys(chunk), chunk, pages, len);
        else
            copy_rows(keys(chunk),
                      (const uint8_t *)a.kv.k + pages[chunk / 2] * a.kv.k_page_bytes + place(chunk),
                      chunk, len);
    }
    __device__ __forceinline__ void copy_chosen(__half *to, uint32_t chunk, const uint32_t *pages,
                                                uint32_t len) {
        for (uint32_t i = threadIdx.x; i < CHUNK * (K / 8); i += THREADS) {
            uint32_t j = i / (K / 8), at = i % (K / 8) * 8, pos = chunk * CHUNK + j;
            uint32_t of = chosen[min(pos, len - 1)];
            const uint8_t *from = (const uint8_t *)a.kv.k + pages[of / 64] * a.kv.k_page_bytes;
            sl_copy16(to + j * STRIDE + at, from + ((size_t)(of % 64) * K + at) * 2, pos < len);
        }
    }
    __device__ __forceinline__ void copy_rows(__half *to, const uint8_t *from, uint32_t chunk,
                                              uint32_t len) {
        for (uint32_t i = threadIdx.x; i < CHUNK * (K / 8); i += THREADS) {
            uint32_t j = i / (K / 8), at = i % (K / 8) * 8;
            sl_copy16(to + j * STRIDE + at, from + ((size_t)j * K + at) * 2,
                      chunk * CHUNK + j < len);
        }
    }

    /* Values that are no numbers are set aside, since zero times an infinity would be NaN in rows
     * that do not see them; in those that do, a latent's score has made the sum NaN already. */
    __device__ __forceinline__ bool clean(__half *k) {
        bool found = false;
        for (uint32_t i = threadIdx.x; i < CHUNK * (V / 2); i += THREADS) {
            uint32_t *at = (uint32_t *)(k + i / (V / 2) * STRIDE) + i % (V / 2), w = *at;
            uint32_t bad = ((w & 0x7c00u) == 0x7c00u ? 0xffffu : 0u) |
                           ((w & 0x7c000000u) == 0x7c000000u ? 0xffff0000u : 0u);
            if (bad) {
                *at = w & ~bad;
                found = true;
            }
        }
        return found;
    }

    /* Gives them back to the pairs that see them: a value that is no number makes theirs none. */
    __device__ __forceinline__ void add_odd(const uint8_t *rows, uint32_t chunk, uint32_t seq,
                                            uint32_t len) {
        for (uint32_t j = 0; j < CHUNK && chunk * CHUNK + j < len; j++) {
            const __half *row = (const __half *)rows + (size_t)j * V;
#pragma unroll
            for (int t = 0; t < MT; t++)
#pragma unroll
                for (int n = 0; n < COLS; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        uint32_t p = (uint32_t)(t * 16 + i / 2 * 8) + g;
                        uint32_t at =
                            warp * (COLS * 8) + (uint32_t)n * 8 + quad * 2 + (uint32_t)(i & 1);
                        bool seen = s.seq[p] == seq && chunk * CHUNK + j < s.len[p];
                        float x = seen ? __half2float(row[at]) : 0.0f;
                        if (!(fabsf(x) < INFINITY))
                            o[t][n][i] += x;
                    }
        }
    }

    /* One chunk, whose keys have come, for pairs of sequence seq, which see at most len positions;
     * sure: all of these see all of it. Ends without a barrier: the chunk may still be read. */
    __device__ __forceinline__ void step(uint32_t chunk, const uint32_t *pages, uint32_t seq,
                                         uint32_t len_seen, bool sure) {
        __half *k = keys(chunk), *v_rows = values(chunk);
        const uint8_t *v_from = NULL;
        if constexpr (!LATENT)
            v_from = (const uint8_t *)a.kv.v + pages[chunk / 2] * a.kv.v_page_bytes + place(chunk);
        if constexpr (OWN_ROWS) {
            copy_rows(v_rows, v_from, chunk, len_seen);
            sl_copy_commit();
        }
        uint32_t tile = lane / 8, in = lane % 8;
        const __half *pq = q + (mt * 16 + (tile & 1) * 8 + in) * STRIDE + (tile >> 1) * 8;
        float x[NT][4], c[NT][4][4];
#pragma unroll
        for (int i = 0; i < NT * 16; i++)
            c[i / 16][i / 4 % 4][i % 4] = 0;
            /* Four sums, so that one mma does not wait for the one before it. */
#pragma unroll 4
        for (int kk = 0; kk < K / 16; kk += 2) {
            uint32_t high[2][4], low[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                sl_ldmatrix4(high[i], pq + (kk + i) * 16);
                sl_ldmatrix4(low[i], pq + PAIRS * STRIDE + (kk + i) * 16);
            }
#pragma unroll
            for (int n = 0; n < NT; n++) {
                uint32_t b[4]; /* 32 elements of 8 positions */
                sl_ldmatrix4(b, k + ((group * NT + (uint32_t)n) * 8 + in) * STRIDE + kk * 16 +
                                    tile * 8);
                sl_mma_f16(c[n][0], low[0], b[0], b[1]);
                sl_mma_f16(c[n][1], high[0], b[0], b[1]);
                sl_mma_f16(c[n][2], low[1], b[2], b[3]);
                sl_mma_f16(c[n][3], high[1], b[2], b[3]);
            }
        }
        uint32_t pair[2] = {mt * 16 + g, mt * 16 + g + 8};
        float top[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            bool mine = s.seq[pair[i]] == seq;
            uint32_t len = s.len[pair[i]];
            float most = -INFINITY, by = s.scale[pair[i]];
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    uint32_t pos =
                        chunk * CHUNK + (group * NT + (uint32_t)n) * 8 + quad * 2 + (uint32_t)j;
                    int e = 2 * i + j;
                    float v = (c[n][0][e] + c[n][2][e]) + (c[n][1][e] + c[n][3][e]);
                    bool seen = mine && pos < len;
                    if constexpr (WINDOW)
                        seen = seen && pos >= wide_first(a, len);
                    x[n][e] = seen ? v * by : -INFINITY;
                    most = fmaxf(most, x[n][e]);
                }
            most = fmaxf(most, sl_shfl_xor(most, 1));
            top[i] = fmaxf(most, sl_shfl_xor(most, 2));
            if (quad == 0)
                s.top[group][pair[i]] = top[i];
        }
        __syncthreads();
        if constexpr (!LATENT && !OWN_ROWS) {
            copy_rows(v_rows, v_from, chunk, len_seen); /* all warps have their scores */
            sl_copy_commit();
        }
        if (LATENT && !sure)
            clean(k);
        float f[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float most = m[i], sum = 0;
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
                most = fmaxf(most, s.top[n][pair[i]]);
            float base = most == -INFINITY ? 0.0f : most;
            f[i] = sl_dev_exp(m[i] - base);
            m[i] = most;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                float p0 = sl_dev_exp(x[n][2 * i] - base), p1 = sl_dev_exp(x[n][2 * i + 1] - base);
                uint32_t high, low, at = (group * NT + (uint32_t)n) * 8 + quad * 2;
                sum += p0;
                sum += p1;
                sl_split_f16(p0, p1, high, low);
                *(uint32_t *)&s.p[0][pair[i]][at] = high;
                *(uint32_t *)&s.p[1][pair[i]][at] = low;
            }
            sum += sl_shfl_xor(sum, 1);
            sum += sl_shfl_xor(sum, 2);
            if (quad == 0)
                s.sum[group][pair[i]] = sum;
            if (quad == 0 && group == 0)
                s.factor[pair[i]] = f[i];
        }
        if constexpr (!LATENT)
            sl_copy_wait();
        __syncthreads();
        bool odd = !LATENT && !sure && __syncthreads_or(clean(v_rows));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float sum = 0;
#pragma unroll
            for (int n = 0; n < GROUPS; n++)
                sum += s.sum[n][pair[i]];
            l[i] = fmaf(l[i], f[i], sum);
        }
#pragma unroll
        for (int t = 0; t < MT; t++) {
            float by[2] = {s.factor[t * 16 + g], s.factor[t * 16 + g + 8]};
#pragma unroll
            for (int n = 0; n < COLS; n++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    o[t][n][i] *= by[i / 2];
        }
        const __half *pv =
            v_rows + ((tile & 1) * 8 + in) * STRIDE + warp * (COLS * 8) + (tile >> 1) * 8;
#pragma unroll
        for (int kk = 0; kk < CHUNK / 16; kk++) {
            uint32_t p[2][MT][4];
#pragma unroll
            for (int t = 0; t < MT; t++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    sl_ldmatrix4(p[h][t],
                                 &s.p[h][t * 16 + (tile & 1) * 8 + in][kk * 16 + (tile >> 1) * 8]);
#pragma unroll
            for (int n = 0; n < COLS; n += 2) {
                uint32_t b[4];
                sl_ldmatrix4_trans(b, pv + kk * 16 * STRIDE + n * 8);
#pragma unroll
                for (int h = 1; h >= 0; h--)
#pragma unroll
                    for (int t = 0; t < MT; t++) {
                        sl_mma_f16(o[t][n], p[h][t], b[0], b[1]);
                        sl_mma_f16(o[t][n + 1], p[h][t], b[2], b[3]);
                    }
            }
        }
        if (odd)
            add_odd(v_from, chunk, seq, len_seen);
    }

    /* Chunks [begin, end) of sequence seq, whose pairs see at most len positions, and all of them
     * those from `from` to `all`. */
    __device__ __forceinline__ void walk(uint32_t begin, uint32_t end, uint32_t seq, uint32_t len,
                                         uint32_t all, uint32_t from = 0) {
        const uint32_t *pages = a.page_table + (size_t)seq * a.max_pages;
        if (STAGES > 1 && begin < end) {
            __syncthreads();
            copy(begin, pages, len);
            sl_copy_commit();
        }
        for (uint32_t chunk = begin; chunk < end; chunk++) {
            if (STAGES > 1) {
                sl_copy_wait();
                __syncthreads(); /* it is there, and the one before it has been read */
                if (chunk + 1 < end)
                    copy(chunk + 1, pages, len);
                sl_copy_commit();
            } else {
                __syncthreads();
                copy(chunk, pages, len);
                sl_copy_wait();
                __syncthreads();
            }
            step(chunk, pages, seq, len,
                 chunk * CHUNK + CHUNK <= all && (!WINDOW || chunk * CHUNK >= from));
        }
    }

    /* Sums and maxima to shared memory, for those who have the outputs. */
    __device__ __forceinline__ void publish() {
        __syncthreads();
        if (group == 0 && quad == 0)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                s.top[0][mt * 16 + g + 8 * (uint32_t)i] = m[i];
                s.sum[0][mt * 16 + g + 8 * (uint32_t)i] = l[i];
            }
        __syncthreads();
    }

    /* Pair p's two elements from column n on. */
    template <class PUT> __device__ __forceinline__ void outputs(PUT put) {
#pragma unroll
        for (int t = 0; t < MT; t++)
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int n = 0; n < COLS; n++)
                    put((uint32_t)(t * 16 + i * 8) + g,
                        warp * (COLS * 8) + (uint32_t)n * 8 + quad * 2,
                        make_float2(o[t][n][2 * i], o[t][n][2 * i + 1]));
    }
};

/* Prompt rows: a block takes pairs of rows and heads of KV head blockIdx.y. */
template <int MT, int K, int STAGES, bool LATENT, bool WINDOW = false>
__device__ __forceinline__ void wide_rows(const struct sl_karg_attention &a) {
    using body = wide<MT, K, STAGES, LATENT, false, WINDOW>;
    extern __shared__ uint4 shared[];
    __shared__ struct wide_shared<body::PAIRS, body::GROUPS> s;
    body b(a, blockIdx.y, (__half *)shared, s);
    uint32_t width = LATENT ? a.n_heads : a.n_heads / a.kv.n_kv_heads, head0 = blockIdx.y * width;
    uint32_t n_pairs = a.n_rows * width, p0 = blockIdx.x * body::PAIRS;
    uint32_t n = min((uint32_t)body::PAIRS, n_pairs - p0);
    for (uint32_t i = b.warp; i < body::PAIRS; i += body::WARPS) {
        uint32_t at = p0 + i, row = a.row0 + at / width;
        b.load_query(i, i < n ? a.q + (size_t)row * a.stride_q + (size_t)(head0 + at % width) * K
                              : NULL);
        if (b.lane == 0) {
            s.seq[i] = i < n ? a.row_seq[row] : UINT32_MAX;
            s.len[i] = i < n ? a.row_len[row] : 0;
        }
    }
    __syncthreads();
    for (uint32_t first = 0, next; first < n; first = next) { /* the pairs of one sequence */
        uint32_t seq = s.seq[first], len = 0, all = UINT32_MAX;
        for (next = first; next < n && s.seq[next] == seq; next++) {
            len = max(len, s.len[next]);
            all = min(all, s.len[next]);
        }
        uint32_t begin = WINDOW ? wide_first(a, all) / CHUNK : 0;
        if (first || next < n) /* pairs of another sequence see none of it */
            all = 0;
        b.walk(begin, (len + CHUNK - 1) / CHUNK, seq, len, all, WINDOW ? wide_first(a, len) : 0);
    }
    b.publish();
    b.outputs([&](uint32_t p, uint32_t col, float2 v) {
        if (p >= n)
            return;
        float inv = 1.0f / s.sum[0][p];
        size_t at = (size_t)a.row0 * a.n_heads + p0 + p;
        if constexpr (!LATENT)
            at = (size_t)(a.row0 + (p0 + p) / width) * a.n_heads + head0 + (p0 + p) % width;
        *(float2 *)(a.y + at * body::V + col) = make_float2(v.x * inv, v.y * inv);
    });
}

/* How many positions a row sees. */
template <bool CHOSEN>
__device__ __forceinline__ uint32_t wide_len(const struct sl_karg_attention &a, uint32_t row) {
    return CHOSEN ? min(a.row_len[row], a.n_top) : a.row_len[row];
}

/* Prompt rows over chosen positions: a block takes heads of one row. */
template <int MT, int K, int STAGES>
__device__ __forceinline__ void wide_chosen_rows(const struct sl_karg_attention &a) {
    using body = wide<MT, K, STAGES, true, true>;
    extern __shared__ uint4 shared[];
    __shared__ struct wide_shared<body::PAIRS, body::GROUPS> s;
    uint32_t blocks = (a.n_heads + body::PAIRS - 1) / body::PAIRS,
             row = a.row0 + blockIdx.x / blocks;
    uint32_t head = blockIdx.x % blocks * body::PAIRS, seq = a.row_seq[row];
    uint32_t n = min((uint32_t)body::PAIRS, a.n_heads - head), len = wide_len<true>(a, row);
    body b(a, 0, (__half *)shared, s);
    b.chosen = a.chosen + (size_t)row * a.n_top;
    for (uint32_t i = b.warp; i < body::PAIRS; i += body::WARPS) {
        b.load_query(i, i < n ? a.q + (size_t)row * a.stride_q + (size_t)(head + i) * K : NULL);
        if (b.lane == 0) {
            s.seq[i] = i < n ? seq : UINT32_MAX;
            s.len[i] = i < n ? len : 0;
        }
    }
    __syncthreads();
    b.walk(0, (len + CHUNK - 1) / CHUNK, seq, len, len);
    b.publish();
    b.outputs([&](uint32_t p, uint32_t col, float2 v) {
        if (p >= n)
            return;
        float inv = 1.0f / s.sum[0][p];
        *(float2 *)(a.y + ((size_t)row * a.n_heads + head + p) * body::V + col) =
            make_float2(v.x * inv, v.y * inv);
    });
}

/* The chunks of a row, from `first` on, and how many of them a part has: by the row alone. */
struct wide_cut {
    uint32_t first, n_chunks, per_part, n_parts;
};
template <bool WINDOW>
__device__ __forceinline__ struct wide_cut wide_cut(const struct sl_karg_attention &a,
                                                    uint32_t len) {
    struct wide_cut c;
    uint32_t most = SL_WIDE_SPLITS(a.n_heads);
    c.first = WINDOW ? wide_first(a, len) / CHUNK : 0;
    c.n_chunks = (len + CHUNK - 1) / CHUNK - c.first;
    c.per_part = (c.n_chunks + most - 1) / most;
    c.n_parts = (c.n_chunks + c.per_part - 1) / c.per_part;
    return c;
}
template <int V>
__device__ __forceinline__ float *wide_part(const struct sl_karg_attention &a, uint32_t wave_row,
                                            uint32_t head, uint32_t part) {
    return a.part + (((size_t)wave_row * a.n_heads + head) * SL_WIDE_SPLITS(a.n_heads) + part) *
                        SL_ATTN_PART_FLOATS(V);
}

/* Generated rows: block y takes heads of one row that share a KV head. */
template <int MT, int K, int STAGES, bool LATENT, bool CHOSEN = false, bool WINDOW = false>
__device__ __forceinline__ void wide_parts(const struct sl_karg_attention &a) {
    using body = wide<MT, K, STAGES, LATENT, CHOSEN, WINDOW>;
    constexpr int V = body::V;
    extern __shared__ uint4 shared[];
    __shared__ struct wide_shared<body::PAIRS, body::GROUPS> s;
    uint32_t width = LATENT ? a.n_heads : a.n_heads / a.kv.n_kv_heads;
    uint32_t blocks = (width + body::PAIRS - 1) / body::PAIRS, kv_head = blockIdx.y / blocks;
    uint32_t in_group = blockIdx.y % blocks * body::PAIRS, head = kv_head * width + in_group;
    uint32_t row = a.row0 + blockIdx.z, len = wide_len<CHOSEN>(a, row);
    uint32_t n = min((uint32_t)body::PAIRS, width - in_group);
    struct wide_cut c = wide_cut<WINDOW>(a, len);
    uint32_t begin = blockIdx.x * c.per_part, end = min(begin + c.per_part, c.n_chunks);
    if (begin >= c.n_chunks)
        return;
    body b(a, kv_head, (__half *)shared, s);
    if constexpr (CHOSEN)
        b.chosen = a.chosen + (size_t)row * a.n_top;
    uint32_t seq = a.row_seq[row];
    for (uint32_t i = b.warp; i < body::PAIRS; i += body::WARPS) {
        b.load_query(i, i < n ? a.q + (size_t)row * a.stride_q + (size_t)(head + i) * K : NULL);
        if (b.lane == 0) {
            s.seq[i] = seq;
            s.len[i] = len;
        }
    }
    b.walk(c.first + begin, c.first + end, seq, len,
           LATENT ? len : UINT32_MAX, /* what lies behind len is zero */
           WINDOW ? wide_first(a, len) : 0);
    b.publish();
    b.outputs([&](uint32_t p, uint32_t col, float2 v) {
        if (p < n)
            *(float2 *)(wide_part<V>(a, blockIdx.z, head + p, blockIdx.x) + col) = v;
    });
    for (uint32_t p = threadIdx.x; p < n; p += body::THREADS)
        *(float2 *)(wide_part<V>(a, blockIdx.z, head + p, blockIdx.x) + V) =
            make_float2(s.top[0][p], s.sum[0][p]);
}

/* Grid (heads, rows), four of the output's elements a thread: joins their parts. */
template <int V, bool CHOSEN = false, bool WINDOW = false>
__device__ __forceinline__ void wide_join(const struct sl_karg_attention &a) {
    __shared__ float factor[SL_WIDE_MAX_SPLITS], inverse;
    uint32_t head = blockIdx.x, row = a.row0 + blockIdx.y,
             n = wide_cut<WINDOW>(a, wide_len<CHOSEN>(a, row)).n_parts;
    const float *part = wide_part<V>(a, blockIdx.y, head, 0);
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

#endif
