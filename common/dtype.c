#include "common/dtype.h"

#include <strings.h>

static const struct sl_dtype_info table[SL_DTYPE_COUNT] = {
    [SL_DTYPE_F32] = {"F32", 1, 4},
    [SL_DTYPE_F16] = {"F16", 1, 2},
    [SL_DTYPE_BF16] = {"BF16", 1, 2},
    [SL_DTYPE_Q4_0] = {"Q4_0", 32, 18},
    [SL_DTYPE_Q4_1] = {"Q4_1", 32, 20},
    [SL_DTYPE_Q5_0] = {"Q5_0", 32, 22},
    [SL_DTYPE_Q5_1] = {"Q5_1", 32, 24},
    [SL_DTYPE_Q8_0] = {"Q8_0", 32, 34},
    [SL_DTYPE_Q2_K] = {"Q2_K", 256, 84},
    [SL_DTYPE_Q3_K] = {"Q3_K", 256, 110},
    [SL_DTYPE_Q4_K] = {"Q4_K", 256, 144},
    [SL_DTYPE_Q5_K] = {"Q5_K", 256, 176},
    [SL_DTYPE_Q6_K] = {"Q6_K", 256, 210},
    [SL_DTYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [SL_DTYPE_IQ2_XS] = {"IQ2_XS", 256, 74},
    [SL_DTYPE_IQ2_S] = {"IQ2_S", 256, 82},
    [SL_DTYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [SL_DTYPE_IQ3_S] = {"IQ3_S", 256, 110},
    [SL_DTYPE_IQ1_S] = {"IQ1_S", 256, 50},
    [SL_DTYPE_IQ1_M] = {"IQ1_M", 256, 56},
    [SL_DTYPE_IQ4_NL] = {"IQ4_NL", 32, 18},
    [SL_DTYPE_IQ4_XS] = {"IQ4_XS", 256, 136},
    [SL_DTYPE_TQ1_0] = {"TQ1_0", 256, 54},
    [SL_DTYPE_TQ2_0] = {"TQ2_0", 256, 66},
    [SL_DTYPE_MXFP4] = {"MXFP4", 32, 17},
    [SL_DTYPE_IQ2_K] = {"IQ2_K", 256, 76},
    [SL_DTYPE_IQ3_K] = {"IQ3_K", 256, 110},
    [SL_DTYPE_IQ4_K] = {"IQ4_K", 256, 144},
    [SL_DTYPE_IQ5_K] = {"IQ5_K", 256, 176},
    [SL_DTYPE_IQ6_K] = {"IQ6_K", 256, 212},
    [SL_DTYPE_I32] = {"I32", 1, 4},
};

const struct sl_dtype_info *sl_dtype_stored(uint32_t dtype) {
    return dtype < SL_DTYPE_COUNT && table[dtype].name ? &table[dtype] : NULL;
}

const struct sl_dtype_info *sl_dtype_info(uint32_t dtype) {
    return dtype == SL_DTYPE_I32 ? NULL : sl_dtype_stored(dtype);
}

const char *sl_dtype_name(uint32_t dtype) {
    const struct sl_dtype_info *info = sl_dtype_stored(dtype);
    return info ? info->name : "unknown";
}

enum sl_dtype sl_dtype_from_name(const char *name) {
    for (uint32_t i = 0; i < SL_DTYPE_COUNT; i++)
        if (sl_dtype_info(i) && strcasecmp(table[i].name, name) == 0)
            return (enum sl_dtype)i;
    return SL_DTYPE_COUNT;
}

size_t sl_dtype_row_bytes(enum sl_dtype dtype, uint64_t n_elems) {
    const struct sl_dtype_info *info = &table[dtype];
    return (size_t)(n_elems / info->block_elems * info->block_bytes);
}

float sl_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t exp = (h >> 10) & 31;
    uint32_t mant = h & 0x3ff;
    uint32_t u;
    if (exp == 31) {
        u = sign | 0x7f800000u | mant << 13;
    } else if (exp) {
        u = sign | (exp + 112) << 23 | mant << 13;
    } else if (mant) { /* subnormal: shift until the hidden bit appears */
        uint32_t shift = (uint32_t)__builtin_clz(mant) - 21;
        u = sign | (113 - shift) << 23 | ((mant << shift) & 0x3ff) << 13;
    } else {
        u = sign;
    }
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

uint16_t sl_f32_to_f16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    uint32_t sign = (u >> 16) & 0x8000;
    uint32_t abs = u & 0x7fffffffu;
    if (abs > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00);
    if (abs >= 0x477ff000u) /* rounds to a value above 65504 */
        return (uint16_t)(sign | 0x7c00);
    if (abs < 0x33000001u) /* at most half of the smallest subnormal */
        return (uint16_t)sign;
    if (abs < 0x38800000u) { /* subnormal result */
        uint32_t shift = 126 - (abs >> 23);
        uint32_t mant = (abs & 0x7fffffu) | 0x800000u;
        uint32_t out = mant >> shift;
        uint32_t rest = mant & ((1u << shift) - 1);
        uint32_t half = 1u << (shift - 1);
        out += rest > half || (rest == half && (out & 1));
        return (uint16_t)(sign | out);
    }
    abs -= 112u << 23;
    uint32_t out = abs >> 13;
    uint32_t rest = abs & 0x1fff;
    out += rest > 0x1000 || (rest == 0x1000 && (out & 1));
    return (uint16_t)(sign | out);
}
