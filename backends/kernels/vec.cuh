/* A few input rows times many weight rows by one block: what decode is made of.
 *
 * The input rows lie in shared memory, quantised there by the block that uses them. Quantised types
 * follow the CPU's definition (backends/cpu/cpu.h) to the bit: integer sums of a weight block are
 * exact, however lanes share it, so a row's blocks are given to several warps; one thread a row then
 * joins them, one after the other, in the definition's order.
 * Float types: lane l takes elements 8 * (l + 32 j) .. + 7 in ascending order, then the lanes' sums
 * are added as a tree; the order does not depend on where the row lies.
 *
 * Work comes in groups of GROUP weight rows. What differs between callers they give as functions:
 *   row(group, r)                    where weight row r < GROUP of a group begins
 *   input(group, t)                  which input row pass t of n_pass multiplies it with
 *   out(group, t, r, total, lane)    called by all lanes of a warp at once, with a group, a row and
 *                                    its product in each; those of a group are in adjacent lanes.
 *                                    Groups at and beyond the end come along: not to be stored */
#ifndef SL_BACKENDS_KERNELS_VEC_CUH
#define SL_BACKENDS_KERNELS_VEC_CUH

#include "backends/kernels/quant.cuh"
#include "backends/kernels/quantize.cuh"

#define SL_VEC_THREADS (SL_MATVEC_WARPS * 32)

/* sum_i x[i]^2 / n as sl_k_rms_norm sums it with 256 threads, and y = x / sqrt(.. + eps) * w to
 * shared memory, and to `copy` unless it is NULL. Ends with a barrier. */
static_assert(SL_VEC_THREADS == 256, "the order of the sum");
__device__ __forceinline__ void sl_vec_norm(const struct sl_karg_norm &a, const float *x,
                                            uint32_t n, float *to, float *copy) {
    __shared__ float part[SL_MATVEC_WARPS];
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += SL_VEC_THREADS) {
        float v = x[i];
        to[i] = v;
        sum = fmaf(v, v, sum);
    }
    sum = sl_warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int i = 0; i < (int)SL_MATVEC_WARPS; i++)
        sum += part[i];
    float inv = 1.0f / sqrtf(sum / (float)n + a.eps);
    for (uint32_t i = threadIdx.x; i < n; i += SL_VEC_THREADS) {
        float v = to[i] * inv;
        v = a.w ? v * a.w[i] : v;
        to[i] = v;
        if (copy)
            copy[i] = v;
    }
    __syncthreads();
}

template <int T> struct sl_vec {
    using quant = sl_quant<T>;
    static constexpr bool B32 = quant::ELEMS == 32;
    static constexpr uint32_t GROUP = 4;
    static constexpr uint32_t ITEM = B32 ? 32 : 4; /* weight blocks that a warp takes at a time */
    static constexpr uint32_t KINDS = quant::HAS_MIN ? 2 : 1;
    static constexpr uint32_t STRIDE = ITEM * KINDS + 1; /* float2 a row; one to spread banks */
    static constexpr uint32_t STAGE = SL_MATVEC_WARPS * GROUP * STRIDE;

    float2 *stage;      /* two of STAGE */
    const uint32_t *q;  /* per input row [n_pad / 4] */
    const float *d;     /* [n_pad / 32] or [n_pad / 256] */
    const int16_t *sum; /* [n_pad / 16], or [n_pad / 32] */
    uint32_t n_in, n_pad;

    /* Warps that share a row's blocks. */
    __device__ __forceinline__ static uint32_t split(uint32_t n) {
        uint32_t items = (n / quant::ELEMS + ITEM - 1) / ITEM;
        return items > 4 ? 8 : items > 2 ? 4 : items;
    }
    __device__ __forceinline__ static size_t row_bytes(uint32_t n) {
        return (size_t)(n / quant::ELEMS) * quant::BYTES;
    }

    /* Input rows from(i), i < n_rows. Then a barrier. */
    template <class FROM>
    __device__ __forceinline__ void load(FROM from, uint32_t n_rows, uint32_t n, void *shared) {
        uint32_t lane = threadIdx.x % 32;
        n_in = n, n_pad = (n + 255) & ~255u;
        stage = (float2 *)shared;
        uint32_t *to_q = (uint32_t *)((char *)shared + SL_VEC_STAGE_BYTES(B32));
        float *to_d = (float *)(to_q + (size_t)n_rows * (n_pad / 4));
        int16_t *to_sum = (int16_t *)(to_d + (size_t)n_rows * (n_pad / 32));
        q = to_q, d = to_d, sum = to_sum;
        uint32_t groups = n_pad / 256;
        for (uint32_t i = threadIdx.x / 32; i < n_rows * groups; i += SL_MATVEC_WARPS) {
            uint32_t row = i / groups, g = i % groups;
            struct sl_quantized v;
            sl_quantize_group<B32>(from(row), n, g, lane, v);
            uint32_t at = row * groups + g;
            *(uint2 *)(to_q + at * 64 + lane * 2) = make_uint2(v.q[0], v.q[1]);
            if (B32 && lane % 4 == 0) {
                to_d[at * 8 + lane / 4] = v.d;
                to_sum[at * 8 + lane / 4] = (int16_t)v.sum;
            }
            if (!B32 && lane % 2 == 0)
                to_sum[at * 16 + lane / 2] = (int16_t)v.sum;
            if (!B32 && lane == 0)
                to_d[at] = v.d;
        }
    }

    /* Asks for what this warp will read of a group first. */
    template <class ROW>
    __device__ __forceinline__ static void prefetch(uint32_t n, uint32_t begin, uint32_t end,
                                                    ROW row) {
        uint32_t s = split(n), warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        uint32_t group = begin + warp / s;
        constexpr uint32_t BYTES = ITEM * quant::BYTES;
        uint32_t at = warp % s * BYTES + lane % 8 * 128;
        if (group < end && lane % 8 * 128 < BYTES && at < row_bytes(n))
            sl_prefetch(row(group, lane / 8) + at);
    }

    /* Products of 32 elements with the input's elements from `at` on. */
    __device__ __forceinline__ void unit_dot(const struct sl_unit &u, uint32_t at, int &isum,
                                             int &imin) const {
        uint4 xa = *(const uint4 *)(q + (at + u.group_a * 16) / 4);
        uint4 xb = *(const uint4 *)(q + (at + u.group_b * 16) / 4);
        int a = 0, b = 0;
        a = sl_dp4a((int)u.a[0], (int)xa.x, a), b = sl_dp4a((int)u.b[0], (int)xb.x, b);
        a = sl_dp4a((int)u.a[1], (int)xa.y, a), b = sl_dp4a((int)u.b[1], (int)xb.y, b);
        a = sl_dp4a((int)u.a[2], (int)xa.z, a), b = sl_dp4a((int)u.b[2], (int)xb.z, b);
        a = sl_dp4a((int)u.a[3], (int)xa.w, a), b = sl_dp4a((int)u.b[3], (int)xb.w, b);
        isum = B32 ? a + b : u.scale_a * a + u.scale_b * b;
        imin = 0;
        if (quant::HAS_MIN && !B32)
            imin = u.min_a * sum[at / 16 + u.group_a] + u.min_b * sum[at / 16 + u.group_b];
    }

    /* Sums of the eight lanes of each 256-block for four rows: row l / 2 % 4 in lane l. */
    __device__ __forceinline__ static int scatter(const int (&v)[4], uint32_t lane) {
        bool up2 = lane & 4, up1 = lane & 2;
        int k0 = (up2 ? v[2] : v[0]) + sl_shfl_xor(up2 ? v[0] : v[2], 4);
        int k1 = (up2 ? v[3] : v[1]) + sl_shfl_xor(up2 ? v[1] : v[3], 4);
        int k = (up1 ? k1 : k0) + sl_shfl_xor(up1 ? k0 : k1, 2);
        return k + sl_shfl_xor(k, 1);
    }

    /* What a warp holds of four rows: a piece of one block a lane. */
    struct item {
        struct sl_unit u[4];
        float dw[B32 ? 4 : 1], dmin[B32 ? 4 : 1];
        uint32_t blk;
        bool valid;
    };
    template <class ROW>
    __device__ __forceinline__ void fetch(struct item &it, uint32_t group, uint32_t first,
                                          ROW row) const {
        uint32_t lane = threadIdx.x % 32, n_blocks = n_in / quant::ELEMS;
        it.blk = first + (B32 ? lane : lane / 8);
        it.valid = it.blk < n_blocks;
        if (!it.valid)
            return;
        size_t at = (size_t)it.blk * quant::BYTES;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const uint8_t *b = row(group, (uint32_t)r) + at;
            quant::unit(b, B32 ? 0 : (int)(lane % 8), it.u[r]);
            if (B32)
                quant::scales(b, it.dw[B32 ? r : 0], it.dmin[B32 ? r : 0]);
        }
        if (!B32)
            quant::scales(row(group, lane / 2 % 4) + at, it.dw[0], it.dmin[0]);
    }
    /* One input row's products with an item, to the stage. */
    __device__ __forceinline__ void multiply(const struct item &it, uint32_t in,
                                             float2 *to) const {
        uint32_t lane = threadIdx.x % 32;
        if (B32) {
            if (!it.valid)
                return;
            uint32_t at = in * (n_pad / 32) + it.blk;
            float dx = d[at];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                int isum, imin;
                unit_dot(it.u[r], at * 32, isum, imin);
                float2 *of = to + r * STRIDE + lane * KINDS;
                of[0] = make_float2(it.dw[B32 ? r : 0] * dx, (float)isum);
                if (quant::HAS_MIN)
                    of[1] = make_float2(-(it.dmin[B32 ? r : 0] * dx), (float)sum[at]);
            }
            return;
        }
        int isum[4] = {0, 0, 0, 0}, imin[4] = {0, 0, 0, 0};
        uint32_t at = in * (n_pad / 256) + it.blk;
        if (it.valid) {
#pragma unroll
            for (int r = 0; r < 4; r++)
                unit_dot(it.u[r], at * 256, isum[r], imin[r]);
        }
        int is = scatter(isum, lane), im = 0;
        if (quant::HAS_MIN)
            im = scatter(imin, lane);
        if (!it.valid)
            return;
        float dx = d[at];
        float2 *of = to + lane / 2 % 4 * STRIDE + lane / 8 * KINDS;
        if (lane % 2 == 0)
            of[0] = make_float2(it.dw[0] * dx, (float)is);
        else if (quant::HAS_MIN)
            of[1] = make_float2(-(it.dmin[0] * dx), (float)im);
    }

    /* Groups [begin, end); all warps of the block. carry: [n_pass][32] in shared memory, used where
     * rows are longer than all warps take at once. */
    template <class ROW, class IN, class OUT>
    __device__ __forceinline__ void run(uint32_t begin, uint32_t end, uint32_t n_pass,
                                        float (*carry)[32], ROW row, IN input, OUT out) const {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        uint32_t s = split(n_in), at_once = SL_MATVEC_WARPS / s, n_blocks = n_in / quant::ELEMS;
        uint32_t step = s * ITEM, parity = 0;
        for (uint32_t g0 = begin; g0 < end; g0 += at_once) {
            uint32_t group = g0 + warp / s;
            for (uint32_t first = 0; first < n_blocks; first += step) {
                struct item it;
                fetch(it, min(group, end - 1), first + warp % s * ITEM, row);
                for (uint32_t t = 0; t < n_pass; t++) {
                    multiply(it, input(min(group, end - 1), t),
                             stage + parity * STAGE + warp * GROUP * STRIDE);
                    __syncthreads();
                    if (warp == (g0 / at_once + t) % SL_MATVEC_WARPS) {
                        /* Lane l joins row l % 4 of the l / 4th group. */
                        uint32_t of = lane / 4 < at_once ? lane / 4 : 0;
                        float total = first ? carry[t][lane] : 0.0f;
                        for (uint32_t w = 0; w < s; w++) {
                            const float2 *v = stage + parity * STAGE +
                                              ((of * s + w) * GROUP + lane % 4) * STRIDE;
                            uint32_t from = first + w * ITEM;
                            uint32_t n = from < n_blocks ? min(ITEM, n_blocks - from) : 0;
#pragma unroll 4
                            for (uint32_t j = 0; j < n * KINDS; j++)
                                total = fmaf(v[j].x, v[j].y, total);
                        }
                        carry[t][lane] = total;
                        if (first + step >= n_blocks)
                            out(g0 + of, t, lane % 4, total, lane < 4 * at_once);
                    }
                    parity ^= 1;
                }
            }
        }
    }
};

/* Float types: the input as it is; a warp a group. */
template <int T> struct sl_vec_float {
    static constexpr int SIZE = T == SL_DTYPE_F32 ? 4 : 2;
    static constexpr uint32_t GROUP = 2;
    const float *x;
    uint32_t n_in, n_pad;

    __device__ __forceinline__ static uint32_t split(uint32_t) {
        return 1;
    }
    __device__ __forceinline__ static size_t row_bytes(uint32_t n) {
        return (size_t)n * SIZE;
    }
    template <class FROM>
    __device__ __forceinline__ void load(FROM from, uint32_t n_rows, uint32_t n, void *shared) {
        n_in = n, n_pad = (n + 3) & ~3u;
        for (uint32_t r = 0; r < n_rows; r++) {
            float *to = (float *)shared + (size_t)r * n_pad;
            const float *p = from(r);
            for (uint32_t i = threadIdx.x; i < n; i += SL_VEC_THREADS)
                to[i] = p[i];
        }
        x = (float *)shared;
    }
    template <class ROW>
    __device__ __forceinline__ static void prefetch(uint32_t n, uint32_t begin, uint32_t end,
                                                    ROW row) {
        uint32_t group = begin + threadIdx.x / 32, lane = threadIdx.x % 32;
        for (uint32_t at = lane / 2 * 128; group < end && at < row_bytes(n); at += 16 * 128)
            sl_prefetch(row(group, lane % 2) + at);
    }
    __device__ __forceinline__ static void load8(const uint8_t *p, float (&w)[8]) {
        uint32_t v[2 * SIZE];
        if (((uintptr_t)p & 15) == 0) {
#pragma unroll
            for (int i = 0; i < SIZE / 2; i++) {
                uint4 f = __ldg((const uint4 *)p + i);
                v[4 * i] = f.x, v[4 * i + 1] = f.y, v[4 * i + 2] = f.z, v[4 * i + 3] = f.w;
            }
        } else {
            sl_words(p, v);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (SIZE == 4)
                w[i] = __uint_as_float(v[i % (2 * SIZE)]);
            else if (T == SL_DTYPE_F16)
                w[i] = sl_f16(v[i / 2] >> (i % 2 * 16) & 0xffff);
            else
                w[i] = __uint_as_float(i % 2 ? v[i / 2] & 0xffff0000u : v[i / 2] << 16);
        }
    }
    __device__ __forceinline__ float dot(const uint8_t *const (&row)[2], const float *in) const {
        uint32_t lane = threadIdx.x % 32;
        float s[2] = {0, 0};
        uint32_t i = lane * 8;
#pragma unroll 4
        for (; i + 8 <= n_in; i += 256) {
            float4 x0 = *(const float4 *)(in + i), x1 = *(const float4 *)(in + i + 4);
            float xs[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float w[8];
                load8(row[r] + (size_t)i * SIZE, w);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    s[r] = fmaf(w[j], xs[j], s[r]);
            }
        }
        for (; i < n_in; i++) { /* the last, part of eight, is one lane's */
#pragma unroll
            for (int r = 0; r < 2; r++)
                s[r] = fmaf(sl_load_float<T>(row[r], i), in[i], s[r]);
        }
        float a = sl_warp_sum(s[0]), b = sl_warp_sum(s[1]);
        return lane == 0 ? a : b;
    }
    template <class ROW, class IN, class OUT>
    __device__ __forceinline__ void run(uint32_t begin, uint32_t end, uint32_t n_pass,
                                        float (*)[32], ROW row, IN input, OUT out) const {
        uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        for (uint32_t group = begin + warp; group < end; group += SL_MATVEC_WARPS) {
            const uint8_t *rows[2] = {row(group, 0), row(group, 1)};
            for (uint32_t t = 0; t < n_pass; t++) {
                float total = dot(rows, x + (size_t)input(group, t) * n_pad);
                out(group, t, lane % 2, total, lane < 2);
            }
        }
    }
};

template <> struct sl_vec<SL_DTYPE_F32> : sl_vec_float<SL_DTYPE_F32> {};
template <> struct sl_vec<SL_DTYPE_F16> : sl_vec_float<SL_DTYPE_F16> {};
template <> struct sl_vec<SL_DTYPE_BF16> : sl_vec_float<SL_DTYPE_BF16> {};

#endif
