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

#define WARPS   4
#define THREADS (WARPS * 32)
#define STAGES  2
#define ROWS    16 /* positions of a warp's step */

template <int D>
__device__ __forceinline__ void attention_split(const struct sl_karg_attention &a) {
    constexpr int STRIDE = D + 8; /* halves */
    extern __shared__ uint4 shared[];
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, quad = lane % 4;
    uint32_t dim_k = a.kv.dim_k, dim_v = a.kv.dim_v, row = a.row0 + blockIdx.z;
    struct sl_attn_range r = sl_attn_row_range(a, row);
    uint32_t p0 = blockIdx.x * r.pages_per_part, p1 = min(p0 + r.pages_per_part, r.n_pages);
    if (p0 >= r.n_pages) {
        sl_grid_begin();
        return;
    }
    uint32_t group = a.n_heads / a.kv.n_kv_heads;
    uint32_t blocks = (group + SL_ATTN_HEAD_BLOCK - 1) / SL_ATTN_HEAD_BLOCK;
    uint32_t kv_head = blockIdx.y / blocks, in_group = blockIdx.y % blocks * SL_ATTN_HEAD_BLOCK;
    uint32_t head = kv_head * group + in_group, n_heads = min(SL_ATTN_HEAD_BLOCK, group - in_group);
    const uint32_t *pages = a.page_table + (size_t)a.row_seq[row] * a.max_pages + r.first_page;

    __half *mine = (__half *)shared + warp * STAGES * 2 * ROWS * STRIDE;
    /* Positions of step t to stage t % STAGES: K rows, then V rows. */
    auto copy = [&](uint32_t t) {
        if (t < p1) {
            size_t page = pages[t];
            uint32_t from = (r.first_page + t) * 64 + warp * ROWS;
            const uint8_t *k = (const uint8_t *)a.kv.k + page * a.kv.k_page_bytes +
                               ((size_t)kv_head * 64 + warp * ROWS) * dim_k * 2;
            const uint8_t *v = (const uint8_t *)a.kv.v + page * a.kv.v_page_bytes +
                               ((size_t)kv_head * 64 + warp * ROWS) * dim_v * 2;
            __half *to = mine + t % STAGES * 2 * ROWS * STRIDE;
            /* A lane copies the same 16 bytes of every 32 / (D / 8)th row. */
            constexpr uint32_t LANES = D / 8, STEP = 32 / LANES;
            uint32_t j0 = lane / LANES, at = lane % LANES * 8;
            k += ((size_t)j0 * dim_k + at) * 2;
            v += ((size_t)j0 * dim_v + at) * 2;
            to += j0 * STRIDE + at;
#pragma unroll
            for (uint32_t j = 0; j < ROWS; j += STEP) {
                bool valid = from + j0 + j >= r.lo && from + j0 + j < r.len;
                sl_copy16(to + j * STRIDE, k, valid && at < dim_k);
                sl_copy16(to + (ROWS + j) * STRIDE, v, valid && at < dim_v);
                k += STEP * dim_k * 2;
                v += STEP * dim_v * 2;
            }
        }
        sl_copy_commit();
    };
    /* What was uploaded is read before the wait; what lies there of K and V is asked for. */
    for (uint32_t t = p0; t < min(p0 + 2, p1); t++)
        for (uint32_t i = threadIdx.x * 128; i < 64 * 2 * dim_k; i += THREADS * 128)
            sl_prefetch((const uint8_t *)a.kv.k + pages[t] * a.kv.k_page_bytes +
                        (size_t)kv_head * 64 * dim_k * 2 + i);
    for (uint32_t t = p0; t < min(p0 + 2, p1); t++)
        for (uint32_t i = threadIdx.x * 128; i < 64 * 2 * dim_v; i += THREADS * 128)
            sl_prefetch((const uint8_t *)a.kv.v + pages[t] * a.kv.v_page_bytes +
                        (size_t)kv_head * 64 * dim_v * 2 + i);
    sl_grid_begin();
    copy(p0);

    /* This lane's queries: head g, elements 2 quad, + 1, + 8, + 9 of each sixteen. */
    uint32_t q[D / 16][4];
    float factor;
    {
        float x[D / 4], most = 0;
        const float *from =
            a.q + (size_t)row * a.stride_q + (size_t)(head + min(g, n_heads - 1)) * dim_k;
#pragma unroll
        for (int i = 0; i < D / 4; i++) {
            uint32_t at = (uint32_t)(i / 4 * 16 + i % 4 / 2 * 8 + (i & 1)) + quad * 2;
            x[i] = at < dim_k && g < n_heads ? from[at] : 0.0f;
            most = fmaxf(most, fabsf(x[i]));
        }
        most = fmaxf(most, sl_shfl_xor(most, 1));
        most = fmaxf(most, sl_shfl_xor(most, 2));
        float down = sl_attn_query_scale(most, factor);
        factor *= a.scale;
        /* The warps share the splitting, and hand the fragments around. */
        __shared__ uint4 fragment[D / 16][32];
#pragma unroll
        for (int i = 0; i < D / 16; i++)
            if (i % WARPS == (int)warp) {
                uint4 f;
                sl_split_f16(x[4 * i] * down, x[4 * i + 1] * down, f.x, f.y);
                sl_split_f16(x[4 * i + 2] * down, x[4 * i + 3] * down, f.z, f.w);
                fragment[i][lane] = f;
            }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < D / 16; i++) {
            uint4 f = fragment[i][lane];
            q[i][0] = f.x, q[i][1] = f.y, q[i][2] = f.z, q[i][3] = f.w;
        }
    }
    float m = -INFINITY, l = 0, o[D / 8][4];
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            o[n][i] = 0;

    uint32_t tile = lane / 8, in = lane % 8;
    for (uint32_t t = p0; t < p1; t++) {
        __syncwarp(); /* all have read the stage that is filled next */
        copy(t + 1);
        sl_copy_wait_but_one();
        __syncwarp();
        const __half *ks = mine + t % STAGES * 2 * ROWS * STRIDE, *vs = ks + ROWS * STRIDE;
        const __half *pk = ks + ((tile >> 1) * 8 + in) * STRIDE + (tile & 1) * 8;
        const __half *pv = vs + ((tile & 1) * 8 + in) * STRIDE + (tile >> 1) * 8;
        float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
        for (int kk = 0; kk < D / 16; kk++) {
            uint32_t b[4];
            sl_ldmatrix4(b, pk + kk * 16);
            sl_mma_f16(s[0], q[kk], b[0], b[1]);
            sl_mma_f16(s[1], q[kk], b[2], b[3]);
        }
        float x[2][2], top = m;
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                uint32_t pos = (r.first_page + t) * 64 + warp * ROWS + (uint32_t)n * 8 + quad * 2 +
                               (uint32_t)c;
                float v = (s[n][c] + s[n][2 + c]) * factor;
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

    /* The warps' states: [WARPS][heads][D + 2] over the stages. */
    sl_copy_wait();
    __syncthreads();
    float *state = (float *)shared, *my_state = state + (warp * SL_ATTN_HEAD_BLOCK + g) * (D + 2);
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++)
            my_state[(uint32_t)n * 8 + quad * 2 + (uint32_t)c] = o[n][c] + o[n][2 + c];
    if (quad == 0)
        my_state[D] = m, my_state[D + 1] = l;
    __syncthreads();
    float *part = a.part + ((size_t)blockIdx.z * a.n_heads + head) * SL_ATTN_SPLITS * (dim_v + 2) +
                  blockIdx.x * (dim_v + 2);
    for (uint32_t h = warp; h < n_heads; h += WARPS) {
        const float *of = state + h * (D + 2);
        constexpr uint32_t NEXT = SL_ATTN_HEAD_BLOCK * (D + 2);
        float top = -INFINITY, w[WARPS], sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < WARPS; i++)
            top = fmaxf(top, of[i * NEXT + D]);
#pragma unroll
        for (uint32_t i = 0; i < WARPS; i++) {
            w[i] = sl_dev_exp(of[i * NEXT + D] - (top == -INFINITY ? 0.0f : top));
            sum = fmaf(of[i * NEXT + D + 1], w[i], sum);
        }
        float *to = part + (size_t)h * SL_ATTN_SPLITS * (dim_v + 2);
        for (uint32_t i = lane; i < dim_v; i += 32) {
            float y = 0;
#pragma unroll
            for (uint32_t j = 0; j < WARPS; j++)
                y = fmaf(of[j * NEXT + i], w[j], y);
            to[i] = y;
        }
        if (lane == 0)
            to[dim_v] = top, to[dim_v + 1] = sum;
    }
    if (!a.done)
        return;

    /* The block that finishes these heads last joins their parts. */
    __shared__ bool last;
    __shared__ float factors[WARPS][SL_ATTN_SPLITS + 1];
    uint32_t *done = a.done + blockIdx.z * gridDim.y + blockIdx.y, n = sl_attn_parts(r);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(done, 1u) == n - 1;
        if (last)
            *done = 0;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    for (uint32_t h = warp; h < n_heads; h += WARPS) {
        sl_attn_join_factors(a, blockIdx.z, head + h, n, factors[warp]);
        __syncwarp();
        sl_attn_join(a, blockIdx.z, head + h, n, factors[warp], lane, 32);
        __syncwarp();
    }
}

#define KERNEL(D)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                          \
        sl_k_attention_split_##D(SL_KERNEL_ARGS(sl_karg_attention, a)) {                           \
        attention_split<D>(a);                                                                     \
    }
KERNEL(64)
KERNEL(128)
KERNEL(256)
