/* Products of one row of weights with up to TOK rows of input, by 16 invocations: lane l has what
 * the definition has in partial sum l, or the l-th 16 of every 256 quantised elements. A workgroup
 * has ROWS rows of weights. */
#define ROWS 4u
#define QX_BYTES 320u

#ifdef QUANTIZED
#include "dot4.glsl"
/* A chunk's integers: for each of SPACE / n groups of 256 elements, each input row and each row of
 * weights those of 16 lanes. Joined, a block's sums and factors are where its integers were. */
#define SPACE 16u
/* Groups whose weights an invocation loads at once: more take registers, of which experts' many
 * workgroups have few each. */
#ifndef AT_ONCE
#define AT_ONCE 4u
#endif
shared int dots[SPACE * ROWS * 16u], mins[SPACE * ROWS * 16u];

/* 16 elements of weights, packed, with their scale and minimum; zeros beyond the row. */
struct weights {
    int words[4], scale, least;
};
weights load_weights(uint64_t w, uint u, uint n_in) {
    weights to;
    int q[16];
    uint unit;
    bool there = u * 16u < n_in;
    uint64_t b = block_of(w, there ? u : 0u, unit);
    load_unit(b, unit, q);
    unit_scales(b, unit, to.scale, to.least);
    [[unroll]] for (uint k = 0; k < 4u; k++)
        to.words[k] = q[4u * k] & 255 | (q[4u * k + 1u] & 255) << 8 | (q[4u * k + 2u] & 255) << 16 |
                      q[4u * k + 3u] << 24;
    if (!there)
        to.scale = to.least = 0;
    return to;
}

/* Elements of a block: of integers that are joined at once. */
uint block_elems() {
    return is_block32() ? 32u : 256u;
}
uint block_units() {
    return is_block32() ? 2u : 16u;
}

/* The integers of one group: dots[at] and mins[at] are this lane's. */
void multiply(weights now, uint64_t from, uint at, uint lane) {
    int dot = 0;
    [[unroll]] for (uint k = 0; k < 4u; k++)
        dot += dot4(now.words[k], i32s(from).v[lane * 4u + k]);
    dots[at] = now.scale * dot;
    if (has_min() && !is_block32())
        mins[at] = now.least * int(i16s(from + 288).v[lane]);
}

/* Sums block b of a row of weights, whose integers begin at `at`, and leaves there the sum, the
 * factor and, of types with minimums, the same of them. */
void join(uint64_t w, uint64_t x, uint b, uint at) {
    uint64_t from = x + (is_block32() ? b / 8u : b) * QX_BYTES;
    float d, dmin;
    block_scales(w + uint64_t(b) * block_bytes(), d, dmin);
    precise float dx = f32s(from + 256).v[is_block32() ? b % 8u : 0u], by = d * dx;
    precise float down = -(dmin * dx);
    int sum = 0, low = 0;
    for (uint i = 0; i < block_units(); i++) {
        uint from_lane = at + (i + at / block_units()) % block_units(); /* other banks than others */
        sum += dots[from_lane];
        if (has_min() && !is_block32())
            low += mins[from_lane];
    }
    if (has_min() && is_block32())
        low = int(i16s(from + 288).v[b % 8u]);
    dots[at] = floatBitsToInt(float(sum));
    dots[at + 1u] = floatBitsToInt(by);
    if (has_min()) {
        mins[at] = floatBitsToInt(float(low));
        mins[at + 1u] = floatBitsToInt(down);
    }
}

/* In lane t < n: the product with input row t, at x + t * x_stride. Integers first, all loads of a
 * chunk in flight; then blocks are joined, one an invocation; then they are added in order. */
float product(uint64_t w, uint64_t x, uint64_t x_stride, uint n, uint n_in, uint row, uint lane) {
    precise float total = 0.0;
    uint n_groups = (n_in + 255u) / 256u, space = n <= 1u ? 16u : n <= 2u ? 8u : n <= 4u ? 4u : 2u;
    uint per_group = 256u / block_elems(), n_blocks = (n_in + block_elems() - 1u) / block_elems();
    for (uint first = 0; first < n_groups; first += space) {
        uint n_here = min(space, n_groups - first);
        if (n == 1u) {
            for (uint g = 0; g < n_here; g += AT_ONCE) {
                weights now[AT_ONCE];
                [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
                    now[i] = load_weights(w, (first + g + i) * 16u + lane, n_in);
                [[unroll]] for (uint i = 0; i < AT_ONCE; i++)
                    if (g + i < n_here)
                        multiply(now[i], x + (first + g + i) * QX_BYTES,
                                 (row * SPACE + g + i) * 16u + lane, lane);
            }
        } else {
            for (uint g = 0; g < n_here; g++) {
                weights now = load_weights(w, (first + g) * 16u + lane, n_in);
                for (uint t = 0; t < n; t++)
                    multiply(now, x + t * x_stride + (first + g) * QX_BYTES,
                             (row * SPACE + t * space + g) * 16u + lane, lane);
            }
        }
        barrier();
        uint from_block = first * per_group, n_join = min(n_here * per_group, n_blocks - from_block);
        for (uint i = lane; i < n * n_join; i += 16u) {
            uint t = i / n_join, b = i % n_join;
            join(w, x + t * x_stride, from_block + b,
                 (row * SPACE + t * space) * 16u + b * block_units());
        }
        barrier();
        if (lane < n)
            for (uint b = 0; b < n_join; b++) {
                uint at = (row * SPACE + lane * space) * 16u + b * block_units();
                total = fma_once(intBitsToFloat(dots[at + 1u]), intBitsToFloat(dots[at]), total);
                if (has_min())
                    total = fma_once(intBitsToFloat(mins[at + 1u]), intBitsToFloat(mins[at]), total);
            }
        barrier();
    }
    return total;
}
#else
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
