/* Choosing experts. Rows are short (tens to a thousand logits): what costs is the exponentials,
 * which come from the kernel table; the choice itself is one pass that keeps a sorted list. */
#include "backends/cpu/cpu_internal.h"
#include "backends/cpu/math.h"
#include "backends/ops/router.h"

#include <string.h>

/* The k largest keys, largest first, ties to the lower index; a NaN counts as -inf, so that there
 * are always k different ids. */
static void top_k(const float *key, uint32_t n, uint32_t k, uint32_t *ids) {
    float best[SL_MAX_EXPERTS_USED];
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        float v = key[i] == key[i] ? key[i] : -INFINITY;
        if (count == k && !(v > best[k - 1]))
            continue;
        uint32_t at = count < k ? count++ : k - 1;
        for (; at > 0 && v > best[at - 1]; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = v;
        ids[at] = i;
    }
}

/* Makes the keys of all groups but the n_group_used best -infinity. */
static void keep_groups(float *key, uint32_t n_expert, uint32_t n_group, uint32_t n_group_used) {
    float good[SL_MAX_EXPERTS / 2];
    uint32_t best[SL_MAX_EXPERTS / 2], length = n_expert / n_group;
    for (uint32_t g = 0; g < n_group; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * length; i < (g + 1) * length; i++)
            if (key[i] > first)
                second = first, first = key[i];
            else if (key[i] > second)
                second = key[i];
        good[g] = first + second;
    }
    top_k(good, n_group, n_group_used, best);
    bool kept[SL_MAX_EXPERTS / 2] = {false};
    for (uint32_t i = 0; i < n_group_used; i++)
        kept[best[i]] = true;
    for (uint32_t i = 0; i < n_expert; i++)
        key[i] = kept[i / length] ? key[i] : -INFINITY;
}

struct job {
    const struct sl_op_router *a;
    const struct sl_cpu_kernels *k;
};

/* score [n_expert]; with softmax_topk logits, of which the chosen are scored later. */
static void score_all(const struct job *j, const float *logits, float *score) {
    const struct sl_op_router *a = j->a;
    if (a->softmax_topk) {
        memcpy(score, logits, a->n_expert * sizeof *score);
    } else if (a->score == SL_ROUTER_SOFTMAX) {
        float max, sum = j->k->softmax(logits, score, a->n_expert, &max);
        for (uint32_t i = 0; i < a->n_expert; i++)
            score[i] /= sum;
    } else {
        j->k->sigmoid(logits, score, a->n_expert);
    }
}

/* All may have underflowed: then nothing is divided. */
static void divide_by_sum(float *x, uint32_t n) {
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i];
    for (uint32_t i = 0; sum != 0 && i < n; i++)
        x[i] /= sum;
}

/* The chosen logits, which become scores. */
static void score_chosen(enum sl_router_score score, float *x, uint32_t n) {
    float max = -INFINITY;
    if (score == SL_ROUTER_SIGMOID) {
        for (uint32_t i = 0; i < n; i++)
            x[i] = sl_sigmoidf(x[i]);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (uint32_t i = 0; i < n; i++)
        x[i] = sl_expf(x[i] - max);
    divide_by_sum(x, n);
}

static void route(const struct job *j, const float *logits, uint32_t *ids, float *weights) {
    const struct sl_op_router *a = j->a;
    float score[SL_MAX_EXPERTS], key[SL_MAX_EXPERTS];
    score_all(j, logits, score);
    for (uint32_t i = 0; i < a->n_expert; i++)
        key[i] = a->bias ? score[i] + a->bias[i] : score[i];
    if (a->n_group > 1)
        keep_groups(key, a->n_expert, a->n_group, a->n_group_used);
    top_k(key, a->n_expert, a->k, ids);
    for (uint32_t r = 0; r < a->k; r++) {
        ids[r] /= a->share > 1 ? a->share : 1;
        weights[r] = score[ids[r]];
    }
    if (a->softmax_topk)
        score_chosen(a->score, weights, a->k);
    if (a->normalize)
        divide_by_sum(weights, a->k);
    for (uint32_t r = 0; r < a->k; r++) {
        weights[r] *= a->scale;
        if (a->expert_scale)
            weights[r] *= a->expert_scale[ids[r]];
    }
}

static void rows(void *ctx, uint32_t begin, uint32_t end) {
    const struct job *j = ctx;
    const struct sl_op_router *a = j->a;
    for (size_t t = begin; t < end; t++)
        route(j, a->logits + t * a->n_expert, a->ids + t * a->k, a->weights + t * a->k);
}

enum sl_status sl_cpu_router(struct sl_device *d, const struct sl_op_router *a) {
    struct sl_cpu *cpu = (struct sl_cpu *)d;
    struct job j = {a, &cpu->k};
    sl_cpu_for_rows(cpu, a->n_tok, (size_t)a->n_expert * 8, rows, &j);
    return SL_OK;
}

/* ---- scores that are square roots ---- */

/* A sum of weights below this divides as this would: ggml's bound, the smallest normal binary16. */
#define LEAST_SUM 0x1p-14f

static void softplus_row(const struct sl_op_softplus_router *a, size_t t) {
    float score[SL_MAX_EXPERTS], key[SL_MAX_EXPERTS], sum = 0;
    uint32_t *ids = a->ids + t * a->k;
    float *weights = a->weights + t * a->k;
    for (uint32_t i = 0; i < a->n_expert; i++)
        score[i] = sqrtf(sl_softplusf(a->logits[t * a->n_expert + i]));
    if (a->table) {
        const int32_t *row = a->table + (size_t)a->tokens[a->rows ? a->rows[t] : t] * a->k;
        for (uint32_t r = 0; r < a->k; r++)
            ids[r] = (uint32_t)row[r];
    } else {
        for (uint32_t i = 0; i < a->n_expert; i++)
            key[i] = a->bias ? score[i] + a->bias[i] : score[i];
        top_k(key, a->n_expert, a->k, ids);
    }
    for (uint32_t r = 0; r < a->k; r++)
        sum += weights[r] = score[ids[r]];
    sum = sum > LEAST_SUM ? sum : LEAST_SUM;
    for (uint32_t r = 0; r < a->k; r++)
        weights[r] = (a->normalize ? weights[r] / sum : weights[r]) * a->scale;
}

static void softplus_rows(void *ctx, uint32_t begin, uint32_t end) {
    for (size_t t = begin; t < end; t++)
        softplus_row(ctx, t);
}

enum sl_status sl_cpu_softplus_router(struct sl_device *d, const struct sl_op_softplus_router *a) {
    sl_cpu_for_rows((struct sl_cpu *)d, a->n_tok, (size_t)a->n_expert * 32, softplus_rows,
                    (void *)a);
    return SL_OK;
}
