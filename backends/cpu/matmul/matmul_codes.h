/* The bytes of the IQ types with grids, a whole block at a time: 32 codes of 16 bits are looked up
 * at once where a table of words is permuted in registers (AVX-512 VBMI), and widened to bytes by
 * shifts that each byte has for itself. A gather would fetch 8 points of a grid one by one. */
#ifndef SL_BACKENDS_CPU_MATMUL_CODES_H
#define SL_BACKENDS_CPU_MATMUL_CODES_H

#include "backends/cpu/matmul/matmul_traits.h"
#include "backends/iq_codes.h"

#ifdef __AVX512VBMI__

/* table[i] of 32 words i below n, a power of two from 64 to 1024. */
SL_INLINE v codes_at(const uint16_t *table, const int n, v i) {
    v part[16];
    SL_UNROLL
    for (int k = 0; k < n / 64; k++)
        part[k] = _mm512_permutex2var_epi16(v_load(table + 64 * k), i, v_load(table + 64 * k + 32));
    SL_UNROLL
    for (int bit = 6, m = n / 64; m > 1; bit++, m /= 2) {
        const __mmask32 odd = _mm512_test_epi16_mask(i, v_set16(1 << bit));
        SL_UNROLL
        for (int k = 0; k < m / 2; k++)
            part[k] = _mm512_mask_mov_epi16(part[2 * k], odd, part[2 * k + 1]);
    }
    return part[0];
}

/* 16 bytes of a vector, any of the four. */
#define codes_part(a, k) _mm512_extracti32x4_epi32(a, k)

/* Eight codes of eight 2-bit fields to bytes: what the fields stand for is in a lane of values. */
SL_INLINE v codes_by_8(__m128i code, v values) {
    const v shifts = v_set64(0x0e0c0a0806040200);
    v fields = _mm512_multishift_epi64_epi8(shifts, _mm512_cvtepu16_epi64(code));
    return v_lookup(values, v_and(fields, v_set8(3)));
}
/* Sixteen codes of four 3-bit fields. */
SL_INLINE v codes_by_4(__m256i code, v values) {
    const v shifts = v_set64(0x2926232009060300);
    v fields = _mm512_multishift_epi64_epi8(shifts, _mm512_cvtepu16_epi32(code));
    return v_lookup(values, v_and(fields, v_set8(7)));
}

static const uint8_t codes_iq2[16] = {8, 25, 43};
static const uint8_t codes_iq3_xxs[16] = {4, 12, 20, 28, 36, 44, 52, 62};
static const uint8_t codes_iq3_s[16] = {1, 3, 5, 7, 9, 11, 13, 15};

/* The points of 32 indices of two bits a value. */
SL_INLINE void codes_iq2_bytes(const uint16_t *table, int n, v i, v *u) {
    const v values = v_bcast128(codes_iq2), code = codes_at(table, n, i);
    u[0] = codes_by_8(codes_part(code, 0), values);
    u[1] = codes_by_8(codes_part(code, 1), values);
    u[2] = codes_by_8(codes_part(code, 2), values);
    u[3] = codes_by_8(codes_part(code, 3), values);
}
/* Those of 64 indices of three bits. */
SL_INLINE void codes_iq3_bytes(const uint16_t *table, int n, v i, v j, const uint8_t *of, v *u) {
    const v values = v_bcast128(of), a = codes_at(table, n, i), b = codes_at(table, n, j);
    u[0] = codes_by_4(v_low(a), values);
    u[1] = codes_by_4(_mm512_extracti64x4_epi64(a, 1), values);
    u[2] = codes_by_4(v_low(b), values);
    u[3] = codes_by_4(_mm512_extracti64x4_epi64(b, 1), values);
}

/* 32 bytes as indices. */
SL_INLINE v codes_index(const uint8_t *p) {
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* u[4] of a block, without signs: bytes 64k to 64k + 63. */
SL_INLINE void codes_bytes(enum sl_dtype t, const uint8_t *b, v *u) {
    const struct super_traits tr = super_traits(t);
    const uint8_t *qs = b + tr.qs_at, *high = b + tr.high_at;
    switch (t) {
    case SL_DTYPE_IQ2_XXS: { /* four of eight bytes are indices */
        __m256i i = _mm512_cvtepi64_epi32(v_load(qs));
        codes_iq2_bytes(sl_code_iq2xxs, 256, _mm512_cvtepu8_epi16(i), u);
        return;
    }
    case SL_DTYPE_IQ2_XS:
        codes_iq2_bytes(sl_code_iq2xs, 512, v_and(v_load(qs), v_set16(511)), u);
        return;
    case SL_DTYPE_IQ2_S: { /* two more bits of each */
        v fields = _mm512_multishift_epi64_epi8(
            v_set64(0x0e0c0a0806040200),
            _mm512_cvtepu16_epi64(_mm_cvtsi64_si128((long long)ld64(high))));
        v bits = v_sll16(_mm512_cvtepu8_epi16(v_low(v_and(fields, v_set8(3)))), 8);
        codes_iq2_bytes(sl_code_iq2s, 1024, v_or(codes_index(qs), bits), u);
        return;
    }
    case SL_DTYPE_IQ3_XXS:
        codes_iq3_bytes(sl_code_iq3xxs, 256, codes_index(qs), codes_index(qs + 32), codes_iq3_xxs,
                        u);
        return;
    default: { /* IQ3_S: a ninth bit of each */
        const v bit = v_set16(256);
        v i = v_or(codes_index(qs), _mm512_maskz_mov_epi16(ld32(high), bit));
        v j = v_or(codes_index(qs + 32), _mm512_maskz_mov_epi16(ld32(high + 4), bit));
        codes_iq3_bytes(sl_code_iq3s, 512, i, j, codes_iq3_s, u);
    }
    }
}

/* Signs of 32 groups of 7 bits, whose eighth makes the number of ones even. */
SL_INLINE __m256i codes_even(__m256i z) {
    __m256i y = _mm256_xor_si256(z, _mm256_srli_epi64(z, 4)); /* bit 0 sees its own byte only */
    y = _mm256_xor_si256(y, _mm256_srli_epi64(y, 2));
    y = _mm256_and_si256(_mm256_xor_si256(y, _mm256_srli_epi64(y, 1)), _mm256_set1_epi8(1));
    return _mm256_or_si256(z, _mm256_slli_epi64(y, 7));
}

/* Four times 7 bits of signs and a scale above them: words of IQ2_XXS, among its indices, and of
 * IQ3_XXS, each in 64 bits. */
SL_INLINE v codes_words(enum sl_dtype t, const uint8_t *b) {
    const struct super_traits tr = super_traits(t);
    if (t == SL_DTYPE_IQ2_XXS)
        return _mm512_srli_epi64(v_load(b + tr.qs_at), 32);
    return _mm512_cvtepu32_epi64(
        _mm256_loadu_si256((const __m256i *)(const void *)(b + tr.signs_at)));
}

/* neg[4] of a block: a bit each of bytes 64k to 64k + 63. */
SL_INLINE void codes_signs(enum sl_dtype t, const uint8_t *b, uint64_t *neg) {
    const uint8_t *p = b + super_traits(t).signs_at;
    __m256i z;
    switch (t) {
    case SL_DTYPE_IQ2_XXS:
    case SL_DTYPE_IQ3_XXS:
        z = _mm512_cvtepi64_epi32(
            _mm512_multishift_epi64_epi8(v_set64(0x150e0700), codes_words(t, b)));
        z = codes_even(_mm256_and_si256(z, _mm256_set1_epi8(127)));
        break;
    case SL_DTYPE_IQ2_XS:
        z = codes_even(_mm512_cvtepi16_epi8(v_srl16(v_load(p), 9)));
        break;
    default:
        z = _mm256_loadu_si256((const __m256i *)(const void *)p);
    }
    _mm256_storeu_si256((__m256i *)(void *)neg, z);
}

/* u[4] of a block, without signs; neg[4]: those, a bit each. */
SL_INLINE void grid_bytes(enum sl_dtype t, const uint8_t *b, v *u, uint64_t *neg) {
    codes_bytes(t, b, u);
    codes_signs(t, b, neg);
}

/* The eight sub-scales atop the words of signs, 2s + 1 as int16, in the low lanes. */
SL_INLINE v grid_scales(enum sl_dtype t, const uint8_t *b) {
    const struct super_traits tr = super_traits(t);
    __m128i s =
        t == SL_DTYPE_IQ2_XXS
            ? _mm512_cvtepi64_epi16(_mm512_srli_epi64(v_load(b + tr.qs_at), 60))
            : _mm256_cvtepi32_epi16(_mm256_srli_epi32(
                  _mm256_loadu_si256((const __m256i *)(const void *)(b + tr.scales_at)), 28));
    return _mm512_castsi128_si512(_mm_add_epi16(_mm_add_epi16(s, s), _mm_set1_epi16(1)));
}

#endif
#endif
