#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t pair_y, weights, y;
    uint n_tok, k, n, set;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_tok) * a.n)
        return;
    uint t = uint(at / a.n), i = uint(at % a.n);
    f32s y = f32s(a.y + at * 4u);
    float sum = a.set != 0u ? 0.0 : y.v[0];
    for (uint r = 0; r < a.k; r++) {
        uint64_t pair = uint64_t(t) * a.k + r;
        sum = fma_once(f32s(a.pair_y + (pair * a.n + i) * 4u).v[0],
                       f32s(a.weights + pair * 4u).v[0], sum);
    }
    y.v[0] = sum;
}
