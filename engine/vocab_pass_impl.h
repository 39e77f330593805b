/* The passes' definition; included by one file per instruction set. */
#ifndef SL_ENGINE_VOCAB_PASS_IMPL_H
#define SL_ENGINE_VOCAB_PASS_IMPL_H

#include "engine/fast_exp.h"
#include "engine/vocab_pass.h"

#include <math.h>

static inline float pass_max(const float *x, uint32_t n, float *out_block_max) {
    float best = -INFINITY;
    uint32_t any_nan = 0, i = 0;
    for (; i + SL_VOCAB_BLOCK <= n; i += SL_VOCAB_BLOCK) {
        float lane[16];
        uint32_t nan[16] = {0};
        for (uint32_t l = 0; l < 16; l++)
            lane[l] = -INFINITY;
        for (uint32_t j = 0; j < SL_VOCAB_BLOCK; j += 16)
            for (uint32_t l = 0; l < 16; l++) {
                float v = x[i + j + l];
                lane[l] = v > lane[l] ? v : lane[l];
                nan[l] |= v != v;
            }
        for (uint32_t w = 8; w; w /= 2)
            for (uint32_t l = 0; l < w; l++) {
                lane[l] = lane[l + w] > lane[l] ? lane[l + w] : lane[l];
                nan[l] |= nan[l + w];
            }
        out_block_max[i / SL_VOCAB_BLOCK] = lane[0];
        best = lane[0] > best ? lane[0] : best;
        any_nan |= nan[0];
    }
    if (i < n) {
        float top = -INFINITY;
        for (uint32_t j = i; j < n; j++) {
            top = x[j] > top ? x[j] : top;
            any_nan |= x[j] != x[j];
        }
        out_block_max[i / SL_VOCAB_BLOCK] = top;
        best = top > best ? top : best;
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

static inline double pass_sum(const float *x, uint32_t n) {
    double total = 0;
    uint32_t i = 0;
    for (; i + SL_VOCAB_BLOCK <= n; i += SL_VOCAB_BLOCK)
        total += (double)block_sum(x + i);
    for (; i < n; i++)
        total += (double)x[i];
    return total;
}

static inline void pass_exp(const float *restrict x, float max, float inv_t, float *restrict y,
                            uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] = sl_exp_neg((x[i] - max) * inv_t);
}

static inline double pass_exp_sum(const float *restrict x, float max, float inv_t,
                                  float *restrict y, uint32_t n, float *restrict out_block_sum) {
    double total = 0;
    uint32_t i = 0;
    for (; i + SL_VOCAB_BLOCK <= n; i += SL_VOCAB_BLOCK) {
        pass_exp(x + i, max, inv_t, y + i, SL_VOCAB_BLOCK);
        float sum = block_sum(y + i);
        if (out_block_sum)
            out_block_sum[i / SL_VOCAB_BLOCK] = sum;
        total += (double)sum;
    }
    pass_exp(x + i, max, inv_t, y + i, n - i);
    for (uint32_t j = i; j < n; j++)
        total += (double)y[j];
    return total;
}

#endif
