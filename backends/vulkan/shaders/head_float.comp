#version 460
#extension GL_GOOGLE_include_directive : require
/* Rows of a head's matrix times that head's part of the rows: as matmul_float.comp, head by head. */
#include "common.glsl"
#include "types.glsl"
#define TOK 8u
#include "product.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t w, x, y, grid, head_bytes;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, n_heads, stride_x, stride_y; /* strides: of heads */
} a;

void main() {
    uint n_rows = (a.n_out + ROWS - 1u) / ROWS, h = group() / n_rows % a.n_heads;
    uint tok = group() / n_rows / a.n_heads * TOK;
    uint row = gl_LocalInvocationID.x / 16u, lane = gl_LocalInvocationID.x % 16u;
    uint o = group() % n_rows * ROWS + row;
    if (tok >= a.n_tok)
        return;
    uint n = min(a.n_tok - tok, TOK);
    uint64_t x_stride = uint64_t(a.stride_x) * 4u;
    uint64_t first = uint64_t(tok) * a.n_heads + h;
    float v = product(a.w + h * a.head_bytes + uint64_t(min(o, a.n_out - 1u)) * a.row_bytes,
                      a.x + first * x_stride, x_stride * a.n_heads, n, a.n_in, row, lane);
    if (lane < n && o < a.n_out)
        f32s(a.y + (first + lane * a.n_heads) * a.stride_y * 4u).v[o] = v;
}
