/* A channel a work-item, through the rows of one sequence: the group of its first row in the call
 * has them all, the others' end at once. */
#include "common.clh"
#include "state.clh"
#define MAX_TAPS SL_LZ_MAX_TAPS

GROUP(64) kernel void conv_silu(const struct sl_lz_conv a) {
    const struct sl_lz_state s = a.state;
    uint n_blocks = (a.n + 63u) / 64u, t = (uint)(group() / n_blocks);
    uint c = (uint)(group() % n_blocks) * 64u + item();
    if (t >= s.n_tok || c >= a.n || follows(s, t))
        return;
    uint skip = MAX_TAPS - a.n_taps; /* the last of MAX_TAPS are used */
    float x[MAX_TAPS], w[MAX_TAPS], bias = a.bias ? F32S(a.bias)[c] : 0.0f;
    ulong from = state_before(s, t);
    for (uint k = 0; k < MAX_TAPS; k++) {
        w[k] = k >= skip ? F32S(a.w)[(ulong)c * a.n_taps + (k - skip)] : 0.0f;
        x[k] = 0.0f;
        if (k >= skip && k + 1u < MAX_TAPS && from)
            x[k] = F32S(from)[(ulong)(k - skip) * a.n + c];
    }
    do {
        ulong at = (ulong)t * a.n + c;
        float sum = bias;
        x[MAX_TAPS - 1u] = F32S(a.x)[at];
        for (uint k = 0; k < MAX_TAPS; k++)
            if (k >= skip)
                sum = fma(x[k], w[k], sum);
        F32S(a.y)[at] = silu(sum);
        for (uint k = 0; k + 1u < MAX_TAPS; k++)
            x[k] = x[k + 1u];
        if (is_kept(s, t)) {
            ulong to = state_behind(s, t);
            for (uint k = 0; k + 1u < MAX_TAPS; k++)
                if (k >= skip)
                    F32S(to)[(ulong)(k - skip) * a.n + c] = x[k];
        }
        t++;
    } while (t < s.n_tok && follows(s, t));
}
