/* Tensor element types, with GGUF's numbers, and their block geometry.
 * Source: GGUF specification (ggml docs/gguf.md) and the block layouts of ggml's quantised types;
 * of IQ2_K to IQ6_K, ik_llama.cpp's.
 */
#ifndef SL_COMMON_DTYPE_H
#define SL_COMMON_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum sl_dtype {
    SL_DTYPE_F32 = 0,
    SL_DTYPE_F16 = 1,
    SL_DTYPE_Q4_0 = 2,
    SL_DTYPE_Q4_1 = 3,
    SL_DTYPE_Q5_0 = 6,
    SL_DTYPE_Q5_1 = 7,
    SL_DTYPE_Q8_0 = 8,
    SL_DTYPE_Q2_K = 10,
    SL_DTYPE_Q3_K = 11,
    SL_DTYPE_Q4_K = 12,
    SL_DTYPE_Q5_K = 13,
    SL_DTYPE_Q6_K = 14,
    SL_DTYPE_IQ2_XXS = 16,
    SL_DTYPE_IQ2_XS = 17,
    SL_DTYPE_IQ3_XXS = 18,
    SL_DTYPE_IQ1_S = 19,
    SL_DTYPE_IQ4_NL = 20,
    SL_DTYPE_IQ3_S = 21,
    SL_DTYPE_IQ2_S = 22,
    SL_DTYPE_IQ4_XS = 23,
    SL_DTYPE_I32 = 26, /* of tables of numbers; no weight is of it */
    SL_DTYPE_IQ1_M = 29,
    SL_DTYPE_BF16 = 30,
    SL_DTYPE_TQ1_0 = 34,
    SL_DTYPE_TQ2_0 = 35,
    SL_DTYPE_MXFP4 = 39,
    /* ik_llama.cpp's. */
    SL_DTYPE_IQ2_K = 137,
    SL_DTYPE_IQ3_K = 138,
    SL_DTYPE_IQ4_K = 139,
    SL_DTYPE_IQ5_K = 140,
    SL_DTYPE_IQ6_K = 141,
    SL_DTYPE_COUNT = 142, /* one above the largest number: size of tables indexed by type */
};

struct sl_dtype_info {
    const char *name;     /* as GGUF tools print it, "Q4_K"; NULL for a number not supported */
    uint16_t block_elems; /* elements per block; a row is a whole number of blocks */
    uint16_t block_bytes;
};

/* NULL if the number is not a supported type of weights. */
const struct sl_dtype_info *sl_dtype_info(uint32_t dtype);
/* The same of what a file may hold: SL_DTYPE_I32 too. */
const struct sl_dtype_info *sl_dtype_stored(uint32_t dtype);
/* Is it one of ik_llama.cpp's with a table of values? */
static inline bool sl_dtype_is_iqk(enum sl_dtype dtype) {
    return dtype >= SL_DTYPE_IQ2_K && dtype <= SL_DTYPE_IQ6_K;
}
/* "Q4_K", or "unknown". */
const char *sl_dtype_name(uint32_t dtype);
/* The type with this name (case-insensitive), or SL_DTYPE_COUNT. */
enum sl_dtype sl_dtype_from_name(const char *name);
/* Bytes of a row of n_elems elements; n_elems must be a multiple of the block. */
size_t sl_dtype_row_bytes(enum sl_dtype dtype, uint64_t n_elems);

/* IEEE binary16 and bfloat16; to_* round to nearest even. */
float sl_f16_to_f32(uint16_t h);
uint16_t sl_f32_to_f16(float f);

static inline float sl_bf16_to_f32(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint16_t sl_f32_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 64); /* keep a NaN a NaN */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

#endif
