#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, by, rows, y;
    uint n_tok, n;
    float factor, cap;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_tok) * a.n)
        return;
    precise float v = f32s(a.x + at * 4u).v[0] * a.factor;
    if (a.by != 0)
        v = v * f32s(a.by).v[0];
    if (a.rows != 0)
        v = v * f32s(a.rows).v[uint(at / a.n)];
    f32s(a.y + at * 4u).v[0] = a.cap > 0.0 ? soft_cap(v, a.cap) : v;
}
