#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* Input rows to int8, as backends/cpu/matmul/quantize.h defines it: four times 256 elements a workgroup,
 * 16 elements an invocation. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x, y;
    uint n_rows, n, block32, stride;
} a;
#define QX_BYTES 320u
shared uint tops[4][16];
shared int sums[4][16];

void main() {
    uint at = gl_LocalInvocationID.x / 16u, lane = gl_LocalInvocationID.x % 16u;
    uint per_row = (a.n + 255u) / 256u, i = group() * 4u + at;
    bool there = i < per_row * a.n_rows;
    i = there ? i : 0u;
    uint row = i / per_row, from = i % per_row * 256u + lane * 16u;
    bool inside = from < a.n;
    float v[16];
    uint top = 0u;
    f32s x = f32s(a.x + (uint64_t(row) * a.stride + from) * 4u);
    [[unroll]] for (uint e = 0; e < 16u; e++) {
        v[e] = inside ? x.v[e] : 0.0;
        top = max(top, floatBitsToUint(v[e]) & 0x7fffffffu);
    }
    tops[at][lane] = top;
    barrier();
    if (a.block32 != 0u) {
        top = max(tops[at][lane & 14u], tops[at][lane | 1u]);
    } else {
        for (uint l = 0; l < 16u; l++)
            top = max(top, tops[at][l]);
    }
    float most = uintBitsToFloat(top), d = 0.0, inv = 0.0;
    bool finite = top < 0x7f800000u;
    if (!finite) {
        d = NAN;
    } else if (top >= 0x0d800000u) { /* 2^-100 */
        inv = divide(127.0, most);
        d = divide(most, 127.0);
    }
    uint64_t out_at = a.y + uint64_t(i) * QX_BYTES;
    int sum = 0;
    [[unroll]] for (uint e = 0; e < 16u; e++) {
        precise float scaled = v[e] * inv;
        int q = inv == 0.0 ? 0 : int(roundEven(scaled));
        sum += q;
        if (there)
            i8s(out_at).v[lane * 16u + e] = int8_t(q);
    }
    sums[at][lane] = sum;
    barrier();
    if (!there)
        return;
    if (a.block32 != 0u) {
        if ((lane & 1u) == 0u) {
            f32s(out_at + 256).v[lane / 2u] = inside ? d : 0.0;
            i16s(out_at + 288).v[lane / 2u] = int16_t(sum + sums[at][lane | 1u]);
        }
    } else {
        if (lane == 0u)
            f32s(out_at + 256).v[0] = d;
        i16s(out_at + 288).v[lane] = int16_t(sum);
    }
}
