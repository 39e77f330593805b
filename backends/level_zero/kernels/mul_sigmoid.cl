#include "common.clh"

GROUP(64) kernel void mul_sigmoid(const struct sl_lz_mul_sigmoid a) {
    ulong at = group() * 64u + item();
    if (at < (ulong)a.n_rows * a.n)
        F32S(a.y)[at] *= sigmoid(F32S(a.gate)[at / a.n * a.stride_gate + at % a.n]);
}
