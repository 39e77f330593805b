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
layout(buffer_reference, std430, buffer_reference_align = 16) buffer vec4s { uvec4 v[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer float4s { vec4 v[]; };
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
#define IQ2_XXS 16
#define IQ2_XS 17
#define IQ3_XXS 18
#define IQ1_S 19
#define IQ4_NL 20
#define IQ3_S 21
#define IQ2_S 22
#define IQ4_XS 23
#define IQ1_M 29
#define BF16 30
#define TQ1_0 34
#define TQ2_0 35
#define MXFP4 39
#define IQ2_K 137
#define IQ3_K 138
#define IQ4_K 139
#define IQ5_K 140
#define IQ6_K 141

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

float gelu(float x) {
    precise float x2 = x * x, p = fma_once(x2, 0.044715, 1.0), xp = x * p;
    precise float c = -1.5957691216 * xp;
    return divide(x, 1.0 + exp_defined(c));
}
float soft_cap(float x, float cap) {
    precise float e = exp_defined(2.0 * divide(x, cap));
    precise float y = cap * (1.0 - divide(2.0, 1.0 + e));
    return y;
}

/* ln(x + low), to about a rounding, of a sum of at least 1 whose second part is small beside the
 * first: x = 2^e m, sqrt(1/2) <= m < sqrt(2), f = m - 1, s = f / (2 + f), and ln m = 2 artanh s,
 * written so that what is added to f is small. */
float ln(float x, float low) {
    uint bits = floatBitsToUint(x);
    int e = int(bits >> 23) - 127;
    float m = uintBitsToFloat(bits & 0x7fffffu | 0x3f800000u);
    if (m > 1.41421356) {
        m *= 0.5;
        e++;
    }
    precise float f = m - 1.0, s = divide(f, 2.0 + f), s2 = s * s, n = float(e);
    float p = fma_once(s2, 2.0 / 11.0, 2.0 / 9.0);
    p = fma_once(p, s2, 2.0 / 7.0);
    p = fma_once(p, s2, 2.0 / 5.0);
    p = fma_once(p, s2, 2.0 / 3.0);
    precise float half_f2 = 0.5 * f * f, rest = s * (half_f2 + s2 * p);
    rest = rest + fma_once(n, uintBitsToFloat(0x35bfbe8eu), divide(low, x));
    /* n times this ln 2 is exact: common.glsl's exp has the same two parts. */
    precise float y = n * uintBitsToFloat(0x3f317200u) + (f - (half_f2 - rest));
    return y;
}
/* ln(1 + exp(x)) */
float softplus(float x) {
    precise float e = exp_defined(x), u = 1.0 + e, of_e = u - 1.0, of_1 = u - of_e;
    precise float low = (1.0 - of_1) + (e - of_e);
    return x > 20.0 ? x : ln(u, low);
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
