#include "common.glsl"

/* One row of queries of one head a workgroup, over its positions page by page with an online softmax
 * (Dao et al. 2022): an invocation has a position's score, then some elements of the sum.
 *
 * The row's pages are divided into parts by their number alone (attention_parts.glsl). One
 * workgroup has all of them, or with a.parts each has one, and attention_join.comp puts them
 * together: the bits are the same. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t k, v, q, sinks, y, page_table, row_seq, row_len;
    uint64_t k_page_bytes, v_page_bytes;
    uint heads, dims;
    uint stride_q, max_pages, window, chunk;
    float scale, softcap;
    uint v_width; /* elements of a row of V: of latents those of the whole row */
    uint64_t parts; /* where each part's most, total and sums go; 0: all in one */
} a;
#include "attention_parts.glsl"
#define PAGE 64u
shared float query[MAX_DIM], score[PAGE];

float element(uint64_t row, uint i) {
    if (TYPE == F16)
        return unpackHalf2x16(uint(u16s(row).v[i])).x;
    uint64_t b = row + i / 32u * 34u;
    uint d = uint(u8s(b).v[0]) | uint(u8s(b).v[1]) << 8;
    return f32_of_f16(d) * float(int(i8s(b).v[2u + i % 32u]));
}

/* Elements i and i + 1 of a row of V, i even; words: rows of F16 begin at multiples of 4 bytes. Of an
 * odd number of elements the last one stands for what is beyond it. */
vec2 two_elements(uint64_t row, uint i, uint dim, bool words) {
    if (TYPE == F16 && words)
        return unpackHalf2x16(u32s(row).v[i / 2u]);
    return vec2(element(row, i), element(row, min(i + 1u, dim - 1u)));
}

#define SUMS (MAX_DIM / PAGE)
/* Which element of the row sum d of invocation l is: pairs lie side by side. */
uint element_of_sum(uint d, uint l) {
    return d / 2u * (2u * PAGE) + 2u * l + d % 2u;
}
/* This page's values times their scores, added to the sums: positions begin to end. */
void add_values(uint64_t rows, uint v_row, uint dim_v, uint begin, uint end, float keep, uint l,
                bool words, inout float sum[SUMS]) {
    [[unroll]] for (uint d = 0; d < SUMS; d += 2u) {
        uint i = element_of_sum(d, l), at_i = min(i, (dim_v - 1u) & ~1u);
        if (d * PAGE < dim_v) {
            vec2 y = vec2(sum[d], sum[d + 1u]) * keep;
            for (uint j = begin & ~31u; j < end; j += 32u) { /* so many loads in flight */
                vec2 e[32];
                [[unroll]] for (uint n = 0; n < 32u; n++)
                    e[n] = two_elements(rows + clamp(j + n, begin, end - 1u) * v_row, at_i, dim_v, words);
                [[unroll]] for (uint n = 0; n < 32u; n++)
                    y = j + n >= begin && j + n < end ? fma(vec2(score[j + n]), e[n], y) : y;
            }
            sum[d] = y.x;
            sum[d + 1u] = y.y;
        }
    }
}

/* The part of a score that 64 elements make, from element i on. */
float of_64(uvec4 w[8], uint i) {
    vec2 part = vec2(0.0);
    [[unroll]] for (uint n = 0; n < 8u; n++)
        [[unroll]] for (uint j = 0; j < 4u; j++) {
            uint at = i + 8u * n + 2u * j;
            part = fma(vec2(query[at], query[at + 1u]), unpackHalf2x16(w[n][j]), part);
        }
    return part.x + part.y;
}

void main() {
    uint n_heads = a.heads & 0xffffu, n_kv = a.heads >> 16;
    uint dim_k = a.dims & 0xffffu, dim_v = a.dims >> 16;
    uint row_head = a.parts != 0 ? group() / MOST_PARTS : group(), part = group() % MOST_PARTS;
    uint t = row_head / n_heads, h = row_head % n_heads, l = gl_LocalInvocationID.x;
    uint kv_head = h / (n_heads / n_kv);
    uint len = u32s(a.row_len).v[t], lo = a.window != 0u && len > a.window ? len - a.window : 0u;
    if (a.chunk != 0u)
        lo = (len - 1u) / a.chunk * a.chunk;
    uint first_page = lo / PAGE, n_pages = (len + PAGE - 1u) / PAGE - first_page;
    uint per_part = pages_of_part(n_pages), page_end = first_page + n_pages;
    if (a.parts != 0) {
        first_page += part * per_part;
        if (first_page >= page_end)
            return;
        page_end = min(page_end, first_page + per_part);
    }
    u32s pages = u32s(a.page_table + uint64_t(u32s(a.row_seq).v[t]) * a.max_pages * 4u);
    uint64_t k_row = TYPE == F16 ? dim_k * 2u : dim_k / 32u * 34u;
    uint64_t v_row = TYPE == F16 ? a.v_width * 2u : a.v_width / 32u * 34u;
    bool words = ((uint(a.v) | uint(a.v_page_bytes) | uint(v_row)) & 3u) == 0u;
    uint page_id = pages.v[min(first_page, page_end - 1u)];
    for (uint i = l; i < dim_k; i += PAGE)
        query[i] = f32s(a.q + (uint64_t(t) * a.stride_q + h * dim_k) * 4u).v[i];
    barrier();
    float most = -INFINITY, total = 0.0, sum[SUMS];
    float all_most = -INFINITY, all_total = 0.0, all_sum[SUMS];
    [[unroll]] for (uint d = 0; d < SUMS; d++)
        sum[d] = all_sum[d] = 0.0;
    for (uint page = first_page; page < page_end; page++) {
        uint pos = page * PAGE + l;
        uint64_t at = uint64_t(page_id), first = uint64_t(kv_head * PAGE);
        page_id = pages.v[min(page + 1u, page_end - 1u)];
        float s = -INFINITY;
        if (pos >= lo && pos < len) {
            uint64_t row = a.k + at * a.k_page_bytes + (first + l) * k_row;
            s = 0.0;
            uint i = 0u;
            if (TYPE == F16 && (uint(row) & 15u) == 0u) {
                for (; i + 64u <= dim_k; i += 128u) { /* so many loads in flight */
                    bool second = i + 128u <= dim_k;
                    uvec4 w[8], next[8];
                    [[unroll]] for (uint n = 0; n < 8u; n++)
                        w[n] = vec4s(row).v[i / 8u + n];
                    [[unroll]] for (uint n = 0; n < 8u; n++)
                        next[n] = vec4s(row).v[(second ? i + 64u : i) / 8u + n];
                    s += of_64(w, i);
                    if (!second) {
                        i += 64u;
                        break;
                    }
                    s += of_64(next, i + 64u);
                }
            }
            for (; i < dim_k; i++)
                s = fma(query[i], element(row, i), s);
            s *= a.scale;
            if (a.softcap > 0.0)
                s = soft_cap(s, a.softcap);
        }
        score[l] = s;
        barrier();
        float top = most;
        [[unroll]] for (uint j = 0; j < PAGE; j++)
            top = score[j] > top ? score[j] : top;
        float keep = most == top ? 1.0 : exp_defined(most - top);
        barrier();
        score[l] = s == -INFINITY && top != -INFINITY ? 0.0 : exp_defined(s - top);
        barrier();
        total *= keep;
        uint begin = lo > page * PAGE ? lo - page * PAGE : 0u, end = min(len - page * PAGE, PAGE);
        float four[4] = float[4](0.0, 0.0, 0.0, 0.0);
        [[unroll]] for (uint j = 0; j < PAGE; j++) /* zeros where there is no position */
            four[j % 4u] += score[j];
        total += (four[0] + four[1]) + (four[2] + four[3]);
        uint64_t rows = a.v + at * a.v_page_bytes + first * v_row;
        if (words)
            add_values(rows, uint(v_row), dim_v, begin, end, keep, l, true, sum);
        else
            add_values(rows, uint(v_row), dim_v, begin, end, keep, l, false, sum);
        most = top;
        barrier();
        if ((page + 1u - first_page) % per_part != 0u && page + 1u != page_end)
            continue;
        if (a.parts != 0) {
            f32s to = f32s(a.parts + uint64_t(row_head * MOST_PARTS + part) * (dim_v + 2u) * 4u);
            if (l == 0u) {
                to.v[0] = most;
                to.v[1] = total;
            }
            [[unroll]] for (uint d = 0; d < SUMS; d++)
                if (element_of_sum(d, l) < dim_v)
                    to.v[2u + element_of_sum(d, l)] = sum[d];
            return;
        }
        float keep_all, keep_part;
        join_factors(all_most, most, keep_all, keep_part);
        all_total = joined(all_total, total, keep_all, keep_part);
        [[unroll]] for (uint d = 0; d < SUMS; d++) {
            all_sum[d] = joined(all_sum[d], sum[d], keep_all, keep_part);
            sum[d] = 0.0;
        }
        most = -INFINITY;
        total = 0.0;
    }
    float by = last_factor(all_most, all_total, a.sinks, h);
    f32s y = f32s(a.y + uint64_t(t * n_heads + h) * dim_v * 4u);
    [[unroll]] for (uint d = 0; d < SUMS; d++)
        if (element_of_sum(d, l) < dim_v)
            y.v[element_of_sum(d, l)] = all_sum[d] * by;
}
