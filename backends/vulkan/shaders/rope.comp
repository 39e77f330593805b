#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, table;
    uint n_tok, n_heads, head_dim, stride, n_freq, neox;
} a;

void main() {
    uint per_tok = (a.n_heads * a.n_freq + 255u) / 256u, t = group() / per_tok;
    uint n = group() % per_tok * 256u + gl_LocalInvocationID.x;
    if (t >= a.n_tok || n >= a.n_heads * a.n_freq)
        return;
    uint h = n / a.n_freq, i = n % a.n_freq;
    f32s x = f32s(a.x + (uint64_t(t) * a.stride + h * a.head_dim) * 4u);
    f32s cs = f32s(a.table + (uint64_t(t) * a.n_freq + i) * 8u);
    uint at = a.neox != 0u ? i : 2u * i, other = a.neox != 0u ? i + a.n_freq : 2u * i + 1u;
    float u = x.v[at], v = x.v[other], c = cs.v[0], s = cs.v[1];
    precise float vs = -(v * s), vc = v * c;
    x.v[at] = fma_once(u, c, vs);
    x.v[other] = fma_once(u, s, vc);
}
