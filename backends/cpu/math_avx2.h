/* math.h for 8 lanes. Include only from files compiled for AVX2 + FMA. */
#ifndef SL_BACKENDS_CPU_MATH_AVX2_H
#define SL_BACKENDS_CPU_MATH_AVX2_H

#include "backends/cpu/math.h"

#ifdef __AVX2__
#include <immintrin.h>

static inline __m256 sl_exp_m256(__m256 x) {
    /* The constant first: on a NaN MINPS and MAXPS return the second operand. */
    x = _mm256_min_ps(_mm256_set1_ps(SL_EXP_MAX), x);
    x = _mm256_max_ps(_mm256_set1_ps(SL_EXP_MIN), x);
    __m256 magic = _mm256_set1_ps(SL_EXP_MAGIC);
    __m256 one = _mm256_set1_ps(1.0f);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(SL_EXP_LOG2E), magic);
    __m256 n = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SL_EXP_LN2_HI), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-SL_EXP_LN2_LO), r);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(SL_EXP_C6), r, _mm256_set1_ps(SL_EXP_C5));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXP_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXP_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(SL_EXP_C2));
    p = _mm256_fmadd_ps(p, r, one);
    p = _mm256_fmadd_ps(p, r, one);
    __m256i ni = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(magic));
    __m256i half = _mm256_srai_epi32(ni, 1);
    __m256i bias = _mm256_set1_epi32(127);
    __m256i b1 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
    __m256i b2 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(ni, half), bias), 23);
    return _mm256_mul_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(b1)), _mm256_castsi256_ps(b2));
}

static inline __m256 sl_neg_m256(__m256 x) {
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

static inline __m256 sl_sigmoid_m256(__m256 x) {
    __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, sl_exp_m256(sl_neg_m256(x))));
}

static inline __m256 sl_silu_m256(__m256 x) {
    return _mm256_div_ps(x, _mm256_add_ps(_mm256_set1_ps(1.0f), sl_exp_m256(sl_neg_m256(x))));
}

#endif
#endif
