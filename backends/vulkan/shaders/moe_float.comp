#version 460
#extension GL_GOOGLE_include_directive : require
/* One matrix of the experts that pairs of rows and experts name. */
#include "common.glsl"
#include "types.glsl"
#define TOK 1u
#include "product.glsl"

layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x, ids, pairs, refs, bias, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_pairs, k, which, by_pair, to_pair;
} a;

void main() {
    uint n_rows = (a.n_out + ROWS - 1u) / ROWS, at = group() / n_rows;
    uint row = gl_LocalInvocationID.x / 16u, lane = gl_LocalInvocationID.x % 16u;
    uint o = group() % n_rows * ROWS + row;
    if (at >= a.n_pairs)
        return;
    uint pair = a.pairs != 0 ? u32s(a.pairs).v[at] : at, expert = u32s(a.ids).v[pair];
    uint64_t w = u64s(a.refs).v[expert * 3u + a.which];
    uint64_t x_stride = uint64_t(a.n_in) * 4u;
    uint64_t x = a.x + (a.by_pair != 0u ? at : pair / a.k) * x_stride;
    float v = product(w + uint64_t(min(o, a.n_out - 1u)) * a.row_bytes, x, x_stride, 1u, a.n_in,
                      row, lane);
    if (lane != 0u || o >= a.n_out)
        return;
    precise float s = v;
    if (a.bias != 0)
        s = v + f32s(a.bias + uint64_t(expert) * a.n_out * 4u).v[o];
    f32s(a.y + uint64_t(a.to_pair != 0u ? pair : at) * a.n_out * 4u).v[o] = s;
}
