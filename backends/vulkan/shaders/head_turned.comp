#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#include "types.glsl"
/* A head's matrix, n_in rows of n_out weights, times that head's part of the rows: 16 outputs an
 * invocation, through all rows of the matrix in order. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t w, x, y, grid, head_bytes;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, n_heads, stride_x, stride_y;
} a;

void main() {
    uint units = (a.n_out + 15u) / 16u, i = group() * 64u + gl_LocalInvocationID.x;
    uint u = i % units, h = i / units % a.n_heads, t = i / units / a.n_heads;
    if (t >= a.n_tok)
        return;
    iq_grid = a.grid;
    uint64_t head = uint64_t(t) * a.n_heads + h, w = a.w + h * a.head_bytes;
    f32s x = f32s(a.x + head * a.stride_x * 4u), y = f32s(a.y + head * a.stride_y * 4u);
    float sum[16];
    [[unroll]] for (uint e = 0; e < 16u; e++)
        sum[e] = 0.0;
    for (uint r = 0; r < a.n_in; r++, w += a.row_bytes) {
        float v[16];
        dequantize(w, u, a.n_out, v);
        [[unroll]] for (uint e = 0; e < 16u; e++)
            sum[e] = fma_once(v[e], x.v[r], sum[e]);
    }
    [[unroll]] for (uint e = 0; e < 16u; e++)
        if (u * 16u + e < a.n_out)
            y.v[u * 16u + e] = sum[e];
}
