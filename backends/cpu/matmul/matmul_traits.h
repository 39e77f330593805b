/* What the kernels need to know of the 256-element types: where a block's parts are, and how it is
 * unpacked. */
#ifndef SL_BACKENDS_CPU_MATMUL_TRAITS_H
#define SL_BACKENDS_CPU_MATMUL_TRAITS_H

#include "backends/cpu/matmul/simd512.h"
#include "common/dtype.h"

#include <stdbool.h>

#ifdef __AVX2__

/* In which order a block's four vectors hold its elements. */
enum order {
    ORDER_NATURAL, /* vector k: 64k.. */
    ORDER_HALVES,  /* 32-element subs (0 2) (1 3) (4 6) (5 7): nibbles as Q4_K packs them */
    ORDER_LANES,   /* first and second 16 of subs 0..3, the same of subs 4..7 */
};

/* Offsets are bytes from the block's beginning. */
struct super_traits {
    uint8_t bytes;         /* of a block */
    uint8_t d_at, dmin_at; /* f16 scales; IQ1_M: spread over the sub-scales */
    uint8_t qs_at;         /* the low bits of elements, or of indices into a grid */
    uint8_t high_at;       /* their other bits */
    uint8_t signs_at;
    uint8_t scales_at;
    uint8_t extra_at;        /* a bit for each sub-scale: has its other values */
    uint8_t offset;          /* u = q + offset */
    uint8_t sub;             /* elements per sub-scale */
    uint8_t order;           /* enum order */
    bool has_min, is_signed; /* is_signed: u are magnitudes */
};

/* What a type lacks, and what it has at the beginning of a block, is 0. Sub-scales of IQ2_XXS and
 * IQ3_XXS are atop the words of signs, those of IQ1_S atop the high bits; signs of IQ2_XS are atop
 * the indices. Of sub-scales in two parts the high bits, or signs, come first. */
SL_INLINE struct super_traits super_traits(enum sl_dtype t) {
    static const struct super_traits of[SL_DTYPE_COUNT] = {
        [SL_DTYPE_Q2_K] =
            {.bytes = 84, .d_at = 80, .dmin_at = 82, .qs_at = 16, .sub = 16, .has_min = true},
        [SL_DTYPE_Q3_K] =
            {.bytes = 110, .d_at = 108, .qs_at = 32, .scales_at = 96, .offset = 4, .sub = 16},
        [SL_DTYPE_Q4_K] = {.bytes = 144,
                           .dmin_at = 2,
                           .qs_at = 16,
                           .scales_at = 4,
                           .sub = 32,
                           .order = ORDER_HALVES,
                           .has_min = true},
        [SL_DTYPE_Q5_K] = {.bytes = 176,
                           .dmin_at = 2,
                           .qs_at = 48,
                           .high_at = 16,
                           .scales_at = 4,
                           .sub = 32,
                           .order = ORDER_HALVES,
                           .has_min = true},
        [SL_DTYPE_Q6_K] =
            {.bytes = 210, .d_at = 208, .high_at = 128, .scales_at = 192, .offset = 32, .sub = 16},
        [SL_DTYPE_IQ4_XS] = {.bytes = 136,
                             .qs_at = 8,
                             .scales_at = 2,
                             .offset = 128,
                             .sub = 32,
                             .order = ORDER_LANES},
        [SL_DTYPE_IQ2_XXS] =
            {.bytes = 66, .qs_at = 2, .signs_at = 6, .scales_at = 6, .sub = 32, .is_signed = true},
        [SL_DTYPE_IQ2_XS] =
            {.bytes = 74, .qs_at = 2, .signs_at = 2, .scales_at = 66, .sub = 16, .is_signed = true},
        [SL_DTYPE_IQ2_S] = {.bytes = 82,
                            .qs_at = 2,
                            .high_at = 66,
                            .signs_at = 34,
                            .scales_at = 74,
                            .sub = 16,
                            .is_signed = true},
        [SL_DTYPE_IQ3_XXS] = {.bytes = 98,
                              .qs_at = 2,
                              .signs_at = 66,
                              .scales_at = 66,
                              .sub = 32,
                              .is_signed = true},
        [SL_DTYPE_IQ3_S] = {.bytes = 110,
                            .qs_at = 2,
                            .high_at = 66,
                            .signs_at = 74,
                            .scales_at = 106,
                            .sub = 32,
                            .is_signed = true},
        [SL_DTYPE_IQ1_S] =
            {.bytes = 50, .qs_at = 2, .high_at = 34, .scales_at = 34, .offset = 9, .sub = 16},
        [SL_DTYPE_TQ1_0] = {.bytes = 54, .d_at = 52, .high_at = 48, .offset = 1, .sub = 16},
        [SL_DTYPE_TQ2_0] = {.bytes = 66, .d_at = 64, .offset = 1, .sub = 16},
        [SL_DTYPE_IQ2_K] =
            {.bytes = 76, .qs_at = 12, .scales_at = 4, .extra_at = 2, .offset = 128, .sub = 16},
        [SL_DTYPE_IQ3_K] = {.bytes = 110,
                            .qs_at = 14,
                            .high_at = 78,
                            .scales_at = 4,
                            .extra_at = 2,
                            .offset = 128,
                            .sub = 16},
        [SL_DTYPE_IQ4_K] =
            {.bytes = 144, .qs_at = 16, .scales_at = 4, .extra_at = 2, .offset = 128, .sub = 16},
        [SL_DTYPE_IQ5_K] = {.bytes = 176,
                            .qs_at = 16,
                            .high_at = 144,
                            .scales_at = 4,
                            .extra_at = 2,
                            .offset = 128,
                            .sub = 16},
        [SL_DTYPE_IQ6_K] = {.bytes = 212,
                            .qs_at = 20,
                            .high_at = 148,
                            .scales_at = 4,
                            .extra_at = 2,
                            .offset = 128,
                            .sub = 16},
        [SL_DTYPE_IQ1_M] = {.bytes = 56, .high_at = 32, .scales_at = 48, .offset = 9, .sub = 16},
    };
    return of[t];
}

/* A power of two that moves from the sub-scales into d (formats.h). */
SL_INLINE float super_d_factor(enum sl_dtype t) {
    switch (t) {
    case SL_DTYPE_IQ2_XXS:
    case SL_DTYPE_IQ2_XS:
    case SL_DTYPE_IQ2_S:
    case SL_DTYPE_IQ1_S:
    case SL_DTYPE_IQ1_M:
        return 0.125f;
    case SL_DTYPE_IQ3_XXS:
        return 0.25f;
    default:
        return 1.0f;
    }
}

SL_INLINE uint16_t ld16(const uint8_t *p) {
    uint16_t a;
    memcpy(&a, p, 2);
    return a;
}
SL_INLINE uint32_t ld32(const uint8_t *p) {
    uint32_t a;
    memcpy(&a, p, 4);
    return a;
}
SL_INLINE uint64_t ld64(const uint8_t *p) {
    uint64_t a;
    memcpy(&a, p, 8);
    return a;
}
SL_INLINE uint64_t join32(uint32_t lo, uint32_t hi) {
    return lo | (uint64_t)hi << 32;
}

SL_INLINE __m256i index8(uint64_t bytes) {
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
}
/* Bytes and, above them, high bits as bytes. */
SL_INLINE __m256i index8_high(uint64_t bytes, uint64_t high) {
    return _mm256_or_si256(index8(bytes), _mm256_slli_epi32(index8(high), 8));
}

/* 2s + 1 of bytes. */
SL_INLINE uint64_t odd_bytes(uint64_t s) {
    return s * 2 + 0x0101010101010101;
}

#endif
#endif
