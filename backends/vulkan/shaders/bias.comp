#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, b;
    uint n_tok, n;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at < uint64_t(a.n_tok) * a.n)
        f32s(a.x + at * 4u).v[0] += f32s(a.b).v[uint(at % a.n)];
}
