/* One input row times four weight rows by one warp: what decode is made of.
 *
 * The input row lies in shared memory, quantised there by the block that uses it. Quantised types
 * follow the CPU's definition (backends/cpu/cpu.h) to the bit: integer sums of a block are exact,
 * however lanes share it, and blocks join the row's float sum one after the other.
 * Float types: lane l takes elements 8 * (l + 32 j) .. + 7 in ascending order, then the lanes' sums
 * are added as a tree; the order does not depend on where the row lies. */
#ifndef SL_BACKENDS_KERNELS_VEC_CUH
#define SL_BACKENDS_KERNELS_VEC_CUH

#include "backends/kernels/quant.cuh"
#include "backends/kernels/quantize.cuh"

#define SL_VEC_ROWS 4

/* What a warp hands from the lanes that sum blocks to those that join them. */
#define SL_VEC_STAGE (SL_VEC_ROWS * 33 * 2)

template <int T> struct sl_vec {
    using quant = sl_quant<T>;
    static constexpr bool B32 = quant::ELEMS == 32;

    const uint32_t *q;  /* shared: [n_pad / 4] */
    const float *d;     /* [n_pad / 32] or [n_pad / 256] */
    const int16_t *sum; /* [n_pad / 16], or [n_pad / 32] */
    uint32_t n_in;

    /* All warps of the block; then a barrier. */
    __device__ void load(const float *x, uint32_t n, void *shared) {
        uint32_t n_pad = (n + 255) & ~255u, lane = threadIdx.x % 32;
        uint32_t *to_q = (uint32_t *)shared;
        float *to_d = (float *)(to_q + n_pad / 4);
        int16_t *to_sum = (int16_t *)(to_d + n_pad / 32);
        for (uint32_t g = threadIdx.x / 32; g < n_pad / 256; g += blockDim.x / 32) {
            struct sl_quantized v;
            sl_quantize_group<B32>(x, n, g, lane, v);
            *(uint2 *)(to_q + g * 64 + lane * 2) = make_uint2(v.q[0], v.q[1]);
            if (B32 && lane % 4 == 0) {
                to_d[g * 8 + lane / 4] = v.d;
                to_sum[g * 8 + lane / 4] = (int16_t)v.sum;
            }
            if (!B32 && lane % 2 == 0)
                to_sum[g * 16 + lane / 2] = (int16_t)v.sum;
            if (!B32 && lane == 0)
                to_d[g] = v.d;
        }
        q = to_q, d = to_d, sum = to_sum, n_in = n;
    }

    /* Products of 32 elements with the input at block's element 0, q_at. */
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

    __device__ __forceinline__ static const uint8_t *pick(const uint8_t *const (&row)[4],
                                                          uint32_t r) {
        const uint8_t *lo = r & 1 ? row[1] : row[0], *hi = r & 1 ? row[3] : row[2];
        return r & 2 ? hi : lo;
    }

    /* Row r's product in lane r < 4. stage: SL_VEC_STAGE float2 of this warp. */
    __device__ __forceinline__ float dot(const uint8_t *const (&row)[4], float2 *stage) const {
        uint32_t lane = threadIdx.x % 32;
        float total = 0;
        if (B32) {
            uint32_t n_blocks = n_in / 32;
            for (uint32_t base = 0; base < n_blocks; base += 32) {
                uint32_t blk = base + lane;
                if (blk < n_blocks) {
                    float dx = d[blk];
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        const uint8_t *b = row[r] + (size_t)blk * quant::BYTES;
                        struct sl_unit u;
                        int isum, imin;
                        float dw, dmin;
                        quant::unit(b, 0, u);
                        quant::scales(b, dw, dmin);
                        unit_dot(u, blk * 32, isum, imin);
                        stage[r * 33 + lane] = make_float2(dw * dx, (float)isum);
                        if (quant::HAS_MIN)
                            stage[(4 + r) * 33 + lane] = make_float2(-(dmin * dx), (float)sum[blk]);
                    }
                }
                __syncwarp();
                uint32_t n = min(32u, n_blocks - base);
                if (lane < 4)
#pragma unroll 8
                    for (uint32_t j = 0; j < n; j++) {
                        float2 v = stage[lane * 33 + j];
                        total = fmaf(v.x, v.y, total);
                        if (quant::HAS_MIN) {
                            v = stage[(4 + lane) * 33 + j];
                            total = fmaf(v.x, v.y, total);
                        }
                    }
                __syncwarp();
            }
        } else {
            uint32_t n_blocks = n_in / 256;
            for (uint32_t base = 0; base < n_blocks; base += 4) {
                uint32_t blk = base + lane / 8;
                int isum[4] = {0, 0, 0, 0}, imin[4] = {0, 0, 0, 0};
                bool valid = blk < n_blocks;
                if (valid) {
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        struct sl_unit u;
                        quant::unit(row[r] + (size_t)blk * quant::BYTES, (int)(lane % 8), u);
                        unit_dot(u, blk * 256, isum[r], imin[r]);
                    }
                }
                int is = scatter(isum, lane), im = 0;
                if (quant::HAS_MIN)
                    im = scatter(imin, lane);
                if (valid) {
                    uint32_t r = lane / 2 % 4;
                    float dw, dmin, dx = d[blk];
                    quant::scales(pick(row, r) + (size_t)blk * quant::BYTES, dw, dmin);
                    float2 *to = stage + (lane / 8 * 4 + r) * 2;
                    if (lane % 2 == 0)
                        to[0] = make_float2(dw * dx, (float)is);
                    else if (quant::HAS_MIN)
                        to[1] = make_float2(-(dmin * dx), (float)im);
                }
                __syncwarp();
                uint32_t n = min(4u, n_blocks - base);
                if (lane < 4)
                    for (uint32_t j = 0; j < n; j++) {
                        float2 v = stage[(j * 4 + lane) * 2];
                        total = fmaf(v.x, v.y, total);
                        if (quant::HAS_MIN) {
                            v = stage[(j * 4 + lane) * 2 + 1];
                            total = fmaf(v.x, v.y, total);
                        }
                    }
                __syncwarp();
            }
        }
        return total;
    }

    __device__ __forceinline__ static size_t row_bytes(uint32_t n) {
        return (size_t)(n / quant::ELEMS) * quant::BYTES;
    }
};

/* Float types: the input as it is. */
template <int T> struct sl_vec_float {
    static constexpr int SIZE = T == SL_DTYPE_F32 ? 4 : 2;
    const float *x;
    uint32_t n_in;

    __device__ void load(const float *from, uint32_t n, void *shared) {
        float *to = (float *)shared;
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
            to[i] = from[i];
        x = to, n_in = n;
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
    __device__ __forceinline__ float dot(const uint8_t *const (&row)[4], float2 *) const {
        uint32_t lane = threadIdx.x % 32;
        float s[4] = {0, 0, 0, 0};
        uint32_t i = lane * 8;
        for (; i + 8 <= n_in; i += 256) {
            float4 x0 = *(const float4 *)(x + i), x1 = *(const float4 *)(x + i + 4);
            float xs[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
#pragma unroll
            for (int r = 0; r < 4; r++) {
                float w[8];
                load8(row[r] + (size_t)i * SIZE, w);
#pragma unroll
                for (int j = 0; j < 8; j++)
                    s[r] = fmaf(w[j], xs[j], s[r]);
            }
        }
        for (; i < n_in; i++) { /* the last, part of eight, is one lane's */
#pragma unroll
            for (int r = 0; r < 4; r++)
                s[r] = fmaf(sl_load_float<T>(row[r], i), x[i], s[r]);
        }
        float total = 0;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float v = sl_warp_sum(s[r]);
            total = lane == (uint32_t)r ? v : total;
        }
        return total;
    }
    __device__ __forceinline__ static size_t row_bytes(uint32_t n) {
        return (size_t)n * SIZE;
    }
};

template <> struct sl_vec<SL_DTYPE_F32> : sl_vec_float<SL_DTYPE_F32> {};
template <> struct sl_vec<SL_DTYPE_F16> : sl_vec_float<SL_DTYPE_F16> {};
template <> struct sl_vec<SL_DTYPE_BF16> : sl_vec_float<SL_DTYPE_BF16> {};

#endif
