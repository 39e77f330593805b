#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, gate, y;
    uint n_tok, n;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_tok) * a.n)
        return;
    f32s y = f32s(a.y + at * 4u);
    float x = f32s(a.x + at * 4u).v[0];
    y.v[0] = a.gate != 0 ? fma_once(x, sigmoid(f32s(a.gate).v[uint(at / a.n)]), y.v[0])
                         : y.v[0] + x;
}
