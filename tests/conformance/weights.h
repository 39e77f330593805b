/* Random weights of any type: random bytes, scales made finite. */
#ifndef SL_TESTS_CONFORMANCE_WEIGHTS_H
#define SL_TESTS_CONFORMANCE_WEIGHTS_H

#include "common/dtype.h"
#include "common/rng.h"

#include <stdint.h>
#include <string.h>

enum weights_mode {
    WEIGHTS_PLAIN,
    WEIGHTS_ZERO_SCALE, /* about half of the blocks have a scale of zero, of either sign */
    WEIGHTS_MAX,        /* the largest scales that f16 has, all quants at either end */
    WEIGHTS_ONES,       /* all bits set: NaN where the type can say so */
    WEIGHTS_N_MODE,
};

/* Where a block's f16 scales are: up to two offsets, -1 = none. */
static inline void weights_scales(enum sl_dtype t, int *d, int *m) {
    *d = 0;
    *m = -1;
    switch (t) {
    case SL_DTYPE_Q4_1:
    case SL_DTYPE_Q5_1:
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K:
        *m = 2;
        break;
    case SL_DTYPE_Q2_K:
        *d = 80;
        *m = 82;
        break;
    case SL_DTYPE_Q3_K:
        *d = 108;
        break;
    case SL_DTYPE_Q6_K:
        *d = 208;
        break;
    case SL_DTYPE_TQ1_0:
        *d = 52;
        break;
    case SL_DTYPE_TQ2_0:
        *d = 64;
        break;
    default:
        break;
    }
}

static inline void weights_set_scale(enum sl_dtype t, uint8_t *block, uint16_t d, uint16_t m) {
    if (t == SL_DTYPE_IQ1_M) { /* nibbles atop four words */
        for (int i = 0; i < 4; i++)
            block[49 + 2 * i] =
                (uint8_t)((block[49 + 2 * i] & 15) | (uint32_t)(d >> (4 * i) & 15) << 4);
        return;
    }
    int at_d, at_m;
    weights_scales(t, &at_d, &at_m);
    memcpy(block + at_d, &d, 2);
    if (at_m >= 0)
        memcpy(block + at_m, &m, 2);
}

static inline void weights_fill(struct sl_rng *rng, enum sl_dtype t, enum weights_mode mode,
                                void *out, uint64_t n_elems) {
    const struct sl_dtype_info *info = sl_dtype_info(t);
    uint8_t *b = out;
    if (info->block_elems == 1) {
        for (uint64_t i = 0; i < n_elems; i++) {
            float f = (float)(2 * sl_rng_unit(rng) - 1);
            f *= mode == WEIGHTS_MAX ? 60000.0f : 1.0f;
            f = mode == WEIGHTS_ZERO_SCALE && sl_rng_below(rng, 2) ? f * 0.0f : f;
            uint16_t h = t == SL_DTYPE_F16 ? sl_f32_to_f16(f) : sl_f32_to_bf16(f);
            memcpy(b + i * info->block_bytes, t == SL_DTYPE_F32 ? (void *)&f : (void *)&h,
                   info->block_bytes);
        }
        return;
    }
    for (uint64_t i = 0; i < n_elems / info->block_elems; i++, b += info->block_bytes) {
        for (uint32_t j = 0; j < info->block_bytes; j++)
            b[j] = mode == WEIGHTS_ONES  ? 0xff
                   : mode == WEIGHTS_MAX ? (sl_rng_below(rng, 2) ? 0xff : 0x00)
                                         : (uint8_t)sl_rng_u64(rng);
        if (mode == WEIGHTS_ONES)
            continue;
        if (t == SL_DTYPE_MXFP4) {
            b[0] = mode == WEIGHTS_MAX          ? (uint8_t)(200 + sl_rng_below(rng, 4))
                   : mode == WEIGHTS_ZERO_SCALE ? (uint8_t)sl_rng_below(rng, 4) /* denormal */
                                                : (uint8_t)(115 + sl_rng_below(rng, 12));
            continue;
        }
        float d = (float)(0.02 * sl_rng_unit(rng) - 0.01), m = (float)(0.02 * sl_rng_unit(rng));
        if (mode == WEIGHTS_ZERO_SCALE && sl_rng_below(rng, 2))
            d = sl_rng_below(rng, 2) ? -0.0f : 0.0f;
        if (mode == WEIGHTS_MAX)
            d = m = 65504.0f;
        weights_set_scale(t, b, sl_f32_to_f16(d), sl_f32_to_f16(m));
    }
}

#endif
