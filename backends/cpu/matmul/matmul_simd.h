/* Products with 256-element and 32-element types for one input row: weights stream by once, 16 rows
 * at a time, so that partial sums are added up by transposing instead of row by row. A template:
 * included once per instruction set. */
#ifndef SL_BACKENDS_CPU_MATMUL_SIMD_H
#define SL_BACKENDS_CPU_MATMUL_SIMD_H

#include "backends/cpu/matmul/matmul_super.h"

#ifdef __AVX2__

/* Rows o..o+15 of w; those beyond the end repeat the last. */
SL_INLINE void row_pointers(const struct sl_mm_rows *w, uint32_t o, const uint8_t **row) {
    for (uint32_t r = 0; r < 16; r++)
        row[r] = w->data + (o + r < w->n_rows ? o + r : w->n_rows - 1) * w->row_bytes;
}

SL_INLINE void store_rows(float *out, uint32_t o, uint32_t n_rows, vf a) {
    if (n_rows - o >= 16)
        vf_store(out + o, a);
    else
        vf_store_n(out + o, n_rows - o, a);
}

/* Prefetches `bytes` at p and returns the address after them. Each step of a kernel prefetches as
 * many bytes as it reads, from the rows that come next and in address order: hardware prefetchers
 * lose track of 16 short streams. Into L2, since a core has few miss buffers for L1. */
SL_INLINE const uint8_t *prefetch_on(const uint8_t *p, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + i, _MM_HINT_T1);
    return p + bytes;
}

/* What a block of the input row gives to all weight rows. */
struct super_x {
    v x[4];           /* in the type's order */
    v base[4];        /* an offset of 128: what it adds, negated, to start from; ORDER_LANES: 2 */
    v correct;        /* sub 16 with a smaller offset: pairs with the scales to the same end */
    v sum_hi, sum_lo; /* sums of q as 128 * hi + lo, for minima */
};

/* Sub-blocks of 16 with an offset of 128. */
SL_INLINE bool is_wide(struct super_traits tr) {
    return tr.order == ORDER_NATURAL && tr.offset == 128;
}

SL_INLINE void super_x_load(enum sl_dtype t, const struct sl_qx *g, struct super_x *x) {
    const struct super_traits tr = super_traits(t);
    const int8_t *q = g->q;
    if (tr.order == ORDER_NATURAL) {
        for (int k = 0; k < 4; k++)
            x->x[k] = v_load(q + 64 * k);
    } else if (tr.order == ORDER_HALVES) {
        x->x[0] = v_load2(q, q + 64);
        x->x[1] = v_load2(q + 32, q + 96);
        x->x[2] = v_load2(q + 128, q + 192);
        x->x[3] = v_load2(q + 160, q + 224);
    } else {
        for (int h = 0; h < 2; h++) {
            v a = v_load(q + 128 * h), b = v_load(q + 128 * h + 64), off = v_set8(tr.offset);
            x->x[2 * h] = v_even128(a, b);
            x->x[2 * h + 1] = v_odd128(a, b);
            x->base[h] = v_sub32(v_zero(), v_dpbusd_wide(v_dpbusd_wide(v_zero(), off, x->x[2 * h]),
                                                         off, x->x[2 * h + 1]));
        }
    }
    __m256i sum = _mm256_loadu_si256((const __m256i *)g->q256.sum);
    if (is_wide(tr)) {
        for (int k = 0; k < 4; k++)
            x->base[k] = v_sub32(v_zero(), v_dpbusd_wide(v_zero(), v_set8(tr.offset), x->x[k]));
    } else if (tr.offset && tr.order == ORDER_NATURAL) {
        /* Two factors, for 32 * 2032 would leave int16. */
        int a = tr.offset == 32 ? 16 : tr.offset, b = tr.offset - a;
        x->correct = v_join(_mm256_mullo_epi16(sum, _mm256_set1_epi16((short)-a)),
                            _mm256_mullo_epi16(sum, _mm256_set1_epi16((short)-b)));
    }
    if (tr.has_min) {
        if (tr.sub == 32) {
            __m256i s = _mm256_hadd_epi16(sum, sum); /* 0..3 in the low lane, 4..7 in the high */
            sum = _mm256_permute4x64_epi64(s, 0xd8);
        }
        __m256i hi = _mm256_srai_epi16(sum, 7);
        __m256i lo = _mm256_and_si256(sum, _mm256_set1_epi16(127));
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(hi, lo), 0xd8);
        /* hi of 16 subs in the low lane, lo in the high; sub 32: 8 of them, twice */
        x->sum_hi = v_bcast128(&(__m128i[1]){_mm256_castsi256_si128(bytes)});
        x->sum_lo = v_bcast128(&(__m128i[1]){_mm256_extracti128_si256(bytes, 1)});
    }
}

/* The 16 partial sums of one block for nt input rows, scales and offset included: acc[t]. */
SL_INLINE void super_dot(enum sl_dtype t, const int nt, const uint8_t *b, const struct super_x *x,
                         uint8_t *min, v *acc) {
    const struct super_traits tr = super_traits(t);
    v u[4];
    uint64_t neg[4];
    super_bytes(t, b, u, neg);
    v s = super_scales(t, b, min);
    if (tr.order == ORDER_LANES) {
        __m256i s32 = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(v_low(s)));
        v s0 = v_scales_lanes(s32, 0), s1 = v_scales_lanes(s32, 4);
        for (int i = 0; i < nt; i++) {
            v a = v_dpbusd_wide(v_dpbusd_wide(x[i].base[0], u[0], x[i].x[0]), u[1], x[i].x[1]);
            v c = v_dpbusd_wide(v_dpbusd_wide(x[i].base[1], u[2], x[i].x[2]), u[3], x[i].x[3]);
            acc[i] = v_add32(v_mul32(a, s0), v_mul32(c, s1));
        }
        return;
    }
    if (is_wide(tr)) {
        for (int i = 0; i < nt; i++)
            acc[i] = v_zero();
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < nt; i++)
                acc[i] = v_add_scaled(acc[i], x[i].base[k], u[k], x[i].x[k], s, k);
        return;
    }
    for (int i = 0; i < nt; i++)
        acc[i] = tr.offset ? v_dpwssd(v_zero(), s, x[i].correct) : v_zero();
    for (int k = 0; k < 4; k++) {
        v sk;
        if (tr.sub == 16)
            sk = v_scales16(s, k);
        else if (tr.order == ORDER_HALVES)
            sk = k == 0   ? v_scales32(s, 0, 2)
                 : k == 1 ? v_scales32(s, 1, 3)
                 : k == 2 ? v_scales32(s, 4, 6)
                          : v_scales32(s, 5, 7);
        else
            sk = k == 0   ? v_scales32(s, 0, 1)
                 : k == 1 ? v_scales32(s, 2, 3)
                 : k == 2 ? v_scales32(s, 4, 5)
                          : v_scales32(s, 6, 7);
        for (int i = 0; i < nt; i++) {
            v xk = tr.is_signed ? v_negate_bits(x[i].x[k], neg[k]) : x[i].x[k];
            acc[i] = v_dpwssd(acc[i], v_maddubs(u[k], xk), sk);
        }
    }
}

/* imin of 16 rows, whose minima are 8 (sub 32) or 16 bytes apart. */
SL_INLINE v super_min(enum sl_dtype t, const uint8_t *min, const struct super_x *x) {
    v part[4];
    int n = super_traits(t).sub == 32 ? 2 : 4;
    for (int i = 0; i < n; i++) {
        v m = v_load(min + 64 * i);
        v hi = v_dpbusd(v_zero(), m, x->sum_hi);
        part[i] = v_dpbusd(v_sll32(hi, 7), m, x->sum_lo);
    }
    if (n == 2)
        return v_pairadd(part[0], part[1]);
    return v_pairadd(v_pairadd(part[0], part[1]), v_pairadd(part[2], part[3]));
}

/* nt input rows, one or two: two share the unpacking. */
SL_INLINE void vec_super_n(enum sl_dtype t, const int nt, const struct sl_mm_rows *w,
                           const void *const *xv, float *const *out) {
    const struct super_traits tr = super_traits(t);
    const uint32_t n_blocks = w->n_in / 256, min_bytes = tr.sub == 32 ? 8 : 16;
    const vf factor = vf_set(super_d_factor(t));
    _Alignas(64) uint16_t d[16], dmin[16];
    _Alignas(64) uint8_t min[256];
    const uint8_t *row[16];
    for (uint32_t o = 0; o < w->n_rows; o += 16) {
        vf total[2] = {vf_zero(), vf_zero()};
        const uint8_t *next = sl_mm_next_rows(w, o, 16);
        row_pointers(w, o, row);
        for (uint32_t i = 0; i < n_blocks; i++) {
            struct super_x x[2];
            v u[2][4];
            for (int n = 0; n < nt; n++)
                super_x_load(t, (const struct sl_qx *)xv[n] + i, &x[n]);
            SL_NO_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                v a[4][2];
                for (uint32_t j = 0; j < 4; j++) {
                    uint32_t r = 4 * q + j;
                    const uint8_t *b = row[r] + i * tr.bytes;
                    next = prefetch_on(next, tr.bytes);
                    super_dot(t, nt, b, x, min + r * min_bytes, a[j]);
                    d[r] = super_d(t, b);
                    if (tr.has_min)
                        dmin[r] = ld16(b + tr.dmin_at);
                }
                for (int n = 0; n < nt; n++)
                    u[n][q] = v_reduce4(a[0][n], a[1][n], a[2][n], a[3][n]);
            }
            vf dw = vf_from_f16(d);
            if (super_d_factor(t) != 1.0f)
                dw = vf_mul(dw, factor);
            for (int n = 0; n < nt; n++) {
                vf dx = vf_set(((const struct sl_qx *)xv[n] + i)->q256.d);
                v isum = v_sum128(u[n][0], u[n][1], u[n][2], u[n][3]);
                total[n] = vf_fma(vf_mul(dw, dx), vf_from_int(isum), total[n]);
                if (tr.has_min)
                    total[n] = vf_fnma(vf_mul(vf_from_f16(dmin), dx),
                                       vf_from_int(super_min(t, min, &x[n])), total[n]);
            }
        }
        for (int n = 0; n < nt; n++)
            store_rows(out[n], o, w->n_rows, total[n]);
    }
}

SL_INLINE void vec_super(enum sl_dtype t, const struct sl_mm_rows *w, const void *x, float *out) {
    vec_super_n(t, 1, w, &x, &out);
}

/* 32-element types, four blocks at a time: 16-byte lane j of a vector is block j. */
struct block_traits {
    uint8_t bytes, qs_at, qh_at; /* qh_at 0: no fifth bits */
    uint8_t offset;              /* u = q + offset */
    bool has_min;
};

SL_INLINE struct block_traits block_traits(enum sl_dtype t) {
    switch (t) {
    case SL_DTYPE_Q4_0:
        return (struct block_traits){18, 2, 0, 8, false};
    case SL_DTYPE_Q4_1:
        return (struct block_traits){20, 4, 0, 0, true};
    case SL_DTYPE_Q5_0:
        return (struct block_traits){22, 6, 2, 16, false};
    case SL_DTYPE_Q5_1:
        return (struct block_traits){24, 8, 4, 0, true};
    case SL_DTYPE_Q8_0:
        return (struct block_traits){34, 2, 0, 128, false};
    case SL_DTYPE_IQ4_NL:
        return (struct block_traits){18, 2, 0, 128, false};
    default: /* MXFP4 */
        return (struct block_traits){17, 1, 0, 12, false};
    }
}

/* MXFP4's values, + 12. */
static const uint8_t fp4_bytes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

/* What nibbles stand for; NULL: themselves. */
SL_INLINE const uint8_t *block_table(enum sl_dtype t) {
    return t == SL_DTYPE_IQ4_NL ? iq4_bytes : t == SL_DTYPE_MXFP4 ? fp4_bytes : NULL;
}

/* First and second 16 elements of four blocks. */
SL_INLINE void block_bytes(enum sl_dtype t, const uint8_t *const *p, v *out_lo, v *out_hi) {
    const struct block_traits tr = block_traits(t);
    if (t == SL_DTYPE_Q8_0) {
        const v flip = v_set8(0x80);
        *out_lo = v_xor(v_load4(p[0] + 2, p[1] + 2, p[2] + 2, p[3] + 2), flip);
        *out_hi = v_xor(v_load4(p[0] + 18, p[1] + 18, p[2] + 18, p[3] + 18), flip);
        return;
    }
    const v low = v_set8(15);
    const int at = tr.qs_at;
    v a = v_load4(p[0] + at, p[1] + at, p[2] + at, p[3] + at);
    v lo = v_and(a, low), hi = v_and(v_srl16(a, 4), low);
    if (tr.qh_at) {
        uint64_t bits_lo = 0, bits_hi = 0;
        for (int j = 0; j < 4; j++) {
            uint32_t h = ld32(p[j] + tr.qh_at);
            bits_lo |= (uint64_t)(h & 0xffff) << (16 * j);
            bits_hi |= (uint64_t)(h >> 16) << (16 * j);
        }
        lo = v_or_bits(lo, bits_lo, v_set8(16));
        hi = v_or_bits(hi, bits_hi, v_set8(16));
    }
    if (block_table(t)) {
        v table = v_bcast128(block_table(t));
        lo = v_lookup(table, lo);
        hi = v_lookup(table, hi);
    }
    *out_lo = lo;
    *out_hi = hi;
}

SL_INLINE v block_dot(enum sl_dtype t, v acc, v lo, v xl, v hi, v xh) {
    if (block_traits(t).offset == 128)
        return v_dpbusd_wide(v_dpbusd_wide(acc, lo, xl), hi, xh);
    return v_dpbusd(v_dpbusd(acc, lo, xl), hi, xh);
}

/* d of 16 rows: the bits of an f16, or MXFP4's exponent. */
struct block_scales {
    _Alignas(64) uint16_t d[16], m[16];
};

SL_INLINE void block_scale(enum sl_dtype t, const uint8_t *b, struct block_scales *s, uint32_t r) {
    s->d[r] = t == SL_DTYPE_MXFP4 ? b[0] : ld16(b);
    if (block_traits(t).has_min)
        s->m[r] = ld16(b + 2);
}

SL_INLINE vf block_d(enum sl_dtype t, const struct block_scales *s) {
    return t == SL_DTYPE_MXFP4 ? vf_from_e8m0(s->d) : vf_from_f16(s->d);
}

SL_INLINE void vec_block(enum sl_dtype t, const struct sl_mm_rows *w, const void *xv, float *out) {
    const struct block_traits tr = block_traits(t);
    const uint32_t n_blocks = w->n_in / 32;
    struct block_scales s[4];
    const uint8_t *row[16];
    for (uint32_t o = 0; o < w->n_rows; o += 16) {
        vf total = vf_zero();
        const uint8_t *next = sl_mm_next_rows(w, o, 16);
        row_pointers(w, o, row);
        for (uint32_t i = 0; i < n_blocks; i += 4) {
            const struct sl_qx *g = (const struct sl_qx *)xv + i / 8;
            const uint32_t first = i % 8, n = n_blocks - i < 4 ? n_blocks - i : 4;
            v a = v_load(g->q + 32 * first), b = v_load(g->q + 32 * first + 64);
            v xl = v_even128(a, b), xh = v_odd128(a, b), off = v_set8(tr.offset), u[4];
            v base =
                tr.offset ? v_sub32(v_zero(), block_dot(t, v_zero(), off, xl, off, xh)) : v_zero();
            uint32_t at[4];
            for (uint32_t j = 0; j < 4; j++)
                at[j] = (i + (j < n ? j : n - 1)) * tr.bytes;
            SL_NO_UNROLL
            for (uint32_t q = 0; q < 4; q++) {
                v acc[4];
                for (uint32_t k = 0; k < 4; k++) {
                    uint32_t r = 4 * q + k;
                    const uint8_t *p[4] = {row[r] + at[0], row[r] + at[1], row[r] + at[2],
                                           row[r] + at[3]};
                    v lo, hi;
                    next = prefetch_on(next, 4 * tr.bytes);
                    block_bytes(t, p, &lo, &hi);
                    acc[k] = block_dot(t, base, lo, xl, hi, xh);
                    for (uint32_t j = 0; j < 4; j++)
                        block_scale(t, p[j], &s[j], r);
                }
                u[q] = v_reduce4(acc[0], acc[1], acc[2], acc[3]);
            }
            v_transpose128(u);
            for (uint32_t j = 0; j < n; j++) {
                vf dx = vf_set(g->q32.d[first + j]);
                total = vf_fma(vf_mul(block_d(t, &s[j]), dx), vf_from_int(u[j]), total);
                if (tr.has_min) /* dmin = -m */
                    total = vf_fma(vf_mul(vf_from_f16(s[j].m), dx),
                                   vf_set((float)g->q32.sum[first + j]), total);
            }
        }
        store_rows(out, o, w->n_rows, total);
    }
}

#endif
#endif
