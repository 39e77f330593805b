/* Template of the attention kernels, over the v16 of vec_avx2.h or vec_avx512.h: the includer takes
 * one of these first and calls fill_attention. attention.h has the definition. */
#ifndef SL_BACKENDS_CPU_SIMD_ATTENTION_H
#define SL_BACKENDS_CPU_SIMD_ATTENTION_H

#include "backends/cpu/cpu_internal.h"

#ifdef SL_V16

#define PART   SL_CPU_ATTN_PART
#define TILE   SL_CPU_ATTN_TILE
#define INLINE static inline __attribute__((always_inline))

/* --- one row, n_heads heads: lanes along the head's elements --- */

enum kv_type { KV_F16, KV_Q8_0 };

/* Elements 16c to 16c + 15 of a K or V row. */
INLINE v16 kv_load(enum kv_type type, const char *row, uint32_t c) {
    if (type == KV_F16)
        return v_load_f16(row + 32 * c);
    const char *block = row + c / 2 * 34;
    uint16_t d16;
    memcpy(&d16, block, sizeof d16);
    return v_mul(v_set1(_cvtsh_ss(d16)), v_load_i8(block + 2 + c % 2 * 16));
}

/* The rows j to j + n of what comes next. */
INLINE void fetch_ahead(const struct sl_cpu_kv_page *page, uint32_t j, uint32_t n) {
    for (int i = 0; i < 2; i++) {
        const char *p = page->ahead[i];
        if (!p)
            continue;
        size_t bytes = page->ahead_row_bytes[i];
        for (size_t at = j * bytes; at < (j + n) * bytes; at += 64)
            _mm_prefetch(p + at, _MM_HINT_T1);
    }
}

/* n_heads times n_pos scores at once, each in its own accumulator; both are constants where this is
 * inlined. Positions beyond n_left repeat the last and are dropped. */
INLINE void qk_block(enum kv_type type, uint32_t n_heads, uint32_t n_pos, const float *q,
                     const char *row, size_t row_bytes, uint32_t head_dim, uint32_t n_left,
                     v16 scale, float *s) {
    const char *at[V_ACC];
    v16 acc[V_ACC];
#pragma GCC unroll 16
    for (uint32_t j = 0; j < n_pos; j++)
        at[j] = row + (j < n_left ? j : n_left - 1) * row_bytes;
#pragma GCC unroll 16
    for (uint32_t i = 0; i < V_ACC; i++)
        acc[i] = v_zero();
    uint32_t c = 0;
    for (; c < head_dim / 16; c++) {
        v16 k[V_ACC];
#pragma GCC unroll 16
        for (uint32_t j = 0; j < n_pos; j++)
            k[j] = kv_load(type, at[j], c);
#pragma GCC unroll 16
        for (uint32_t h = 0; h < n_heads; h++) {
            v16 qh = v_keep(v_load(q + h * head_dim + 16 * c));
#pragma GCC unroll 16
            for (uint32_t j = 0; j < n_pos; j++)
                acc[h * n_pos + j] = v_fma(qh, k[j], acc[h * n_pos + j]);
        }
    }
    uint32_t tail = head_dim % 16;
    if (type == KV_F16 && tail) {
#pragma GCC unroll 16
        for (uint32_t j = 0; j < n_pos; j++) {
            v16 k = v_load_f16_n(at[j] + 32 * c, tail);
#pragma GCC unroll 16
            for (uint32_t h = 0; h < n_heads; h++)
                acc[h * n_pos + j] =
                    v_fma(v_load_n(q + h * head_dim + 16 * c, tail, 0), k, acc[h * n_pos + j]);
        }
    }
    _Alignas(64) float out[V_ACC];
    v_sums(acc, scale, out);
    if (n_left >= n_pos) {
#pragma GCC unroll 16
        for (uint32_t h = 0; h < n_heads; h++)
            memcpy(s + h * PART, out + h * n_pos, n_pos * sizeof *s);
    } else {
        for (uint32_t h = 0; h < n_heads; h++)
            for (uint32_t j = 0; j < n_left; j++)
                s[h * PART + j] = out[h * n_pos + j];
    }
}

INLINE void qk_heads(enum kv_type type, uint32_t n_heads, const float *q,
                     const struct sl_cpu_kv_page *k, float scale, float *s) {
    const uint32_t n_pos = V_ACC / n_heads;
    size_t row_bytes = k->row_bytes;
    v16 by = v_set1(scale);
    for (uint32_t j = k->begin; j < k->end; j += n_pos) {
        fetch_ahead(k, j, n_pos);
        qk_block(type, n_heads, n_pos, q, (const char *)k->rows + j * row_bytes, row_bytes,
                 k->head_dim, k->end - j, by, s + j);
    }
}

/* o[h, 16c..] over the page's positions for n_heads heads and n_c chunks of 16 elements. */
INLINE void pv_block(enum kv_type type, uint32_t n_heads, uint32_t n_c, const float *s,
                     const struct sl_cpu_kv_page *v, uint32_t c, float *o) {
    size_t row_bytes = v->row_bytes;
    const char *row = (const char *)v->rows + v->begin * row_bytes;
    v16 acc[V_ACC];
#pragma GCC unroll 16
    for (uint32_t h = 0; h < n_heads; h++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_c; i++)
            acc[h * n_c + i] = v_load(o + h * v->head_dim + 16 * (c + i));
    for (uint32_t j = v->begin; j < v->end; j++, row += row_bytes) {
        v16 vj[V_ACC];
        _mm_prefetch(row + 8 * row_bytes + (type == KV_F16 ? 32 : 17) * c, _MM_HINT_T0);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_c; i++)
            vj[i] = kv_load(type, row, c + i);
#pragma GCC unroll 16
        for (uint32_t h = 0; h < n_heads; h++) {
            v16 p = v_set1(s[h * PART + j]);
#pragma GCC unroll 16
            for (uint32_t i = 0; i < n_c; i++)
                acc[h * n_c + i] = v_fma(p, vj[i], acc[h * n_c + i]);
        }
    }
#pragma GCC unroll 16
    for (uint32_t h = 0; h < n_heads; h++)
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_c; i++)
            v_store(o + h * v->head_dim + 16 * (c + i), acc[h * n_c + i]);
}

INLINE void pv_heads(enum kv_type type, uint32_t n_heads, const float *s,
                     const struct sl_cpu_kv_page *v, float *o) {
    const uint32_t n_c = V_ACC / n_heads > 8 ? 8 : V_ACC / n_heads;
    uint32_t c = 0, n_chunks = v->head_dim / 16;
    for (; c + n_c <= n_chunks; c += n_c)
        pv_block(type, n_heads, n_c, s, v, c, o);
    for (; c < n_chunks; c++)
        pv_block(type, n_heads, 1, s, v, c, o);
    uint32_t tail = v->head_dim % 16;
    if (type != KV_F16 || !tail)
        return;
    size_t row_bytes = v->row_bytes;
    for (uint32_t h = 0; h < n_heads; h++) {
        float *oh = o + h * v->head_dim + 16 * c;
        v16 acc = v_load_n(oh, tail, 0);
        for (uint32_t j = v->begin; j < v->end; j++)
            acc = v_fma(v_set1(s[h * PART + j]),
                        v_load_f16_n((const char *)v->rows + j * row_bytes + 32 * c, tail), acc);
        v_store_n(oh, tail, acc);
    }
}

#if V_ACC >= 8
#define MANY_HEADS(X) X(8) X(7) X(6) X(5)
#else
#define MANY_HEADS(X)
#endif
#define EACH_HEADS(X) MANY_HEADS(X) X(4) X(3) X(2) X(1)
#define MOST_HEADS    (V_ACC < 8 ? V_ACC : 8)

INLINE void qk(enum kv_type type, const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k,
               float scale, float *s) {
    while (n_heads) {
        uint32_t n = n_heads < MOST_HEADS ? n_heads : MOST_HEADS;
        switch (n) {
#define CASE(N)                                                                                    \
    case N:                                                                                        \
        qk_heads(type, N, q, k, scale, s);                                                         \
        break;
            EACH_HEADS(CASE)
#undef CASE
        }
        n_heads -= n, q += (size_t)n * k->head_dim, s += (size_t)n * PART;
    }
}

INLINE void pv(enum kv_type type, const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v,
               float *o) {
    while (n_heads) {
        uint32_t n = n_heads < MOST_HEADS ? n_heads : MOST_HEADS;
        switch (n) {
#define CASE(N)                                                                                    \
    case N:                                                                                        \
        pv_heads(type, N, s, v, o);                                                                \
        break;
            EACH_HEADS(CASE)
#undef CASE
        }
        n_heads -= n, o += (size_t)n * v->head_dim, s += (size_t)n * PART;
    }
}

static void qk_f16(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
                   float *s) {
    qk(KV_F16, q, n_heads, k, scale, s);
}
static void qk_q8_0(const float *q, uint32_t n_heads, const struct sl_cpu_kv_page *k, float scale,
                    float *s) {
    qk(KV_Q8_0, q, n_heads, k, scale, s);
}
static void pv_f16(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, float *o) {
    pv(KV_F16, s, n_heads, v, o);
}
static void pv_q8_0(const float *s, uint32_t n_heads, const struct sl_cpu_kv_page *v, float *o) {
    pv(KV_Q8_0, s, n_heads, v, o);
}

static void merge(float *o, float a, const float *x, float b, uint32_t n) {
    v16 va = v_set1(a), vb = v_set1(b);
    uint32_t i, tail = n % 16;
    for (i = 0; i + 16 <= n; i += 16)
        v_store(o + i, v_fma(v_load(o + i), va, v_mul(v_load(x + i), vb)));
    if (tail)
        v_store_n(o + i, tail,
                  v_fma(v_load_n(o + i, tail, 0), va, v_mul(v_load_n(x + i, tail, 0), vb)));
}

static void index_sum(const float *s, const float *w, uint32_t n_heads, float *y, uint32_t n) {
    uint32_t j = 0, tail = n % 16;
    for (; j + 16 <= n; j += 16) {
        v16 acc = v_load(y + j);
        for (uint32_t h = 0; h < n_heads; h++)
            acc = v_fma(v_set1(w[h]), v_max(v_load(s + h * PART + j), v_zero()), acc);
        v_store(y + j, acc);
    }
    if (!tail)
        return;
    v16 acc = v_load_n(y + j, tail, 0);
    for (uint32_t h = 0; h < n_heads; h++)
        acc = v_fma(v_set1(w[h]), v_max(v_load_n(s + h * PART + j, tail, 0), v_zero()), acc);
    v_store_n(y + j, tail, acc);
}

/* --- a tile: lanes are rows, so that no sum crosses lanes --- */

#define TILE_J 6u /* positions at once: with V_TILE vectors of lanes what the registers hold */

/* n_pos (a constant) positions by V_TILE vectors of lanes. Each of the 16 partial sums of a dot
 * product is a chain of its own; in the order 0 8 4 12 2 10 6 14 1 9 5 13 3 11 7 15 they join as
 * the canonical tree does with never more than four waiting, as carries of a binary counter. */
INLINE void tile_qk_block(uint32_t n_pos, const float *q, const float *k, uint32_t head_dim,
                          v16 scale, float *s) {
    static const uint8_t order[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
    v16 waiting[5][TILE_J * V_TILE], acc[TILE_J * V_TILE];
    const float *row[TILE_J];
#pragma GCC unroll 16
    for (uint32_t j = 0; j < n_pos; j++)
        row[j] = k + (size_t)j * head_dim;
    for (uint32_t n = 0; n < 16; n++) {
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_pos * V_TILE; i++)
            acc[i] = v_zero();
        const float *qd = q + (size_t)order[n] * TILE;
        for (uint32_t d = order[n]; d < head_dim; d += 16, qd += 16 * TILE) {
            v16 qv[V_TILE];
#pragma GCC unroll 2
            for (uint32_t g = 0; g < V_TILE; g++)
                qv[g] = v_load(qd + 16 * g);
#pragma GCC unroll 16
            for (uint32_t j = 0; j < n_pos; j++) {
                v16 kd = v_set1(row[j][d]);
#pragma GCC unroll 2
                for (uint32_t g = 0; g < V_TILE; g++)
                    acc[j * V_TILE + g] = v_fma(kd, qv[g], acc[j * V_TILE + g]);
            }
        }
        uint32_t level = 0;
        for (; n >> level & 1; level++)
#pragma GCC unroll 16
            for (uint32_t i = 0; i < n_pos * V_TILE; i++)
                acc[i] = v_add(waiting[level][i], acc[i]);
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_pos * V_TILE; i++)
            waiting[level][i] = acc[i];
    }
#pragma GCC unroll 16
    for (uint32_t j = 0; j < n_pos; j++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < V_TILE; g++)
            v_store(s + j * TILE + 16 * g, v_mul(waiting[4][j * V_TILE + g], scale));
}

static void tile_load(const struct sl_cpu_attn_tile *t, const float *const *rows) {
    for (uint32_t g = 0; g < TILE; g += 16)
        for (uint32_t d = 0; d < t->head_dim_k; d += 16) {
            uint32_t n = t->head_dim_k - d < 16 ? t->head_dim_k - d : 16;
            v16 r[16];
            for (uint32_t i = 0; i < 16; i++)
                r[i] = !rows[g + i] ? v_zero()
                       : n == 16    ? v_load(rows[g + i] + d)
                                    : v_load_n(rows[g + i] + d, n, 0);
            v_transpose(r);
            for (uint32_t i = 0; i < n; i++)
                v_store(t->qt + (size_t)(d + i) * TILE + g, r[i]);
        }
    for (uint32_t g = 0; g < TILE; g += 16) {
        v_store(t->m + g, v_set1(-INFINITY));
        v_store(t->l + g, v_zero());
        for (uint32_t d = 0; d < t->head_dim_v; d++)
            v_store(t->ot + (size_t)d * TILE + g, v_zero());
    }
}

static void tile_store(const struct sl_cpu_attn_tile *t, float *const *rows) {
    for (uint32_t g = 0; g < TILE; g += 16)
        for (uint32_t d = 0; d < t->head_dim_v; d += 16) {
            uint32_t n = t->head_dim_v - d < 16 ? t->head_dim_v - d : 16;
            v16 r[16];
            for (uint32_t i = 0; i < 16; i++)
                r[i] = i < n ? v_load(t->ot + (size_t)(d + i) * TILE + g) : v_zero();
            v_transpose(r);
            for (uint32_t i = 0; i < 16; i++) {
                if (rows[g + i] && n == 16)
                    v_store(rows[g + i] + d, r[i]);
                else if (rows[g + i])
                    v_store_n(rows[g + i] + d, n, r[i]);
            }
        }
}

static void tile_qk(const struct sl_cpu_attn_tile *t, const float *k, uint32_t begin, uint32_t end,
                    float scale) {
    v16 by = v_set1(scale);
    uint32_t j = begin, dim = t->head_dim_k;
    for (; j + TILE_J <= end; j += TILE_J, k += (size_t)TILE_J * dim)
        for (uint32_t g = 0; g < TILE; g += 16 * V_TILE)
            tile_qk_block(TILE_J, t->qt + g, k, dim, by, t->s + (size_t)j * TILE + g);
    /* A page of 64 leaves 4. */
    for (; j + 4 <= end; j += 4, k += (size_t)4 * dim)
        for (uint32_t g = 0; g < TILE; g += 16 * V_TILE)
            tile_qk_block(4, t->qt + g, k, dim, by, t->s + (size_t)j * TILE + g);
    for (; j < end; j++, k += dim)
        for (uint32_t g = 0; g < TILE; g += 16 * V_TILE)
            tile_qk_block(1, t->qt + g, k, dim, by, t->s + (size_t)j * TILE + g);
}

static void tile_softmax(const struct sl_cpu_attn_tile *t) {
    for (uint32_t g = 0; g < TILE; g += 16) {
        v16 most = v_set1(-INFINITY), nothing = v_set1(-INFINITY);
        for (uint32_t j = t->begin; j < t->end; j++) {
            v16 s = v_load(t->s + (size_t)j * TILE + g);
            if (j < t->full_begin || j >= t->full_end)
                s = v_select(v_range(t->lo + g, t->hi + g, (int32_t)j), s, nothing);
            most = v_max(s, most);
        }
        v16 part[16];
        for (uint32_t i = 0; i < 16; i++)
            part[i] = v_zero();
        for (uint32_t j = t->begin; j < t->end; j++) {
            float *at = t->s + (size_t)j * TILE + g;
            v16 p = v_exp(v_sub(v_load(at), most));
            if (j < t->full_begin || j >= t->full_end)
                p = v_select(v_range(t->lo + g, t->hi + g, (int32_t)j), p, v_zero());
            part[j % 16] = v_add(part[j % 16], p);
            v_store(at, p);
        }
        for (uint32_t width = 8; width; width /= 2)
            for (uint32_t i = 0; i < width; i++)
                part[i] = v_add(part[i], part[i + width]);
        v_store(t->part_m + g, most);
        v_store(t->part_l + g, part[0]);
    }
}

/* n_d (a constant) elements of the outputs by V_TILE vectors of lanes. A position that a lane does
 * not have must not touch it: 0 times what lies there may be NaN. */
INLINE void tile_pv_block(const struct sl_cpu_attn_tile *t, uint32_t n_d, const float *v,
                          uint32_t begin, uint32_t end, uint32_t d, uint32_t lane) {
    float *o = t->part_ot + (size_t)d * TILE + lane;
    v16 acc[V_TILE_D * V_TILE];
#pragma GCC unroll 16
    for (uint32_t i = 0; i < n_d; i++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < V_TILE; g++)
            acc[i * V_TILE + g] = v_load(o + i * TILE + 16 * g);
    uint32_t full_begin = t->full_begin > begin ? t->full_begin : begin;
    uint32_t full_end = t->full_end < end ? t->full_end : end;
    if (full_begin > full_end)
        full_begin = full_end = end;
    const float *row = v + d, *p = t->s + (size_t)begin * TILE + lane;
    for (uint32_t j = begin; j < end; j++) {
        if (j == full_begin)
            for (; j < full_end; j++, row += t->head_dim_v, p += TILE) {
                v16 pj[V_TILE];
#pragma GCC unroll 2
                for (uint32_t g = 0; g < V_TILE; g++)
                    pj[g] = v_load(p + 16 * g);
#pragma GCC unroll 16
                for (uint32_t i = 0; i < n_d; i++) {
                    v16 vd = v_set1(row[i]);
#pragma GCC unroll 2
                    for (uint32_t g = 0; g < V_TILE; g++)
                        acc[i * V_TILE + g] = v_fma(pj[g], vd, acc[i * V_TILE + g]);
                }
            }
        if (j == end)
            break;
        v16 pj[V_TILE];
        vm16 in[V_TILE];
#pragma GCC unroll 2
        for (uint32_t g = 0; g < V_TILE; g++) {
            pj[g] = v_load(p + 16 * g);
            in[g] = v_range(t->lo + lane + 16 * g, t->hi + lane + 16 * g, (int32_t)j);
        }
#pragma GCC unroll 16
        for (uint32_t i = 0; i < n_d; i++) {
            v16 vd = v_set1(row[i]);
#pragma GCC unroll 2
            for (uint32_t g = 0; g < V_TILE; g++)
                acc[i * V_TILE + g] =
                    v_select(in[g], v_fma(pj[g], vd, acc[i * V_TILE + g]), acc[i * V_TILE + g]);
        }
        row += t->head_dim_v, p += TILE;
    }
#pragma GCC unroll 16
    for (uint32_t i = 0; i < n_d; i++)
#pragma GCC unroll 2
        for (uint32_t g = 0; g < V_TILE; g++)
            v_store(o + i * TILE + 16 * g, acc[i * V_TILE + g]);
}

static void tile_pv(const struct sl_cpu_attn_tile *t, const float *v, uint32_t begin,
                    uint32_t end) {
    uint32_t d = 0;
    for (; d + V_TILE_D <= t->head_dim_v; d += V_TILE_D)
        for (uint32_t g = 0; g < TILE; g += 16 * V_TILE)
            tile_pv_block(t, V_TILE_D, v, begin, end, d, g);
    for (; d < t->head_dim_v; d++)
        for (uint32_t g = 0; g < TILE; g += 16 * V_TILE)
            tile_pv_block(t, 1, v, begin, end, d, g);
}

static void tile_join(const struct sl_cpu_attn_tile *t) {
    for (uint32_t g = 0; g < TILE; g += 16) {
        /* Lanes without a position in this partition keep their state. */
        vm16 has = v_below(t->lo + g, t->hi + g);
        v16 m_old = v_load(t->m + g), m_part = v_load(t->part_m + g), l_old = v_load(t->l + g);
        v16 m = v_max(m_old, m_part);
        v16 a = v_exp(v_sub(m_old, m)), b = v_exp(v_sub(m_part, m));
        v16 l = v_fma(l_old, a, v_mul(v_load(t->part_l + g), b));
        v_store(t->m + g, v_select(has, m, m_old));
        v_store(t->l + g, v_select(has, l, l_old));
        for (uint32_t d = 0; d < t->head_dim_v; d++) {
            float *at = t->ot + (size_t)d * TILE + g;
            v16 o = v_load(at);
            v16 joined = v_fma(o, a, v_mul(v_load(t->part_ot + (size_t)d * TILE + g), b));
            v_store(at, v_select(has, joined, o));
        }
    }
}

static void tile_finish(const struct sl_cpu_attn_tile *t, const float *sink) {
    for (uint32_t g = 0; g < TILE; g += 16) {
        v16 one = v_set1(1.0f), a = one, l = v_load(t->l + g);
        if (sink) {
            v16 m_old = v_load(t->m + g), s = v_load(sink + g);
            v16 m = v_max(m_old, s);
            a = v_exp(v_sub(m_old, m));
            l = v_fma(l, a, v_exp(v_sub(s, m)));
        }
        v16 f = v_mul(a, v_div(one, l));
        for (uint32_t d = 0; d < t->head_dim_v; d++) {
            float *at = t->ot + (size_t)d * TILE + g;
            v_store(at, v_mul(v_load(at), f));
        }
    }
}

static void fill_attention(struct sl_cpu_kernels *k) {
    k->qk_f16 = qk_f16;
    k->qk_q8_0 = qk_q8_0;
    k->pv_f16 = pv_f16;
    k->pv_q8_0 = pv_q8_0;
    k->merge = merge;
    k->index_sum = index_sum;
    k->tile_load = tile_load;
    k->tile_store = tile_store;
    k->tile_qk = tile_qk;
    k->tile_softmax = tile_softmax;
    k->tile_pv = tile_pv;
    k->tile_join = tile_join;
    k->tile_finish = tile_finish;
}

#endif
#endif
