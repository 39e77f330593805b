/* The parts of one row of queries of one head a group: attention.clh. */
#include "common.clh"
#include "kv.clh"
#include "attention_parts.clh"

GROUP(64) kernel void attention_join(const struct sl_lz_attention_join a) {
    uint at = group32(), t = at / a.n_heads, h = at % a.n_heads;
    if (t >= a.n_tok)
        return;
    uint len = U32S(a.row_len)[t], lo = first_position(len, a.window, a.chunk);
    len = a.n_top ? min(len, a.n_top) : len;
    uint n_pages = (len + PAGE - 1u) / PAGE - lo / PAGE, per_part = pages_of_part(n_pages);
    uint n_parts = (n_pages + per_part - 1u) / per_part, width = a.dim_v + 2u;
    global float *parts = F32S(a.parts) + (ulong)at * MOST_PARTS * width;
    global float *y = F32S(a.y) + (ulong)at * a.dim_v;
    for (uint i = item(); i < a.dim_v; i += 64u) {
        float most = -INFINITY, total = 0.0f, sum = 0.0f;
        for (uint k = 0; k < n_parts; k++) {
            global float *part = parts + k * width;
            float keep, keep_part;
            join_factors(&most, part[0], &keep, &keep_part);
            total = joined(total, part[1], keep, keep_part);
            sum = joined(sum, part[2u + i], keep, keep_part);
        }
        y[i] = sum * last_factor(most, total, a.sinks, h);
    }
}
