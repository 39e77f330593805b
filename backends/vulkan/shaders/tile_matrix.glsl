/* Products of 64 rows of quantised weights with up to TILE_TOK rows of input, as product.glsl
 * defines them, by cooperative matrices: both come to shared memory as int8, 128 elements at a time,
 * and a subgroup has 32 rows by 32 rows.
 *
 * Of types of 256 elements a weight times its integer scale, 14 bits and a sign, is two int8, so that
 * all of a block's integers are two sums of products, and minimums times the input's sums a third and
 * a fourth. */
#include "common.glsl"
#include "types.glsl"
#include "matrix.glsl"
#define TILE_ROWS 64u
#ifdef DOUBLES
#define TILE_TOK 32u /* Mesa's driver on the CPU has less shared memory */
#else
#define TILE_TOK 128u
#endif
#define THREADS (TILE_TOK * 2u)
#define CHUNK 128u
#define UNITS (CHUNK / 16u)
#define PIECES (CHUNK / 32u)
#define PIECES_EACH (TILE_ROWS * PIECES / THREADS)
#define QX_BYTES 320u
/* Units of a row, and one more, so that rows are in different banks. */
#define PITCH (UNITS + 1u)
layout(local_size_x = THREADS) in;

/* Low and high parts of weights, and the input. */
shared uvec4 w_low[TILE_ROWS * PITCH], w_high[TILE_ROWS * PITCH], x_words[TILE_TOK * PITCH];
/* Of types of 256 elements with minimums: a block's 16 minimums between zeros, and the low 6 bits of
 * the input's 16 sums beside the rest. Of those of 32: four sums. */
shared uvec4 w_mins[TILE_ROWS * 3u], x_sums[TILE_TOK * 2u];
/* d and dmin of a block; types of 256 elements have one of the four. */
shared float w_d[TILE_ROWS * PIECES], w_dmin[TILE_ROWS * PIECES], x_d[TILE_TOK * PIECES];

#define HIGH_FACTOR (TYPE == Q4_K ? 8 : 128)
/* Integers times a scale, as low + HIGH_FACTOR * high. */
void split(ivec4 q, int scale, out uvec4 low, out uvec4 high) {
    if (TYPE == Q4_K) { /* 15 times 7 fits a byte */
        low = uvec4(q) * uint(scale & 7);
        high = uvec4(q) * uint(scale >> 3);
        return;
    }
    /* Two to a word, made positive: half of all that fit is more than any of them. */
    const uint HIGH = TYPE == IQ6_K ? 255u : 127u, HALF = (HIGH + 1u) / 2u;
    uvec4 u = uvec4(q) ^ 0x80808080u;
    uint by = uint(scale), more = uint(int(128u * HALF) - 128 * scale) * 0x00010001u;
    uvec4 even = (u & 0x00ff00ffu) * by + more, odd = (u >> 8 & 0x00ff00ffu) * by + more;
    low = (even & 0x007f007fu) | (odd & 0x007f007fu) << 8;
    uint high_bits = HIGH * 0x00010001u;
    high = uvec4(less((even >> 7 & high_bits) | (odd >> 7 & high_bits) << 8, HALF));
}

/* Four bytes as eight, each twice. */
uvec2 twice(uint w) {
    return uvec2((w & 255u) * 0x0101u | (w >> 8 & 255u) * 0x01010000u,
                 (w >> 16 & 255u) * 0x0101u | (w >> 24) * 0x01010000u);
}
/* The 16 minimums of a block that begins with these 16 bytes. */
uvec4 block_mins(uvec4 head) {
    if (TYPE == Q2_K)
        return head >> 4 & 0x0f0f0f0fu;
    return uvec4(twice(head.z & 0x3f3f3f3fu),
                 twice(head.w >> 4 & 0x0f0f0f0fu | head.z >> 2 & 0x30303030u));
}

/* Piece p of the chunk of row r, which is piece i of the row. */
void put_piece(piece w, uint r, uint p, uint i, uvec4 head) {
    uint at = r * PITCH;
    if (is_block32()) {
        w_low[at + 2u * p] = uvec4(w.a);
        w_low[at + 2u * p + 1u] = uvec4(w.b);
        w_d[r * PIECES + p] = w.d;
        if (has_min())
            w_dmin[r * PIECES + p] = w.dmin;
        return;
    }
    uint ua = unit_a(i) % UNITS, ub = unit_b(i) % UNITS;
    uvec4 low, high;
    split(w.a, w.scale_a, low, high);
    w_low[at + ua] = low;
    w_high[at + ua] = high;
    split(w.b, w.scale_b, low, high);
    w_low[at + ub] = low;
    w_high[at + ub] = high;
    if (i % 8u == 0u) {
        w_d[r] = is_staged() ? f32_of_f16(w.halves & 0xffffu) : w.d;
        if (has_min()) {
            w_dmin[r] = is_staged() ? f32_of_f16(w.halves >> 16) : w.dmin;
            w_mins[3u * r + 1u] = block_mins(head);
        }
    }
}

/* Low 6 bits, then the rest, of four int16 in two words, a byte each. */
uint bytes_of(uint a, uint b) {
    return (a | a >> 8) & 0xffffu | (b & 0xffu) << 16 | (b & 0xff0000u) << 8;
}
uint low_bits(uint a, uint b) {
    return bytes_of(a & 0x003f003fu, b & 0x003f003fu);
}
uint high_bits(uint a, uint b) {
    return bytes_of(a >> 6 & 0x00ff00ffu, b >> 6 & 0x00ff00ffu);
}

/* Half of chunk c of an input row. */
void put_input(uint64_t x, uint t, uint c, uint part) {
    uint64_t b = x + uint64_t(c / 2u) * QX_BYTES;
    uint at = c % 2u;
    uvec4 w[UNITS / 2u];
    [[unroll]] for (uint i = 0; i < UNITS / 2u; i++)
        w[i] = vec4s(b).v[at * UNITS + part * UNITS / 2u + i];
    [[unroll]] for (uint i = 0; i < UNITS / 2u; i++)
        x_words[t * PITCH + part * UNITS / 2u + i] = w[i];
    if (part != 0u)
        return;
    if (is_block32()) {
        [[unroll]] for (uint i = 0; i < PIECES; i++)
            x_d[t * PIECES + i] = f32s(b + 256).v[at * PIECES + i];
        if (has_min()) {
            ivec4 sums;
            [[unroll]] for (uint i = 0; i < PIECES; i++)
                sums[i] = int(i16s(b + 288).v[at * PIECES + i]);
            x_sums[t] = uvec4(sums);
        }
    } else if (at == 0u) {
        x_d[t] = f32s(b + 256).v[0];
        if (has_min()) {
            uvec4 s = vec4s(b + 288).v[0], s1 = vec4s(b + 288).v[1];
            x_sums[2u * t] = uvec4(low_bits(s.x, s.y), low_bits(s.z, s.w), low_bits(s1.x, s1.y),
                                   low_bits(s1.z, s1.w));
            x_sums[2u * t + 1u] = uvec4(high_bits(s.x, s.y), high_bits(s.z, s.w),
                                        high_bits(s1.x, s1.y), high_bits(s1.z, s1.w));
        }
    }
}

/* Where a tile's input rows are, and where product (o, t) goes. */
uint64_t input_row(uint t);
void put(uint o, uint t, float product);

void add_block(float by, float down, int sum, int low, inout float total) {
    total = fma_once(by, float(sum), total);
    if (has_min())
        total = fma_once(down, float(low), total);
}

void tile(uint64_t w, uint64_t row_bytes, uint row, uint n_out, uint n_in, uint n_rows) {
    uint l = gl_LocalInvocationID.x, n_pieces = n_in / 32u;
    uint r0 = SUBGROUP % 2u * 32u, t0 = SUBGROUP / 2u * 32u;
    find_alignment(w, row_bytes);
    /* Where in c an invocation's elements are, 16 times the row and the column. */
    for (uint i = l; i < 64u; i += THREADS)
        w_low[i] = 4u * i + uvec4(0u, 1u, 2u, 3u);
    barrier();
    mat_c where;
    LOAD_C(where, w_low, 0u, 4u);
    uint place[MAT_ELEMENTS];
    [[unroll]] for (uint e = 0; e < MAT_ELEMENTS; e++)
        place[e] = uint(ELEMENT(where, e));
    if (has_min() && !is_block32())
        for (uint r = l; r < TILE_ROWS; r += THREADS)
            w_mins[3u * r] = w_mins[3u * r + 2u] = uvec4(0u);
    barrier();

    float total[4][MAT_ELEMENTS];
    mat_c low[4], high[4];
    UNROLL for (uint o = 0; o < 4u; o++) {
        low[o] = high[o] = no_sum();
        [[unroll]] for (uint e = 0; e < MAT_ELEMENTS; e++)
            total[o][e] = 0.0;
    }
    uint64_t w_row[PIECES_EACH], x = input_row(l / 2u);
    raw_piece ahead[PIECES_EACH];
    [[unroll]] for (uint n = 0; n < PIECES_EACH; n++) {
        w_row[n] = w + uint64_t(min(row + (l + n * THREADS) / PIECES, n_out - 1u)) * row_bytes;
        if (is_staged())
            ahead[n] = load_raw(w_row[n], min(l % PIECES, n_pieces - 1u));
    }
    for (uint c = 0; c * CHUNK < n_in; c++) {
        uint i = c * PIECES + l % PIECES;
        [[unroll]] for (uint n = 0; n < PIECES_EACH; n++) {
            uint in_row = i < n_pieces ? i : 0u;
            uvec4 head = uvec4(0u);
            piece now;
            if (is_staged()) {
                now = make_staged(ahead[n], w_row[n], in_row);
                head = raw_4(ahead[n], 0u);
            } else {
                now = make_other(w_row[n], in_row);
                if (TYPE == Q2_K)
                    head = bytes_at(block_of_piece(w_row[n], in_row));
            }
            put_piece(now, (l + n * THREADS) / PIECES, l % PIECES, i, head);
        }
        if (l / 2u < n_rows)
            put_input(x, l / 2u, c, l % 2u);
        barrier();
        if (is_staged())
            [[unroll]] for (uint n = 0; n < PIECES_EACH; n++)
                ahead[n] = load_raw(w_row[n], min(i + PIECES, n_pieces - 1u));
        if (t0 < n_rows && is_block32()) {
            [[dont_unroll]] for (uint p = 0; p < PIECES && c * CHUNK + p * 32u < n_in; p++) {
                UNROLL for (uint o = 0; o < 4u; o++)
                    low[o] = no_sum();
                for (uint k = 0; k < 32u / MAT_K; k++) {
                    uint at = p * 2u + k * MAT_K / 16u;
                    mat_a a[2];
                    mat_b b[2];
                    [[unroll]] for (uint j = 0; j < 2u; j++) {
                        LOAD_A(a[j], w_low, (r0 + 16u * j) * PITCH + at, PITCH);
                        LOAD_B(b[j], x_words, (t0 + 16u * j) * PITCH + at, PITCH);
                    }
                    UNROLL for (uint o = 0; o < 4u; o++)
                        low[o] = MUL_ADD(a[o / 2u], b[o % 2u], low[o]);
                }
                UNROLL for (uint o = 0; o < 4u; o++)
                    [[unroll]] for (uint e = 0; e < MAT_ELEMENTS; e++) {
                        uint r = (r0 + 16u * (o / 2u) + place[e] / 16u) * PIECES + p;
                        uint t = t0 + 16u * (o % 2u) + place[e] % 16u;
                        precise float by = w_d[r] * x_d[t * PIECES + p], down = 0.0;
                        int sum = 0;
                        if (has_min()) {
                            down = -(w_dmin[r] * x_d[t * PIECES + p]);
                            sum = int(x_sums[t][p]);
                        }
                        add_block(by, down, ELEMENT(low[o], e), sum, total[o][e]);
                    }
            }
        } else if (t0 < n_rows) {
            UNROLL for (uint k = 0; k < CHUNK / MAT_K; k++) {
                uint at = k * MAT_K / 16u;
                mat_a a, a_high;
                mat_b b[2];
                [[unroll]] for (uint j = 0; j < 2u; j++) {
                    LOAD_B(b[j], x_words, (t0 + 16u * j) * PITCH + at, PITCH);
                }
                UNROLL for (uint j = 0; j < 2u; j++) {
                    LOAD_A(a, w_low, (r0 + 16u * j) * PITCH + at, PITCH);
                    LOAD_A(a_high, w_high, (r0 + 16u * j) * PITCH + at, PITCH);
                    UNROLL for (uint i = 0; i < 2u; i++) {
                        low[2u * j + i] = MUL_ADD(a, b[i], low[2u * j + i]);
                        high[2u * j + i] = MUL_ADD(a_high, b[i], high[2u * j + i]);
                    }
                }
            }
            if (c % 2u == 1u) {
                UNROLL for (uint o = 0; o < 4u; o++) {
                    mat_c less_low = no_sum(), less_high = no_sum();
                    uint r_at = r0 + 16u * (o / 2u), t_at = t0 + 16u * (o % 2u);
                    if (has_min()) {
                        mat_a a;
                        mat_b b;
                        LOAD_A(a, w_mins, 3u * r_at + 1u, 3u);
                        LOAD_B(b, x_sums, 2u * t_at, 2u);
                        less_low = MUL_ADD(a, b, less_low);
                        if (MAT_K == 16u)
                            LOAD_B(b, x_sums, 2u * t_at + 1u, 2u);
                        else
                            LOAD_A(a, w_mins, 3u * r_at, 3u);
                        less_high = MUL_ADD(a, b, less_high);
                    }
                    [[unroll]] for (uint e = 0; e < MAT_ELEMENTS; e++) {
                        uint r = r_at + place[e] / 16u, t = t_at + place[e] % 16u;
                        precise float by = w_d[r] * x_d[t], down = 0.0;
                        if (has_min())
                            down = -(w_dmin[r] * x_d[t]);
                        add_block(by, down, ELEMENT(low[o], e) + HIGH_FACTOR * ELEMENT(high[o], e),
                                  ELEMENT(less_low, e) + 64 * ELEMENT(less_high, e), total[o][e]);
                    }
                    low[o] = high[o] = no_sum();
                }
            }
        }
        barrier();
    }
    [[unroll]] for (uint n = 0; n < 4u * MAT_ELEMENTS; n++) {
        uint o = n / MAT_ELEMENTS, at = place[n % MAT_ELEMENTS];
        uint r = row + r0 + 16u * (o / 2u) + at / 16u, t = t0 + 16u * (o % 2u) + at % 16u;
        if (r < n_out && t < n_rows)
            put(r, t, total[o][n % MAT_ELEMENTS]);
    }
}
