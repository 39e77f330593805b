#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "quantize.glsl"

/* A norm of one row a workgroup (as rms_norm.comp), and what comes of it quantised (as
 * quantize.comp): for types of 256 elements, of 32, or both; 0: not. 16 elements an invocation at a
 * time. */
#define THREADS 256u
layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, w, y, q256, q32;
    uint n_rows, n;
    float eps;
} a;
#define QX_BYTES 320u
#define CHUNK (16u * THREADS)
shared vec4 row[CHUNK / 4u];
shared float parts[16];
shared uint tops[THREADS];
shared int sums[THREADS];

/* Sixteen elements from element 16 u on; zeros beyond the row. */
void load_16(uint64_t x, uint u, out vec4 v[4]) {
    [[unroll]] for (uint k = 0; k < 4u; k++)
        v[k] = u * 16u < a.n ? float4s(x).v[u * 4u + k] : vec4(0.0);
}

/* The norm's factor; v: this invocation's elements of the last CHUNK. */
float norm_factor(uint64_t x, uint l, out vec4 v[4]) {
    float sum = 0.0;
    for (uint from = 0; from < a.n; from += CHUNK) {
        load_16(x, from / 16u + l, v);
        [[unroll]] for (uint k = 0; k < 4u; k++)
            row[4u * l + k] = v[k];
        barrier();
        uint units = min(a.n - from, CHUNK) / 16u, u = 0u;
        if (l < 16u) {
            for (; u + 32u <= units; u += 32u) {
                float f[32];
                [[unroll]] for (uint k = 0; k < 32u; k++)
                    f[k] = row[4u * (u + k) + l / 4u][l % 4u];
                [[unroll]] for (uint k = 0; k < 32u; k++)
                    sum = fma_once(f[k], f[k], sum);
            }
            for (; u < units; u++) {
                float f = row[4u * u + l / 4u][l % 4u];
                sum = fma_once(f, f, sum);
            }
        }
        barrier();
    }
    if (l < 16u)
        parts[l] = sum;
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[i];
    precise float mean = divide(tree_sum(part), float(a.n)) + a.eps;
    return divide(1.0, root(mean));
}

void main() {
    uint r = group(), l = gl_LocalInvocationID.x, units = (a.n + 255u) / 256u * 16u;
    if (r >= a.n_rows)
        return;
    uint64_t x = a.x + uint64_t(r) * a.n * 4u, y = a.y + uint64_t(r) * a.n * 4u;
    uint64_t q_row = uint64_t(r) * (units / 16u) * QX_BYTES;
    vec4 v[4], by[4]; /* of one round there is nothing to load after the norm */
    if (a.w != 0)
        load_16(a.w, l, by);
    float inv = norm_factor(x, l, v);
    for (uint from = 0; from < units; from += THREADS) {
        uint u = from + l, top;
        bool inside = u * 16u < a.n;
        if (units > THREADS) {
            if (a.w != 0)
                load_16(a.w, u, by);
            load_16(x, u, v);
        }
        [[unroll]] for (uint k = 0; k < 4u; k++) {
            precise vec4 normed = v[k] * inv, scaled = normed * by[k];
            v[k] = a.w != 0 ? scaled : normed;
            if (inside)
                float4s(y).v[u * 4u + k] = v[k];
            else
                v[k] = vec4(0.0); /* an infinite factor has made NaN of it */
        }
        top = top_of(v);
        tops[l] = top;
        barrier();
        uint64_t at = q_row + uint64_t(u / 16u) * QX_BYTES;
        float d;
        int sum;
        if (a.q256 != 0) {
            uint most = top;
            [[unroll]] for (uint i = 0; i < 16u; i++)
                most = max(most, tops[l & ~15u | i]);
            uvec4 words = to_int8(v, most, d, sum);
            if (inside) {
                vec4s(a.q256 + at).v[u % 16u] = words;
                i16s(a.q256 + at + 288).v[u % 16u] = int16_t(sum);
                if (u % 16u == 0u)
                    f32s(a.q256 + at + 256).v[0] = d;
            }
        }
        if (a.q32 != 0) {
            uvec4 words = to_int8(v, max(tops[l & ~1u], tops[l | 1u]), d, sum);
            if (u < units)
                vec4s(a.q32 + at).v[u % 16u] = words;
            sums[l] = sum;
            barrier();
            if (u < units && u % 2u == 0u) {
                f32s(a.q32 + at + 256).v[u % 16u / 2u] = inside ? d : 0.0;
                i16s(a.q32 + at + 288).v[u % 16u / 2u] = int16_t(sum + sums[l + 1u]);
            }
        }
        barrier();
    }
}
