#include "backends/cpu/matmul/quantize.h"

#include <math.h>
#include <string.h>

/* The largest magnitude as bits, in which order infinities and NaN are above all numbers. */
static uint32_t amax_bits(const float *x, uint32_t n) {
    uint32_t amax = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], 4);
        u &= 0x7fffffffu;
        amax = u > amax ? u : amax;
    }
    return amax;
}

/* Returns d. */
static float quantize(const float *x, uint32_t n, int8_t *q) {
    uint32_t bits = amax_bits(x, n);
    float amax;
    memcpy(&amax, &bits, 4);
    if (bits >= 0x7f800000u || amax < SL_QX_TINY) {
        memset(q, 0, n);
        return bits >= 0x7f800000u ? NAN : 0.0f;
    }
    float inv = 127.0f / amax;
    for (uint32_t i = 0; i < n; i++)
        q[i] = (int8_t)rintf(x[i] * inv);
    return amax / 127.0f;
}

static int16_t sum(const int8_t *q, uint32_t n) {
    int s = 0;
    for (uint32_t i = 0; i < n; i++)
        s += q[i];
    return (int16_t)s;
}

void sl_quantize_q32(const float *x, uint32_t n, struct sl_qx *out) {
    for (uint32_t g = 0; g < sl_qx_blocks(n); g++) {
        struct sl_qx *o = &out[g];
        memset(o, 0, sizeof *o);
        for (uint32_t j = 0; j < 8 && g * 256 + j * 32 < n; j++) {
            o->q32.d[j] = quantize(x + g * 256 + j * 32, 32, o->q + 32 * j);
            o->q32.sum[j] = sum(o->q + 32 * j, 32);
        }
    }
}

void sl_quantize_q256(const float *x, uint32_t n, struct sl_qx *out) {
    for (uint32_t g = 0; g < n / 256; g++) {
        struct sl_qx *o = &out[g];
        memset(&o->q256, 0, sizeof o->q256);
        o->q256.d = quantize(x + g * 256, 256, o->q);
        for (uint32_t j = 0; j < 16; j++)
            o->q256.sum[j] = sum(o->q + 16 * j, 16);
    }
}
