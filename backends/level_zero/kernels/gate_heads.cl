#include "common.clh"
#include "ln.clh"

GROUP(64) kernel void gate_heads(const struct sl_lz_gate_heads a) {
    ulong at = group() * 64u + item();
    if (at >= (ulong)a.n_rows * a.n)
        return;
    float g = F32S(a.gate)[a.per_row ? at / a.n : at];
    F32S(a.y)[at] *= a.soft ? softplus(g) : sigmoid(g);
}
