/* A vector of 16 floats, v16, and what the kernel templates (simd_*.h) do with it: two AVX2
 * registers. Include only from files compiled for AVX2, FMA and F16C. */
#ifndef SL_BACKENDS_CPU_VEC_AVX2_H
#define SL_BACKENDS_CPU_VEC_AVX2_H

#include "backends/cpu/math_avx2.h"

#ifdef __AVX2__
#define SL_V16   1
#define V_ACC    4 /* accumulators that fit the registers alongside their operands */
#define V_TILE   1 /* vectors across a tile's lanes */
#define V_TILE_D 4 /* by this many rows of outputs */

typedef struct {
    __m256 lo, hi;
} v16;
typedef v16 vm16; /* all ones in the lanes that are set */

static inline v16 v_zero(void) {
    return (v16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
static inline v16 v_set1(float x) {
    return (v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
static inline v16 v_load(const float *p) {
    return (v16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline void v_store(float *p, v16 v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
/* The first n elements, 0 < n < 16; fill in the others. */
static inline v16 v_load_n(const float *p, uint32_t n, float fill) {
    _Alignas(32) float tmp[16];
    for (uint32_t i = 0; i < 16; i++)
        tmp[i] = i < n ? p[i] : fill;
    return v_load(tmp);
}
static inline void v_store_n(float *p, uint32_t n, v16 v) {
    _Alignas(32) float tmp[16];
    v_store(tmp, v);
    memcpy(p, tmp, n * sizeof *p);
}
static inline v16 v_add(v16 a, v16 b) {
    return (v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
static inline v16 v_sub(v16 a, v16 b) {
    return (v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
static inline v16 v_mul(v16 a, v16 b) {
    return (v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
static inline v16 v_div(v16 a, v16 b) {
    return (v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
static inline v16 v_fma(v16 a, v16 b, v16 c) {
    return (v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
/* a > b ? a : b, a < b ? a : b */
static inline v16 v_max(v16 a, v16 b) {
    return (v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
static inline v16 v_min(v16 a, v16 b) {
    return (v16){_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
static inline v16 v_abs(v16 a) {
    __m256 sign = _mm256_set1_ps(-0.0f);
    return (v16){_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
static inline v16 v_exp(v16 a) {
    return (v16){sl_exp_m256(a.lo), sl_exp_m256(a.hi)};
}
static inline v16 v_silu(v16 a) {
    return (v16){sl_silu_m256(a.lo), sl_silu_m256(a.hi)};
}
static inline v16 v_sigmoid(v16 a) {
    return (v16){sl_sigmoid_m256(a.lo), sl_sigmoid_m256(a.hi)};
}

static inline __m256 v_range8(const int32_t *lo, const int32_t *hi, int32_t j) {
    __m256i at = _mm256_set1_epi32(j);
    __m256i below = _mm256_cmpgt_epi32(_mm256_load_si256((const __m256i *)lo), at);
    __m256i within = _mm256_cmpgt_epi32(_mm256_load_si256((const __m256i *)hi), at);
    return _mm256_castsi256_ps(_mm256_andnot_si256(below, within));
}
/* Lanes i with lo[i] <= j < hi[i]. */
static inline vm16 v_range(const int32_t *lo, const int32_t *hi, int32_t j) {
    return (vm16){v_range8(lo, hi, j), v_range8(lo + 8, hi + 8, j)};
}
static inline __m256 v_below8(const int32_t *lo, const int32_t *hi) {
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_load_si256((const __m256i *)hi),
                                                  _mm256_load_si256((const __m256i *)lo)));
}
/* Lanes i with lo[i] < hi[i]. */
static inline vm16 v_below(const int32_t *lo, const int32_t *hi) {
    return (vm16){v_below8(lo, hi), v_below8(lo + 8, hi + 8)};
}
static inline v16 v_select(vm16 m, v16 yes, v16 no) {
    return (v16){_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

/* The canonical trees: 8 apart, 4, 2, 1. */
static inline float v_sum(v16 v) {
    __m256 a = _mm256_add_ps(v.lo, v.hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
static inline float v_most(v16 v) {
    __m256 a = _mm256_max_ps(v.lo, v.hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}
/* out[i] = v_sum(acc[i]) * scale for all V_ACC, by transposing on the way down the tree. */
static inline void v_sums(const v16 *acc, v16 scale, float *out) {
    __m256 a[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_add_ps(acc[i].lo, acc[i].hi);
    __m256 b = _mm256_add_ps(_mm256_permute2f128_ps(a[0], a[2], 0x20),
                             _mm256_permute2f128_ps(a[0], a[2], 0x31));
    __m256 c = _mm256_add_ps(_mm256_permute2f128_ps(a[1], a[3], 0x20),
                             _mm256_permute2f128_ps(a[1], a[3], 0x31));
    __m256 d = _mm256_add_ps(_mm256_shuffle_ps(b, c, 0x44), _mm256_shuffle_ps(b, c, 0xee));
    d = _mm256_add_ps(_mm256_shuffle_ps(d, d, 0x88), _mm256_shuffle_ps(d, d, 0xdd));
    __m128 e = _mm_movelh_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
    _mm_storeu_ps(out, _mm_mul_ps(e, _mm256_castps256_ps128(scale.lo)));
}

/* binary16 */
static inline v16 v_load_f16(const void *p) {
    const __m128i *q = (const __m128i *)p;
    return (v16){_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
static inline v16 v_load_f16_n(const void *p, uint32_t n) {
    _Alignas(32) uint16_t tmp[16] = {0};
    memcpy(tmp, p, n * sizeof *tmp);
    return v_load_f16(tmp);
}
static inline void v_store_f16(void *p, v16 v) {
    __m128i *q = (__m128i *)p;
    _mm_storeu_si128(q, _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}
static inline void v_store_f16_n(void *p, uint32_t n, v16 v) {
    _Alignas(32) uint16_t tmp[16];
    v_store_f16(tmp, v);
    memcpy(p, tmp, n * sizeof *tmp);
}
/* int8 */
static inline v16 v_load_i8(const void *p) {
    __m128i b = _mm_loadu_si128((const __m128i *)p);
    return (v16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                 _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8)))};
}
/* |v| <= 127, to nearest even */
static inline void v_store_i8(void *p, v16 v) {
    __m256i lo = _mm256_cvtps_epi32(v.lo), hi = _mm256_cvtps_epi32(v.hi);
    __m128i a = _mm_packs_epi32(_mm256_castsi256_si128(lo), _mm256_extracti128_si256(lo, 1));
    __m128i b = _mm_packs_epi32(_mm256_castsi256_si128(hi), _mm256_extracti128_si256(hi, 1));
    _mm_storeu_si128((__m128i *)p, _mm_packs_epi16(a, b));
}

static inline __m256 v_rotate_pairs8(__m256 xy, __m256 cs) {
    __m256 ys = _mm256_mul_ps(_mm256_movehdup_ps(xy), _mm256_permute_ps(cs, 0xb1));
    return _mm256_fmaddsub_ps(_mm256_moveldup_ps(xy), cs, ys);
}
/* Rotates 8 adjacent pairs (x, y) by (cos, sin) pairs: (fma(x, c, -(y s)), fma(x, s, y c)). */
static inline v16 v_rotate_pairs(v16 xy, v16 cs) {
    return (v16){v_rotate_pairs8(xy.lo, cs.lo), v_rotate_pairs8(xy.hi, cs.hi)};
}
static inline void v_load_pairs8(const float *p, __m256 *c, __m256 *s) {
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    __m256 even = _mm256_shuffle_ps(a, b, 0x88), odd = _mm256_shuffle_ps(a, b, 0xdd);
    *c = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(even), 0xd8));
    *s = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(odd), 0xd8));
}
/* 16 (cos, sin) pairs apart. */
static inline void v_load_pairs(const float *p, v16 *c, v16 *s) {
    v_load_pairs8(p, &c->lo, &s->lo);
    v_load_pairs8(p + 16, &c->hi, &s->hi);
}
static inline void v_transpose8(__m256 *r) {
    __m256 a[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) { /* r[i + c] has column 4 L + c of four rows in its lane L */
        r[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m256 top = r[c], bottom = r[4 + c];
        r[c] = _mm256_permute2f128_ps(top, bottom, 0x20);
        r[4 + c] = _mm256_permute2f128_ps(top, bottom, 0x31);
    }
}
/* r as a matrix of 16 rows, in place. */
static inline void v_transpose(v16 *r) {
    __m256 q[4][8];
    for (int i = 0; i < 8; i++) {
        q[0][i] = r[i].lo, q[1][i] = r[i].hi;
        q[2][i] = r[8 + i].lo, q[3][i] = r[8 + i].hi;
    }
    for (int k = 0; k < 4; k++)
        v_transpose8(q[k]);
    for (int i = 0; i < 8; i++) {
        r[i] = (v16){q[0][i], q[2][i]};
        r[8 + i] = (v16){q[1][i], q[3][i]};
    }
}
/* In a register from here on: compilers would rather load twice than spend one. */
static inline v16 v_keep(v16 a) {
    __asm__("" : "+x"(a.lo), "+x"(a.hi));
    return a;
}
static inline v16 v_neg(v16 a) {
    return (v16){sl_neg_m256(a.lo), sl_neg_m256(a.hi)};
}

#endif
#endif
