/* An activation of gate times up: backends/ops/activation.h. */
#include "common.clh"
#include "backends/ops/activation.h"

static float activate(uint activation, float limit, float g, float u) {
    switch (activation) {
    case SL_SWIGLU_CLAMPED:
        g = 7.0f < g ? 7.0f : g;
        u = 7.0f < u ? 7.0f : u;
        u = -7.0f > u ? -7.0f : u;
        return divide(g, 1.0f + exp_defined(-(1.702f * g))) * (u + 1.0f);
    case SL_GEGLU:
        return gelu(g) * u;
    case SL_SWIGLU_LIMITED:
        u = u > limit ? limit : u;
        u = u < -limit ? -limit : u;
        g = silu(g);
        return (g > limit ? limit : g) * u;
    case SL_REGLU:
        return (g > 0.0f ? g : 0.0f) * u;
    case SL_SWIGLU_CUT:
        g = g > limit ? limit : g;
        u = u > limit ? limit : u;
        u = u < -limit ? -limit : u;
        return silu(g) * u;
    case SL_RELU_SQUARED:
        u = u < 0.0f ? 0.0f : u;
        return u * u;
    default:
        return silu(g) * u;
    }
}

GROUP(64) kernel void glu(const struct sl_lz_glu a) {
    ulong at = group() * 64u + item();
    if (at < a.n)
        F32S(a.y)[at] = activate(a.activation, a.limit, F32S(a.gate)[at], F32S(a.up)[at]);
}
