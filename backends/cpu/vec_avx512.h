/* A vector of 16 floats, v16, and what the kernel templates (simd_*.h) do with it: AVX-512. Sixteen
 * because the canonical sums have 16 partials, whatever the register width. Include only from files
 * compiled for AVX-512. */
#ifndef SL_BACKENDS_CPU_VEC_AVX512_H
#define SL_BACKENDS_CPU_VEC_AVX512_H

#include "backends/cpu/math_avx512.h"

#ifdef __AVX512F__
#define SL_V16   1
#define V_ACC    16 /* accumulators that fit the registers alongside their operands */
#define V_TILE   2  /* vectors across a tile's lanes */
#define V_TILE_D 8  /* by this many rows of outputs */

typedef __m512 v16;
typedef __mmask16 vm16;

static inline __mmask16 v_first(uint32_t n) {
    return (__mmask16)((1u << n) - 1);
}

static inline v16 v_zero(void) {
    return _mm512_setzero_ps();
}
static inline v16 v_set1(float x) {
    return _mm512_set1_ps(x);
}
static inline v16 v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, v16 v) {
    _mm512_storeu_ps(p, v);
}
/* The first n elements, 0 < n < 16; fill in the others. */
static inline v16 v_load_n(const float *p, uint32_t n, float fill) {
    return _mm512_mask_loadu_ps(_mm512_set1_ps(fill), v_first(n), p);
}
static inline void v_store_n(float *p, uint32_t n, v16 v) {
    _mm512_mask_storeu_ps(p, v_first(n), v);
}
static inline v16 v_add(v16 a, v16 b) {
    return _mm512_add_ps(a, b);
}
static inline v16 v_sub(v16 a, v16 b) {
    return _mm512_sub_ps(a, b);
}
static inline v16 v_mul(v16 a, v16 b) {
    return _mm512_mul_ps(a, b);
}
static inline v16 v_div(v16 a, v16 b) {
    return _mm512_div_ps(a, b);
}
static inline v16 v_fma(v16 a, v16 b, v16 c) {
    return _mm512_fmadd_ps(a, b, c);
}
/* a > b ? a : b, a < b ? a : b */
static inline v16 v_max(v16 a, v16 b) {
    return _mm512_max_ps(a, b);
}
static inline v16 v_min(v16 a, v16 b) {
    return _mm512_min_ps(a, b);
}
static inline v16 v_abs(v16 a) {
    return _mm512_abs_ps(a);
}
static inline v16 v_exp(v16 a) {
    return sl_exp_m512(a);
}
static inline v16 v_silu(v16 a) {
    return sl_silu_m512(a);
}
static inline v16 v_sigmoid(v16 a) {
    return sl_sigmoid_m512(a);
}

/* Lanes i with lo[i] <= j < hi[i]. */
static inline vm16 v_range(const int32_t *lo, const int32_t *hi, int32_t j) {
    __m512i at = _mm512_set1_epi32(j);
    return _mm512_mask_cmplt_epi32_mask(_mm512_cmple_epi32_mask(_mm512_load_si512(lo), at), at,
                                        _mm512_load_si512(hi));
}
/* Lanes i with lo[i] < hi[i]. */
static inline vm16 v_below(const int32_t *lo, const int32_t *hi) {
    return _mm512_cmplt_epi32_mask(_mm512_load_si512(lo), _mm512_load_si512(hi));
}
static inline v16 v_select(vm16 m, v16 yes, v16 no) {
    return _mm512_mask_blend_ps(m, no, yes);
}

/* The canonical trees: 8 apart, 4, 2, 1. */
static inline float v_sum(v16 v) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
static inline float v_most(v16 v) {
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
/* out[i] = v_sum(acc[i]) * scale for all V_ACC, by transposing on the way down the tree. */
static inline void v_sums(const v16 *acc, v16 scale, float *out) {
    v16 a[8], b[4], c[2];
#define PAIR(i) /* the i-th of the order in which the results come out ascending */                \
    acc[((i) % 4) * 4 + (i) / 4]
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        a[i] = v_add(_mm512_shuffle_f32x4(PAIR(2 * i), PAIR(2 * i + 1), 0x44),
                     _mm512_shuffle_f32x4(PAIR(2 * i), PAIR(2 * i + 1), 0xee));
#undef PAIR
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        b[i] = v_add(_mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0x88),
                     _mm512_shuffle_f32x4(a[2 * i], a[2 * i + 1], 0xdd));
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        c[i] = v_add(_mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0x44),
                     _mm512_shuffle_ps(b[2 * i], b[2 * i + 1], 0xee));
    v16 d = v_add(_mm512_shuffle_ps(c[0], c[1], 0x88), _mm512_shuffle_ps(c[0], c[1], 0xdd));
    v_store(out, v_mul(d, scale));
}

/* binary16 */
static inline v16 v_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline v16 v_load_f16_n(const void *p, uint32_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(v_first(n), p));
}
static inline void v_store_f16(void *p, v16 v) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline void v_store_f16_n(void *p, uint32_t n, v16 v) {
    _mm256_mask_storeu_epi16(p, v_first(n), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
/* int8 */
static inline v16 v_load_i8(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
/* |v| <= 127, to nearest even */
static inline void v_store_i8(void *p, v16 v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}

/* Rotates 8 adjacent pairs (x, y) by (cos, sin) pairs: (fma(x, c, -(y s)), fma(x, s, y c)). */
static inline v16 v_rotate_pairs(v16 xy, v16 cs) {
    v16 ys = _mm512_mul_ps(_mm512_movehdup_ps(xy), _mm512_permute_ps(cs, 0xb1));
    return _mm512_fmaddsub_ps(_mm512_moveldup_ps(xy), cs, ys);
}
/* 16 (cos, sin) pairs apart. */
static inline void v_load_pairs(const float *p, v16 *c, v16 *s) {
    __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    v16 a = v_load(p), b = v_load(p + 16);
    *c = _mm512_permutex2var_ps(a, even, b);
    *s = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}
/* r as a matrix of 16 rows, in place. */
static inline void v_transpose(v16 *r) {
    v16 a[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) { /* r[i + c] has column 4 L + c of four rows in its lane L */
        r[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        v16 even0 = _mm512_shuffle_f32x4(r[c], r[4 + c], 0x88);
        v16 even1 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0x88);
        v16 odd0 = _mm512_shuffle_f32x4(r[c], r[4 + c], 0xdd);
        v16 odd1 = _mm512_shuffle_f32x4(r[8 + c], r[12 + c], 0xdd);
        r[c] = _mm512_shuffle_f32x4(even0, even1, 0x88);
        r[4 + c] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
        r[8 + c] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
        r[12 + c] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
    }
}
/* In a register from here on: compilers would rather load twice than spend one. */
static inline v16 v_keep(v16 a) {
    __asm__("" : "+v"(a));
    return a;
}
static inline v16 v_neg(v16 a) {
    return sl_neg_m512(a);
}

#endif
#endif
