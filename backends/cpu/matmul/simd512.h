/* 64 bytes as one vector: a ZMM register, or a pair of YMM registers where there is no AVX-512. The
 * product kernels (matmul_simd.h) are written once on top of this and compiled for AVX2, AVX-512
 * and AVX-512 VNNI.
 *
 * Names: v_ for integers, vf_ for 16 floats; _h ops treat the two 32-byte halves differently. */
#ifndef SL_BACKENDS_CPU_SIMD512_H
#define SL_BACKENDS_CPU_SIMD512_H

#include <stdint.h>
#include <string.h>

#ifdef __AVX2__
#include <immintrin.h>

/* Before a loop whose body is already long: unrolling it costs compile time and instruction cache.
 * Only where the compiler would: elsewhere it warns that it ignores it. */
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SL_NO_UNROLL
#elif defined(__clang__)
#define SL_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define SL_NO_UNROLL _Pragma("GCC unroll 1")
#endif

/* Before a loop over registers: they are ones only once it is unrolled. */
#if !defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SL_UNROLL
#elif defined(__clang__)
#define SL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define SL_UNROLL _Pragma("GCC unroll 16")
#endif

#define SL_INLINE static inline __attribute__((always_inline))

/* 2^(e - 128) of 0 <= e < 256. */
SL_INLINE __m256 y_from_e8m0(__m256i e) {
    __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(
        _mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
}

#ifdef __AVX512BW__

typedef __m512i v;
typedef __m512 vf;

SL_INLINE v v_load(const void *p) {
    return _mm512_loadu_si512(p);
}
SL_INLINE void v_store(void *p, v a) {
    _mm512_storeu_si512(p, a);
}
SL_INLINE v v_zero(void) {
    return _mm512_setzero_si512();
}
SL_INLINE v v_set8(int a) {
    return _mm512_set1_epi8((char)a);
}
SL_INLINE v v_set16(int a) {
    return _mm512_set1_epi16((short)a);
}
SL_INLINE v v_set32(int32_t a) {
    return _mm512_set1_epi32(a);
}
SL_INLINE v v_set64(uint64_t a) {
    return _mm512_set1_epi64((long long)a);
}
SL_INLINE v v_and(v a, v b) {
    return _mm512_and_si512(a, b);
}
SL_INLINE v v_or(v a, v b) {
    return _mm512_or_si512(a, b);
}
SL_INLINE v v_xor(v a, v b) {
    return _mm512_xor_si512(a, b);
}
/* (a & m) | b */
SL_INLINE v v_andor(v a, v m, v b) {
    return _mm512_ternarylogic_epi32(a, m, b, 0xea);
}
SL_INLINE v v_add32(v a, v b) {
    return _mm512_add_epi32(a, b);
}
SL_INLINE v v_sub32(v a, v b) {
    return _mm512_sub_epi32(a, b);
}
SL_INLINE v v_add8(v a, v b) {
    return _mm512_add_epi8(a, b);
}
SL_INLINE v v_mul32(v a, v b) {
    return _mm512_mullo_epi32(a, b);
}
SL_INLINE v v_mul16(v a, v b) {
    return _mm512_mullo_epi16(a, b);
}
#define v_srl16(a, n) _mm512_srli_epi16(a, n)
#define v_sll16(a, n) _mm512_slli_epi16(a, n)
#define v_sll32(a, n) _mm512_slli_epi32(a, n)
#define v_sra32(a, n) _mm512_srai_epi32(a, n)
/* Each half rotated right by its own count within 64-bit words. */
#define v_ror64_h(a, lo, hi) _mm512_rorv_epi64(a, _mm512_set_epi64(hi, hi, hi, hi, lo, lo, lo, lo))
SL_INLINE v v_maddubs(v u, v s) {
    return _mm512_maddubs_epi16(u, s);
}
SL_INLINE v v_lookup(v table, v i) {
    return _mm512_shuffle_epi8(table, i);
}
SL_INLINE v v_bcast128(const void *p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)p));
}
SL_INLINE v v_bcast256(const void *p) {
    return _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
}
/* Two 32-byte and four 16-byte loads. */
SL_INLINE v v_load2(const void *a, const void *b) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)a)),
                              _mm256_loadu_si256((const __m256i *)b), 1);
}
SL_INLINE v v_load4(const void *a, const void *b, const void *c, const void *d) {
    v r = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)a));
    r = _mm512_mask_broadcast_i32x4(r, 0x00f0, _mm_loadu_si128((const __m128i *)b));
    r = _mm512_mask_broadcast_i32x4(r, 0x0f00, _mm_loadu_si128((const __m128i *)c));
    return _mm512_mask_broadcast_i32x4(r, 0xf000, _mm_loadu_si128((const __m128i *)d));
}
/* 16-byte lanes 0 2 (1 3) of a, then of b. */
SL_INLINE v v_even128(v a, v b) {
    return _mm512_shuffle_i32x4(a, b, 0x88);
}
SL_INLINE v v_odd128(v a, v b) {
    return _mm512_shuffle_i32x4(a, b, 0xdd);
}
SL_INLINE v v_unpacklo32(v a, v b) {
    return _mm512_unpacklo_epi32(a, b);
}
SL_INLINE v v_unpackhi32(v a, v b) {
    return _mm512_unpackhi_epi32(a, b);
}
SL_INLINE v v_unpacklo64(v a, v b) {
    return _mm512_unpacklo_epi64(a, b);
}
SL_INLINE v v_unpackhi64(v a, v b) {
    return _mm512_unpackhi_epi64(a, b);
}
/* The bytes of x negated where the bit is set; |x| <= 127. */
SL_INLINE v v_negate_bits(v x, uint64_t bits) {
    return _mm512_mask_sub_epi8(x, (__mmask64)bits, _mm512_setzero_si512(), x);
}
/* a | c in the bytes whose bit is set. */
SL_INLINE v v_or_bits(v a, uint64_t bits, v c) {
    return _mm512_or_si512(a, _mm512_maskz_mov_epi8((__mmask64)bits, c));
}
/* 16-byte lanes 0 and 2 of a, 1 and 3 of b. */
SL_INLINE v v_select_lanes(v a, v b) {
    return _mm512_mask_mov_epi64(a, 0xcc, b);
}
/* All ones where a >= b, without signs. */
SL_INLINE v v_at_least8(v a, v b) {
    return _mm512_movm_epi8(_mm512_cmpge_epu8_mask(a, b));
}
/* table[i] of 64 bytes, i < 2^bits; tables of fewer are repeated. */
SL_INLINE v v_lookup_64(const int8_t *table, const int bits, v i) {
    if (bits <= 4)
        return v_lookup(v_bcast128(table), i);
#ifdef __AVX512VBMI__
    return _mm512_permutexvar_epi8(i, v_load(table));
#else
    const __mmask64 bit4 = _mm512_test_epi8_mask(i, v_set8(16));
    v low = v_lookup(v_bcast128(table), i);
    low = _mm512_mask_shuffle_epi8(low, bit4, v_bcast128(table + 16), i);
    if (bits == 5)
        return low;
    v high = v_lookup(v_bcast128(table + 32), i);
    high = _mm512_mask_shuffle_epi8(high, bit4, v_bcast128(table + 48), i);
    return _mm512_mask_mov_epi8(low, _mm512_test_epi8_mask(i, v_set8(32)), high);
#endif
}
/* 16 int16 at p to all 32: [p, p]; 16 bytes at p sign- or zero-extended to that. */
SL_INLINE v v_widen_s8(const void *p) {
    return _mm512_cvtepi8_epi16(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p)));
}
/* Of 16 int16 scales in both halves, those of sub-blocks 4k..4k+3, each over 8 lanes. */
SL_INLINE v v_scales16(v s, int k) {
    const __m512i first =
        _mm512_set_epi64(0x0003000300030003, 0x0003000300030003, 0x0002000200020002,
                         0x0002000200020002, 0x0001000100010001, 0x0001000100010001, 0, 0);
    return _mm512_permutexvar_epi16(_mm512_add_epi16(first, _mm512_set1_epi16((short)(4 * k))), s);
}
/* The same as 32-bit numbers, over 4 lanes each. */
SL_INLINE v v_scales16_wide(v s, int k) {
    const __m512i first = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_epi32(_mm512_add_epi32(first, _mm512_set1_epi32(4 * k)),
                                    _mm512_cvtepi16_epi32(_mm512_castsi512_si256(s)));
}
/* Scales a and b, each over a half. */
SL_INLINE v v_scales32(v s, int a, int b) {
    return _mm512_permutexvar_epi16(
        _mm512_inserti64x4(_mm512_set1_epi16((short)a), _mm256_set1_epi16((short)b), 1), s);
}
/* The sum of neighbouring 32-bit lanes: of a to lanes 0..7, of b to 8..15. */
SL_INLINE v v_pairadd(v a, v b) {
    const __m512i even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i one = _mm512_set1_epi32(1);
    return _mm512_add_epi32(_mm512_permutex2var_epi32(a, even, b),
                            _mm512_permutex2var_epi32(a, _mm512_or_si512(even, one), b));
}

/* u8 to int16, 8 values in the low lanes. */
SL_INLINE v v_widen_u64(uint64_t a) {
    return _mm512_castsi128_si512(_mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)a)));
}
/* 16 bytes, sign-extended, in both halves. */
SL_INLINE v v_widen_x(__m128i a) {
    __m256i w = _mm256_cvtepi8_epi16(a);
    return _mm512_inserti64x4(_mm512_castsi256_si512(w), w, 1);
}
/* Of 8 int32, numbers base..base+3, each over a 16-byte lane. */
SL_INLINE v v_scales_lanes(__m256i s, int base) {
    const __m512i i = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    return _mm512_permutexvar_epi32(_mm512_add_epi32(i, _mm512_set1_epi32(base)),
                                    _mm512_castsi256_si512(s));
}
SL_INLINE v v_gather64(const uint64_t *table, __m256i i) {
    return _mm512_i32gather_epi64(i, table, 8);
}
/* 16 bytes as indices. */
SL_INLINE v v_widen_index(const void *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
SL_INLINE v v_gather32(const uint32_t *table, v i) {
    return _mm512_i32gather_epi32(i, table, 4);
}
/* a | c in the 32-bit lanes whose bit is set. */
SL_INLINE v v_or_bits32(v a, uint32_t bits, v c) {
    return _mm512_mask_or_epi32(a, (__mmask16)bits, a, c);
}
SL_INLINE v v_bcast32(const void *p) {
    int32_t a;
    memcpy(&a, p, 4);
    return _mm512_set1_epi32(a);
}
SL_INLINE void v_store2(void *lo, void *hi, v a) {
    _mm256_storeu_si256((__m256i *)lo, _mm512_castsi512_si256(a));
    _mm256_storeu_si256((__m256i *)hi, _mm512_extracti64x4_epi64(a, 1));
}
SL_INLINE void v_store4(void *p0, void *p1, void *p2, void *p3, v a) {
    _mm_storeu_si128((__m128i *)p0, _mm512_castsi512_si128(a));
    _mm_storeu_si128((__m128i *)p1, _mm512_extracti32x4_epi32(a, 1));
    _mm_storeu_si128((__m128i *)p2, _mm512_extracti32x4_epi32(a, 2));
    _mm_storeu_si128((__m128i *)p3, _mm512_extracti32x4_epi32(a, 3));
}
SL_INLINE __m256i v_low(v a) {
    return _mm512_castsi512_si256(a);
}
SL_INLINE v v_join(__m256i lo, __m256i hi) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(lo), hi, 1);
}
/* 16 int16 at p to int32. */
SL_INLINE v v_load_s16(const void *p) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

#if defined(__AVX512VNNI__)
#define SL_SIMD_VNNI 1
SL_INLINE v v_dpwssd(v acc, v a, v b) {
    return _mm512_dpwssd_epi32(acc, a, b);
}
SL_INLINE v v_dpbusd(v acc, v u, v s) {
    return _mm512_dpbusd_epi32(acc, u, s);
}
SL_INLINE v v_dpbusd_wide(v acc, v u, v s) {
    return _mm512_dpbusd_epi32(acc, u, s);
}
#else
#define SL_SIMD_VNNI 0
SL_INLINE v v_dpwssd(v acc, v a, v b) {
    return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b));
}
#endif

SL_INLINE vf vf_zero(void) {
    return _mm512_setzero_ps();
}
SL_INLINE vf vf_set(float a) {
    return _mm512_set1_ps(a);
}
SL_INLINE vf vf_load(const float *p) {
    return _mm512_loadu_ps(p);
}
SL_INLINE void vf_store(float *p, vf a) {
    _mm512_storeu_ps(p, a);
}
SL_INLINE void vf_store_n(float *p, uint32_t n, vf a) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), a);
}
SL_INLINE vf vf_from_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
SL_INLINE vf vf_from_bf16(const void *p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
/* Of 16-bit exponents. */
SL_INLINE vf vf_from_e8m0(const void *p) {
    __m512i e = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), tiny));
}
SL_INLINE vf vf_from_int(v a) {
    return _mm512_cvtepi32_ps(a);
}
SL_INLINE vf vf_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
SL_INLINE vf vf_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
SL_INLINE vf vf_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
SL_INLINE vf vf_fnma(vf a, vf b, vf c) {
    return _mm512_fnmadd_ps(a, b, c);
}

/* The canonical tree over the 16 partials of four rows: to lanes 0..3. */
SL_INLINE __m128 vf_reduce4(vf a, vf b, vf c, vf d) {
    vf ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    vf cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    vf q = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    q = _mm512_add_ps(q, _mm512_permute_ps(q, 0x4e)); /* 2 apart */
    q = _mm512_add_ps(q, _mm512_permute_ps(q, 0xb1)); /* 1 apart */
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(
        _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0), q));
}

#else /* AVX2 */

typedef struct {
    __m256i l, h;
} v;
typedef struct {
    __m256 l, h;
} vf;

SL_INLINE __m256i y_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}
SL_INLINE __m256i y_bcast128(const void *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}
SL_INLINE v v_load(const void *p) {
    return (v){y_load(p), y_load((const char *)p + 32)};
}
SL_INLINE void v_store(void *p, v a) {
    _mm256_storeu_si256((__m256i *)p, a.l);
    _mm256_storeu_si256((__m256i *)((char *)p + 32), a.h);
}
SL_INLINE v v_zero(void) {
    return (v){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
SL_INLINE v v_set8(int a) {
    return (v){_mm256_set1_epi8((char)a), _mm256_set1_epi8((char)a)};
}
SL_INLINE v v_set16(int a) {
    return (v){_mm256_set1_epi16((short)a), _mm256_set1_epi16((short)a)};
}
SL_INLINE v v_set32(int32_t a) {
    return (v){_mm256_set1_epi32(a), _mm256_set1_epi32(a)};
}
SL_INLINE v v_set64(uint64_t a) {
    return (v){_mm256_set1_epi64x((long long)a), _mm256_set1_epi64x((long long)a)};
}
#define SL_V_BINARY(name, op)                                                                      \
    SL_INLINE v name(v a, v b) {                                                                   \
        return (v){op(a.l, b.l), op(a.h, b.h)};                                                    \
    }
SL_V_BINARY(v_and, _mm256_and_si256)
SL_V_BINARY(v_or, _mm256_or_si256)
SL_V_BINARY(v_xor, _mm256_xor_si256)
SL_V_BINARY(v_add32, _mm256_add_epi32)
SL_V_BINARY(v_sub32, _mm256_sub_epi32)
SL_V_BINARY(v_add8, _mm256_add_epi8)
SL_V_BINARY(v_mul32, _mm256_mullo_epi32)
SL_V_BINARY(v_mul16, _mm256_mullo_epi16)
SL_V_BINARY(v_maddubs, _mm256_maddubs_epi16)
SL_V_BINARY(v_lookup, _mm256_shuffle_epi8)
SL_V_BINARY(v_unpacklo32, _mm256_unpacklo_epi32)
SL_V_BINARY(v_unpackhi32, _mm256_unpackhi_epi32)
SL_V_BINARY(v_unpacklo64, _mm256_unpacklo_epi64)
SL_V_BINARY(v_unpackhi64, _mm256_unpackhi_epi64)
SL_INLINE v v_andor(v a, v m, v b) {
    return v_or(v_and(a, m), b);
}
#define v_srl16(a, n) ((v){_mm256_srli_epi16((a).l, n), _mm256_srli_epi16((a).h, n)})
#define v_sll16(a, n) ((v){_mm256_slli_epi16((a).l, n), _mm256_slli_epi16((a).h, n)})
#define v_sll32(a, n) ((v){_mm256_slli_epi32((a).l, n), _mm256_slli_epi32((a).h, n)})
#define v_sra32(a, n) ((v){_mm256_srai_epi32((a).l, n), _mm256_srai_epi32((a).h, n)})
#define y_ror64(a, n)                                                                              \
    ((n) ? _mm256_or_si256(_mm256_srli_epi64(a, n), _mm256_slli_epi64(a, (64 - (n)) & 63)) : (a))
#define v_ror64_h(a, lo, hi) ((v){y_ror64((a).l, lo), y_ror64((a).h, hi)})
SL_INLINE v v_bcast128(const void *p) {
    return (v){y_bcast128(p), y_bcast128(p)};
}
SL_INLINE v v_bcast256(const void *p) {
    return (v){y_load(p), y_load(p)};
}
SL_INLINE v v_load2(const void *a, const void *b) {
    return (v){y_load(a), y_load(b)};
}
SL_INLINE __m256i y_load2(const void *a, const void *b) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)a)),
                                   _mm_loadu_si128((const __m128i *)b), 1);
}
SL_INLINE v v_load4(const void *a, const void *b, const void *c, const void *d) {
    return (v){y_load2(a, b), y_load2(c, d)};
}
SL_INLINE v v_even128(v a, v b) {
    return (v){_mm256_permute2x128_si256(a.l, a.h, 0x20),
               _mm256_permute2x128_si256(b.l, b.h, 0x20)};
}
SL_INLINE v v_odd128(v a, v b) {
    return (v){_mm256_permute2x128_si256(a.l, a.h, 0x31),
               _mm256_permute2x128_si256(b.l, b.h, 0x31)};
}
/* 32 bits to 32 bytes, all ones where set. */
SL_INLINE __m256i y_mask_bits(uint32_t bits) {
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                            2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i b = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread);
    return _mm256_cmpeq_epi8(_mm256_and_si256(b, bit), bit);
}
SL_INLINE v v_mask_bits(uint64_t bits) {
    return (v){y_mask_bits((uint32_t)bits), y_mask_bits((uint32_t)(bits >> 32))};
}
SL_INLINE v v_negate_bits(v x, uint64_t bits) {
    v m = v_mask_bits(bits);
    x = v_xor(x, m);
    return (v){_mm256_sub_epi8(x.l, m.l), _mm256_sub_epi8(x.h, m.h)};
}
SL_INLINE v v_or_bits(v a, uint64_t bits, v c) {
    return v_or(a, v_and(v_mask_bits(bits), c));
}
SL_INLINE v v_select_lanes(v a, v b) {
    return (v){_mm256_blend_epi32(a.l, b.l, 0xf0), _mm256_blend_epi32(a.h, b.h, 0xf0)};
}
SL_INLINE v v_at_least8(v a, v b) {
    return (v){_mm256_cmpeq_epi8(_mm256_max_epu8(a.l, b.l), a.l),
               _mm256_cmpeq_epi8(_mm256_max_epu8(a.h, b.h), a.h)};
}
/* b where bit `at` of i's byte is set. */
SL_INLINE v v_select_bit(v a, v b, v i, const int at) {
    v top = v_sll16(i, 7 - at);
    return (v){_mm256_blendv_epi8(a.l, b.l, top.l), _mm256_blendv_epi8(a.h, b.h, top.h)};
}
SL_INLINE v v_lookup_64(const int8_t *table, const int bits, v i) {
    v a = v_lookup(v_bcast128(table), i);
    if (bits <= 4)
        return a;
    a = v_select_bit(a, v_lookup(v_bcast128(table + 16), i), i, 4);
    if (bits == 5)
        return a;
    v b = v_lookup(v_bcast128(table + 32), i);
    b = v_select_bit(b, v_lookup(v_bcast128(table + 48), i), i, 4);
    return v_select_bit(a, b, i, 5);
}
SL_INLINE v v_widen_s8(const void *p) {
    __m256i s = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p));
    return (v){s, s};
}
SL_INLINE __m256i y_scales(__m256i s, int a, int b) {
    __m256i half =
        a < 8 ? _mm256_permute2x128_si256(s, s, 0x00) : _mm256_permute2x128_si256(s, s, 0x11);
    a &= 7;
    b &= 7;
    return _mm256_shuffle_epi8(
        half, _mm256_inserti128_si256(
                  _mm256_castsi128_si256(_mm_set1_epi16((short)(2 * a | (2 * a + 1) << 8))),
                  _mm_set1_epi16((short)(2 * b | (2 * b + 1) << 8)), 1));
}
SL_INLINE v v_scales16(v s, int k) {
    return (v){y_scales(s.l, 4 * k, 4 * k + 1), y_scales(s.l, 4 * k + 2, 4 * k + 3)};
}
SL_INLINE v v_scales32(v s, int a, int b) {
    return (v){y_scales(s.l, a, a), y_scales(s.l, b, b)};
}
SL_INLINE v v_pairadd(v a, v b) {
    __m256i x = _mm256_hadd_epi32(a.l, a.h), y = _mm256_hadd_epi32(b.l, b.h);
    return (v){_mm256_permute4x64_epi64(x, 0xd8), _mm256_permute4x64_epi64(y, 0xd8)};
}
SL_INLINE v v_widen_u64(uint64_t a) {
    __m256i w = _mm256_castsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)a)));
    return (v){w, w};
}
SL_INLINE v v_widen_x(__m128i a) {
    return (v){_mm256_cvtepi8_epi16(a), _mm256_cvtepi8_epi16(a)};
}
SL_INLINE v v_scales_lanes(__m256i s, int base) {
    const __m256i i = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    return (v){_mm256_permutevar8x32_epi32(s, _mm256_add_epi32(i, _mm256_set1_epi32(base))),
               _mm256_permutevar8x32_epi32(s, _mm256_add_epi32(i, _mm256_set1_epi32(base + 2)))};
}
SL_INLINE v v_gather64(const uint64_t *table, __m256i i) {
    uint32_t n[8];
    _mm256_storeu_si256((__m256i *)n, i);
    return (v){_mm256_set_epi64x((long long)table[n[3]], (long long)table[n[2]],
                                 (long long)table[n[1]], (long long)table[n[0]]),
               _mm256_set_epi64x((long long)table[n[7]], (long long)table[n[6]],
                                 (long long)table[n[5]], (long long)table[n[4]])};
}
SL_INLINE v v_widen_index(const void *p) {
    __m128i a = _mm_loadu_si128((const __m128i *)p);
    return (v){_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_srli_si128(a, 8))};
}
SL_INLINE v v_gather32(const uint32_t *table, v i) {
    return (v){_mm256_i32gather_epi32((const int *)table, i.l, 4),
               _mm256_i32gather_epi32((const int *)table, i.h, 4)};
}
SL_INLINE v v_or_bits32(v a, uint32_t bits, v c) {
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    v b = {_mm256_and_si256(_mm256_set1_epi32((int)bits), bit),
           _mm256_and_si256(_mm256_set1_epi32((int)(bits >> 8)), bit)};
    v m = {_mm256_cmpeq_epi32(b.l, bit), _mm256_cmpeq_epi32(b.h, bit)};
    return v_or(a, v_and(m, c));
}
SL_INLINE v v_bcast32(const void *p) {
    int32_t a;
    memcpy(&a, p, 4);
    return v_set32(a);
}
SL_INLINE void v_store2(void *lo, void *hi, v a) {
    _mm256_storeu_si256((__m256i *)lo, a.l);
    _mm256_storeu_si256((__m256i *)hi, a.h);
}
SL_INLINE void v_store4(void *p0, void *p1, void *p2, void *p3, v a) {
    _mm_storeu_si128((__m128i *)p0, _mm256_castsi256_si128(a.l));
    _mm_storeu_si128((__m128i *)p1, _mm256_extracti128_si256(a.l, 1));
    _mm_storeu_si128((__m128i *)p2, _mm256_castsi256_si128(a.h));
    _mm_storeu_si128((__m128i *)p3, _mm256_extracti128_si256(a.h, 1));
}
SL_INLINE __m256i v_low(v a) {
    return a.l;
}
SL_INLINE v v_join(__m256i lo, __m256i hi) {
    return (v){lo, hi};
}
SL_INLINE v v_load_s16(const void *p) {
    return (v){_mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p)),
               _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)p + 1))};
}
#define SL_SIMD_VNNI         0
SL_INLINE v v_madd16(v a, v b) {
    return (v){_mm256_madd_epi16(a.l, b.l), _mm256_madd_epi16(a.h, b.h)};
}
SL_INLINE v v_dpwssd(v acc, v a, v b) {
    return v_add32(acc, v_madd16(a, b));
}

SL_INLINE vf vf_zero(void) {
    return (vf){_mm256_setzero_ps(), _mm256_setzero_ps()};
}
SL_INLINE vf vf_set(float a) {
    return (vf){_mm256_set1_ps(a), _mm256_set1_ps(a)};
}
SL_INLINE vf vf_load(const float *p) {
    return (vf){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
SL_INLINE void vf_store(float *p, vf a) {
    _mm256_storeu_ps(p, a.l);
    _mm256_storeu_ps(p + 8, a.h);
}
SL_INLINE void vf_store_n(float *p, uint32_t n, vf a) {
    float t[16];
    vf_store(t, a);
    memcpy(p, t, n * sizeof *t);
}
SL_INLINE vf vf_from_f16(const void *p) {
    return (vf){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p + 1))};
}
SL_INLINE __m256 y_from_bf16(const void *p) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
SL_INLINE vf vf_from_bf16(const void *p) {
    return (vf){y_from_bf16(p), y_from_bf16((const char *)p + 16)};
}
SL_INLINE vf vf_from_e8m0(const void *p) {
    return (vf){y_from_e8m0(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p))),
                y_from_e8m0(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p + 1)))};
}
SL_INLINE vf vf_from_int(v a) {
    return (vf){_mm256_cvtepi32_ps(a.l), _mm256_cvtepi32_ps(a.h)};
}
SL_INLINE vf vf_mul(vf a, vf b) {
    return (vf){_mm256_mul_ps(a.l, b.l), _mm256_mul_ps(a.h, b.h)};
}
SL_INLINE vf vf_add(vf a, vf b) {
    return (vf){_mm256_add_ps(a.l, b.l), _mm256_add_ps(a.h, b.h)};
}
SL_INLINE vf vf_fma(vf a, vf b, vf c) {
    return (vf){_mm256_fmadd_ps(a.l, b.l, c.l), _mm256_fmadd_ps(a.h, b.h, c.h)};
}
SL_INLINE vf vf_fnma(vf a, vf b, vf c) {
    return (vf){_mm256_fnmadd_ps(a.l, b.l, c.l), _mm256_fnmadd_ps(a.h, b.h, c.h)};
}
SL_INLINE __m128 vf_reduce4(vf a, vf b, vf c, vf d) {
    __m256 x = _mm256_add_ps(a.l, a.h), y = _mm256_add_ps(b.l, b.h); /* 8 apart */
    __m256 z = _mm256_add_ps(c.l, c.h), w = _mm256_add_ps(d.l, d.h);
    __m256 p =
        _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));
    __m256 q =
        _mm256_add_ps(_mm256_permute2f128_ps(z, w, 0x20), _mm256_permute2f128_ps(z, w, 0x31));
    p = _mm256_add_ps(p, _mm256_permute_ps(p, 0x4e));
    q = _mm256_add_ps(q, _mm256_permute_ps(q, 0x4e));
    p = _mm256_add_ps(p, _mm256_permute_ps(p, 0xb1));
    q = _mm256_add_ps(q, _mm256_permute_ps(q, 0xb1));
    __m128 pl = _mm256_castps256_ps128(p), ph = _mm256_extractf128_ps(p, 1);
    __m128 ql = _mm256_castps256_ps128(q), qh = _mm256_extractf128_ps(q, 1);
    return _mm_movelh_ps(_mm_unpacklo_ps(pl, ph), _mm_unpacklo_ps(ql, qh));
}

#endif

#if !SL_SIMD_VNNI
/* u <= 128, so that the sums of two products stay within int16: 2 * 128 * 127 < 32768. */
SL_INLINE v v_dpbusd(v acc, v u, v s) {
    return v_dpwssd(acc, v_maddubs(u, s), v_set16(1));
}
/* Any u: its low seven bits and its top bit apart. */
SL_INLINE v v_dpbusd_wide(v acc, v u, v s) {
    v low = v_maddubs(v_and(u, v_set8(0x7f)), s), high = v_maddubs(v_and(u, v_set8(0x80)), s);
    return v_dpwssd(v_dpwssd(acc, low, v_set16(1)), high, v_set16(1));
}
#endif

/* acc and, in each group of 4 lanes, the products of 16 bytes u - 128 with x times that group's
 * scale: of 16 int16 scales in both halves those from 4k on. base: v_dpbusd_wide(0, 128, x),
 * negated. */
#ifdef __AVX512BW__
SL_INLINE v v_add_scaled(v acc, v base, v u, v x, v scales, int k) {
    return v_add32(acc, v_mul32(v_dpbusd_wide(base, u, x), v_scales16_wide(scales, k)));
}
#else
SL_INLINE v v_add_scaled(v acc, v base, v u, v x, v scales, int k) {
    (void)base;
    v q = v_xor(u, v_set8(0x80));
    v size = {_mm256_abs_epi8(q.l), _mm256_abs_epi8(q.h)};
    v with_signs = {_mm256_sign_epi8(x.l, q.l), _mm256_sign_epi8(x.h, q.h)};
    return v_dpwssd(acc, v_maddubs(size, with_signs), v_scales16(scales, k));
}
#endif

/* Four vectors of partial sums to one: 16-byte lane i has the sums of lane i of a, b, c, d. */
SL_INLINE v v_reduce4(v a, v b, v c, v d) {
    v ab = v_add32(v_unpacklo32(a, b), v_unpackhi32(a, b));
    v cd = v_add32(v_unpacklo32(c, d), v_unpackhi32(c, d));
    return v_add32(v_unpacklo64(ab, cd), v_unpackhi64(ab, cd));
}
/* The 4x4 transpose of 16-byte lanes of r[4]. */
SL_INLINE void v_transpose128(v *r) {
    v a = v_even128(r[0], r[1]), b = v_odd128(r[0], r[1]);
    v c = v_even128(r[2], r[3]), d = v_odd128(r[2], r[3]);
    /* a = r0.0 r0.2 r1.0 r1.2, c alike of r2 and r3 */
    r[0] = v_even128(a, c);
    r[2] = v_odd128(a, c);
    r[1] = v_even128(b, d);
    r[3] = v_odd128(b, d);
}
/* The sum of the four 16-byte lanes of r[0], then r[1].. as lanes. */
SL_INLINE v v_sum128(v r0, v r1, v r2, v r3) {
    v a = v_add32(v_even128(r0, r1), v_odd128(r0, r1));
    v b = v_add32(v_even128(r2, r3), v_odd128(r2, r3));
    return v_add32(v_even128(a, b), v_odd128(a, b));
}

#endif
#endif
