/* Products with one input row, or two, where vectors have 32 bytes: 8 weight rows together (4, if
 * there are two input rows), a register each for their partial sums, which one transposing
 * reduction turns into a vector of 8 sums. The types whose values come from large tables stay with
 * matmul_simd.h. A template, for AVX2 only.
 *
 * Names: y_ for what works on a YMM register. */
#ifndef SL_BACKENDS_CPU_MATMUL_ROWS8_H
#define SL_BACKENDS_CPU_MATMUL_ROWS8_H

#include "backends/cpu/matmul/matmul_simd.h"

#if defined(__AVX2__) && !defined(__AVX512BW__)

/* Lets the compiler neither regroup sums, which would keep all products of a block at a time, nor
 * take a stored value's parts from registers where a load spreads one for nothing. */
#define SL_AS_IT_IS(a)  __asm__("" : "+x"(a))
#define SL_IN_MEMORY(a) __asm__("" : "+m"(a))

SL_INLINE bool in_rows8(enum sl_dtype t) {
    return sl_dtype_is_block32(t) || t == SL_DTYPE_Q2_K || t == SL_DTYPE_Q3_K ||
           t == SL_DTYPE_Q4_K || t == SL_DTYPE_Q5_K || t == SL_DTYPE_Q6_K || t == SL_DTYPE_IQ4_XS;
}

/* Rows o.. of w, those beyond the end being the last again; with two input rows the four rows
 * twice. */
SL_INLINE void rows8_pointers(const struct sl_mm_rows *w, uint32_t o, int nt, const uint8_t **row) {
    for (uint32_t r = 0; r < 8; r++) {
        uint32_t i = o + (nt == 1 ? r : r % 4);
        row[r] = w->data + (i < w->n_rows ? i : w->n_rows - 1) * w->row_bytes;
    }
}

SL_INLINE void rows8_store(float *const *out, uint32_t o, uint32_t n_rows, int nt, __m256 total) {
    const uint32_t nr = nt == 1 ? 8 : 4, n = n_rows - o < nr ? n_rows - o : nr;
    float y[8];
    _mm256_storeu_ps(y, total);
    for (int i = 0; i < nt; i++)
        memcpy(out[i] + o, y + 4 * i, n * sizeof *y);
}

/* A factor per input row over the lanes of its sums. */
SL_INLINE __m256 y_per_input(const float *f, int nt) {
    return nt == 1 ? _mm256_set1_ps(f[0]) : _mm256_set_m128(_mm_set1_ps(f[1]), _mm_set1_ps(f[0]));
}

/* 4 bytes of each row. */
SL_INLINE __m256i y_gather4(const uint8_t *const *row, size_t at) {
    __m256i a[4];
    for (int r = 0; r < 4; r++)
        a[r] = _mm256_set1_epi32((int)ld32(row[r] + at));
    return _mm256_blend_epi32(_mm256_blend_epi32(a[0], a[1], 0x22),
                              _mm256_blend_epi32(a[2], a[3], 0x88), 0xcc);
}
SL_INLINE __m256i y_gather8(const uint8_t *const *row, size_t at) {
    return _mm256_blend_epi32(y_gather4(row, at), y_gather4(row + 4, at), 0xf0);
}
/* Of 8 pairs of f16 the first (`which` 0) or the second. */
SL_INLINE __m256 y_from_f16(__m256i pairs, int which) {
    const __m128i first = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13);
    __m128i order = which ? _mm_add_epi8(first, _mm_set1_epi8(2)) : first;
    __m256i h = _mm256_shuffle_epi8(pairs, _mm256_broadcastsi128_si256(order));
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(h, 0x08)));
}

/* Lane i of the result: the sum of the lanes of a[i]. add: 32 or 16 bits wide; of 16-bit lanes it
 * leaves two sums in each 32 bits. */
#define SL_Y_REDUCE(name, add)                                                                     \
    SL_INLINE __m256i name##4(const __m256i *a) {                                                  \
        __m256i b = add(_mm256_unpacklo_epi32(a[0], a[1]), _mm256_unpackhi_epi32(a[0], a[1]));     \
        __m256i c = add(_mm256_unpacklo_epi32(a[2], a[3]), _mm256_unpackhi_epi32(a[2], a[3]));     \
        return add(_mm256_unpacklo_epi64(b, c), _mm256_unpackhi_epi64(b, c));                      \
    }
SL_Y_REDUCE(y_reduce32_, _mm256_add_epi32)
SL_Y_REDUCE(y_reduce16_, _mm256_add_epi16)
#undef SL_Y_REDUCE
SL_INLINE __m256i y_join_sums(__m256i lo, __m256i hi) {
    return _mm256_add_epi32(_mm256_permute2x128_si256(lo, hi, 0x20),
                            _mm256_permute2x128_si256(lo, hi, 0x31));
}
SL_INLINE __m256i y_reduce8(const __m256i *a) {
    return y_join_sums(y_reduce32_4(a), y_reduce32_4(a + 4));
}
/* The same of 16-bit lanes of which four fit in one together. */
SL_INLINE __m256i y_reduce8_narrow(const __m256i *a) {
    const __m256i ones = _mm256_set1_epi16(1);
    return y_join_sums(_mm256_madd_epi16(y_reduce16_4(a), ones),
                       _mm256_madd_epi16(y_reduce16_4(a + 4), ones));
}

/* Pairs of products as int16: of bytes that are unsigned, or signed (|w| <= 128, |x| <= 127: at
 * most 32,512). */
SL_INLINE __m256i y_products(bool is_signed, __m256i w, __m256i x) {
    return is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
                     : _mm256_maddubs_epi16(w, x);
}

SL_INLINE __m256i y_low4(__m256i a) {
    return _mm256_and_si256(a, _mm256_set1_epi8(15));
}
SL_INLINE __m256i y_high4(__m256i a) {
    return y_low4(_mm256_srli_epi16(a, 4));
}
/* The bits `mask` of bytes shifted to the left by n, or to the right by -n. */
SL_INLINE __m256i y_bits(__m256i a, int n, int mask) {
    a = n > 0 ? _mm256_slli_epi16(a, n) : n < 0 ? _mm256_srli_epi16(a, -n) : a;
    return _mm256_and_si256(a, _mm256_set1_epi8((char)mask));
}

/* A block of the 32-element types. Signed are those whose offset would take bytes to 255. */
SL_INLINE bool block8_signed(enum sl_dtype t) {
    return block_traits(t).offset == 128;
}

SL_INLINE __m256i block8_bytes(enum sl_dtype t, const uint8_t *b) {
    const struct block_traits tr = block_traits(t);
    if (t == SL_DTYPE_Q8_0)
        return y_load(b + tr.qs_at);
    const __m256i shift = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    __m256i u = y_low4(_mm256_srlv_epi32(y_bcast128(b + tr.qs_at), shift));
    if (tr.qh_at)
        u = _mm256_or_si256(
            u, _mm256_and_si256(y_mask_bits(ld32(b + tr.qh_at)), _mm256_set1_epi8(16)));
    if (t == SL_DTYPE_IQ4_NL)
        u = _mm256_shuffle_epi8(y_bcast128(sl_iq4_values), u);
    if (t == SL_DTYPE_MXFP4)
        u = _mm256_shuffle_epi8(y_bcast128(fp4_bytes), u);
    return u;
}

SL_INLINE void vec_block8(enum sl_dtype t, const int nt, const struct sl_mm_rows *w,
                          const void *const *xv, float *const *out) {
    const struct block_traits tr = block_traits(t);
    const uint32_t n_blocks = w->n_in / 32, nr = nt == 1 ? 8 : 4;
    const uint8_t *row[8];
    for (uint32_t o = 0; o < w->n_rows; o += nr) {
        __m256 total = _mm256_setzero_ps();
        const uint8_t *next = sl_mm_next_rows(w, o, nr);
        rows8_pointers(w, o, nt, row);
        for (uint32_t i = 0; i < n_blocks; i++) {
            const struct sl_qx *g[2];
            __m256i x[2], acc[8];
            float dx[2], sum[2];
            for (int n = 0; n < nt; n++) {
                g[n] = (const struct sl_qx *)xv[n] + i / 8;
                x[n] = y_load(g[n]->q + i % 8 * 32);
                dx[n] = g[n]->q32.d[i % 8];
                sum[n] = (float)g[n]->q32.sum[i % 8];
            }
            const size_t at = (size_t)i * tr.bytes;
            next = prefetch_on(next, nr * tr.bytes);
            SL_UNROLL
            for (uint32_t r = 0; r < nr; r++) {
                __m256i u = block8_bytes(t, row[r] + at);
                for (int n = 0; n < nt; n++)
                    acc[4 * n + r] = y_products(block8_signed(t), u, x[n]);
            }
            __m256i isum;
            if (block8_signed(t)) {
                SL_UNROLL
                for (int r = 0; r < 8; r++)
                    acc[r] = _mm256_madd_epi16(acc[r], _mm256_set1_epi16(1));
                isum = y_reduce8(acc);
            } else {
                isum = y_reduce8_narrow(acc);
            }
            __m256 f = _mm256_cvtepi32_ps(isum), sums = y_per_input(sum, nt);
            if (tr.offset && !block8_signed(t)) /* exact: below 2^20 */
                f = _mm256_fnmadd_ps(_mm256_set1_ps(tr.offset), sums, f);
            __m256i h = y_gather8(row, at);
            __m256 d = t == SL_DTYPE_MXFP4
                           ? y_from_e8m0(_mm256_and_si256(h, _mm256_set1_epi32(255)))
                           : y_from_f16(h, 0);
            __m256 dxs = y_per_input(dx, nt);
            total = _mm256_fmadd_ps(_mm256_mul_ps(d, dxs), f, total);
            if (tr.has_min) /* dmin = -m */
                total = _mm256_fmadd_ps(_mm256_mul_ps(y_from_f16(h, 1), dxs), sums, total);
        }
        rows8_store(out, o, w->n_rows, nt, total);
    }
}

/* 16 words as [even, odd]: the scales of a vector's two 16-byte lanes come to lie in theirs. */
SL_INLINE __m256i y_even_odd(__m256i s) {
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    return _mm256_permute4x64_epi64(_mm256_shuffle_epi8(s, order), 0xd8);
}
/* In each lane, its word i all over. */
SL_INLINE __m256i y_spread16(__m256i s, int i) {
    return _mm256_shuffle_epi8(s, _mm256_set1_epi16((short)(2 * i | (2 * i + 1) << 8)));
}

/* Step k of 4 through a block: two vectors of 32 elements. */
SL_INLINE void super8_bytes(enum sl_dtype t, const uint8_t *b, int k, __m256i *u) {
    const int half = k / 2, odd = k % 2;
    const struct super_traits tr = super_traits(t);
    const uint8_t *qs = b + tr.qs_at, *high = b + tr.high_at;
    switch (t) {
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K: {
        __m256i a = y_load(qs + 32 * k);
        u[0] = y_low4(a);
        u[1] = y_high4(a);
        if (t == SL_DTYPE_Q5_K) {
            __m256i h = y_load(high);
            u[0] = _mm256_or_si256(u[0], y_bits(h, 4 - 2 * k, 16));
            u[1] = _mm256_or_si256(u[1], y_bits(h, 3 - 2 * k, 16));
        }
        break;
    }
    case SL_DTYPE_Q6_K: {
        __m256i a = y_load(qs + 32 * k), h = y_load(high + 32 * half);
        u[0] = _mm256_or_si256(y_low4(a), y_bits(h, 4 - 2 * odd, 0x30));
        u[1] = _mm256_or_si256(y_high4(a), y_bits(h, -2 * odd, 0x30));
        break;
    }
    case SL_DTYPE_Q2_K:
    case SL_DTYPE_Q3_K: {
        __m256i a = y_load(qs + 32 * half);
        u[0] = y_bits(a, -4 * odd, 3);
        u[1] = y_bits(a, -4 * odd - 2, 3);
        if (t == SL_DTYPE_Q3_K) {
            __m256i h = y_load(high);
            u[0] = _mm256_or_si256(u[0], y_bits(h, 2 - 2 * k, 4));
            u[1] = _mm256_or_si256(u[1], y_bits(h, 1 - 2 * k, 4));
        }
        break;
    }
    default: { /* IQ4_XS */
        __m256i a = y_load(qs + 32 * k), table = y_bcast128(sl_iq4_values);
        u[0] = _mm256_shuffle_epi8(table, y_low4(a));
        u[1] = _mm256_shuffle_epi8(table, y_high4(a));
    }
    }
}

/* The inputs that meet these. */
SL_INLINE void super8_x(enum sl_dtype t, const int8_t *q, int k, __m256i *x) {
    if (t == SL_DTYPE_Q6_K) {
        x[0] = y_load(q + 128 * (k / 2) + 32 * (k % 2));
        x[1] = y_load(q + 128 * (k / 2) + 32 * (k % 2) + 64);
    } else if (t == SL_DTYPE_IQ4_XS) {
        x[0] = y_load2(q + 64 * k, q + 64 * k + 32);
        x[1] = y_load2(q + 64 * k + 16, q + 64 * k + 48);
    } else {
        x[0] = y_load(q + 64 * k);
        x[1] = y_load(q + 64 * k + 32);
    }
}

SL_INLINE bool super8_is_k45(enum sl_dtype t) {
    return t == SL_DTYPE_Q4_K || t == SL_DTYPE_Q5_K;
}
SL_INLINE bool super8_signed(enum sl_dtype t) {
    return t == SL_DTYPE_IQ4_XS;
}

/* A block of 8 rows: what it adds. */
struct super8_sums {
    __m256 d, dmin;
    __m256i isum, imin;
};

/* 16 bytes d, dmin, scales and minima of each row: scale [sub][row], twice as int16;
 * min [sub / 2], row by row [sub % 2]. */
SL_INLINE void super8_scales_k45(const uint8_t *const *row, uint32_t (*scale)[8], __m256i *min,
                                 struct super8_sums *out) {
    const __m256i low = _mm256_set1_epi32(0x0f0f0f0f), high = _mm256_set1_epi32(0x30303030);
    const __m256i six = _mm256_set1_epi32(0x3f3f3f3f);
    __m256i a = y_load2(row[0], row[4]), b = y_load2(row[1], row[5]);
    __m256i c = y_load2(row[2], row[6]), e = y_load2(row[3], row[7]);
    __m256i ab = _mm256_unpacklo_epi32(a, b), ce = _mm256_unpacklo_epi32(c, e);
    __m256i d = _mm256_unpacklo_epi64(ab, ce), s0 = _mm256_unpackhi_epi64(ab, ce);
    ab = _mm256_unpackhi_epi32(a, b);
    ce = _mm256_unpackhi_epi32(c, e);
    __m256i s1 = _mm256_unpacklo_epi64(ab, ce), s2 = _mm256_unpackhi_epi64(ab, ce);
    out->d = y_from_f16(d, 0);
    out->dmin = y_from_f16(d, 1);
    const __m256i s[2] = {_mm256_and_si256(s0, six),
                          _mm256_or_si256(_mm256_and_si256(s2, low),
                                          _mm256_and_si256(_mm256_srli_epi32(s0, 2), high))};
    const __m256i m[2] = {_mm256_and_si256(s1, six),
                          _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi32(s2, 4), low),
                                          _mm256_and_si256(_mm256_srli_epi32(s1, 2), high))};
    /* byte 0 of each 4 as a word, twice; bytes 0 and 1 */
    const __m256i twice = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -128, 0, -128, 4, -128, 4, -128, 8, -128, 8, -128, 12, -128, 12, -128));
    const __m256i both = _mm256_add_epi8(twice, _mm256_set1_epi32(0x00010000));
    SL_UNROLL
    for (int j = 0; j < 8; j++)
        _mm256_storeu_si256(
            (__m256i *)(void *)scale[j],
            _mm256_shuffle_epi8(s[j / 4], _mm256_add_epi8(twice, _mm256_set1_epi8(j % 4))));
    SL_UNROLL
    for (int j = 0; j < 4; j++)
        min[j] = _mm256_shuffle_epi8(m[j / 2], _mm256_add_epi8(both, _mm256_set1_epi8(j % 2 * 2)));
}

/* The scales of vector i (0, 1) of step k: s has [even, odd] subs, or with subs of 32 all in both
 * lanes. */
SL_INLINE __m256i super8_spread(enum sl_dtype t, __m256i s, int k, int i) {
    if (t == SL_DTYPE_Q6_K)
        return y_spread16(s, 4 * (k / 2) + k % 2 + 2 * i);
    if (t != SL_DTYPE_IQ4_XS)
        return y_spread16(s, 2 * k + i);
    const __m256i odd = _mm256_setr_epi64x(0, 0, 0x0202020202020202, 0x0202020202020202);
    return _mm256_shuffle_epi8(
        s, _mm256_add_epi8(odd, _mm256_set1_epi16((short)(4 * k | (4 * k + 1) << 8))));
}

/* acc += a step's products of one row with each input row. */
SL_INLINE void super8_step(enum sl_dtype t, int nt, const uint8_t *b, int k, const __m256i (*x)[2],
                           const __m256i *scale, __m256i *acc) {
    __m256i u[2];
    super8_bytes(t, b, k, u);
    for (int n = 0; n < nt; n++) {
        for (int j = 0; j < 2; j++)
            acc[4 * n] = _mm256_add_epi32(
                acc[4 * n],
                _mm256_madd_epi16(y_products(super8_signed(t), u[j], x[n][j]), scale[j]));
        SL_AS_IT_IS(acc[4 * n]);
    }
}

/* Q4_K, Q5_K: all rows step by step, so that the inputs are loaded once. */
SL_INLINE const uint8_t *super8_k45(enum sl_dtype t, int nt, const uint8_t *const *b,
                                    const struct sl_qx *const *g, const uint8_t *next,
                                    struct super8_sums *out) {
    const int nr = nt == 1 ? 8 : 4;
    uint32_t scale[8][8];
    __m256i min[4], acc[8];
    super8_scales_k45(b, scale, min, out);
    SL_IN_MEMORY(scale);
    for (int r = 0; r < 8; r++)
        acc[r] = _mm256_setzero_si256();
    SL_UNROLL
    for (int k = 0; k < 4; k++) {
        __m256i x[2][2];
        next = prefetch_on(next, (uint32_t)nr * super_traits(t).bytes / 4);
        for (int n = 0; n < nt; n++)
            super8_x(t, g[n]->q, k, x[n]);
        SL_UNROLL
        for (int r = 0; r < nr; r++) {
            const __m256i sk[2] = {_mm256_set1_epi32((int)scale[2 * k][r]),
                                   _mm256_set1_epi32((int)scale[2 * k + 1][r])};
            super8_step(t, nt, b[r], k, x, sk, acc + r);
        }
    }
    out->isum = y_reduce8(acc);
    /* sums of 32, each input row's in its lane */
    __m256i sum = _mm256_hadd_epi16(y_load(g[0]->q256.sum), y_load(g[nt - 1]->q256.sum));
    sum = _mm256_permute4x64_epi64(sum, 0xd8);
    __m256i m01 = _mm256_add_epi32(_mm256_madd_epi16(min[0], _mm256_shuffle_epi32(sum, 0x00)),
                                   _mm256_madd_epi16(min[1], _mm256_shuffle_epi32(sum, 0x55)));
    __m256i m23 = _mm256_add_epi32(_mm256_madd_epi16(min[2], _mm256_shuffle_epi32(sum, 0xaa)),
                                   _mm256_madd_epi16(min[3], _mm256_shuffle_epi32(sum, 0xff)));
    out->imin = _mm256_add_epi32(m01, m23);
    return next;
}

/* The others: row by row, for a row's bytes and scales are at three places. */
SL_INLINE const uint8_t *super8_rows(enum sl_dtype t, int nt, const uint8_t *const *b,
                                     const struct sl_qx *const *g, const uint8_t *next,
                                     struct super8_sums *out) {
    const struct super_traits tr = super_traits(t);
    const int nr = nt == 1 ? 8 : 4;
    __m256i acc[8], min[8];
    SL_UNROLL
    for (int r = 0; r < nr; r++) {
        uint8_t mins[16];
        __m256i s = v_low(super_scales(t, b[r], mins));
        next = prefetch_on(next, tr.bytes);
        s = tr.sub == 16 ? y_even_odd(s) : _mm256_permute4x64_epi64(s, 0x44);
        for (int n = 0; n < nt; n++) {
            __m256i sum = y_load(g[n]->q256.sum);
            acc[4 * n + r] = _mm256_setzero_si256();
            if (tr.has_min)
                min[4 * n + r] = _mm256_madd_epi16(
                    _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)mins)),
                    sum);
            if (tr.offset && !super8_signed(t)) /* by halves, for 32 * 2032 would leave int16 */
                acc[4 * n + r] = _mm256_slli_epi32(
                    _mm256_madd_epi16(
                        s, _mm256_mullo_epi16(y_even_odd(sum),
                                              _mm256_set1_epi16((short)(-tr.offset / 2)))),
                    1);
        }
        SL_UNROLL
        for (int k = 0; k < 4; k++) {
            __m256i x[2][2];
            for (int n = 0; n < nt; n++)
                super8_x(t, g[n]->q, k, x[n]);
            const __m256i sk[2] = {super8_spread(t, s, k, 0), super8_spread(t, s, k, 1)};
            super8_step(t, nt, b[r], k, x, sk, acc + r);
        }
    }
    const bool end = tr.d_at + 4u > tr.bytes; /* not beyond the block */
    __m256i h = y_gather8(b, end ? tr.d_at - 2u : tr.d_at);
    out->d = y_from_f16(h, end);
    out->isum = y_reduce8(acc);
    if (tr.has_min) {
        out->dmin = y_from_f16(h, 1);
        out->imin = y_reduce8(min);
    }
    return next;
}

SL_INLINE void vec_super8(enum sl_dtype t, const int nt, const struct sl_mm_rows *w,
                          const void *const *xv, float *const *out) {
    const uint32_t nr = nt == 1 ? 8 : 4;
    const uint8_t *row[8], *b[8];
    const struct sl_qx *g[2];
    for (uint32_t o = 0; o < w->n_rows; o += nr) {
        __m256 total = _mm256_setzero_ps();
        const uint8_t *next = sl_mm_next_rows(w, o, nr);
        rows8_pointers(w, o, nt, row);
        for (uint32_t i = 0; i < w->n_in / 256; i++) {
            struct super8_sums s;
            float dx[2];
            for (int r = 0; r < 8; r++)
                b[r] = row[r] + (size_t)i * super_traits(t).bytes;
            for (int n = 0; n < nt; n++) {
                g[n] = (const struct sl_qx *)xv[n] + i;
                dx[n] = g[n]->q256.d;
            }
            next = super8_is_k45(t) ? super8_k45(t, nt, b, g, next, &s)
                                    : super8_rows(t, nt, b, g, next, &s);
            __m256 dxs = y_per_input(dx, nt);
            total = _mm256_fmadd_ps(_mm256_mul_ps(s.d, dxs), _mm256_cvtepi32_ps(s.isum), total);
            if (super_traits(t).has_min)
                total =
                    _mm256_fnmadd_ps(_mm256_mul_ps(s.dmin, dxs), _mm256_cvtepi32_ps(s.imin), total);
        }
        rows8_store(out, o, w->n_rows, nt, total);
    }
}

#endif
#endif
