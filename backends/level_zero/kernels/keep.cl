/* Elements behind what a head's matrix multiplies, which are copied. */
#include "common.clh"

GROUP(64) kernel void keep(const struct sl_lz_keep a) {
    ulong at = group() * 64u + item(), row = at / a.n, i = at % a.n;
    if (row < a.n_rows)
        U32S(a.y)[row * a.stride_y + i] = U32S(a.x)[row * a.stride_x + i];
}
