/* Quantising input rows, the same bits as backends/cpu/matmul/quantize.c. */
#ifndef SL_BACKENDS_KERNELS_QUANTIZE_CUH
#define SL_BACKENDS_KERNELS_QUANTIZE_CUH

#include "backends/kernels/device.cuh"

/* What a lane holds of a group of 256: elements 8 * lane .. + 7. */
struct sl_quantized {
    uint32_t q[2];
    float d; /* of the lane's block of 32, or of the 256 */
    int sum; /* of the lane's 16 (256-element blocks) or 32 elements */
};

/* A lane's elements of group g of a row of n_in; what is beyond n_in is zeros. */
__device__ __forceinline__ void sl_quantize_fetch(const float *x, uint32_t n_in, uint32_t g,
                                                  uint32_t lane, float (&v)[8]) {
    uint32_t at = g * 256 + lane * 8;
    if (at < n_in) {
        const float *p = x + at;
        if (((uintptr_t)p & 15) == 0) {
            float4 lo = *(const float4 *)p, hi = *(const float4 *)(p + 4);
            v[0] = lo.x, v[1] = lo.y, v[2] = lo.z, v[3] = lo.w;
            v[4] = hi.x, v[5] = hi.y, v[6] = hi.z, v[7] = hi.w;
        } else {
#pragma unroll
            for (int i = 0; i < 8; i++)
                v[i] = p[i];
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
            v[i] = 0;
    }
}

/* One warp quantises a group. */
template <bool BLOCK32>
__device__ __forceinline__ void sl_quantize_values(const float (&v)[8], struct sl_quantized &out) {
    /* As bits, infinities and NaN are above all numbers. */
    int bits = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        bits = max(bits, __float_as_int(v[i]) & 0x7fffffff);
#pragma unroll
    for (int m = BLOCK32 ? 2 : 16; m; m /= 2)
        bits = max(bits, sl_shfl_xor(bits, m));
    float amax = __int_as_float(bits);
    out.q[0] = out.q[1] = 0;
    out.sum = 0;
    if (bits >= 0x7f800000 || amax < 0x1p-100f) {
        out.d = bits >= 0x7f800000 ? __int_as_float(0x7fc00000) : 0.0f;
    } else {
        /* x / 127, rounded right: a quotient's error is exact by a fused multiplication, and 1 /
         * 127 times it is what the quotient is off by (all mantissas were tried). */
        constexpr float ONE = 1.0f / 127.0f;
        float inv = 127.0f / amax, d = amax * ONE;
        out.d = fmaf(fmaf(-127.0f, d, amax), ONE, d);
        int q[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            q[i] = __float2int_rn(v[i] * inv);
        out.q[0] = sl_pack_s8(q[0], q[1], q[2], q[3]);
        out.q[1] = sl_pack_s8(q[4], q[5], q[6], q[7]);
        out.sum = sl_dp4a((int)out.q[0], 0x01010101, sl_dp4a((int)out.q[1], 0x01010101, 0));
    }
    out.sum += sl_shfl_xor(out.sum, 1);
    if (BLOCK32)
        out.sum += sl_shfl_xor(out.sum, 2);
}
template <bool BLOCK32>
__device__ __forceinline__ void sl_quantize_group(const float *x, uint32_t n_in, uint32_t g,
                                                  uint32_t lane, struct sl_quantized &out) {
    float v[8];
    sl_quantize_fetch(x, n_in, g, lane, v);
    sl_quantize_values<BLOCK32>(v, out);
}

/* What a lane holds of group `group` of all rows. */
template <bool BLOCK32>
__device__ __forceinline__ void sl_quantized_put(const struct sl_karg_qx &to, size_t group,
                                                 uint32_t lane, const struct sl_quantized &v) {
    *(uint2 *)(to.q + group * 256 + lane * 8) = make_uint2(v.q[0], v.q[1]);
    if (BLOCK32) {
        if (lane % 4 == 0) {
            to.d[group * 8 + lane / 4] = v.d;
            ((float *)to.sum)[group * 8 + lane / 4] = (float)v.sum;
        }
        return;
    }
    if (lane == 0)
        to.d[group] = v.d;
    if (lane % 2 == 0) {
        int high = (v.sum + 32) >> 6;
        int8_t *sum = (int8_t *)to.sum + group * 32 + lane / 2;
        sum[0] = (int8_t)high;
        sum[16] = (int8_t)(v.sum - 64 * high);
    }
}

/* One head of one row to the KV type, by n_threads of which this is `thread`. Q8_0: a warp a block
 * of 32 (backends/cpu/kv.c has the rule). */
__device__ __forceinline__ void sl_kv_write_head(const float *x, uint8_t *to, uint32_t dim, bool q8,
                                                 uint32_t thread, uint32_t n_threads) {
    if (!q8) {
        for (uint32_t i = thread; i < dim; i += n_threads)
            ((__half *)to)[i] = __float2half_rn(x[i]);
        return;
    }
    uint32_t lane = thread % SL_WARP;
    for (uint32_t b = thread / SL_WARP; b < dim / 32; b += n_threads / SL_WARP) {
        float v = x[b * 32 + lane], most = v == v ? fabsf(v) : 0.0f;
        most = sl_warp_max(most);
        float d = most / 127.0f;
        d = d < 65504.0f ? d : 65504.0f;
        __half d16 = __float2half_rn(d);
        float stored = __half2float(d16);
        float inv = stored > 0 ? 1.0f / stored : 0.0f;
        v = v * inv;
        v = v < 127.0f ? v : 127.0f; /* also a NaN */
        v = v > -127.0f ? v : -127.0f;
        uint8_t *out = to + b * 34;
        if (lane == 0)
            *(__half *)out = d16;
        out[2 + lane] = (uint8_t)__float2int_rn(v);
    }
}

#endif
