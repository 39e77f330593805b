#include "expert_cache/trace_synth.h"

#include "common/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How much each part of the score weighs, and how much of a process stays from token to token.
 * The locality row was fitted to the shares that trace_synth.h names. */
struct weights {
    float popularity, topic, context, noise;
    float topic_stays, context_stays;
};

static const struct weights weights_of[SL_TRACE_KINDS] = {
    [SL_TRACE_UNIFORM] = {.noise = 1.0f},
    [SL_TRACE_SKEWED] = {.popularity = 1.0f, .noise = 1.0f},
    [SL_TRACE_LOCALITY] = {.popularity = 0.6f,
                           .topic = 1.5f,
                           .context = 1.0f,
                           .noise = 0.63f,
                           .topic_stays = 0.99f,
                           .context_stays = 0.8f},
    [SL_TRACE_DRIFT] = {.popularity = 1.0f, .noise = 1.0f},
    [SL_TRACE_TEXT] = {.popularity = 0.6f,
                       .topic = 2.5f,
                       .context = 1.0f,
                       .noise = 0.63f,
                       .topic_stays = 0.9998f,
                       .context_stays = 0.8f},
};

#define ZIPF_EXPONENT 1.0f

struct synth {
    const struct sl_trace_synth *config;
    struct sl_trace_shape shape;
    struct sl_rng rng;
    float *popularity; /* [n_layer, n_expert] */
    float *topic;      /* [n_sequences, n_layer, n_expert] */
    float *context;
    uint32_t *position; /* [n_sequences] tokens so far */
    uint8_t *out;
};

static uint64_t n_prefills(const struct sl_trace_synth *c) {
    if (c->prefill_tokens == 0)
        return 0;
    return c->turn_tokens ? (c->n_tokens + c->turn_tokens - 1) / c->turn_tokens : 1;
}

size_t sl_trace_synth_bytes(const struct sl_trace_synth *c) {
    struct sl_trace_shape shape = {.n_layer = c->n_layer, .n_expert = c->n_expert, .k = c->k};
    uint64_t rows = c->n_sequences * (c->n_tokens + n_prefills(c) * c->prefill_tokens);
    return SL_TRACE_HEADER_BYTES + rows * c->n_layer * sl_trace_record_bytes(&shape);
}

/* Close to a normal deviate: the sum of twelve uniform ones of 16 bits. */
static float normal(struct sl_rng *rng) {
    uint32_t sum = 0;
    for (int i = 0; i < 3; i++) {
        uint64_t u = sl_rng_u64(rng);
        sum += (uint32_t)(u & 0xffff) + (uint32_t)(u >> 16 & 0xffff) +
               (uint32_t)(u >> 32 & 0xffff) + (uint32_t)(u >> 48);
    }
    return (float)sum / 65536.0f - 6.0f;
}

/* With this noise the k best of log-weights are draws without replacement (Gumbel-top-k). */
static float gumbel(struct sl_rng *rng) {
    double u = sl_rng_unit(rng);
    return (float)-log(-log(u > 1e-300 ? u : 1e-300));
}

static void deal_popularity(struct synth *s) {
    uint32_t n = s->shape.n_expert;
    for (uint32_t l = 0; l < s->shape.n_layer; l++) {
        float *p = s->popularity + (size_t)l * n;
        for (uint32_t e = 0; e < n; e++)
            p[e] = -ZIPF_EXPONENT * logf((float)(e + 1));
        for (uint32_t e = n; e-- > 1;) {
            uint32_t j = sl_rng_below(&s->rng, e + 1);
            float t = p[e];
            p[e] = p[j];
            p[j] = t;
        }
    }
}

/* An autoregressive process of unit variance. */
static void move(struct sl_rng *rng, float *x, uint32_t n, float stays) {
    float in = sqrtf(1.0f - stays * stays);
    for (uint32_t i = 0; i < n; i++)
        x[i] = stays * x[i] + in * normal(rng);
}

static void choose(struct synth *s, const float *score, uint16_t *out_ids) {
    uint32_t n = s->shape.n_expert, k = s->shape.k, n_have = 0;
    for (uint32_t e = 0; e < n; e++) { /* insertion into the k best */
        if (n_have == k && score[e] <= score[out_ids[k - 1]])
            continue;
        uint32_t at = n_have < k ? n_have++ : k - 1;
        for (; at > 0 && score[out_ids[at - 1]] < score[e]; at--)
            out_ids[at] = out_ids[at - 1];
        out_ids[at] = (uint16_t)e;
    }
}

static void emit_row(struct synth *s, uint32_t sequence, uint32_t layer, uint32_t position,
                     bool first_of_step, enum sl_phase phase) {
    const struct weights *w = &weights_of[s->config->kind];
    uint32_t n = s->shape.n_expert;
    size_t at = ((size_t)sequence * s->shape.n_layer + layer) * n;
    float *topic = s->topic + at, *context = s->context + at;
    const float *popularity = s->popularity + (size_t)layer * n;
    if (w->topic > 0)
        move(&s->rng, topic, n, w->topic_stays);
    if (w->context > 0)
        move(&s->rng, context, n, w->context_stays);
    float score[4096];
    for (uint32_t e = 0; e < n; e++)
        score[e] = w->popularity * popularity[e] + w->topic * topic[e] + w->context * context[e] +
                   w->noise * gumbel(&s->rng);
    struct sl_trace_record r = {.sequence = sequence,
                                .position_tokens = position,
                                .layer = (uint16_t)layer,
                                .first_of_step = first_of_step,
                                .phase = phase};
    choose(s, score, r.ids);
    s->out += sl_trace_write(&s->shape, &r, s->out);
}

static void emit(struct synth *s) {
    const struct sl_trace_synth *c = s->config;
    for (uint32_t t = 0; t < c->n_tokens; t++) {
        if (c->kind == SL_TRACE_DRIFT && t > 0 && t % c->topic_tokens == 0)
            deal_popularity(s);
        bool prefill = c->prefill_tokens && (c->turn_tokens ? t % c->turn_tokens == 0 : t == 0);
        for (uint32_t q = 0; prefill && q < c->n_sequences; q++) {
            for (uint32_t l = 0; l < c->n_layer; l++)
                for (uint32_t i = 0; i < c->prefill_tokens; i++)
                    emit_row(s, q, l, s->position[q] + i, i == 0, SL_PHASE_PREFILL);
            s->position[q] += c->prefill_tokens;
        }
        for (uint32_t l = 0; l < c->n_layer; l++)
            for (uint32_t q = 0; q < c->n_sequences; q++)
                emit_row(s, q, l, s->position[q], q == 0, SL_PHASE_DECODE);
        for (uint32_t q = 0; q < c->n_sequences; q++)
            s->position[q]++;
    }
}

enum sl_status sl_trace_synth(const struct sl_trace_synth *config, uint8_t *out,
                              struct sl_err *err) {
    const struct sl_trace_synth *c = config;
    struct synth s = {.config = c,
                      .shape = {.n_layer = c->n_layer, .n_expert = c->n_expert, .k = c->k},
                      .rng = {.state = c->seed},
                      .out = out + SL_TRACE_HEADER_BYTES};
    SL_TRY(sl_trace_write_header(&s.shape, out, err));
    if (c->kind >= SL_TRACE_KINDS || c->n_sequences < 1 ||
        (c->kind == SL_TRACE_DRIFT && c->topic_tokens == 0))
        return sl_fail(err, SL_ERR_INVALID,
                       "made-up router trace: unknown kind, no sequence, or drift without "
                       "topic_tokens");
    size_t n = (size_t)c->n_layer * c->n_expert, n_all = n * c->n_sequences;
    float *scores = calloc(n + 2 * n_all, sizeof *scores);
    s.position = calloc(c->n_sequences, sizeof *s.position);
    if (!scores || !s.position) {
        free(scores);
        free(s.position);
        return sl_fail(err, SL_ERR_NOMEM, "made-up router trace: out of memory");
    }
    s.popularity = scores;
    s.topic = scores + n;
    s.context = s.topic + n_all;
    deal_popularity(&s);
    for (size_t i = 0; i < 2 * n_all; i++)
        s.topic[i] = normal(&s.rng); /* both processes start in their middle */
    emit(&s);
    free(s.position);
    free(scores);
    return SL_OK;
}
