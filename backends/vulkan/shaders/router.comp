#version 460
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

/* One row a workgroup: scores, then the k largest, by counting for each those before it. */
#define THREADS 128u
layout(local_size_x = 128) in;
layout(push_constant) uniform args {
    uint64_t logits, bias, ids, weights, expert_scale;
    uint n_tok, n_expert, k, sigmoid, softmax_topk, normalize;
    float scale;
    uint n_group, n_group_used;
} a;
#define MAX_EXPERTS 1024u
#define MAX_USED 64u
/* AT_ONCE more keys, which come after all others. */
#define AT_ONCE 8u
shared float score[MAX_EXPERTS], key[MAX_EXPERTS + AT_ONCE], parts[THREADS];
shared uint chosen[MAX_USED];
shared float good[MAX_EXPERTS / 2u];
shared uint kept[MAX_EXPERTS / 2u];

float reduce_max(uint l) {
    barrier();
    for (uint step = THREADS / 2u; step > 0u; step /= 2u) {
        if (l < step)
            parts[l] = parts[l + step] > parts[l] ? parts[l + step] : parts[l];
        barrier();
    }
    float top = parts[0];
    barrier();
    return top;
}

void scores(f32s x, uint l) {
    if (a.softmax_topk != 0u || a.sigmoid != 0u) {
        for (uint i = l; i < a.n_expert; i += THREADS)
            score[i] = a.softmax_topk != 0u ? x.v[i] : sigmoid(x.v[i]);
        return;
    }
    float top = -INFINITY, sum = 0.0;
    for (uint i = l; i < a.n_expert; i += THREADS)
        top = x.v[i] > top ? x.v[i] : top;
    parts[l] = top;
    top = reduce_max(l);
    for (uint i = l; i < a.n_expert; i += THREADS)
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
    for (uint i = l; i < a.n_expert; i += THREADS)
        score[i] = divide(score[i], sum);
}

/* The keys of all groups but the best become -infinity. */
void keep_groups(uint l) {
    uint size = a.n_expert / a.n_group;
    for (uint g = l; g < a.n_group; g += THREADS) {
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
    for (uint g = l; g < a.n_group; g += THREADS) {
        uint before = 0u;
        for (uint j = 0; j < a.n_group; j++)
            before += uint(good[j] > good[g] || good[j] == good[g] && j < g);
        kept[g] = uint(before < a.n_group_used);
    }
    barrier();
    for (uint i = l; i < a.n_expert; i += THREADS)
        key[i] = kept[i / size] != 0u ? key[i] : -INFINITY;
    barrier();
}

void main() {
    uint t = group(), l = gl_LocalInvocationID.x;
    if (t >= a.n_tok)
        return;
    scores(f32s(a.logits + uint64_t(t) * a.n_expert * 4u), l);
    barrier();
    for (uint i = l; i < a.n_expert; i += THREADS) {
        float v = a.bias != 0 ? score[i] + f32s(a.bias).v[i] : score[i];
        key[i] = is_nan(v) ? -INFINITY : v;
    }
    if (l < AT_ONCE)
        key[a.n_expert + l] = -INFINITY;
    barrier();
    if (a.n_group > 1u)
        keep_groups(l);
    for (uint i = l; i < a.n_expert; i += THREADS) {
        float mine = key[i];
        uint before = 0u;
        for (uint j = 0; j < a.n_expert; j += AT_ONCE)
            [[unroll]] for (uint e = 0; e < AT_ONCE; e++) {
                float other = key[j + e];
                before += uint(other > mine || other == mine && j + e < i);
            }
        if (before < a.k)
            chosen[before] = i;
    }
    barrier();
    /* Invocation r < k has the r-th; sums are added by each of them, in order. */
    bool mine = l < a.k;
    uint expert = mine ? chosen[l] : 0u;
    float w = mine ? score[expert] : 0.0;
    if (a.softmax_topk != 0u) {
        parts[l] = w;
        barrier();
        if (a.sigmoid != 0u) {
            w = sigmoid(w);
        } else {
            float top = -INFINITY, sum = 0.0;
            for (uint r = 0; r < a.k; r++)
                top = parts[r] > top ? parts[r] : top;
            w = exp_defined(w - top);
            barrier();
            parts[l] = w;
            barrier();
            for (uint r = 0; r < a.k; r++)
                sum += parts[r];
            w = divide(w, sum);
        }
        barrier();
    }
    if (a.normalize != 0u) {
        float sum = 0.0;
        parts[l] = w;
        barrier();
        for (uint r = 0; r < a.k; r++)
            sum += parts[r];
        w = sum != 0.0 ? divide(w, sum) : w;
    }
    if (!mine)
        return;
    w *= a.scale;
    if (a.expert_scale != 0)
        w *= f32s(a.expert_scale).v[expert];
    u32s(a.ids).v[t * a.k + l] = expert;
    f32s(a.weights).v[t * a.k + l] = w;
}
