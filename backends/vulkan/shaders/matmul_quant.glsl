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

uint first_row; /* of the workgroup's */
uint64_t line_weights(uint q) {
    return a.w + uint64_t(min(first_row + q, a.n_out - 1u)) * a.row_bytes;
}

float strips(uint64_t x, uint64_t x_stride, uint n, uint l, bool aligned) {
    if (n == 1u)
        return strips_of_one(ROWS, x, a.n_in, l, aligned);
    return strips_of(ROWS, x, x_stride, n, a.n_in, l, aligned);
}

void main() {
    uint n_rows = (a.n_out + ROWS - 1u) / ROWS, tok = group() / n_rows * TOK;
    uint first = group() % n_rows * ROWS, l = gl_LocalInvocationID.x;
    if (tok >= a.n_tok)
        return;
    iq_grid = a.grid;
    find_alignment(a.w, a.row_bytes);
    uint n = min(a.n_tok - tok, TOK), o = min(first + l / LANES, a.n_out - 1u);
    uint64_t x_stride = uint64_t((a.n_in + 255u) / 256u) * QX_BYTES;
    uint64_t x = a.x + tok * x_stride;
    uint out_at = first + l % ROWS;
    bool has_output = l < ROWS * n && out_at < a.n_out;
    f32s y = f32s(a.y + uint64_t(tok + l / ROWS) * a.n_out * 4u);
    float before = 0.0, v; /* asked for ahead of the weights */
    if (has_output && a.add != 0u)
        before = y.v[out_at];
    first_row = first;
    if (!has_strips())
        v = product(a.w + uint64_t(o) * a.row_bytes, x, x_stride, n, a.n_in, l);
    else if (TYPE == Q6_K || aligned16)
        v = strips(x, x_stride, n, l, true);
    else
        v = strips(x, x_stride, n, l, false);
    if (!has_output)
        return;
    precise float s = a.bias != 0 ? v + f32s(a.bias).v[out_at] : v;
    y.v[out_at] = a.add != 0u ? before + s : s;
}
