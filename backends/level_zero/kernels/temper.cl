#include "common.clh"
#include "ln.clh"

GROUP(64) kernel void temper(const struct sl_lz_temper a) {
    ulong at = group() * 64u + item();
    if (at >= (ulong)a.n_tok * a.n)
        return;
    uint k = ((uint)I32S(a.pos)[at / a.n] + a.offset) / a.span + 1u;
    float high = (float)k, low = (float)(int)(k - (uint)high);
    F32S(a.x)[at] *= k > 1u ? fma(a.factor, ln(high, low), 1.0f) : 1.0f;
}
