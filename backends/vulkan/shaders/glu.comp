#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "activation.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t gate, up, y, n;
    uint activation;
    float limit;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= a.n)
        return;
    float g = f32s(a.gate + at * 4u).v[0], u = f32s(a.up + at * 4u).v[0];
    f32s(a.y + at * 4u).v[0] = activate(a.activation, a.limit, g, u);
}
