#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"
#define TOK 8u
#include "product.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t w, x, bias, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, add;
} a;

void main() {
    uint n_rows = (a.n_out + ROWS - 1u) / ROWS, tok = group() / n_rows * TOK;
    uint row = gl_LocalInvocationID.x / 16u, lane = gl_LocalInvocationID.x % 16u;
    uint o = group() % n_rows * ROWS + row;
    if (tok >= a.n_tok)
        return;
    uint n = min(a.n_tok - tok, TOK);
    uint64_t x_stride = uint64_t(a.n_in) * 4u;
    float v = product(a.w + uint64_t(min(o, a.n_out - 1u)) * a.row_bytes, a.x + tok * x_stride,
                      x_stride, n, a.n_in, row, lane);
    if (lane >= n || o >= a.n_out)
        return;
    f32s y = f32s(a.y + uint64_t(tok + lane) * a.n_out * 4u);
    precise float s = a.bias != 0 ? v + f32s(a.bias).v[o] : v;
    y.v[o] = a.add != 0u ? y.v[o] + s : s;
}
