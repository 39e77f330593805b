/* A work-item for each column of a head's state. The groups of a sequence's first row in the call go
 * through all of its rows; those of the others end at once. Each row writes the column to its page,
 * so that wider keys need no more registers. */
#include "common.clh"
#include "ln.clh"
#include "state.clh"

GROUP(64) kernel void delta_rule(const struct sl_lz_delta_rule a) {
    const struct sl_lz_state s = a.state;
    uint n_k = a.head_dim_k, n_v = a.head_dim_v, n_blocks = (n_v + 63u) / 64u;
    uint h = (uint)(group() / n_blocks % a.n_heads), t = (uint)(group() / n_blocks / a.n_heads);
    uint c = (uint)(group() % n_blocks) * 64u + item();
    if (t >= s.n_tok || c >= n_v || follows(s, t))
        return;
    uint h_k = a.grouped ? h / (a.n_heads / a.n_heads_k) : h % a.n_heads_k;
    uint gate = h / a.gate_group * a.gate_group_stride + h % a.gate_group;
    ulong in_state = (ulong)h * n_k * n_v + c;
    do {
        ulong row = (ulong)t * a.stride, at_gate = (ulong)t * a.stride_gate + gate;
        global const float *q = F32S(a.q) + row + h_k * n_k, *k = F32S(a.k) + row + h_k * n_k;
        float g = exp_defined(F32S(a.a)[h] * softplus(F32S(a.alpha)[at_gate] + F32S(a.dt)[h]));
        float b = sigmoid(F32S(a.beta)[at_gate]), sum = 0.0f, y = 0.0f;
        ulong before = state_before(s, t);
        global float *to = F32S(state_behind(s, t)) + in_state;
        global const float *from = before ? F32S(before) + in_state : to;
        for (uint i = 0; i < n_k; i++)
            sum = fma(before ? from[(ulong)i * n_v] : 0.0f, k[i], sum);
        float d = (F32S(a.v)[row + h * n_v + c] - g * sum) * b;
        for (uint i = 0; i < n_k; i++) {
            float old = before ? from[(ulong)i * n_v] : 0.0f, v = fma(k[i], d, g * old);
            y = fma(v, q[i], y);
            to[(ulong)i * n_v] = v;
        }
        F32S(a.y)[((ulong)t * a.n_heads + h) * n_v + c] = y * a.scale;
        t++;
    } while (t < s.n_tok && follows(s, t));
}
