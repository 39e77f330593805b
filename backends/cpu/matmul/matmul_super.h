/* The 256-element types in SIMD: what matmul_simd.h needs to know of each. A template: included
 * once per instruction set.
 *
 * A block becomes four vectors of unsigned bytes u = q + offset (IQ2, IQ3: magnitudes and a bit per
 * sign), and int16 sub-scales. dot products stay exact: u <= 128, so pairs fit in int16. */
#ifndef SL_BACKENDS_CPU_MATMUL_SUPER_H
#define SL_BACKENDS_CPU_MATMUL_SUPER_H

#include "backends/cpu/matmul/matmul_codes.h"
#include "backends/cpu/matmul/matmul_kernels.h"
#include "backends/cpu/matmul/matmul_tables.h"
#include "backends/cpu/matmul/simd512.h"

#ifdef __AVX2__

/* In which order a block's four vectors hold its elements. */
enum order {
    ORDER_NATURAL, /* vector k: 64k.. */
    ORDER_HALVES,  /* 32-element subs (0 2) (1 3) (4 6) (5 7): nibbles as Q4_K packs them */
    ORDER_LANES,   /* first and second 16 of subs 0..3, the same of subs 4..7 */
};

struct super_traits {
    uint16_t bytes, d_at, dmin_at; /* of a block; where its f16 scales are */
    uint8_t offset;                /* u = q + offset */
    uint8_t sub;                   /* elements per sub-scale */
    uint8_t order;
    bool has_min, is_signed; /* is_signed: u are magnitudes */
};

SL_INLINE struct super_traits super_traits(enum sl_dtype t) {
    switch (t) {
    case SL_DTYPE_Q2_K:
        return (struct super_traits){84, 80, 82, 0, 16, ORDER_NATURAL, true, false};
    case SL_DTYPE_Q3_K:
        return (struct super_traits){110, 108, 0, 4, 16, ORDER_NATURAL, false, false};
    case SL_DTYPE_Q4_K:
        return (struct super_traits){144, 0, 2, 0, 32, ORDER_HALVES, true, false};
    case SL_DTYPE_Q5_K:
        return (struct super_traits){176, 0, 2, 0, 32, ORDER_HALVES, true, false};
    case SL_DTYPE_Q6_K:
        return (struct super_traits){210, 208, 0, 32, 16, ORDER_NATURAL, false, false};
    case SL_DTYPE_IQ4_XS:
        return (struct super_traits){136, 0, 0, 128, 32, ORDER_LANES, false, false};
    case SL_DTYPE_IQ2_XXS:
        return (struct super_traits){66, 0, 0, 0, 32, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ2_XS:
        return (struct super_traits){74, 0, 0, 0, 16, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ2_S:
        return (struct super_traits){82, 0, 0, 0, 16, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ3_XXS:
        return (struct super_traits){98, 0, 0, 0, 32, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ3_S:
        return (struct super_traits){110, 0, 0, 0, 32, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ1_S:
        return (struct super_traits){50, 0, 0, 9, 16, ORDER_NATURAL, false, false};
    case SL_DTYPE_TQ1_0:
        return (struct super_traits){54, 52, 0, 1, 16, ORDER_NATURAL, false, false};
    case SL_DTYPE_TQ2_0:
        return (struct super_traits){66, 64, 0, 1, 16, ORDER_NATURAL, false, false};
    case SL_DTYPE_IQ2_K:
        return (struct super_traits){76, 0, 0, 0, 16, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ3_K:
        return (struct super_traits){110, 0, 0, 0, 16, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ4_K:
        return (struct super_traits){144, 0, 0, 0, 16, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ5_K:
        return (struct super_traits){176, 0, 0, 0, 16, ORDER_NATURAL, false, true};
    case SL_DTYPE_IQ6_K:
        return (struct super_traits){212, 0, 0, 0, 16, ORDER_NATURAL, false, true};
    default: /* IQ1_M; its d is spread over the scales */
        return (struct super_traits){56, 0, 0, 9, 16, ORDER_NATURAL, false, false};
    }
}

/* What is added to q for a panel, whose bytes have no sign. */
SL_INLINE int super_bias(enum sl_dtype t) {
    const struct super_traits tr = super_traits(t);
    return sl_dtype_is_iqk(t) ? 128 : tr.is_signed ? 64 : tr.offset;
}

/* A power of two that moves from the sub-scales into d (formats.h). */
SL_INLINE float super_d_factor(enum sl_dtype t) {
    switch (t) {
    case SL_DTYPE_IQ2_XXS:
    case SL_DTYPE_IQ2_XS:
    case SL_DTYPE_IQ2_S:
    case SL_DTYPE_IQ1_S:
    case SL_DTYPE_IQ1_M:
        return 0.125f;
    case SL_DTYPE_IQ3_XXS:
        return 0.25f;
    default:
        return 1.0f;
    }
}

SL_INLINE uint16_t ld16(const uint8_t *p) {
    uint16_t a;
    memcpy(&a, p, 2);
    return a;
}
SL_INLINE uint32_t ld32(const uint8_t *p) {
    uint32_t a;
    memcpy(&a, p, 4);
    return a;
}
SL_INLINE uint64_t ld64(const uint8_t *p) {
    uint64_t a;
    memcpy(&a, p, 8);
    return a;
}
SL_INLINE uint64_t join32(uint32_t lo, uint32_t hi) {
    return lo | (uint64_t)hi << 32;
}

/* The f16 scale's bits. */
SL_INLINE uint16_t super_d(enum sl_dtype t, const uint8_t *b) {
    if (t != SL_DTYPE_IQ1_M)
        return ld16(b + super_traits(t).d_at);
    uint64_t s = ld64(b + 48);
    return (uint16_t)((s >> 12 & 0x000f) | (s >> 24 & 0x00f0) | (s >> 36 & 0x0f00) |
                      (s >> 48 & 0xf000));
}

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
SL_INLINE __m256i index8(uint64_t bytes) {
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}
/* Bytes and, above them, high bits as bytes. */
SL_INLINE __m256i index8_high(uint64_t bytes, uint64_t high) {
    return _mm256_or_si256(index8(bytes), _mm256_slli_epi32(index8(high), 8));
}

/* Elements 64k..64k+63 of an IQ type with signs: these, a bit each. */
SL_INLINE uint64_t super_signs(enum sl_dtype t, const uint8_t *b, int k) {
    switch (t) {
    case SL_DTYPE_IQ2_XXS:
        return sign_words(ld32(b + 6 + 16 * k), ld32(b + 14 + 16 * k));
    case SL_DTYPE_IQ2_XS: {
        __m128i w = _mm_loadu_si128((const __m128i *)(b + 2 + 16 * k));
        __m128i s = _mm_packus_epi16(_mm_srli_epi16(w, 9), _mm_setzero_si128());
        return sign_bytes((uint64_t)_mm_cvtsi128_si64(s));
    }
    case SL_DTYPE_IQ2_S:
        return ld64(b + 34 + 8 * k);
    case SL_DTYPE_IQ3_XXS:
        return sign_words(ld32(b + 66 + 8 * k), ld32(b + 70 + 8 * k));
    default: /* IQ3_S */
        return ld64(b + 74 + 8 * k);
    }
}

/* Their bytes, from a grid. */
SL_INLINE v super_iq(enum sl_dtype t, const uint8_t *b, int k) {
    switch (t) {
    case SL_DTYPE_IQ2_XXS: {
        const uint8_t *p = b + 2 + 16 * k;
        return v_gather64(sl_iq2xxs_grid, index8(join32(ld32(p), ld32(p + 8))));
    }
    case SL_DTYPE_IQ2_XS: {
        __m128i w = _mm_loadu_si128((const __m128i *)(b + 2 + 16 * k));
        return v_gather64(sl_iq2xs_grid,
                          _mm256_cvtepu16_epi32(_mm_and_si128(w, _mm_set1_epi16(511))));
    }
    case SL_DTYPE_IQ2_S:
        return v_gather64(
            sl_iq2s_grid,
            index8_high(ld64(b + 2 + 8 * k), _pdep_u64(ld16(b + 66 + 2 * k), 0x0303030303030303)));
    case SL_DTYPE_IQ3_XXS:
        return v_gather32(sl_iq3xxs_grid, v_widen_index(b + 2 + 16 * k));
    case SL_DTYPE_IQ3_S:
        return v_gather32(sl_iq3s_grid, v_or_bits32(v_widen_index(b + 2 + 16 * k),
                                                    ld16(b + 66 + 2 * k), v_set32(256)));
    case SL_DTYPE_IQ1_S: {
        uint32_t h0 = ld16(b + 34 + 4 * k), h1 = ld16(b + 36 + 4 * k);
        uint64_t high = _pdep_u64((h0 & 0xfff) | (h1 & 0xfff) << 12, 0x0707070707070707);
        high |= (uint64_t)(h0 >> 15) * 0x08080808 | (uint64_t)(h1 >> 15) * 0x0808080800000000;
        return v_gather64(sl_iq1_bytes, index8_high(ld64(b + 2 + 8 * k), high));
    }
    default: /* IQ1_M */
        return v_gather64(
            sl_iq1_bytes,
            index8_high(ld64(b + 8 * k), _pdep_u64(ld32(b + 32 + 4 * k), 0x0f0f0f0f0f0f0f0f)));
    }
}

/* The values of IQ4_NL and IQ4_XS, + 128. */
static const uint8_t iq4_bytes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};

/* u[4] of a block in the type's order; neg[4] for the signed types. */
SL_INLINE void super_bytes(enum sl_dtype t, const uint8_t *b, v *u, uint64_t *neg) {
    const v low = v_set8(15);
    switch (t) {
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K: {
        const uint8_t *qs = b + (t == SL_DTYPE_Q5_K ? 48 : 16);
        v a = v_load(qs), c = v_load(qs + 64);
        if (t == SL_DTYPE_Q4_K) {
            u[0] = v_and(a, low);
            u[1] = v_and(v_srl16(a, 4), low);
            u[2] = v_and(c, low);
            u[3] = v_and(v_srl16(c, 4), low);
            break;
        }
        const v bit = v_set8(16); /* sub j's fifth bits are bits j of qh */
        v h = v_bcast256(b + 16);
        u[0] = v_andor(a, low, v_and(v_ror64_h(h, 60, 62), bit));
        u[1] = v_andor(v_srl16(a, 4), low, v_and(v_ror64_h(h, 61, 63), bit));
        u[2] = v_andor(c, low, v_and(v_ror64_h(h, 0, 2), bit));
        u[3] = v_andor(v_srl16(c, 4), low, v_and(v_ror64_h(h, 1, 3), bit));
        break;
    }
    case SL_DTYPE_Q6_K: {
        const v high = v_set8(0x30);
        v a = v_load(b), c = v_load(b + 64), h0 = v_bcast256(b + 128), h1 = v_bcast256(b + 160);
        u[0] = v_andor(a, low, v_and(v_ror64_h(h0, 60, 62), high));
        u[1] = v_andor(v_srl16(a, 4), low, v_and(v_ror64_h(h0, 0, 2), high));
        u[2] = v_andor(c, low, v_and(v_ror64_h(h1, 60, 62), high));
        u[3] = v_andor(v_srl16(c, 4), low, v_and(v_ror64_h(h1, 0, 2), high));
        break;
    }
    case SL_DTYPE_Q2_K:
    case SL_DTYPE_Q3_K:
    case SL_DTYPE_TQ2_0: {
        const uint8_t *qs = b + (t == SL_DTYPE_Q3_K ? 32 : t == SL_DTYPE_Q2_K ? 16 : 0);
        const v two = v_set8(3), bit = v_set8(4);
        v a = v_bcast256(qs), c = v_bcast256(qs + 32);
        u[0] = v_and(v_ror64_h(a, 0, 2), two);
        u[1] = v_and(v_ror64_h(a, 4, 6), two);
        u[2] = v_and(v_ror64_h(c, 0, 2), two);
        u[3] = v_and(v_ror64_h(c, 4, 6), two);
        if (t == SL_DTYPE_Q3_K) { /* 32-element chunk j's third bits are bits j of hmask */
            v h = v_bcast256(b);
            u[0] = v_or(u[0], v_and(v_ror64_h(h, 62, 63), bit));
            u[1] = v_or(u[1], v_and(v_ror64_h(h, 0, 1), bit));
            u[2] = v_or(u[2], v_and(v_ror64_h(h, 2, 3), bit));
            u[3] = v_or(u[3], v_and(v_ror64_h(h, 4, 5), bit));
        }
        break;
    }
    case SL_DTYPE_TQ1_0:
        tq1_bytes(b, u);
        break;
    case SL_DTYPE_IQ2_K:
    case SL_DTYPE_IQ3_K:
    case SL_DTYPE_IQ4_K:
    case SL_DTYPE_IQ5_K:
    case SL_DTYPE_IQ6_K:
        iqk_bytes(t, b, u, neg);
        break;
    case SL_DTYPE_IQ4_XS: {
        v table = v_bcast128(iq4_bytes), a = v_load(b + 8), c = v_load(b + 72);
        u[0] = v_lookup(table, v_and(a, low));
        u[1] = v_lookup(table, v_and(v_srl16(a, 4), low));
        u[2] = v_lookup(table, v_and(c, low));
        u[3] = v_lookup(table, v_and(v_srl16(c, 4), low));
        break;
    }
    default:
#ifdef __AVX512VBMI__
        if (super_traits(t).is_signed) {
            codes_bytes(t, b, u);
            codes_signs(t, b, neg);
            break;
        }
#endif
        for (int k = 0; k < 4; k++) {
            u[k] = super_iq(t, b, k);
            if (super_traits(t).is_signed)
                neg[k] = super_signs(t, b, k);
        }
    }
}

/* 2s + 1 of bytes. */
SL_INLINE uint64_t odd_bytes(uint64_t s) {
    return s * 2 + 0x0101010101010101;
}

/* The sub-scales as int16: sub 16: 16 of them in both halves; sub 32: 8 in the low lanes. Types
 * with minima write 8 (sub 32) or 16 bytes of them to min. */
SL_INLINE v super_scales(enum sl_dtype t, const uint8_t *b, uint8_t *min) {
    switch (t) {
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K: {
        uint32_t s0 = ld32(b + 4), s1 = ld32(b + 8), s2 = ld32(b + 12);
        uint64_t m = join32(s1 & 0x3f3f3f3f, (s2 >> 4 & 0x0f0f0f0f) | (s1 >> 2 & 0x30303030));
        memcpy(min, &m, 8);
        return v_widen_u64(join32(s0 & 0x3f3f3f3f, (s2 & 0x0f0f0f0f) | (s0 >> 2 & 0x30303030)));
    }
    case SL_DTYPE_Q2_K: {
        const __m128i low = _mm_set1_epi8(15);
        __m128i s = _mm_loadu_si128((const __m128i *)b);
        _mm_storeu_si128((__m128i *)min, _mm_and_si128(_mm_srli_epi16(s, 4), low));
        return v_widen_x(_mm_and_si128(s, low));
    }
    case SL_DTYPE_Q3_K: {
        uint32_t a0 = ld32(b + 96), a1 = ld32(b + 100), a2 = ld32(b + 104);
        uint64_t lo = join32((a0 & 0x0f0f0f0f) | (a2 & 0x03030303) << 4,
                             (a1 & 0x0f0f0f0f) | (a2 >> 2 & 0x03030303) << 4);
        uint64_t hi = join32((a0 >> 4 & 0x0f0f0f0f) | (a2 >> 4 & 0x03030303) << 4,
                             (a1 >> 4 & 0x0f0f0f0f) | (a2 >> 6 & 0x03030303) << 4);
        return v_widen_x(
            _mm_sub_epi8(_mm_set_epi64x((long long)hi, (long long)lo), _mm_set1_epi8(32)));
    }
    case SL_DTYPE_Q6_K:
        return v_widen_s8(b + 192);
    case SL_DTYPE_TQ1_0:
    case SL_DTYPE_TQ2_0:
        return v_set16(1);
    case SL_DTYPE_IQ2_K:
    case SL_DTYPE_IQ3_K:
    case SL_DTYPE_IQ4_K:
    case SL_DTYPE_IQ5_K:
    case SL_DTYPE_IQ6_K:
        return v_widen_x(iqk_scales(t, b));
    case SL_DTYPE_IQ4_XS: {
        uint64_t s = _pdep_u64(ld32(b + 4), 0x0f0f0f0f0f0f0f0f) |
                     _pdep_u64(ld16(b + 2), 0x0303030303030303) << 4;
        __m128i w = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)s));
        w = _mm_sub_epi16(w, _mm_set1_epi16(32));
        return v_join(_mm256_castsi128_si256(w), _mm256_castsi128_si256(w));
    }
    case SL_DTYPE_IQ2_XXS:
    case SL_DTYPE_IQ3_XXS: {
#ifdef __AVX512VBMI__
        return _mm512_castsi128_si512(codes_scales(t, b));
#else
        int step = t == SL_DTYPE_IQ2_XXS ? 8 : 4;
        const uint8_t *p = b + (t == SL_DTYPE_IQ2_XXS ? 6 : 66); /* scales atop the sign words */
        uint64_t s = 0;
        for (int i = 0; i < 8; i++)
            s |= (uint64_t)(p[step * i + 3] >> 4) << (8 * i);
        return v_widen_u64(odd_bytes(s));
#endif
    }
    case SL_DTYPE_IQ3_S:
        return v_widen_u64(odd_bytes(_pdep_u64(ld32(b + 106), 0x0f0f0f0f0f0f0f0f)));
    case SL_DTYPE_IQ2_XS:
    case SL_DTYPE_IQ2_S: {
        uint64_t s = ld64(b + (t == SL_DTYPE_IQ2_XS ? 66 : 74));
        uint64_t lo = odd_bytes(_pdep_u64(s & 0xffffffffu, 0x0f0f0f0f0f0f0f0f));
        uint64_t hi = odd_bytes(_pdep_u64(s >> 32, 0x0f0f0f0f0f0f0f0f));
        return v_widen_x(_mm_set_epi64x((long long)hi, (long long)lo));
    }
    case SL_DTYPE_IQ1_S: {
        uint64_t s = 0; /* per 32, repeated per 16 */
        for (int i = 0; i < 8; i++)
            s |= (uint64_t)(b[35 + 2 * i] >> 4 & 7) << (8 * i);
        __m128i x = _mm_cvtsi64_si128((long long)odd_bytes(s));
        return v_widen_x(_mm_unpacklo_epi8(x, x));
    }
    default: { /* IQ1_M: four times four 3-bit scales */
        uint64_t w = _pext_u64(ld64(b + 48), 0x0fff0fff0fff0fff);
        uint64_t lo = odd_bytes(_pdep_u64(w & 0xffffff, 0x0707070707070707));
        uint64_t hi = odd_bytes(_pdep_u64(w >> 24, 0x0707070707070707));
        return v_widen_x(_mm_set_epi64x((long long)hi, (long long)lo));
    }
    }
}

#endif
#endif
