#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* The parts of one row of queries of one head a workgroup: attention.glsl. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t parts, sinks, y, row_len;
    uint n_heads, dim_v, window, chunk;
} a;
#define PAGE 64u
#include "attention_parts.glsl"

void main() {
    uint t = group() / a.n_heads, h = group() % a.n_heads, l = gl_LocalInvocationID.x;
    uint len = u32s(a.row_len).v[t], lo = a.window != 0u && len > a.window ? len - a.window : 0u;
    if (a.chunk != 0u)
        lo = (len - 1u) / a.chunk * a.chunk;
    uint n_pages = (len + PAGE - 1u) / PAGE - lo / PAGE, per_part = pages_of_part(n_pages);
    uint n_parts = (n_pages + per_part - 1u) / per_part;
    uint64_t part_bytes = (a.dim_v + 2u) * 4u, parts = a.parts + uint64_t(group() * MOST_PARTS) * part_bytes;
    f32s y = f32s(a.y + uint64_t(group()) * a.dim_v * 4u);
    for (uint i = l; i < a.dim_v; i += 64u) {
        float most = -INFINITY, total = 0.0, sum = 0.0;
        for (uint from = 0; from < n_parts; from += 4u) {
            float m[4], n[4], s[4]; /* so many loads in flight */
            [[unroll]] for (uint k = 0; k < 4u; k++) {
                f32s part = f32s(parts + min(from + k, n_parts - 1u) * part_bytes);
                m[k] = part.v[0];
                n[k] = part.v[1];
                s[k] = part.v[2u + i];
            }
            [[unroll]] for (uint k = 0; k < 4u; k++)
                if (from + k < n_parts) {
                    float keep, keep_part;
                    join_factors(most, m[k], keep, keep_part);
                    total = joined(total, n[k], keep, keep_part);
                    sum = joined(sum, s[k], keep, keep_part);
                }
        }
        y.v[i] = sum * last_factor(most, total, a.sinks, h);
    }
}
