/* A work-item for each column of a head's state, as in delta_rule.cl. The group computes the decays
 * of a row's key together, so that work-items without a column take part in its barriers. */
#include "common.clh"
#include "ln.clh"
#include "state.clh"

GROUP(64) kernel void channel_delta(const struct sl_lz_channel_delta a) {
    local float g[SL_LZ_MAX_DECAYS];
    const struct sl_lz_state s = a.state;
    uint n_k = a.head_dim_k, n_v = a.head_dim_v, n_blocks = (n_v + 63u) / 64u, l = item();
    uint h = (uint)(group() / n_blocks % a.n_heads), t = (uint)(group() / n_blocks / a.n_heads);
    uint c = (uint)(group() % n_blocks) * 64u + l;
    if (t >= s.n_tok || follows(s, t))
        return;
    ulong in_state = (ulong)h * n_k * n_v + c;
    float of = F32S(a.a)[h], size = of < 0.0f ? -of : of;
    do {
        ulong head = (ulong)t * a.n_heads + h, at = head * n_v + c;
        global const float *q = F32S(a.q) + head * n_k, *k = F32S(a.k) + head * n_k;
        for (uint i = l; i < n_k; i += 64u) {
            float x = F32S(a.alpha)[head * n_k + i] + F32S(a.dt)[h * n_k + i];
            g[i] = exp_defined(a.bound < 0.0f ? a.bound * sigmoid(size * x) : of * softplus(x));
        }
        BARRIER();
        float b = sigmoid(F32S(a.beta)[head]), sum = 0.0f, y = 0.0f;
        ulong before = state_before(s, t);
        global float *to = F32S(state_behind(s, t)) + in_state;
        global const float *from = before ? F32S(before) + in_state : to;
        if (c < n_v) {
            for (uint i = 0; i < n_k; i++)
                sum = fma(g[i] * (before ? from[(ulong)i * n_v] : 0.0f), k[i], sum);
            float d = (F32S(a.v)[at] - sum) * b;
            for (uint i = 0; i < n_k; i++) {
                float old = before ? from[(ulong)i * n_v] : 0.0f, v = fma(k[i], d, g[i] * old);
                y = fma(v, q[i], y);
                to[(ulong)i * n_v] = v;
            }
            F32S(a.y)[at] = y * a.scale;
        }
        BARRIER();
        t++;
    } while (t < s.n_tok && follows(s, t));
}
