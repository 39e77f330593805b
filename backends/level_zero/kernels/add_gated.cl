#include "common.clh"

GROUP(64) kernel void add_gated(const struct sl_lz_add_gated a) {
    ulong at = group() * 64u + item();
    if (at >= (ulong)a.n_tok * a.n)
        return;
    float x = F32S(a.x)[at], y = F32S(a.y)[at];
    F32S(a.y)[at] = a.gate ? fma(x, sigmoid(F32S(a.gate)[at / a.n]), y) : y + x;
}
