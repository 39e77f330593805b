#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* An activation of gate times up: backends/activation.h. */
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
    precise float y;
    switch (a.activation) {
    case 1u: /* clamped */
        g = 7.0 < g ? 7.0 : g;
        u = 7.0 < u ? 7.0 : u;
        u = -7.0 > u ? -7.0 : u;
        y = divide(g, 1.0 + exp_defined(-(1.702 * g))) * (u + 1.0);
        break;
    case 2u:
        y = gelu(g) * u;
        break;
    case 3u: /* limited */
        u = u > a.limit ? a.limit : u;
        u = u < -a.limit ? -a.limit : u;
        g = silu(g);
        y = (g > a.limit ? a.limit : g) * u;
        break;
    case 4u:
        y = (g > 0.0 ? g : 0.0) * u;
        break;
    case 5u: /* cut */
        g = g > a.limit ? a.limit : g;
        u = u > a.limit ? a.limit : u;
        u = u < -a.limit ? -a.limit : u;
        y = silu(g) * u;
        break;
    default:
        y = silu(g) * u;
    }
    f32s(a.y + at * 4u).v[0] = y;
}
