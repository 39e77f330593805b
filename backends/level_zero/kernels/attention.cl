/* One row of queries of one head a group, over its positions page by page with an online softmax
 * (Dao et al. 2022): a work-item has a position's score, then some elements of the sum. */
#include "common.clh"
#define PAGE    64u
#define MAX_DIM SL_LZ_MAX_HEAD_DIM
#define EACH    (MAX_DIM / PAGE) /* elements of a work-item */

static inline float element(ulong row, uint i, uint q8) {
    if (!q8)
        return f32_of_f16(U16S(row)[i]);
    ulong b = row + i / 32u * 34u;
    return f32_of_f16(U8S(b)[0] | (uint)U8S(b)[1] << 8) * (float)I8S(b)[2u + i % 32u];
}

GROUP(64) kernel void attention(const struct sl_lz_attention a) {
    local float query[MAX_DIM], score[PAGE];
    uint t = (uint)(group() / a.n_heads), h = (uint)(group() % a.n_heads), l = item();
    if (t >= a.n_tok)
        return;
    uint kv_head = h / (a.n_heads / a.n_kv_heads);
    uint len = U32S(a.row_len)[t], lo = a.window && len > a.window ? len - a.window : 0u;
    if (a.chunk)
        lo = (len - 1u) / a.chunk * a.chunk;
    global uint *pages = U32S(a.page_table + (ulong)U32S(a.row_seq)[t] * a.max_pages * 4u);
    ulong k_row = a.q8 ? a.dim_k / 32u * 34u : a.dim_k * 2u;
    ulong v_row = a.q8 ? a.dim_v / 32u * 34u : a.dim_v * 2u;
    for (uint i = l; i < a.dim_k; i += PAGE)
        query[i] = F32S(a.q + ((ulong)t * a.stride_q + h * a.dim_k) * 4u)[i];
    BARRIER();
    float most = -INFINITY, total = 0.0f, sum[EACH];
    for (uint d = 0; d < EACH; d++)
        sum[d] = 0.0f;
    for (uint page = lo / PAGE; page * PAGE < len; page++) {
        uint pos = page * PAGE + l;
        ulong at = pages[page], first = kv_head * PAGE;
        float s = -INFINITY, top = most;
        if (pos >= lo && pos < len) {
            ulong row = a.k + at * a.k_page_bytes + (first + l) * k_row;
            s = 0.0f;
            for (uint i = 0; i < a.dim_k; i++)
                s = fma(query[i], element(row, i, a.q8), s);
            s *= a.scale;
            if (a.softcap > 0.0f)
                s = soft_cap(s, a.softcap);
        }
        score[l] = s;
        BARRIER();
        for (uint j = 0; j < PAGE; j++)
            top = score[j] > top ? score[j] : top;
        float keep = most == top ? 1.0f : exp_defined(most - top);
        BARRIER();
        score[l] = s == -INFINITY && top != -INFINITY ? 0.0f : exp_defined(s - top);
        BARRIER();
        total *= keep;
        uint begin = lo > page * PAGE ? lo - page * PAGE : 0u, end = min(len - page * PAGE, PAGE);
        float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (uint j = 0; j < PAGE; j++) /* zeros where there is no position */
            four[j % 4u] += score[j];
        total += (four[0] + four[1]) + (four[2] + four[3]);
        ulong rows = a.v + at * a.v_page_bytes + first * v_row;
        for (uint d = 0; d < EACH; d++) {
            uint i = d * PAGE + l;
            if (i < a.dim_v) {
                float y = sum[d] * keep;
                for (uint j = begin; j < end; j++)
                    y = fma(score[j], element(rows + j * v_row, i, a.q8), y);
                sum[d] = y;
            }
        }
        most = top;
        BARRIER();
    }
    float by = 1.0f;
    if (a.sinks) {
        float sink = F32S(a.sinks)[h], top = most > sink ? most : sink;
        by = exp_defined(most - top);
        total = fma(total, by, exp_defined(sink - top));
    }
    by *= divide(1.0f, total);
    global float *y = F32S(a.y + (ulong)(t * a.n_heads + h) * a.dim_v * 4u);
    for (uint d = 0; d < EACH; d++)
        if (d * PAGE + l < a.dim_v)
            y[d * PAGE + l] = sum[d] * by;
}
