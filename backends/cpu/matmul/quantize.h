/* Input rows quantised to int8 for the products with quantised weights.
 *
 * Per 256 elements for the 256-element weight types, per 32 for the 32-element types:
 *     amax = max|x|, d = amax / 127, q = round_to_even(x * (127 / amax))
 * Blocks with amax < 2^-100 become zeros, d = 0. A block with an infinity or a NaN becomes zeros
 * with d = NaN, so that the fault shows in the output instead of becoming a number. Sums of q are
 * kept too: formats.h says what for. */
#ifndef SL_BACKENDS_CPU_QUANTIZE_H
#define SL_BACKENDS_CPU_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#define SL_QX_TINY 0x1p-100f

/* How the input of a product is prepared, by weight type. */
enum sl_x_kind {
    SL_X_Q32,  /* 32-element types */
    SL_X_Q256, /* 256-element types */
    SL_X_F32,  /* F32, F16, BF16: as it is */
};

/* 256 elements of a quantised row; the last of a Q32 row may be partly zeros. */
struct sl_qx {
    _Alignas(64) int8_t q[256];
    union {
        struct {
            int16_t sum[16]; /* sums of 16 q */
            float d;
        } q256;
        struct {
            float d[8];
            int16_t sum[8]; /* sums of 32 q */
        } q32;
    };
};

static inline uint32_t sl_qx_blocks(uint32_t n) {
    return (n + 255) / 256;
}
static inline size_t sl_qx_row_bytes(uint32_t n) {
    return sl_qx_blocks(n) * sizeof(struct sl_qx);
}

/* x [n] to out [sl_qx_blocks(n)]; n a multiple of 32, or of 256. The definitions. */
void sl_quantize_q32(const float *x, uint32_t n, struct sl_qx *out);
void sl_quantize_q256(const float *x, uint32_t n, struct sl_qx *out);

#endif
