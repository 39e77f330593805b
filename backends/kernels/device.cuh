/* What kernels share: arithmetic, sums over a warp, bytes of words.
 *
 * Results are fixed to the bit: fused multiply-adds are written out (compiled with -fmad=false),
 * divisions and roots round correctly, exp is the polynomial of backends/cpu/math.h. */
#ifndef SL_BACKENDS_KERNELS_DEVICE_CUH
#define SL_BACKENDS_KERNELS_DEVICE_CUH

#include "backends/kernels/machine.cuh"

__device__ __forceinline__ void sl_grid_begin(void) {
    sl_grid_wait();
    sl_grid_next();
}

/* By its bits: HIP's compiler of LLVM 15 fails on a vote on x != x. */
__device__ __forceinline__ bool sl_is_nan(float x) {
    return (__float_as_int(x) & 0x7fffffff) > 0x7f800000;
}

/* Byte i of v, signed and unsigned. */
__device__ __forceinline__ int sl_byte(uint32_t v, int i) {
    return (int)(int8_t)(v >> (8 * i));
}
__device__ __forceinline__ int sl_byte_u(uint32_t v, int i) {
    return (int)(v >> (8 * i) & 255);
}
/* N words of shared memory that begin `shift` bits into the word at p. One more is read. */
template <int N>
__device__ __forceinline__ void sl_smem_words(const uint8_t *p, uint32_t shift,
                                              uint32_t (&out)[N]) {
    const uint32_t *w = (const uint32_t *)p;
    uint32_t lo = w[0];
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t hi = w[i + 1];
        out[i] = sl_funnel(lo, hi, shift);
        lo = hi;
    }
}

/* As sl_expf in backends/cpu/math.h, the same operations. */
__device__ __forceinline__ float sl_dev_exp(float x) {
    x = 89.0f < x ? 89.0f : x;
    x = -104.0f > x ? -104.0f : x;
    float t = fmaf(x, 0x1.715476p0f, 0x1.8p23f);
    float n = t - 0x1.8p23f;
    float r = fmaf(n, -0x1.62e4p-1f, x);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = fmaf(0x1.6a2342p-10f, r, 0x1.123a6cp-7f);
    p = fmaf(p, r, 0x1.5558f4p-5f);
    p = fmaf(p, r, 0x1.55549p-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    int ni = __float_as_int(t) - __float_as_int(0x1.8p23f);
    int half = ni >> 1;
    float s1 = __int_as_float((half + 127) << 23), s2 = __int_as_float((ni - half + 127) << 23);
    return p * s1 * s2;
}
/* common/fast_exp.h */
__device__ __forceinline__ float sl_dev_exp_neg(float x) {
    float clamped = x < -87.0f ? -87.0f : x;
    float shifted = clamped * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return x < -87.0f ? 0.0f : p * __int_as_float((__float_as_int(shifted) + 127) << 23);
}
__device__ __forceinline__ float sl_dev_sigmoid(float x) {
    return 1.0f / (1.0f + sl_dev_exp(-x));
}
__device__ __forceinline__ float sl_dev_silu(float x) {
    return x / (1.0f + sl_dev_exp(-x));
}

/* As sl_geluf and sl_softcapf in backends/cpu/math.h, the same operations. */
__device__ __forceinline__ float sl_dev_gelu(float x) {
    float p = fmaf(x * x, 0.044715f, 1.0f);
    return x / (1.0f + sl_dev_exp(-1.5957691216f * (x * p)));
}
__device__ __forceinline__ float sl_dev_softcap(float x, float cap) {
    float e = sl_dev_exp(2.0f * (x / cap));
    return cap * (1.0f - 2.0f / (1.0f + e));
}

/* As sl_op_limited_glu. A NaN stays. */
__device__ __forceinline__ float sl_dev_limited_glu(float gate, float up, float limit) {
    float g = sl_dev_silu(gate);
    up = up > limit ? limit : up;
    up = up < -limit ? -limit : up;
    return (g > limit ? limit : g) * up;
}

/* As sl_op_relu_squared. A NaN stays. */
__device__ __forceinline__ float sl_dev_relu_squared(float x) {
    x = x < 0 ? 0.0f : x;
    return x * x;
}

/* SL_SWIGLU_CUT. A NaN stays. */
__device__ __forceinline__ float sl_dev_cut_glu(float gate, float up, float limit) {
    up = up > limit ? limit : up;
    up = up < -limit ? -limit : up;
    return sl_dev_silu(gate > limit ? limit : gate) * up;
}

/* As ln in backends/cpu/recurrent.c, the same operations, for x >= 1. */
__device__ __forceinline__ double sl_dev_ln(double x) {
    uint64_t bits = (uint64_t)__double_as_longlong(x);
    int e = (int)(bits >> 52) - 1022;
    double m =
        __longlong_as_double((long long)((bits & 0xfffffffffffffull) | 0x3fe0000000000000ull));
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, p = 1.0 / 15;
#pragma unroll
    for (int i = 13; i > 0; i -= 2)
        p = p * s2 + 1.0 / i;
    return 2 * s * p + e * 0x1.62e42fefa39efp-1;
}
__device__ __forceinline__ float sl_dev_softplus(float x) {
    return x > 20.0f ? x : (float)sl_dev_ln(1.0 + (double)sl_dev_exp(x));
}

/* Sum over the lanes of a warp; every lane gets the same bits. */
__device__ __forceinline__ float sl_warp_sum(float v) {
#pragma unroll
    for (int m = SL_WARP / 2; m; m /= 2)
        v += sl_shfl_xor(v, m);
    return v;
}
__device__ __forceinline__ float sl_warp_max(float v) {
#pragma unroll
    for (int m = SL_WARP / 2; m; m /= 2)
        v = fmaxf(v, sl_shfl_xor(v, m));
    return v;
}

#endif
