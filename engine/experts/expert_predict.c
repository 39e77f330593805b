/* Reading early from disk for generated rows on a discrete device: what routers that were run early
 * chose for the next layers.
 *
 * Where half of the experts are on disk a layer misses less than one on average, and during layers
 * that miss none the disk is idle. A prediction for a layer to come gives it work then. What makes
 * predictions cheap although some are wrong:
 *
 * - They fill gaps: the reader starts them only while it has next to nothing in flight, so a demand
 *   waits behind a request or two.
 * - One that its layer does not want is given up, unless all of it is on its way.
 * - Only what is right often enough is read: prediction_score.h.
 *
 * Planned reads are ours until the reader needs them, nearest layer first: a later, nearer
 * prediction replaces the plan for its layer, and what was only planned has pushed nothing out of
 * its slot. */
#include "engine/experts/expert_fetch_internal.h"

#include "common/metrics.h"

#include <stdlib.h>

const uint8_t sl_fetch_prediction_ahead[SL_FETCH_PREDICTIONS] = {1, 2, SL_FETCH_REACH};

/* Reads that the reader has at once, so that it can start the next when one ends. */
#define AT_ONCE 2u

/* ---- memory ---- */

static uint32_t most_planned(uint32_t k) {
    return SL_FETCH_PREDICTIONS * SL_FETCH_AHEAD_ROWS * k;
}

static struct sl_prediction_shape score_shape(uint32_t k) {
    return (struct sl_prediction_shape){.n = SL_FETCH_PREDICTIONS,
                                        .reach = SL_FETCH_REACH,
                                        .max_rows = SL_FETCH_AHEAD_ROWS,
                                        .k = k};
}

size_t sl_fetch_prediction_bytes(uint32_t k) {
    struct sl_predictions *g;
    struct sl_prediction_shape shape = score_shape(k);
    return sl_prediction_score_bytes(&shape) +
           most_planned(k) * (sizeof *g->started + sizeof *g->plan.ids);
}

bool sl_fetch_prediction_create(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    uint32_t n = most_planned(f->layout->k);
    struct sl_prediction_shape shape = score_shape(f->layout->k);
    if (!(g->memory = calloc(1, sl_fetch_prediction_bytes(f->layout->k))))
        return false;
    char *after_score = (char *)g->memory + sl_prediction_score_bytes(&shape);
    sl_prediction_score_init(&g->score, &shape, g->memory);
    g->started = (void *)after_score;
    sl_read_plan_init(&g->plan, (void *)(g->started + n), n);
    sl_disk_demand_init(&g->demand);
    return true;
}

void sl_fetch_prediction_destroy(struct sl_fetch *f) {
    free(f->predictions.memory);
}

void sl_fetch_prediction_forget(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    g->n_started = 0;
    sl_read_plan_drop_all(&g->plan);
    sl_prediction_score_forget(&g->score);
}

/* ---- a layer begins ---- */

static void judge(struct sl_fetch *f, uint32_t which) {
    uint32_t named, right;
    sl_prediction_score_judge(&f->predictions.score, which, f->run.layer, f->run.pair_count, &named,
                              &right);
    f->stats.predicted[which] += named;
    f->stats.predicted_right[which] += right;
}

static bool is_coming(const struct sl_fetch *f, struct sl_expert_id id) {
    return sl_cache_has(f->cache, id) && !sl_cache_is_ready(f->cache, id);
}

static void settle_started(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    uint32_t keep = 0;
    for (uint32_t i = 0; i < g->n_started; i++) {
        const struct sl_prediction_read s = g->started[i];
        if (s.id.layer > f->run.layer && f->run.layer) {
            g->started[keep++] = s;
            continue;
        }
        if (s.id.layer == f->run.layer && f->run.pair_count[s.id.expert])
            f->stats.ahead_used++;
        else
            sl_slot_reads_give_up(&f->reads, s.id, s.fill);
    }
    g->n_started = keep;
}

void sl_fetch_prediction_begin(struct sl_fetch *f) {
    struct sl_predictions *g = &f->predictions;
    bool may_predict = sl_fetch_may_predict(f);
    bool judged = sl_disk_demand_layer(&g->demand, f->stats.misses + f->stats.ahead_read,
                                       may_predict, f->run.layer == 0);
    if (judged && f->tiers)
        sl_gauge(expert_ahead_on, g->demand.enough);
    if (!may_predict) {
        sl_fetch_prediction_forget(f);
        return;
    }
    for (uint32_t i = 0; i < SL_FETCH_PREDICTIONS; i++)
        judge(f, i);
    settle_started(f);
    if (f->run.layer == 0)
        sl_read_plan_drop_all(&g->plan); /* of a step that was given up */
    sl_read_plan_drop_layer(&g->plan, f->run.layer);
}

/* ---- predictions ---- */

uint32_t sl_fetch_predictions(const struct sl_fetch *f, uint32_t n_rows) {
    if (f->no_lookahead || n_rows > SL_FETCH_AHEAD_ROWS)
        return 0;
    return f->predictions.demand.enough ? SL_FETCH_PREDICTIONS
                                        : f->tiers && sl_tiers_predictions(f->tiers);
}

static bool is_absent(const struct sl_fetch *f, struct sl_expert_id id) {
    return !sl_cache_has(f->cache, id) && !(f->tiers && sl_tiers_has(f->tiers, id));
}

void sl_fetch_prediction_plan(struct sl_fetch *f, uint32_t which, uint32_t routed_layer,
                              const uint32_t *ids, uint32_t n) {
    struct sl_predictions *g = &f->predictions;
    uint32_t k = f->layout->layers[routed_layer].k;
    struct sl_prediction *made =
        sl_prediction_score_note(&g->score, which, routed_layer, ids, n, k);
    for (uint32_t i = 0; i < n; i++)
        made->absent[i] = is_absent(f, (struct sl_expert_id){(uint16_t)routed_layer, made->ids[i]});
    sl_read_plan_drop_layer(&g->plan, routed_layer);
    for (uint32_t rank = 0; rank < k && g->demand.enough; rank++) {
        if (!sl_prediction_score_trusts(&g->score, which, rank))
            continue;
        for (uint32_t i = rank; i < n; i += k)
            if (made->absent[i])
                sl_read_plan_add(&g->plan,
                                 (struct sl_expert_id){(uint16_t)routed_layer, made->ids[i]});
    }
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
    uint32_t coming = g->plan.n ? n_coming(f) : 0, taken = 0;
    for (; taken < g->plan.n && coming < AT_ONCE; taken++) {
        struct sl_fill fill;
        struct sl_expert_id id = g->plan.ids[taken];
        if (g->n_started == most_planned(f->layout->k) || !is_absent(f, id) ||
            !sl_cache_prefetch(f->cache, SL_PREFETCH_LOOKAHEAD, &id, 1, sl_fetch_now(f), &fill))
            continue;
        g->started[g->n_started++] = (struct sl_prediction_read){id, fill.lease};
        sl_slot_reads_start(&f->reads, &fill, 1, SL_READ_PREDICTION, true);
        f->stats.ahead_read++;
        coming++;
    }
    sl_read_plan_drop_first(&g->plan, taken);
}
