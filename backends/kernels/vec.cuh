/* A few input rows times many weight rows by one block: what decode is made of.
 *
 * The input rows lie in shared memory, quantised there by the block that uses them. Quantised types
 * follow the CPU's definition (backends/cpu/cpu.h) to the bit: integer sums of a weight block are
 * exact, however lanes share it, so a row's blocks are given to several warps; one thread a row
 * then joins them, one after the other, in the definition's order. Float types: lane l takes
 * elements 8 * (l + 32 j) .. + 7 in ascending order, then the lanes' sums are added as a tree; the
 * order does not depend on where the row lies.
 *
 * Work comes in groups of GROUP weight rows. What differs between callers they give as functions:
 *   row(group, r)                    where weight row r < GROUP of a group begins
 *   input(group, t)                  which input row pass t of n_pass multiplies it with
 *   out(group, t, r, total, valid)   called by all lanes of a warp at once: lane l < GROUP has row
 *                                    r = l and its product, and is valid */
#ifndef SL_BACKENDS_KERNELS_VEC_CUH
#define SL_BACKENDS_KERNELS_VEC_CUH

#include "backends/kernels/quant.cuh"
#include "backends/kernels/quantize.cuh"

#define SL_VEC_THREADS (SL_MATVEC_WARPS * SL_WARP)

/* A row's norm as sl_k_rms_norm does it with 256 threads, to shared memory, and to `copy` unless it
 * is NULL. What of the weights a thread needs it asks for before the grid's wait, the first AHEAD.
 */
static_assert(SL_VEC_THREADS == 256, "the order of the sum");
template <int AHEAD> struct sl_vec_norm_of {
    float w[AHEAD];

    __device__ __forceinline__ void fetch(const struct sl_karg_norm &a, uint32_t n) {
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            uint32_t i = threadIdx.x + (uint32_t)j * SL_VEC_THREADS;
            w[j] = a.w && i < n ? __ldg(a.w + i) : 1.0f;
        }
    }
    /* Ends with a barrier. */
    __device__ __forceinline__ void run(const struct sl_karg_norm &a, const float *x, uint32_t n,
                                        float *to, float *copy) const {
        __shared__ float part[SL_MATVEC_WARPS];
        float sum = 0, v[AHEAD];
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            uint32_t i = threadIdx.x + (uint32_t)j * SL_VEC_THREADS;
            v[j] = i < n ? x[i] : 0.0f;
        }
#pragma unroll
        for (int j = 0; j < AHEAD; j++)
            sum = fmaf(v[j], v[j], sum);
        for (uint32_t i = threadIdx.x + AHEAD * SL_VEC_THREADS; i < n; i += SL_VEC_THREADS)
            sum = fmaf(x[i], x[i], sum);
        sum = sl_warp_sum(sum);
        if (threadIdx.x % SL_WARP == 0)
            part[threadIdx.x / SL_WARP] = sum;
        __syncthreads();
        sum = 0;
#pragma unroll
        for (int i = 0; i < (int)SL_MATVEC_WARPS; i++)
            sum += part[i];
        float inv = 1.0f / sqrtf(sum / (float)n + a.eps);
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            uint32_t i = threadIdx.x + (uint32_t)j * SL_VEC_THREADS;
            if (i >= n)
                break;
            float y = v[j] * inv;
            y = a.w ? y * w[j] : y;
            to[i] = y;
            if (copy)
                copy[i] = y;
        }
        for (uint32_t i = threadIdx.x + AHEAD * SL_VEC_THREADS; i < n; i += SL_VEC_THREADS) {
            float y = x[i] * inv;
            y = a.w ? y * a.w[i] : y;
            to[i] = y;
            if (copy)
                copy[i] = y;
        }
        __syncthreads();
    }
};

struct sl_vec_norm : sl_vec_norm_of<8> {};

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

    /* log2 of how many warps share a row's blocks. */
    __device__ __forceinline__ static uint32_t split(uint32_t n) {
        uint32_t items = (n / quant::ELEMS + ITEM - 1) / ITEM;
        return items > 4 ? 3 : items > 2 ? 2 : items - 1;
    }
    __device__ __forceinline__ static uint32_t row_bytes(uint32_t n) {
        return n / quant::ELEMS * quant::BYTES;
    }

    __device__ __forceinline__ explicit sl_vec(uint32_t n) : n_in(n), n_pad((n + 255) & ~255u) {}
    /* Input rows from(i), i < n_rows. Then a barrier. */
    template <class FROM>
    __device__ __forceinline__ void load(FROM from, uint32_t n_rows, void *shared) {
        uint32_t lane = threadIdx.x % SL_WARP, n = n_in;
        stage = (float2 *)shared;
        uint32_t *to_q = (uint32_t *)((char *)shared + SL_VEC_STAGE_BYTES(B32));
        float *to_d = (float *)(to_q + (size_t)n_rows * (n_pad / 4));
        int16_t *to_sum = (int16_t *)(to_d + (size_t)n_rows * (n_pad / 32));
        q = to_q, d = to_d, sum = to_sum;
        uint32_t groups = n_pad / 256, row = 0, g = threadIdx.x / SL_WARP;
        auto settle = [&] { /* the group after a row's last is the next row's */
                            while (row < n_rows && g >= groups)
                                g -= groups, row++;
        };
        settle();
        float ahead[8];
        if (row < n_rows)
            sl_quantize_fetch(from(row), n, g, lane, ahead);
        while (row < n_rows) {
            struct sl_quantized v;
            float x[8];
            uint32_t at = row * groups + g;
#pragma unroll
            for (int i = 0; i < 8; i++)
                x[i] = ahead[i];
            g += SL_MATVEC_WARPS;
            settle();
            if (row < n_rows)
                sl_quantize_fetch(from(row), n, g, lane, ahead);
            sl_quantize_values<B32>(x, v);
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
    template <int ALIGNED>
    __device__ __forceinline__ static void fetch_unit(const uint8_t *b, int n, struct sl_unit &u) {
        if constexpr (quant::WIDE)
            quant::template unit<ALIGNED>(b, n, u);
        else
            quant::unit(b, n, u);
    }
    template <int ALIGNED>
    __device__ __forceinline__ void fetch_units(struct item &it,
                                                const uint8_t *const (&b)[4]) const {
        uint32_t lane = threadIdx.x % SL_WARP;
#pragma unroll
        for (int r = 0; r < 4; r++)
            fetch_unit<ALIGNED>(b[r], B32 ? 0 : (int)(lane % 8), it.u[r]);
    }
    template <class ROW>
    __device__ __forceinline__ void fetch(struct item &it, uint32_t group, uint32_t first,
                                          ROW row) const {
        uint32_t lane = threadIdx.x % SL_WARP, n_blocks = n_in / quant::ELEMS;
        it.blk = first + (B32 ? lane : lane / 8);
        it.valid = it.blk < n_blocks;
        if (!it.valid)
            return;
        const uint8_t *b[4];
        uintptr_t all = 0;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            b[r] = row(group, (uint32_t)r) + (size_t)it.blk * quant::BYTES;
            all |= (uintptr_t)b[r];
        }
        if (quant::WIDE && (all & 15) == 0)
            fetch_units<1>(it, b);
        else
            fetch_units<0>(it, b);
        if (B32) {
#pragma unroll
            for (int r = 0; r < 4; r++)
                quant::scales(b[r], it.dw[B32 ? r : 0], it.dmin[B32 ? r : 0]);
        } else {
            const uint8_t *lo = lane & 2 ? b[1] : b[0], *hi = lane & 2 ? b[3] : b[2];
            quant::scales(lane & 4 ? hi : lo, it.dw[0], it.dmin[0]);
        }
    }
    /* What this warp begins with in groups [begin, end). */
    template <class ROW>
    __device__ __forceinline__ void fetch_first(struct item &it, uint32_t begin, uint32_t end,
                                                ROW row) const {
        uint32_t s = split(n_in), warp = threadIdx.x / SL_WARP;
        fetch(it, min(begin + (warp >> s), end - 1), (warp & ((1u << s) - 1)) * ITEM, row);
    }
    /* Asks for what this warp will read next, into the L2 cache. */
    template <class ROW>
    __device__ __forceinline__ void prefetch(uint32_t group, uint32_t first, ROW row) const {
        uint32_t lane = threadIdx.x % SL_WARP;
        uint32_t at = first * quant::BYTES + lane % 8 * 128;
        if (lane % 8 * 128 < ITEM * quant::BYTES && at < row_bytes(n_in))
            sl_prefetch(row(group, lane / 8) + at);
    }
    /* One input row's products with an item, to the stage. */
    __device__ __forceinline__ void multiply(const struct item &it, uint32_t in, float2 *to) const {
        uint32_t lane = threadIdx.x % SL_WARP;
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

    /* The warps that share a row meet. */
    __device__ __forceinline__ static void meet(uint32_t s, uint32_t warp) {
        if (s == 0)
            __syncwarp();
        else
            sl_meet(1 + (warp >> s), SL_WARP << s);
    }

    /* Groups [begin, end); all warps of the block; `it` has been begun by fetch_first(). carry:
     * [n_pass][32] in shared memory, used where rows are longer than all warps take at once. */
    template <class ROW, class IN, class OUT>
    __device__ __forceinline__ void run(uint32_t begin, uint32_t end, uint32_t n_pass,
                                        float (*carry)[32], struct item &it, ROW row, IN input,
                                        OUT out) const {
        uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP,
                 n_blocks = n_in / quant::ELEMS;
        uint32_t s = split(n_in), share = warp & ((1u << s) - 1), team = warp >> s;
        uint32_t at_once = SL_MATVEC_WARPS >> s, step = ITEM << s, parity = 0;
        for (uint32_t group = begin + team; group < end; group += at_once) {
            for (uint32_t first = 0; first < n_blocks; first += step) {
                if (group != begin + team || first)
                    fetch(it, group, first + share * ITEM, row);
                if (group + at_once < end && !first)
                    prefetch(group + at_once, share * ITEM, row);
                for (uint32_t t = 0; t < n_pass; t++) {
                    multiply(it, input(group, t), stage + parity * STAGE + warp * GROUP * STRIDE);
                    meet(s, warp);
                    if (share == (t & ((1u << s) - 1))) {
                        /* Lane l joins row l % 4. */
                        float total = first ? carry[t][team * 4 + lane % 4] : 0.0f;
                        const float2 *v =
                            stage + parity * STAGE + ((team << s) * GROUP + lane % 4) * STRIDE;
                        uint32_t left = n_blocks - first;
                        for (uint32_t w = 0; w < 1u << s && left; w++) {
                            uint32_t n = min(ITEM, left), j = 0;
                            /* Eight are read before the first is used. */
                            for (; j + 8 <= n * KINDS; j += 8) {
                                float2 f[8];
#pragma unroll
                                for (int i = 0; i < 8; i++)
                                    f[i] = v[j + (uint32_t)i];
#pragma unroll
                                for (int i = 0; i < 8; i++)
                                    total = fmaf(f[i].x, f[i].y, total);
                            }
#pragma unroll 4
                            for (; j < n * KINDS; j++)
                                total = fmaf(v[j].x, v[j].y, total);
                            v += GROUP * STRIDE;
                            left -= n;
                        }
                        if (first + step < n_blocks) {
                            if (lane < 4)
                                carry[t][team * 4 + lane] = total;
                        } else {
                            out(group, t, lane % 4, total, lane < 4);
                        }
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

    __device__ __forceinline__ static uint32_t row_bytes(uint32_t n) { return n * SIZE; }
    struct item {};
    __device__ __forceinline__ explicit sl_vec_float(uint32_t n) : n_in(n), n_pad((n + 3) & ~3u) {}
    template <class FROM>
    __device__ __forceinline__ void load(FROM from, uint32_t n_rows, void *shared) {
        uint32_t n = n_in;
        for (uint32_t r = 0; r < n_rows; r++) {
            float *to = (float *)shared + (size_t)r * n_pad;
            const float *p = from(r);
            for (uint32_t i = threadIdx.x; i < n; i += SL_VEC_THREADS)
                to[i] = p[i];
        }
        x = (float *)shared;
    }
    template <class ROW>
    __device__ __forceinline__ void fetch_first(struct item &, uint32_t begin, uint32_t end,
                                                ROW row) const {
        uint32_t group = begin + threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
        for (uint32_t at = lane / 2 * 128; group < end && at < row_bytes(n_in); at += 16 * 128)
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
        uint32_t lane = threadIdx.x % SL_WARP;
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
                                        float (*)[32], struct item &, ROW row, IN input,
                                        OUT out) const {
        uint32_t warp = threadIdx.x / SL_WARP, lane = threadIdx.x % SL_WARP;
        for (uint32_t group = begin + warp; group < end; group += SL_MATVEC_WARPS) {
            const uint8_t *rows[2] = {row(group, 0), row(group, 1)};
            for (uint32_t t = 0; t < n_pass; t++) {
                float total = dot(rows, x + (size_t)input(group, t) * n_pad);
                out(group, t, lane % 2, total, lane < 2);
            }
        }
    }
};

#define SL_VEC_FLOAT(NAME)                                                                         \
    template <> struct sl_vec<SL_DTYPE_##NAME> : sl_vec_float<SL_DTYPE_##NAME> {                   \
        using sl_vec_float<SL_DTYPE_##NAME>::sl_vec_float;                                         \
    };
SL_FLOAT_TYPES(SL_VEC_FLOAT)

#endif
