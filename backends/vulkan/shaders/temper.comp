#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, pos;
    uint n_tok, n, span, offset;
    float factor;
} a;

void main() {
    uint64_t at = uint64_t(group()) * 256u + gl_LocalInvocationID.x;
    if (at >= uint64_t(a.n_tok) * a.n)
        return;
    uint k = (uint(i32s(a.pos).v[uint(at / a.n)]) + a.offset) / a.span + 1u;
    float high = float(k), low = float(int(k - uint(high)));
    float by = k > 1u ? fma_once(a.factor, ln(high, low), 1.0) : 1.0;
    f32s(a.x + at * 4u).v[0] *= by;
}
