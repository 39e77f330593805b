#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Four rows a workgroup, 16 invocations each, which have the definition's partial sums. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x, y;
    uint n_tok, n;
} a;
shared float parts[4][16];

void main() {
    uint at = gl_LocalInvocationID.x / 16u, lane = gl_LocalInvocationID.x % 16u;
    uint row = group() * 4u + at, read = min(row, a.n_tok - 1u);
    f32s x = f32s(a.x + uint64_t(read) * a.n * 4u), y = f32s(a.y + uint64_t(read) * a.n * 4u);
    float sum = 0.0;
    for (uint i = lane; i < a.n; i += 16u)
        sum += x.v[i];
    parts[at][lane] = sum;
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[at][i];
    float mean = divide(tree_sum(part), float(a.n));
    if (row >= a.n_tok)
        return;
    for (uint i = lane; i < a.n; i += 16u)
        y.v[i] = x.v[i] - mean;
}
