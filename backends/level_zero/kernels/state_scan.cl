/* A work-item for each column of a head's state, as in delta_rule.cl. */
#include "common.clh"
#include "ln.clh"
#include "state.clh"

GROUP(64) kernel void state_scan(const struct sl_lz_state_scan a) {
    const struct sl_lz_state s = a.state;
    uint n = a.n_state, dim = a.head_dim, n_blocks = (dim + 63u) / 64u;
    uint h = (uint)(group() / n_blocks % a.n_heads), t = (uint)(group() / n_blocks / a.n_heads);
    uint col = (uint)(group() % n_blocks) * 64u + item();
    if (t >= s.n_tok || col >= dim || follows(s, t))
        return;
    ulong in_state = (ulong)h * n * dim + col;
    uint in_group = h / (a.n_heads / a.n_groups) * n;
    do {
        ulong row = (ulong)t * a.stride, head = (ulong)t * a.n_heads + h;
        global const float *b = F32S(a.b) + row + in_group, *c = F32S(a.c) + row + in_group;
        float x = F32S(a.x)[row + h * dim + col], sum = 0.0f;
        float d = softplus(F32S(a.dt)[head] + F32S(a.dt_bias)[h]);
        float g = exp_defined(F32S(a.a)[h] * d), u = d * x;
        ulong before = state_before(s, t);
        global float *to = F32S(state_behind(s, t)) + in_state;
        global const float *from = before ? F32S(before) + in_state : to;
        for (uint i = 0; i < n; i++) {
            float old = before ? from[(ulong)i * dim] : 0.0f, v = fma(b[i], u, g * old);
            sum = fma(v, c[i], sum);
            to[(ulong)i * dim] = v;
        }
        F32S(a.y)[head * dim + col] = fma(F32S(a.skip)[h], x, sum);
        t++;
    } while (t < s.n_tok && follows(s, t));
}
