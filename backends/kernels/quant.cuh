/* The tensor types on the device: what backends/cpu/matmul/formats.h says, in pieces of 32
 * elements.
 *
 * A unit is a 32nd part of 1024 elements: 8 units make a 256-element block, one a 32-element block.
 * Unit u of a block is two groups of 16 consecutive elements, a and b (0..15 within the block), so
 * chosen that a thread reads whole bytes: both nibbles of 16 bytes, say. Each group has its integer
 * sub-scale and minimum. Integer sums do not depend on how a block is cut into units.
 *
 * sl_quant<T>: ELEMS and BYTES of a block, HAS_MIN, SUB16 (sub-scales change every 16 elements, not
 * 32), and
 *   scales(block, d, dmin)     the float scales
 *   unit(block, u, out)        unit u, 0 for 32-element types
 * Blocks may have any address. Reading stays within aligned words that hold the block's bytes.
 *
 * Source: the block layouts of ggml and GGUF; OCP Microscaling Formats v1.0 for MXFP4; ik_llama.cpp
 * for IQ2_K to IQ6_K. */
#ifndef SL_BACKENDS_KERNELS_QUANT_CUH
#define SL_BACKENDS_KERNELS_QUANT_CUH

#include "backends/kernels/device.cuh"
#include "common/dtype.h"

#define SL_IQ_CODE static __device__ const
#include "backends/iq_codes.h"

struct sl_unit {
    uint32_t a[4], b[4]; /* 16 int8 each */
    int group_a, group_b;
    int scale_a, scale_b, min_a, min_b;
};

/* ---- reading ---- */

__device__ __forceinline__ uint32_t sl_u8(const uint8_t *p) {
    return __ldg(p);
}
__device__ __forceinline__ uint32_t sl_u16(const uint8_t *p) {
    return sl_u8(p) | sl_u8(p + 1) << 8;
}

/* N words from any address. */
template <int N> __device__ __forceinline__ void sl_words(const uint8_t *p, uint32_t (&out)[N]) {
    uintptr_t at = (uintptr_t)p;
    const uint32_t *w = (const uint32_t *)(at & ~(uintptr_t)3);
    uint32_t shift = (uint32_t)(at & 3) * 8;
    uint32_t lo = __ldg(w);
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t hi = i + 1 < N || shift ? __ldg(w + i + 1) : 0;
        out[i] = sl_funnel(lo, hi, shift);
        lo = hi;
    }
}
/* 16 bytes that lie on a 16-byte boundary whenever the matrix does. ALIGNED: 1: they do, 0: they
 * may not, -1: look. Who reads several looks once: a branch for each would make one wait for
 * another. */
template <int ALIGNED = -1>
__device__ __forceinline__ void sl_words16(const uint8_t *p, uint32_t (&out)[4]) {
    if (ALIGNED == 1 || (ALIGNED == -1 && ((uintptr_t)p & 15) == 0)) {
        uint4 v = __ldg((const uint4 *)p);
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    } else {
        sl_words(p, out);
    }
}
__device__ __forceinline__ uint32_t sl_word(const uint8_t *p) {
    uint32_t w[1];
    sl_words(p, w);
    return w[0];
}

/* ---- bytes in words ---- */

/* Four bytes below 128, each less c (at most 128). */
__device__ __forceinline__ uint32_t sl_less(uint32_t v, uint32_t c) {
    return ((v | 0x80808080u) - c * 0x01010101u) ^ 0x80808080u;
}
/* Bits 0..3 to the lowest bits of four bytes. */
__device__ __forceinline__ uint32_t sl_bits4(uint32_t b) {
    return ((b & 15) * 0x00204081u) & 0x01010101u;
}
/* Four bytes, none zero, negated where bits 0..3 of signs are set. */
__device__ __forceinline__ uint32_t sl_signs(uint32_t v, uint32_t signs) {
    uint32_t one = sl_bits4(signs);
    return (v ^ (one * 255u)) + one;
}
/* 7 stored sign bits to 8: the eighth makes the number of set bits even. */
__device__ __forceinline__ uint32_t sl_signs7(uint32_t bits7) {
    return bits7 | (uint32_t)(__popc(bits7) & 1) << 7;
}
/* Eight codes of 2 bits to eight bytes of a 4-byte table. */
__device__ __forceinline__ void sl_codes2(uint32_t code, uint32_t table, uint32_t &lo,
                                          uint32_t &hi) {
    uint32_t x = (code | code << 8) & 0x00ff00ffu;
    x = (x | x << 4) & 0x0f0f0f0fu;
    x = (x | x << 2) & 0x33333333u;
    lo = sl_perm(table, 0, x & 0xffff);
    hi = sl_perm(table, 0, x >> 16);
}
/* Four codes of 3 bits to four bytes of an 8-byte table. */
__device__ __forceinline__ uint32_t sl_codes3(uint32_t c, uint32_t t0, uint32_t t1) {
    return sl_perm(t0, t1, (c & 7) | (c & 0x38) << 1 | (c & 0x1c0) << 2 | (c & 0xe00) << 3);
}
/* The eight nibbles of w as bytes of a 16-byte table: low nibbles, high nibbles. */
__device__ __forceinline__ void sl_nibble_values(uint32_t w, const uint32_t (&t)[4], uint32_t &low,
                                                 uint32_t &high) {
    uint32_t sel = w & 0x77777777u, top = (w & 0x88888888u) >> 1;
    uint32_t r0 = sl_perm(sl_perm(t[0], t[1], sel & 0xffff), sl_perm(t[2], t[3], sel & 0xffff),
                          0x3210 | (top & 0xffff));
    uint32_t r1 =
        sl_perm(sl_perm(t[0], t[1], sel >> 16), sl_perm(t[2], t[3], sel >> 16), 0x3210 | top >> 16);
    low = sl_perm(r0, r1, 0x6420);
    high = sl_perm(r0, r1, 0x7531);
}
__device__ __forceinline__ void sl_nibbles(const uint32_t (&w)[4], struct sl_unit &u) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u.a[i] = w[i] & 0x0f0f0f0fu;
        u.b[i] = w[i] >> 4 & 0x0f0f0f0fu;
    }
}
__device__ __forceinline__ void sl_nibble_table(const uint32_t (&w)[4], const uint32_t (&t)[4],
                                                struct sl_unit &u) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        sl_nibble_values(w[i], t, u.a[i], u.b[i]);
}
__device__ __forceinline__ void sl_unit_plain(struct sl_unit &u, int group) {
    u.group_a = group;
    u.group_b = group + 1;
    u.scale_a = u.scale_b = 1;
    u.min_a = u.min_b = 0;
}

#define SL_IQ4_TABLE                                                                               \
    { 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u }
#define SL_FP4_TABLE                                                                               \
    { 0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu }

template <int T> struct sl_quant;

/* ---- 32-element types ---- */

template <bool MIN> struct sl_quant_32 {
    static constexpr int ELEMS = 32;
    static constexpr bool HAS_MIN = MIN, SUB16 = false, WIDE = false;
};

template <> struct sl_quant<SL_DTYPE_Q4_0> : sl_quant_32<false> {
    static constexpr int BYTES = 18; /* d, qs[16] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int, struct sl_unit &u) {
        uint32_t w[4];
        sl_words(b + 2, w);
        sl_unit_plain(u, 0);
        sl_nibbles(w, u);
        for (int i = 0; i < 4; i++)
            u.a[i] = sl_less(u.a[i], 8), u.b[i] = sl_less(u.b[i], 8);
    }
};
template <> struct sl_quant<SL_DTYPE_Q4_1> : sl_quant_32<true> {
    static constexpr int BYTES = 20; /* d, m, qs[16] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        uint32_t w = sl_word(b);
        d = sl_f16(w & 0xffff);
        dmin = -sl_f16(w >> 16);
    }
    __device__ static void unit(const uint8_t *b, int, struct sl_unit &u) {
        uint32_t w[4];
        sl_words(b + 4, w);
        sl_unit_plain(u, 0);
        u.min_a = u.min_b = 1;
        sl_nibbles(w, u);
    }
};

/* Fifth bits: bit j of the word belongs to element j. */
__device__ __forceinline__ void sl_fifth_bits(uint32_t bits, struct sl_unit &u) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u.a[i] |= sl_bits4(bits >> (4 * i)) << 4;
        u.b[i] |= sl_bits4(bits >> (16 + 4 * i)) << 4;
    }
}
template <> struct sl_quant<SL_DTYPE_Q5_0> : sl_quant_32<false> {
    static constexpr int BYTES = 22; /* d, qh[4], qs[16] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int, struct sl_unit &u) {
        uint32_t w[5], q[4];
        sl_words(b + 2, w);
        for (int i = 0; i < 4; i++)
            q[i] = w[i + 1];
        sl_unit_plain(u, 0);
        sl_nibbles(q, u);
        sl_fifth_bits(w[0], u);
        for (int i = 0; i < 4; i++)
            u.a[i] = sl_less(u.a[i], 16), u.b[i] = sl_less(u.b[i], 16);
    }
};
template <> struct sl_quant<SL_DTYPE_Q5_1> : sl_quant_32<true> {
    static constexpr int BYTES = 24; /* d, m, qh[4], qs[16] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        uint32_t w = sl_word(b);
        d = sl_f16(w & 0xffff);
        dmin = -sl_f16(w >> 16);
    }
    __device__ static void unit(const uint8_t *b, int, struct sl_unit &u) {
        uint32_t w[5], q[4];
        sl_words(b + 4, w);
        for (int i = 0; i < 4; i++)
            q[i] = w[i + 1];
        sl_unit_plain(u, 0);
        u.min_a = u.min_b = 1;
        sl_nibbles(q, u);
        sl_fifth_bits(w[0], u);
    }
};
template <> struct sl_quant<SL_DTYPE_Q8_0> : sl_quant_32<false> {
    static constexpr int BYTES = 34; /* d, qs[32] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int, struct sl_unit &u) {
        uint32_t w[8];
        sl_words(b + 2, w);
        sl_unit_plain(u, 0);
        for (int i = 0; i < 4; i++)
            u.a[i] = w[i], u.b[i] = w[i + 4];
    }
};
template <> struct sl_quant<SL_DTYPE_IQ4_NL> : sl_quant_32<false> {
    static constexpr int BYTES = 18; /* d, qs[16] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int, struct sl_unit &u) {
        const uint32_t t[4] = SL_IQ4_TABLE;
        uint32_t w[4];
        sl_words(b + 2, w);
        sl_unit_plain(u, 0);
        sl_nibble_table(w, t, u);
    }
};
/* 2^(e - 128), e 0 and 1 being subnormal */
__device__ __forceinline__ float sl_e8m0(uint32_t e) {
    return __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}
template <> struct sl_quant<SL_DTYPE_MXFP4> : sl_quant_32<false> {
    static constexpr int BYTES = 17; /* e, qs[16] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_e8m0(sl_u8(b));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int, struct sl_unit &u) {
        const uint32_t t[4] = SL_FP4_TABLE;
        uint32_t w[4];
        sl_words(b + 1, w);
        sl_unit_plain(u, 0);
        sl_nibble_table(w, t, u);
    }
};

/* ---- 256-element types ---- */

template <bool MIN, bool S16> struct sl_quant_256 {
    static constexpr int ELEMS = 256;
    static constexpr bool HAS_MIN = MIN, SUB16 = S16, WIDE = false;
};

/* Two-bit fields: unit u takes 16 bytes of half u / 4, at segment u % 2, fields 2v and 2v + 1 with
 * v = u / 2 % 2. */
template <> struct sl_quant<SL_DTYPE_Q2_K> : sl_quant_256<true, true> {
    static constexpr int BYTES = 84; /* scales[16] qs[64] d dmin */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        uint32_t w = sl_word(b + 80);
        d = sl_f16(w & 0xffff);
        dmin = sl_f16(w >> 16);
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int half = n / 4, seg = n % 2, v = n / 2 % 2;
        uint32_t w[4];
        sl_words(b + 16 + half * 32 + seg * 16, w);
        for (int i = 0; i < 4; i++) {
            u.a[i] = w[i] >> (4 * v) & 0x03030303u;
            u.b[i] = w[i] >> (4 * v + 2) & 0x03030303u;
        }
        u.group_a = half * 8 + v * 4 + seg;
        u.group_b = u.group_a + 2;
        uint32_t sa = sl_u8(b + u.group_a), sb = sl_u8(b + u.group_b);
        u.scale_a = (int)(sa & 15), u.min_a = (int)(sa >> 4);
        u.scale_b = (int)(sb & 15), u.min_b = (int)(sb >> 4);
    }
};
template <> struct sl_quant<SL_DTYPE_Q3_K> : sl_quant_256<false, true> {
    static constexpr int BYTES = 110; /* hmask[32] qs[64] scales[12] d */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b + 108));
        dmin = 0;
    }
    /* 4 low bits in bytes 0..7, 2 high bits in bytes 8..11 */
    __device__ static int scale(const uint8_t *s, int j) {
        uint32_t low = sl_u8(s + j % 8) >> (j / 8 * 4) & 15;
        uint32_t high = sl_u8(s + 8 + j % 4) >> (j / 4 * 2) & 3;
        return (int)(low | high << 4) - 32;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int half = n / 4, seg = n % 2, v = n / 2 % 2;
        uint32_t w[4], h[4];
        sl_words(b + 32 + half * 32 + seg * 16, w);
        sl_words(b + seg * 16, h);
        int bit = half * 4 + v * 2;
        for (int i = 0; i < 4; i++) {
            u.a[i] = (w[i] >> (4 * v) & 0x03030303u) | (h[i] >> bit & 0x01010101u) << 2;
            u.b[i] = (w[i] >> (4 * v + 2) & 0x03030303u) | (h[i] >> (bit + 1) & 0x01010101u) << 2;
            u.a[i] = sl_less(u.a[i], 4), u.b[i] = sl_less(u.b[i], 4);
        }
        u.group_a = half * 8 + v * 4 + seg;
        u.group_b = u.group_a + 2;
        u.scale_a = scale(b + 96, u.group_a);
        u.scale_b = scale(b + 96, u.group_b);
        u.min_a = u.min_b = 0;
    }
};

/* Q4_K, Q5_K: unit u has 16 bytes at segment u % 2 of quarter c = u / 2: low nibbles are of
 * sub-block 2c, high ones of 2c + 1. The scales and minima of both sub-blocks, from words 1..3 of
 * the head: 0..3 lie in the low bits of bytes 0..7; 4..7 have their low nibbles in bytes 8..11 and
 * their high bits atop bytes 0..7. */
__device__ __forceinline__ void sl_scales_6bit(const uint32_t (&head)[4], int c,
                                               struct sl_unit &u) {
    int shift = 16 * (c & 1);
    uint32_t w1 = head[1] >> shift, w2 = head[2] >> shift, w3 = head[3] >> shift, sc, mn;
    if (c < 2) {
        sc = w1 & 0x3f3f;
        mn = w2 & 0x3f3f;
    } else {
        sc = (w3 & 0x0f0f) | (w1 >> 2 & 0x3030);
        mn = (w3 >> 4 & 0x0f0f) | (w2 >> 2 & 0x3030);
    }
    u.scale_a = (int)(sc & 255), u.scale_b = (int)(sc >> 8);
    u.min_a = (int)(mn & 255), u.min_b = (int)(mn >> 8);
}
template <> struct sl_quant<SL_DTYPE_Q4_K> : sl_quant_256<true, false> {
    static constexpr bool WIDE = true; /* whole blocks of 16 bytes: unit<ALIGNED> */
    static constexpr int BYTES = 144;  /* d dmin scales[12] qs[128] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        uint32_t w = sl_word(b);
        d = sl_f16(w & 0xffff);
        dmin = sl_f16(w >> 16);
    }
    template <int ALIGNED = -1>
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int c = n / 2, seg = n % 2;
        uint32_t head[4], w[4];
        sl_words16<ALIGNED>(b, head);
        sl_words16<ALIGNED>(b + 16 + 16 * n, w);
        sl_nibbles(w, u);
        u.group_a = 4 * c + seg;
        u.group_b = u.group_a + 2;
        sl_scales_6bit(head, c, u);
    }
};
template <> struct sl_quant<SL_DTYPE_Q5_K> : sl_quant_256<true, false> {
    static constexpr bool WIDE = true; /* whole blocks of 16 bytes: unit<ALIGNED> */
    static constexpr int BYTES = 176;  /* d dmin scales[12] qh[32] qs[128] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        uint32_t w = sl_word(b);
        d = sl_f16(w & 0xffff);
        dmin = sl_f16(w >> 16);
    }
    template <int ALIGNED = -1>
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int c = n / 2, seg = n % 2;
        uint32_t head[4], w[4], h[4];
        sl_words16<ALIGNED>(b, head);
        sl_words16<ALIGNED>(b + 48 + 16 * n, w);
        sl_words16<ALIGNED>(b + 16 + 16 * seg, h);
        sl_nibbles(w, u);
        for (int i = 0; i < 4; i++) {
            u.a[i] |= (h[i] >> (2 * c) & 0x01010101u) << 4;
            u.b[i] |= (h[i] >> (2 * c + 1) & 0x01010101u) << 4;
        }
        u.group_a = 4 * c + seg;
        u.group_b = u.group_a + 2;
        sl_scales_6bit(head, c, u);
    }
};
/* Unit u: 16 bytes w = u % 4 of half u / 4; low nibbles are elements 16w of the half, high ones
 * 64 + 16w. */
template <> struct sl_quant<SL_DTYPE_Q6_K> : sl_quant_256<false, true> {
    static constexpr int BYTES = 210; /* ql[128] qh[64] scales[16] d */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b + 208));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int half = n / 4, w = n % 4;
        uint32_t l[4], h[4];
        sl_words(b + half * 64 + w * 16, l);
        sl_words(b + 128 + half * 32 + w % 2 * 16, h);
        int shift = w / 2 * 2;
        for (int i = 0; i < 4; i++) {
            u.a[i] = (l[i] & 0x0f0f0f0fu) | (h[i] >> shift & 0x03030303u) << 4;
            u.b[i] = (l[i] >> 4 & 0x0f0f0f0fu) | (h[i] >> (shift + 4) & 0x03030303u) << 4;
            u.a[i] = sl_less(u.a[i], 32), u.b[i] = sl_less(u.b[i], 32);
        }
        u.group_a = half * 8 + w;
        u.group_b = u.group_a + 4;
        u.scale_a = (int8_t)sl_u8(b + 192 + u.group_a);
        u.scale_b = (int8_t)sl_u8(b + 192 + u.group_b);
        u.min_a = u.min_b = 0;
    }
};
template <> struct sl_quant<SL_DTYPE_IQ4_XS> : sl_quant_256<false, false> {
    static constexpr int BYTES = 136; /* d scales_h scales_l[4] qs[128] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        const uint32_t t[4] = SL_IQ4_TABLE;
        uint32_t w[4], head[2];
        sl_words(b, head);
        sl_words(b + 8 + 16 * n, w);
        sl_unit_plain(u, 2 * n);
        sl_nibble_table(w, t, u);
        int s = (int)((head[1] >> (4 * n) & 15) | (head[0] >> (16 + 2 * n) & 3) << 4);
        u.scale_a = u.scale_b = s - 32;
    }
};

/* The types with grids: groups 2u and 2u + 1. */
__device__ __forceinline__ void sl_put(struct sl_unit &u, int l, uint32_t lo, uint32_t hi) {
    if (l < 2)
        u.a[2 * l] = lo, u.a[2 * l + 1] = hi;
    else
        u.b[2 * l - 4] = lo, u.b[2 * l - 3] = hi;
}
#define SL_IQ2_VALUES    0x002b1908u
#define SL_IQ3XXS_VALUES 0x1c140c04u, 0x3e342c24u
#define SL_IQ3S_VALUES   0x07050301u, 0x0f0d0b09u
__device__ __forceinline__ void sl_put_iq2(struct sl_unit &u, int l, uint32_t code,
                                           uint32_t signs) {
    uint32_t lo, hi;
    sl_codes2(code, SL_IQ2_VALUES, lo, hi);
    sl_put(u, l, sl_signs(lo, signs), sl_signs(hi, signs >> 4));
}
__device__ __forceinline__ void sl_put_iq1(struct sl_unit &u, int l, uint32_t index,
                                           bool negative) {
    uint32_t lo, hi;
    sl_codes2(__ldg(&sl_code_iq1[index]), negative ? 0x0007fff7u : 0x000901f9u, lo, hi);
    sl_put(u, l, lo, hi);
}
template <> struct sl_quant<SL_DTYPE_IQ2_XXS> : sl_quant_256<false, false> {
    static constexpr int BYTES = 66; /* d, per 32: 4 indices, signs and scale */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b)) * 0.125f;
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        uint32_t w[2];
        sl_words(b + 2 + 8 * n, w);
        sl_unit_plain(u, 2 * n);
        u.scale_a = u.scale_b = (int)(2 * (w[1] >> 28) + 1);
#pragma unroll
        for (int l = 0; l < 4; l++)
            sl_put_iq2(u, l, __ldg(&sl_code_iq2xxs[w[0] >> (8 * l) & 255]),
                       sl_signs7(w[1] >> (7 * l) & 127));
    }
};
template <> struct sl_quant<SL_DTYPE_IQ2_XS> : sl_quant_256<false, true> {
    static constexpr int BYTES = 74; /* d, 32 words of index and signs, scales[8] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b)) * 0.125f;
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        uint32_t w[2], s = sl_u8(b + 66 + n);
        sl_words(b + 2 + 8 * n, w);
        sl_unit_plain(u, 2 * n);
        u.scale_a = (int)(2 * (s & 15) + 1);
        u.scale_b = (int)(2 * (s >> 4) + 1);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t v = w[l / 2] >> (16 * (l % 2)) & 0xffff;
            sl_put_iq2(u, l, __ldg(&sl_code_iq2xs[v & 511]), sl_signs7(v >> 9));
        }
    }
};
template <> struct sl_quant<SL_DTYPE_IQ2_S> : sl_quant_256<false, true> {
    static constexpr int BYTES = 82; /* d, qs[32], signs[32], qh[8], scales[8] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b)) * 0.125f;
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        uint32_t qs = sl_word(b + 2 + 4 * n), signs = sl_word(b + 34 + 4 * n);
        uint32_t qh = sl_u8(b + 66 + n), s = sl_u8(b + 74 + n);
        sl_unit_plain(u, 2 * n);
        u.scale_a = (int)(2 * (s & 15) + 1);
        u.scale_b = (int)(2 * (s >> 4) + 1);
#pragma unroll
        for (int l = 0; l < 4; l++)
            sl_put_iq2(u, l, __ldg(&sl_code_iq2s[(qs >> (8 * l) & 255) | (qh >> (2 * l) & 3) << 8]),
                       signs >> (8 * l));
    }
};
template <> struct sl_quant<SL_DTYPE_IQ3_XXS> : sl_quant_256<false, false> {
    static constexpr int BYTES = 98; /* d, qs[64], 8 words of signs and scale */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b)) * 0.25f;
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        uint32_t w[2], bits = sl_word(b + 66 + 4 * n);
        sl_words(b + 2 + 8 * n, w);
        sl_unit_plain(u, 2 * n);
        u.scale_a = u.scale_b = (int)(2 * (bits >> 28) + 1);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t signs = sl_signs7(bits >> (7 * l) & 127);
            uint32_t c0 = __ldg(&sl_code_iq3xxs[w[l / 2] >> (16 * (l % 2)) & 255]);
            uint32_t c1 = __ldg(&sl_code_iq3xxs[w[l / 2] >> (16 * (l % 2) + 8) & 255]);
            sl_put(u, l, sl_signs(sl_codes3(c0, SL_IQ3XXS_VALUES), signs),
                   sl_signs(sl_codes3(c1, SL_IQ3XXS_VALUES), signs >> 4));
        }
    }
};
template <> struct sl_quant<SL_DTYPE_IQ3_S> : sl_quant_256<false, false> {
    static constexpr int BYTES = 110; /* d, qs[64], qh[8], signs[32], scales[4] */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        uint32_t w[2], signs = sl_word(b + 74 + 4 * n), qh = sl_u8(b + 66 + n);
        sl_words(b + 2 + 8 * n, w);
        sl_unit_plain(u, 2 * n);
        u.scale_a = u.scale_b = (int)(2 * (sl_u8(b + 106 + n / 2) >> (n % 2 * 4) & 15) + 1);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t i0 = (w[l / 2] >> (16 * (l % 2)) & 255) | (qh >> (2 * l) & 1) << 8;
            uint32_t i1 = (w[l / 2] >> (16 * (l % 2) + 8) & 255) | (qh >> (2 * l + 1) & 1) << 8;
            uint32_t s = signs >> (8 * l);
            sl_put(u, l, sl_signs(sl_codes3(__ldg(&sl_code_iq3s[i0]), SL_IQ3S_VALUES), s),
                   sl_signs(sl_codes3(__ldg(&sl_code_iq3s[i1]), SL_IQ3S_VALUES), s >> 4));
        }
    }
};
template <> struct sl_quant<SL_DTYPE_IQ1_S> : sl_quant_256<false, false> {
    static constexpr int BYTES = 50; /* d, qs[32], 8 words of high bits, scale, sign of the delta */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b)) * 0.125f;
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        uint32_t qs = sl_word(b + 2 + 4 * n), qh = sl_u16(b + 34 + 2 * n);
        sl_unit_plain(u, 2 * n);
        u.scale_a = u.scale_b = (int)(2 * (qh >> 12 & 7) + 1);
#pragma unroll
        for (int l = 0; l < 4; l++)
            sl_put_iq1(u, l, (qs >> (8 * l) & 255) | (qh >> (3 * l) & 7) << 8, qh >> 15);
    }
};
template <> struct sl_quant<SL_DTYPE_IQ1_M> : sl_quant_256<false, true> {
    static constexpr int BYTES = 56; /* qs[32], qh[16], four words of scales, atop them d */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        uint32_t w[2];
        sl_words(b + 48, w);
        uint32_t bits =
            (w[0] >> 12 & 15) | (w[0] >> 28) << 4 | (w[1] >> 12 & 15) << 8 | (w[1] >> 28) << 12;
        d = sl_f16(bits) * 0.125f;
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        uint32_t qs = sl_word(b + 4 * n), qh = sl_u16(b + 32 + 2 * n);
        uint32_t s = sl_u16(b + 48 + n / 2 * 2) >> (n % 2 * 6);
        sl_unit_plain(u, 2 * n);
        u.scale_a = (int)(2 * (s & 7) + 1);
        u.scale_b = (int)(2 * (s >> 3 & 7) + 1);
#pragma unroll
        for (int l = 0; l < 4; l++) {
            uint32_t h = qh >> (4 * l) & 15;
            sl_put_iq1(u, l, (qs >> (8 * l) & 255) | (h & 7) << 8, h >> 3);
        }
    }
};

/* Base 3: four bytes, each standing for five digits in a fraction of 256, to the digits that p, a
 * power of 3, moves to the top. */
__device__ __forceinline__ uint32_t sl_trits(uint32_t w, uint32_t p) {
    uint32_t even = (w & 0x00ff00ffu) * p & 0x00ff00ffu;
    uint32_t odd = (w >> 8 & 0x00ff00ffu) * p & 0x00ff00ffu;
    return (even * 3 >> 8 & 0x00030003u) | (odd * 3 & 0x03000300u);
}
template <> struct sl_quant<SL_DTYPE_TQ1_0> : sl_quant_256<false, false> {
    static constexpr int BYTES = 54; /* qs[48] qh[4] d */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b + 52));
        dmin = 0;
    }
    __device__ static uint32_t power(int n) {
        return n < 2 ? (n ? 3u : 1u) : n == 2 ? 9u : n == 3 ? 27u : 81u;
    }
    __device__ static void group(const uint8_t *b, int g, uint32_t (&out)[4]) {
        uint32_t w[4];
        if (g < 15) {
            sl_words(b + (g < 10 ? g % 2 * 16 : 32), w);
            uint32_t p = power(g < 10 ? g / 2 : g - 10);
            for (int i = 0; i < 4; i++)
                out[i] = sl_less(sl_trits(w[i], p), 1);
        } else {
            uint32_t h = sl_word(b + 48);
            for (int i = 0; i < 4; i++)
                out[i] = sl_less(sl_trits(h, power(i)), 1);
        }
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        sl_unit_plain(u, 2 * n);
        group(b, 2 * n, u.a);
        group(b, 2 * n + 1, u.b);
    }
};
template <> struct sl_quant<SL_DTYPE_TQ2_0> : sl_quant_256<false, false> {
    static constexpr int BYTES = 66; /* qs[64] d */
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b + 64));
        dmin = 0;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int half = n / 4, seg = n % 2, v = n / 2 % 2;
        uint32_t w[4];
        sl_words(b + half * 32 + seg * 16, w);
        for (int i = 0; i < 4; i++) {
            u.a[i] = sl_less(w[i] >> (4 * v) & 0x03030303u, 1);
            u.b[i] = sl_less(w[i] >> (4 * v + 2) & 0x03030303u, 1);
        }
        sl_unit_plain(u, 0);
        u.group_a = half * 8 + v * 4 + seg;
        u.group_b = u.group_a + 2;
    }
};

/* IQ2_K to IQ6_K: values of a table, to which a group may add a constant. */

/* Four bytes, each plus c (0 to 127), modulo 256. */
__device__ __forceinline__ uint32_t sl_plus(uint32_t v, uint32_t c) {
    return ((v & 0x7f7f7f7fu) + c * 0x01010101u) ^ (v & 0x80808080u);
}
/* Four bytes below 8 to those of an 8-byte table. */
__device__ __forceinline__ uint32_t sl_values8(uint32_t x, uint32_t t0, uint32_t t1) {
    x |= x >> 4;
    return sl_perm(t0, t1, (x & 0xff) | (x >> 8 & 0xff00));
}
/* b's bytes where `bits`, ones in the lowest bits of bytes, has one. */
__device__ __forceinline__ uint32_t sl_choose(uint32_t a, uint32_t b, uint32_t bits) {
    uint32_t mask = bits * 255u;
    return (a & ~mask) | (b & mask);
}
/* The values of groups a and b: nibbles of w, above them bits from `at` on of h's bytes, of a, and
 * from `at_b` on, of b. */
template <int TABLES>
__device__ __forceinline__ void sl_table_values(const uint32_t (&w)[4], const uint32_t (&h)[4],
                                                int at, int at_b, const uint32_t (&t)[TABLES][4],
                                                struct sl_unit &u) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t a[TABLES], b[TABLES];
#pragma unroll
        for (int k = 0; k < TABLES; k++)
            sl_nibble_values(w[i], t[k], a[k], b[k]);
        uint32_t ha = h[i] >> at, hb = h[i] >> at_b;
#pragma unroll
        for (int k = 0; k < TABLES / 2; k++) {
            a[k] = sl_choose(a[2 * k], a[2 * k + 1], ha & 0x01010101u);
            b[k] = sl_choose(b[2 * k], b[2 * k + 1], hb & 0x01010101u);
        }
        u.a[i] = TABLES == 2 ? a[0] : sl_choose(a[0], a[TABLES / 2 - 1], ha >> 1 & 0x01010101u);
        u.b[i] = TABLES == 2 ? b[0] : sl_choose(b[0], b[TABLES / 2 - 1], hb >> 1 & 0x01010101u);
    }
}
__device__ __forceinline__ void sl_plus_extra(const uint8_t *b, uint32_t added, struct sl_unit &u) {
    uint32_t extra = sl_u16(b + 2);
    uint32_t add_a = extra >> u.group_a & 1 ? added : 0, add_b = extra >> u.group_b & 1 ? added : 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u.a[i] = sl_plus(u.a[i], add_a);
        u.b[i] = sl_plus(u.b[i], add_b);
    }
    u.min_a = u.min_b = 0;
}
__device__ __forceinline__ int sl_nibble_at(const uint8_t *b, int i) {
    return (int)(sl_u8(b + i / 2) >> (i % 2 * 4) & 15);
}
struct sl_quant_iqk : sl_quant_256<false, true> {
    __device__ static void scales(const uint8_t *b, float &d, float &dmin) {
        d = sl_f16(sl_u16(b));
        dmin = 0;
    }
};

template <> struct sl_quant<SL_DTYPE_IQ2_K> : sl_quant_iqk {
    static constexpr int BYTES = 76; /* d extra scales[8] qs[64] */
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int half = n / 4, seg = n % 2, v = n / 2 % 2;
        uint32_t w[4];
        sl_words(b + 12 + half * 32 + seg * 16, w);
        for (int i = 0; i < 4; i++) {
            u.a[i] = sl_values8(w[i] >> (4 * v) & 0x03030303u, 0x1101f3e1u, 0);
            u.b[i] = sl_values8(w[i] >> (4 * v + 2) & 0x03030303u, 0x1101f3e1u, 0);
        }
        u.group_a = half * 8 + v * 4 + seg;
        u.group_b = u.group_a + 2;
        u.scale_a = sl_nibble_at(b + 4, u.group_a) - 8;
        u.scale_b = sl_nibble_at(b + 4, u.group_b) - 8;
        sl_plus_extra(b, 5, u);
    }
};
template <> struct sl_quant<SL_DTYPE_IQ3_K> : sl_quant_iqk {
    static constexpr int BYTES = 110; /* d extra signs scales[8] qs[64] qh[32] */
    __device__ static int scale(const uint8_t *b, int g) {
        int odd = 2 * sl_nibble_at(b + 6, g) + 1;
        return sl_u16(b + 4) >> g & 1 ? -odd : odd;
    }
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        int half = n / 4, seg = n % 2, v = n / 2 % 2, bit = half * 4 + v * 2;
        uint32_t w[4], h[4];
        sl_words(b + 14 + half * 32 + seg * 16, w);
        sl_words(b + 78 + seg * 16, h);
        for (int i = 0; i < 4; i++) {
            uint32_t a = (w[i] >> (4 * v) & 0x03030303u) | (h[i] >> bit & 0x01010101u) << 2;
            uint32_t c = (w[i] >> (4 * v + 2) & 0x03030303u) | (h[i] >> (bit + 1) & 0x01010101u)
                                                                   << 2;
            u.a[i] = sl_values8(a, 0xf6e9d8c1u, 0x2f1c0d01u);
            u.b[i] = sl_values8(c, 0xf6e9d8c1u, 0x2f1c0d01u);
        }
        u.group_a = half * 8 + v * 4 + seg;
        u.group_b = u.group_a + 2;
        u.scale_a = scale(b, u.group_a);
        u.scale_b = scale(b, u.group_b);
        sl_plus_extra(b, 4, u);
    }
};
/* IQ4_K, IQ5_K: scales_h[4] scales_l[8] behind d and extra. */
__device__ __forceinline__ int sl_scale_6bit(const uint8_t *b, int g) {
    return sl_nibble_at(b + 8, g) + (int)(sl_u8(b + 4 + g / 4) >> (g % 4 * 2) & 3) * 16 - 32;
}
template <> struct sl_quant<SL_DTYPE_IQ4_K> : sl_quant_iqk {
    static constexpr int BYTES = 144; /* d extra scales qs[128] */
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        const uint32_t t[4] = SL_IQ4_TABLE;
        uint32_t w[4];
        sl_words(b + 16 + 16 * n, w);
        sl_nibble_table(w, t, u);
        u.group_a = 2 * n;
        u.group_b = 2 * n + 1;
        u.scale_a = sl_scale_6bit(b, u.group_a);
        u.scale_b = sl_scale_6bit(b, u.group_b);
        sl_plus_extra(b, 4, u);
    }
};
template <> struct sl_quant<SL_DTYPE_IQ5_K> : sl_quant_iqk {
    static constexpr int BYTES = 176; /* d extra scales qs[128] qh[32] */
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        const uint32_t t[2][4] = {{0xa4998e82u, 0xc7bfb6adu, 0xe2dcd5ceu, 0xfaf4eee8u},
                                  {0x110b05ffu, 0x2b241d17u, 0x4d443b33u, 0x796d6157u}};
        int c = n / 2, seg = n % 2;
        uint32_t w[4], h[4];
        sl_words(b + 16 + 16 * n, w);
        sl_words(b + 144 + 16 * seg, h);
        sl_table_values(w, h, 2 * c, 2 * c + 1, t, u);
        u.group_a = 4 * c + seg;
        u.group_b = u.group_a + 2;
        u.scale_a = sl_scale_6bit(b, u.group_a);
        u.scale_b = sl_scale_6bit(b, u.group_b);
        sl_plus_extra(b, 2, u);
    }
};
template <> struct sl_quant<SL_DTYPE_IQ6_K> : sl_quant_iqk {
    static constexpr int BYTES = 212; /* d extra scales[16] qs[128] qh[64] */
    __device__ static void unit(const uint8_t *b, int n, struct sl_unit &u) {
        const uint32_t t[4][4] = {{0x938d8781u, 0xa8a39e98u, 0xbab6b1acu, 0xcac6c2beu},
                                  {0xd8d4d1cdu, 0xe4e1dedbu, 0xf0edeae7u, 0xfbf8f5f3u},
                                  {0x060300feu, 0x110e0c09u, 0x1e1b1714u, 0x2c282421u},
                                  {0x3b37332fu, 0x4d48443fu, 0x625c5752u, 0x79736d67u}};
        int c = n / 2, seg = n % 2;
        uint32_t w[4], h[4];
        sl_words(b + 20 + 16 * n, w);
        sl_words(b + 148 + 32 * (c / 2) + 16 * seg, h);
        sl_table_values(w, h, c % 2 * 4, c % 2 * 4 + 2, t, u);
        u.group_a = 4 * c + seg;
        u.group_b = u.group_a + 2;
        u.scale_a = (int8_t)sl_u8(b + 4 + u.group_a);
        u.scale_b = (int8_t)sl_u8(b + 4 + u.group_b);
        sl_plus_extra(b, 1, u);
    }
};

/* X(NAME) for the quantised types, and for the float types. */
#define SL_QUANT_TYPES(X)                                                                          \
    X(Q4_0)                                                                                        \
    X(Q4_1)                                                                                        \
    X(Q5_0)                                                                                        \
    X(Q5_1)                                                                                        \
    X(Q8_0)                                                                                        \
    X(Q2_K)                                                                                        \
    X(Q3_K)                                                                                        \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(Q6_K)                                                                                        \
    X(IQ1_S)                                                                                       \
    X(IQ1_M)                                                                                       \
    X(IQ2_XXS)                                                                                     \
    X(IQ2_XS)                                                                                      \
    X(IQ2_S)                                                                                       \
    X(IQ3_XXS)                                                                                     \
    X(IQ3_S)                                                                                       \
    X(IQ4_NL)                                                                                      \
    X(IQ4_XS) X(MXFP4) X(TQ1_0) X(TQ2_0) X(IQ2_K) X(IQ3_K) X(IQ4_K) X(IQ5_K) X(IQ6_K)
#define SL_FLOAT_TYPES(X) X(F32) X(F16) X(BF16)

/* ---- float types ---- */

template <int T> __device__ __forceinline__ float sl_load_float(const void *w, size_t i) {
    if (T == SL_DTYPE_F32)
        return __ldg((const float *)w + i);
    uint32_t h = __ldg((const unsigned short *)w + i);
    return T == SL_DTYPE_F16 ? sl_f16(h) : __uint_as_float(h << 16);
}

#endif
