#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"
#define QUANTIZED
#define TOK 8u
#include "product.glsl"

/* Rows of a head's matrix times that head's part of the rows: as matmul_quant.comp, head by head. */
layout(local_size_x = 128) in;
layout(push_constant) uniform args {
    uint64_t w, x, y, grid, head_bytes;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, n_heads, stride_x, stride_y; /* strides: of heads */
} a;

void main() {
    uint n_rows = (a.n_out + ROWS - 1u) / ROWS, h = group() / n_rows % a.n_heads;
    uint tok = group() / n_rows / a.n_heads * TOK, l = gl_LocalInvocationID.x;
    uint from = group() % n_rows * ROWS, o = min(from + l / LANES, a.n_out - 1u);
    if (tok >= a.n_tok)
        return;
    iq_grid = a.grid;
    find_alignment(a.w | a.head_bytes, a.row_bytes);
    uint n = min(a.n_tok - tok, TOK);
    uint64_t x_stride = uint64_t((a.n_in + 255u) / 256u) * QX_BYTES;
    uint64_t first = uint64_t(tok) * a.n_heads + h;
    float v = product(a.w + h * a.head_bytes + uint64_t(o) * a.row_bytes, a.x + first * x_stride,
                      x_stride * a.n_heads, n, a.n_in, l);
    o = from + l % ROWS;
    if (l < ROWS * n && o < a.n_out)
        f32s(a.y + (first + l / ROWS * a.n_heads) * a.stride_y * 4u).v[o] = v;
}
