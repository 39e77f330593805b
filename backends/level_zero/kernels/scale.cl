#include "common.clh"

GROUP(64) kernel void scale(const struct sl_lz_scale a) {
    ulong at = group() * 64u + item();
    if (at >= (ulong)a.n_tok * a.n)
        return;
    float v = F32S(a.x)[at] * a.factor;
    if (a.by)
        v = v * F32S(a.by)[0];
    if (a.rows)
        v = v * F32S(a.rows)[at / a.n];
    F32S(a.y)[at] = a.cap > 0.0f ? soft_cap(v, a.cap) : v;
}
