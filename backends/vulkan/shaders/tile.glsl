/* Products of 64 rows of quantised weights with up to 32 rows of input, as product.glsl defines
 * them: both come to shared memory as packed int8, 128 elements at a time, and an invocation has 4
 * rows by 4 rows. */
#include "common.glsl"
#include "types.glsl"
#include "dot4.glsl"
#define TILE_ROWS 64u
#define TILE_TOK 32u
#define CHUNK 128u
#define WORDS (CHUNK / 4u)
#define UNITS (CHUNK / 16u)
#define BLOCKS (CHUNK / 32u)
#define QX_BYTES 320u
layout(local_size_x = 128) in;

/* A word more in each row, so that rows are in different banks. */
shared int w_words[TILE_ROWS][WORDS + 1u], x_words[TILE_TOK][WORDS + 1u];
/* Of weights: a unit's scale and minimum, and a block's d and dmin; types of 256 elements have one
 * block. Of input: the same of its own. */
shared int w_scale[TILE_ROWS][UNITS], x_sum[TILE_TOK][UNITS];
shared float w_d[TILE_ROWS][BLOCKS], w_dmin[TILE_ROWS][BLOCKS], x_d[TILE_TOK][BLOCKS];

/* Weights of chunk c: rows from `row` on, the last of n_out again where there are fewer. */
void load_weights(uint64_t w, uint64_t row_bytes, uint row, uint n_out, uint n_in, uint c, uint l) {
    for (uint i = l; i < TILE_ROWS * UNITS; i += 128u) {
        uint r = i / UNITS, in_chunk = i % UNITS, u = c * UNITS + in_chunk, unit;
        bool there = u * 16u < n_in;
        int q[16], scale = 0, least = 0;
        uint64_t b =
            block_of(w + uint64_t(min(row + r, n_out - 1u)) * row_bytes, there ? u : 0u, unit);
        load_unit(b, unit, q);
        unit_scales(b, unit, scale, least);
        [[unroll]] for (uint k = 0; k < 4u; k++)
            w_words[r][in_chunk * 4u + k] = q[4u * k] & 255 | (q[4u * k + 1u] & 255) << 8 |
                                            (q[4u * k + 2u] & 255) << 16 | q[4u * k + 3u] << 24;
        w_scale[r][in_chunk] = scale & 0xffff | least << 16;
        if (in_chunk % 2u == 0u && (is_block32() || in_chunk == 0u)) {
            float d, dmin;
            block_scales(b, d, dmin);
            w_d[r][in_chunk / 2u] = d;
            w_dmin[r][in_chunk / 2u] = dmin;
        }
    }
}

/* One row of input, quantised: the chunk's words, d's and sums. Four invocations a row. */
void load_input(uint64_t x, uint t, uint c, uint part) {
    uint64_t b = x + uint64_t(c / 2u) * QX_BYTES;
    uint at = c % 2u;
    for (uint i = part; i < WORDS; i += 4u)
        x_words[t][i] = i32s(b).v[at * WORDS + i];
    x_d[t][part] = f32s(b + 256).v[is_block32() ? at * BLOCKS + part : 0u];
    if (has_min()) {
        if (is_block32()) {
            x_sum[t][part] = int(i16s(b + 288).v[at * BLOCKS + part]);
        } else {
            x_sum[t][part] = int(i16s(b + 288).v[at * UNITS + part]);
            x_sum[t][part + 4u] = int(i16s(b + 288).v[at * UNITS + part + 4u]);
        }
    }
}

int dot_unit(uint r, uint t, uint unit) {
    int dot = 0;
    [[unroll]] for (uint k = 0; k < 4u; k++)
        dot += dot4(w_words[r][unit * 4u + k], x_words[t][unit * 4u + k]);
    return dot;
}

void add_block(uint r, uint t, uint block, int sum, int low, inout float total) {
    precise float by = w_d[r][block] * x_d[t][block];
    total = fma_once(by, float(sum), total);
    if (has_min()) {
        precise float down = -(w_dmin[r][block] * x_d[t][block]);
        total = fma_once(down, float(low), total);
    }
}

/* Adds chunk c to the sums of rows l % 16 + 16 i and input rows l / 16 + 8 j. */
void multiply(uint c, uint n_in, uint l, inout int sum[16], inout int low[16],
              inout float total[16]) {
    uint r0 = l % 16u, t0 = l / 16u;
    if (is_block32()) {
        for (uint block = 0; block < BLOCKS && c * CHUNK + block * 32u < n_in; block++)
            [[unroll]] for (uint o = 0; o < 16u; o++) {
                uint r = r0 + 16u * (o / 4u), t = t0 + 8u * (o % 4u);
                int dot = dot_unit(r, t, 2u * block) + dot_unit(r, t, 2u * block + 1u);
                add_block(r, t, block, dot, has_min() ? x_sum[t][block] : 0, total[o]);
            }
        return;
    }
    for (uint unit = 0; unit < UNITS; unit++)
        [[unroll]] for (uint o = 0; o < 16u; o++) {
            uint r = r0 + 16u * (o / 4u), t = t0 + 8u * (o % 4u);
            int scale = w_scale[r][unit];
            sum[o] += (scale << 16 >> 16) * dot_unit(r, t, unit);
            if (has_min())
                low[o] += (scale >> 16) * x_sum[t][unit];
        }
    if (c % 2u == 0u)
        return;
    [[unroll]] for (uint o = 0; o < 16u; o++) {
        add_block(r0 + 16u * (o / 4u), t0 + 8u * (o % 4u), 0u, sum[o], low[o], total[o]);
        sum[o] = low[o] = 0;
    }
}

/* Where a tile's input rows are: 0 beyond the last. */
uint64_t input_row(uint t);

void tile(uint64_t w, uint64_t row_bytes, uint row, uint n_out, uint n_in, uint l,
          out float total[16]) {
    int sum[16], low[16];
    [[unroll]] for (uint o = 0; o < 16u; o++) {
        sum[o] = low[o] = 0;
        total[o] = 0.0;
    }
    uint64_t x = input_row(l / 4u);
    for (uint c = 0; c * CHUNK < n_in; c++) {
        load_weights(w, row_bytes, row, n_out, n_in, c, l);
        load_input(x, l / 4u, c, l % 4u);
        barrier();
        multiply(c, n_in, l, sum, low, total);
        barrier();
    }
}
