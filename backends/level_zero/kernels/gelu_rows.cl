#include "common.clh"

GROUP(64) kernel void gelu_rows(const struct sl_lz_gelu_rows a) {
    ulong at = group() * 64u + item();
    if (at >= (ulong)a.n_tok * a.n)
        return;
    uint t = (uint)(at / a.n), row = a.rows ? U32S(a.rows)[t] : t;
    F32S(a.y)[at] = gelu(F32S(a.gate)[at]) * F32S(a.up)[(ulong)row * a.stride_up + at % a.n];
}
