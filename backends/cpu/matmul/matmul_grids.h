/* Points of the grids of the IQ types with signs, by gathers: for instruction sets that cannot look
 * up so many words in registers (matmul_codes.h). A template: included once per instruction set. */
#ifndef SL_BACKENDS_CPU_MATMUL_GRIDS_H
#define SL_BACKENDS_CPU_MATMUL_GRIDS_H

#include "backends/cpu/matmul/formats.h"
#include "backends/cpu/matmul/matmul_traits.h"

#ifdef __AVX2__

/* Eight times 7 sign bits, one per byte, to 8 with the eighth making the count even. */
SL_INLINE uint64_t sign_bytes(uint64_t z) {
    uint64_t y = z ^ z >> 4; /* bit 0 of each byte sees its own byte only */
    y ^= y >> 2;
    y ^= y >> 1;
    return z | (y & 0x0101010101010101) << 7;
}
/* Two words with four times 7 bits each. */
SL_INLINE uint64_t sign_words(uint32_t a, uint32_t b) {
    return sign_bytes(
        _pdep_u64((a & 0x0fffffffu) | (uint64_t)(b & 0x0fffffffu) << 28, 0x7f7f7f7f7f7f7f7f));
}
/* Elements 64k..64k+63 of an IQ type with signs: these, a bit each. */
SL_INLINE uint64_t grid_signs(enum sl_dtype t, const uint8_t *b, int k) {
    const uint8_t *p = b + super_traits(t).signs_at;
    switch (t) {
    case SL_DTYPE_IQ2_XXS:
        return sign_words(ld32(p + 16 * k), ld32(p + 8 + 16 * k));
    case SL_DTYPE_IQ2_XS: {
        __m128i w = _mm_loadu_si128((const __m128i *)(p + 16 * k));
        __m128i s = _mm_packus_epi16(_mm_srli_epi16(w, 9), _mm_setzero_si128());
        return sign_bytes((uint64_t)_mm_cvtsi128_si64(s));
    }
    case SL_DTYPE_IQ3_XXS:
        return sign_words(ld32(p + 8 * k), ld32(p + 4 + 8 * k));
    default: /* IQ2_S, IQ3_S */
        return ld64(p + 8 * k);
    }
}

/* Their bytes. */
SL_INLINE v grid_part(enum sl_dtype t, const uint8_t *b, int k) {
    const struct super_traits tr = super_traits(t);
    const uint8_t *qs = b + tr.qs_at, *high = b + tr.high_at;
    switch (t) {
    case SL_DTYPE_IQ2_XXS: /* four of eight bytes are indices */
        return v_gather64(sl_iq2xxs_grid, index8(join32(ld32(qs + 16 * k), ld32(qs + 16 * k + 8))));
    case SL_DTYPE_IQ2_XS: {
        __m128i w = _mm_loadu_si128((const __m128i *)(qs + 16 * k));
        return v_gather64(sl_iq2xs_grid,
                          _mm256_cvtepu16_epi32(_mm_and_si128(w, _mm_set1_epi16(511))));
    }
    case SL_DTYPE_IQ2_S:
        return v_gather64(
            sl_iq2s_grid,
            index8_high(ld64(qs + 8 * k), _pdep_u64(ld16(high + 2 * k), 0x0303030303030303)));
    case SL_DTYPE_IQ3_XXS:
        return v_gather32(sl_iq3xxs_grid, v_widen_index(qs + 16 * k));
    default: /* IQ3_S */
        return v_gather32(sl_iq3s_grid, v_or_bits32(v_widen_index(qs + 16 * k), ld16(high + 2 * k),
                                                    v_set32(256)));
    }
}

/* u[4] of a block, without signs; neg[4]: those, a bit each. */
SL_INLINE void grid_bytes(enum sl_dtype t, const uint8_t *b, v *u, uint64_t *neg) {
    for (int k = 0; k < 4; k++) {
        u[k] = grid_part(t, b, k);
        neg[k] = grid_signs(t, b, k);
    }
}

/* The eight sub-scales atop the words of signs, 2s + 1 as int16, in the low lanes. */
SL_INLINE v grid_scales(enum sl_dtype t, const uint8_t *b) {
    const int step = t == SL_DTYPE_IQ2_XXS ? 8 : 4;
    const uint8_t *p = b + super_traits(t).scales_at;
    uint64_t s = 0;
    for (int i = 0; i < 8; i++)
        s |= (uint64_t)(p[step * i + 3] >> 4) << (8 * i);
    return v_widen_u64(odd_bytes(s));
}

#endif
#endif
