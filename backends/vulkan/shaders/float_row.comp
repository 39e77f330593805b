#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "types.glsl"

/* One row of float weights times one row of input a workgroup: for
 * matrices of few rows. All bring both to shared memory, 16 invocations have the definition's
 * partial sums. */
layout(local_size_x = 128) in;
layout(push_constant) uniform args {
    uint64_t w, x, bias, y;
    uint64_t row_bytes;
    uint n_in, n_out, n_tok, add;
} a;
#define CHUNK 2048u
#define EACH (CHUNK / 128u)
shared float w_part[CHUNK], x_part[CHUNK], parts[16];

float of_parts(float sum, uint l) {
    if (l < 16u)
        parts[l] = sum;
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[i];
    barrier();
    return tree_sum(part);
}

void main() {
    uint t = group() / a.n_out, o = group() % a.n_out, l = gl_LocalInvocationID.x;
    if (t >= a.n_tok)
        return;
    uint64_t w = a.w + uint64_t(o) * a.row_bytes;
    f32s x = f32s(a.x + uint64_t(t) * a.n_in * 4u);
    float sum = 0.0;
    for (uint from = 0; from < a.n_in; from += CHUNK) {
        uint n = min(a.n_in - from, CHUNK);
        float v[EACH], u[EACH];
        [[unroll]] for (uint j = 0; j < EACH; j++) {
            uint i = from + min(l + 128u * j, n - 1u);
            v[j] = load_float(w, i);
            u[j] = x.v[i];
        }
        [[unroll]] for (uint j = 0; j < EACH; j++) {
            w_part[l + 128u * j] = v[j];
            x_part[l + 128u * j] = u[j];
        }
        barrier();
        if (l < 16u) {
            uint i = l;
            for (; i + 7u * 16u < n; i += 8u * 16u) {
                [[unroll]] for (uint k = 0; k < 8u; k++) {
                    v[k] = w_part[i + 16u * k];
                    u[k] = x_part[i + 16u * k];
                }
                [[unroll]] for (uint k = 0; k < 8u; k++)
                    sum = fma_once(v[k], u[k], sum);
            }
            for (; i < n; i += 16u)
                sum = fma_once(w_part[i], x_part[i], sum);
        }
        barrier();
    }
    sum = of_parts(sum, l);
    if (l != 0u)
        return;
    f32s y = f32s(a.y + uint64_t(t) * a.n_out * 4u);
    precise float s = a.bias != 0 ? sum + f32s(a.bias).v[o] : sum;
    y.v[o] = a.add != 0u ? y.v[o] + s : s;
}
