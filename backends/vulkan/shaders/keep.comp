#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Elements behind what a head's matrix multiplies, which are copied. */
layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, y; /* of the first row's */
    uint n_rows, n, stride_x, stride_y;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_rows) * a.n)
        return;
    uint64_t row = at / a.n, i = at % a.n;
    u32s(a.y + (row * a.stride_y + i) * 4u).v[0] = u32s(a.x + (row * a.stride_x + i) * 4u).v[0];
}
