/* IQ2_K to IQ6_K: codes of 2 to 6 bits stand for values of a table, to which each 16 elements may
 * add a constant; scales of 4 to 8 bits. */
#include "backends/cpu/matmul/formats.h"

#define TWICE(...) __VA_ARGS__, __VA_ARGS__
#define IQ2_VALUES -31, -13, 1, 17
#define IQ3_VALUES -63, -40, -23, -10, 1, 13, 28, 47
#define IQ4_VALUES -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113
#define IQ5_VALUES                                                                                 \
    -126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36, -30, -24, -18, -12, -6, -1, 5, 11,   \
        17, 23, 29, 36, 43, 51, 59, 68, 77, 87, 97, 109, 121

const struct sl_iqk sl_iqk_values[5] = {
    {{TWICE(TWICE(TWICE(TWICE(IQ2_VALUES))))}, 5},
    {{TWICE(TWICE(TWICE(IQ3_VALUES)))}, 4},
    {{TWICE(TWICE(IQ4_VALUES))}, 4},
    {{TWICE(IQ5_VALUES)}, 2},
    {{-127, -121, -115, -109, -104, -98, -93, -88, -84, -79, -74, -70, -66, -62, -58, -54,
      -51,  -47,  -44,  -40,  -37,  -34, -31, -28, -25, -22, -19, -16, -13, -11, -8,  -5,
      -2,   0,    3,    6,    9,    12,  14,  17,  20,  23,  27,  30,  33,  36,  40,  44,
      47,   51,   55,   59,   63,   68,  72,  77,  82,  87,  92,  98,  103, 109, 115, 121},
     1},
};

static uint32_t load(const uint8_t *p, int n) {
    uint32_t v = 0;
    memcpy(&v, p, (size_t)n);
    return v;
}

/* Code i of a block: two bits of chunks of 32, or nibbles, and what is above them elsewhere. */
static int code(enum sl_dtype dtype, const uint8_t *b, int i) {
    int two = i / 128 * 32 + i % 32, shift = i % 128 / 32 * 2; /* a byte, and the bits in it */
    int four = i / 64 * 32 + i % 32, half = i / 32 % 2 * 4;
    switch (dtype) {
    case SL_DTYPE_IQ2_K: /* d extra scales[8] qs[64] */
        return b[12 + two] >> shift & 3;
    case SL_DTYPE_IQ3_K: /* d extra signs scales[8] qs[64] qh[32] */
        return (b[14 + two] >> shift & 3) | (b[78 + i % 32] >> (i / 32) & 1) << 2;
    case SL_DTYPE_IQ4_K: /* d extra scales_h[4] scales_l[8] qs[128]; nibbles 16 apart */
        return b[16 + i / 32 * 16 + i % 16] >> (i / 16 % 2 * 4) & 15;
    case SL_DTYPE_IQ5_K: /* d extra scales_h[4] scales_l[8] qs[128] qh[32] */
        return (b[16 + four] >> half & 15) | (b[144 + i % 32] >> (i / 32) & 1) << 4;
    default: /* IQ6_K: d extra scales[16] qs[128] qh[64] */
        return (b[20 + four] >> half & 15) | (b[148 + two] >> shift & 3) << 4;
    }
}

static int scale(enum sl_dtype dtype, const uint8_t *b, int j) {
    switch (dtype) {
    case SL_DTYPE_IQ2_K:
        return (b[4 + j / 2] >> (j % 2 * 4) & 15) - 8;
    case SL_DTYPE_IQ3_K: {
        int odd = 2 * (b[6 + j / 2] >> (j % 2 * 4) & 15) + 1;
        return load(b + 4, 2) >> j & 1 ? -odd : odd;
    }
    case SL_DTYPE_IQ4_K:
    case SL_DTYPE_IQ5_K:
        return (b[8 + j / 2] >> (j % 2 * 4) & 15) + (int)(load(b + 4, 4) >> (2 * j) & 3) * 16 - 32;
    default:
        return (int8_t)b[4 + j];
    }
}

void sl_unpack_block_iqk(enum sl_dtype dtype, const void *block, struct sl_unpacked *out) {
    const struct sl_iqk *k = &sl_iqk_values[dtype - SL_DTYPE_IQ2_K];
    const uint8_t *b = block;
    uint32_t extra = load(b + 2, 2);
    out->d = sl_f16_to_f32((uint16_t)load(b, 2));
    for (int j = 0; j < 16; j++)
        out->scale[j] = (int16_t)scale(dtype, b, j);
    for (int i = 0; i < 256; i++)
        out->q[i] = (int8_t)(k->values[code(dtype, b, i)] + (extra >> (i / 16) & 1 ? k->added : 0));
}
