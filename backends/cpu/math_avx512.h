/* math.h for 16 lanes. Include only from files compiled for AVX-512 F and DQ. */
#ifndef SL_BACKENDS_CPU_MATH_AVX512_H
#define SL_BACKENDS_CPU_MATH_AVX512_H

#include "backends/cpu/math.h"

#ifdef __AVX512F__
#include <immintrin.h>

static inline __m512 sl_exp_m512(__m512 x) {
    /* The constant first: on a NaN MINPS and MAXPS return the second operand. */
    x = _mm512_min_ps(_mm512_set1_ps(SL_EXP_MAX), x);
    x = _mm512_max_ps(_mm512_set1_ps(SL_EXP_MIN), x);
    __m512 magic = _mm512_set1_ps(SL_EXP_MAGIC);
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(SL_EXP_LOG2E), magic);
    __m512 n = _mm512_sub_ps(t, magic);
    __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SL_EXP_LN2_HI), x);
    r = _mm512_fmadd_ps(n, _mm512_set1_ps(-SL_EXP_LN2_LO), r);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(SL_EXP_C6), r, _mm512_set1_ps(SL_EXP_C5));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXP_C4));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXP_C3));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(SL_EXP_C2));
    p = _mm512_fmadd_ps(p, r, one);
    p = _mm512_fmadd_ps(p, r, one);
    /* One multiplication by 2^n, rounded once: what the two factors of math.h come to. */
    return _mm512_scalef_ps(p, n);
}

static inline __m512 sl_neg_m512(__m512 x) {
    return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
}

static inline __m512 sl_sigmoid_m512(__m512 x) {
    __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(one, _mm512_add_ps(one, sl_exp_m512(sl_neg_m512(x))));
}

static inline __m512 sl_silu_m512(__m512 x) {
    return _mm512_div_ps(x, _mm512_add_ps(_mm512_set1_ps(1.0f), sl_exp_m512(sl_neg_m512(x))));
}

#endif
#endif
