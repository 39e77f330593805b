#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "matrix.glsl"

/* Attention of prompt rows over F16 KV by cooperative matrices (FlashAttention: Dao et al. 2022).
 *
 * A workgroup has 64 pairs of a row and a head, whose heads share a head of KV, 16 of them a
 * subgroup, and goes through the positions page by page. Matrices are of binary16: queries, times a
 * power of two for each pair, and what the softmax weighs values by are each the sum of two; K and V
 * are as they are. Pages begin at position 0, and one that a row does not see changes nothing of it:
 * so no row's result depends on the others of its step.
 *
 * The variant is the larger of dim_k and dim_v, in sixteens. */
#define PAIRS 64u
#define PAGE 64u
#define THREADS (2u * PAIRS)
/* Of shared rows, in 8 halves: scores and weights lie where K is, 64 floats a row. */
#define PITCH_V (2u * TYPE + 1u)
#define PITCH_K 17u
#define MOST_SIXTEENS 8u
#define WEIGHT 1024.0 /* what a weight of 1 is, far from denormal halves */
layout(local_size_x = THREADS) in;
layout(push_constant) uniform args {
    uint64_t k, v, q, sinks, y, page_table, row_seq, row_len;
    uint64_t k_page_bytes, v_page_bytes;
    uint heads, dims;
    uint stride_q, max_pages, window, chunk;
    float scale, softcap;
    uint v_width, unused, n_rows;
} a;
#include "attention_parts.glsl"

shared uvec4 ks[PAGE * PITCH_K], vs[PAGE * PITCH_V];
/* Of pairs: two halves of a row's largest score or sum, what sums so far are multiplied by, and the
 * positions that they see. */
shared float half_of[2u * PAIRS], keep_of[PAIRS];
shared uint low_of[PAIRS], len_of[PAIRS], seq_of[PAIRS];
/* Of two pages in turn: values were set aside, which are no numbers. */
shared uint aside[2];

/* The first 11 bits of two floats as halves, and the rest of them as halves. */
void split(float x, float y, out uint high, out uint low) {
    vec2 first = uintBitsToFloat(floatBitsToUint(vec2(x, y)) & 0xffffe000u);
    precise vec2 rest = vec2(x, y) - first;
    high = packHalf2x16(first);
    low = packHalf2x16(rest);
}

/* Halves that are no numbers become 0. */
uint without_odd(uint w, inout uint odd) {
    uint keep = ((w & 0x7c00u) == 0x7c00u ? 0u : 0xffffu) |
                ((w & 0x7c000000u) == 0x7c000000u ? 0u : 0xffff0000u);
    odd |= ~keep;
    return w & keep;
}

/* An invocation's 16 bytes of a page's rows, number d of them: where they are in the page, and
 * themselves, what is beyond a row its first ones. */
uint row_of(uint d) {
    return (gl_LocalInvocationID.x + THREADS * d) / (2u * TYPE);
}
uint column_of(uint d) {
    return (gl_LocalInvocationID.x + THREADS * d) % (2u * TYPE);
}
void load_page(uint64_t rows, uint row_bytes, uint dim, out uvec4 w[MOST_SIXTEENS]) {
    [[unroll]] for (uint d = 0; d < MOST_SIXTEENS; d++)
        if (d < TYPE)
            w[d] = vec4s(rows + uint64_t(row_of(d) * row_bytes)).v[8u * column_of(d) < dim ? column_of(d) : 0u];
}

void main() {
    uint n_heads = a.heads & 0xffffu, n_kv = a.heads >> 16;
    uint dim_k = a.dims & 0xffffu, dim_v = a.dims >> 16;
    uint per_kv = n_heads / n_kv, width = min(per_kv, PAIRS), blocks = (per_kv + width - 1u) / width;
    uint rows = PAIRS / width, n_tiles = (a.n_rows + rows - 1u) / rows;
    uint of_row = n_kv * blocks;
    if (group() >= of_row * n_tiles)
        return;
    /* Those that see most come first. */
    uint row0 = (n_tiles - 1u - group() / of_row) * rows, kv_head = group() % of_row / blocks;
    uint head0 = kv_head * per_kv + group() % blocks * width;
    uint l = gl_LocalInvocationID.x, lane = l % 32u;
#ifndef DOUBLES
    lane = gl_SubgroupInvocationID;
#endif
    uint p0 = 16u * SUBGROUP, p = p0 + lane / 2u, part = lane % 2u; /* a pair, and a half of it */
    uint t = row0 + p / width, h = head0 + p % width;
    bool there = p < rows * width && t < a.n_rows && h < (kv_head + 1u) * per_kv;

    /* Where in a matrix of floats an invocation's elements are. */
    for (uint i = l; i < 64u; i += THREADS)
        vs[i] = floatBitsToUint(vec4(4u * i + uvec4(0u, 1u, 2u, 3u)));
    if (l < 2u)
        aside[l] = 0u;
    if (part == 0u) {
        uint len = there ? u32s(a.row_len).v[t] : 0u;
        uint lo = a.window != 0u && len > a.window ? len - a.window : 0u;
        if (a.chunk != 0u && len != 0u)
            lo = (len - 1u) / a.chunk * a.chunk;
        len_of[p] = len;
        low_of[p] = lo;
        seq_of[p] = u32s(a.row_seq).v[min(t, a.n_rows - 1u)];
    }
    barrier();
    uint place[MAT_ELEMENTS];
    {
        float_c where;
#ifdef DOUBLES
        for (uint j = 0; j < 8u; j++)
            where.v[j] = float(lane / 2u * 16u + lane % 2u * 8u + j);
#else
        LOAD_C(where, vs, 0u, 4u);
#endif
        [[unroll]] for (uint e = 0; e < MAT_ELEMENTS; e++)
            place[e] = uint(ELEMENT(where, e));
    }
    barrier();

    /* Queries, so that the largest is near 2^14. */
    f32s query = f32s(a.q + (uint64_t(there ? t : 0u) * a.stride_q + (there ? h : 0u) * dim_k) * 4u);
    uint from = part * (dim_k / 2u);
    float most_q = 0.0;
    for (uint i = 0; i < dim_k / 2u; i++)
        most_q = max(most_q, there ? abs(query.v[from + i]) : 0.0);
    half_of[2u * p + part] = most_q;
    barrier();
    most_q = max(half_of[2u * p], half_of[2u * p + 1u]);
    int e = int(floatBitsToUint(most_q) >> 23 & 255u) - 127;
    e = e == 128 || most_q == 0.0 ? 0 : clamp(13 - e, -112, 126);
    float by_q = uintBitsToFloat(uint(e + 127) << 23), by_score = uintBitsToFloat(uint(127 - e) << 23) * a.scale;
    for (uint i = 0; i < dim_k / 2u; i += 8u) {
        uvec4 high, low;
        [[unroll]] for (uint j = 0; j < 4u; j++) {
            float x = there ? query.v[from + i + 2u * j] * by_q : 0.0;
            float y = there ? query.v[from + i + 2u * j + 1u] * by_q : 0.0;
            split(x, y, high[j], low[j]);
        }
        ks[p * PITCH_K + (from + i) / 8u] = high;
        vs[p * PITCH_V + (from + i) / 8u] = low;
    }
    barrier();
    half_a q_high[MOST_SIXTEENS], q_low[MOST_SIXTEENS];
    float_c sum[MOST_SIXTEENS];
    UNROLL for (uint d = 0; d < MOST_SIXTEENS; d++) {
        if (d < TYPE && 16u * d < dim_k) {
            LOAD_HALF_A(q_high[d], ks, p0 * PITCH_K + 2u * d, PITCH_K);
            LOAD_HALF_A(q_low[d], vs, p0 * PITCH_V + 2u * d, PITCH_V);
        }
        sum[d] = no_floats();
    }

    float most = -INFINITY, total = 0.0; /* of a pair, and of a half of it */
    uint64_t k_head = a.k + uint64_t(kv_head * PAGE) * dim_k * 2u;
    uint64_t v_head = a.v + uint64_t(kv_head * PAGE) * a.v_width * 2u;
    uint turn = 0u;
    /* Rows of one sequence at a time. */
    uint end = 0u;
    for (uint r = 0u; r < rows && row0 + r < a.n_rows; r = end) {
        uint seq = seq_of[r * width], lo = 0xffffffffu, len = 0u, sure = 0xffffffffu;
        for (end = r; end < rows && row0 + end < a.n_rows && seq_of[end * width] == seq; end++) {
            lo = min(lo, low_of[end * width]);
            len = max(len, len_of[end * width]);
            sure = min(sure, low_of[end * width] == 0u ? len_of[end * width] : 0u);
        }
        bool mine = there && p / width >= r && p / width < end;
        uint my_lo = mine ? low_of[p] : 0u, my_len = mine ? len_of[p] : 0u;
        u32s pages = u32s(a.page_table + uint64_t(seq) * a.max_pages * 4u);
        uvec4 ahead[MOST_SIXTEENS]; /* K of the page that comes */
        if (lo < len)
            load_page(k_head + uint64_t(pages.v[lo / PAGE]) * a.k_page_bytes, dim_k * 2u, dim_k, ahead);
        for (uint page = lo / PAGE; page * PAGE < len; page++, turn ^= 1u) {
            uint64_t v = v_head + uint64_t(pages.v[page]) * a.v_page_bytes;
            /* Zero times an infinity is NaN: where some row must not see a position that another
             * does, values that are no numbers are set aside. */
            uint odd = 0u;
            bool all_see = page * PAGE + PAGE <= sure;
            uvec4 values[MOST_SIXTEENS];
            barrier();
            [[unroll]] for (uint d = 0; d < MOST_SIXTEENS; d++)
                if (d < TYPE)
                    ks[row_of(d) * PITCH_K + column_of(d)] = ahead[d];
            load_page(v, a.v_width * 2u, dim_v, values);
            barrier();
            if (l == 0u)
                aside[turn ^ 1u] = 0u;
            float_c score[4];
            UNROLL for (uint n = 0; n < 4u; n++) {
                score[n] = no_floats();
                UNROLL for (uint d = 0; d < MOST_SIXTEENS; d++)
                    if (d < TYPE && 16u * d < dim_k) {
                        half_b b;
                        LOAD_HALF_COLUMNS(b, ks, 16u * n * PITCH_K + 2u * d, PITCH_K);
                        score[n] = MUL_ADD(q_low[d], b, score[n]);
                        score[n] = MUL_ADD(q_high[d], b, score[n]);
                    }
            }
            [[unroll]] for (uint d = 0; d < MOST_SIXTEENS; d++)
                if (d < TYPE) {
                    uint pos = page * PAGE + row_of(d);
                    uvec4 w = pos >= lo && pos < len ? values[d] : uvec4(0u);
                    if (!all_see)
                        [[unroll]] for (uint n = 0; n < 4u; n++)
                            w[n] = without_odd(w[n], odd);
                    vs[row_of(d) * PITCH_V + column_of(d)] = w;
                }
            if (odd != 0u)
                aside[turn] = 1u;
            barrier();
            UNROLL for (uint n = 0; n < 4u; n++) {
                STORE_FLOATS(score[n], ks, p0 * PITCH_K + 4u * n, PITCH_K);
            }
            barrier();
            float s[32], top = -INFINITY;
            uint pos0 = page * PAGE + 32u * part;
            [[unroll]] for (uint i = 0; i < 8u; i++) {
                vec4 four = uintBitsToFloat(ks[p * PITCH_K + 8u * part + i]);
                [[unroll]] for (uint j = 0; j < 4u; j++) {
                    uint pos = pos0 + 4u * i + j;
                    float x = four[j] * by_score;
                    if (a.softcap > 0.0)
                        x = soft_cap(x, a.softcap);
                    x = pos >= my_lo && pos < my_len ? x : -INFINITY;
                    s[4u * i + j] = x;
                    top = x > top ? x : top;
                }
            }
            half_of[2u * p + part] = top;
            barrier();
            top = max(max(half_of[2u * p], half_of[2u * p + 1u]), most);
            float keep = most == top ? 1.0 : exp_defined(most - top);
            float four[4] = float[4](0.0, 0.0, 0.0, 0.0);
            [[unroll]] for (uint i = 0; i < 32u; i++) {
                uint pos = pos0 + i;
                s[i] = pos >= my_lo && pos < my_len ? exp_defined(s[i] - top) * WEIGHT : 0.0;
                four[i % 4u] += s[i];
            }
            total = total * keep + ((four[0] + four[1]) + (four[2] + four[3]));
            most = top;
            [[unroll]] for (uint i = 0; i < 4u; i++) {
                uvec4 high, low;
                [[unroll]] for (uint j = 0; j < 4u; j++)
                    split(s[8u * i + 2u * j], s[8u * i + 2u * j + 1u], high[j], low[j]);
                ks[p * PITCH_K + 4u * part + i] = high;
                ks[p * PITCH_K + 8u + 4u * part + i] = low;
            }
            if (part == 0u)
                keep_of[p] = keep;
            barrier();
            half_a w_high[4], w_low[4];
            UNROLL for (uint n = 0; n < 4u; n++) {
                LOAD_HALF_A(w_high[n], ks, p0 * PITCH_K + 2u * n, PITCH_K);
                LOAD_HALF_A(w_low[n], ks, p0 * PITCH_K + 8u + 2u * n, PITCH_K);
            }
            if ((page + 1u) * PAGE < len)
                load_page(k_head + uint64_t(pages.v[page + 1u]) * a.k_page_bytes, dim_k * 2u, dim_k,
                          ahead);
            float keeps[MAT_ELEMENTS];
            [[unroll]] for (uint n = 0; n < MAT_ELEMENTS; n++)
                keeps[n] = keep_of[p0 + place[n] / 16u];
            UNROLL for (uint d = 0; d < MOST_SIXTEENS; d++)
                if (d < TYPE && 16u * d < dim_v) {
                    [[unroll]] for (uint n = 0; n < MAT_ELEMENTS; n++)
                        ELEMENT(sum[d], n) *= keeps[n];
                    UNROLL for (uint n = 0; n < 4u; n++) {
                        half_b b;
                        LOAD_HALF_ROWS(b, vs, 16u * n * PITCH_V + 2u * d, PITCH_V);
                        sum[d] = MUL_ADD(w_low[n], b, sum[d]);
                        sum[d] = MUL_ADD(w_high[n], b, sum[d]);
                    }
                }
            if (aside[turn] == 0u)
                continue;
            for (uint j = 0; j < PAGE; j++)
                [[unroll]] for (uint n = 0; n < MAT_ELEMENTS; n++) {
                    uint pair = p0 + place[n] / 16u, r_of = pair / width, pos = page * PAGE + j;
                    if (r_of < r || r_of >= end || pos < low_of[pair] || pos >= len_of[pair])
                        continue;
                    u16s row = u16s(v + uint64_t(j) * a.v_width * 2u);
                    UNROLL for (uint d = 0; d < MOST_SIXTEENS; d++)
                        if (d < TYPE && 16u * d < dim_v) {
                            uint w = uint(row.v[16u * d + place[n] % 16u]);
                            if ((w & 0x7c00u) == 0x7c00u)
                                ELEMENT(sum[d], n) += f32_of_f16(w);
                        }
                }
        }
    }
    barrier();
    half_of[2u * p + part] = total;
    barrier();
    if (part == 0u) {
        float all = (half_of[2u * p] + half_of[2u * p + 1u]) * (1.0 / WEIGHT);
        keep_of[p] = last_factor(most, all, a.sinks, there ? h : 0u) * (1.0 / WEIGHT);
    }
    barrier();
    [[unroll]] for (uint n = 0; n < MAT_ELEMENTS; n++) {
        uint pair = p0 + place[n] / 16u, i = place[n] % 16u;
        uint row = row0 + pair / width, head = head0 + pair % width;
        if (pair >= rows * width || row >= a.n_rows || head >= (kv_head + 1u) * per_kv)
            continue;
        float by = keep_of[pair];
        f32s y = f32s(a.y + uint64_t(row * n_heads + head) * dim_v * 4u);
        UNROLL for (uint d = 0; d < MOST_SIXTEENS; d++)
            if (d < TYPE && 16u * d < dim_v)
                y.v[16u * d + i] = ELEMENT(sum[d], n) * by;
    }
}
