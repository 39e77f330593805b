#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t gate, up, rows, y;
    uint n_tok, n, stride_up;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_tok) * a.n)
        return;
    uint t = uint(at / a.n), row = a.rows != 0 ? u32s(a.rows).v[t] : t;
    float u = f32s(a.up + uint64_t(row) * a.stride_up * 4u).v[uint(at % a.n)];
    f32s(a.y + at * 4u).v[0] = gelu(f32s(a.gate + at * 4u).v[0]) * u;
}
