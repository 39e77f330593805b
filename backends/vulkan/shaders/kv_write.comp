#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Rows of K or V to their pages, 32 elements of a head an invocation. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x, pages, slot;
    uint64_t page_bytes;
    uint n_tok, n_heads, head_dim, stride, q8;
} a;

void main() {
    uint units = (a.head_dim + 31u) / 32u, i = group() * 64u + gl_LocalInvocationID.x;
    uint unit = i % units, h = i / units % a.n_heads, t = i / units / a.n_heads;
    if (t >= a.n_tok)
        return;
    uint slot = u32s(a.slot).v[t], from = unit * 32u, end = min(from + 32u, a.head_dim);
    f32s x = f32s(a.x + (uint64_t(t) * a.stride + h * a.head_dim) * 4u);
    uint64_t row_bytes = a.q8 != 0u ? units * 34u : a.head_dim * 2u;
    uint64_t y = a.pages + slot / 64u * a.page_bytes + (h * 64u + slot % 64u) * row_bytes;
    if (a.q8 == 0u) {
        for (uint e = from; e < end; e++)
            u16s(y).v[e] = uint16_t(f16_of(x.v[e]));
        return;
    }
    float most = 0.0;
    for (uint e = from; e < end; e++) {
        float v = uintBitsToFloat(floatBitsToUint(x.v[e]) & 0x7fffffffu);
        most = v > most ? v : most;
    }
    float d = divide(most, 127.0);
    d = d < 65504.0 ? d : 65504.0;
    uint stored = f16_of(d);
    float kept = f32_of_f16(stored), inv = kept > 0.0 ? divide(1.0, kept) : 0.0;
    y += unit * 34u;
    u8s(y).v[0] = uint8_t(stored & 255u);
    u8s(y).v[1] = uint8_t(stored >> 8);
    for (uint e = 0; e < 32u; e++) {
        precise float v = x.v[from + e] * inv;
        v = v < 127.0 ? v : 127.0;
        v = v > -127.0 ? v : -127.0;
        v = v + 12582912.0;
        u8s(y).v[2u + e] = uint8_t(floatBitsToUint(v) & 255u);
    }
}
