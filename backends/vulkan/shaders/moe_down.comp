#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"
#define QUANTIZED
#define TOK 8u
#include "product.glsl"

/* The down matrices of all experts of a row, and their weighted sum added to y: eight elements of it
 * a workgroup. x: the activation's output, quantised, a row for each pair. */
layout(local_size_x = 128) in;
layout(push_constant) uniform args {
    uint64_t x, ids, weights, refs, bias, pair_y, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, k, set;
} a;
shared float products[SPACE][ROWS];

void main() {
    uint n_groups = (a.n_out + ROWS - 1u) / ROWS, t = group() / n_groups;
    uint first = group() % n_groups * ROWS, l = gl_LocalInvocationID.x, row = l / LANES, lane = l % LANES;
    if (t >= a.n_tok)
        return;
    iq_grid = a.grid;
    uint n_pieces = a.n_in / 32u, n_steps = steps_of(a.n_in);
    uint64_t x_stride = uint64_t((a.n_in + 255u) / 256u) * QX_BYTES, at_row = uint64_t(min(first + row, a.n_out - 1u)) * a.row_bytes;
    uint o = first + l % ROWS;
    bool adds = l < ROWS && o < a.n_out;
    precise float sum = 0.0;
    if (adds && a.set == 0u)
        sum = f32s(a.y + uint64_t(t) * a.n_out * 4u).v[o];
    /* Experts at once: as many as there is room for the integers of. */
    uint room = has_four() ? SPACE / 2u : SPACE, at_once = min(room, a.k);
    for (uint from = 0; from < a.k; from += at_once) {
        uint n = min(at_once, a.k - from);
        float total = 0.0;
        /* ... with so many steps each */
        uint space = room / at_once;
        uint64_t x = a.x + (uint64_t(t) * a.k + from) * x_stride;
        for (uint begin = 0; begin < n_steps; begin += space) {
            uint n_here = min(space, n_steps - begin), n_parts = n * n_here;
            /* Part r * n_here + s is step s of expert r: counted, as divisions are slow. */
            uint next_r = 0u, next_s = 0u;
            for (uint part = 0; part < n_parts; part += 4u) {
                raw_piece now[4];
                uint64_t w[4];
                uint r[4], s[4];
                [[unroll]] for (uint j = 0; j < 4u; j++) {
                    r[j] = next_r;
                    s[j] = next_s;
                    next_s = next_s + 1u < n_here ? next_s + 1u : 0u;
                    next_r += next_s == 0u ? 1u : 0u;
                    if (j == 0u || part + j < n_parts) {
                        uint expert = u32s(a.ids).v[t * a.k + from + r[j]];
                        w[j] = u64s(a.refs).v[expert * 3u + 2u];
                        find_alignment(w[j], a.row_bytes);
                        w[j] += at_row;
                        if (is_staged())
                            now[j] = load_raw(w[j], piece_of(begin + s[j], lane, n_pieces));
                    }
                }
                [[unroll]] for (uint j = 0; j < 4u; j++)
                    if (j == 0u || part + j < n_parts) {
                        uint i = piece_of(begin + s[j], lane, n_pieces);
                        multiply(is_staged() ? make_staged(now[j], w[j], i) : make_other(w[j], i),
                                 i, x + r[j] * x_stride, place_of(r[j] * space + s[j], row, lane));
                    }
            }
            join_all(n, space, n_here, begin, a.n_in, x, x_stride, l);
            barrier();
            if (l < ROWS * n)
                [[dont_unroll]] for (uint s = 0; s < n_here; s++)
                    add_blocks(place_of(l / ROWS * space + s, l % ROWS, 0u),
                               min(LANES, n_pieces - (begin + s) * LANES), total);
            barrier();
        }
        if (l < ROWS * n && o < a.n_out) {
            uint pair = t * a.k + from + l / ROWS;
            precise float s = total;
            if (a.bias != 0)
                s = total + f32s(a.bias + uint64_t(u32s(a.ids).v[pair]) * a.n_out * 4u).v[o];
            f32s(a.pair_y + uint64_t(pair) * a.n_out * 4u).v[o] = s;
            products[l / ROWS][l % ROWS] = s;
        }
        barrier();
        if (adds)
            for (uint r = 0; r < n; r++)
                sum = fma_once(products[r][l], f32s(a.weights).v[t * a.k + from + r], sum);
        barrier();
    }
    if (adds)
        f32s(a.y + uint64_t(t) * a.n_out * 4u).v[o] = sum;
}
