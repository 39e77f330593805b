#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* The largest of each 64 elements, where it is, and the sum of exponentials below it: a block an
 * invocation. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x, most, at, sum, inv_t;
    uint n_tok, n, n_blocks;
} a;

/* common/fast_exp.h */
float exp_below(float x) {
    precise float clamped = x < -87.0 ? -87.0 : x;
    precise float shifted = clamped * 1.44269504;
    shifted = shifted + 12582912.0;
    precise float n = shifted - 12582912.0, high = n * 0.693359375, low = n * 2.12194440e-4;
    precise float r = clamped - high;
    r = r + low;
    precise float p = 1.0 / 5040.0;
    p = p * r;
    p = p + 1.0 / 720.0;
    p = p * r;
    p = p + 1.0 / 120.0;
    p = p * r;
    p = p + 1.0 / 24.0;
    p = p * r;
    p = p + 1.0 / 6.0;
    p = p * r;
    p = p + 0.5;
    p = p * r;
    p = p + 1.0;
    p = p * r;
    p = p + 1.0;
    float scale = uintBitsToFloat(floatBitsToUint(shifted) + 127u << 23);
    p = p * scale;
    return x < -87.0 ? 0.0 : p;
}

/* In the order of floats, both zeros alike: devices that flush denormals compare them as zeros. */
int order(float x) {
    uint bits = floatBitsToUint(x);
    return bits << 1 == 0u ? 0 : int(bits ^ (bits >> 31 != 0u ? 0x7fffffffu : 0u));
}

void main() {
    uint64_t i = uint64_t(group()) * 64u + gl_LocalInvocationID.x;
    if (i >= uint64_t(a.n_tok) * a.n_blocks)
        return;
    uint t = uint(i / a.n_blocks), from = uint(i % a.n_blocks) * 64u, n = min(a.n - from, 64u);
    f32s x = f32s(a.x + (uint64_t(t) * a.n + from) * 4u);
    float top = -INFINITY;
    uint at = 0u;
    bool nan = false;
    for (uint k = 0; k < n; k++) {
        float v = x.v[k];
        nan = nan || is_nan(v);
        if (order(v) > order(top))
            at = k;
        if (order(v) > order(top) || order(v) == order(top) && floatBitsToUint(v) >> 31 == 0u)
            top = v;
    }
    top = nan ? NAN : top;
    f32s(a.most + i * 4u).v[0] = top;
    if (a.at != 0)
        u32s(a.at + i * 4u).v[0] = nan ? 0u : at;
    if (a.sum == 0)
        return;
    float inv_t = f32s(a.inv_t).v[t], part[16];
    for (uint k = 0; k < 16u; k++)
        part[k] = 0.0;
    bool finite = (floatBitsToUint(top) & 0x7f800000u) != 0x7f800000u && inv_t > 0.0;
    for (uint k = 0; k < n && finite; k++) {
        precise float below = (x.v[k] - top) * inv_t;
        part[k % 16u] += exp_below(below);
    }
    f32s(a.sum + i * 4u).v[0] = finite ? tree_sum(part) : 0.0;
}
