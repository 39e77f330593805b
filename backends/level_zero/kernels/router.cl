/* One row a group: scores, then the k largest, by counting for each those before it. Barriers stand
 * under no condition: a compiler for CPUs needs minutes for those that do. */
#include "common.clh"
#define THREADS 64u

struct shared {
    float score[SL_LZ_MAX_EXPERTS], key[SL_LZ_MAX_EXPERTS], parts[THREADS];
    float good[SL_LZ_MAX_EXPERTS / 2u];
    uint kept[SL_LZ_MAX_EXPERTS / 2u], chosen[SL_LZ_MAX_USED];
};

static float largest(local float *parts) {
    float top = -INFINITY;
    for (uint i = 0; i < THREADS; i++)
        top = parts[i] > top ? parts[i] : top;
    return top;
}

static float sum_of(local const float *parts, uint k) {
    float sum = 0.0f;
    for (uint r = 0; r < k; r++)
        sum += parts[r];
    return sum;
}

/* How good a group is: the sum of its two largest keys. */
static float goodness(local const float *key, uint size) {
    float first = -INFINITY, second = -INFINITY;
    for (uint i = 0; i < size; i++) {
        float v = key[i];
        second = v > first ? first : v > second ? v : second;
        first = v > first ? v : first;
    }
    return is_nan(first + second) ? -INFINITY : first + second;
}

/* How many of n come before the i-th. */
static uint before(local const float *v, uint n, uint i) {
    float mine = v[i];
    uint count = 0u;
    for (uint j = 0; j < n; j++)
        count += v[j] > mine || (v[j] == mine && j < i);
    return count;
}

GROUP(64) kernel void router(const struct sl_lz_router a) {
    local struct shared s;
    bool there = group() < a.n_tok;
    uint t = there ? (uint)group() : 0u, l = item();
    global const float *x = F32S(a.logits + (ulong)t * a.n_expert * 4u);
    bool all = !a.softmax_topk && !a.sigmoid; /* a softmax over all experts */
    float top = -INFINITY, sum = 0.0f, part[16];
    for (uint i = l; i < a.n_expert; i += THREADS)
        top = x[i] > top ? x[i] : top;
    s.parts[l] = top;
    BARRIER();
    top = largest(s.parts);
    for (uint i = l; i < a.n_expert; i += THREADS)
        s.score[i] = all ? exp_defined(x[i] - top) : a.softmax_topk ? x[i] : sigmoid(x[i]);
    BARRIER();
    if (l < 16u)
        for (uint i = l; i < a.n_expert; i += 16u)
            sum += s.score[i];
    s.parts[l] = sum;
    BARRIER();
    for (uint i = 0; i < 16u; i++)
        part[i] = s.parts[i];
    sum = tree_sum(part);
    for (uint i = l; i < a.n_expert; i += THREADS) {
        float score = all ? divide(s.score[i], sum) : s.score[i];
        float v = a.bias ? score + F32S(a.bias)[i] : score;
        s.score[i] = score;
        s.key[i] = is_nan(v) ? -INFINITY : v;
    }
    BARRIER();

    /* The keys of all groups but the best become -infinity. */
    uint n_group = a.n_group > 1u ? a.n_group : 0u, size = n_group ? a.n_expert / n_group : 1u;
    for (uint g = l; g < n_group; g += THREADS)
        s.good[g] = goodness(s.key + g * size, size);
    BARRIER();
    for (uint g = l; g < n_group; g += THREADS)
        s.kept[g] = before(s.good, n_group, g) < a.n_group_used;
    BARRIER();
    for (uint i = l; n_group && i < a.n_expert; i += THREADS)
        s.key[i] = s.kept[i / size] ? s.key[i] : -INFINITY;
    BARRIER();
    for (uint i = l; i < a.n_expert; i += THREADS) {
        uint place = before(s.key, a.n_expert, i);
        if (place < a.k)
            s.chosen[place] = i;
    }
    BARRIER();

    /* Work-item r < k has the r-th; sums are added by each of them, in order. */
    bool mine = l < a.k, softmax = a.softmax_topk && !a.sigmoid;
    uint expert = mine ? s.chosen[l] / max(a.share, 1u) : 0u; /* share: of how many one id is */
    float w = mine ? s.score[expert] : 0.0f;
    s.parts[l] = mine ? w : -INFINITY;
    BARRIER();
    top = largest(s.parts);
    w = softmax ? exp_defined(w - top) : a.softmax_topk ? sigmoid(w) : w;
    BARRIER();
    s.parts[l] = w;
    BARRIER();
    w = softmax ? divide(w, sum_of(s.parts, a.k)) : w;
    BARRIER();
    s.parts[l] = w;
    BARRIER();
    sum = sum_of(s.parts, a.k);
    w = a.normalize && sum != 0.0f ? divide(w, sum) : w;
    if (!mine || !there)
        return;
    w *= a.scale;
    if (a.expert_scale)
        w *= F32S(a.expert_scale)[expert];
    U32S(a.ids)[(ulong)t * a.k + l] = expert;
    F32S(a.weights)[(ulong)t * a.k + l] = w;
}
