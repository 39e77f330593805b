#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, n;
    float limit;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= a.n)
        return;
    f32s x = f32s(a.x + at * 4u);
    float v = x.v[0];
    v = v > a.limit ? a.limit : v;
    x.v[0] = v < -a.limit ? -a.limit : v;
}
