#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"
#define QUANTIZED
#define ONE
#include "product.glsl"

/* One matrix of the experts that pairs of rows and experts name. */
layout(local_size_x = 128) in;
layout(push_constant) uniform args {
    uint64_t x, ids, pairs, refs, bias, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_pairs, k, which, by_pair, to_pair;
} a;

uint64_t matrix;
uint first_row;
uint64_t line_weights(uint q) {
    return matrix + uint64_t(min(first_row + q, a.n_out - 1u)) * a.row_bytes;
}

void main() {
    uint n_rows = (a.n_out + ROWS - 1u) / ROWS, at = group() / n_rows;
    uint first = group() % n_rows * ROWS, l = gl_LocalInvocationID.x;
    if (at >= a.n_pairs)
        return;
    iq_grid = a.grid;
    uint pair = a.pairs != 0 ? u32s(a.pairs).v[at] : at, expert = u32s(a.ids).v[pair];
    uint64_t w = u64s(a.refs).v[expert * 3u + a.which];
    find_alignment(w, a.row_bytes);
    uint o = min(first + l / LANES, a.n_out - 1u);
    uint64_t x_stride = uint64_t((a.n_in + 255u) / 256u) * QX_BYTES;
    uint64_t x = a.x + (a.by_pair != 0u ? at : pair / a.k) * x_stride;
    matrix = w;
    first_row = first;
    float v;
    if (!has_strips())
        v = product_one(w + uint64_t(o) * a.row_bytes, x, a.n_in, l);
    else if (TYPE == Q6_K || aligned16)
        v = strips_of_one(ROWS, x, a.n_in, l, true);
    else
        v = strips_of_one(ROWS, x, a.n_in, l, false);
    o = first + l;
    if (l >= ROWS || o >= a.n_out)
        return;
    precise float s = v;
    if (a.bias != 0)
        s = v + f32s(a.bias + uint64_t(expert) * a.n_out * 4u).v[o];
    f32s(a.y + uint64_t(a.to_pair != 0u ? pair : at) * a.n_out * 4u).v[o] = s;
}
