#include "backends/cpu/matmul/formats.h"

const int8_t sl_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
const int8_t sl_fp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static float load_f16(const uint8_t *p) {
    return sl_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* 16 bytes of nibbles: the low ones are elements 0..15, the high ones 16..31. */
static void nibbles(const uint8_t *qs, int8_t *q) {
    for (int j = 0; j < 16; j++) {
        q[j] = qs[j] & 15;
        q[j + 16] = (int8_t)(qs[j] >> 4);
    }
}

static void fifth_bits(const uint8_t *qh, int8_t *q) {
    uint32_t bits = load_u32(qh);
    for (int j = 0; j < 32; j++)
        q[j] = (int8_t)(q[j] | (bits >> j & 1) << 4);
}

static void values(const int8_t *table, int8_t *q, int n) {
    for (int j = 0; j < n; j++)
        q[j] = table[q[j]];
}

static void shift(int8_t *q, int n, int by) {
    for (int j = 0; j < n; j++)
        q[j] = (int8_t)(q[j] + by);
}

static void unpack_32(enum sl_dtype dtype, const uint8_t *b, struct sl_unpacked *u) {
    u->scale[0] = u->scale[1] = 1;
    u->d = load_f16(b);
    switch (dtype) {
    case SL_DTYPE_Q4_0: /* f16 d, qs[16] */
        nibbles(b + 2, u->q);
        shift(u->q, 32, -8);
        break;
    case SL_DTYPE_Q4_1: /* f16 d, f16 m, qs[16] */
        nibbles(b + 4, u->q);
        break;
    case SL_DTYPE_Q5_0: /* f16 d, qh[4], qs[16] */
        nibbles(b + 6, u->q);
        fifth_bits(b + 2, u->q);
        shift(u->q, 32, -16);
        break;
    case SL_DTYPE_Q5_1: /* f16 d, f16 m, qh[4], qs[16] */
        nibbles(b + 8, u->q);
        fifth_bits(b + 4, u->q);
        break;
    case SL_DTYPE_Q8_0: /* f16 d, int8 qs[32] */
        memcpy(u->q, b + 2, 32);
        break;
    case SL_DTYPE_IQ4_NL: /* f16 d, qs[16] */
        nibbles(b + 2, u->q);
        values(sl_iq4_values, u->q, 32);
        break;
    default: { /* MXFP4: e8m0 e, qs[16]. d = 2^(e - 128), e 0 and 1 being subnormal */
        uint32_t bits = b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23;
        memcpy(&u->d, &bits, 4);
        nibbles(b + 1, u->q);
        values(sl_fp4_values, u->q, 32);
    }
    }
    if (dtype == SL_DTYPE_Q4_1 || dtype == SL_DTYPE_Q5_1) {
        u->dmin = -load_f16(b + 2);
        u->min[0] = u->min[1] = 1;
    }
}

/* Q4_K, Q5_K: 8 scales and 8 minima of 6 bits in 12 bytes. 0..3 lie in the low bits of bytes 0..7;
 * 4..7 have their low nibbles in bytes 8..11 and their high bits atop bytes 0..7. */
static void scales_6bit(const uint8_t *s, struct sl_unpacked *u) {
    for (int j = 0; j < 8; j++) {
        int sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        int mn = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
        u->scale[2 * j] = u->scale[2 * j + 1] = (int16_t)sc;
        u->min[2 * j] = u->min[2 * j + 1] = (int16_t)mn;
    }
}

static void unpack_q2_k(const uint8_t *b, struct sl_unpacked *u) { /* scales[16] qs[64] d dmin */
    u->d = load_f16(b + 80);
    u->dmin = load_f16(b + 82);
    for (int j = 0; j < 16; j++) {
        u->scale[j] = b[j] & 15;
        u->min[j] = b[j] >> 4;
    }
    for (int i = 0; i < 256; i++)
        u->q[i] = b[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

static void unpack_q3_k(const uint8_t *b,
                        struct sl_unpacked *u) { /* hmask[32] qs[64] scales[12] d */
    const uint8_t *s = b + 96;
    u->d = load_f16(b + 108);
    for (int j = 0; j < 16; j++) { /* 4 low bits in bytes 0..7, 2 high bits in bytes 8..11 */
        int low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
        int high = s[8 + j % 4] >> (j / 4 * 2) & 3;
        u->scale[j] = (int16_t)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int low = b[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        u->q[i] = (int8_t)(low - (b[i % 32] >> (i / 32) & 1 ? 0 : 4));
    }
}

static void unpack_q45_k(const uint8_t *b, bool q5, struct sl_unpacked *u) {
    const uint8_t *qs = b + (q5 ? 48 : 16); /* d dmin scales[12] (qh[32]) qs[128] */
    u->d = load_f16(b);
    u->dmin = load_f16(b + 2);
    scales_6bit(b + 4, u);
    for (int i = 0; i < 256; i++) {
        int low = qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
        int high = q5 ? b[16 + i % 32] >> (i / 32) & 1 : 0;
        u->q[i] = (int8_t)(low | high << 4);
    }
}

static void unpack_q6_k(const uint8_t *b, struct sl_unpacked *u) { /* ql[128] qh[64] scales[16] d */
    u->d = load_f16(b + 208);
    for (int j = 0; j < 16; j++)
        u->scale[j] = (int8_t)b[192 + j];
    for (int i = 0; i < 256; i++) {
        int low = b[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
        int high = b[128 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        u->q[i] = (int8_t)((low | high << 4) - 32);
    }
}

static void unpack_iq4_xs(const uint8_t *b, struct sl_unpacked *u) { /* d scales_h scales_l[4] qs */
    int scales_h = b[2] | b[3] << 8;
    u->d = load_f16(b);
    for (int j = 0; j < 8; j++) {
        int s = (b[4 + j / 2] >> (j % 2 * 4) & 15) | (scales_h >> (2 * j) & 3) << 4;
        u->scale[2 * j] = u->scale[2 * j + 1] = (int16_t)(s - 32);
        nibbles(b + 8 + 16 * j, u->q + 32 * j);
    }
    values(sl_iq4_values, u->q, 256);
}

/* Digits of base 3: byte b stands for five (or four) in a fraction b / 256 of 3^5, the first one
 * highest. */
static int8_t trit(uint8_t b, int n) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return (int8_t)(((uint8_t)(b * power[n]) * 3 >> 8) - 1);
}

static void unpack_tq(enum sl_dtype dtype, const uint8_t *b, struct sl_unpacked *u) {
    bool two = dtype == SL_DTYPE_TQ2_0; /* qs[64] d, two bits each; else qs[48] qh[4] d */
    u->d = load_f16(b + (two ? 64 : 52));
    for (int j = 0; j < 16; j++)
        u->scale[j] = 1;
    for (int i = 0; i < 256; i++)
        u->q[i] = two       ? (int8_t)((b[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1)
                  : i < 160 ? trit(b[i % 32], i / 32)
                  : i < 240 ? trit(b[32 + i % 16], (i - 160) / 16)
                            : trit(b[48 + i % 4], (i - 240) / 4);
}

void sl_unpack_block(enum sl_dtype dtype, const void *block, struct sl_unpacked *out) {
    const uint8_t *b = block;
    out->dmin = 0;
    memset(out->min, 0, sizeof out->min);
    switch (dtype) {
    case SL_DTYPE_Q2_K:
        unpack_q2_k(b, out);
        break;
    case SL_DTYPE_Q3_K:
        unpack_q3_k(b, out);
        break;
    case SL_DTYPE_Q4_K:
    case SL_DTYPE_Q5_K:
        unpack_q45_k(b, dtype == SL_DTYPE_Q5_K, out);
        break;
    case SL_DTYPE_Q6_K:
        unpack_q6_k(b, out);
        break;
    case SL_DTYPE_IQ4_XS:
        unpack_iq4_xs(b, out);
        break;
    case SL_DTYPE_IQ2_XXS:
    case SL_DTYPE_IQ2_XS:
    case SL_DTYPE_IQ2_S:
    case SL_DTYPE_IQ3_XXS:
    case SL_DTYPE_IQ3_S:
    case SL_DTYPE_IQ1_S:
    case SL_DTYPE_IQ1_M:
        sl_unpack_block_iq(dtype, block, out);
        break;
    case SL_DTYPE_IQ2_K:
    case SL_DTYPE_IQ3_K:
    case SL_DTYPE_IQ4_K:
    case SL_DTYPE_IQ5_K:
    case SL_DTYPE_IQ6_K:
        sl_unpack_block_iqk(dtype, block, out);
        break;
    case SL_DTYPE_TQ1_0:
    case SL_DTYPE_TQ2_0:
        unpack_tq(dtype, b, out);
        break;
    default:
        unpack_32(dtype, b, out);
    }
}

static void dequantize_float(enum sl_dtype dtype, const uint8_t *row, uint32_t n, float *y) {
    if (dtype == SL_DTYPE_F32) {
        memcpy(y, row, (size_t)n * 4);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, row + 2 * (size_t)i, 2);
        y[i] = dtype == SL_DTYPE_F16 ? sl_f16_to_f32(h) : sl_bf16_to_f32(h);
    }
}

void sl_dequantize_row(enum sl_dtype dtype, const void *row, uint32_t n_elems, float *y) {
    if (sl_dtype_is_float(dtype)) {
        dequantize_float(dtype, row, n_elems, y);
        return;
    }
    const struct sl_dtype_info *info = sl_dtype_info(dtype);
    const uint8_t *b = row;
    bool has_min = sl_dtype_has_min(dtype);
    struct sl_unpacked u;
    for (uint32_t i0 = 0; i0 < n_elems; i0 += info->block_elems, b += info->block_bytes) {
        sl_unpack_block(dtype, b, &u);
        for (uint32_t i = 0; i < info->block_elems; i++) {
            float w = u.d * (float)u.scale[i / 16] * (float)u.q[i];
            y[i0 + i] = has_min ? w - u.dmin * (float)u.min[i / 16] : w;
        }
    }
}
