/* Four rows a group, 16 work-items each, which have the definition's partial sums. */
#include "common.clh"

GROUP(64) kernel void rms_norm(const struct sl_lz_rms_norm a) {
    local float parts[4][16];
    uint at = item() / 16u, lane = item() % 16u;
    uint row = (uint)group() * 4u + at, read = min(row, a.n_rows - 1u);
    global float *x = F32S(a.x + (ulong)read * a.stride_x * 4u);
    global float *y = F32S(a.y + (ulong)read * a.stride_y * 4u);
    float sum = 0.0f, part[16];
    for (uint i = lane; i < a.n; i += 16u)
        sum = fma(x[i], x[i], sum);
    parts[at][lane] = sum;
    BARRIER();
    for (uint i = 0; i < 16u; i++)
        part[i] = parts[at][i];
    float mean = divide(tree_sum(part), (float)a.n) + a.eps;
    float inv = divide(1.0f, root(mean));
    if (row >= a.n_rows)
        return;
    for (uint i = lane; i < a.n; i += 16u) {
        float v = x[i] * inv;
        y[i] = a.w ? v * F32S(a.w)[i] : v;
    }
}
