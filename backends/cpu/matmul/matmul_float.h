/* Products with F32, F16 and BF16 weights, and the quantisation of input rows. A template: included
 * once per instruction set. */
#ifndef SL_BACKENDS_CPU_MATMUL_FLOAT_H
#define SL_BACKENDS_CPU_MATMUL_FLOAT_H

#include "backends/cpu/matmul/matmul_rows8.h"
#include "backends/cpu/matmul/matmul_tile.h"

#ifdef __AVX2__

/* 4 weight rows meet this many input rows at once. */
#ifdef __AVX512BW__
#define SL_MM_FLOAT_TOK 6
#else
#define SL_MM_FLOAT_TOK 1
#endif

SL_INLINE vf float_load(enum sl_dtype t, const uint8_t *row, uint32_t i) {
    if (t == SL_DTYPE_F32)
        return vf_load((const float *)(const void *)(row + 4 * (size_t)i));
    return t == SL_DTYPE_F16 ? vf_from_f16(row + 2 * (size_t)i) : vf_from_bf16(row + 2 * (size_t)i);
}

SL_INLINE float float_one(enum sl_dtype t, const uint8_t *row, uint32_t i) {
    if (t == SL_DTYPE_F32) {
        float f;
        memcpy(&f, row + 4 * (size_t)i, 4);
        return f;
    }
    uint16_t h = ld16(row + 2 * (size_t)i);
    return t == SL_DTYPE_F16 ? _cvtsh_ss(h) : sl_bf16_to_f32(h);
}

/* out[t * SL_MM_PANEL + r] for 4 rows and nt inputs. next: what to prefetch, or NULL. */
SL_INLINE void float_4xn(enum sl_dtype ty, const int nt, const uint8_t *const *row,
                         const float *const *x, uint32_t n, const uint8_t *next, float *out) {
    vf acc[SL_MM_FLOAT_TOK][4];
    for (int t = 0; t < nt; t++)
        for (int r = 0; r < 4; r++)
            acc[t][r] = vf_zero();
    for (uint32_t i = 0; i + 16 <= n; i += 16) {
        vf w[4];
        if (next)
            next = prefetch_on(next, 4 * 16 * (ty == SL_DTYPE_F32 ? 4 : 2));
        for (int r = 0; r < 4; r++)
            w[r] = float_load(ty, row[r], i);
        for (int t = 0; t < nt; t++) {
            vf xt = vf_load(x[t] + i);
            for (int r = 0; r < 4; r++)
                acc[t][r] = vf_fma(w[r], xt, acc[t][r]);
        }
    }
    if (n % 16) { /* the low partials only: a zero added to -0 would show */
        for (int t = 0; t < nt; t++)
            for (int r = 0; r < 4; r++) {
                float part[16];
                vf_store(part, acc[t][r]);
                for (uint32_t i = n / 16 * 16; i < n; i++)
                    part[i % 16] = __builtin_fmaf(float_one(ty, row[r], i), x[t][i], part[i % 16]);
                acc[t][r] = vf_load(part);
            }
    }
    for (int t = 0; t < nt; t++)
        _mm_storeu_ps(out + t * SL_MM_PANEL,
                      vf_reduce4(acc[t][0], acc[t][1], acc[t][2], acc[t][3]));
}

SL_INLINE void vec_float(enum sl_dtype t, const struct sl_mm_rows *w, const void *xv, float *out) {
    const float *const x[1] = {xv};
    const uint8_t *row[16];
    for (uint32_t o = 0; o < w->n_rows; o += 16) {
        float y[16];
        const uint8_t *next = sl_mm_next_rows(w, o, 16);
        row_pointers(w, o, row);
        SL_NO_UNROLL
        for (uint32_t r = 0; r < 16; r += 4)
            float_4xn(t, 1, row + r, x, w->n_in, next + r * w->row_bytes, y + r);
        uint32_t n = w->n_rows - o < 16 ? w->n_rows - o : 16;
        memcpy(out + o, y, n * sizeof *y);
    }
}

SL_INLINE void many_float(enum sl_dtype ty, const struct sl_mm_rows *w, const void *xv,
                          uint32_t first, uint32_t n_tok, float *out) {
    const float *const *x = (const float *const *)xv + first;
    const uint8_t *row[16];
    row_pointers(w, 0, row);
    for (uint32_t t = 0; t < n_tok; t += SL_MM_FLOAT_TOK)
        SL_NO_UNROLL
    for (uint32_t r = 0; r < w->n_rows; r += 4) {
        float *o = out + t * SL_MM_PANEL + r;
        switch (n_tok - t) {
#if SL_MM_FLOAT_TOK > 1
        case 1:
            float_4xn(ty, 1, row + r, x + t, w->n_in, NULL, o);
            break;
        case 2:
            float_4xn(ty, 2, row + r, x + t, w->n_in, NULL, o);
            break;
        case 3:
            float_4xn(ty, 3, row + r, x + t, w->n_in, NULL, o);
            break;
        case 4:
            float_4xn(ty, 4, row + r, x + t, w->n_in, NULL, o);
            break;
        case 5:
            float_4xn(ty, 5, row + r, x + t, w->n_in, NULL, o);
            break;
#endif
        default:
            float_4xn(ty, SL_MM_FLOAT_TOK, row + r, x + t, w->n_in, NULL, o);
        }
    }
}

/* quantize.h's definitions, 32 elements at a time. */
SL_INLINE __m256i bits_max(const float *x, __m256i amax) {
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    for (int i = 0; i < 32; i += 8)
        amax = _mm256_max_epu32(
            amax,
            _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)(x + i)), abs));
    return amax;
}

SL_INLINE uint32_t max_lanes(__m256i a) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

/* d and the factor for x; both 0 for a block of zeros, NaN and 0 for one that is not finite. */
SL_INLINE float quant_scale(uint32_t bits, float *out_inv) {
    float amax;
    memcpy(&amax, &bits, 4);
    if (bits >= 0x7f800000u || amax < SL_QX_TINY) {
        *out_inv = 0;
        return bits >= 0x7f800000u ? __builtin_nanf("") : 0.0f;
    }
    *out_inv = 127.0f / amax;
    return amax / 127.0f;
}

/* q[32] of x[32]; returns two sums of 16, low and high. */
SL_INLINE uint64_t quant_32(const float *x, float inv, int8_t *q) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i b;
    if (inv == 0) { /* not by multiplication: x may be infinite */
        b = _mm256_setzero_si256();
    } else {
        __m256 f = _mm256_set1_ps(inv);
        __m256i i0 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), f));
        __m256i i1 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), f));
        __m256i i2 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 16), f));
        __m256i i3 = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 24), f));
        b = _mm256_packs_epi16(_mm256_packs_epi32(i0, i1), _mm256_packs_epi32(i2, i3));
        b = _mm256_permutevar8x32_epi32(b, order);
    }
    _mm256_storeu_si256((__m256i *)(void *)q, b);
    __m256i s =
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), b), _mm256_set1_epi16(1));
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
    s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
    return (uint32_t)_mm256_cvtsi256_si32(s) | (uint64_t)(uint32_t)_mm256_extract_epi32(s, 4) << 32;
}

static void quantize_q32(const float *x, uint32_t n, struct sl_qx *out) {
    for (uint32_t i = 0; i < sl_qx_blocks(n) * 8; i++) {
        struct sl_qx *o = &out[i / 8];
        const uint32_t j = i % 8;
        if (i * 32 >= n) {
            memset(o->q + 32 * j, 0, 32);
            o->q32.d[j] = 0;
            o->q32.sum[j] = 0;
            continue;
        }
        float inv;
        o->q32.d[j] = quant_scale(max_lanes(bits_max(x + i * 32, _mm256_setzero_si256())), &inv);
        uint64_t s = quant_32(x + i * 32, inv, o->q + 32 * j);
        o->q32.sum[j] = (int16_t)((int32_t)s + (int32_t)(s >> 32));
    }
}

static void quantize_q256(const float *x, uint32_t n, struct sl_qx *out) {
    for (uint32_t g = 0; g < n / 256; g++) {
        const float *xg = x + g * 256;
        struct sl_qx *o = &out[g];
        __m256i amax = _mm256_setzero_si256();
        float inv;
        for (int j = 0; j < 8; j++)
            amax = bits_max(xg + 32 * j, amax);
        o->q256.d = quant_scale(max_lanes(amax), &inv);
        for (int j = 0; j < 8; j++) {
            uint64_t s = quant_32(xg + 32 * j, inv, o->q + 32 * j);
            o->q256.sum[2 * j] = (int16_t)s;
            o->q256.sum[2 * j + 1] = (int16_t)(s >> 32);
        }
    }
}

/* Every type's entries. */
#define SL_MM_SUPER_TYPES(X)                                                                       \
    X(Q2_K)                                                                                        \
    X(Q3_K)                                                                                        \
    X(Q4_K)                                                                                        \
    X(Q5_K)                                                                                        \
    X(Q6_K)                                                                                        \
    X(IQ4_XS)                                                                                      \
    X(IQ2_XXS)                                                                                     \
    X(IQ2_XS)                                                                                      \
    X(IQ2_S)                                                                                       \
    X(IQ3_XXS)                                                                                     \
    X(IQ3_S) X(IQ1_S) X(IQ1_M) X(TQ1_0) X(TQ2_0) X(IQ2_K) X(IQ3_K) X(IQ4_K) X(IQ5_K) X(IQ6_K)
#define SL_MM_BLOCK_TYPES(X) X(Q4_0) X(Q4_1) X(Q5_0) X(Q5_1) X(Q8_0) X(IQ4_NL) X(MXFP4)
#define SL_MM_FLOAT_TYPES(X) X(F32) X(F16) X(BF16)

/* Which kernels an instruction set has: in_rows8() is constant. */
#ifdef __AVX512BW__
#define SL_MM_VEC(family, t, w, x, out) vec_##family(t, w, x, out)
#define SL_MM_PAIR_SUPER(t, w, x, out)  vec_super_n(t, 2, w, x, out)
#define SL_MM_PAIR_BLOCK(T)
#define SL_MM_SET_PAIR_BLOCK(T)
#else
#define SL_MM_VEC(family, t, w, x, out)                                                            \
    in_rows8(t) ? vec_##family##8(t, 1, w, &(x), &(out)) : vec_##family(t, w, x, out)
#define SL_MM_PAIR_SUPER(t, w, x, out)                                                             \
    in_rows8(t) ? vec_super8(t, 2, w, x, out) : vec_super_n(t, 2, w, x, out)
#define SL_MM_PAIR_BLOCK(T)                                                                        \
    static void pair_##T(const struct sl_mm_rows *w, const void *const *x, float *const *out) {    \
        vec_block8(SL_DTYPE_##T, 2, w, x, out);                                                    \
    }
#define SL_MM_SET_PAIR_BLOCK(T) SL_MM_SET_PAIR(T)
#endif

#define SL_MM_QUANT_FUNCTIONS(family, T)                                                           \
    static void vec_##T(const struct sl_mm_rows *w, const void *x, float *out) {                   \
        SL_MM_VEC(family, SL_DTYPE_##T, w, x, out);                                                \
    }                                                                                              \
    static void many_##T(const struct sl_mm_rows *w, const void *x, uint32_t n_tok,                \
                         uint32_t begin, uint32_t end, void *panel, float *out) {                  \
        many_quant(SL_DTYPE_##T, w, x, n_tok, begin, end, panel, out);                             \
    }
#define SL_MM_SUPER_FUNCTIONS(T)                                                                   \
    SL_MM_QUANT_FUNCTIONS(super, T)                                                                \
    static void pair_##T(const struct sl_mm_rows *w, const void *const *x, float *const *out) {    \
        SL_MM_PAIR_SUPER(SL_DTYPE_##T, w, x, out);                                                 \
    }
#define SL_MM_BLOCK_FUNCTIONS(T) SL_MM_QUANT_FUNCTIONS(block, T) SL_MM_PAIR_BLOCK(T)
#define SL_MM_FLOAT_FUNCTIONS(T)                                                                   \
    static void vec_##T(const struct sl_mm_rows *w, const void *x, float *out) {                   \
        vec_float(SL_DTYPE_##T, w, x, out);                                                        \
    }                                                                                              \
    static void many_##T(const struct sl_mm_rows *w, const void *x, uint32_t n_tok,                \
                         uint32_t begin, uint32_t end, void *panel, float *out) {                  \
        (void)panel;                                                                               \
        uint32_t first = sl_mm_tile_start(n_tok, begin);                                           \
        many_float(SL_DTYPE_##T, w, x, first, sl_mm_tile_start(n_tok, end) - first, out);          \
    }

SL_MM_SUPER_TYPES(SL_MM_SUPER_FUNCTIONS)
SL_MM_BLOCK_TYPES(SL_MM_BLOCK_FUNCTIONS)
SL_MM_FLOAT_TYPES(SL_MM_FLOAT_FUNCTIONS)

static void fill_kernels(struct sl_mm_kernels *k) {
    k->quantize[SL_X_Q32] = quantize_q32;
    k->quantize[SL_X_Q256] = quantize_q256;
    k->pack[SL_X_Q32] = pack_q32;
    k->pack[SL_X_Q256] = pack_q256;
#define SL_MM_SET(T)                                                                               \
    k->vec[SL_DTYPE_##T] = vec_##T;                                                                \
    k->many[SL_DTYPE_##T] = many_##T;
#define SL_MM_SET_PAIR(T) k->pair[SL_DTYPE_##T] = pair_##T;
    SL_MM_SUPER_TYPES(SL_MM_SET)
    SL_MM_SUPER_TYPES(SL_MM_SET_PAIR)
    SL_MM_BLOCK_TYPES(SL_MM_SET)
    SL_MM_BLOCK_TYPES(SL_MM_SET_PAIR_BLOCK)
    SL_MM_FLOAT_TYPES(SL_MM_SET)
    k->tile_min = 2;
}

#endif
#endif
