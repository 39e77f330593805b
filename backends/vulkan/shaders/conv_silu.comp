#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* A channel an invocation, through the rows of one sequence: the workgroup of its first row in the
 * call has them all, the others' end at once. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t x, w, bias, y;
    uint64_t pages, page_bytes, page_table, slot, row_seq, row_len;
    uint max_pages, n_tok, n, n_taps;
} a;
#include "state.glsl"
#define MAX_TAPS 8u

void main() {
    uint n_blocks = (a.n + 63u) / 64u, t = group() / n_blocks;
    uint c = group() % n_blocks * 64u + gl_LocalInvocationID.x;
    if (t >= a.n_tok || c >= a.n || follows(t))
        return;
    uint skip = MAX_TAPS - a.n_taps; /* the last of MAX_TAPS are used */
    float w[MAX_TAPS], h[MAX_TAPS];
    float bias = a.bias != 0 ? f32s(a.bias + uint64_t(c) * 4u).v[0] : 0.0;
    uint64_t from = state_before(t);
    [[unroll]] for (uint k = 0; k < MAX_TAPS; k++) {
        w[k] = k >= skip ? f32s(a.w + uint64_t(c) * a.n_taps * 4u).v[k - skip] : 0.0;
        h[k] = 0.0;
        if (k >= skip && k + 1u < MAX_TAPS && from != 0)
            h[k] = f32s(from + (uint64_t(k - skip) * a.n + c) * 4u).v[0];
    }
    do {
        uint64_t at = (uint64_t(t) * a.n + c) * 4u;
        h[MAX_TAPS - 1u] = f32s(a.x + at).v[0];
        float sum = bias;
        [[unroll]] for (uint k = 0; k < MAX_TAPS; k++)
            if (k >= skip)
                sum = fma_once(h[k], w[k], sum);
        f32s(a.y + at).v[0] = silu(sum);
        [[unroll]] for (uint k = 0; k + 1u < MAX_TAPS; k++)
            h[k] = h[k + 1u];
        if (is_kept(t)) {
            uint64_t to = state_behind(t);
            [[unroll]] for (uint k = 0; k + 1u < MAX_TAPS; k++)
                if (k >= skip)
                    f32s(to + (uint64_t(k - skip) * a.n + c) * 4u).v[0] = h[k];
        }
        t++;
    } while (t < a.n_tok && follows(t));
}
