/* The quantised block formats: what their bytes mean.
 *
 * Once unpacked, all quantised types have one form: integers q with integer sub-scales and at most
 * one float scale and one float minimum scale per block,
 *
 *     w[i] = (d * scale[i / 16]) * q[i] - dmin * min[i / 16]           (no minimum: w = d*scale*q)
 *
 * Types whose sub-blocks have 32 elements repeat the sub-scale; 32-element types have scale 1.
 * That one form gives dequantisation (the same bits as ggml's) and the canonical dot product with
 * an input row quantised to int8 (quantize.h): with integers exact in int32,
 *
 *     isum = sum_i scale[i/16] * q[i] * x[i]        imin = sum_i min[i/16] * x[i]
 *     sum  = fma(d * dx, (float)isum, sum)          then, for types with minima,
 *     sum  = fma(-(dmin * dx), (float)imin, sum)
 *
 * block after block. If a format has factors that are not integers, a power of two moves from the
 * sub-scale into d, which is exact:
 *
 *     type              block  sub   q                      scale, min          d
 *     Q4_0 Q5_0 Q8_0       32   32   -8..7 -16..15 int8     1                   f16
 *     Q4_1 Q5_1            32   32   0..15 0..31            1, 1                f16, dmin = -f16
 *     IQ4_NL               32   32   one of 16 in int8      1                   f16
 *     MXFP4                32   32   0 1 2 3 4 6 8 12, +-   1                   2^(e - 128)
 *     Q2_K                256   16   0..3                   4 bit, 4 bit        f16, f16
 *     Q3_K                256   16   -4..3                  -32..31             f16
 *     Q4_K Q5_K           256   32   0..15 0..31            6 bit, 6 bit        f16, f16
 *     Q6_K                256   16   -32..31                int8                f16
 *     IQ4_XS              256   32   one of 16 in int8      -32..31             f16
 *     IQ2_XXS             256   32   +-{8 25 43}            2s+1 (s 4 bit)      f16 / 8
 *     IQ2_XS IQ2_S        256   16   +-{8 25 43}            2s+1 (s 4 bit)      f16 / 8
 *     IQ3_XXS             256   32   +-{4 12 .. 52 62}      2s+1 (s 4 bit)      f16 / 4
 *     IQ3_S               256   32   +-{1 3 .. 15}          2s+1 (s 4 bit)      f16
 *     IQ1_S               256   32   8g+1, 8g-1, g -1..1    2s+1 (s 3 bit)      f16 / 8
 *     IQ1_M               256   16   8g+1, 8g-1 (per 8)     2s+1 (s 3 bit)      f16 / 8
 *     TQ1_0 TQ2_0         256   16   -1 0 1                 1                   f16
 *     IQ2_K               256   16   of 4, + 0 or 5         -8..7               f16
 *     IQ3_K               256   16   of 8, + 0 or 4         +-(2s+1) (s 4 bit)  f16
 *     IQ4_K               256   16   of 16, + 0 or 4        -32..31             f16
 *     IQ5_K               256   16   of 32, + 0 or 2        -32..31             f16
 *     IQ6_K               256   16   of 64, + 0 or 1        int8                f16
 *
 * isum cannot overflow: |scale * q| <= 128 * 127 (IQ6_K; of all others at most 4096), |x| <= 127,
 * 256 elements: below 2^29. |min| <= 63: |imin| < 2^21.
 *
 * Source: the block layouts of ggml (ggml-common.h) and GGUF; OCP Microscaling Formats v1.0 for
 * MXFP4; ik_llama.cpp (ggml-common.h, iqk_quantize.cpp) for IQ2_K to IQ6_K. Its products take
 * IQ6_K's values from this table of integers, as we do; its dequantisation computes them by a
 * polynomial, which gives values close to these. */
#ifndef SL_BACKENDS_CPU_FORMATS_H
#define SL_BACKENDS_CPU_FORMATS_H

#include "common/dtype.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_SUPER 256u /* elements of a block of the K and IQ types */

struct sl_unpacked {
    float d, dmin;
    int16_t scale[16], min[16]; /* per 16 elements; a 32-element block uses the first two */
    int8_t q[SL_SUPER];
};

/* Grids of the IQ types: index to 8 (or 4) values, first value in the lowest byte. Filled before
 * main() from packed codes. */
extern uint64_t sl_iq2xxs_grid[256], sl_iq2xs_grid[512], sl_iq2s_grid[1024];
extern uint32_t sl_iq3xxs_grid[256], sl_iq3s_grid[512];
extern uint64_t sl_iq1_grid[2048]; /* -1, 0, 1 as int8 */
/* IQ1 as bytes, ready to multiply: 8g + delta + 9, index + 2048 for delta -1. */
extern uint64_t sl_iq1_bytes[4096];
extern const int8_t sl_iq4_values[16]; /* IQ4_NL and IQ4_XS */
extern const int8_t sl_fp4_values[16]; /* MXFP4: twice the e2m1 value */

/* IQ2_K to IQ6_K: what codes stand for, and what is added in sub-blocks whose bit is set. Tables of
 * fewer than 64 values are repeated. */
struct sl_iqk {
    int8_t values[64];
    int8_t added;
};
extern const struct sl_iqk sl_iqk_values[5]; /* [bits - 2] */

/* 7 stored sign bits to 8: the eighth makes the number of set bits even. */
static inline uint8_t sl_iq_signs(uint32_t bits7) {
    return (uint8_t)(bits7 | (uint32_t)__builtin_parity(bits7) << 7);
}

/* F32, F16 and BF16 are not quantised. */
static inline bool sl_dtype_is_float(enum sl_dtype t) {
    return t == SL_DTYPE_F32 || t == SL_DTYPE_F16 || t == SL_DTYPE_BF16;
}
static inline bool sl_dtype_is_block32(enum sl_dtype t) {
    return t == SL_DTYPE_Q4_0 || t == SL_DTYPE_Q4_1 || t == SL_DTYPE_Q5_0 || t == SL_DTYPE_Q5_1 ||
           t == SL_DTYPE_Q8_0 || t == SL_DTYPE_IQ4_NL || t == SL_DTYPE_MXFP4;
}
/* Does a block have a float minimum scale? */
static inline bool sl_dtype_has_min(enum sl_dtype t) {
    return t == SL_DTYPE_Q4_1 || t == SL_DTYPE_Q5_1 || t == SL_DTYPE_Q2_K || t == SL_DTYPE_Q4_K ||
           t == SL_DTYPE_Q5_K;
}

/* Unpacks one block of a quantised type; dmin and min are 0 for types without minima. block need
 * not be aligned. */
void sl_unpack_block(enum sl_dtype dtype, const void *block, struct sl_unpacked *out);
/* The same for the IQ types with grids (formats_iq.c), and for IQ2_K to IQ6_K (formats_iqk.c). */
void sl_unpack_block_iq(enum sl_dtype dtype, const void *block, struct sl_unpacked *out);
void sl_unpack_block_iqk(enum sl_dtype dtype, const void *block, struct sl_unpacked *out);

/* y[i] = w[i], any supported type; n_elems a multiple of the type's block. */
void sl_dequantize_row(enum sl_dtype dtype, const void *row, uint32_t n_elems, float *y);

#endif
