#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t gate, y;
    uint n_rows, n, per_row, soft; /* rows: heads of all tokens */
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_rows) * a.n)
        return;
    float g = f32s(a.gate + (a.per_row != 0u ? at / a.n : at) * 4u).v[0];
    f32s(a.y + at * 4u).v[0] *= a.soft != 0u ? softplus(g) : sigmoid(g);
}
