#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* A head of q, of k or of v of one row a workgroup: norm and rope (as rms_norm.comp and rope.comp)
 * of q and k in place, and k and v to their pages (as kv_write.comp). */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t q, k, v, q_norm, k_norm, table, k_pages, v_pages, slot;
    uint heads; /* of q, and those of KV in the upper half */
    uint dims;  /* of k, and of v in the upper half */
    uint n_tok, n_freq, stride_v, flags; /* 1: norms, 2: neox, 4: pages of Q8_0 */
    float q_eps, k_eps;
    uint k_page_bytes, v_page_bytes;
} a;
#define MAX_DIM 256u
#define EACH (MAX_DIM / 64u)
shared float head[MAX_DIM], parts[16];

/* This head's dim elements, in shared memory, to its place in a page. */
void write(uint64_t pages, uint page_bytes, uint slot, uint h, uint dim, uint l) {
    uint units = dim / 32u;
    uint64_t y = pages + uint64_t(slot / 64u) * page_bytes;
    if ((a.flags & 4u) == 0u) {
        y += uint64_t(h * 64u + slot % 64u) * dim * 2u;
        for (uint i = l; i < dim; i += 64u)
            u16s(y).v[i] = uint16_t(f16_of(head[i]));
        return;
    }
    if (l >= units)
        return;
    y += uint64_t(h * 64u + slot % 64u) * units * 34u + l * 34u;
    float most = 0.0;
    for (uint e = 0; e < 32u; e++) {
        float v = uintBitsToFloat(floatBitsToUint(head[32u * l + e]) & 0x7fffffffu);
        most = v > most ? v : most;
    }
    float d = divide(most, 127.0);
    d = d < 65504.0 ? d : 65504.0;
    uint stored = f16_of(d);
    float kept = f32_of_f16(stored), inv = kept > 0.0 ? divide(1.0, kept) : 0.0;
    u8s(y).v[0] = uint8_t(stored & 255u);
    u8s(y).v[1] = uint8_t(stored >> 8);
    for (uint e = 0; e < 32u; e++) {
        precise float v = head[32u * l + e] * inv;
        v = v < 127.0 ? v : 127.0;
        v = v > -127.0 ? v : -127.0;
        v = v + 12582912.0;
        u8s(y).v[2u + e] = uint8_t(floatBitsToUint(v) & 255u);
    }
}

void main() {
    uint n_heads = a.heads & 0xffffu, n_kv = a.heads >> 16, dim = a.dims & 0xffffu;
    uint per_tok = n_heads + 2u * n_kv, t = group() / per_tok, h = group() % per_tok;
    uint l = gl_LocalInvocationID.x;
    if (t >= a.n_tok)
        return;
    uint slot = u32s(a.slot).v[t];
    bool is_q = h < n_heads, is_v = h >= n_heads + n_kv;
    h -= is_v ? n_heads + n_kv : is_q ? 0u : n_heads;
    if (is_v) {
        uint n = a.dims >> 16;
        f32s v = f32s(a.v + (uint64_t(t) * a.stride_v + h * n) * 4u);
        for (uint i = l; i < n; i += 64u)
            head[i] = v.v[i];
        barrier();
        write(a.v_pages, a.v_page_bytes, slot, h, n, l);
        return;
    }
    uint64_t at = (is_q ? a.q : a.k) + uint64_t(t * (is_q ? n_heads : n_kv) + h) * dim * 4u;
    uint64_t norm_w = is_q ? a.q_norm : a.k_norm;
    f32s x = f32s(at);
    /* All that is read is asked for at once. */
    float e[EACH], by[EACH];
    vec2 turn[EACH / 2u];
    [[unroll]] for (uint j = 0; j < EACH; j++) {
        uint i = min(l + 64u * j, dim - 1u);
        e[j] = x.v[i];
        by[j] = norm_w != 0 ? f32s(norm_w).v[i] : 1.0;
    }
    [[unroll]] for (uint j = 0; j < EACH / 2u; j++) {
        f32s cs = f32s(a.table + (uint64_t(t) * a.n_freq + min(l + 64u * j, a.n_freq - 1u)) * 8u);
        turn[j] = vec2(cs.v[0], cs.v[1]);
    }
    [[unroll]] for (uint j = 0; j < EACH; j++)
        if (l + 64u * j < dim)
            head[l + 64u * j] = e[j];
    barrier();
    if ((a.flags & 1u) != 0u) {
        if (l < 16u) {
            float sum = 0.0;
            for (uint i = l; i < dim; i += 16u)
                sum = fma_once(head[i], head[i], sum);
            parts[l] = sum;
        }
        barrier();
        float part[16];
        [[unroll]] for (uint i = 0; i < 16u; i++)
            part[i] = parts[i];
        precise float mean = divide(tree_sum(part), float(dim)) + (is_q ? a.q_eps : a.k_eps);
        float inv = divide(1.0, root(mean));
        [[unroll]] for (uint j = 0; j < EACH; j++)
            if (l + 64u * j < dim) {
                precise float y = e[j] * inv;
                if (norm_w != 0)
                    y = y * by[j];
                head[l + 64u * j] = y;
            }
        barrier();
    }
    bool neox = (a.flags & 2u) != 0u;
    [[unroll]] for (uint j = 0; j < EACH / 2u; j++) {
        uint i = l + 64u * j;
        if (i < a.n_freq) {
            uint first = neox ? i : 2u * i, other = neox ? i + a.n_freq : 2u * i + 1u;
            float u = head[first], v = head[other], c = turn[j].x, s = turn[j].y;
            precise float vs = -(v * s), vc = v * c;
            head[first] = fma_once(u, c, vs);
            head[other] = fma_once(u, s, vc);
        }
    }
    barrier();
    for (uint i = l; i < dim; i += 64u)
        x.v[i] = head[i];
    if (!is_q)
        write(a.k_pages, a.k_page_bytes, slot, h, dim, l);
}
