#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Four heads a workgroup, 16 invocations each, which have the definition's partial sums. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x;
    uint n_tok, n_heads, head_dim, stride;
    float eps;
} a;
shared float parts[4][16];

void main() {
    uint at = gl_LocalInvocationID.x / 16u, lane = gl_LocalInvocationID.x % 16u;
    uint n = a.n_tok * a.n_heads, head = group() * 4u + at, read = min(head, n - 1u);
    f32s x = f32s(a.x + (uint64_t(read / a.n_heads) * a.stride + read % a.n_heads * a.head_dim) * 4u);
    float sum = 0.0;
    for (uint i = lane; i < a.head_dim; i += 16u)
        sum = fma_once(x.v[i], x.v[i], sum);
    parts[at][lane] = sum;
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[at][i];
    precise float all = tree_sum(part) + a.eps;
    float inv = divide(1.0, root(all));
    if (head >= n)
        return;
    for (uint i = lane; i < a.head_dim; i += 16u)
        x.v[i] *= inv;
}
