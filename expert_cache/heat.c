#include "expert_cache/heat_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Time constants in ticks. The slow one must span enough tokens to tell rare experts apart, and few
 * enough to follow a change of text; the replay table was the judge. */
#define FAST_TICKS 16.0f
#define SLOW_TICKS 600.0f
/* Uses that a cell is assumed to have seen at its prior rate. */
#define PRIOR_SEEN 8.0f
/* The table forgets half after this many ticks of each layer. */
#define HALVE_TICKS     512u
#define MIN_PROBABILITY 1e-6f

/* ---- create ---- */

size_t sl_heat_bytes(const struct sl_heat_config *c) {
    size_t n = (size_t)c->n_layer * c->n_expert;
    return sizeof(struct sl_heat) +
           c->n_layer * (2 * sizeof(uint32_t) + sizeof(struct sl_heat_layer)) +
           n * (sizeof(uint32_t) + 3 * sizeof(float) + sizeof(uint16_t));
}

const struct sl_heat_config *sl_heat_config(const struct sl_heat *heat) {
    return &heat->config;
}

/* Ages up to 4 by themselves, then two buckets to an octave, the last from 768 on. */
static uint8_t age_bucket(uint32_t age) {
    if (age < 4)
        return (uint8_t)age;
    uint32_t octave = 31 - (uint32_t)__builtin_clz(age);
    return (uint8_t)(2 * octave + (age >> (octave - 1) & 1));
}

/* Before anything was learned: the mean of the recent and of the slow rate, at a cell's middle. */
static void set_priors(struct sl_heat *h) {
    for (uint32_t f = 0; f < SL_HEAT_FASTS; f++)
        for (uint32_t s = 0; s < SL_HEAT_SLOWS; s++) {
            float fast = exp2f((float)f + 0.5f - (float)SL_HEAT_FASTS);
            float slow = exp2f(h->log2_mean - 3.0f + 0.5f * (float)s);
            h->priors[f * SL_HEAT_SLOWS + s] = fminf(0.5f * fast + 0.5f * slow, 1.0f);
        }
}

/* A cell that has seen little leans on its neighbours of the same age and fast count, and they on
 * the prior. */
static void update_rates(struct sl_heat *h) {
    for (uint32_t i = 0; i < SL_HEAT_CELLS; i += SL_HEAT_SLOWS) {
        const struct sl_heat_cell *row = &h->cells[i];
        const float *prior = &h->priors[i % (SL_HEAT_FASTS * SL_HEAT_SLOWS)];
        float used = 0, seen = PRIOR_SEEN;
        for (uint32_t s = 0; s < SL_HEAT_SLOWS; s++) {
            used += row[s].used;
            seen += row[s].seen;
        }
        for (uint32_t s = 0; s < SL_HEAT_SLOWS; s++) {
            float rate = (used + PRIOR_SEEN * prior[s]) / seen;
            h->rates[i + s] = (row[s].used + PRIOR_SEEN * rate) / (row[s].seen + PRIOR_SEEN);
        }
    }
}

/* Of layer l, as the configuration says it. */
static struct sl_heat_layer layer_of(const struct sl_heat_config *c, uint32_t l) {
    return c->layers ? c->layers[l] : (struct sl_heat_layer){(uint16_t)c->n_expert, (uint16_t)c->k};
}

static bool layers_fit(const struct sl_heat_config *c) {
    for (uint32_t l = 0; c->layers && l < c->n_layer; l++) {
        struct sl_heat_layer x = c->layers[l];
        if (x.n_expert < 1 || x.n_expert > c->n_expert || x.k < 1 || x.k > x.n_expert || x.k > c->k)
            return false;
    }
    return true;
}

/* Every expert starts at its layer's mean rate. */
static void init_layers(struct sl_heat *h, const struct sl_heat_config *c) {
    uint32_t sum_k = 0, sum_n = 0;
    for (uint32_t l = 0; l < c->n_layer; l++) {
        struct sl_heat_layer x = h->layers[l] = layer_of(c, l);
        for (size_t e = 0, i = (size_t)l * c->n_expert; e < x.n_expert; e++)
            h->slow[i + e] = h->fast[i + e] = (float)x.k / (float)x.n_expert;
        sum_k += x.k;
        sum_n += x.n_expert;
    }
    h->log2_mean = log2f((float)sum_k / (float)sum_n);
    h->config.layers = h->layers;
}

enum sl_status sl_heat_create(const struct sl_heat_config *config, struct sl_heat **out_heat,
                              struct sl_err *err) {
    const struct sl_heat_config *c = config;
    if (c->n_layer < 1 || c->n_layer > SL_HEAT_MAX_LAYERS || c->n_expert < 1 ||
        c->n_expert > SL_HEAT_MAX_EXPERTS || c->k < 1 || c->k > c->n_expert || !layers_fit(c))
        return sl_fail(
            err, SL_ERR_INVALID,
            "expert heat: %u layers of %u experts, %u per token; the limits are %u layers "
            "of %u experts",
            c->n_layer, c->n_expert, c->k, SL_HEAT_MAX_LAYERS, SL_HEAT_MAX_EXPERTS);
    struct sl_heat *h = calloc(1, sl_heat_bytes(c));
    if (!h)
        return sl_fail(err, SL_ERR_NOMEM, "expert heat: out of memory for %zu bytes",
                       sl_heat_bytes(c));
    size_t n = (size_t)c->n_layer * c->n_expert;
    h->config = *c;
    h->position = c->n_layer - 1;
    h->tick = (uint32_t *)(h + 1);
    h->version = h->tick + c->n_layer;
    h->layers = (struct sl_heat_layer *)(h->version + c->n_layer);
    h->last = (uint32_t *)(h->layers + c->n_layer);
    h->fast = (float *)(h->last + n);
    h->slow = h->fast + n;
    h->probability = h->slow + n;
    h->cell = (uint16_t *)(h->probability + n);
    init_layers(h, c);
    for (uint32_t i = 0; i < SL_HEAT_AGE_LIMIT; i++)
        h->age_bucket[i] = age_bucket(i);
    set_priors(h);
    update_rates(h);
    for (uint32_t l = 0; l < c->n_layer; l++)
        sl_heat_refresh(h, l);
    *out_heat = h;
    return SL_OK;
}

void sl_heat_destroy(struct sl_heat **heat) {
    free(*heat);
    *heat = NULL;
}

/* ---- states ---- */

/* log2 by the bits of the number, linear between powers of two: monotone, and exact enough for an
 * axis of half octaves. */
static inline float fast_log2(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (float)u * 0x1p-23f - 127.0f;
}

/* x within [0, max]. */
static inline float clamp(float x, float max) {
    x = x > 0.0f ? x : 0.0f;
    return x < max ? x : max;
}

void sl_heat_refresh(struct sl_heat *h, uint32_t layer) {
    uint32_t n = sl_heat_n_expert(h, layer), tick = h->tick[layer];
    size_t base = (size_t)layer * h->config.n_expert;
    for (size_t i = base; i < base + n; i++) {
        uint32_t age = h->last[i] ? tick - h->last[i] : UINT32_MAX;
        age = age < SL_HEAT_AGE_LIMIT ? age : SL_HEAT_AGE_LIMIT - 1;
        float f = fast_log2(h->fast[i]) + (float)SL_HEAT_FASTS;
        float s = 2.0f * (fast_log2(h->slow[i]) - h->log2_mean + 3.0f);
        f = clamp(f, (float)SL_HEAT_FASTS - 1.0f);
        s = clamp(s, (float)SL_HEAT_SLOWS - 1.001f); /* so that the next one is there */
        int32_t row =
            (h->age_bucket[age] * (int32_t)SL_HEAT_FASTS + (int32_t)f) * (int32_t)SL_HEAT_SLOWS;
        int32_t at = row + (int32_t)s;
        float w = s - (float)(int32_t)s;
        float p = h->rates[at] + w * (h->rates[at + 1] - h->rates[at]);
        h->probability[i] = p > MIN_PROBABILITY ? p : MIN_PROBABILITY;
        h->cell[i] = (uint16_t)(row + (int32_t)(s + 0.5f));
    }
    h->version[layer]++;
}

/* ---- route ---- */

static void halve(struct sl_heat *h) {
    for (uint32_t i = 0; i < SL_HEAT_CELLS; i++) {
        h->cells[i].used *= 0.5f;
        h->cells[i].seen *= 0.5f;
    }
}

static void decay(struct sl_heat *h, uint32_t layer, float fast, float slow) {
    size_t base = (size_t)layer * h->config.n_expert;
    for (size_t i = base; i < base + sl_heat_n_expert(h, layer); i++) {
        /* Far below what the table tells apart, and never denormal, which would be slow. */
        h->fast[i] = h->fast[i] * fast + 1e-15f;
        h->slow[i] = h->slow[i] * slow + 1e-15f;
    }
}

static void route_decode(struct sl_heat *h, uint32_t layer, const uint16_t *ids, size_t n,
                         float alpha_fast, float alpha_slow) {
    size_t base = (size_t)layer * h->config.n_expert;
    for (size_t i = base; i < base + sl_heat_n_expert(h, layer); i++)
        h->cells[h->cell[i]].seen += 1.0f;
    uint32_t tick = ++h->tick[layer];
    decay(h, layer, 1.0f - alpha_fast, 1.0f - alpha_slow);
    for (size_t j = 0; j < n; j++) {
        assert(ids[j] < sl_heat_n_expert(h, layer));
        size_t i = base + ids[j];
        if (h->last[i] == tick)
            continue; /* another row's */
        h->last[i] = tick;
        h->cells[h->cell[i]].used += 1.0f;
        h->fast[i] += alpha_fast;
        h->slow[i] += alpha_slow;
    }
    if (++h->learned_ticks >= HALVE_TICKS * h->config.n_layer) {
        h->learned_ticks = 0;
        halve(h);
    }
}

static void route_prefill(struct sl_heat *h, uint32_t layer, const uint16_t *ids, uint32_t n_rows,
                          uint32_t k, float alpha_fast, float alpha_slow) {
    size_t base = (size_t)layer * h->config.n_expert;
    uint32_t before = h->tick[layer];
    h->tick[layer] += n_rows;
    decay(h, layer, powf(1.0f - alpha_fast, (float)n_rows), powf(1.0f - alpha_slow, (float)n_rows));
    float fast = alpha_fast, slow = alpha_slow; /* what a use in this row still weighs at the end */
    for (uint32_t r = n_rows; r-- > 0;) {
        for (uint32_t j = 0; j < k; j++) {
            uint16_t e = ids[(size_t)r * k + j];
            assert(e < sl_heat_n_expert(h, layer));
            size_t i = base + e;
            h->fast[i] += fast;
            h->slow[i] += slow;
            if (h->last[i] <= before)
                h->last[i] = before + r + 1;
        }
        fast *= 1.0f - alpha_fast;
        slow *= 1.0f - alpha_slow;
    }
}

void sl_heat_route(struct sl_heat *h, uint32_t layer, const uint16_t *ids, uint32_t n_rows,
                   uint32_t k, enum sl_phase phase) {
    assert(layer < h->config.n_layer);
    if (n_rows == 0)
        return;
    if (h->tick[layer] > UINT32_MAX - n_rows - 1) {
        /* Once in 2^32 tokens: ages start again, counts stay. */
        h->tick[layer] = 0;
        memset(h->last + (size_t)layer * h->config.n_expert, 0,
               h->config.n_expert * sizeof *h->last);
    }
    uint32_t n_ticks = phase == SL_PHASE_PREFILL ? n_rows : 1;
    /* Early on an average over all that was seen, with eight assumed ticks at the mean. */
    float seen = (float)h->tick[layer] + (float)n_ticks + 8.0f;
    float alpha_fast = 1.0f / fminf(FAST_TICKS, seen);
    float alpha_slow = 1.0f / fminf(SLOW_TICKS, seen);
    if (phase == SL_PHASE_PREFILL)
        route_prefill(h, layer, ids, n_rows, k, alpha_fast, alpha_slow);
    else
        route_decode(h, layer, ids, (size_t)n_rows * k, alpha_fast, alpha_slow);
    if (h->until_rates-- == 0) {
        h->until_rates = h->config.n_layer - 1;
        update_rates(h);
    }
    sl_heat_refresh(h, layer);
    h->position = layer;
}

/* ---- read ---- */

float sl_heat_probability(const struct sl_heat *h, struct sl_expert_id id) {
    assert(id.layer < h->config.n_layer && id.expert < sl_heat_n_expert(h, id.layer));
    return h->probability[(size_t)id.layer * h->config.n_expert + id.expert];
}

const float *sl_heat_layer(const struct sl_heat *h, uint32_t layer) {
    assert(layer < h->config.n_layer);
    return h->probability + (size_t)layer * h->config.n_expert;
}

const float *sl_heat_rates(const struct sl_heat *h, uint32_t layer) {
    assert(layer < h->config.n_layer);
    return h->slow + (size_t)layer * h->config.n_expert;
}

uint32_t sl_heat_version(const struct sl_heat *h, uint32_t layer) {
    return h->version[layer];
}

uint32_t sl_heat_position(const struct sl_heat *h) {
    return h->position;
}

static float slow_of(const struct sl_heat *h, struct sl_expert_id id) {
    return h->slow[(size_t)id.layer * h->config.n_expert + id.expert];
}

/* Colder first; equal heat: the later expert counts as colder, so that the list is one list. By
 * numbers before layers: while nothing is known, what is warmed up first is a share of every layer
 * instead of all of the first ones. */
static int colder(const struct sl_heat *h, struct sl_expert_id a, struct sl_expert_id b) {
    float x = slow_of(h, a), y = slow_of(h, b);
    if (x != y)
        return x < y;
    return a.expert != b.expert ? a.expert > b.expert : a.layer > b.layer;
}

static void sift_down(const struct sl_heat *h, struct sl_expert_id *heap, uint32_t n, uint32_t at) {
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && colder(h, heap[child + 1], heap[child]))
            child++;
        if (!colder(h, heap[child], heap[at]))
            return;
        struct sl_expert_id t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

uint32_t sl_heat_hottest(const struct sl_heat *h, uint32_t n, struct sl_expert_id *out_id) {
    uint32_t total = 0, n_have = 0;
    for (uint32_t l = 0; l < h->config.n_layer; l++)
        total += sl_heat_n_expert(h, l);
    if (n > total)
        n = total;
    if (n == 0)
        return 0;
    struct sl_expert_id id = {0, 0};
    for (uint32_t i = 0; i < total; i++, id.expert++) {
        if (id.expert == sl_heat_n_expert(h, id.layer))
            id = (struct sl_expert_id){(uint16_t)(id.layer + 1), 0};
        if (n_have < n) {
            out_id[n_have++] = id;
            if (n_have == n)
                for (uint32_t j = n / 2; j-- > 0;)
                    sift_down(h, out_id, n, j);
        } else if (colder(h, out_id[0], id)) {
            out_id[0] = id;
            sift_down(h, out_id, n, 0);
        }
    }
    for (uint32_t end = n; end-- > 1;) { /* the coldest goes to the end */
        struct sl_expert_id t = out_id[0];
        out_id[0] = out_id[end];
        out_id[end] = t;
        sift_down(h, out_id, end, 0);
    }
    return n;
}
