#include "common.clh"

GROUP(64) kernel void moe_combine(const struct sl_lz_moe_combine a) {
    ulong at = group() * 64u + item();
    if (at >= (ulong)a.n_tok * a.n)
        return;
    ulong t = at / a.n, i = at % a.n;
    float sum = a.set ? 0.0f : F32S(a.y)[at];
    for (uint r = 0; r < a.k; r++) {
        ulong pair = t * a.k + r;
        sum = fma(F32S(a.pair_y)[pair * a.n + i], F32S(a.weights)[pair], sum);
    }
    F32S(a.y)[at] = sum;
}
