/* exp for passes over a vocabulary: plain C that compilers vectorise, without fused multiply-adds,
 * so that CPUs with and without them give the same bits. */
#ifndef SL_COMMON_FAST_EXP_H
#define SL_COMMON_FAST_EXP_H

#include <stdint.h>
#include <string.h>

/* exp(x) for x <= 0 within 3e-7 relative; 0 below -87. libm's scalar exp is too slow to call for
 * every vocabulary entry of every token.
 * Source: Cody and Waite's two-part reduction by ln 2; the polynomial is exp's Taylor series, which
 * on |r| <= ln(2)/2 ends below float rounding at degree 7. */
static inline float sl_exp_neg(float x) {
    float clamped = x < -87.0f ? -87.0f : x;
    float shifted = clamped * 1.44269504f + 12582912.0f; /* rounds to the nearest integer */
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
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 127) << 23; /* the integer sits in shifted's low bits */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : p * scale;
}

#endif
