/* The largest of each 64 elements, where it is, and the sum of exponentials below it: a block a
 * work-item. */
#include "common.clh"

/* common/fast_exp.h */
static float exp_below(float x) {
    float clamped = x < -87.0f ? -87.0f : x;
    float shifted = clamped * 1.44269504f + 12582912.0f;
    float n = shifted - 12582912.0f;
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    p = p * as_float((as_uint(shifted) + 127u) << 23);
    return x < -87.0f ? 0.0f : p;
}

/* In the order of floats, both zeros alike: devices that flush denormals compare them as zeros. */
static int order(float x) {
    uint bits = as_uint(x);
    return bits << 1 == 0u ? 0 : (int)(bits ^ (bits >> 31 ? 0x7fffffffu : 0u));
}

GROUP(64) kernel void block_max(const struct sl_lz_block_max a) {
    ulong i = group() * 64u + item();
    if (i >= (ulong)a.n_tok * a.n_blocks)
        return;
    uint t = (uint)(i / a.n_blocks), from = (uint)(i % a.n_blocks) * 64u, n = min(a.n - from, 64u);
    global float *x = F32S(a.x + ((ulong)t * a.n + from) * 4u);
    float top = -INFINITY;
    uint at = 0u;
    bool nan = false;
    for (uint k = 0; k < n; k++) {
        float v = x[k];
        nan = nan || is_nan(v);
        if (order(v) > order(top))
            at = k;
        if (order(v) > order(top) || (order(v) == order(top) && as_uint(v) >> 31 == 0u))
            top = v;
    }
    top = nan ? as_float(0x7fc00000u) : top;
    F32S(a.most)[i] = top;
    if (a.at)
        U32S(a.at)[i] = nan ? 0u : at;
    if (!a.sum)
        return;
    float inv_t = F32S(a.inv_t)[t], part[16];
    for (uint k = 0; k < 16u; k++)
        part[k] = 0.0f;
    bool finite = (as_uint(top) & 0x7f800000u) != 0x7f800000u && inv_t > 0.0f;
    for (uint k = 0; k < n && finite; k++)
        part[k % 16u] += exp_below((x[k] - top) * inv_t);
    F32S(a.sum)[i] = finite ? tree_sum(part) : 0.0f;
}
