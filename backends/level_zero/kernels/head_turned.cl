/* A head's matrix, n_in rows of n_out weights, times that head's part of the rows: 16 outputs a
 * work-item, through all rows of the matrix in order. */
#include "common.clh"
#include "types.clh"

GROUP(64) kernel void head_turned(const struct sl_lz_head a) {
    uint units = (a.n_out + 15u) / 16u;
    ulong i = group() * 64u + item(), head = i / units;
    uint u = (uint)(i % units), h = (uint)(head % a.n_heads);
    if (head >= (ulong)a.n_tok * a.n_heads)
        return;
    ulong w = a.w + h * a.head_bytes;
    global float *x = F32S(a.x) + head * a.stride_x, *y = F32S(a.y) + head * a.stride_y;
    float sum[16], v[16];
    for (uint e = 0; e < 16u; e++)
        sum[e] = 0.0f;
    for (uint r = 0; r < a.n_in; r++, w += a.row_bytes) {
        dequantize(w, u, a.n_out, v);
        for (uint e = 0; e < 16u; e++)
            sum[e] = fma(v[e], x[r], sum[e]);
    }
    for (uint e = 0; e < 16u; e++)
        if (u * 16u + e < a.n_out)
            y[u * 16u + e] = sum[e];
}
