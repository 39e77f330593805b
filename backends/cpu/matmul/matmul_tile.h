/* Products for many input rows: a panel of 16 weight rows is unpacked to bytes once, laid out so
 * that one vector holds 4 inputs of all 16 rows, and then meets every tile of input rows. Partial
 * sums stay apart by weight row, so nothing has to be added across lanes. A template: included once
 * per instruction set. */
#ifndef SL_BACKENDS_CPU_MATMUL_TILE_H
#define SL_BACKENDS_CPU_MATMUL_TILE_H

#include "backends/cpu/matmul/matmul_rows8.h"

#ifdef __AVX2__

/* Input rows whose sums fit in registers together. */
#ifdef __AVX512BW__
#define SL_MM_SUBTILE 12
#define SL_TILE_8     false /* 8 weight rows at a time */
#else
#define SL_MM_SUBTILE 6
#define SL_TILE_8     true
#endif

/* A panel, per 256 inputs. */
struct super_panel {
    _Alignas(64) uint8_t w[64][64]; /* [input / 4][row][input % 4], q + offset */
    int32_t scale[16][16];          /* [sub][row] */
    int16_t min[8][16][2];          /* [sub / 2][row][sub % 2]: minima, or offset * scale */
    float d[16], dmin[16];
};
struct block_panel {
    _Alignas(64) uint8_t w[64][64];
    float d[8][16], m[8][16]; /* [block][row] */
};
_Static_assert(sizeof(struct super_panel) <= SL_MM_PANEL_BYTES, "panel");
_Static_assert(sizeof(struct block_panel) <= SL_MM_PANEL_BYTES, "panel");

/* A tile of n rows, per 256 inputs: n * sizeof(struct sl_qx) bytes as
 *   256 types: int8 q[64][n][4], int16 sum of 16 [8][n][2], int16 sum of 32 [4][n][2], float d[n]
 *   32 types:  int8 q[64][n][4], float d[8][n], int32 sum of 32 [8][n] */
static void pack_q256(const struct sl_qx *const *rows, uint32_t n_tok, uint32_t n, void *tile) {
    for (uint32_t i = 0; i < n / 256; i++) {
        uint32_t *o = (uint32_t *)tile + (size_t)i * n_tok * (sizeof(struct sl_qx) / 4);
        for (uint32_t t = 0; t < n_tok; t++) {
            const struct sl_qx *g = rows[t] + i;
            const uint32_t *q = (const uint32_t *)(const void *)g->q;
            for (uint32_t k = 0; k < 64; k++)
                o[k * n_tok + t] = q[k];
            uint32_t pair[8];
            memcpy(pair, g->q256.sum, sizeof pair);
            for (uint32_t k = 0; k < 8; k++)
                o[(64 + k) * n_tok + t] = pair[k];
            for (uint32_t k = 0; k < 4; k++) {
                const int16_t *s = g->q256.sum + 4 * k;
                o[(72 + k) * n_tok + t] =
                    (uint16_t)(s[0] + s[1]) | (uint32_t)(uint16_t)(s[2] + s[3]) << 16;
            }
            memcpy(&o[76 * n_tok + t], &g->q256.d, 4);
        }
    }
}

static void pack_q32(const struct sl_qx *const *rows, uint32_t n_tok, uint32_t n, void *tile) {
    for (uint32_t i = 0; i < sl_qx_blocks(n); i++) {
        uint32_t *o = (uint32_t *)tile + (size_t)i * n_tok * (sizeof(struct sl_qx) / 4);
        for (uint32_t t = 0; t < n_tok; t++) {
            const struct sl_qx *g = rows[t] + i;
            const uint32_t *q = (const uint32_t *)(const void *)g->q;
            for (uint32_t k = 0; k < 64; k++)
                o[k * n_tok + t] = q[k];
            for (uint32_t k = 0; k < 8; k++) {
                memcpy(&o[(64 + k) * n_tok + t], &g->q32.d[k], 4);
                o[(72 + k) * n_tok + t] = (uint32_t)(int32_t)g->q32.sum[k];
            }
        }
    }
}

/* In each 16-byte lane the 4x4 transpose of 32-bit elements of r[4]. */
SL_INLINE void transpose32(v *r) {
    v a = v_unpacklo32(r[0], r[1]), b = v_unpackhi32(r[0], r[1]);
    v c = v_unpacklo32(r[2], r[3]), d = v_unpackhi32(r[2], r[3]);
    r[0] = v_unpacklo64(a, c);
    r[1] = v_unpackhi64(a, c);
    r[2] = v_unpacklo64(b, d);
    r[3] = v_unpackhi64(b, d);
}

/* Sixteen rows of 64 bytes, row[r] + at, to y: out of it column() takes 4 bytes of all rows. */
SL_INLINE void transpose_load(const uint8_t *const *row, size_t at, v (*y)[4]) {
    for (int q = 0; q < 4; q++) {
        for (int j = 0; j < 4; j++)
            y[q][j] = v_load(row[4 * q + j] + at);
        transpose32(y[q]);
    }
}
/* Columns i, 4 + i, 8 + i, 12 + i. */
SL_INLINE void columns(v (*y)[4], int i, v *z) {
    for (int q = 0; q < 4; q++)
        z[q] = y[q][i];
    v_transpose128(z);
}

/* Which group of 4 inputs the j-th 4 bytes of a block's k-th vector are. */
SL_INLINE int group_of(int order, int k, int j) {
    if (order == ORDER_HALVES)
        return 8 * (k / 2 * 4 + k % 2 + (j < 8 ? 0 : 2)) + j % 8;
    if (order == ORDER_LANES)
        return 8 * (k / 2 * 4 + j / 4) + k % 2 * 4 + j % 4;
    return 16 * k + j;
}

/* Byte vectors [4][16 rows][64] in some order to w [64][16 rows][4]. */
SL_INLINE void transpose_bytes(int order, const uint8_t *bytes, uint8_t (*w)[64]) {
    SL_NO_UNROLL
    for (int k = 0; k < 4; k++) {
        const uint8_t *row[16];
        v y[4][4], z[4];
        for (int r = 0; r < 16; r++)
            row[r] = bytes + (16 * k + r) * 64;
        transpose_load(row, 0, y);
        for (int i = 0; i < 4; i++) {
            columns(y, i, z);
            for (int l = 0; l < 4; l++)
                v_store(w[group_of(order, k, 4 * l + i)], z[l]);
        }
    }
}

/* Nibbles [2][16 rows], 64 bytes each at row[r] + at and + step: transposed before they are split,
 * which halves the shuffles. table: what they stand for, or NULL. */
SL_INLINE void transpose_nibbles(int order, const uint8_t *const *row, size_t at, size_t step,
                                 const uint8_t *table, uint8_t (*w)[64]) {
    const v low = v_set8(15), values = table ? v_bcast128(table) : v_zero();
    SL_NO_UNROLL
    for (int k = 0; k < 2; k++) {
        v y[4][4], z[4];
        transpose_load(row, at + (size_t)k * step, y);
        for (int i = 0; i < 4; i++) {
            columns(y, i, z);
            for (int l = 0; l < 4; l++) {
                v a = v_and(z[l], low), b = v_and(v_srl16(z[l], 4), low);
                v_store(w[group_of(order, 2 * k, 4 * l + i)], table ? v_lookup(values, a) : a);
                v_store(w[group_of(order, 2 * k + 1, 4 * l + i)], table ? v_lookup(values, b) : b);
            }
        }
    }
}

/* 32 bytes of 16 rows at row[r] + at to out[8], 4 bytes of all rows each. */
SL_INLINE void transpose_half(const uint8_t *const *row, size_t at, v *out) {
    v p[4], q[4];
    for (int j = 0; j < 4; j++) {
        p[j] = v_load2(row[j] + at, row[j + 4] + at);
        q[j] = v_load2(row[j + 8] + at, row[j + 12] + at);
    }
    transpose32(p);
    transpose32(q);
    for (int i = 0; i < 4; i++) {
        out[i] = v_even128(p[i], q[i]);
        out[4 + i] = v_odd128(p[i], q[i]);
    }
}

/* Q5_K: nibbles and, in bit j of qh, the fifth bits of sub-block j. */
SL_INLINE void transpose_q5_k(const uint8_t *const *row, uint8_t (*w)[64]) {
    const v low = v_set8(15), bit = v_set8(16);
    v h[8];
    transpose_half(row, super_traits(SL_DTYPE_Q5_K).high_at, h);
#define SL_FIFTH(s, g) ((s) < 4 ? v_sll16(h[g], 4 - (s)) : v_srl16(h[g], (s)-4))
#define SL_Q5_CHUNK(k, s0)                                                                         \
    do {                                                                                           \
        v y[4][4], z[4];                                                                           \
        transpose_load(row, super_traits(SL_DTYPE_Q5_K).qs_at + 64 * (k), y);                      \
        for (int i = 0; i < 4; i++) {                                                              \
            columns(y, i, z);                                                                      \
            for (int l = 0; l < 4; l++) {                                                          \
                const int j = 4 * l + i, g = j % 8;                                                \
                v a = l < 2 ? SL_FIFTH(s0, g) : SL_FIFTH((s0) + 2, g);                             \
                v b = l < 2 ? SL_FIFTH((s0) + 1, g) : SL_FIFTH((s0) + 3, g);                       \
                v_store(w[group_of(ORDER_HALVES, 2 * (k), j)], v_andor(z[l], low, v_and(a, bit))); \
                v_store(w[group_of(ORDER_HALVES, 2 * (k) + 1, j)],                                 \
                        v_andor(v_srl16(z[l], 4), low, v_and(b, bit)));                            \
            }                                                                                      \
        }                                                                                          \
    } while (0)
    SL_Q5_CHUNK(0, 0);
    SL_Q5_CHUNK(1, 4);
#undef SL_Q5_CHUNK
#undef SL_FIFTH
}

/* Q6_K: nibbles, and two high bits per element in qh, 32 elements apart. */
SL_INLINE void transpose_q6_k(const uint8_t *const *row, uint8_t (*w)[64]) {
    const v low = v_set8(15), bits = v_set8(0x30);
    const struct super_traits tr = super_traits(SL_DTYPE_Q6_K);
    SL_NO_UNROLL
    for (int k = 0; k < 2; k++) {
        v y[4][4], z[4], h[8];
        transpose_half(row, tr.high_at + 32 * (size_t)k, h);
        transpose_load(row, tr.qs_at + 64 * (size_t)k, y);
        for (int i = 0; i < 4; i++) {
            columns(y, i, z);
            for (int l = 0; l < 4; l++) {
                const int j = 4 * l + i, g = j % 8;
                v a = l < 2 ? v_sll16(h[g], 4) : v_sll16(h[g], 2);
                v b = l < 2 ? h[g] : v_srl16(h[g], 2);
                v_store(w[32 * k + j], v_andor(z[l], low, v_and(a, bits)));
                v_store(w[32 * k + 16 + j], v_andor(v_srl16(z[l], 4), low, v_and(b, bits)));
            }
        }
    }
}

/* s [16 rows][16] int16 to out [8][16 rows][2]. */
SL_INLINE void transpose_pairs(const int16_t *s, v *out) {
    v p[4], q[4];
    for (int j = 0; j < 4; j++) {
        p[j] = v_load2(s + 16 * j, s + 16 * (j + 4));
        q[j] = v_load2(s + 16 * (j + 8), s + 16 * (j + 12));
    }
    transpose32(p);
    transpose32(q);
    for (int i = 0; i < 4; i++) {
        out[i] = v_even128(p[i], q[i]);
        out[4 + i] = v_odd128(p[i], q[i]);
    }
}

/* u + offset of one block of 16 rows. */
SL_INLINE void unpack_super_bytes(enum sl_dtype t, const uint8_t *const *row, uint8_t (*w)[64]) {
    const struct super_traits tr = super_traits(t);
    switch (t) {
    case SL_DTYPE_Q4_K:
        transpose_nibbles(ORDER_HALVES, row, tr.qs_at, 64, NULL, w);
        return;
    case SL_DTYPE_IQ4_XS:
        transpose_nibbles(ORDER_LANES, row, tr.qs_at, 64, iq4_bytes, w);
        return;
    case SL_DTYPE_Q5_K:
        transpose_q5_k(row, w);
        return;
    case SL_DTYPE_Q6_K:
        transpose_q6_k(row, w);
        return;
    default:
        break;
    }
    _Alignas(64) uint8_t bytes[4 * 16 * 64];
    SL_NO_UNROLL
    for (uint32_t r = 0; r < 16; r++) {
        v u[4];
        uint64_t neg[4];
        super_bytes(t, row[r], u, neg);
        for (uint32_t k = 0; k < 4; k++) {
            if (tr.is_signed) /* + 64 */
                u[k] = v_add8(v_negate_bits(u[k], neg[k]), v_set8(64));
            v_store(bytes + (16 * k + r) * 64, u[k]);
        }
    }
    transpose_bytes(tr.order, bytes, w);
}

/* Block i of 16 rows; prefetches as much from `next` on, and returns where to go on. */
SL_INLINE const uint8_t *unpack_super(enum sl_dtype t, const uint8_t *const *row0, uint32_t i,
                                      const uint8_t *next, struct super_panel *p) {
    const struct super_traits tr = super_traits(t);
    _Alignas(64) uint8_t min[16];
    _Alignas(64) int16_t scale[16][16], mins[16][16];
    _Alignas(64) uint16_t d[16], dmin[16];
    const uint8_t *row[16];
    SL_NO_UNROLL
    for (uint32_t r = 0; r < 16; r++) {
        const uint8_t *b = row[r] = row0[r] + i * tr.bytes;
        next = prefetch_on(next, tr.bytes);
        _mm256_store_si256((__m256i *)scale[r], v_low(super_scales(t, b, min)));
        d[r] = super_d(t, b);
        if (tr.has_min) {
            dmin[r] = ld16(b + tr.dmin_at);
            /* No wider than it was written, or the load waits for the cache. */
            __m128i m8 = tr.sub == 32 ? _mm_loadl_epi64((const __m128i *)min)
                                      : _mm_load_si128((const __m128i *)min);
            _mm256_store_si256((__m256i *)mins[r], _mm256_cvtepu8_epi16(m8));
        }
    }
    unpack_super_bytes(t, row, p->w);
    v s[8], m[8];
    transpose_pairs(scale[0], s);
    if (tr.has_min)
        transpose_pairs(mins[0], m);
    for (int k = 0; k < (tr.sub == 32 ? 4 : 8); k++) {
        v_store(p->scale[2 * k], v_sra32(v_sll32(s[k], 16), 16));
        v_store(p->scale[2 * k + 1], v_sra32(s[k], 16));
        v_store(p->min[k],
                tr.has_min ? m[k] : v_mul16(s[k], v_set16(tr.is_signed ? 64 : tr.offset)));
    }
    vf_store(p->d, vf_mul(vf_from_f16(d), vf_set(super_d_factor(t))));
    vf_store(p->dmin, tr.has_min ? vf_from_f16(dmin) : vf_zero());
    return next;
}

/* Blocks 8i.. of 16 rows that have n_blocks; beyond the end: the last again. Prefetches as
 * unpack_super(). */
SL_INLINE const uint8_t *unpack_block(enum sl_dtype t, const uint8_t *const *row, uint32_t i,
                                      uint32_t n_blocks, const uint8_t *next,
                                      struct block_panel *p) {
    const struct block_traits tr = block_traits(t);
    _Alignas(64) uint8_t bytes[4 * 16 * 64];
    struct block_scales s[8];
    const bool nibbles = t != SL_DTYPE_Q8_0 && !tr.qh_at;
    SL_NO_UNROLL
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t h = 0; h < 2; h++) {
            const uint8_t *b[4];
            v lo, hi;
            for (uint32_t j = 0; j < 4; j++) {
                uint32_t k = 8 * i + 4 * h + j;
                b[j] = row[r] + (k < n_blocks ? k : n_blocks - 1) * tr.bytes;
                block_scale(t, b[j], &s[4 * h + j], r);
            }
            next = prefetch_on(next, 4 * tr.bytes);
            if (nibbles) {
                v_store(bytes + (16 * h + r) * 64, v_load4(b[0] + tr.qs_at, b[1] + tr.qs_at,
                                                           b[2] + tr.qs_at, b[3] + tr.qs_at));
                continue;
            }
            block_bytes(t, b, &lo, &hi);
            v_store(bytes + (32 * h + r) * 64, lo);
            v_store(bytes + (32 * h + 16 + r) * 64, hi);
        }
    if (nibbles) {
        const uint8_t *at[16];
        for (int r = 0; r < 16; r++)
            at[r] = bytes + 64 * r;
        transpose_nibbles(ORDER_LANES, at, 0, 1024, block_table(t), p->w);
    } else {
        transpose_bytes(ORDER_LANES, bytes, p->w);
    }
    for (int k = 0; k < 8; k++) {
        vf_store(p->d[k], block_d(t, &s[k]));
        if (tr.has_min)
            vf_store(p->m[k], vf_from_f16(s[k].m));
    }
    return next;
}

#ifdef __AVX512BW__

/* dot[t] = sum over n_groups groups of 4 inputs; w and q at the first. */
SL_INLINE void tile_dot(const int nt, bool wide, const uint8_t (*w)[64], const uint8_t *q,
                        uint32_t tok_bytes, int n_groups, v *dot) {
    for (int g = 0; g < n_groups; g++) {
        v a = v_load(w[g]);
        for (int t = 0; t < nt; t++) {
            v x = v_bcast32(q + (size_t)g * tok_bytes + 4 * t);
            dot[t] = wide ? v_dpbusd_wide(dot[t], a, x) : v_dpbusd(dot[t], a, x);
        }
    }
}

/* Adds one block to nt rows of a tile of n_tok. q: the block's part of the tile, from the first of
 * these rows on. */
SL_INLINE void tile_super(const int sub, const bool has_min, const bool wide, const int nt,
                          const struct super_panel *p, const uint8_t *q, uint32_t n_tok,
                          float *out) {
    const uint32_t tok_bytes = 4 * n_tok;
    v isum[SL_MM_SUBTILE];
    for (int t = 0; t < nt; t++)
        isum[t] = v_zero();
    SL_NO_UNROLL
    for (int s = 0; s < 256 / sub; s++) {
        v dot[SL_MM_SUBTILE], scale = v_load(p->scale[s]);
        for (int t = 0; t < nt; t++)
            dot[t] = v_zero();
        tile_dot(nt, wide, p->w + s * sub / 4, q + (size_t)(s * sub / 4) * tok_bytes, tok_bytes,
                 sub / 4, dot);
        for (int t = 0; t < nt; t++)
            isum[t] = v_add32(isum[t], v_mul32(dot[t], scale));
    }
    const uint8_t *sums = q + (size_t)(sub == 32 ? 72 : 64) * tok_bytes;
    const uint8_t *dx = q + (size_t)76 * tok_bytes;
    const vf d = vf_load(p->d), dmin = vf_load(p->dmin);
    for (int t = 0; t < nt; t++) {
        v imin = v_zero();
        for (int k = 0; k < 128 / sub; k++)
            imin =
                v_dpwssd(imin, v_load(p->min[k]), v_bcast32(sums + (size_t)k * tok_bytes + 4 * t));
        float f;
        memcpy(&f, dx + 4 * t, 4);
        vf total = vf_load(out + t * SL_MM_PANEL), df = vf_set(f);
        if (has_min) {
            total = vf_fma(vf_mul(d, df), vf_from_int(isum[t]), total);
            total = vf_fnma(vf_mul(dmin, df), vf_from_int(imin), total);
        } else {
            total = vf_fma(vf_mul(d, df), vf_from_int(v_sub32(isum[t], imin)), total);
        }
        vf_store(out + t * SL_MM_PANEL, total);
    }
}

/* The same for n_blocks <= 8 blocks of a 32-element type. */
SL_INLINE void tile_block(const int offset, const bool has_min, const bool wide, const int nt,
                          const struct block_panel *p, uint32_t n_blocks, const uint8_t *q,
                          uint32_t n_tok, float *out) {
    const uint32_t tok_bytes = 4 * n_tok;
    vf total[SL_MM_SUBTILE];
    for (int t = 0; t < nt; t++)
        total[t] = vf_load(out + t * SL_MM_PANEL);
    SL_NO_UNROLL
    for (uint32_t b = 0; b < n_blocks; b++) {
        const uint8_t *sums = q + (size_t)(72 + b) * tok_bytes;
        const uint8_t *dx = q + (size_t)(64 + b) * tok_bytes;
        v dot[SL_MM_SUBTILE];
        for (int t = 0; t < nt; t++)
            dot[t] = has_min ? v_zero() : v_mul32(v_bcast32(sums + 4 * t), v_set32(-offset));
        tile_dot(nt, wide, p->w + 8 * b, q + (size_t)(8 * b) * tok_bytes, tok_bytes, 8, dot);
        const vf d = vf_load(p->d[b]), m = vf_load(p->m[b]);
        for (int t = 0; t < nt; t++) {
            float f;
            memcpy(&f, dx + 4 * t, 4);
            vf df = vf_set(f);
            total[t] = vf_fma(vf_mul(d, df), vf_from_int(dot[t]), total[t]);
            if (has_min)
                total[t] = vf_fma(vf_mul(m, df), vf_from_int(v_bcast32(sums + 4 * t)), total[t]);
        }
    }
    for (int t = 0; t < nt; t++)
        vf_store(out + t * SL_MM_PANEL, total[t]);
}

#else /* AVX2 */

SL_INLINE __m256i y_bcast32(const uint8_t *p) {
    return _mm256_set1_epi32((int)ld32(p));
}

/* dot[t] += `scale` times the products of 4 groups with 8 rows, at w and q. Of pairs of products,
 * `together` fit into int16 at a time; 0: the bytes are offset by 128, and any two fit once they
 * are signed again. */
SL_INLINE void tile8_dot(const int nt, const int together, const uint8_t (*w)[64], const uint8_t *q,
                         uint32_t tok_bytes, __m256i scale, __m256i *dot) {
    const int n = together ? together : 1;
    for (int g = 0; g < 4; g += n) {
        __m256i a[4], sign = _mm256_setzero_si256();
        for (int i = 0; i < n; i++)
            a[i] = _mm256_load_si256((const __m256i *)(const void *)w[g + i]);
        if (!together) {
            sign = _mm256_xor_si256(a[0], _mm256_set1_epi8(-128));
            a[0] = _mm256_abs_epi8(sign);
        }
        SL_UNROLL
        for (int t = 0; t < nt; t++) {
            __m256i sum;
            for (int i = 0; i < n; i++) {
                __m256i x = y_bcast32(q + (size_t)(g + i) * tok_bytes + 4 * t);
                __m256i m = _mm256_maddubs_epi16(a[i], together ? x : _mm256_sign_epi8(x, sign));
                sum = i ? _mm256_add_epi16(sum, m) : m;
            }
            dot[t] = _mm256_add_epi32(dot[t], _mm256_madd_epi16(sum, scale));
            SL_AS_IT_IS(dot[t]);
        }
    }
}

/* Adds one block to nt rows of a tile of n_tok. q: the block's part of the tile, from the first of
 * these rows on. 8 weight rows at a time: their sums are as many registers as there are rows. */
SL_INLINE void tile_super(const int sub, const bool has_min, const int together, const int nt,
                          const struct super_panel *p, const uint8_t *q, uint32_t n_tok,
                          float *out) {
    const uint32_t tok_bytes = 4 * n_tok;
    const uint8_t *sums = q + (size_t)(sub == 32 ? 72 : 64) * tok_bytes;
    const uint8_t *dx = q + (size_t)76 * tok_bytes;
    SL_NO_UNROLL
    for (int h = 0; h < 16; h += 8) {
        __m256i isum[SL_MM_SUBTILE];
        for (int t = 0; t < nt; t++)
            isum[t] = _mm256_setzero_si256();
        SL_NO_UNROLL
        for (int i = 0; i < 16; i++) { /* 4 groups */
            __m256i s = y_load(&p->scale[i * 16 / sub][h]);
            s = _mm256_blend_epi16(s, _mm256_slli_epi32(s, 16), 0xaa);
            tile8_dot(nt, together, (const uint8_t(*)[64])(const void *)&p->w[4 * i][4 * h],
                      q + (size_t)(4 * i) * tok_bytes, tok_bytes, s, isum);
        }
        const __m256 d = _mm256_loadu_ps(p->d + h), dmin = _mm256_loadu_ps(p->dmin + h);
        SL_UNROLL
        for (int t = 0; t < nt; t++) {
            float *o = out + t * SL_MM_PANEL + h, f;
            memcpy(&f, dx + 4 * t, 4);
            __m256 total = _mm256_loadu_ps(o), df = _mm256_set1_ps(f);
            __m256i imin = _mm256_setzero_si256();
            for (int k = 0; together && k < 128 / sub; k++)
                imin = _mm256_add_epi32(
                    imin, _mm256_madd_epi16(y_load(p->min[k][h]),
                                            y_bcast32(sums + (size_t)k * tok_bytes + 4 * t)));
            __m256i i = has_min ? isum[t] : _mm256_sub_epi32(isum[t], imin);
            total = _mm256_fmadd_ps(_mm256_mul_ps(d, df), _mm256_cvtepi32_ps(i), total);
            if (has_min)
                total = _mm256_fnmadd_ps(_mm256_mul_ps(dmin, df), _mm256_cvtepi32_ps(imin), total);
            _mm256_storeu_ps(o, total);
        }
    }
}

/* The same for n_blocks <= 8 blocks of a 32-element type. */
SL_INLINE void tile_block(const int offset, const bool has_min, const int together, const int nt,
                          const struct block_panel *p, uint32_t n_blocks, const uint8_t *q,
                          uint32_t n_tok, float *out) {
    const uint32_t tok_bytes = 4 * n_tok;
    SL_NO_UNROLL
    for (uint32_t i = 0; i < 2 * n_blocks; i++) {
        const uint32_t b = i / 2, h = i % 2 * 8;
        const uint8_t *sums = q + (size_t)(72 + b) * tok_bytes;
        const uint8_t *dx = q + (size_t)(64 + b) * tok_bytes;
        __m256i dot[SL_MM_SUBTILE];
        for (int t = 0; t < nt; t++)
            dot[t] = has_min || !together
                         ? _mm256_setzero_si256()
                         : _mm256_mullo_epi32(y_bcast32(sums + 4 * t), _mm256_set1_epi32(-offset));
        SL_NO_UNROLL
        for (uint32_t g = 8 * b; g < 8 * b + 8; g += 4)
            tile8_dot(nt, together, (const uint8_t(*)[64])(const void *)&p->w[g][4 * h],
                      q + (size_t)g * tok_bytes, tok_bytes, _mm256_set1_epi16(1), dot);
        const __m256 d = _mm256_loadu_ps(p->d[b] + h), m = _mm256_loadu_ps(p->m[b] + h);
        SL_UNROLL
        for (int t = 0; t < nt; t++) {
            float *o = out + t * SL_MM_PANEL + h, f;
            memcpy(&f, dx + 4 * t, 4);
            __m256 total = _mm256_loadu_ps(o), df = _mm256_set1_ps(f);
            total = _mm256_fmadd_ps(_mm256_mul_ps(d, df), _mm256_cvtepi32_ps(dot[t]), total);
            if (has_min)
                total = _mm256_fmadd_ps(_mm256_mul_ps(m, df),
                                        _mm256_cvtepi32_ps(y_bcast32(sums + 4 * t)), total);
            _mm256_storeu_ps(o, total);
        }
    }
}

#endif

/* The kinds of products that a tile meets. Types of one kind share their code. */
enum tile_kind {
    TILE_16_MIN,     /* Q2_K */
    TILE_16,         /* 256-element types with subs of 16 and an offset */
    TILE_32_MIN,     /* Q4_K, Q5_K */
    TILE_32,         /* IQ2_XXS, IQ3 */
    TILE_32_WIDE,    /* IQ4_XS: offset 128 */
    TILE_BLOCK_MIN,  /* Q4_1, Q5_1 */
    TILE_BLOCK,      /* 32-element types with an offset */
    TILE_BLOCK_WIDE, /* of 128: Q8_0, IQ4_NL */
    TILE_16_WIDE,    /* IQ2_K to IQ6_K: offset 128 */
    TILE_16_LARGE,   /* AVX2: those of TILE_16 that are signed, IQ2_XS and IQ2_S */
};

SL_INLINE enum tile_kind tile_kind(enum sl_dtype t) {
    if (sl_dtype_is_block32(t))
        return block_traits(t).has_min         ? TILE_BLOCK_MIN
               : block_traits(t).offset == 128 ? TILE_BLOCK_WIDE
                                               : TILE_BLOCK;
    const struct super_traits tr = super_traits(t);
    if (tr.sub == 16)
        return tr.has_min                  ? TILE_16_MIN
               : tr.offset == 128          ? TILE_16_WIDE
               : SL_TILE_8 && tr.is_signed ? TILE_16_LARGE
                                           : TILE_16;
    return tr.has_min ? TILE_32_MIN : tr.offset == 128 ? TILE_32_WIDE : TILE_32;
}

/* How products are summed. AVX-512: is the offset 128? AVX2: see tile8_dot(). */
SL_INLINE int tile_sums(enum tile_kind kind) {
    bool wide = kind == TILE_BLOCK_WIDE || kind == TILE_32_WIDE || kind == TILE_16_WIDE;
    if (!SL_TILE_8)
        return wide;
    /* u <= 126; 63; 31: 4 * 2 * 31 * 127 < 32768 */
    return wide ? 0 : kind == TILE_16_LARGE || kind == TILE_32 ? 1 : kind == TILE_16 ? 2 : 4;
}

SL_INLINE void tile_n(enum tile_kind kind, const int nt, const void *panel, int offset,
                      uint32_t n_blocks, const uint8_t *q, uint32_t n_tok, float *out) {
    switch (kind) {
    case TILE_BLOCK_MIN:
    case TILE_BLOCK:
    case TILE_BLOCK_WIDE:
        tile_block(offset, kind == TILE_BLOCK_MIN, tile_sums(kind), nt, panel, n_blocks, q, n_tok,
                   out);
        break;
    default:
        tile_super(kind <= TILE_16 || kind >= TILE_16_WIDE ? 16 : 32,
                   kind == TILE_16_MIN || kind == TILE_32_MIN, tile_sums(kind), nt, panel, q, n_tok,
                   out);
    }
}

/* One code path per number of rows, so that sums are registers. */
SL_INLINE void tile_any(enum tile_kind kind, const void *panel, int offset, uint32_t n_blocks,
                        const uint8_t *x, uint32_t n_tok, float *out) {
    for (uint32_t t0 = 0; t0 < n_tok; t0 += SL_MM_SUBTILE) {
        const uint8_t *q = x + 4 * t0;
        float *o = out + t0 * SL_MM_PANEL;
        switch (n_tok - t0) {
#define SL_TILE_CASE(n)                                                                            \
    case n:                                                                                        \
        tile_n(kind, n, panel, offset, n_blocks, q, n_tok, o);                                     \
        break;
            SL_TILE_CASE(1)
            SL_TILE_CASE(2)
            SL_TILE_CASE(3)
            SL_TILE_CASE(4)
            SL_TILE_CASE(5)
#if SL_MM_SUBTILE > 6
            SL_TILE_CASE(6)
            SL_TILE_CASE(7)
            SL_TILE_CASE(8)
            SL_TILE_CASE(9)
            SL_TILE_CASE(10)
            SL_TILE_CASE(11)
#endif
#undef SL_TILE_CASE
        default:
            tile_n(kind, SL_MM_SUBTILE, panel, offset, n_blocks, q, n_tok, o);
        }
    }
}

#ifdef __AVX512BW__
#define SL_TILE_LARGE(X)
#else
#define SL_TILE_LARGE(X) X(TILE_16_LARGE)
#endif
#define SL_TILE_KINDS(X)                                                                           \
    X(TILE_16_MIN)                                                                                 \
    X(TILE_16)                                                                                     \
    X(TILE_32_MIN)                                                                                 \
    X(TILE_32)                                                                                     \
    X(TILE_32_WIDE)                                                                                \
    X(TILE_BLOCK_MIN) X(TILE_BLOCK) X(TILE_BLOCK_WIDE) X(TILE_16_WIDE) SL_TILE_LARGE(X)
#define SL_TILE_FUNCTION(K)                                                                        \
    static __attribute__((noinline)) void do_##K(const void *panel, int offset, uint32_t n_blocks, \
                                                 const uint8_t *x, uint32_t n_tok, float *out) {   \
        tile_any(K, panel, offset, n_blocks, x, n_tok, out);                                       \
    }
SL_TILE_KINDS(SL_TILE_FUNCTION)
typedef void tile_function(const void *panel, int offset, uint32_t n_blocks, const uint8_t *x,
                           uint32_t n_tok, float *out);
#define SL_TILE_ENTRY(K) [K] = do_##K,
static tile_function *const tile_functions[] = {SL_TILE_KINDS(SL_TILE_ENTRY)};

/* 256 inputs at a time, so that the panel and the results stay in the first-level cache. */
SL_INLINE void many_quant(enum sl_dtype t, const struct sl_mm_rows *w, const void *x,
                          uint32_t n_tok, uint32_t begin, uint32_t end, void *panel, float *out) {
    const uint32_t t0 = sl_mm_tile_start(n_tok, begin), n_all = sl_mm_tile_start(n_tok, end) - t0;
    const uint32_t n_blocks = w->n_in / 32;
    const size_t xrow_bytes = sl_qx_row_bytes(w->n_in);
    const uint8_t *next = sl_mm_next_rows(w, 0, 16);
    tile_function *const tile = tile_functions[tile_kind(t)];
    const int offset = sl_dtype_is_block32(t) ? block_traits(t).offset : 0;
    const uint8_t *row[16];
    row_pointers(w, 0, row);
    memset(out, 0, (size_t)n_all * SL_MM_PANEL * sizeof *out);
    for (uint32_t i = 0; i < sl_qx_blocks(w->n_in); i++) {
        if (sl_dtype_is_block32(t))
            next = unpack_block(t, row, i, n_blocks, next, panel);
        else
            next = unpack_super(t, row, i, next, panel);
        for (uint32_t j = begin; j < end; j++) {
            uint32_t at = sl_mm_tile_start(n_tok, j), n = sl_mm_tile_start(n_tok, j + 1) - at;
            const uint8_t *q =
                (const uint8_t *)x + at * xrow_bytes + (size_t)i * n * sizeof(struct sl_qx);
            tile(panel, offset, n_blocks - 8 * i < 8 ? n_blocks - 8 * i : 8, q, n,
                 out + (at - t0) * SL_MM_PANEL);
        }
    }
}

#endif
#endif
