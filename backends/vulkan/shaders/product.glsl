/* Products of one row of weights with up to TOK rows of input, by 16 invocations: lane l has what
 * the definition has in partial sum l, or the l-th 16 of every 256 quantised elements. A workgroup
 * has ROWS rows of weights. */
#define ROWS 4u
#define QX_BYTES 320u

#ifdef QUANTIZED
#include "dot4.glsl"
/* Two of each, so that one barrier is enough: who is ahead writes the other. */
shared int dots[2][TOK][ROWS][16], mins[2][TOK][ROWS][16];

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

/* In lane t < n: the product with input row t, at x + t * x_stride. */
float product(uint64_t w, uint64_t x, uint64_t x_stride, uint n, uint n_in, uint row, uint lane) {
    precise float total = 0.0;
    uint n_groups = (n_in + 255u) / 256u;
    weights now = load_weights(w, lane, n_in);
    for (uint g = 0; g < n_groups; g++) {
        uint turn = g % 2u;
        for (uint t = 0; t < n; t++) {
            uint64_t from = x + t * x_stride + g * QX_BYTES;
            int dot = 0;
            [[unroll]] for (uint k = 0; k < 4u; k++)
                dot += dot4(now.words[k], i32s(from).v[lane * 4u + k]);
            dots[turn][t][row][lane] = now.scale * dot;
            if (has_min() && !is_block32())
                mins[turn][t][row][lane] = now.least * int(i16s(from + 288).v[lane]);
        }
        if (g + 1u < n_groups)
            now = load_weights(w, (g + 1u) * 16u + lane, n_in);
        barrier();
        if (lane < n) {
            uint64_t from = x + lane * x_stride + g * QX_BYTES;
            float d, dmin;
            if (is_block32()) {
                for (uint j = 0; j < 8u && g * 256u + j * 32u < n_in; j++) {
                    block_scales(w + uint64_t(g * 8u + j) * block_bytes(), d, dmin);
                    precise float dx = f32s(from + 256).v[j], by = d * dx, down = -(dmin * dx);
                    int sum = dots[turn][lane][row][2u * j] + dots[turn][lane][row][2u * j + 1u];
                    total = fma_once(by, float(sum), total);
                    if (has_min())
                        total = fma_once(down, float(int(i16s(from + 288).v[j])), total);
                }
            } else {
                block_scales(w + uint64_t(g) * block_bytes(), d, dmin);
                precise float dx = f32s(from + 256).v[0], by = d * dx, down = -(dmin * dx);
                int sum = 0, low = 0;
                [[unroll]] for (uint i = 0; i < 16u; i++)
                    sum += dots[turn][lane][row][i];
                total = fma_once(by, float(sum), total);
                if (has_min()) {
                    [[unroll]] for (uint i = 0; i < 16u; i++)
                        low += mins[turn][lane][row][i];
                    total = fma_once(down, float(low), total);
                }
            }
        }
    }
    return total;
}
#else
shared float parts[TOK][ROWS][16];

float product(uint64_t w, uint64_t x, uint64_t x_stride, uint n, uint n_in, uint row, uint lane) {
    float sum[TOK];
    [[unroll]] for (uint t = 0; t < TOK; t++)
        sum[t] = 0.0;
    for (uint i = lane; i < n_in; i += 16u) {
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
