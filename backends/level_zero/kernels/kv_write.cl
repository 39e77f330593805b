/* Rows of K or V to their pages, 32 elements of a head a work-item. */
#include "common.clh"

GROUP(64) kernel void kv_write(const struct sl_lz_kv_write a) {
    uint units = (a.head_dim + 31u) / 32u;
    ulong i = group() * 64u + item();
    uint unit = (uint)(i % units), h = (uint)(i / units % a.n_heads);
    uint t = (uint)(i / units / a.n_heads);
    if (t >= a.n_tok)
        return;
    uint slot = U32S(a.slot)[t], from = unit * 32u, end = min(from + 32u, a.head_dim);
    global float *x = F32S(a.x + ((ulong)t * a.stride + h * a.head_dim) * 4u);
    ulong row_bytes = a.q8 ? units * 34u : a.head_dim * 2u;
    ulong y = a.pages + slot / 64u * a.page_bytes + (h * 64u + slot % 64u) * row_bytes;
    if (!a.q8) {
        for (uint e = from; e < end; e++)
            U16S(y)[e] = (ushort)f16_of(x[e]);
        return;
    }
    float most = 0.0f;
    for (uint e = from; e < end; e++) {
        float v = as_float(as_uint(x[e]) & 0x7fffffffu);
        most = v > most ? v : most;
    }
    float d = divide(most, 127.0f);
    d = d < 65504.0f ? d : 65504.0f;
    uint stored = f16_of(d);
    float kept = f32_of_f16(stored), inv = kept > 0.0f ? divide(1.0f, kept) : 0.0f;
    y += unit * 34u;
    U8S(y)[0] = (uchar)(stored & 255u);
    U8S(y)[1] = (uchar)(stored >> 8);
    for (uint e = 0; e < 32u; e++) {
        float v = x[from + e] * inv;
        v = v < 127.0f ? v : 127.0f;
        v = v > -127.0f ? v : -127.0f;
        U8S(y)[2u + e] = (uchar)(as_uint(v + 12582912.0f) & 255u);
    }
}
