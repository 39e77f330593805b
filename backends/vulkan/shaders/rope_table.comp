#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* cos and sin of pos * inv_freq, which may be a million: the product is kept in two floats, and
 * multiples of pi/2 are taken off in parts (Cody and Waite 1980). */
layout(local_size_x = 256) in;
layout(push_constant) uniform args {
    uint64_t pos, inv_freq, table;
    uint n_tok, n_freq;
    float mscale;
} a;

/* x + y: the sum, and what it lacks (Knuth). */
void add(float x, float y, out float s, out float e) {
    precise float sum = x + y, other = sum - x;
    precise float rest = (x - (sum - other)) + (y - other);
    s = sum;
    e = rest;
}

/* (high + low) * mscale, rounded about once. */
float scaled(float high, float low) {
    precise float p = high * a.mscale, rest = fma_once(high, a.mscale, -p);
    precise float y = p + fma_once(low, a.mscale, rest);
    return y;
}

void main() {
    uint at = group() * 256u + gl_LocalInvocationID.x, t = at / a.n_freq, i = at % a.n_freq;
    if (t >= a.n_tok)
        return;
    int p = i32s(a.pos).v[t];
    /* Positions of more than 24 bits in two parts, so that each product with a float is exact. */
    float f = f32s(a.inv_freq).v[i], p_high = float(p & ~0xfff), p_low = float(p & 0xfff);
    precise float high = p_high * f, rest = fma_once(p_high, f, -high), low = p_low * f;
    precise float angle, rest_2, rest_3 = fma_once(p_low, f, -low);
    add(high, low, angle, rest_2);
    precise float n = roundEven(angle * 0.63661977236758);
    const float half_pi = uintBitsToFloat(0x3fc90fdbu), half_pi_2 = uintBitsToFloat(0xb33bbd2eu);
    const float half_pi_3 = uintBitsToFloat(0xa6f72cedu);
    precise float taken = n * half_pi, taken_rest = fma_once(n, half_pi, -taken);
    precise float taken_2 = n * half_pi_2, taken_3 = fma_once(n, half_pi_2, -taken_2);
    precise float r = angle - taken; /* exact: they are alike */
    /* Each of these may be some hundredths, where a rounding would show. */
    float less, lost_1, lost_2, lost_3, x, lost_4;
    add(rest_2, -taken_rest, less, lost_1);
    add(less, -taken_2, less, lost_2);
    add(less, rest, less, lost_3);
    add(r, less, x, lost_4);
    precise float e = (lost_1 + lost_2) + (lost_3 + rest_3) - taken_3;
    e = lost_4 + fma_once(-n, half_pi_3, e);
    add(x, e, x, e);
    precise float x2 = x * x, x2_rest = fma_once(x, x, -x2);
    precise float x3 = x2 * x, x3_rest = fma_once(x2, x, -x3) + x2_rest * x;
    precise float s = fma_once(x2, 2.7557314e-6, -1.9841270e-4);
    s = fma_once(s, x2, 8.3333333e-3);
    s = fma_once(s, x2, -1.6666667e-1);
    precise float c = fma_once(x2, -2.7557319e-7, 2.4801587e-5);
    c = fma_once(c, x2, -1.3888889e-3);
    c = fma_once(c, x2, 4.1666667e-2);
    /* cos x = 1 - x2/2 + c x2^2, and of the sum x + e the derivative's part. */
    precise float h = 0.5 * x2, one_less = 1.0 - h, lost = (1.0 - one_less) - h;
    precise float cosine = (lost - 0.5 * x2_rest) + fma_once(c * x2, x2, -(x * e));
    /* 4.9670537e-9: what -1/6 lacks as a float. */
    precise float small = fma_once(x3_rest, s, fma_once(x3, 4.9670537e-9, fma_once(-h, e, e)));
    precise float sine = fma_once(x3, s, small);
    int turn = int(n) & 3;
    f32s y = f32s(a.table + uint64_t(at) * 8u);
    bool odd = (turn & 1) == 1;
    float cs = odd ? scaled(x, sine) : scaled(one_less, cosine);
    float sn = odd ? scaled(one_less, cosine) : scaled(x, sine);
    y.v[0] = turn == 1 || turn == 2 ? -cs : cs;
    y.v[1] = turn >= 2 ? -sn : sn;
}
