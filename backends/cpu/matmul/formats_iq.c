/* The IQ types whose values come from grids: two-, three- and one-bit formats. */
#include "backends/cpu/matmul/formats.h"

static uint16_t load_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* n values of a grid entry with the signs' bits set. */
static void put(uint64_t grid, int n, uint32_t signs, int8_t *q) {
    for (int j = 0; j < n; j++) {
        int v = (int8_t)(grid >> (8 * j));
        q[j] = (int8_t)(signs >> j & 1 ? -v : v);
    }
}

static void scale_pair(struct sl_unpacked *u, int sub32, int s) {
    u->scale[2 * sub32] = u->scale[2 * sub32 + 1] = (int16_t)(2 * s + 1);
}

/* d, then per 32: four grid indices, then four times 7 sign bits and a 4-bit scale. */
static void unpack_iq2_xxs(const uint8_t *b, struct sl_unpacked *u) {
    for (int s = 0; s < 8; s++) {
        const uint8_t *p = b + 2 + 8 * s;
        uint32_t bits = load_u32(p + 4);
        scale_pair(u, s, (int)(bits >> 28));
        for (int l = 0; l < 4; l++)
            put(sl_iq2xxs_grid[p[l]], 8, sl_iq_signs(bits >> (7 * l) & 127), u->q + 32 * s + 8 * l);
    }
}

/* d, 32 words of 9 bits of index and 7 of signs, 16 scales of 4 bits. */
static void unpack_iq2_xs(const uint8_t *b, struct sl_unpacked *u) {
    for (int s = 0; s < 16; s++)
        u->scale[s] = (int16_t)(2 * (b[66 + s / 2] >> (s % 2 * 4) & 15) + 1);
    for (int l = 0; l < 32; l++) {
        uint32_t v = load_u16(b + 2 + 2 * l);
        put(sl_iq2xs_grid[v & 511], 8, sl_iq_signs(v >> 9), u->q + 8 * l);
    }
}

/* d, qs[32] (low 8 bits of indices), signs[32], qh[8] (two high bits each), scales[8]. */
static void unpack_iq2_s(const uint8_t *b, struct sl_unpacked *u) {
    for (int s = 0; s < 16; s++)
        u->scale[s] = (int16_t)(2 * (b[74 + s / 2] >> (s % 2 * 4) & 15) + 1);
    for (int l = 0; l < 32; l++) {
        uint32_t index = b[2 + l] | (uint32_t)(b[66 + l / 4] >> (l % 4 * 2) & 3) << 8;
        put(sl_iq2s_grid[index], 8, b[34 + l], u->q + 8 * l);
    }
}

/* d, qs[64], then per 32 four times 7 sign bits and a 4-bit scale. */
static void unpack_iq3_xxs(const uint8_t *b, struct sl_unpacked *u) {
    for (int s = 0; s < 8; s++) {
        uint32_t bits = load_u32(b + 66 + 4 * s);
        scale_pair(u, s, (int)(bits >> 28));
        for (int l = 0; l < 8; l++) {
            uint32_t signs = sl_iq_signs(bits >> (7 * (l / 2)) & 127);
            put(sl_iq3xxs_grid[b[2 + 8 * s + l]], 4, signs >> (l % 2 * 4), u->q + 32 * s + 4 * l);
        }
    }
}

/* d, qs[64], qh[8] (ninth bits), signs[32], scales[4]. */
static void unpack_iq3_s(const uint8_t *b, struct sl_unpacked *u) {
    for (int s = 0; s < 8; s++)
        scale_pair(u, s, b[106 + s / 2] >> (s % 2 * 4) & 15);
    for (int l = 0; l < 64; l++) {
        uint32_t index = b[2 + l] | (uint32_t)(b[66 + l / 8] >> (l % 8) & 1) << 8;
        put(sl_iq3s_grid[index], 4, (uint32_t)b[74 + l / 2] >> (l % 2 * 4), u->q + 4 * l);
    }
}

static void put_iq1(uint32_t index, bool negative, int8_t *q) {
    uint64_t grid = sl_iq1_grid[index];
    for (int j = 0; j < 8; j++)
        q[j] = (int8_t)(8 * (int8_t)(grid >> (8 * j)) + (negative ? -1 : 1));
}

/* d, qs[32], per 32 a word: four times 3 high bits of indices, 3-bit scale, sign of the delta. */
static void unpack_iq1_s(const uint8_t *b, struct sl_unpacked *u) {
    for (int s = 0; s < 8; s++) {
        uint32_t qh = load_u16(b + 34 + 2 * s);
        scale_pair(u, s, (int)(qh >> 12 & 7));
        for (int l = 0; l < 4; l++)
            put_iq1(b[2 + 4 * s + l] | (qh >> (3 * l) & 7) << 8, qh >> 15, u->q + 32 * s + 8 * l);
    }
}

/* qs[32], qh[16] (a nibble per 8: 3 high bits and the delta's sign), four words of four 3-bit
 * scales whose top nibbles make up d. */
static void unpack_iq1_m(const uint8_t *b, struct sl_unpacked *u) {
    uint32_t d = 0;
    for (int i = 0; i < 4; i++)
        d |= (uint32_t)(load_u16(b + 48 + 2 * i) >> 12) << (4 * i);
    u->d = sl_f16_to_f32((uint16_t)d) * 0.125f;
    for (int s = 0; s < 16; s++)
        u->scale[s] = (int16_t)(2 * (load_u16(b + 48 + s / 4 * 2) >> (s % 4 * 3) & 7) + 1);
    for (int l = 0; l < 32; l++) {
        uint32_t qh = (uint32_t)(b[32 + l / 2] >> (l % 2 * 4)) & 15;
        put_iq1(b[l] | (qh & 7) << 8, qh >> 3, u->q + 8 * l);
    }
}

void sl_unpack_block_iq(enum sl_dtype dtype, const void *block, struct sl_unpacked *out) {
    const uint8_t *b = block;
    float d = sl_f16_to_f32(load_u16(b));
    switch (dtype) {
    case SL_DTYPE_IQ2_XXS:
        out->d = d * 0.125f;
        unpack_iq2_xxs(b, out);
        break;
    case SL_DTYPE_IQ2_XS:
        out->d = d * 0.125f;
        unpack_iq2_xs(b, out);
        break;
    case SL_DTYPE_IQ2_S:
        out->d = d * 0.125f;
        unpack_iq2_s(b, out);
        break;
    case SL_DTYPE_IQ3_XXS:
        out->d = d * 0.25f;
        unpack_iq3_xxs(b, out);
        break;
    case SL_DTYPE_IQ3_S:
        out->d = d;
        unpack_iq3_s(b, out);
        break;
    case SL_DTYPE_IQ1_S:
        out->d = d * 0.125f;
        unpack_iq1_s(b, out);
        break;
    default:
        unpack_iq1_m(b, out);
    }
}
