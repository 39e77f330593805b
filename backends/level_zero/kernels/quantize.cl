/* Input rows to int8, as backends/cpu/matmul/quantize.h defines it: four times 256 elements a group,
 * 16 elements a work-item. */
#include "common.clh"

GROUP(64) kernel void quantize(const struct sl_lz_quantize a) {
    local uint tops[4][16];
    local int sums[4][16];
    uint at = item() / 16u, lane = item() % 16u;
    uint per_row = (a.n + 255u) / 256u;
    ulong i = group() * 4u + at;
    bool there = i < (ulong)per_row * a.n_rows;
    i = there ? i : 0u;
    uint row = (uint)(i / per_row), from = (uint)(i % per_row) * 256u + lane * 16u;
    bool inside = from < a.n;
    float v[16];
    uint top = 0u;
    global float *x = F32S(a.x + ((ulong)row * a.stride + from) * 4u);
    for (uint e = 0; e < 16u; e++) {
        v[e] = inside ? x[e] : 0.0f;
        top = max(top, as_uint(v[e]) & 0x7fffffffu);
    }
    tops[at][lane] = top;
    BARRIER();
    if (a.block32) {
        top = max(tops[at][lane & 14u], tops[at][lane | 1u]);
    } else {
        for (uint k = 0; k < 16u; k++)
            top = max(top, tops[at][k]);
    }
    float d = 0.0f, inv = 0.0f;
    if (top >= 0x7f800000u) {
        d = as_float(0x7fc00000u);
    } else if (top >= 0x0d800000u) { /* 2^-100 */
        inv = divide(127.0f, as_float(top));
        d = divide(as_float(top), 127.0f);
    }
    ulong out = a.y + i * SL_LZ_QX_BYTES;
    int sum = 0;
    for (uint e = 0; e < 16u; e++) {
        int q = inv == 0.0f ? 0 : (int)rint(v[e] * inv);
        sum += q;
        if (there)
            I8S(out)[lane * 16u + e] = (char)q;
    }
    sums[at][lane] = sum;
    BARRIER();
    if (!there)
        return;
    if (a.block32) {
        if ((lane & 1u) == 0u) {
            F32S(out + 256)[lane / 2u] = inside ? d : 0.0f;
            I16S(out + 288)[lane / 2u] = (short)(sum + sums[at][lane | 1u]);
        }
        return;
    }
    if (lane == 0u)
        F32S(out + 256)[0] = d;
    I16S(out + 288)[lane] = (short)sum;
}
