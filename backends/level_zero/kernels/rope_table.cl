/* cos and sin of pos * inv_freq, which may be a million: the product is kept in two floats, and
 * multiples of pi/2 are taken off in parts (Cody and Waite 1980). */
#include "common.clh"

/* x + y: the sum, and what it lacks (Knuth). */
static void add(float x, float y, float *s, float *e) {
    float sum = x + y, other = sum - x;
    float rest = (x - (sum - other)) + (y - other);
    *s = sum;
    *e = rest;
}

/* (high + low) * mscale, rounded about once. */
static float scaled(float high, float low, float mscale) {
    float p = high * mscale, rest = fma(high, mscale, -p);
    float y = p + fma(low, mscale, rest);
    return y;
}

GROUP(64) kernel void rope_table(const struct sl_lz_rope_table a) {
    ulong at = group() * 64u + item();
    uint t = (uint)(at / a.n_freq), i = (uint)(at % a.n_freq);
    if (t >= a.n_tok)
        return;
    int p = I32S(a.pos)[t];
    /* Positions of more than 24 bits in two parts, so that each product with a float is exact. */
    float f = F32S(a.inv_freq)[i], p_high = (float)(p & ~0xfff), p_low = (float)(p & 0xfff);
    float high = p_high * f, rest = fma(p_high, f, -high), low = p_low * f;
    float angle, rest_2, rest_3 = fma(p_low, f, -low);
    add(high, low, &angle, &rest_2);
    float n = rint(angle * 0.63661977236758f);
    const float half_pi = as_float(0x3fc90fdbu), half_pi_2 = as_float(0xb33bbd2eu);
    const float half_pi_3 = as_float(0xa6f72cedu);
    float taken = n * half_pi, taken_rest = fma(n, half_pi, -taken);
    float taken_2 = n * half_pi_2, taken_3 = fma(n, half_pi_2, -taken_2);
    float r = angle - taken; /* exact: they are alike */
    /* Each of these may be some hundredths, where a rounding would show. */
    float less, lost_1, lost_2, lost_3, x, lost_4;
    add(rest_2, -taken_rest, &less, &lost_1);
    add(less, -taken_2, &less, &lost_2);
    add(less, rest, &less, &lost_3);
    add(r, less, &x, &lost_4);
    float e = (lost_1 + lost_2) + (lost_3 + rest_3) - taken_3;
    e = lost_4 + fma(-n, half_pi_3, e);
    add(x, e, &x, &e);
    float x2 = x * x, x2_rest = fma(x, x, -x2);
    float x3 = x2 * x, x3_rest = fma(x2, x, -x3) + x2_rest * x;
    float s = fma(x2, 2.7557314e-6f, -1.9841270e-4f);
    s = fma(s, x2, 8.3333333e-3f);
    s = fma(s, x2, -1.6666667e-1f);
    float c = fma(x2, -2.7557319e-7f, 2.4801587e-5f);
    c = fma(c, x2, -1.3888889e-3f);
    c = fma(c, x2, 4.1666667e-2f);
    /* cos x = 1 - x2/2 + c x2^2, and of the sum x + e the derivative's part. */
    float h = 0.5f * x2, one_less = 1.0f - h, lost = (1.0f - one_less) - h;
    float cosine = (lost - 0.5f * x2_rest) + fma(c * x2, x2, -(x * e));
    /* 4.9670537e-9: what -1/6 lacks as a float. */
    float small = fma(x3_rest, s, fma(x3, 4.9670537e-9f, fma(-h, e, e)));
    float sine = fma(x3, s, small);
    int turn = (int)n & 3;
    global float *y = F32S(a.table + at * 8u);
    bool odd = (turn & 1) == 1;
    float cs = odd ? scaled(x, sine, a.mscale) : scaled(one_less, cosine, a.mscale);
    float sn = odd ? scaled(one_less, cosine, a.mscale) : scaled(x, sine, a.mscale);
    y[0] = turn == 1 || turn == 2 ? -cs : cs;
    y[1] = turn >= 2 ? -sn : sn;
}
