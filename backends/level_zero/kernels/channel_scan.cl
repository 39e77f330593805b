/* A work-item for each channel, through the rows of one sequence, as in delta_rule.cl. */
#include "common.clh"
#include "ln.clh"
#include "state.clh"

GROUP(64) kernel void channel_scan(const struct sl_lz_channel_scan a) {
    const struct sl_lz_state s = a.state;
    uint n_blocks = (a.n + 63u) / 64u, t = (uint)(group() / n_blocks);
    uint j = (uint)(group() % n_blocks) * 64u + item();
    if (t >= s.n_tok || j >= a.n || follows(s, t))
        return;
    global const float *rates = F32S(a.a) + (ulong)j * a.n_state;
    do {
        ulong at = (ulong)t * a.n + j, row = (ulong)t * a.n_state;
        float x = F32S(a.x)[at], d = softplus(F32S(a.dt)[at]), u = d * x, sum = 0.0f;
        ulong before = state_before(s, t);
        global float *to = F32S(state_behind(s, t)) + j;
        global const float *from = before ? F32S(before) + j : to;
        for (uint i = 0; i < a.n_state; i++) {
            float old = before ? from[(ulong)i * a.n] : 0.0f;
            float v = fma(F32S(a.b)[row + i], u, exp_defined(rates[i] * d) * old);
            sum = fma(v, F32S(a.c)[row + i], sum);
            to[(ulong)i * a.n] = v;
        }
        F32S(a.y)[at] = fma(F32S(a.skip)[j], x, sum);
        t++;
    } while (t < s.n_tok && follows(s, t));
}
