/* Attention of single (generated) rows over paged f16 KV on tensor cores: memory is the limit, so
 * what matters is that every warp keeps its own copies in flight.
 *
 * A row's positions are cut into parts as in attention.cu. A block takes one part for up to eight
 * heads of a KV head; of each page, warp w takes positions 16 w .. + 15, with its own shared
 * memory, its own online softmax and no barrier until the end, when the warps' states are joined in
 * order.
 *
 * Tensor cores take f16. Eight heads fill half of a fragment's sixteen rows, so queries (scaled by
 * a power of two per head) and probabilities go in as two f16: the upper rows hold the value
 * rounded to f16, the lower rows what is missing, and the two results are added: 22 bits, for
 * nothing. */
#include "backends/kernels/attention.cuh"
#include "backends/kernels/heads.cuh"

#define WARPS   4
#define THREADS (WARPS * SL_WARP)
#define STAGES  2
#define ROWS    16 /* positions of a warp's step */
#define HEADS   ((int)SL_ATTN_HEAD_BLOCK)
#define MINE    (HEADS / WARPS) /* heads of a warp: warp, warp + WARPS, ... */
#define JOIN    8               /* parts that are read at once */

/* What the warps of a block share beside the stages. */
template <int D> struct split_shared {
    alignas(16) float q[HEADS][D]; /* as attention takes them */
    alignas(16) __half pairs[2 * HEADS][D + 8];
    float factor[HEADS];
    bool last;
};

/* The query of head h, as it lies in s.q, split for the tensor cores. */
template <int D>
__device__ __forceinline__ void split_query(struct split_shared<D> &s, uint32_t h, float scale) {
    uint32_t lane = threadIdx.x % SL_WARP;
    float2 x[D / 64];
    int most = 0;
#pragma unroll
    for (int j = 0; j < D / 64; j++) {
        x[j] = *(const float2 *)&s.q[h][lane * 2 + 64 * j];
        most = max(most, max(__float_as_int(fabsf(x[j].x)), __float_as_int(fabsf(x[j].y))));
    }
    float up, down = sl_attn_query_scale(__int_as_float(sl_warp_max_int(most)), up);
#pragma unroll
    for (int j = 0; j < D / 64; j++) {
        uint32_t high, low;
        sl_split_f16(x[j].x * down, x[j].y * down, high, low);
        *(uint32_t *)&s.pairs[h][lane * 2 + 64 * j] = high;
        *(uint32_t *)&s.pairs[h + HEADS][lane * 2 + 64 * j] = low;
    }
    if (lane == 0)
        s.factor[h] = up * scale;
}

/* The parts of a warp's heads, all of them asked for before the first is used, to y. */
template <int D>
__device__ __forceinline__ void join_parts(const struct sl_karg_attention &a, uint32_t row,
                                           uint32_t head, uint32_t n_heads, uint32_t n) {
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, dim_v = a.kv.dim_v;
    uint32_t next = SL_ATTN_PART_FLOATS(dim_v);
#pragma unroll 1
    for (uint32_t i = lane * 4; i < (D > 128 ? (dim_v + 127) & ~127u : 128u); i += 128) {
        float4 o[MINE][JOIN], y[MINE];
        float2 ml[MINE];
        const float *part[MINE];
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            uint32_t h = min(warp + WARPS * (uint32_t)k, n_heads - 1);
            part[k] = sl_attn_part(a, blockIdx.z, head + h);
            ml[k] = lane < n ? __ldcg((const float2 *)(part[k] + lane * next + dim_v))
                             : make_float2(-INFINITY, 0);
            part[k] += min(i, dim_v - 4);
            y[k] = make_float4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < MINE; k++)
#pragma unroll
            for (int j = 0; j < JOIN; j++)
                o[k][j] = __ldcg((const float4 *)(part[k] + min((uint32_t)j, n - 1) * next));
        float by[MINE], inverse[MINE];
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            float top = sl_warp_max(ml[k].x), sink = 0;
            if (a.sinks) {
                float s = a.sinks[head + min(warp + WARPS * (uint32_t)k, n_heads - 1)];
                top = fmaxf(top, s);
                sink = sl_dev_exp(s - top);
            }
            by[k] = lane < n ? sl_dev_exp(ml[k].x - top) : 0.0f;
            inverse[k] = 1.0f / (sl_warp_sum(lane < n ? ml[k].y * by[k] : 0.0f) + sink);
        }
        for (uint32_t from = 0; from < n; from += JOIN) {
#pragma unroll
            for (int k = 0; k < MINE; k++) {
#pragma unroll
                for (int j = 0; j < JOIN; j++) {
                    float f = sl_shfl(by[k], (int)(from & (SL_WARP - 1)) + j);
                    if (from + (uint32_t)j < n) {
                        y[k].x = fmaf(o[k][j].x, f, y[k].x);
                        y[k].y = fmaf(o[k][j].y, f, y[k].y);
                        y[k].z = fmaf(o[k][j].z, f, y[k].z);
                        y[k].w = fmaf(o[k][j].w, f, y[k].w);
                    }
                }
                if (from + JOIN < n)
#pragma unroll
                    for (int j = 0; j < JOIN; j++)
                        o[k][j] =
                            __ldcg((const float4 *)(part[k] +
                                                    min(from + JOIN + (uint32_t)j, n - 1) * next));
            }
        }
#pragma unroll
        for (int k = 0; k < MINE; k++) {
            uint32_t h = warp + WARPS * (uint32_t)k;
            if (h < n_heads && i < dim_v)
                *(float4 *)(a.y + ((size_t)row * a.n_heads + head + h) * dim_v + i) =
                    make_float4(y[k].x * inverse[k], y[k].y * inverse[k], y[k].z * inverse[k],
                                y[k].w * inverse[k]);
        }
    }
}

template <int D, int SEES = SL_SEES_ALL>
__device__ __forceinline__ void attention_split(const struct sl_karg_attention &a) {
    constexpr int STRIDE = D + 8; /* halves */
    extern __shared__ uint4 shared[];
    __shared__ struct split_shared<D> sh;
    uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP, g = lane / 4,
             quad = lane % 4;
    uint32_t dim_k = a.kv.dim_k, dim_v = a.kv.dim_v, row = a.row0 + blockIdx.z;
    if constexpr (SEES != SL_SEES_ALL)
        sl_grid_begin(); /* what was chosen is not uploaded */
    struct sl_attn_range r = sl_attn_row_range<false, SEES>(a, row);
    uint32_t p0 = blockIdx.x * r.pages_per_part, p1 = min(p0 + r.pages_per_part, r.n_pages);
    if (p0 >= r.n_pages) {
        if constexpr (SEES == SL_SEES_ALL)
            sl_grid_begin();
        return;
    }
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    uint32_t blocks = (group + SL_ATTN_HEAD_BLOCK - 1) / SL_ATTN_HEAD_BLOCK;
    uint32_t kv_head = blockIdx.y / blocks, in_group = blockIdx.y % blocks * SL_ATTN_HEAD_BLOCK;
    uint32_t head = kv_head * group + in_group, n_heads = min(SL_ATTN_HEAD_BLOCK, group - in_group);
    const uint32_t *pages = a.page_table + (size_t)a.row_seq[row] * a.max_pages + r.first_page;
    struct sl_attn_places<SEES> places(a, row, kv_head);
    bool by_pages = places.by_pages();
    auto page_of = [&](uint32_t t) -> size_t {
        if constexpr (SEES == SL_SEES_ALL)
            return pages[t];
        else
            return by_pages ? pages[places.at(t * 64) / 64] : 0;
    };

    __half *mine = (__half *)shared + warp * STAGES * 2 * ROWS * STRIDE;
    /* Positions of step t to stage t % STAGES: K rows, then V rows. */
    auto copy = [&](uint32_t t, size_t page) {
        if (t < p1) {
            uint32_t from = (r.first_page + t) * 64 + warp * ROWS;
            const uint8_t *k = (const uint8_t *)a.kv.k + page * a.kv.k_page_bytes +
                               ((size_t)kv_head * 64 + warp * ROWS) * dim_k * 2;
            const uint8_t *v = (const uint8_t *)a.kv.v + page * a.kv.v_page_bytes +
                               ((size_t)kv_head * 64 + warp * ROWS) * dim_v * 2;
            __half *to = mine + t % STAGES * 2 * ROWS * STRIDE;
            /* A lane copies the same 16 bytes of every 32 / (D / 8)th row. */
            constexpr uint32_t LANES = D / 8, EVERY = SL_WARP / LANES;
            uint32_t j0 = lane / LANES, at = lane % LANES * 8;
            k += ((size_t)j0 * dim_k + at) * 2;
            v += ((size_t)j0 * dim_v + at) * 2;
            to += j0 * STRIDE + at;
#pragma unroll
            for (uint32_t j = 0; j < ROWS; j += EVERY) {
                bool valid = from + j0 + j >= r.lo && from + j0 + j < r.len;
                const uint8_t *k_row = k, *v_row = v;
                if constexpr (SEES == SL_SEES_BLOCKS) {
                    if (!by_pages && valid) {
                        uint32_t pos = places.at(from + j0 + j);
                        size_t in_head = (size_t)kv_head * 64 + pos % 64;
                        k_row = (const uint8_t *)a.kv.k + pages[pos / 64] * a.kv.k_page_bytes +
                                (in_head * dim_k + at) * 2;
                        v_row = (const uint8_t *)a.kv.v + pages[pos / 64] * a.kv.v_page_bytes +
                                (in_head * dim_v + at) * 2;
                    }
                }
                sl_copy16(to + j * STRIDE, k_row, valid && at < dim_k);
                sl_copy16(to + (ROWS + j) * STRIDE, v_row, valid && at < dim_v);
                k += EVERY * dim_k * 2;
                v += EVERY * dim_v * 2;
            }
        }
        sl_copy_commit();
    };
    /* What was uploaded is read before the wait; what lies there of K and V is asked for. */
    size_t first_page = page_of(p0);
    if constexpr (SEES == SL_SEES_ALL) {
        for (uint32_t t = p0; t < min(p0 + 2, p1); t++)
            for (uint32_t i = threadIdx.x * 128; i < 64 * 2 * dim_k; i += THREADS * 128)
                sl_prefetch((const uint8_t *)a.kv.k + pages[t] * a.kv.k_page_bytes +
                            (size_t)kv_head * 64 * dim_k * 2 + i);
        for (uint32_t t = p0; t < min(p0 + 2, p1); t++)
            for (uint32_t i = threadIdx.x * 128; i < 64 * 2 * dim_v; i += THREADS * 128)
                sl_prefetch((const uint8_t *)a.kv.v + pages[t] * a.kv.v_page_bytes +
                            (size_t)kv_head * 64 * dim_v * 2 + i);
        sl_grid_begin();
    }

    {
        const float *from = a.q + (size_t)row * a.stride_q + (size_t)head * dim_k;
        struct sl_head<D> v[MINE];
#pragma unroll
        for (int i = 0; i < MINE; i++)
            if (warp + WARPS * i < n_heads)
                v[i].fetch(from + (size_t)(warp + WARPS * i) * dim_k, dim_k);
        copy(p0, first_page);
#pragma unroll
        for (int i = 0; i < MINE; i++) {
            uint32_t h = warp + WARPS * (uint32_t)i;
            if (h >= n_heads)
                break;
            v[i].put(sh.q[h]);
            split_query<D>(sh, h, a.scale);
        }
    }
    __syncthreads();
    uint32_t tile = lane / 8, in = lane % 8;
    uint32_t q[D / 16][4];
    {
        const __half *pq = &sh.pairs[(tile & 1) * 8 + in][(tile >> 1) * 8];
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            sl_ldmatrix4(q[i], pq + i * 16);
    }
    float factor = sh.factor[min(g, n_heads - 1)];
    float m = -INFINITY, l = 0, o[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[n][i] = 0;

    for (uint32_t t = p0; t < p1; t++) {
        __syncwarp(); /* all have read the stage that is filled next */
        copy(t + 1, t + 1 < p1 ? page_of(t + 1) : 0);
        sl_copy_wait_but_one();
        __syncwarp();
        const __half *ks = mine + t % STAGES * 2 * ROWS * STRIDE, *vs = ks + ROWS * STRIDE;
        const __half *pk = ks + ((tile >> 1) * 8 + in) * STRIDE + (tile & 1) * 8;
        const __half *pv = vs + ((tile & 1) * 8 + in) * STRIDE + (tile >> 1) * 8;
        /* Two sums, so that one mma does not wait for the one before it. */
        float s[2][2][4];
#pragma unroll
        for (int i = 0; i < 16; i++)
            s[i / 8][i / 4 % 2][i % 4] = 0;
#pragma unroll
        for (int kk = 0; kk < D / 16; kk++) {
            uint32_t b[4];
            sl_ldmatrix4(b, pk + kk * 16);
            sl_mma_f16(s[kk % 2][0], q[kk], b[0], b[1]);
            sl_mma_f16(s[kk % 2][1], q[kk], b[2], b[3]);
        }
        float x[2][2], top = m;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                uint32_t pos = (r.first_page + t) * 64 + warp * ROWS + (uint32_t)n * 8 + quad * 2 +
                               (uint32_t)c;
                float v = ((s[0][n][c] + s[1][n][c]) + (s[0][n][2 + c] + s[1][n][2 + c])) * factor;
                x[n][c] = pos >= r.lo && pos < r.len ? v : -INFINITY;
                top = fmaxf(top, x[n][c]);
            }
        top = fmaxf(top, sl_shfl_xor(top, 1));
        top = fmaxf(top, sl_shfl_xor(top, 2));
        float base = top == -INFINITY ? 0.0f : top, f = sl_dev_exp(m - base), sum = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[i / 2][i % 2] = sl_dev_exp(x[i / 2][i % 2] - base);
            sum += x[i / 2][i % 2];
        }
        sum += sl_shfl_xor(sum, 1);
        sum += sl_shfl_xor(sum, 2);
        l = fmaf(l, f, sum);
        m = top;
        uint32_t p[4];
        sl_split_f16(x[0][0], x[0][1], p[0], p[1]);
        sl_split_f16(x[1][0], x[1][1], p[2], p[3]);
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                o[n][i] *= f, o[n + 1][i] *= f;
            sl_ldmatrix4_trans(b, pv + n * 8);
            sl_mma_f16(o[n], p, b[0], b[1]);
            sl_mma_f16(o[n + 1], p, b[2], b[3]);
        }
    }

    /* The warps' states over the stages: [WARPS][heads][D + 8], maximum and sum last. */
    sl_copy_wait();
    __syncthreads();
    float *state = (float *)shared, *my_state = state + (warp * HEADS + g) * (D + 8);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
        *(float2 *)(my_state + n * 8 + quad * 2) =
            make_float2(o[n][0] + o[n][2], o[n][1] + o[n][3]);
    if (quad == 0)
        *(float2 *)(my_state + D) = make_float2(m, l);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < MINE; k++) {
        uint32_t h = warp + WARPS * (uint32_t)k;
        if (h >= n_heads)
            break;
        const float *of = state + h * (D + 8);
        constexpr uint32_t NEXT = HEADS * (D + 8);
        float2 ml[WARPS];
        float top = -INFINITY, w[WARPS], sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < WARPS; i++) {
            ml[i] = *(const float2 *)(of + i * NEXT + D);
            top = fmaxf(top, ml[i].x);
        }
#pragma unroll
        for (uint32_t i = 0; i < WARPS; i++) {
            w[i] = sl_dev_exp(ml[i].x - (top == -INFINITY ? 0.0f : top));
            sum = fmaf(ml[i].y, w[i], sum);
        }
        float *to = sl_attn_part(a, blockIdx.z, head + h) + blockIdx.x * SL_ATTN_PART_FLOATS(dim_v);
#pragma unroll
        for (uint32_t c = 0; c < (D + 127) / 128; c++) {
            uint32_t i = lane * 4 + c * 128;
            if (i >= dim_v)
                break;
            float4 y = make_float4(0, 0, 0, 0);
#pragma unroll
            for (uint32_t j = 0; j < WARPS; j++) {
                float4 v = *(const float4 *)(of + j * NEXT + i);
                y.x = fmaf(v.x, w[j], y.x), y.y = fmaf(v.y, w[j], y.y);
                y.z = fmaf(v.z, w[j], y.z), y.w = fmaf(v.w, w[j], y.w);
            }
            *(float4 *)(to + i) = y;
        }
        if (lane == 0)
            *(float2 *)(to + dim_v) = make_float2(top, sum);
    }
    if (!a.done)
        return;

    /* The block that finishes these heads last joins their parts. */
    uint32_t n = sl_attn_parts(r);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t *done = a.done + blockIdx.z * gridDim.y + blockIdx.y;
        __threadfence(); /* the whole block's, which the barrier has brought here */
        sh.last = atomicAdd(done, 1u) == n - 1;
        if (sh.last)
            *done = 0;
        __threadfence();
    }
    __syncthreads();
    if (!sh.last)
        return;
    join_parts<D>(a, row, head, n_heads, n);
}

#define KERNEL(D)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        sl_k_attention_split_##D(SL_KERNEL_ARGS(sl_karg_attention, a)) {                           \
        attention_split<D>(a);                                                                     \
    }
KERNEL(64)
KERNEL(128)
KERNEL(256)

#define BLOCKS(D)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        sl_k_attention_split_blocks_##D(SL_KERNEL_ARGS(sl_karg_attention, a)) {                    \
        attention_split<D, SL_SEES_BLOCKS>(a);                                                     \
    }
BLOCKS(64)
BLOCKS(128)
BLOCKS(256)
