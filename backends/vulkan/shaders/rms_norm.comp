#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Four rows a workgroup, 16 invocations each, which have the definition's partial sums. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x, w, y;
    uint n_rows, n, stride_x, stride_y;
    float eps;
} a;
shared float parts[4][16];

void main() {
    uint at = gl_LocalInvocationID.x / 16u, lane = gl_LocalInvocationID.x % 16u;
    uint row = group() * 4u + at, read = min(row, a.n_rows - 1u);
    f32s x = f32s(a.x + uint64_t(read) * a.stride_x * 4u);
    f32s y = f32s(a.y + uint64_t(read) * a.stride_y * 4u);
    float sum = 0.0;
    for (uint i = lane; i < a.n; i += 16u)
        sum = fma_once(x.v[i], x.v[i], sum);
    parts[at][lane] = sum;
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[at][i];
    precise float mean = divide(tree_sum(part), float(a.n)) + a.eps;
    float inv = divide(1.0, root(mean));
    if (row >= a.n_rows)
        return;
    for (uint i = lane; i < a.n; i += 16u) {
        precise float v = x.v[i] * inv;
        y.v[i] = a.w != 0 ? v * f32s(a.w).v[i] : v;
    }
}
