/* Products of rows of weights with rows of input, ROWS rows of weights a workgroup.
 *
 * Quantised: LANES invocations have a row of weights, each a piece of 32 elements in turn. What it
 * makes of them, integers and so exact, goes to shared memory; then one invocation for each
 * row of weights and row of input adds the blocks in the definition's order.
 *
 * Floats: by 16 invocations, of which lane l has what the definition has in partial sum l. */
#define QX_BYTES 320u

#ifdef QUANTIZED
#include "dot4.glsl"
#ifndef ROWS
#define ROWS 8u
#define LANES 16u /* of a row of weights */
#endif
#ifndef THREADS
#define THREADS (ROWS * LANES)
#endif
/* Steps (of a piece for each lane) times rows of input whose integers are kept at once. */
#define SPACE 8u
#ifndef PLACES /* one more: rows begin in different banks. At least 1152: strips.glsl */
#define PLACES (SPACE * ROWS * (LANES + 1u) + 96u)
#endif
/* Of 256-element types an invocation's integers, until blocks are joined; of 32-element types a
 * block's numbers. What is not an integer is the bits of a float. */
shared int dots[PLACES], mins[PLACES];
shared int factor[PLACES];

/* Where those of a step (numbered within SPACE, over rows of input too) and a lane are. */
uint place_of(uint step, uint row, uint lane) {
    return (step * ROWS + row) * (LANES + 1u) + lane;
}
/* 32-element types with minimums have four numbers each, and half of the space. */
bool has_four() {
    return is_block32() && has_min();
}
#define FOURTH (PLACES / 2u)

int dot_unit(ivec4 w, ivec4 x) {
    return dot4(w.x, x.x) + dot4(w.y, x.y) + dot4(w.z, x.z) + dot4(w.w, x.w);
}

#include "strips.glsl"

/* Piece i of a row of weights with quantised input x; at: where its integers go. */
void multiply(piece w, uint i, uint64_t x, uint at) {
    uint64_t from = x + uint64_t(i / 8u) * QX_BYTES; /* of 256 elements */
    uint ua = unit_a(i) % 16u, ub = unit_b(i) % 16u;
    int a = dot_unit(w.a, ivec4(vec4s(from).v[ua])), b = dot_unit(w.b, ivec4(vec4s(from).v[ub]));
    if (is_block32()) {
        float dx = f32s(from + 256).v[i % 8u];
        precise float by = w.d * dx, down = -(w.dmin * dx);
        dots[at] = floatBitsToInt(float(a + b));
        factor[at] = floatBitsToInt(by);
        if (has_min()) {
            mins[at] = floatBitsToInt(float(int(i16s(from + 288).v[i % 8u])));
            factor[at + FOURTH] = floatBitsToInt(down);
        }
        return;
    }
    dots[at] = w.scale_a * a + w.scale_b * b;
    if (has_min())
        mins[at] =
            w.least_a * int(i16s(from + 288).v[ua]) + w.least_b * int(i16s(from + 288).v[ub]);
    /* The factors themselves come when blocks are joined, by fewer invocations. */
    if (i % 8u == 0u) {
        factor[at] = is_staged() ? int(w.halves) : floatBitsToInt(w.d);
        if (has_min() && !is_staged())
            factor[at + 1u] = floatBitsToInt(w.dmin);
    }
}

/* Joins the numbers of a block of 256 elements that begin at `at`; from: its input. There remain
 * the sums as floats, and their factors. */
void join(uint at, uint64_t from) {
    int sum = 0, low = 0;
    float dx = f32s(from + 256).v[0], d = intBitsToFloat(factor[at]), dmin = 0.0;
    if (has_min())
        dmin = intBitsToFloat(factor[at + 1u]);
    if (is_staged()) {
        uint halves = uint(factor[at]);
        d = f32_of_f16(halves & 0xffffu);
        dmin = f32_of_f16(halves >> 16);
    }
    [[unroll]] for (uint k = 0; k < 8u; k++) {
        sum += dots[at + k];
        if (has_min())
            low += mins[at + k];
    }
    precise float by = d * dx, down = -(dmin * dx);
    dots[at] = floatBitsToInt(float(sum));
    factor[at] = floatBitsToInt(by);
    if (has_min()) {
        mins[at] = floatBitsToInt(float(low));
        factor[at + 1u] = floatBitsToInt(down);
    }
}
/* Joins all blocks: of n rows of input, `space` places each, of which n_steps are there, from step
 * `first` of the row on; x: the first input's. */
#define STEP_BLOCKS (LANES / 8u)
void join_all(uint n, uint space, uint n_steps, uint first, uint n_in, uint64_t x, uint64_t x_stride,
              uint l) {
    if (is_block32())
        return;
    barrier();
    uint each = n_steps * STEP_BLOCKS; /* of a row of weights and a row of input */
    for (uint i = l; i < n * each * ROWS; i += THREADS) {
        uint row = i % ROWS, b = i / ROWS % each, t = i / ROWS / each, block = first * STEP_BLOCKS + b;
        if (block * 256u < n_in)
            join(place_of(t * space + b / STEP_BLOCKS, row, b % STEP_BLOCKS * 8u),
                 x + t * x_stride + uint64_t(block) * QX_BYTES);
    }
}
/* Adds the n pieces, whole joined blocks, whose numbers begin at `at`: several at a time, so that
 * what is read does not wait for what is added. */
void add_blocks(uint at, uint n, inout float total) {
    uint step = is_block32() ? 1u : 8u, second = is_block32() ? FOURTH : 1u;
    [[dont_unroll]] for (uint i = 0; i < n; i += 4u * step) {
        float by[4], sum[4], down[4], low[4];
        [[unroll]] for (uint k = 0; k < 4u; k++) {
            uint from = at + min(i + k * step, n - step);
            by[k] = intBitsToFloat(factor[from]);
            sum[k] = intBitsToFloat(dots[from]);
            if (has_min()) {
                down[k] = intBitsToFloat(factor[from + second]);
                low[k] = intBitsToFloat(mins[from]);
            }
        }
        [[unroll]] for (uint k = 0; k < 4u; k++) {
            float t = fma_once(by[k], sum[k], total);
            if (has_min())
                t = fma_once(down[k], low[k], t);
            total = i + k * step < n ? t : total;
        }
    }
}

/* Piece of step s for this lane; lanes beyond the row have its first one, which nobody adds. */
uint piece_of(uint s, uint lane, uint n_pieces) {
    uint i = s * LANES + lane;
    return i < n_pieces ? i : 0u;
}
uint steps_of(uint n_in) {
    return (n_in / 32u + LANES - 1u) / LANES;
}

#ifdef ONE
/* One row of input, which is all that there is. In invocation l < ROWS: row l's product. */
float product_one(uint64_t w, uint64_t x, uint n_in, uint l) {
    precise float total = 0.0;
    uint n_pieces = n_in / 32u, n_steps = steps_of(n_in), space = has_four() ? SPACE / 2u : SPACE;
    uint row = l / LANES, lane = l % LANES;
    for (uint first = 0; first < n_steps; first += space) {
        uint n_here = min(space, n_steps - first);
        for (uint s = 0; s < n_here; s += 4u) { /* so many loads in flight */
            if (!is_staged())
                break;
            raw_piece now[4];
            [[unroll]] for (uint k = 0; k < 4u; k++)
                if (k == 0u || s + k < n_here)
                    now[k] = load_raw(w, piece_of(first + s + k, lane, n_pieces));
            [[unroll]] for (uint k = 0; k < 4u; k++)
                if (k == 0u || s + k < n_here) {
                    uint i = piece_of(first + s + k, lane, n_pieces);
                    multiply(make_staged(now[k], w, i), i, x, place_of(s + k, row, lane));
                }
        }
        if (!is_staged()) {
            for (uint s = 0; s < n_here; s++) {
                uint i = piece_of(first + s, lane, n_pieces);
                multiply(make_other(w, i), i, x, place_of(s, row, lane));
            }
        }
        join_all(1u, n_here, n_here, first, n_in, x, 0, l);
        barrier();
        if (l < ROWS)
            [[dont_unroll]] for (uint s = 0; s < n_here; s++)
                add_blocks(place_of(s, l, 0u), min(LANES, n_pieces - (first + s) * LANES), total);
        barrier();
    }
    return total;
}
#else
/* n rows of input, at x + t * x_stride. In invocation l < ROWS * n: the product of row l % ROWS and
 * input row l / ROWS. */
float product(uint64_t w, uint64_t x, uint64_t x_stride, uint n, uint n_in, uint l) {
    precise float total = 0.0;
    uint n_pieces = n_in / 32u, n_steps = steps_of(n_in), row = l / LANES, lane = l % LANES;
    uint space = (n <= 1u ? 8u : n <= 2u ? 4u : n <= 4u ? 2u : 1u), part = has_four() ? TOK / 2u : TOK;
    if (has_four()) /* half of the steps, or half of the input rows at a time */
        space = max(space / 2u, 1u);
    raw_piece ahead;
    if (is_staged())
        ahead = load_raw(w, piece_of(0u, lane, n_pieces));
    for (uint s = 0; s < n_steps; s++) {
        uint i = piece_of(s, lane, n_pieces), in_space = s % space;
        piece now;
        if (is_staged()) {
            now = make_staged(ahead, w, i);
            ahead = load_raw(w, piece_of(s + 1u, lane, n_pieces));
        } else {
            now = make_other(w, i);
        }
        for (uint from = 0; from < n; from += part) {
            uint end = min(n, from + part);
            for (uint t = from; t < end; t++)
                multiply(now, i, x + t * x_stride, place_of((t - from) * space + in_space, row, lane));
            if (in_space + 1u < space && s + 1u < n_steps)
                continue;
            join_all(end - from, space, in_space + 1u, s - in_space, n_in, x + from * x_stride,
                     x_stride, l);
            barrier();
            if (l >= ROWS * from && l < ROWS * end)
                [[dont_unroll]] for (uint k = 0; k <= in_space; k++)
                    add_blocks(place_of((l / ROWS - from) * space + k, l % ROWS, 0u),
                               min(LANES, n_pieces - (s - in_space + k) * LANES), total);
            barrier();
        }
    }
    return total;
}
#endif
#else
#define ROWS 4u
shared float parts[TOK][ROWS][16];

float product(uint64_t w, uint64_t x, uint64_t x_stride, uint n, uint n_in, uint row, uint lane) {
    float sum[TOK];
    [[unroll]] for (uint t = 0; t < TOK; t++)
        sum[t] = 0.0;
    uint i = lane;
    if (n == 1u) { /* so many loads in flight */
        for (; i + 7u * 16u < n_in; i += 8u * 16u) {
            float v[8], u[8];
            [[unroll]] for (uint j = 0; j < 8u; j++) {
                v[j] = load_float(w, i + 16u * j);
                u[j] = f32s(x).v[i + 16u * j];
            }
            [[unroll]] for (uint j = 0; j < 8u; j++)
                sum[0] = fma_once(v[j], u[j], sum[0]);
        }
    }
    for (; i < n_in; i += 16u) {
        float v = load_float(w, i);
        [[unroll]] for (uint t = 0; t < TOK; t++)
            if (t < n)
                sum[t] = fma_once(v, f32s(x + t * x_stride).v[i], sum[t]);
    }
    [[unroll]] for (uint t = 0; t < TOK; t++)
        parts[t][row][lane] = sum[t];
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[lane % TOK][row][i];
    return tree_sum(part);
}
#endif
