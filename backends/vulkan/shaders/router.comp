#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* One row a workgroup: scores, then the k largest, by counting for each those before it. */
layout(local_size_x = 64) in;
layout(push_constant) uniform args {
    uint64_t logits, bias, ids, weights, expert_scale;
    uint n_tok, n_expert, k, sigmoid, softmax_topk, normalize;
    float scale;
    uint n_group, n_group_used;
} a;
#define MAX_EXPERTS 1024u
#define MAX_USED 64u
shared float score[MAX_EXPERTS], key[MAX_EXPERTS], parts[64];
shared uint chosen[MAX_USED];
shared float good[MAX_EXPERTS / 2u];
shared uint kept[MAX_EXPERTS / 2u];

float reduce_max(uint l) {
    barrier();
    float top = -INFINITY;
    for (uint i = 0; i < 64u; i++)
        top = parts[i] > top ? parts[i] : top;
    barrier();
    return top;
}

void scores(f32s x, uint l) {
    if (a.softmax_topk != 0u || a.sigmoid != 0u) {
        for (uint i = l; i < a.n_expert; i += 64u)
            score[i] = a.softmax_topk != 0u ? x.v[i] : sigmoid(x.v[i]);
        return;
    }
    float top = -INFINITY, sum = 0.0;
    for (uint i = l; i < a.n_expert; i += 64u)
        top = x.v[i] > top ? x.v[i] : top;
    parts[l] = top;
    top = reduce_max(l);
    for (uint i = l; i < a.n_expert; i += 64u)
        score[i] = exp_defined(x.v[i] - top);
    barrier();
    if (l < 16u)
        for (uint i = l; i < a.n_expert; i += 16u)
            sum += score[i];
    parts[l] = sum;
    barrier();
    float part[16];
    [[unroll]] for (uint i = 0; i < 16u; i++)
        part[i] = parts[i];
    sum = tree_sum(part);
    for (uint i = l; i < a.n_expert; i += 64u)
        score[i] = divide(score[i], sum);
}

/* The keys of all groups but the best become -infinity. */
void keep_groups(uint l) {
    uint size = a.n_expert / a.n_group;
    for (uint g = l; g < a.n_group; g += 64u) {
        float first = -INFINITY, second = -INFINITY;
        for (uint i = g * size; i < (g + 1u) * size; i++) {
            float v = key[i];
            second = v > first ? first : v > second ? v : second;
            first = v > first ? v : first;
        }
        float sum = first + second;
        good[g] = is_nan(sum) ? -INFINITY : sum;
    }
    barrier();
    for (uint g = l; g < a.n_group; g += 64u) {
        uint before = 0u;
        for (uint j = 0; j < a.n_group; j++)
            before += uint(good[j] > good[g] || good[j] == good[g] && j < g);
        kept[g] = uint(before < a.n_group_used);
    }
    barrier();
    for (uint i = l; i < a.n_expert; i += 64u)
        key[i] = kept[i / size] != 0u ? key[i] : -INFINITY;
    barrier();
}

void main() {
    uint t = group(), l = gl_LocalInvocationID.x;
    if (t >= a.n_tok)
        return;
    scores(f32s(a.logits + uint64_t(t) * a.n_expert * 4u), l);
    barrier();
    for (uint i = l; i < a.n_expert; i += 64u) {
        float v = a.bias != 0 ? score[i] + f32s(a.bias).v[i] : score[i];
        key[i] = is_nan(v) ? -INFINITY : v;
    }
    barrier();
    if (a.n_group > 1u)
        keep_groups(l);
    for (uint i = l; i < a.n_expert; i += 64u) {
        float mine = key[i];
        uint before = 0u;
        for (uint j = 0; j < a.n_expert; j++)
            before += uint(key[j] > mine || key[j] == mine && j < i);
        if (before < a.k)
            chosen[before] = i;
    }
    barrier();
    if (l != 0u)
        return;
    u32s ids = u32s(a.ids + uint64_t(t) * a.k * 4u);
    f32s weights = f32s(a.weights + uint64_t(t) * a.k * 4u);
    float top = -INFINITY, sum = 0.0;
    for (uint r = 0; r < a.k; r++) {
        float w = score[chosen[r]];
        parts[r] = w;
        top = w > top ? w : top;
    }
    if (a.softmax_topk != 0u) {
        for (uint r = 0; r < a.k; r++) {
            parts[r] = a.sigmoid != 0u ? sigmoid(parts[r]) : exp_defined(parts[r] - top);
            sum += parts[r];
        }
        if (a.sigmoid == 0u)
            for (uint r = 0; r < a.k; r++)
                parts[r] = divide(parts[r], sum);
    }
    if (a.normalize != 0u) {
        sum = 0.0;
        for (uint r = 0; r < a.k; r++)
            sum += parts[r];
        if (sum != 0.0)
            for (uint r = 0; r < a.k; r++)
                parts[r] = divide(parts[r], sum);
    }
    for (uint r = 0; r < a.k; r++) {
        float w = parts[r] * a.scale;
        if (a.expert_scale != 0)
            w *= f32s(a.expert_scale).v[chosen[r]];
        ids.v[r] = chosen[r];
        weights.v[r] = w;
    }
}
