/* Rows of the embedding matrix, 16 elements a work-item. */
#include "common.clh"
#include "types.clh"

GROUP(64) kernel void embed(const struct sl_lz_embed a) {
    uint units = (a.n_in + 15u) / 16u;
    ulong i = group() * 64u + item();
    uint t = (uint)(i / units), u = (uint)(i % units);
    if (t >= a.n_tok)
        return;
    ulong row = a.w + (ulong)U32S(a.ids)[t] * a.row_bytes;
    global float *y = F32S(a.y + (ulong)t * a.n_in * 4u);
    float v[16];
    dequantize(row, u, a.n_in, v);
    for (uint e = 0; e < 16u; e++)
        if (u * 16u + e < a.n_in)
            y[u * 16u + e] = a.scale != 1.0f ? v[e] * a.scale : v[e];
}
