#include "model/synth/synth.h"

#include "common/rng.h"

#include <math.h>

/* Where a block keeps its scale, and the spread of its values at scale 1 with random codes
 * (measured over 2^21 values; a test holds what is written to within 15 % of the spread asked for).
 */
struct block_rule {
    uint8_t d_at;    /* f16 scale */
    uint8_t min_at;  /* f16 minimum, 0 = none */
    float min_per_d; /* minimum that centres the values */
    float unit_std;
};

static const struct block_rule rules[SL_DTYPE_COUNT] = {
    [SL_DTYPE_Q4_0] = {0, 0, 0, 4.637f},     [SL_DTYPE_Q4_1] = {0, 2, -7.5f, 4.610f},
    [SL_DTYPE_Q5_0] = {0, 0, 0, 9.247f},     [SL_DTYPE_Q5_1] = {0, 2, -15.5f, 9.233f},
    [SL_DTYPE_Q8_0] = {0, 0, 0, 73.90f},     [SL_DTYPE_Q2_K] = {80, 82, 1.5f, 9.842f},
    [SL_DTYPE_Q3_K] = {108, 0, 0, 43.33f},   [SL_DTYPE_Q4_K] = {0, 2, 7.5f, 168.2f},
    [SL_DTYPE_Q5_K] = {0, 2, 15.5f, 336.9f}, [SL_DTYPE_Q6_K] = {208, 0, 0, 1366.0f},
    [SL_DTYPE_IQ2_XXS] = {0, 0, 0, 53.47f},  [SL_DTYPE_IQ2_XS] = {0, 0, 0, 55.98f},
    [SL_DTYPE_IQ2_S] = {0, 0, 0, 56.3f},     [SL_DTYPE_IQ3_XXS] = {0, 0, 0, 142.5f},
    [SL_DTYPE_IQ3_S] = {0, 0, 0, 140.3f},    [SL_DTYPE_IQ1_S] = {0, 0, 0, 7.212f},
    [SL_DTYPE_IQ1_M] = {0, 0, 0, 7.178f},    [SL_DTYPE_IQ4_NL] = {0, 0, 0, 67.53f},
    [SL_DTYPE_IQ4_XS] = {0, 0, 0, 1251.3f},  [SL_DTYPE_MXFP4] = {0, 0, 0, 3.66f},
    [SL_DTYPE_TQ1_0] = {52, 0, 0, 0.817f},   [SL_DTYPE_TQ2_0] = {64, 0, 0, 1.225f},
    [SL_DTYPE_IQ2_K] = {0, 0, 0, 85.0f},     [SL_DTYPE_IQ3_K] = {0, 0, 0, 628.0f},
    [SL_DTYPE_IQ4_K] = {0, 0, 0, 1245.0f},   [SL_DTYPE_IQ5_K] = {0, 0, 0, 1226.0f},
    [SL_DTYPE_IQ6_K] = {0, 0, 0, 4787.0f},
};

static void put_f16(uint8_t *at, float v) {
    uint16_t h = sl_f32_to_f16(v);
    memcpy(at, &h, sizeof h);
}

static void random_bytes(struct sl_rng *rng, uint8_t *out, size_t n) {
    for (; n >= 8; n -= 8, out += 8) {
        uint64_t u = sl_rng_u64(rng);
        memcpy(out, &u, 8);
    }
    uint64_t u = sl_rng_u64(rng);
    memcpy(out, &u, n);
}

/* Uniform with standard deviation 1. */
static float unit_uniform(struct sl_rng *rng) {
    return (float)((sl_rng_unit(rng) * 2 - 1) * 1.7320508);
}

/* Makes the packed 6-bit minima equal to the scales, so that one minimum per block centres them. */
static void centre_k_scales(uint8_t *scales) {
    memcpy(scales + 4, scales, 4);
    for (int i = 8; i < 12; i++)
        scales[i] = (uint8_t)((scales[i] & 15) * 0x11);
}

static void set_scale(enum sl_dtype dtype, struct sl_rng *rng, float std, uint8_t *block) {
    const struct block_rule *rule = &rules[dtype];
    uint64_t u = sl_rng_u64(rng);
    /* A random sign centres types whose codes are not symmetric. */
    float d = std / rule->unit_std * (0.75f + (float)(u >> 40) * 0x1p-25f) * (u & 1 ? -1 : 1);
    switch (dtype) {
    case SL_DTYPE_MXFP4: { /* a power of two, exponent biased by 127 */
        int e = (int)lrintf(log2f(std / rule->unit_std)) + 127 + (int)(u & 1) - (int)(u >> 1 & 1);
        block[0] = (uint8_t)(e < 1 ? 1 : e > 254 ? 254 : e);
        return;
    }
    case SL_DTYPE_IQ1_M: { /* the f16 is spread over the top nibbles of four 16-bit words */
        uint16_t h = sl_f32_to_f16(d);
        for (int i = 0; i < 4; i++) {
            uint8_t *top = &block[48 + 2 * i + 1];
            *top = (uint8_t)((*top & 15) | (h >> (4 * i) & 15) << 4);
        }
        return;
    }
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K:
        centre_k_scales(block + 4);
        break;
    case SL_DTYPE_Q2_K:
        for (int i = 0; i < 16; i++)
            block[i] = (uint8_t)((block[i] & 15) * 0x11);
        break;
    default:
        break;
    }
    put_f16(block + rule->d_at, d);
    if (rule->min_at)
        put_f16(block + rule->min_at, d * rule->min_per_d);
}

void sl_synth_random_row(enum sl_dtype dtype, struct sl_rng *rng, float std, void *row,
                         uint64_t n_elems) {
    if (dtype == SL_DTYPE_F32) {
        float *f = row;
        for (uint64_t i = 0; i < n_elems; i++)
            f[i] = std * unit_uniform(rng);
    } else if (dtype == SL_DTYPE_F16 || dtype == SL_DTYPE_BF16) {
        uint16_t *h = row;
        for (uint64_t i = 0; i < n_elems; i++) {
            float v = std * unit_uniform(rng);
            h[i] = dtype == SL_DTYPE_F16 ? sl_f32_to_f16(v) : sl_f32_to_bf16(v);
        }
    } else {
        const struct sl_dtype_info *info = sl_dtype_info(dtype);
        uint8_t *block = row;
        random_bytes(rng, block, sl_dtype_row_bytes(dtype, n_elems));
        for (uint64_t i = 0; i < n_elems; i += info->block_elems, block += info->block_bytes)
            set_scale(dtype, rng, std, block);
    }
}

bool sl_synth_encode_row(enum sl_dtype dtype, const float *values, void *row, uint64_t n_elems) {
    switch (dtype) {
    case SL_DTYPE_F32:
        memcpy(row, values, n_elems * sizeof *values);
        return true;
    case SL_DTYPE_F16:
    case SL_DTYPE_BF16:
        for (uint64_t i = 0; i < n_elems; i++)
            ((uint16_t *)row)[i] =
                dtype == SL_DTYPE_F16 ? sl_f32_to_f16(values[i]) : sl_f32_to_bf16(values[i]);
        return true;
    case SL_DTYPE_Q8_0: {
        uint8_t *block = row;
        for (uint64_t i = 0; i < n_elems; i += 32, block += 34) {
            float max = 0;
            for (int j = 0; j < 32; j++)
                max = fmaxf(max, fabsf(values[i + (uint64_t)j]));
            float d = max / 127;
            put_f16(block, d);
            for (int j = 0; j < 32; j++)
                block[2 + j] = (uint8_t)(int8_t)(d > 0 ? lrintf(values[i + (uint64_t)j] / d) : 0);
        }
        return true;
    }
    case SL_DTYPE_I32:
        for (uint64_t i = 0; i < n_elems; i++)
            ((int32_t *)row)[i] = (int32_t)values[i];
        return true;
    default:
        return false;
    }
}

enum sl_dtype sl_synth_fit_dtype(enum sl_dtype dtype, uint64_t n_elems) {
    if (n_elems % sl_dtype_stored(dtype)->block_elems == 0)
        return dtype;
    if (n_elems % 32)
        return SL_DTYPE_F16;
    switch (dtype) { /* the nearest in bits with 32-element blocks */
    case SL_DTYPE_Q6_K:
    case SL_DTYPE_Q8_0:
        return SL_DTYPE_Q8_0;
    case SL_DTYPE_Q5_K:
        return SL_DTYPE_Q5_1;
    case SL_DTYPE_Q4_K:
        return SL_DTYPE_Q5_0;
    default:
        return SL_DTYPE_IQ4_NL;
    }
}
