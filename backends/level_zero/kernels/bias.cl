#include "common.clh"

GROUP(64) kernel void bias(const struct sl_lz_bias a) {
    ulong at = group() * 64u + item();
    if (at < (ulong)a.n_tok * a.n)
        F32S(a.x)[at] += F32S(a.b)[at % a.n];
}
