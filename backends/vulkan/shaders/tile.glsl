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

/* A unit's words, 16 bytes; one more in each row, so that rows are in different banks. */
shared ivec4 w_words[TILE_ROWS][UNITS + 1u], x_words[TILE_TOK][UNITS + 1u];
/* Of weights: a unit's scale and minimum, and a block's d and dmin; types of 256 elements have one
 * block. Of input: the same of its own. */
shared int w_scale[TILE_ROWS][UNITS], x_sum[TILE_TOK][UNITS];
shared float w_d[TILE_ROWS][BLOCKS], w_dmin[TILE_ROWS][BLOCKS], x_d[TILE_TOK][BLOCKS];

/* Weights of chunk c: rows from `row` on, the last of n_out again where there are fewer. */
void load_weights(uint64_t w, uint64_t row_bytes, uint row, uint n_out, uint n_in, uint c, uint l) {
    for (uint i = l; i < TILE_ROWS * UNITS; i += 128u) {
        uint r = i / UNITS, in_chunk = i % UNITS, u = c * UNITS + in_chunk, unit;
        bool there = u * 16u < n_in;
        int scale = 0, least = 0;
        uint64_t b =
            block_of(w + uint64_t(min(row + r, n_out - 1u)) * row_bytes, there ? u : 0u, unit);
        unit_scales(b, unit, scale, least);
        w_words[r][in_chunk] = load_words(b, unit);
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
    for (uint i = part; i < UNITS; i += 4u) {
        x_words[t][i] = ivec4(vec4s(b).v[at * UNITS + i]);
    }
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

int dot_unit(ivec4 w, ivec4 x) {
    return dot4(w.x, x.x) + dot4(w.y, x.y) + dot4(w.z, x.z) + dot4(w.w, x.w);
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
        for (uint block = 0; block < BLOCKS && c * CHUNK + block * 32u < n_in; block++) {
            ivec4 w[4], x[4];
            int dots[16];
            [[unroll]] for (uint half_block = 0; half_block < 2u; half_block++) {
                [[unroll]] for (uint i = 0; i < 4u; i++) {
                    w[i] = w_words[r0 + 16u * i][2u * block + half_block];
                    x[i] = x_words[t0 + 8u * i][2u * block + half_block];
                }
                [[unroll]] for (uint o = 0; o < 16u; o++)
                    dots[o] = (half_block == 0u ? 0 : dots[o]) + dot_unit(w[o / 4u], x[o % 4u]);
            }
            [[unroll]] for (uint o = 0; o < 16u; o++) {
                uint r = r0 + 16u * (o / 4u), t = t0 + 8u * (o % 4u);
                add_block(r, t, block, dots[o], has_min() ? x_sum[t][block] : 0, total[o]);
            }
        }
        return;
    }
    for (uint unit = 0; unit < UNITS; unit++) {
        ivec4 x[4];
        int x_low[4];
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            x[i] = x_words[t0 + 8u * i][unit];
            x_low[i] = has_min() ? x_sum[t0 + 8u * i][unit] : 0;
        }
        [[unroll]] for (uint i = 0; i < 4u; i++) {
            ivec4 w = w_words[r0 + 16u * i][unit];
            int scale = w_scale[r0 + 16u * i][unit];
            [[unroll]] for (uint j = 0; j < 4u; j++) {
                sum[4u * i + j] += (scale << 16 >> 16) * dot_unit(w, x[j]);
                if (has_min())
                    low[4u * i + j] += (scale >> 16) * x_low[j];
            }
        }
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
    find_alignment(w, row_bytes);
    for (uint c = 0; c * CHUNK < n_in; c++) {
        load_weights(w, row_bytes, row, n_out, n_in, c, l);
        load_input(x, l / 4u, c, l % 4u);
        barrier();
        multiply(c, n_in, l, sum, low, total);
        barrier();
    }
}
