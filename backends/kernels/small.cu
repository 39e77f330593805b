/* The ops that go element by element or row by row, the router, and sorting pairs by expert. */
#include "backends/kernels/groups.cuh"
#include "backends/kernels/quant.cuh"
#include "backends/kernels/quantize.cuh"
#include "common/limits.h"

extern "C" __global__ void sl_k_fill(SL_KERNEL_ARGS(sl_karg_fill, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n)
        a.dst[i] = a.value;
}

template <bool B32> __device__ void quantize(const struct sl_karg_quantize &a) {
    uint32_t lane = threadIdx.x % SL_WARP,
             g = blockIdx.y * (blockDim.x / SL_WARP) + threadIdx.x / SL_WARP;
    uint32_t n_groups = (a.n_in + 255) / 256;
    size_t row = blockIdx.x;
    if (g >= n_groups)
        return;
    struct sl_quantized v;
    sl_quantize_group<B32>(a.x + row * a.n_in, a.n_in, g, lane, v);
    sl_quantized_put<B32>(a.to, row * n_groups + g, lane, v);
}
extern "C" __global__ void __launch_bounds__(256)
    sl_k_quantize(SL_KERNEL_ARGS(sl_karg_quantize, a)) {
    sl_grid_begin();
    if (a.block32)
        quantize<true>(a);
    else
        quantize<false>(a);
}

/* One thread a unit of 32 elements (of 8 for float types). */
template <int T> __device__ __forceinline__ void embed(const struct sl_karg_embed &a) {
    using quant = sl_quant<T>;
    size_t t = blockIdx.x;
    const uint8_t *row =
        (const uint8_t *)a.w + (size_t)a.ids[t] * (a.n_in / quant::ELEMS) * quant::BYTES;
    uint32_t n = blockIdx.y * 128 + threadIdx.x;
    if (n >= a.n_in / 32)
        return;
    uint32_t blk = n * 32 / quant::ELEMS;
    const uint8_t *b = row + (size_t)blk * quant::BYTES;
    float *y = a.y + t * a.n_in + (size_t)blk * quant::ELEMS;
    struct sl_unit u;
    float d, dmin;
    quant::unit(b, (int)(n % (quant::ELEMS / 32)), u);
    quant::scales(b, d, dmin);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float scale = d * (float)(half ? u.scale_b : u.scale_a);
        float min = dmin * (float)(half ? u.min_b : u.min_a);
        float *to = y + (half ? u.group_b : u.group_a) * 16;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            uint32_t q = half ? u.b[i / 4] : u.a[i / 4];
            float w = scale * (float)(int8_t)(q >> (i % 4 * 8));
            if (quant::HAS_MIN)
                w = w - min;
            to[i] = a.scale != 1.0f ? w * a.scale : w;
        }
    }
}
template <int T> __device__ __forceinline__ void embed_float(const struct sl_karg_embed &a) {
    size_t t = blockIdx.x, from = (size_t)a.ids[t] * a.n_in;
    uint32_t end = min(a.n_in, blockIdx.y * 4096 + 4096);
    for (uint32_t i = blockIdx.y * 4096 + threadIdx.x; i < end; i += 128) {
        float w = sl_load_float<T>(a.w, from + i);
        a.y[t * a.n_in + i] = a.scale != 1.0f ? w * a.scale : w;
    }
}
#define EMBED(NAME)                                                                                \
    extern "C" __global__ void __launch_bounds__(128)                                              \
        sl_k_embed_##NAME(SL_KERNEL_ARGS(sl_karg_embed, a)) {                                      \
        sl_grid_begin();                                                                           \
        embed<SL_DTYPE_##NAME>(a);                                                                 \
    }
#define EMBED_FLOAT(NAME)                                                                          \
    extern "C" __global__ void __launch_bounds__(128)                                              \
        sl_k_embed_##NAME(SL_KERNEL_ARGS(sl_karg_embed, a)) {                                      \
        sl_grid_begin();                                                                           \
        embed_float<SL_DTYPE_##NAME>(a);                                                           \
    }
SL_QUANT_TYPES(EMBED)
SL_FLOAT_TYPES(EMBED_FLOAT)

/* A row of up to NORM_HELD elements a thread is read once, all of it asked for before the first
 * use, and its weights before the row is there: what one row takes is latency. */
#define NORM_HELD 16
extern "C" __global__ void __launch_bounds__(256)
    sl_k_rms_norm(SL_KERNEL_ARGS(sl_karg_rms_norm, a)) {
    __shared__ float shared[32];
    const float *x = a.x + (size_t)blockIdx.x * a.stride_x;
    float *y = a.y + (size_t)blockIdx.x * a.stride_y;
    float sum = 0, w[NORM_HELD], v[NORM_HELD];
    bool held = a.n <= NORM_HELD * blockDim.x;
    if (held)
#pragma unroll
        for (uint32_t j = 0; j < NORM_HELD; j++) {
            uint32_t i = threadIdx.x + j * blockDim.x;
            w[j] = a.w && i < a.n ? a.w[i] : 1.0f;
        }
    sl_grid_begin();
    if (held) {
#pragma unroll
        for (uint32_t j = 0; j < NORM_HELD; j++) {
            uint32_t i = threadIdx.x + j * blockDim.x;
            v[j] = i < a.n ? x[i] : 0.0f;
        }
#pragma unroll
        for (uint32_t j = 0; j < NORM_HELD; j++)
            sum = fmaf(v[j], v[j], sum);
    } else {
        for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
            sum = fmaf(x[i], x[i], sum);
    }
    sum = sl_block_sum(sum, shared);
    float inv = 1.0f / sqrtf(sum / (float)a.n + a.eps);
    if (held) {
#pragma unroll
        for (uint32_t j = 0; j < NORM_HELD; j++) {
            uint32_t i = threadIdx.x + j * blockDim.x;
            if (i < a.n)
                y[i] = a.w ? v[j] * inv * w[j] : v[j] * inv;
        }
        return;
    }
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        float u = x[i] * inv;
        y[i] = a.w ? u * a.w[i] : u;
    }
}

extern "C" __global__ void sl_k_rope_table(SL_KERNEL_ARGS(sl_karg_rope_table, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x;
    for (uint32_t i = threadIdx.x; i < a.n_freq; i += blockDim.x) {
        double s, c;
        sincos((double)a.pos[t] * (double)a.inv_freq[i], &s, &c);
        float *out = a.table + (t * a.n_freq + i) * 2;
        out[0] = (float)(c * (double)a.mscale);
        out[1] = (float)(s * (double)a.mscale);
    }
}

extern "C" __global__ void sl_k_rope(SL_KERNEL_ARGS(sl_karg_rope, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x;
    uint32_t n = blockIdx.y * blockDim.x + threadIdx.x;
    if (n >= a.n_heads * a.n_freq)
        return;
    uint32_t h = n / a.n_freq, i = n % a.n_freq;
    float *x = a.x + t * a.stride + (size_t)h * a.head_dim;
    const float *cs = a.table + (t * a.n_freq + i) * 2;
    uint32_t at = a.neox ? i : 2 * i, other = a.neox ? i + a.n_freq : 2 * i + 1;
    float u = x[at], v = x[other], c = cs[0], s = cs[1];
    x[at] = fmaf(u, c, -(v * s));
    x[other] = fmaf(u, s, v * c);
}

/* One block a row and KV head. */
extern "C" __global__ void __launch_bounds__(64)
    sl_k_kv_write(SL_KERNEL_ARGS(sl_karg_kv_write, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, h = blockIdx.y, page = a.slot[t] / 64, pos = a.slot[t] % 64;
    size_t k_row = a.kv.q8 ? a.kv.dim_k / 32 * 34 : a.kv.dim_k * 2;
    size_t v_row = a.kv.q8 ? a.kv.dim_v / 32 * 34 : a.kv.dim_v * 2;
    sl_kv_write_head(a.k + t * a.stride_k + h * a.kv.dim_k,
                     (uint8_t *)a.kv.k + page * a.kv.k_page_bytes + (h * 64 + pos) * k_row,
                     a.kv.dim_k, a.kv.q8, threadIdx.x, blockDim.x);
    sl_kv_write_head(a.v + t * a.stride_v + h * a.kv.dim_v,
                     (uint8_t *)a.kv.v + page * a.kv.v_page_bytes + (h * 64 + pos) * v_row,
                     a.kv.dim_v, a.kv.q8, threadIdx.x, blockDim.x);
}

/* One block a row. */
extern "C" __global__ void __launch_bounds__(128) sl_k_router(SL_KERNEL_ARGS(sl_karg_router, a)) {
    sl_grid_begin();
    sl_route_row<128>(a, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(128)
    sl_k_router_groups(SL_KERNEL_ARGS(sl_karg_router_groups, a)) {
    sl_grid_begin();
    sl_route_groups<128>(a.router, a.groups, blockIdx.x);
}
extern "C" __global__ void __launch_bounds__(128)
    sl_k_router_share(SL_KERNEL_ARGS(sl_karg_router_share, a)) {
    sl_grid_begin();
    sl_route_shared<128>(a, blockIdx.x);
}

/* The bound of ggml for what divides weights: the smallest normal binary16. */
#define LEAST_SUM 0x1p-14f

extern "C" __global__ void __launch_bounds__(128)
    sl_k_router_softplus(SL_KERNEL_ARGS(sl_karg_softplus_router, a)) {
    __shared__ float score[SL_MAX_EXPERTS], key[SL_MAX_EXPERTS], weight[SL_MAX_EXPERTS_USED];
    __shared__ int chosen[SL_MAX_EXPERTS_USED];
    sl_grid_begin();
    size_t t = blockIdx.x;
    uint32_t n = a.n_expert, lane = threadIdx.x;
    for (uint32_t i = threadIdx.x; i < n; i += 128) {
        float x = a.logits[t * n + i], s = sl_is_nan(x) ? x : sqrtf(sl_dev_softplus(x));
        float v = a.bias ? s + a.bias[i] : s;
        score[i] = s;
        key[i] = sl_is_nan(v) ? -INFINITY : v;
    }
    __syncthreads();
    if (a.table) {
        size_t of = (size_t)a.tokens[a.rows ? a.rows[t] : t] * a.k;
        for (uint32_t r = threadIdx.x; r < a.k; r += 128)
            chosen[r] = a.table[of + r];
        __syncthreads();
    } else if (n <= SL_TOP_FEW) {
        sl_top_ranks<128>(key, n, a.k, chosen);
    } else {
        sl_top_rounds<128>(key, n, a.k, chosen);
    }
    if (lane >= SL_WARP)
        return;
    for (uint32_t r = lane; r < a.k; r += SL_WARP)
        weight[r] = score[chosen[r]];
    __syncwarp();
    float sum = 0;
    for (uint32_t r = 0; r < a.k; r++)
        sum += weight[r];
    sum = sum > LEAST_SUM ? sum : LEAST_SUM;
    for (uint32_t r = lane; r < a.k; r += SL_WARP) {
        a.ids[t * a.k + r] = (uint32_t)chosen[r];
        a.weights[t * a.k + r] = (a.normalize ? weight[r] / sum : weight[r]) * a.scale;
    }
}

extern "C" __global__ void sl_k_moe_combine(SL_KERNEL_ARGS(sl_karg_moe_combine, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= a.n)
        return;
    float y = a.y[t * a.n + i];
    for (uint32_t r = 0; r < a.k; r++)
        y = fmaf(a.pair_y[(t * a.k + r) * a.n + i], a.weights[t * a.k + r], y);
    a.y[t * a.n + i] = y;
}

extern "C" __global__ void sl_k_silu_mul(SL_KERNEL_ARGS(sl_karg_silu_mul, a)) {
    sl_grid_begin();
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.n)
        a.y[i] = sl_dev_silu(a.gate[i]) * a.up[i];
}

extern "C" __global__ void sl_k_add_gated(SL_KERNEL_ARGS(sl_karg_add_gated, a)) {
    sl_grid_begin();
    size_t t = blockIdx.x, i = (size_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (i >= a.n)
        return;
    float x = a.x[t * a.n + i], y = a.y[t * a.n + i];
    a.y[t * a.n + i] = a.gate ? fmaf(x, sl_dev_sigmoid(a.gate[t]), y) : y + x;
}

extern "C" __global__ void sl_k_gather_rows(SL_KERNEL_ARGS(sl_karg_gather, a)) {
    sl_grid_begin();
    size_t j = blockIdx.x, i = (size_t)blockIdx.y * blockDim.x + threadIdx.x;
    if (i < a.n)
        a.y[j * a.n + i] = a.x[(size_t)a.rows[j] * a.n + i];
}

/* The sum over a block of 64, of which lane l has the elements l and l + 32, in the definition's
 * order; in lane 0. */
__device__ __forceinline__ float block_sum(float u, float v) {
    float sum = u + sl_shfl_down(u, 16);
    sum = sum + v + sl_shfl_down(v, 16);
#pragma unroll
    for (int w = 8; w; w /= 2)
        sum += sl_shfl_down(sum, w);
    return sum;
}

/* A few loads a thread and no more: the logits were written just now, and come from the L2 cache.
 */
extern "C" __global__ void __launch_bounds__(SL_BLOCK_MAX_WARPS *SL_WARP)
    sl_k_block_max(SL_KERNEL_ARGS(sl_karg_block_max, a)) {
    sl_grid_begin();
    uint32_t lane = threadIdx.x % SL_WARP, n_blocks = a.n / 64 + (a.n % 64 != 0);
    uint32_t b = blockIdx.y * SL_BLOCK_MAX_WARPS + threadIdx.x / SL_WARP, i = b * 64 + lane;
    size_t t = blockIdx.x;
    if (b >= n_blocks)
        return;
    const float *x = a.x + t * a.n;
    float u = i < a.n ? x[i] : -INFINITY, v = i + SL_WARP < a.n ? x[i + SL_WARP] : -INFINITY;
    bool nan = sl_warp_any(sl_is_nan(u) || sl_is_nan(v)); /* fmaxf gives the other one */
    float top = sl_warp_max(fmaxf(u, v));
    uint32_t first = sl_warp_first(u == top), second = sl_warp_first(v == top);
    float sum = 0, inv_t = a.sum ? a.inv_t[t] : 0;
    if (inv_t > 0 && !nan && fabsf(top) < INFINITY)
        sum = block_sum(i < a.n ? sl_dev_exp_neg((u - top) * inv_t) : 0,
                        i + SL_WARP < a.n ? sl_dev_exp_neg((v - top) * inv_t) : 0);
    if (lane != 0)
        return;
    a.max[t * n_blocks + b] = nan ? NAN : top;
    if (a.at)
        a.at[t * n_blocks + b] = nan ? 0 : first < SL_WARP ? first : SL_WARP + second;
    if (a.sum)
        a.sum[t * n_blocks + b] = sum;
}

extern "C" __global__ void sl_k_words(SL_KERNEL_ARGS(sl_karg_words, a)) {
    sl_grid_begin();
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += gridDim.x * blockDim.x)
        *(volatile uint32_t *)&a.dst[i] = *(const volatile uint32_t *)&a.src[i];
}

extern "C" __global__ void __launch_bounds__(256)
    sl_k_words_rows(SL_KERNEL_ARGS(sl_karg_words_rows, a)) {
    sl_grid_begin();
    uint32_t i = blockIdx.x * 256 + threadIdx.x;
    size_t at = (size_t)a.rows[blockIdx.y] * a.n + i;
    if (i < a.n)
        a.dst[at] = *(const volatile uint32_t *)&a.src[at];
}

/* Sends rows to another device, whose sl_k_receive waits for the word. */
extern "C" __global__ void __launch_bounds__(1024) sl_k_send(SL_KERNEL_ARGS(sl_karg_send, a)) {
    sl_grid_begin();
    uint32_t channel = *a.channel;
    float *to = a.to + (size_t)channel * a.stride;
    for (uint32_t i = threadIdx.x; i < a.n; i += 1024)
        to[i] = a.x[i];
    __syncthreads();
    if (threadIdx.x == 0)
        sl_raise_word(&a.raised[channel], *a.seqno);
}

/* Looks at its own device's memory; at the host's, which is far, only now and then: that word comes
 * when the other device has failed. One block waits; where the next kernel's are let in meanwhile,
 * they may fill all multiprocessors, and a kernel of another stream finds no room. */
#define LOOKS 64u
extern "C" __global__ void __launch_bounds__(1024)
    sl_k_receive(SL_KERNEL_ARGS(sl_karg_receive, a)) {
    sl_grid_wait();
    if (a.alone)
        sl_grid_next();
    uint32_t channel = *a.channel, seqno = *a.seqno, looks = 0;
    if (threadIdx.x == 0)
        while ((int32_t)(sl_see_word(&a.raised[channel]) - seqno) < 0)
            if (++looks % LOOKS == 0 && (int32_t)(sl_see_word(&a.released[channel]) - seqno) >= 0)
                break;
    __syncthreads();
    sl_grid_next();
    const float *from = a.from + (size_t)channel * a.stride;
    for (uint32_t i = threadIdx.x; i < a.n; i += 1024)
        a.x[i] = from[i];
}

static_assert(SL_MAX_EXPERTS == 1024, "a thread an expert");
/* One block. Pairs of an expert may come in any order: a row's result does not depend on it. */
extern "C" __global__ void __launch_bounds__(1024)
    sl_k_moe_sort(SL_KERNEL_ARGS(sl_karg_moe_sort, a)) {
    sl_grid_begin();
    __shared__ uint32_t count[SL_MAX_EXPERTS], start[SL_MAX_EXPERTS], tile_start[SL_MAX_EXPERTS];
    __shared__ uint32_t warp_sum[2][32];
    uint32_t e = threadIdx.x, lane = e % SL_WARP, warp = e / SL_WARP;
    count[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += 1024) {
        uint32_t p = a.pairs ? a.pairs[i] : i, t = p / a.k;
        if (t >= a.tok_begin && t < a.tok_end)
            atomicAdd(&count[a.ids[p]], 1u);
    }
    __syncthreads();
    /* Exclusive sums of rows and of tiles over the experts. */
    uint32_t n = count[e], tiles = (n + a.tile_n - 1) / a.tile_n, sum_n = n, sum_t = tiles;
#pragma unroll
    for (int m = 1; m < SL_WARP; m *= 2) {
        uint32_t pn = sl_shfl_up(sum_n, m);
        uint32_t pt = sl_shfl_up(sum_t, m);
        if (lane >= (uint32_t)m)
            sum_n += pn, sum_t += pt;
    }
    if (lane == SL_WARP - 1)
        warp_sum[0][warp] = sum_n, warp_sum[1][warp] = sum_t;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++)
        sum_n += warp_sum[0][w], sum_t += warp_sum[1][w];
    start[e] = sum_n - n;
    tile_start[e] = sum_t - tiles;
    count[e] = 0;
    if (e == 1023)
        *a.n_tiles = sum_t;
    __syncthreads();
    for (uint32_t i = 0; i < tiles; i++) {
        uint32_t at = i * a.tile_n;
        a.tiles[tile_start[e] + i] = {e, start[e] + at, min(a.tile_n, n - at)};
    }
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += 1024) {
        uint32_t p = a.pairs ? a.pairs[i] : i, t = p / a.k;
        if (t >= a.tok_begin && t < a.tok_end) {
            uint32_t to = a.ids[p];
            a.order[start[to] + atomicAdd(&count[to], 1u)] = i;
        }
    }
}
