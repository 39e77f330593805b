#include "common.glsl"
#include "types.glsl"
#define QUANTIZED
#define TOK 8u
#include "product.glsl"

/* Up to 8 rows of quantised input times ROWS rows of weights a workgroup. */
layout(local_size_x = 128) in;
layout(push_constant) uniform args {
    uint64_t w, x, bias, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, add;
} a;

void main() {
    uint n_rows = (a.n_out + ROWS - 1u) / ROWS, tok = group() / n_rows * TOK;
    uint first = group() % n_rows * ROWS, l = gl_LocalInvocationID.x;
    if (tok >= a.n_tok)
        return;
    iq_grid = a.grid;
    find_alignment(a.w, a.row_bytes);
    uint n = min(a.n_tok - tok, TOK), o = min(first + l / LANES, a.n_out - 1u);
    uint64_t x_stride = uint64_t((a.n_in + 255u) / 256u) * QX_BYTES;
    float v = product(a.w + uint64_t(o) * a.row_bytes, a.x + tok * x_stride, x_stride, n, a.n_in, l);
    o = first + l % ROWS;
    if (l >= ROWS * n || o >= a.n_out)
        return;
    f32s y = f32s(a.y + uint64_t(tok + l / ROWS) * a.n_out * 4u);
    precise float s = a.bias != 0 ? v + f32s(a.bias).v[o] : v;
    y.v[o] = a.add != 0u ? y.v[o] + s : s;
}
