#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"
/* Rows of the embedding matrix, 16 elements an invocation. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t w, ids, y, grid;
    uint64_t row_bytes;
    uint n_in, n_tok;
    float scale;
} a;

void main() {
    uint units = (a.n_in + 15u) / 16u, i = group() * 64u + gl_LocalInvocationID.x, t = i / units;
    uint u = i % units;
    if (t >= a.n_tok)
        return;
    uint64_t row = a.w + uint64_t(u32s(a.ids).v[t]) * a.row_bytes;
    f32s y = f32s(a.y + uint64_t(t) * a.n_in * 4u);
    iq_grid = a.grid;
    float v[16];
    dequantize(row, u, a.n_in, v);
    [[unroll]] for (uint e = 0; e < 16u; e++)
        if (u * 16u + e < a.n_in)
            y.v[u * 16u + e] = a.scale != 1.0 ? v[e] * a.scale : v[e];
}
