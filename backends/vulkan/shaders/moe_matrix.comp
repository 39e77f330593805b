#version 460
#extension GL_GOOGLE_include_directive : require
#include "tile_matrix.glsl"

/* As moe_tile.comp, by cooperative matrices. */
layout(push_constant) uniform args {
    uint64_t x, pairs, refs, bias, y, grid, order, tiles;
    uint64_t row_bytes;
    uint n_in, n_out, k, which, by_pair, to_pair;
} a;
uint first, n_rows, expert;

uint place(uint t) {
    return u32s(a.order).v[first + min(t, n_rows - 1u)];
}
uint pair_of(uint at) {
    return a.pairs != 0 ? u32s(a.pairs).v[at] : at;
}
uint64_t input_row(uint t) {
    uint at = place(t), row = a.by_pair != 0u ? at : pair_of(at) / a.k;
    return a.x + uint64_t(row) * ((a.n_in + 255u) / 256u) * QX_BYTES;
}
void put(uint o, uint t, float product) {
    precise float s = product;
    if (a.bias != 0)
        s = s + f32s(a.bias + uint64_t(expert) * a.n_out * 4u).v[o];
    uint at = place(t);
    f32s(a.y + uint64_t(a.to_pair != 0u ? pair_of(at) : at) * a.n_out * 4u).v[o] = s;
}

void main() {
    uint n_tiles = (a.n_out + TILE_ROWS - 1u) / TILE_ROWS, at = group() / n_tiles;
    u32s tiles = u32s(a.tiles);
    if (at >= tiles.v[0])
        return;
    iq_grid = a.grid;
    expert = tiles.v[1u + 3u * at];
    first = tiles.v[2u + 3u * at];
    n_rows = tiles.v[3u + 3u * at];
    tile(u64s(a.refs).v[expert * 3u + a.which], a.row_bytes, group() % n_tiles * TILE_ROWS, a.n_out,
         a.n_in, n_rows);
}
