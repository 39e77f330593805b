#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t gate, y;
    uint n_rows, n, stride_gate;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_rows) * a.n)
        return;
    uint row = uint(at / a.n), i = uint(at % a.n);
    f32s y = f32s(a.y + at * 4u);
    y.v[0] *= sigmoid(f32s(a.gate + uint64_t(row) * a.stride_gate * 4u).v[i]);
}
