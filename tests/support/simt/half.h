/* __half and its conversions, as CUDA has them: to the nearest, ties to even. Part of kernel.h. */
#ifndef SL_TESTS_SUPPORT_SIMT_HALF_H
#define SL_TESTS_SUPPORT_SIMT_HALF_H

#include <stdint.h>
#include <string.h>

struct alignas(2) __half {
    uint16_t bits;
};
struct alignas(4) __half2 {
    __half x, y;
};

static inline float simt_as_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint32_t simt_as_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float __half2float(__half h) {
#ifdef __F16C__
    typedef short eight __attribute__((vector_size(16)));
    return __builtin_ia32_vcvtph2ps((eight){(short)h.bits})[0];
#else
    uint32_t sign = (uint32_t)(h.bits & 0x8000u) << 16, rest = h.bits & 0x7fffu;
    if (rest >= 0x7c00)
        return simt_as_float(sign | 0x7f800000u | (rest & 0x3ff) << 13);
    /* 2^112 times too small as a float's bits; denormals come out right as well. */
    return simt_as_float(sign | simt_as_bits(simt_as_float(rest << 13) * 0x1p112f));
#endif
}

static inline __half __float2half_rn(float f) {
    uint32_t bits = simt_as_bits(f), sign = bits >> 16 & 0x8000u, rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u)
        return {(uint16_t)0x7fff};
    if (rest >= 0x477ff000u) /* 65520 and more */
        return {(uint16_t)(sign | 0x7c00u)};
    if (rest < 0x38800000u) { /* a denormal: 2^-24 the unit, which the addition rounds to */
        uint32_t n = simt_as_bits(simt_as_float(rest) + 0.5f) - simt_as_bits(0.5f);
        return {(uint16_t)(sign | n)};
    }
    rest += 0xfffu + (rest >> 13 & 1);
    return {(uint16_t)(sign | (rest - 0x38000000u) >> 13)};
}

static inline __half __ushort_as_half(unsigned short bits) {
    return {bits};
}
static inline unsigned short __half_as_ushort(__half h) {
    return h.bits;
}

static inline __half2 __floats2half2_rn(float x, float y) {
    return {__float2half_rn(x), __float2half_rn(y)};
}
static inline float2 __half22float2(__half2 h) {
    return {__half2float(h.x), __half2float(h.y)};
}

#endif
