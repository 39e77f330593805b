#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* A column of a head's state an invocation, in its registers through the rows of one sequence: the
 * workgroup of its first row in the call has them all, the others' end at once. TYPE: keys of up to
 * 64, 128 or 256 elements. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t q, alpha, decay, dt, y;
    uint64_t pages, page_table, slot, row_seq, row_len;
    int k, v, beta; /* elements behind q, q and alpha */
    uint page_bytes, max_pages, n_tok;
    uint heads, dims, gates, gate_group;
    uint stride;
    float factor;
} a;
#include "state.glsl"
const uint DIM = 64u << TYPE;
/* So many elements a turn of a loop: lavapipe ends an invocation's loops after 65,535 turns in all. */
#define STEP 8u
shared float key[256], query[256];

void main() {
    uint n_heads = a.heads & 0xffffu, n_heads_k = a.heads >> 16;
    uint dim_k = a.dims & 0xffffu, dim_v = a.dims >> 16;
    uint l = gl_LocalInvocationID.x, n_blocks = (dim_v + 63u) / 64u;
    uint h = group() / n_blocks % n_heads, t = group() / n_blocks / n_heads;
    uint c = group() % n_blocks * 64u + l;
    if (t >= a.n_tok || follows(t))
        return;
    bool inside = c < dim_v;
    uint h_k = a.gate_group >> 16 != 0u ? h / (n_heads / n_heads_k) : h % n_heads_k;
    uint in_group = a.gates >> 16, gate = h / in_group * (a.gate_group & 0xffffu) + h % in_group;
    uint64_t k = a.q + int64_t(a.k) * 4, v_rows = a.q + int64_t(a.v) * 4;
    uint64_t beta = a.alpha + int64_t(a.beta) * 4;
    uint64_t in_state = (uint64_t(h) * dim_k * dim_v + c) * 4u, from = state_before(t);
    float s[DIM];
    for (uint i = 0; i < DIM; i++)
        s[i] = 0.0;
    if (from != 0 && inside)
        for (uint i = 0; i < DIM; i++)
            if (i < dim_k)
                s[i] = f32s(from + in_state + uint64_t(i) * dim_v * 4u).v[0];
    do {
        uint64_t row = uint64_t(t) * a.stride;
        uint at_gate = t * (a.gates & 0xffffu) + gate;
        for (uint i = l; i < DIM; i += 64u) {
            bool there = i < dim_k;
            key[i] = there ? f32s(k + (row + h_k * dim_k + i) * 4u).v[0] : 0.0;
            query[i] = there ? f32s(a.q + (row + h_k * dim_k + i) * 4u).v[0] : 0.0;
        }
        precise float shifted = f32s(a.alpha).v[at_gate] + f32s(a.dt).v[h];
        float g = exp_defined(f32s(a.decay).v[h] * softplus(shifted));
        float b = sigmoid(f32s(beta).v[at_gate]);
        float v = inside ? f32s(v_rows + (row + h * dim_v + c) * 4u).v[0] : 0.0;
        barrier();
        float sum = 0.0, y = 0.0;
        for (uint i = 0; i < DIM; i += STEP)
            [[unroll]] for (uint j = 0; j < STEP; j++)
                sum = fma_once(s[i + j], key[i + j], sum);
        precise float kept = g * sum, d = (v - kept) * b;
        for (uint i = 0; i < DIM; i += STEP)
            [[unroll]] for (uint j = 0; j < STEP; j++) {
                precise float less = g * s[i + j];
                s[i + j] = fma_once(key[i + j], d, less);
                y = fma_once(s[i + j], query[i + j], y);
            }
        if (inside)
            f32s(a.y + ((uint64_t(t) * n_heads + h) * dim_v + c) * 4u).v[0] = y * a.factor;
        if (inside && is_kept(t)) {
            uint64_t to = state_behind(t) + in_state;
            for (uint i = 0; i < DIM; i++)
                if (i < dim_k)
                    f32s(to + uint64_t(i) * dim_v * 4u).v[0] = s[i];
        }
        barrier();
        t++;
    } while (t < a.n_tok && follows(t));
}
