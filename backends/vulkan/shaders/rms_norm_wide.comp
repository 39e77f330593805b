#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* As rms_norm.comp, for rows of many elements: one a workgroup. All invocations bring the row to shared
 * memory, 16 of them have the definition's partial sums. */
layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t x, w, y;
    uint n_rows, n, stride_x, stride_y;
    float eps;
} a;
#define CHUNK 3072u
shared float row[CHUNK], parts[16];

void main() {
    uint l = gl_LocalInvocationID.x;
    if (group() >= a.n_rows)
        return;
    f32s x = f32s(a.x + uint64_t(group()) * a.stride_x * 4u);
    f32s y = f32s(a.y + uint64_t(group()) * a.stride_y * 4u);
    float sum = 0.0;
    for (uint from = 0; from < a.n; from += CHUNK) {
        uint n = min(a.n - from, CHUNK);
        barrier();
        for (uint i = l; i < n; i += 256u)
            row[i] = x.v[from + i];
        barrier();
        if (l < 16u) {
            uint i = l;
            for (; i + 7u * 16u < n; i += 8u * 16u) {
                float f[8];
                [[unroll]] for (uint k = 0; k < 8u; k++)
                    f[k] = row[i + 16u * k];
                [[unroll]] for (uint k = 0; k < 8u; k++)
                    sum = fma_once(f[k], f[k], sum);
            }
            for (; i < n; i += 16u)
                sum = fma_once(row[i], row[i], sum);
        }
    }
    if (l < 16u)
        parts[l] = sum;
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[i];
    precise float mean = divide(tree_sum(part), float(a.n)) + a.eps;
    float inv = divide(1.0, root(mean));
    for (uint i = l; i < a.n; i += 256u) {
        precise float v = (a.n <= CHUNK ? row[i] : x.v[i]) * inv;
        y.v[i] = a.w != 0 ? v * f32s(a.w).v[i] : v;
    }
}
