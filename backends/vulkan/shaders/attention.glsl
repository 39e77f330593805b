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
    for (uint i = l; i < dim_k; i += PAGE)
        query[i] = f32s(a.q + (uint64_t(t) * a.stride_q + h * dim_k) * 4u).v[i];
    barrier();
    float most = -INFINITY, total = 0.0, sum[MAX_DIM / PAGE];
    float all_most = -INFINITY, all_total = 0.0, all_sum[MAX_DIM / PAGE];
    [[unroll]] for (uint d = 0; d < MAX_DIM / PAGE; d++)
        sum[d] = all_sum[d] = 0.0;
    for (uint page = first_page; page < page_end; page++) {
        uint pos = page * PAGE + l;
        uint64_t at = uint64_t(pages.v[page]), first = uint64_t(kv_head * PAGE);
        float s = -INFINITY;
        if (pos >= lo && pos < len) {
            uint64_t row = a.k + at * a.k_page_bytes + (first + l) * k_row;
            s = 0.0;
            uint i = 0u;
            if (TYPE == F16 && (uint(row) & 15u) == 0u) {
                for (; i + 64u <= dim_k; i += 64u) { /* so many loads in flight */
                    uvec4 w[8];
                    [[unroll]] for (uint n = 0; n < 8u; n++)
                        w[n] = vec4s(row).v[i / 8u + n];
                    vec2 part = vec2(0.0);
                    [[unroll]] for (uint n = 0; n < 8u; n++)
                        [[unroll]] for (uint j = 0; j < 4u; j++) {
                            uint at = i + 8u * n + 2u * j;
                            part = fma(vec2(query[at], query[at + 1u]), unpackHalf2x16(w[n][j]), part);
                        }
                    s += part.x + part.y;
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
        [[unroll]] for (uint d = 0; d < MAX_DIM / PAGE; d++) {
            uint i = d * PAGE + l;
            if (d * PAGE < dim_v) {
                uint j = begin, at_i = min(i, dim_v - 1u);
                float y = sum[d] * keep;
                for (; j + 16u <= end; j += 16u) { /* so many loads in flight */
                    float e[16];
                    [[unroll]] for (uint n = 0; n < 16u; n++)
                        e[n] = element(rows + (j + n) * v_row, at_i);
                    [[unroll]] for (uint n = 0; n < 16u; n++)
                        y = fma(score[j + n], e[n], y);
                }
                if (j < end) {
                    float e[16];
                    [[unroll]] for (uint n = 0; n < 16u; n++)
                        e[n] = element(rows + min(j + n, end - 1u) * v_row, at_i);
                    [[unroll]] for (uint n = 0; n < 16u; n++)
                        y = j + n < end ? fma(score[min(j + n, end - 1u)], e[n], y) : y;
                }
                sum[d] = y;
            }
        }
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
            [[unroll]] for (uint d = 0; d < MAX_DIM / PAGE; d++)
                if (d * PAGE + l < dim_v)
                    to.v[2u + d * PAGE + l] = sum[d];
            return;
        }
        float keep_all, keep_part;
        join_factors(all_most, most, keep_all, keep_part);
        all_total = joined(all_total, total, keep_all, keep_part);
        [[unroll]] for (uint d = 0; d < MAX_DIM / PAGE; d++) {
            all_sum[d] = joined(all_sum[d], sum[d], keep_all, keep_part);
            sum[d] = 0.0;
        }
        most = -INFINITY;
        total = 0.0;
    }
    float by = last_factor(all_most, all_total, a.sinks, h);
    f32s y = f32s(a.y + uint64_t(t * n_heads + h) * dim_v * 4u);
    [[unroll]] for (uint d = 0; d < MAX_DIM / PAGE; d++)
        if (d * PAGE + l < dim_v)
            y.v[d * PAGE + l] = all_sum[d] * by;
}
