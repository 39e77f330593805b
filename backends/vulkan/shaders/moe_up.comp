#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"
#define QUANTIZED
#define ONE
#include "product.glsl"
#include "activation.glsl"

/* The activation's output of pairs of rows and experts, four elements a workgroup: four rows of gate
 * and the same of up, of one type. */
layout(local_size_x = 128) in;
layout(push_constant) uniform args {
    uint64_t x, ids, pairs, refs, gate_bias, up_bias, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_pairs, k, activation;
    float limit;
} a;
#define OUT (ROWS / 2u)
shared float products[ROWS];

uint64_t gate_rows, up_rows;
uint first_row;
uint64_t line_weights(uint q) {
    return (q < OUT ? gate_rows : up_rows) + uint64_t(min(first_row + q % OUT, a.n_out - 1u)) * a.row_bytes;
}

void main() {
    uint n_groups = (a.n_out + OUT - 1u) / OUT, at = group() / n_groups, first = group() % n_groups * OUT;
    uint l = gl_LocalInvocationID.x, row = l / LANES;
    if (at >= a.n_pairs)
        return;
    iq_grid = a.grid;
    uint pair = a.pairs != 0 ? u32s(a.pairs).v[at] : at, expert = u32s(a.ids).v[pair];
    uint64_t gate = u64s(a.refs).v[expert * 3u], up = u64s(a.refs).v[expert * 3u + 1u];
    find_alignment(gate | up, a.row_bytes);
    uint64_t x = a.x + uint64_t(pair / a.k) * ((a.n_in + 255u) / 256u) * QX_BYTES;
    uint o = min(first + row % OUT, a.n_out - 1u);
    gate_rows = gate;
    up_rows = up;
    first_row = first;
    float v;
    if (!has_strips())
        v = product_one((row < OUT ? gate : up) + uint64_t(o) * a.row_bytes, x, a.n_in, l);
    else if (TYPE == Q6_K || aligned16)
        v = strips_of_one(ROWS, x, a.n_in, l, true);
    else
        v = strips_of_one(ROWS, x, a.n_in, l, false);
    o = first + l % OUT;
    if (l < ROWS && o < a.n_out) {
        uint64_t bias = l < OUT ? a.gate_bias : a.up_bias;
        precise float s = v;
        if (bias != 0)
            s = v + f32s(bias + uint64_t(expert) * a.n_out * 4u).v[o];
        products[l] = s;
    }
    barrier();
    if (l < OUT && o < a.n_out)
        f32s(a.y + uint64_t(at) * a.n_out * 4u).v[o] =
            activate(a.activation, a.limit, products[l], products[l + OUT]);
}
