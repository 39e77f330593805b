#include "common.clh"

GROUP(64) kernel void gather_rows(const struct sl_lz_gather_rows a) {
    ulong at = group() * 64u + item();
    if (at < (ulong)a.n_out * a.n)
        F32S(a.y)[at] = F32S(a.x)[(ulong)U32S(a.rows)[at / a.n] * a.n + at % a.n];
}
