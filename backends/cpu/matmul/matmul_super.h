/* The 256-element types in SIMD: what matmul_simd.h needs to know of each. A template: included
 * once per instruction set.
 *
 * A block becomes four vectors of unsigned bytes u = q + offset (IQ2, IQ3: magnitudes and a bit per
 * sign), and int16 sub-scales. dot products stay exact: u <= 128, so pairs fit in int16; where the
 * offset is 128, they are summed as int32. */
#ifndef SL_BACKENDS_CPU_MATMUL_SUPER_H
#define SL_BACKENDS_CPU_MATMUL_SUPER_H

#include "backends/cpu/matmul/matmul_kernels.h"
#include "backends/cpu/matmul/matmul_tables.h"
#include "backends/cpu/matmul/matmul_traits.h"

/* The IQ types with signs have bytes that are points of a grid. By instruction set:
 *   AVX-512 with VBMI   matmul_codes.h   codes are permuted in registers
 *   the others          matmul_grids.h   points are gathered
 * Each has grid_bytes() and grid_scales(). */
#ifdef __AVX512VBMI__
#include "backends/cpu/matmul/matmul_codes.h"
#else
#include "backends/cpu/matmul/matmul_grids.h"
#endif

#ifdef __AVX2__

/* The f16 scale's bits. */
SL_INLINE uint16_t super_d(enum sl_dtype t, const uint8_t *b) {
    if (t != SL_DTYPE_IQ1_M)
        return ld16(b + super_traits(t).d_at);
    uint64_t s = ld64(b + super_traits(t).scales_at);
    return (uint16_t)((s >> 12 & 0x000f) | (s >> 24 & 0x00f0) | (s >> 36 & 0x0f00) |
                      (s >> 48 & 0xf000));
}

/* Elements 64k..64k+63 of IQ1_S or IQ1_M. */
SL_INLINE v super_iq1(enum sl_dtype t, const uint8_t *b, int k) {
    const struct super_traits tr = super_traits(t);
    const uint8_t *high = b + tr.high_at;
    uint64_t bits;
    if (t == SL_DTYPE_IQ1_S) {
        uint32_t h0 = ld16(high + 4 * k), h1 = ld16(high + 4 * k + 2);
        bits = _pdep_u64((h0 & 0xfff) | (h1 & 0xfff) << 12, 0x0707070707070707);
        bits |= (uint64_t)(h0 >> 15) * 0x08080808 | (uint64_t)(h1 >> 15) * 0x0808080800000000;
    } else {
        bits = _pdep_u64(ld32(high + 4 * k), 0x0f0f0f0f0f0f0f0f);
    }
    return v_gather64(sl_iq1_bytes, index8_high(ld64(b + tr.qs_at + 8 * k), bits));
}

/* The values of IQ4_NL and IQ4_XS, + 128. */
static const uint8_t iq4_bytes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};

/* u[4] of a block in the type's order; neg[4] for the signed types. */
SL_INLINE void super_bytes(enum sl_dtype t, const uint8_t *b, v *u, uint64_t *neg) {
    const struct super_traits tr = super_traits(t);
    const uint8_t *qs = b + tr.qs_at, *high = b + tr.high_at;
    const v low = v_set8(15);
    switch (t) {
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K: {
        v a = v_load(qs), c = v_load(qs + 64);
        if (t == SL_DTYPE_Q4_K) {
            u[0] = v_and(a, low);
            u[1] = v_and(v_srl16(a, 4), low);
            u[2] = v_and(c, low);
            u[3] = v_and(v_srl16(c, 4), low);
            break;
        }
        const v bit = v_set8(16); /* sub j's fifth bits are bits j of qh */
        v h = v_bcast256(high);
        u[0] = v_andor(a, low, v_and(v_ror64_h(h, 60, 62), bit));
        u[1] = v_andor(v_srl16(a, 4), low, v_and(v_ror64_h(h, 61, 63), bit));
        u[2] = v_andor(c, low, v_and(v_ror64_h(h, 0, 2), bit));
        u[3] = v_andor(v_srl16(c, 4), low, v_and(v_ror64_h(h, 1, 3), bit));
        break;
    }
    case SL_DTYPE_Q6_K: {
        const v bits = v_set8(0x30);
        v a = v_load(qs), c = v_load(qs + 64), h0 = v_bcast256(high), h1 = v_bcast256(high + 32);
        u[0] = v_andor(a, low, v_and(v_ror64_h(h0, 60, 62), bits));
        u[1] = v_andor(v_srl16(a, 4), low, v_and(v_ror64_h(h0, 0, 2), bits));
        u[2] = v_andor(c, low, v_and(v_ror64_h(h1, 60, 62), bits));
        u[3] = v_andor(v_srl16(c, 4), low, v_and(v_ror64_h(h1, 0, 2), bits));
        break;
    }
    case SL_DTYPE_Q2_K:
    case SL_DTYPE_Q3_K:
    case SL_DTYPE_TQ2_0: {
        const v two = v_set8(3), bit = v_set8(4);
        v a = v_bcast256(qs), c = v_bcast256(qs + 32);
        u[0] = v_and(v_ror64_h(a, 0, 2), two);
        u[1] = v_and(v_ror64_h(a, 4, 6), two);
        u[2] = v_and(v_ror64_h(c, 0, 2), two);
        u[3] = v_and(v_ror64_h(c, 4, 6), two);
        if (t == SL_DTYPE_Q3_K) { /* 32-element chunk j's third bits are bits j of hmask */
            v h = v_bcast256(high);
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
        iqk_bytes(t, b, u);
        break;
    case SL_DTYPE_IQ4_XS: {
        v table = v_bcast128(iq4_bytes), a = v_load(qs), c = v_load(qs + 64);
        u[0] = v_lookup(table, v_and(a, low));
        u[1] = v_lookup(table, v_and(v_srl16(a, 4), low));
        u[2] = v_lookup(table, v_and(c, low));
        u[3] = v_lookup(table, v_and(v_srl16(c, 4), low));
        break;
    }
    default:
        if (tr.is_signed) {
            grid_bytes(t, b, u, neg);
            break;
        }
        for (int k = 0; k < 4; k++)
            u[k] = super_iq1(t, b, k);
    }
}

/* The sub-scales as int16: sub 16: 16 of them in both halves; sub 32: 8 in the low lanes. Types
 * with minima write 8 (sub 32) or 16 bytes of them to min. */
SL_INLINE v super_scales(enum sl_dtype t, const uint8_t *b, uint8_t *min) {
    const uint8_t *p = b + super_traits(t).scales_at;
    switch (t) {
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K: {
        uint32_t s0 = ld32(p), s1 = ld32(p + 4), s2 = ld32(p + 8);
        uint64_t m = join32(s1 & 0x3f3f3f3f, (s2 >> 4 & 0x0f0f0f0f) | (s1 >> 2 & 0x30303030));
        memcpy(min, &m, 8);
        return v_widen_u64(join32(s0 & 0x3f3f3f3f, (s2 & 0x0f0f0f0f) | (s0 >> 2 & 0x30303030)));
    }
    case SL_DTYPE_Q2_K: {
        const __m128i low = _mm_set1_epi8(15);
        __m128i s = _mm_loadu_si128((const __m128i *)p);
        _mm_storeu_si128((__m128i *)min, _mm_and_si128(_mm_srli_epi16(s, 4), low));
        return v_widen_x(_mm_and_si128(s, low));
    }
    case SL_DTYPE_Q3_K: {
        uint32_t a0 = ld32(p), a1 = ld32(p + 4), a2 = ld32(p + 8);
        uint64_t lo = join32((a0 & 0x0f0f0f0f) | (a2 & 0x03030303) << 4,
                             (a1 & 0x0f0f0f0f) | (a2 >> 2 & 0x03030303) << 4);
        uint64_t hi = join32((a0 >> 4 & 0x0f0f0f0f) | (a2 >> 4 & 0x03030303) << 4,
                             (a1 >> 4 & 0x0f0f0f0f) | (a2 >> 6 & 0x03030303) << 4);
        return v_widen_x(
            _mm_sub_epi8(_mm_set_epi64x((long long)hi, (long long)lo), _mm_set1_epi8(32)));
    }
    case SL_DTYPE_Q6_K:
        return v_widen_s8(p);
    case SL_DTYPE_TQ1_0:
    case SL_DTYPE_TQ2_0:
        return v_set16(1);
    case SL_DTYPE_IQ2_K:
    case SL_DTYPE_IQ3_K:
    case SL_DTYPE_IQ4_K:
    case SL_DTYPE_IQ5_K:
    case SL_DTYPE_IQ6_K:
        return v_widen_x(iqk_scales(t, b));
    case SL_DTYPE_IQ4_XS: { /* 8 times 2 bits, then 8 times 4 lower ones */
        uint64_t s = _pdep_u64(ld32(p + 2), 0x0f0f0f0f0f0f0f0f) |
                     _pdep_u64(ld16(p), 0x0303030303030303) << 4;
        __m128i w = _mm_cvtepu8_epi16(_mm_cvtsi64_si128((long long)s));
        w = _mm_sub_epi16(w, _mm_set1_epi16(32));
        return v_join(_mm256_castsi128_si256(w), _mm256_castsi128_si256(w));
    }
    case SL_DTYPE_IQ2_XXS:
    case SL_DTYPE_IQ3_XXS:
        return grid_scales(t, b);
    case SL_DTYPE_IQ3_S:
        return v_widen_u64(odd_bytes(_pdep_u64(ld32(p), 0x0f0f0f0f0f0f0f0f)));
    case SL_DTYPE_IQ2_XS:
    case SL_DTYPE_IQ2_S: {
        uint64_t s = ld64(p);
        uint64_t lo = odd_bytes(_pdep_u64(s & 0xffffffffu, 0x0f0f0f0f0f0f0f0f));
        uint64_t hi = odd_bytes(_pdep_u64(s >> 32, 0x0f0f0f0f0f0f0f0f));
        return v_widen_x(_mm_set_epi64x((long long)hi, (long long)lo));
    }
    case SL_DTYPE_IQ1_S: {
        uint64_t s = 0; /* per 32, repeated per 16 */
        for (int i = 0; i < 8; i++)
            s |= (uint64_t)(p[2 * i + 1] >> 4 & 7) << (8 * i);
        __m128i x = _mm_cvtsi64_si128((long long)odd_bytes(s));
        return v_widen_x(_mm_unpacklo_epi8(x, x));
    }
    default: { /* IQ1_M: four times four 3-bit scales */
        uint64_t w = _pext_u64(ld64(p), 0x0fff0fff0fff0fff);
        uint64_t lo = odd_bytes(_pdep_u64(w & 0xffffff, 0x0707070707070707));
        uint64_t hi = odd_bytes(_pdep_u64(w >> 24, 0x0707070707070707));
        return v_widen_x(_mm_set_epi64x((long long)hi, (long long)lo));
    }
    }
}

#endif
#endif
