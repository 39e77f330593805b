/* The passes' definition; included by one file per instruction set. */
#ifndef SL_ENGINE_VOCAB_PASS_IMPL_H
#define SL_ENGINE_VOCAB_PASS_IMPL_H

#include "common/fast_exp.h"
#include "engine/sample/vocab_pass.h"

#include <math.h>

static inline float larger(float a, float b) {
    return b > a ? b : a;
}

/* Loops of fixed lengths, which compilers vectorise. One loop with a halving length, and a separate
 * pass that finds NaN by comparing, was four times as slow. */
static inline float max_of_lanes(const float *lane) {
    float eight[8], four[4];
    for (uint32_t l = 0; l < 8; l++)
        eight[l] = larger(lane[l], lane[l + 8]);
    for (uint32_t l = 0; l < 4; l++)
        four[l] = larger(eight[l], eight[l + 4]);
    return larger(larger(four[0], four[2]), larger(four[1], four[3]));
}

/* The largest of a block, ignoring NaN; inout_top [16]: the largest bits without the sign. */
static inline float block_max(const float *x, uint32_t *inout_top) {
    float lane[16];
    uint32_t bits[SL_VOCAB_BLOCK];
    for (uint32_t l = 0; l < 16; l++)
        lane[l] = -INFINITY;
    for (uint32_t j = 0; j < SL_VOCAB_BLOCK; j += 16)
        for (uint32_t l = 0; l < 16; l++)
            lane[l] = larger(lane[l], x[j + l]);
    memcpy(bits, x, sizeof bits);
    for (uint32_t j = 0; j < SL_VOCAB_BLOCK; j += 16)
        for (uint32_t l = 0; l < 16; l++) {
            uint32_t b = bits[j + l] & 0x7fffffffu;
            inout_top[l] = b > inout_top[l] ? b : inout_top[l];
        }
    return max_of_lanes(lane);
}

static inline float pass_max(const float *x, uint32_t n, float *out_block_max) {
    const uint32_t infinity = 0x7f800000u; /* NaN is above */
    float best = -INFINITY;
    bool any_nan = false;
    uint32_t top[16] = {0}, i = 0;
    for (; i + SL_VOCAB_BLOCK <= n; i += SL_VOCAB_BLOCK) {
        float max = block_max(x + i, top);
        out_block_max[i / SL_VOCAB_BLOCK] = max;
        best = larger(best, max);
    }
    for (uint32_t l = 0; l < 16; l++)
        any_nan = any_nan || top[l] > infinity;
    if (i < n) {
        float max = -INFINITY;
        for (uint32_t j = i; j < n; j++) {
            max = larger(max, x[j]);
            any_nan = any_nan || isnan(x[j]);
        }
        out_block_max[i / SL_VOCAB_BLOCK] = max;
        best = larger(best, max);
    }
    return any_nan ? NAN : best;
}

static inline float block_sum(const float *x) {
    float lane[16] = {0};
    for (uint32_t j = 0; j < SL_VOCAB_BLOCK; j += 16)
        for (uint32_t l = 0; l < 16; l++)
            lane[l] += x[j + l];
    for (uint32_t w = 8; w; w /= 2)
        for (uint32_t l = 0; l < w; l++)
            lane[l] += lane[l + w];
    return lane[0];
}

static inline void pass_exp(const float *restrict x, float max, float inv_t, float *restrict y,
                            uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = sl_exp_neg((x[i] - max) * inv_t);
}

/* A shorter block: the missing elements count as 0. */
static inline float rest_sum(const float *x, uint32_t n) {
    float rest[SL_VOCAB_BLOCK] = {0};
    memcpy(rest, x, n * sizeof *x);
    return block_sum(rest);
}

static inline void pass_block_sums(const float *restrict x, const float *restrict block_max,
                                   float inv_t, float *restrict out_sum, uint32_t n) {
    for (uint32_t i = 0; i < n; i += SL_VOCAB_BLOCK) {
        float y[SL_VOCAB_BLOCK], max = block_max[i / SL_VOCAB_BLOCK], sum = 0;
        if (isfinite(max) && n - i >= SL_VOCAB_BLOCK) {
            pass_exp(x + i, max, inv_t, y, SL_VOCAB_BLOCK);
            sum = block_sum(y);
        } else if (isfinite(max)) {
            pass_exp(x + i, max, inv_t, y, n - i);
            sum = rest_sum(y, n - i);
        }
        out_sum[i / SL_VOCAB_BLOCK] = sum;
    }
}

static inline double pass_weigh(const float *restrict sum, const float *restrict block_max,
                                float max, float inv_t, float *restrict out_mass, uint32_t n) {
    double total = 0;
    uint32_t i = 0;
    pass_exp(block_max, max, inv_t, out_mass, n);
    for (uint32_t b = 0; b < n; b++)
        out_mass[b] *= sum[b];
    for (; i + SL_VOCAB_BLOCK <= n; i += SL_VOCAB_BLOCK)
        total += (double)block_sum(out_mass + i);
    return total + (double)rest_sum(out_mass + i, n - i);
}

static inline double pass_exp_sum(const float *restrict x, float max, float inv_t,
                                  float *restrict y, uint32_t n) {
    double total = 0;
    uint32_t i = 0;
    for (; i + SL_VOCAB_BLOCK <= n; i += SL_VOCAB_BLOCK) {
        pass_exp(x + i, max, inv_t, y + i, SL_VOCAB_BLOCK);
        total += (double)block_sum(y + i);
    }
    pass_exp(x + i, max, inv_t, y + i, n - i);
    for (uint32_t j = i; j < n; j++)
        total += (double)y[j];
    return total;
}

#endif
