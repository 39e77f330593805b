/* What the kernels share: memory by address, and arithmetic that rounds as the definitions do.
 *
 * A module is compiled twice: for devices whose fma rounds once, and (DOUBLES) for others, where it
 * is computed in doubles. */
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require
#extension GL_EXT_control_flow_attributes : require

layout(buffer_reference, std430, buffer_reference_align = 4) buffer f32s { float v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer u32s { uint v[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer i32s { int v[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer u64s { uint64_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer u16s { uint16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer i16s { int16_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 1) buffer u8s { uint8_t v[]; };
layout(buffer_reference, std430, buffer_reference_align = 1) buffer i8s { int8_t v[]; };

/* Tensor types, as common/dtype.h numbers them. */
#define F32 0
#define F16 1
#define Q4_0 2
#define Q4_1 3
#define Q5_0 6
#define Q5_1 7
#define Q8_0 8
#define Q2_K 10
#define Q3_K 11
#define Q4_K 12
#define Q5_K 13
#define Q6_K 14
#define IQ4_NL 20
#define IQ4_XS 23
#define BF16 30
#define MXFP4 39

/* The type that a pipeline was made for; 0 where there is one kernel for all. */
layout(constant_id = 0) const uint TYPE = 0;

#define INFINITY uintBitsToFloat(0x7f800000u)
#define NAN uintBitsToFloat(0x7fc00000u)

uint group() {
    return gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
}

bool is_nan(float x) {
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

/* a * b + c, rounded once. */
#ifdef DOUBLES
float fma_once(float a, float b, float c) {
    precise double p = double(a) * double(b), d = double(c); /* exact */
    precise double s = p + d, t = s - p;
    precise double e = (p - (s - t)) + (d - t); /* what s lacks, exactly */
    uvec2 bits = unpackDouble2x32(s);
    bool finite = (bits.y & 0x7ff00000u) != 0x7ff00000u;
    /* Rounded to odd, so that rounding again, to a float, is as rounding once. */
    if (finite && e != 0.0 && (bits.x & 1u) == 0u) {
        bool beyond = (e > 0.0) == (s > 0.0);
        if (!beyond) {
            bits.y -= bits.x == 0u ? 1u : 0u;
            bits.x -= 1u;
        } else {
            bits.x |= 1u;
        }
        s = packDouble2x32(bits);
    }
    return float(s);
}
#else
float fma_once(float a, float b, float c) {
    precise float y = fma(a, b, c);
    return y;
}
#endif

/* a / b and sqrt(x), rounded to nearest, which a device's own need not be. */
#ifdef DOUBLES
float divide(float a, float b) {
    return float(double(a) / double(b));
}
float root(float x) {
    return float(sqrt(double(x)));
}
#else
bool plain(float x) { /* far enough from what overflows or becomes denormal */
    uint e = floatBitsToUint(x) >> 23 & 0xffu;
    return e > 32u && e < 220u;
}
float divide(float a, float b) {
    precise float q = a / b;
    if (!plain(q) || !plain(b) || !plain(a))
        return q;
    precise float r = 1.0 / b;
    r = fma(fma(-b, r, 1.0), r, r);
    q = a * r;
    q = fma(fma(-b, q, a), r, q);
    return fma(fma(-b, q, a), r, q);
}
float root(float x) {
    precise float s = sqrt(x);
    if (!plain(x))
        return s;
    precise float h = 0.5 / s;
    return fma(fma(-s, s, x), h, s);
}
#endif

/* The backends' exp: backends/cpu/math.h. */
float exp_defined(float x) {
    x = 89.0 < x ? 89.0 : x;
    x = -104.0 > x ? -104.0 : x;
    precise float t = fma_once(x, uintBitsToFloat(0x3fb8aa3bu), 12582912.0);
    precise float n = t - 12582912.0;
    float r = fma_once(n, -uintBitsToFloat(0x3f317200u), x);
    r = fma_once(n, -uintBitsToFloat(0x35bfbe8eu), r);
    float p = fma_once(uintBitsToFloat(0x3ab511a1u), r, uintBitsToFloat(0x3c091d36u));
    p = fma_once(p, r, uintBitsToFloat(0x3d2aac7au));
    p = fma_once(p, r, uintBitsToFloat(0x3e2aaa48u));
    p = fma_once(p, r, uintBitsToFloat(0x3efffffeu));
    p = fma_once(p, r, 1.0);
    p = fma_once(p, r, 1.0);
    int ni = int(floatBitsToUint(t) - floatBitsToUint(12582912.0)), half_n = ni >> 1;
    precise float y = p * uintBitsToFloat(uint(half_n + 127) << 23);
    y = y * uintBitsToFloat(uint(ni - half_n + 127) << 23);
    return y;
}
float sigmoid(float x) {
    return divide(1.0, 1.0 + exp_defined(-x));
}
float silu(float x) {
    return divide(x, 1.0 + exp_defined(-x));
}

/* binary16 and bfloat16; f16_of rounds to nearest even. */
float f32_of_f16(uint h) {
    uint e = h >> 10 & 31u, m = h & 1023u, sign = (h & 0x8000u) << 16;
    if (e == 0u) { /* m * 2^-24 */
        float v = float(m) * uintBitsToFloat(0x33800000u);
        return uintBitsToFloat(sign | floatBitsToUint(v));
    }
    uint bits = e == 31u ? 0x7f800000u | m << 13 : (e + 112u) << 23 | m << 13;
    return uintBitsToFloat(sign | bits);
}
uint f16_of(float f) {
    uint u = floatBitsToUint(f), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return sign | 0x7e00u;
    if (a >= 0x477ff000u)
        return sign | 0x7c00u;
    if (a < 0x33000001u)
        return sign;
    if (a < 0x38800000u) {
        uint shift = 126u - (a >> 23), mant = a & 0x7fffffu | 0x800000u;
        uint y = mant >> shift, rest = mant & (1u << shift) - 1u, half_way = 1u << shift - 1u;
        return sign | y + uint(rest > half_way || rest == half_way && (y & 1u) == 1u);
    }
    a -= 112u << 23;
    uint y = a >> 13, rest = a & 0x1fffu;
    return sign | y + uint(rest > 0x1000u || rest == 0x1000u && (y & 1u) == 1u);
}

/* The sum of 16 partial sums, as the definition takes it. */
float tree_sum(float part[16]) {
    [[unroll]] for (int step = 8; step > 0; step /= 2)
        [[unroll]] for (int i = 0; i < step; i++)
            part[i] += part[i + step];
    return part[0];
}
