/* Reading early from disk for generated rows on a device that is apart: what routers that were run
 * early chose for the next layers.
 *
 * Where half of the experts are on disk a layer misses less than one, and while the layers pass
 * that miss none the disk stands still. A prediction for a layer to come gives it work then. What
 * makes predictions cheap although some are wrong:
 *
 * - They fill gaps: the reader starts them only while it has next to nothing in flight, so a demand
 *   waits behind a request or two.
 * - One that its layer does not want is given up, unless all of it is on its way.
 * - The surer a router was the rarer it is wrong, and the nearer the layer. What share was right is
 *   counted for each distance and rank, of those experts alone that were in no slot (the others
 *   would cost nothing, and are predicted right far oftener). Only what is right often enough is
 * read.
 *
 * Planned reads are ours until the reader needs them, nearest layer first: a later, nearer
 * prediction replaces the plan for its layer, and what was only planned has pushed nothing out of
 * its slot. */
#include "engine/experts/expert_fetch_internal.h"

#include "common/metrics.h"

#include <stdlib.h>
#include <string.h>

const uint8_t sl_fetch_prediction_ahead[SL_FETCH_PREDICTIONS] = {1, 2, SL_FETCH_REACH};

/* Predictions are followed of which this share was right, when so many have been counted: a right
 * one saves what the disk reads until its layer comes, a wrong one costs what is in flight of it
 * then, and an expert that had to go. */
#define CONFIDENT 0.8f
#define COUNTED   12u
/* Share of a new one in the mean. */
#define NEW_PREDICTION (1.0f / 64)
/* Reads that are with the reader at once, so that it has the next when one ends. */
#define AT_ONCE 2u
/* Early routers of layers beyond the next pay when at least one expert a token comes from disk, and
 * go on until it is half of one: counted over so many tokens. To change is to record the graphs of
 * steps anew. */
#define COUNT_TOKENS 32u

/* ---- memory ---- */

static uint32_t most_planned(uint32_t k) {
    return SL_FETCH_PREDICTIONS * SL_FETCH_AHEAD_ROWS * k;
}

size_t sl_fetch_prediction_bytes(uint32_t k) {
    struct sl_predictions *g;
    size_t pairs = (size_t)SL_FETCH_PREDICTIONS * SL_FETCH_REACH * SL_FETCH_AHEAD_ROWS * k;
    return (size_t)SL_FETCH_PREDICTIONS * k * sizeof *g->rank +
           most_planned(k) * (sizeof *g->started + sizeof *g->planned) +
           pairs * (sizeof *g->made[0][0].ids + sizeof *g->made[0][0].absent);
}

bool sl_fetch_prediction_create(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    uint32_t k = f->layout->k, n_row = SL_FETCH_AHEAD_ROWS * k;
    if (!(g->memory = calloc(1, sl_fetch_prediction_bytes(k))))
        return false;
    g->rank = g->memory;
    g->started = (void *)(g->rank + SL_FETCH_PREDICTIONS * k);
    g->planned = (void *)(g->started + most_planned(k));
    uint16_t *ids = (void *)(g->planned + most_planned(k));
    uint8_t *absent = (void *)(ids + SL_FETCH_PREDICTIONS * SL_FETCH_REACH * n_row);
    for (uint32_t i = 0; i < SL_FETCH_PREDICTIONS; i++)
        for (uint32_t j = 0; j < SL_FETCH_REACH; j++, ids += n_row, absent += n_row)
            g->made[i][j] = (struct sl_prediction){SL_NO_ROUTED_LAYER, 0, ids, absent};
    g->on = true;
    return true;
}

void sl_fetch_prediction_destroy(struct sl_fetch *f) {
    free(f->predictions.memory);
}

void sl_fetch_prediction_forget(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    g->n_planned = g->n_started = 0;
    for (uint32_t i = 0; i < SL_FETCH_PREDICTIONS; i++)
        for (uint32_t j = 0; j < SL_FETCH_REACH; j++)
            g->made[i][j].layer = SL_NO_ROUTED_LAYER;
}

/* ---- a layer begins ---- */

/* Does enough come from disk for farther predictions to pay? */
static void count_reads(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    uint64_t reads = f->stats.misses + f->stats.ahead_read;
    uint32_t n = (uint32_t)(reads - g->seen_reads);
    g->seen_reads = reads;
    if (!sl_fetch_may_predict(f))
        return; /* what prompts read does not count */
    g->reads += n;
    if (f->layer || ++g->tokens < COUNT_TOKENS)
        return;
    g->on = g->reads >= (g->on ? g->tokens / 2 : g->tokens);
    if (f->tiers)
        sl_gauge(expert_ahead_on, g->on);
    g->tokens = g->reads = 0;
}

static void judge(struct sl_fetch *f, uint32_t which) {
    struct sl_prediction *made = &f->predictions.made[which][f->layer % SL_FETCH_REACH];
    uint32_t k = f->layout->k;
    if (made->layer != f->layer)
        return;
    made->layer = SL_NO_ROUTED_LAYER;
    for (uint32_t i = 0; i < made->n_rows * k; i++) {
        struct sl_prediction_rank *r = &f->predictions.rank[which * k + i % k];
        if (!made->absent[i])
            continue;
        bool right = f->pair_count[made->ids[i]] > 0;
        r->n += r->n < UINT32_MAX;
        float share = 1.0f / (float)r->n;
        r->right += (right - r->right) * (share > NEW_PREDICTION ? share : NEW_PREDICTION);
        f->stats.predicted[which]++;
        f->stats.predicted_right[which] += right;
    }
}

static bool is_coming(const struct sl_fetch *f, struct sl_expert_id id) {
    return sl_cache_has(f->cache, id) && !sl_cache_is_ready(f->cache, id);
}

bool sl_fetch_give_up(struct sl_fetch *f, struct sl_expert_id id, struct sl_lease fill) {
    struct sl_read *read = &f->reads[fill.slot];
    if (!is_coming(f, id) || f->fills[fill.slot].generation != fill.generation ||
        sl_reader_requests_left(f->reader, read) <= read->n_flying)
        return false;
    sl_reader_cancel(f->reader, read);
    return true;
}

static void settle_started(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    uint32_t keep = 0;
    for (uint32_t i = 0; i < g->n_started; i++) {
        const struct sl_prediction_read s = g->started[i];
        if (s.id.layer > f->layer && f->layer) {
            g->started[keep++] = s;
            continue;
        }
        if (s.id.layer == f->layer && f->pair_count[s.id.expert])
            f->stats.ahead_used++;
        else
            sl_fetch_give_up(f, s.id, s.fill);
    }
    g->n_started = keep;
}

static void unplan(struct sl_predictions *g, uint32_t layer) {
    uint32_t keep = 0;
    for (uint32_t i = 0; i < g->n_planned; i++)
        if (g->planned[i].layer != layer)
            g->planned[keep++] = g->planned[i];
    g->n_planned = keep;
}

void sl_fetch_prediction_begin(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    count_reads(f);
    if (!sl_fetch_may_predict(f)) {
        sl_fetch_prediction_forget(f);
        return;
    }
    for (uint32_t i = 0; i < SL_FETCH_PREDICTIONS; i++)
        judge(f, i);
    settle_started(f);
    if (f->layer == 0)
        g->n_planned = 0; /* of a step that was given up */
    unplan(g, f->layer);
}

/* ---- predictions ---- */

uint32_t sl_fetch_predictions(const struct sl_fetch *f, uint32_t n_rows) {
    if (f->no_lookahead || n_rows > SL_FETCH_AHEAD_ROWS)
        return 0;
    return f->predictions.on ? SL_FETCH_PREDICTIONS : f->tiers && sl_tiers_predictions(f->tiers);
}

static bool is_absent(const struct sl_fetch *f, struct sl_expert_id id) {
    return !sl_cache_has(f->cache, id) && !(f->tiers && sl_tiers_has(f->tiers, id));
}

static struct sl_prediction *note(struct sl_fetch *f, uint32_t which, uint32_t layer,
                                  const uint32_t *ids, uint32_t n) {
    struct sl_prediction *made = &f->predictions.made[which][layer % SL_FETCH_REACH];
    made->layer = layer;
    made->n_rows = n / f->layout->k;
    for (uint32_t i = 0; i < n; i++) {
        struct sl_expert_id id = {(uint16_t)layer, (uint16_t)ids[i]};
        made->ids[i] = id.expert;
        made->absent[i] = is_absent(f, id);
    }
    return made;
}

static bool is_planned(const struct sl_predictions *g, struct sl_expert_id id) {
    for (uint32_t i = 0; i < g->n_planned; i++)
        if (g->planned[i].layer == id.layer && g->planned[i].expert == id.expert)
            return true;
    return false;
}

/* Behind what is planned for that layer and nearer ones. */
static void plan(struct sl_fetch *f, struct sl_expert_id id) {
    struct sl_predictions *g = &f->predictions;
    uint32_t at = g->n_planned;
    if (at == most_planned(f->layout->k) || is_planned(g, id))
        return;
    for (; at && g->planned[at - 1].layer > id.layer; at--)
        g->planned[at] = g->planned[at - 1];
    g->planned[at] = id;
    g->n_planned++;
}

void sl_fetch_predict(struct sl_fetch *f, uint32_t which, uint32_t routed_layer,
                      const uint32_t *ids, uint32_t n) {
    struct sl_predictions *g = &f->predictions;
    uint32_t k = f->layout->k;
    const struct sl_prediction *made = note(f, which, routed_layer, ids, n);
    unplan(g, routed_layer);
    for (uint32_t rank = 0; rank < k && g->on; rank++) {
        const struct sl_prediction_rank *r = &g->rank[which * k + rank];
        if (r->n < COUNTED || r->right < CONFIDENT)
            continue;
        for (uint32_t i = rank; i < n; i += k)
            if (made->absent[i])
                plan(f, (struct sl_expert_id){(uint16_t)routed_layer, made->ids[i]});
    }
    if (f->tiers && sl_fetch_prediction_ahead[which] == 1) {
        sl_fetch_ahead_list(f, routed_layer, ids, n);
        sl_tiers_predict(f, f->ahead.ids, f->ahead.n);
        f->ahead.n = 0; /* what is on disk is read as is planned here */
    }
    sl_fetch_pump(f);
}

/* ---- reading ---- */

static uint32_t n_coming(const struct sl_fetch *f) {
    const struct sl_predictions *g = &f->predictions;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_started; i++)
        n += is_coming(f, g->started[i].id);
    return n;
}

void sl_fetch_prediction_pump(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    uint32_t coming = g->n_planned ? n_coming(f) : 0, taken = 0;
    for (; taken < g->n_planned && coming < AT_ONCE; taken++) {
        struct sl_fill fill;
        struct sl_expert_id id = g->planned[taken];
        if (g->n_started == most_planned(f->layout->k) || !is_absent(f, id) ||
            !sl_cache_prefetch(f->cache, SL_PREFETCH_LOOKAHEAD, &id, 1, sl_fetch_now(f), &fill))
            continue;
        g->started[g->n_started++] = (struct sl_prediction_read){id, fill.lease};
        sl_fetch_start(f, &fill, 1, SL_READ_PREDICTION, true);
        f->stats.ahead_read++;
        coming++;
    }
    g->n_planned -= taken;
    memmove(g->planned, g->planned + taken, g->n_planned * sizeof *g->planned);
}
