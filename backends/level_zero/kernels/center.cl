/* Four rows a group, 16 work-items each. */
#include "common.clh"

GROUP(64) kernel void center(const struct sl_lz_center a) {
    local float parts[4][16];
    uint at = item() / 16u, lane = item() % 16u;
    uint row = (uint)group() * 4u + at, read = min(row, a.n_tok - 1u);
    global float *x = F32S(a.x) + (ulong)read * a.n, *y = F32S(a.y) + (ulong)read * a.n;
    float sum = 0.0f, part[16];
    for (uint i = lane; i < a.n; i += 16u)
        sum += x[i];
    parts[at][lane] = sum;
    BARRIER();
    for (uint i = 0; i < 16u; i++)
        part[i] = parts[at][i];
    float mean = divide(tree_sum(part), (float)a.n);
    if (row >= a.n_tok)
        return;
    for (uint i = lane; i < a.n; i += 16u)
        y[i] = x[i] - mean;
}
