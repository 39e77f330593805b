#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* As attention_join.comp, 256 elements of a row of all heads a workgroup, and these quantised for
 * the product that follows: for types of 256 elements and of 32. */
layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t parts, sinks, y, row_len, q256, q32;
    uint n_heads, dim_v, window, chunk, n_tok;
} a;
#define PAGE 64u
#define QX_BYTES 320u
#include "attention_parts.glsl"
#include "quantize.glsl"
shared vec4 block[64];
shared uint tops[32];
shared int sums[32];

float joined_element(uint t, uint h, uint i) {
    uint len = u32s(a.row_len).v[t], lo = a.window != 0u && len > a.window ? len - a.window : 0u;
    if (a.chunk != 0u)
        lo = (len - 1u) / a.chunk * a.chunk;
    uint n_pages = (len + PAGE - 1u) / PAGE - lo / PAGE, per_part = pages_of_part(n_pages);
    uint n_parts = (n_pages + per_part - 1u) / per_part, part_bytes = (a.dim_v + 2u) * 4u;
    uint64_t parts = a.parts + uint64_t((t * a.n_heads + h) * MOST_PARTS) * part_bytes;
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
    return sum * last_factor(most, total, a.sinks, h);
}

void main() {
    uint l = gl_LocalInvocationID.x, blocks = a.n_heads * a.dim_v / 256u;
    uint t = group() / blocks, b = group() % blocks, i = b * 256u + l;
    if (t >= a.n_tok)
        return;
    float v = joined_element(t, i / a.dim_v, i % a.dim_v);
    f32s(a.y + (uint64_t(t) * blocks * 256u + i) * 4u).v[0] = v;
    block[l / 4u][l % 4u] = v;
    barrier();
    /* Sixteen invocations quantise for each: in subgroups of their own, where these have 32. */
    uint unit = l % 16u, which = l / 32u;
    bool quantises = l < 64u && (l & 16u) == 0u;
    vec4 u[4];
    [[unroll]] for (uint k = 0; k < 4u; k++)
        u[k] = block[4u * unit + k];
    uint top = top_of(u);
    if (quantises)
        tops[which * 16u + unit] = top;
    barrier();
    if (which == 0u) {
        [[unroll]] for (uint k = 0; k < 16u; k++)
            top = max(top, tops[k]);
    } else if (which == 1u) {
        top = max(tops[16u + unit], tops[16u + (unit ^ 1u)]);
    }
    uint64_t at = uint64_t(t * blocks + b) * QX_BYTES;
    float d = 0.0;
    int sum = 0;
    if (quantises) {
        vec4s((which == 0u ? a.q256 : a.q32) + at).v[unit] = to_int8(u, top, d, sum);
        sums[which * 16u + unit] = sum;
    }
    barrier();
    if (!quantises)
        return;
    if (which == 0u) {
        i16s(a.q256 + at + 288).v[unit] = int16_t(sum);
        if (unit == 0u)
            f32s(a.q256 + at + 256).v[0] = d;
    } else if ((unit & 1u) == 0u) {
        f32s(a.q32 + at + 256).v[unit / 2u] = d;
        i16s(a.q32 + at + 288).v[unit / 2u] = int16_t(sum + sums[16u + unit + 1u]);
    }
}
