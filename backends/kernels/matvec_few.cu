/* Decode: one or two generated rows times Q4_K weights, where a multiprocessor can hold its whole
 * share of them: it is on its way to shared memory before the input is there, and what remains then
 * is arithmetic. A thread takes one block of 256 of one weight row for all input rows; threads of
 * the weight rows then join their blocks one after the other. Sums are integers up to there, so the
 * bits are those of vec.cuh. */
#include "backends/kernels/quant.cuh"
#include "backends/kernels/quantize.cuh"

#define THREADS ((int)SL_FEW_THREADS)
#define WARPS   (THREADS / SL_WARP)
static_assert(THREADS == 512, "a norm takes 256");
#define BLOCK_BYTES 144u /* Q4_K: d, dmin, 12 bytes of scales and minima, 256 nibbles */

/* Norms as sl_k_rms_norm does them with 256 threads: a half of the block a row. */
#define NORM_AHEAD 8

/* The input rows as int8, in shared memory; a block of 256 is SL_FEW_X_BYTES long, so that
 * neighbours lie in other banks. */
struct few_in {
    uint8_t *q; /* [T][n_blocks][SL_FEW_X_BYTES] */
    int *sum;   /* [T][n_blocks][8], of 32 elements each */
    float *d;   /* [T][n_blocks] */
};

template <int T>
__device__ __forceinline__ void norm_rows(const struct sl_karg_matvec &a,
                                          const float (&w)[NORM_AHEAD], float (*part)[8],
                                          float *to) {
    constexpr int MINE = (T + 1) / 2;
    uint32_t half = threadIdx.x / 256, in = threadIdx.x % 256, n = a.n_in;
    float v[MINE][NORM_AHEAD];
#pragma unroll
    for (int k = 0; k < MINE; k++)
#pragma unroll
        for (int j = 0; j < NORM_AHEAD; j++) {
            uint32_t t = half + 2 * (uint32_t)k, i = in + 256 * (uint32_t)j;
            v[k][j] = t < T && i < n ? a.x[(size_t)t * n + i] : 0.0f;
        }
#pragma unroll
    for (int k = 0; k < MINE; k++) {
        uint32_t t = half + 2 * (uint32_t)k;
        float sum = 0;
#pragma unroll
        for (int j = 0; j < NORM_AHEAD; j++)
            sum = fmaf(v[k][j], v[k][j], sum);
        for (uint32_t i = in + 256 * NORM_AHEAD; t < T && i < n; i += 256)
            sum = fmaf(a.x[(size_t)t * n + i], a.x[(size_t)t * n + i], sum);
        sum = sl_warp_sum(sum);
        if (t < T && in % SL_WARP == 0)
            part[t][in / SL_WARP] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < MINE; k++) {
        uint32_t t = half + 2 * (uint32_t)k;
        if (t >= T)
            break;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum += part[t][i];
        float inv = 1.0f / sqrtf(sum / (float)n + a.norm.eps);
        float *y = to + (size_t)t * n, *copy = a.norm.y + (size_t)t * n;
        auto put = [&](uint32_t i, float x, float by) {
            x = x * inv;
            x = a.norm.w ? x * by : x;
            y[i] = x;
            if (blockIdx.x == 0)
                copy[i] = x;
        };
#pragma unroll
        for (int j = 0; j < NORM_AHEAD; j++)
            if (in + 256 * (uint32_t)j < n)
                put(in + 256 * (uint32_t)j, v[k][j], w[j]);
        for (uint32_t i = in + 256 * NORM_AHEAD; i < n; i += 256)
            put(i, a.x[(size_t)t * n + i], a.norm.w ? a.norm.w[i] : 1.0f);
    }
    __syncthreads();
}

/* Rows x [T, n_in], a warp a group of 256. Then a barrier. */
template <int T>
__device__ __forceinline__ void quantize_rows(const struct few_in &in, const float *x,
                                              uint32_t n_in) {
    uint32_t lane = threadIdx.x % SL_WARP, g = threadIdx.x / SL_WARP, n_groups = T * (n_in / 256);
    float ahead[8];
    if (g < n_groups)
        sl_quantize_fetch(x, T * n_in, g, lane, ahead); /* rows lie one behind the other */
    while (g < n_groups) {
        struct sl_quantized v;
        float now[8];
        uint32_t at = g;
#pragma unroll
        for (int i = 0; i < 8; i++)
            now[i] = ahead[i];
        g += WARPS;
        if (g < n_groups)
            sl_quantize_fetch(x, T * n_in, g, lane, ahead);
        sl_quantize_values<false>(now, v);
        *(uint2 *)(in.q + at * SL_FEW_X_BYTES + lane * 8) = make_uint2(v.q[0], v.q[1]);
        int sum = v.sum + sl_shfl_xor(v.sum, 2);
        if (lane % 4 == 0)
            in.sum[at * 8 + lane / 4] = sum;
        if (lane == 0)
            in.d[at] = v.d;
    }
}

/* 16 bytes of weights under a mask, unsigned, with 16 of input. */
__device__ __forceinline__ int dot_masked(const uint4 &w, uint32_t mask, const uint4 &x, int c) {
    c = sl_dp4a_u8(w.x & mask, x.x, c);
    c = sl_dp4a_u8(w.y & mask, x.y, c);
    c = sl_dp4a_u8(w.z & mask, x.z, c);
    return sl_dp4a_u8(w.w & mask, x.w, c);
}

/* What block b of the input adds to a sum with the weights at w: two products. */
template <int T>
__device__ __forceinline__ void dot_block(const uint8_t *w, const struct few_in &in, uint32_t b,
                                          uint32_t n_blocks, float4 (&out)[T]) {
    uint4 head = *(const uint4 *)w;
    uint32_t scale[2] = {head.y & 0x3f3f3f3fu,
                         (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u)};
    uint32_t least[2] = {head.z & 0x3f3f3f3fu,
                         (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u)};
    int sum[T];
#pragma unroll
    for (int t = 0; t < T; t++)
        sum[t] = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        uint4 q[2] = {*(const uint4 *)(w + 16 + c * 32), *(const uint4 *)(w + 32 + c * 32)};
#pragma unroll
        for (int t = 0; t < T; t++) {
            const uint8_t *x = in.q + ((uint32_t)t * n_blocks + b) * SL_FEW_X_BYTES + c * 64;
            int low = 0, high = 0; /* 16 times the sum */
#pragma unroll
            for (int h = 0; h < 2; h++) {
                low = dot_masked(q[h], 0x0f0f0f0fu, *(const uint4 *)(x + h * 16), low);
                high = dot_masked(q[h], 0xf0f0f0f0u, *(const uint4 *)(x + 32 + h * 16), high);
            }
            sum[t] += sl_byte_u(scale[c / 2], c % 2 * 2) * low +
                      sl_byte_u(scale[c / 2], c % 2 * 2 + 1) * (high >> 4);
        }
    }
    float d = sl_f16(head.x & 0xffff), dmin = sl_f16(head.x >> 16);
#pragma unroll
    for (int t = 0; t < T; t++) {
        uint32_t at = (uint32_t)t * n_blocks + b;
        int4 s[2] = {*(const int4 *)(in.sum + at * 8), *(const int4 *)(in.sum + at * 8 + 4)};
        int min = 0;
#pragma unroll
        for (int h = 0; h < 2; h++)
            min += sl_byte_u(least[h], 0) * s[h].x + sl_byte_u(least[h], 1) * s[h].y +
                   sl_byte_u(least[h], 2) * s[h].z + sl_byte_u(least[h], 3) * s[h].w;
        float dx = in.d[at];
        out[t] = make_float4(d * dx, (float)sum[t], -(dmin * dx), (float)min);
    }
}

template <int T> __device__ __forceinline__ void few(const struct sl_karg_matvec &a) {
    extern __shared__ uint4 shared[];
    uint32_t m = 0, n_blocks = a.n_in / 256;
    for (uint32_t i = 1; i < a.n_mat; i++)
        m = blockIdx.x >= a.first[i] ? i : m;
    const struct sl_karg_mat mat = a.mat[m];
    uint32_t begin = (blockIdx.x - a.first[m]) * a.rows_per_block;
    uint32_t rows = min(a.rows_per_block, mat.n_out - begin), row_bytes = n_blocks * BLOCK_BYTES;
    uint8_t *w = (uint8_t *)shared, *end = w + a.rows_per_block * row_bytes;
    struct few_in in;
    in.q = end, end += T * n_blocks * SL_FEW_X_BYTES;
    in.sum = (int *)end, end += T * n_blocks * 32;
    float4 *stage = (float4 *)end; /* [T][rows][n_blocks + 1]; before, what is normed */
    in.d = (float *)(end + a.norm_at);

    /* Weights are nobody's output: they are on their way before the input is there. */
    const uint8_t *from = (const uint8_t *)mat.w + (size_t)begin * row_bytes;
    for (uint32_t i = threadIdx.x * 16; i < rows * row_bytes; i += THREADS * 16)
        sl_copy16_at(sl_shared_address(w + i), (uintptr_t)(from + i));
    bool has_norm = a.norm.eps >= 0;
    float by[NORM_AHEAD];
#pragma unroll
    for (int j = 0; j < NORM_AHEAD; j++) {
        uint32_t i = threadIdx.x % 256 + 256 * (uint32_t)j;
        by[j] = has_norm && a.norm.w && i < a.n_in ? __ldg(a.norm.w + i) : 1.0f;
    }
    sl_grid_begin();

    /* The thread's sum, if it has one: weight row r, input row t. */
    uint32_t t = threadIdx.x / rows, r = threadIdx.x % rows;
    float *y = mat.y + (size_t)t * mat.n_out + begin + r, was = 0, bias = 0;
    if (t < T) {
        was = mat.add ? *y : 0.0f;
        bias = mat.bias ? mat.bias[begin + r] : 0.0f;
    }
    if (has_norm)
        norm_rows<T>(a, by, (float(*)[8])(in.d + T * n_blocks), (float *)stage);
    quantize_rows<T>(in, has_norm ? (const float *)stage : a.x, a.n_in);
    sl_copy_wait();
    __syncthreads();
    uint32_t stride = rows * (n_blocks + 1);
    for (uint32_t i = threadIdx.x; i < rows * n_blocks; i += THREADS) {
        float4 v[T];
        dot_block<T>(w + i * BLOCK_BYTES, in, i % n_blocks, n_blocks, v);
#pragma unroll
        for (int k = 0; k < T; k++)
            stage[(uint32_t)k * stride + i + i / n_blocks] = v[k];
    }
    __syncthreads();
    if (t >= T)
        return;
    const float4 *v = stage + t * stride + r * (n_blocks + 1);
    float total = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < n_blocks; i++) {
        total = fmaf(v[i].x, v[i].y, total);
        total = fmaf(v[i].z, v[i].w, total);
    }
    if (mat.bias)
        total = total + bias;
    *y = mat.add ? was + total : total;
}

#define KERNEL(T)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                       \
        sl_k_matvec_few_##T(SL_KERNEL_ARGS(sl_karg_matvec, a)) {                                   \
        few<T>(a);                                                                                 \
    }
KERNEL(1)
KERNEL(2)
