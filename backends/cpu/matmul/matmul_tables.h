/* In SIMD the 256-element types whose codes are not themselves the values, nor points of a grid:
 * IQ2_K to IQ6_K look them up in a table of up to 64, TQ1_0 has digits of base 3. A template:
 * included once per instruction set.
 *
 * Vector k holds elements 64k to 64k + 63, four sub-blocks of 16. */
#ifndef SL_BACKENDS_CPU_MATMUL_TABLES_H
#define SL_BACKENDS_CPU_MATMUL_TABLES_H

#include "backends/cpu/matmul/formats.h"
#include "backends/cpu/matmul/matmul_traits.h"

#ifdef __AVX2__

/* Nibbles of 32 bytes, sub-blocks 16 bytes apart: low, high, low, high. */
SL_INLINE v tables_nibbles16(const uint8_t *p) {
    v a = v_load4(p, p, p + 16, p + 16);
    return v_and(v_select_lanes(a, v_srl16(a, 4)), v_set8(15));
}
/* 32 apart. */
SL_INLINE v tables_nibbles32(const uint8_t *p) {
    return v_and(v_ror64_h(v_bcast256(p), 0, 4), v_set8(15));
}

/* The codes of vector k. */
SL_INLINE v iqk_codes(enum sl_dtype t, const uint8_t *b, const int k) {
    const struct super_traits tr = super_traits(t);
    const uint8_t *qs = b + tr.qs_at, *high = b + tr.high_at;
    switch (t) {
    case SL_DTYPE_IQ2_K: {
        v a = v_bcast256(qs + k / 2 * 32);
        return v_and(k % 2 ? v_ror64_h(a, 4, 6) : v_ror64_h(a, 0, 2), v_set8(3));
    }
    case SL_DTYPE_IQ3_K: {
        v a = v_bcast256(qs + k / 2 * 32), h = v_bcast256(high);
        h = k == 0   ? v_ror64_h(h, 62, 63)
            : k == 1 ? v_ror64_h(h, 0, 1)
            : k == 2 ? v_ror64_h(h, 2, 3)
                     : v_ror64_h(h, 4, 5);
        return v_andor(k % 2 ? v_ror64_h(a, 4, 6) : v_ror64_h(a, 0, 2), v_set8(3),
                       v_and(h, v_set8(4)));
    }
    case SL_DTYPE_IQ4_K:
        return tables_nibbles16(qs + 32 * k);
    case SL_DTYPE_IQ5_K: {
        v h = v_bcast256(high);
        h = k == 0   ? v_ror64_h(h, 60, 61)
            : k == 1 ? v_ror64_h(h, 62, 63)
            : k == 2 ? v_ror64_h(h, 0, 1)
                     : v_ror64_h(h, 2, 3);
        return v_or(tables_nibbles32(qs + 32 * k), v_and(h, v_set8(16)));
    }
    default: { /* IQ6_K */
        v h = v_bcast256(high + k / 2 * 32);
        h = k % 2 ? v_ror64_h(h, 0, 2) : v_ror64_h(h, 60, 62);
        return v_or(tables_nibbles32(qs + 32 * k), v_and(h, v_set8(0x30)));
    }
    }
}

/* u[4]: q + 128. */
SL_INLINE void iqk_bytes(enum sl_dtype t, const uint8_t *b, v *u) {
    static const uint8_t lanes[64] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                                      1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                      2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                                      3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    const struct sl_iqk *table = &sl_iqk_values[t - SL_DTYPE_IQ2_K];
    const int bits = t - SL_DTYPE_IQ2_K + 2;
    const uint64_t ones = 0x0101010101010101, added = (uint64_t)table->added;
    const uint32_t extra = ld16(b + super_traits(t).extra_at);
    /* 128, and what is added, of each sub-block. */
    const uint64_t lo = _pdep_u64(extra & 255, ones) * added + 128 * ones;
    const uint64_t hi = _pdep_u64(extra >> 8, ones) * added + 128 * ones;
    const v more = v_bcast128(&(__m128i[1]){_mm_set_epi64x((long long)hi, (long long)lo)});
    SL_UNROLL
    for (int k = 0; k < 4; k++)
        u[k] = v_add8(v_lookup_64(table->values, bits, iqk_codes(t, b, k)),
                      v_lookup(more, v_add8(v_load(lanes), v_set8(4 * k))));
}

/* Sixteen scales, as bytes. */
SL_INLINE __m128i iqk_nibble_scales(const uint8_t *p) {
    __m128i a = _mm_loadl_epi64((const __m128i *)(const void *)p), low = _mm_set1_epi8(15);
    return _mm_unpacklo_epi8(_mm_and_si128(a, low), _mm_and_si128(_mm_srli_epi16(a, 4), low));
}
/* Bits 2j and 2j + 1 of a word, or bits j, to byte j. */
SL_INLINE __m128i iqk_spread(uint64_t lo, uint64_t hi, uint64_t to) {
    return _mm_set_epi64x((long long)_pdep_u64(hi, to), (long long)_pdep_u64(lo, to));
}
SL_INLINE __m128i iqk_scales(enum sl_dtype t, const uint8_t *b) {
    const uint8_t *p = b + super_traits(t).scales_at;
    const uint32_t high = ld32(p);
    switch (t) {
    case SL_DTYPE_IQ2_K:
        return _mm_sub_epi8(iqk_nibble_scales(p), _mm_set1_epi8(8));
    case SL_DTYPE_IQ3_K: {
        __m128i s = iqk_nibble_scales(p + 2);
        __m128i minus = iqk_spread(high & 0xff, high >> 8 & 0xff, 0x0101010101010101);
        minus = _mm_sub_epi8(_mm_setzero_si128(), minus);
        s = _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
        return _mm_sub_epi8(_mm_xor_si128(s, minus), minus);
    }
    case SL_DTYPE_IQ4_K:
    case SL_DTYPE_IQ5_K: {
        __m128i bits = iqk_spread(high & 0xffff, high >> 16, 0x3030303030303030);
        return _mm_sub_epi8(_mm_or_si128(iqk_nibble_scales(p + 4), bits), _mm_set1_epi8(32));
    }
    default:
        return _mm_loadu_si128((const __m128i *)(const void *)p);
    }
}

/* Bytes of five digits to the one that the byte was multiplied for: 0, 1, 2. */
SL_INLINE v tq1_digits(v products) {
    v one = v_set8(1);
    return v_add8(v_and(v_at_least8(products, v_set8(86)), one),
                  v_and(v_at_least8(products, v_set8(171)), one));
}
SL_INLINE v tq1_times3(v a) {
    return v_add8(a, v_add8(a, a));
}

/* u[4] of TQ1_0, q + 1. */
SL_INLINE void tq1_bytes(const uint8_t *b, v *u) {
    const struct super_traits tr = super_traits(SL_DTYPE_TQ1_0);
    const uint8_t *qs = b + tr.qs_at;
    v x = v_bcast256(qs), y = v_bcast128(qs + 32), z = v_bcast32(b + tr.high_at);
    v x1 = tq1_times3(x), x2 = tq1_times3(x1), x3 = tq1_times3(x2), x4 = tq1_times3(x3);
    v y1 = tq1_times3(y), y2 = tq1_times3(y1), y3 = tq1_times3(y2), y4 = tq1_times3(y3);
    v z1 = tq1_times3(z), z2 = tq1_times3(z1), z3 = tq1_times3(z2);
    const v zs = v_unpacklo64(v_unpacklo32(z, z1), v_unpacklo32(z2, z3));
    u[0] = tq1_digits(v_join(v_low(x), v_low(x1)));
    u[1] = tq1_digits(v_join(v_low(x2), v_low(x3)));
    u[2] = tq1_digits(v_join(v_low(x4), v_low(v_select_lanes(y, y1))));
    u[3] = tq1_digits(v_join(v_low(v_select_lanes(y2, y3)), v_low(v_select_lanes(y4, zs))));
}

#endif
#endif
