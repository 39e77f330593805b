#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, rows, y;
    uint n_out, n;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_out) * a.n)
        return;
    uint row = u32s(a.rows).v[uint(at / a.n)];
    u32s(a.y + at * 4u).v[0] = u32s(a.x + (uint64_t(row) * a.n + at % a.n) * 4u).v[0];
}
