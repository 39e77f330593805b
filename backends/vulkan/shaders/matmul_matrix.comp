#version 460
#extension GL_GOOGLE_include_directive : require
#include "tile_matrix.glsl"

/* As matmul_tile.comp, by cooperative matrices. */
layout(push_constant) uniform args {
    uint64_t w, x, bias, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, add;
} a;
uint tok;

uint64_t input_row(uint t) {
    return a.x + uint64_t(min(tok + t, a.n_tok - 1u)) * ((a.n_in + 255u) / 256u) * QX_BYTES;
}
void put(uint o, uint t, float product) {
    f32s y = f32s(a.y + (uint64_t(tok + t) * a.n_out + o) * 4u);
    precise float s = a.bias != 0 ? product + f32s(a.bias).v[o] : product;
    y.v[0] = a.add != 0u ? y.v[0] + s : s;
}

void main() {
    uint n_tiles = (a.n_out + TILE_ROWS - 1u) / TILE_ROWS, row = group() % n_tiles * TILE_ROWS;
    tok = group() / n_tiles * TILE_TOK;
    if (tok >= a.n_tok)
        return;
    iq_grid = a.grid;
    tile(a.w, a.row_bytes, row, a.n_out, a.n_in, min(a.n_tok - tok, TILE_TOK));
}
