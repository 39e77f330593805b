/* Products for many input rows: a panel of 16 weight rows is unpacked to bytes once, laid out so
 * that one vector holds 4 inputs of all 16 rows, and then meets every tile of input rows. Partial
 * sums stay apart by weight row, so nothing has to be added across lanes. A template: included once
 * per instruction set. */
#ifndef SL_BACKENDS_CPU_MATMUL_TILE_H
#define SL_BACKENDS_CPU_MATMUL_TILE_H

#include "backends/cpu/matmul_simd.h"

#ifdef __AVX2__

/* Input rows whose sums fit in registers together. */
#ifdef __AVX512BW__
#define SL_MM_SUBTILE 12
#else
#define SL_MM_SUBTILE 3
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

/* bytes [16 rows][256] to w [64][16 rows][4]. */
SL_INLINE void transpose_rows(const uint8_t *bytes, uint8_t (*w)[64]) {
    for (int c = 0; c < 4; c++) {
        v y[4][4];
        for (int q = 0; q < 4; q++) {
            for (int j = 0; j < 4; j++)
                y[q][j] = v_load(bytes + (4 * q + j) * 256 + 64 * c);
            transpose32(y[q]);
        }
        for (int i = 0; i < 4; i++) {
            v z[4] = {y[0][i], y[1][i], y[2][i], y[3][i]};
            v_transpose128(z);
            for (int l = 0; l < 4; l++)
                v_store(w[16 * c + 4 * l + i], z[l]);
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

SL_INLINE void unpack_super(enum sl_dtype t, const struct sl_mm_rows *w, void *panel) {
    const struct super_traits tr = super_traits(t);
    _Alignas(64) uint8_t bytes[16 * 256], min[16];
    _Alignas(64) int16_t scale[16][16], mins[16][16];
    _Alignas(64) uint16_t d[16], dmin[16];
    const uint8_t *row[16];
    row_pointers(w, 0, row);
    for (uint32_t i = 0; i < w->n_in / 256; i++) {
        struct super_panel *p = (struct super_panel *)((uint8_t *)panel + i * SL_MM_PANEL_BYTES);
        for (uint32_t r = 0; r < 16; r++) {
            const uint8_t *b = row[r] + i * tr.bytes;
            uint8_t *o = bytes + 256 * r;
            v u[4];
            uint64_t neg[4];
            prefetch_block(b, 16 * w->row_bytes, tr.bytes);
            super_bytes(t, b, u, neg);
            if (tr.order == ORDER_NATURAL) {
                for (int k = 0; k < 4; k++) {
                    if (tr.is_signed) /* + 64 */
                        u[k] = v_add8(v_negate_bits(u[k], neg[k]), v_set8(64));
                    v_store(o + 64 * k, u[k]);
                }
            } else if (tr.order == ORDER_HALVES) {
                v_store2(o, o + 64, u[0]);
                v_store2(o + 32, o + 96, u[1]);
                v_store2(o + 128, o + 192, u[2]);
                v_store2(o + 160, o + 224, u[3]);
            } else {
                v_store4(o, o + 32, o + 64, o + 96, u[0]);
                v_store4(o + 16, o + 48, o + 80, o + 112, u[1]);
                v_store4(o + 128, o + 160, o + 192, o + 224, u[2]);
                v_store4(o + 144, o + 176, o + 208, o + 240, u[3]);
            }
            _mm256_store_si256((__m256i *)scale[r], v_low(super_scales(t, b, min)));
            d[r] = super_d(t, b);
            if (tr.has_min) {
                dmin[r] = ld16(b + tr.dmin_at);
                _mm256_store_si256((__m256i *)mins[r],
                                   _mm256_cvtepu8_epi16(_mm_load_si128((const __m128i *)min)));
            }
        }
        transpose_rows(bytes, p->w);
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
    }
}

SL_INLINE void unpack_block(enum sl_dtype t, const struct sl_mm_rows *w, void *panel) {
    const struct block_traits tr = block_traits(t);
    const uint32_t n_blocks = w->n_in / 32;
    _Alignas(64) uint8_t bytes[16 * 256];
    struct block_scales s[8];
    const uint8_t *row[16];
    row_pointers(w, 0, row);
    for (uint32_t i = 0; i < n_blocks; i += 8) {
        struct block_panel *p =
            (struct block_panel *)((uint8_t *)panel + i / 8 * SL_MM_PANEL_BYTES);
        for (uint32_t r = 0; r < 16; r++)
            for (uint32_t h = 0; h < 8; h += 4) {
                const uint8_t *b[4];
                uint8_t *o = bytes + 256 * r + 32 * h;
                v lo, hi;
                for (uint32_t j = 0; j < 4; j++) { /* beyond the row: its last block again */
                    uint32_t k = i + h + j;
                    b[j] = row[r] + (k < n_blocks ? k : n_blocks - 1) * tr.bytes;
                    block_scale(t, b[j], &s[h + j], r);
                }
                prefetch_block(b[0], 16 * w->row_bytes, 4 * tr.bytes);
                block_bytes(t, b, &lo, &hi);
                v_store4(o, o + 32, o + 64, o + 96, lo);
                v_store4(o + 16, o + 48, o + 80, o + 112, hi);
            }
        transpose_rows(bytes, p->w);
        for (int k = 0; k < 8; k++) {
            vf_store(p->d[k], block_d(t, &s[k]));
            if (tr.has_min)
                vf_store(p->m[k], vf_from_f16(s[k].m));
        }
    }
}

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

/* nt rows of a tile of n_tok, from tile row 0 of x on. */
SL_INLINE void tile_super_n(enum sl_dtype ty, const int nt, const void *panel, uint32_t n_blocks,
                            const uint8_t *x, uint32_t n_tok, float *out) {
    const struct super_traits tr = super_traits(ty);
    const bool wide = tr.offset == 128, has_corr = tr.has_min || tr.offset || tr.is_signed;
    const uint32_t tok_bytes = 4 * n_tok;
    for (int t = 0; t < nt; t++)
        vf_store(out + t * SL_MM_PANEL, vf_zero());
    for (uint32_t i = 0; i < n_blocks; i++) {
        const struct super_panel *p =
            (const struct super_panel *)((const uint8_t *)panel + i * SL_MM_PANEL_BYTES);
        const uint8_t *q = x + (size_t)i * n_tok * sizeof(struct sl_qx);
        v isum[SL_MM_SUBTILE];
        for (int t = 0; t < nt; t++)
            isum[t] = v_zero();
        for (int s = 0; s < 256 / tr.sub; s++) {
            v dot[SL_MM_SUBTILE], scale = v_load(p->scale[s]);
            for (int t = 0; t < nt; t++)
                dot[t] = v_zero();
            tile_dot(nt, wide, p->w + s * tr.sub / 4, q + (size_t)(s * tr.sub / 4) * tok_bytes,
                     tok_bytes, tr.sub / 4, dot);
            for (int t = 0; t < nt; t++)
                isum[t] = v_add32(isum[t], v_mul32(dot[t], scale));
        }
        const uint8_t *sums = q + (size_t)(tr.sub == 32 ? 72 : 64) * tok_bytes;
        const uint8_t *dx = q + (size_t)76 * tok_bytes;
        const vf d = vf_load(p->d), dmin = vf_load(p->dmin);
        for (int t = 0; t < nt; t++) {
            v imin = v_zero();
            if (has_corr)
                for (int k = 0; k < 128 / tr.sub; k++)
                    imin = v_dpwssd(imin, v_load(p->min[k]),
                                    v_bcast32(sums + (size_t)k * tok_bytes + 4 * t));
            float f;
            memcpy(&f, dx + 4 * t, 4);
            vf total = vf_load(out + t * SL_MM_PANEL), df = vf_set(f);
            if (tr.has_min) {
                total = vf_fma(vf_mul(d, df), vf_from_int(isum[t]), total);
                total = vf_fnma(vf_mul(dmin, df), vf_from_int(imin), total);
            } else {
                total = vf_fma(vf_mul(d, df), vf_from_int(v_sub32(isum[t], imin)), total);
            }
            vf_store(out + t * SL_MM_PANEL, total);
        }
    }
}

SL_INLINE void tile_block_n(enum sl_dtype ty, const int nt, const void *panel, uint32_t n_blocks,
                            const uint8_t *x, uint32_t n_tok, float *out) {
    const struct block_traits tr = block_traits(ty);
    const bool wide = tr.offset == 128;
    const uint32_t tok_bytes = 4 * n_tok;
    vf total[SL_MM_SUBTILE];
    for (int t = 0; t < nt; t++)
        total[t] = vf_zero();
    for (uint32_t i = 0; i < n_blocks; i++) {
        const struct block_panel *p =
            (const struct block_panel *)((const uint8_t *)panel + i / 8 * SL_MM_PANEL_BYTES);
        const uint8_t *q = x + (size_t)(i / 8) * n_tok * sizeof(struct sl_qx);
        const uint32_t b = i % 8;
        const uint8_t *sums = q + (size_t)(72 + b) * tok_bytes;
        const uint8_t *dx = q + (size_t)(64 + b) * tok_bytes;
        v dot[SL_MM_SUBTILE];
        for (int t = 0; t < nt; t++)
            dot[t] = tr.offset ? v_mul32(v_bcast32(sums + 4 * t), v_set32(-(int32_t)tr.offset))
                               : v_zero();
        tile_dot(nt, wide, p->w + 8 * b, q + (size_t)(8 * b) * tok_bytes, tok_bytes, 8, dot);
        const vf d = vf_load(p->d[b]), m = vf_load(p->m[b]);
        for (int t = 0; t < nt; t++) {
            float f;
            memcpy(&f, dx + 4 * t, 4);
            vf df = vf_set(f);
            total[t] = vf_fma(vf_mul(d, df), vf_from_int(dot[t]), total[t]);
            if (tr.has_min)
                total[t] = vf_fma(vf_mul(m, df), vf_from_int(v_bcast32(sums + 4 * t)), total[t]);
        }
    }
    for (int t = 0; t < nt; t++)
        vf_store(out + t * SL_MM_PANEL, total[t]);
}

SL_INLINE void tile_n(enum sl_dtype t, const int nt, const struct sl_mm_rows *w, const void *panel,
                      const void *x, uint32_t n_tok, float *out) {
    if (sl_dtype_is_block32(t))
        tile_block_n(t, nt, panel, w->n_in / 32, x, n_tok, out);
    else
        tile_super_n(t, nt, panel, w->n_in / 256, x, n_tok, out);
}

/* One code path per number of rows, so that sums are registers. */
SL_INLINE void tile_any(enum sl_dtype t, const struct sl_mm_rows *w, const void *panel,
                        const void *x, uint32_t n_tok, float *out) {
    for (uint32_t t0 = 0; t0 < n_tok; t0 += SL_MM_SUBTILE) {
        const uint8_t *xt = (const uint8_t *)x + 4 * t0;
        float *o = out + t0 * SL_MM_PANEL;
        switch (n_tok - t0) {
        case 1:
            tile_n(t, 1, w, panel, xt, n_tok, o);
            break;
        case 2:
            tile_n(t, 2, w, panel, xt, n_tok, o);
            break;
#if SL_MM_SUBTILE > 3
        case 3:
            tile_n(t, 3, w, panel, xt, n_tok, o);
            break;
        case 4:
            tile_n(t, 4, w, panel, xt, n_tok, o);
            break;
        case 5:
            tile_n(t, 5, w, panel, xt, n_tok, o);
            break;
        case 6:
            tile_n(t, 6, w, panel, xt, n_tok, o);
            break;
        case 7:
            tile_n(t, 7, w, panel, xt, n_tok, o);
            break;
        case 8:
            tile_n(t, 8, w, panel, xt, n_tok, o);
            break;
        case 9:
            tile_n(t, 9, w, panel, xt, n_tok, o);
            break;
        case 10:
            tile_n(t, 10, w, panel, xt, n_tok, o);
            break;
        case 11:
            tile_n(t, 11, w, panel, xt, n_tok, o);
            break;
#endif
        default:
            tile_n(t, SL_MM_SUBTILE, w, panel, xt, n_tok, o);
        }
    }
}

#endif
#endif
