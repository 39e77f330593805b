#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Does fma round once? (1 + 2^-12)^2 - 1 - 2^-11 is 2^-24 only where the product is not rounded. */
layout(local_size_x = 1) in;
layout(push_constant) uniform args {
    uint64_t y;
} a;

void main() {
    /* An even address's last bit, so that no compiler knows it. */
    float x = uintBitsToFloat(0x3f800800u | uint(a.y & 1u));
    precise float y = fma(x, x, -uintBitsToFloat(0x3f801000u));
    u32s(a.y).v[0] = y == uintBitsToFloat(0x33800000u) ? 1u : 0u;
    u32s(a.y).v[1] = floatBitsToUint(y);
}
