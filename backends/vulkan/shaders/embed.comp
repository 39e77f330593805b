#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

#include "types.glsl"
/* Rows of the embedding matrix, 16 elements an invocation. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t w, ids, y;
    uint64_t row_bytes;
    uint n_in, n_tok;
    float scale;
} a;

void main() {
    uint units = (a.n_in + 15u) / 16u, i = group() * 64u + gl_LocalInvocationID.x, t = i / units;
    uint u = i % units;
    if (t >= a.n_tok)
        return;
    uint64_t row = a.w + uint64_t(u32s(a.ids).v[t]) * a.row_bytes;
    f32s y = f32s(a.y + uint64_t(t) * a.n_in * 4u);
    if (is_float()) {
        for (uint e = u * 16u; e < min(u * 16u + 16u, a.n_in); e++) {
            precise float v = load_float(row, e);
            y.v[e] = a.scale != 1.0 ? v * a.scale : v;
        }
        return;
    }
    int q[16], scale, least;
    float d, dmin;
    uint unit;
    uint64_t b = block_of(row, u, unit);
    load_unit(b, unit, q);
    unit_scales(b, unit, scale, least);
    block_scales(b, d, dmin);
    precise float by = d * float(scale), less = dmin * float(least);
    for (uint e = 0; e < 16u; e++) {
        precise float v = by * float(q[e]);
        if (has_min())
            v = v - less;
        y.v[u * 16u + e] = a.scale != 1.0 ? v * a.scale : v;
    }
}
