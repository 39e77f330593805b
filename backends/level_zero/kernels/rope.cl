#include "common.clh"

GROUP(64) kernel void rope(const struct sl_lz_rope a) {
    uint per_tok = (a.n_heads * a.n_freq + 63u) / 64u, t = (uint)(group() / per_tok);
    uint n = (uint)(group() % per_tok) * 64u + item();
    if (t >= a.n_tok || n >= a.n_heads * a.n_freq)
        return;
    uint h = n / a.n_freq, i = n % a.n_freq;
    global float *x = F32S(a.x + ((ulong)t * a.stride + h * a.head_dim) * 4u);
    global float *cs = F32S(a.table + ((ulong)t * a.n_freq + i) * 8u);
    uint at = a.neox ? i : 2u * i, other = a.neox ? i + a.n_freq : 2u * i + 1u;
    float u = x[at], v = x[other], c = cs[0], s = cs[1];
    float vs = -(v * s), vc = v * c;
    x[at] = fma(u, c, vs);
    x[other] = fma(u, s, vc);
}
