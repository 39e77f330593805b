#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"
#define QUANTIZED
#define TOK 8u
#define ROWS 8u
#define LANES 32u
#define THREADS 256u
#define PLACES 1152u
#include "product.glsl"
#include "quantize.glsl"

/* As moe_down.comp, for types that go by strips. x: the activation's output, quantised, or floats,
 * which every workgroup quantises for itself: for few rows that is less than a kernel that does it,
 * as the weights are on their way meanwhile. */
layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, ids, weights, refs, bias, pair_y, y, grid;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, k, set, is_float;
} a;
#define EXPERTS 8u /* at once */
#define UNITS_EACH 3u
#define MOST_BLOCKS 32u /* of the input of all experts at once */
#define BLOCK_WORDS (QX_BYTES / 16u)
shared uvec4 input_words[MOST_BLOCKS * BLOCK_WORDS];
shared float products[EXPERTS][ROWS];
shared uint64_t matrices[EXPERTS];
/* While the input is quantised: of its units. */
#define tops dots
#define unit_sums mins

uint first_row;
uint64_t weights_of(uint line) {
    return matrices[line / ROWS] + uint64_t(min(first_row + line % ROWS, a.n_out - 1u)) * a.row_bytes;
}

/* The input of n pairs from pair `from` on, `each` blocks from block `block` on: to shared memory. */
void fill(uint from, uint n, uint block, uint each, uint l) {
    uint n_units = n * each * 16u;
    if (a.is_float == 0u) {
        uint64_t row = uint64_t(a.n_in / 256u) * QX_BYTES;
        for (uint i = l; i < n * each * BLOCK_WORDS; i += THREADS) {
            uint b = i / BLOCK_WORDS;
            uint64_t at = a.x + (from + b / each) * row + uint64_t(block + b % each) * QX_BYTES;
            input_words[i] = vec4s(at).v[i % BLOCK_WORDS];
        }
        return;
    }
    vec4 v[2][4];
    [[unroll]] for (uint j = 0; j < 2u; j++) { /* 512 units at most */
        uint u = min(l + j * THREADS, n_units - 1u), b = u / 16u;
        uint64_t at = a.x + (uint64_t(from + b / each) * a.n_in + (block + b % each) * 256u) * 4u;
        [[unroll]] for (uint k = 0; k < 4u; k++)
            v[j][k] = float4s(at).v[u % 16u * 4u + k];
    }
    [[unroll]] for (uint j = 0; j < 2u; j++)
        if (l + j * THREADS < n_units)
            tops[l + j * THREADS] = int(top_of(v[j]));
    barrier();
    [[unroll]] for (uint j = 0; j < 2u; j++) {
        uint u = l + j * THREADS, top = 0u, b = u / 16u, in_block = u % 16u;
        if (u < n_units) {
            [[unroll]] for (uint i = 0; i < 16u; i++)
                top = max(top, uint(tops[b * 16u + i]));
            float d;
            int sum;
            input_words[b * BLOCK_WORDS + in_block] = to_int8(v[j], top, d, sum);
            if (in_block == 0u)
                input_words[b * BLOCK_WORDS + 16u] = uvec4(floatBitsToUint(d), 0u, 0u, 0u);
            unit_sums[u] = sum;
        }
    }
    barrier();
    for (uint i = l; i < n * each * 2u; i += THREADS) {
        uvec4 w;
        [[unroll]] for (uint k = 0; k < 4u; k++)
            w[k] = uint(unit_sums[i * 8u + 2u * k] & 0xffff) |
                   uint(unit_sums[i * 8u + 2u * k + 1u]) << 16;
        input_words[i / 2u * BLOCK_WORDS + 18u + i % 2u] = w;
    }
}
/* As load_input(), of the block that begins at word `at`, or those behind it. */
strip_input filled_input(uint at, uint s) {
    strip_input to;
    uint p = s % BLOCK_STRIPS;
    at += s / BLOCK_STRIPS * BLOCK_WORDS;
    [[unroll]] for (uint k = 0; k < 4u; k++)
        to.q[k] = ivec4(input_words[at + strip_unit(p, k)]);
    to.sums = input_words[at + 18u + p / 2u];
    to.d = uintBitsToFloat(input_words[at + 16u].x);
    return to;
}

/* In invocation l < ROWS * n: row l % ROWS of down of pair from + l / ROWS. */
float experts(uint from, uint n, uint l, bool aligned) {
    precise float total = 0.0;
    uint n_lines = n * ROWS, n_strips = a.n_in / 64u;
    uint room = min(room_for(n_lines), MOST_BLOCKS / n * BLOCK_STRIPS);
    for (uint first = 0; first < n_strips; first += room) {
        uint n_here = min(room, n_strips - first), n_units = n_lines * n_here;
        uint each = n_here / BLOCK_STRIPS;
        strip_place next = place_of_unit(l, n_here);
        for (uint u = 0; u < n_units; u += UNITS_EACH * THREADS) {
            raw_strip w[UNITS_EACH];
            strip_place at[UNITS_EACH];
            [[unroll]] for (uint k = 0; k < UNITS_EACH; k++) {
                at[k] = next;
                next = next_place(next, n_here);
                w[k] = load_strip(weights_of(min(at[k].line, n_lines - 1u)), first + at[k].s, aligned);
            }
            if (u == 0u) {
                fill(from, n, first / BLOCK_STRIPS, each, l);
                barrier();
            }
            [[unroll]] for (uint k = 0; k < UNITS_EACH; k++)
                if (at[k].line < n_lines)
                    multiply_strip(make_strip(w[k], weights_of(at[k].line), first + at[k].s),
                                   filled_input(at[k].line / ROWS * each * BLOCK_WORDS, at[k].s),
                                   at[k].s, at[k].line * LINE_PLACES(n_here) + at[k].s);
        }
        join_strips(n_lines, n_here, l);
        if (l < n_lines)
            add_strips(n_here, l, total);
        barrier();
    }
    return total;
}

void main() {
    uint n_groups = (a.n_out + ROWS - 1u) / ROWS, t = group() / n_groups;
    uint l = gl_LocalInvocationID.x, o;
    if (t >= a.n_tok)
        return;
    first_row = group() % n_groups * ROWS;
    o = first_row + l % ROWS;
    bool adds = l < ROWS && o < a.n_out;
    precise float sum = 0.0;
    if (adds && a.set == 0u)
        sum = f32s(a.y + uint64_t(t) * a.n_out * 4u).v[o];
    for (uint done = 0; done < a.k; done += EXPERTS) {
        uint n = min(EXPERTS, a.k - done), from = t * a.k + done, pair = from + l / ROWS;
        if (l < n)
            matrices[l] = u64s(a.refs).v[u32s(a.ids).v[from + l] * 3u + 2u];
        barrier();
        uint64_t all = a.row_bytes;
        for (uint r = 0; r < n; r++)
            all |= matrices[r];
        float total;
        if (TYPE == Q6_K || (uint(all) & 15u) == 0u)
            total = experts(from, n, l, true);
        else
            total = experts(from, n, l, false);
        if (l < ROWS * n && o < a.n_out) {
            precise float s = total;
            if (a.bias != 0)
                s = total + f32s(a.bias + uint64_t(u32s(a.ids).v[pair]) * a.n_out * 4u).v[o];
            f32s(a.pair_y + uint64_t(pair) * a.n_out * 4u).v[o] = s;
            products[l / ROWS][l % ROWS] = s;
        }
        barrier();
        if (adds)
            for (uint r = 0; r < n; r++)
                sum = fma_once(products[r][l], f32s(a.weights).v[from + r], sum);
        barrier();
    }
    if (adds)
        f32s(a.y + uint64_t(t) * a.n_out * 4u).v[o] = sum;
}
