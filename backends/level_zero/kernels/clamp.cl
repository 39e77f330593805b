#include "common.clh"

GROUP(64) kernel void clamp(const struct sl_lz_clamp a) {
    ulong at = group() * 64u + item();
    if (at >= a.n)
        return;
    float v = F32S(a.x)[at];
    v = v > a.limit ? a.limit : v;
    F32S(a.x)[at] = v < -a.limit ? -a.limit : v;
}
