/* Four heads a group, 16 work-items each. */
#include "common.clh"

GROUP(64) kernel void l2_norm(const struct sl_lz_l2_norm a) {
    local float parts[4][16];
    uint at = item() / 16u, lane = item() % 16u, n = a.n_tok * a.n_heads;
    uint head = (uint)group() * 4u + at, read = min(head, n - 1u);
    global float *x =
        F32S(a.x) + (ulong)(read / a.n_heads) * a.stride + read % a.n_heads * a.head_dim;
    float sum = 0.0f, part[16];
    for (uint i = lane; i < a.head_dim; i += 16u)
        sum = fma(x[i], x[i], sum);
    parts[at][lane] = sum;
    BARRIER();
    for (uint i = 0; i < 16u; i++)
        part[i] = parts[at][i];
    float inv = divide(1.0f, root(tree_sum(part) + a.eps));
    if (head >= n)
        return;
    for (uint i = lane; i < a.head_dim; i += 16u)
        x[i] *= inv;
}
