/* exp and what is made of it, as every kernel of the CPU backend computes it: the same operations
 * in the same order in C and in SIMD (math_avx2.h, math_avx512.h), so that all give the same bits.
 *
 * sl_expf: at most 1 ulp from the true value (tests/unit/backends/test_math.c measures it over all
 * floats), 0 below -103.98, denormal results rounded once, +inf above 88.72, NaN for NaN.
 * Method: x = n ln2 + r with n rounded by adding 1.5 * 2^23, ln2 in two parts (Cody and Waite
 * 1980); a degree-6 minimax polynomial on |r| <= ln2 / 2; 2^n in two exact factors, so that only
 * the last multiplication rounds. */
#ifndef SL_BACKENDS_CPU_MATH_H
#define SL_BACKENDS_CPU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SL_EXP_MAX    89.0f   /* exp is +inf from here on */
#define SL_EXP_MIN    -104.0f /* exp is 0 from here on */
#define SL_EXP_MAGIC  0x1.8p23f
#define SL_EXP_LOG2E  0x1.715476p0f
#define SL_EXP_LN2_HI 0x1.62e4p-1f /* 15 bits: n times it is exact */
#define SL_EXP_LN2_LO 0x1.7f7d1cp-20f
#define SL_EXP_C2     0x1.fffffcp-2f
#define SL_EXP_C3     0x1.55549p-3f
#define SL_EXP_C4     0x1.5558f4p-5f
#define SL_EXP_C5     0x1.123a6cp-7f
#define SL_EXP_C6     0x1.6a2342p-10f

static inline float sl_expf(float x) {
    /* As MINPS and MAXPS: a NaN in x stays. */
    x = SL_EXP_MAX < x ? SL_EXP_MAX : x;
    x = SL_EXP_MIN > x ? SL_EXP_MIN : x;
    float t = fmaf(x, SL_EXP_LOG2E, SL_EXP_MAGIC);
    float n = t - SL_EXP_MAGIC;
    float r = fmaf(n, -SL_EXP_LN2_HI, x);
    r = fmaf(n, -SL_EXP_LN2_LO, r);
    float p = fmaf(SL_EXP_C6, r, SL_EXP_C5);
    p = fmaf(p, r, SL_EXP_C4);
    p = fmaf(p, r, SL_EXP_C3);
    p = fmaf(p, r, SL_EXP_C2);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const float magic = SL_EXP_MAGIC;
    uint32_t tb, mb;
    memcpy(&tb, &t, sizeof tb);
    memcpy(&mb, &magic, sizeof mb);
    int32_t ni = (int32_t)(tb - mb);
    int32_t half = ni >> 1;
    uint32_t b1 = ((uint32_t)half + 127) << 23, b2 = ((uint32_t)(ni - half) + 127) << 23;
    float s1, s2;
    memcpy(&s1, &b1, sizeof s1);
    memcpy(&s2, &b2, sizeof s2);
    return p * s1 * s2;
}

static inline float sl_sigmoidf(float x) {
    return 1.0f / (1.0f + sl_expf(-x));
}

static inline float sl_siluf(float x) {
    return x / (1.0f + sl_expf(-x));
}

/* sl_op_gelu_mul's. */
#define SL_GELU_CUBE  0.044715f
#define SL_GELU_SCALE -1.5957691216f /* -2 sqrt(2 / pi) */
static inline float sl_geluf(float x) {
    float p = fmaf(x * x, SL_GELU_CUBE, 1.0f);
    return x / (1.0f + sl_expf(SL_GELU_SCALE * (x * p)));
}

/* cap * tanh(x / cap), to within some 2^-23 of cap. */
static inline float sl_softcapf(float x, float cap) {
    float e = sl_expf(2.0f * (x / cap));
    return cap * (1.0f - 2.0f / (1.0f + e));
}

/* ln x of a positive finite x, to some 1e-13 and with the same bits everywhere, which a library's
 * would not have: x = 2^e m, sqrt(1/2) <= m < sqrt(2), ln m = 2 artanh((m - 1) / (m + 1)). */
static inline double sl_ln(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), s2 = s * s, p = 1.0 / 15;
    for (int i = 13; i > 0; i -= 2)
        p = p * s2 + 1.0 / i;
    return 2 * s * p + e * 0x1.62e42fefa39efp-1;
}

/* Of 16 partial sums, element i in partial i % 16: all, added as a tree (cpu.h). */
static inline float sl_sum16(float *part) {
    for (uint32_t width = 8; width; width /= 2)
        for (uint32_t i = 0; i < width; i++)
            part[i] += part[i + width];
    return part[0];
}

static inline float sl_dotf(const float *a, const float *b, uint32_t n) {
    float part[16] = {0};
    for (uint32_t i = 0; i < n; i++)
        part[i % 16] = fmaf(a[i], b[i], part[i % 16]);
    return sl_sum16(part);
}

/* log(1 + exp(x)) */
static inline float sl_softplusf(float x) {
    return x > 20.0f ? x : (float)sl_ln(1.0 + (double)sl_expf(x));
}

#endif
