/* A group for each row, in place. In each step a pair of elements belongs to one work-item. */
#include "common.clh"

GROUP(64) kernel void hadamard(const struct sl_lz_hadamard a) {
    uint row = (uint)group(), l = item();
    if (row >= a.n_rows)
        return;
    global float *x = F32S(a.x) + (ulong)row * a.n;
    for (uint step = 1u; step < a.n; step *= 2u) {
        for (uint p = l; p < a.n / 2u; p += 64u) {
            uint i = p / step * 2u * step + p % step;
            float u = x[i], v = x[i + step];
            x[i] = u + v;
            x[i + step] = u - v;
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
    for (uint i = l; i < a.n; i += 64u)
        x[i] *= a.by;
}
