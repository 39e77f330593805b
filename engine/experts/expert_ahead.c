/* Reading before anybody asks: the next layer's experts, and after a start the hottest. */
#include "engine/experts/expert_fetch_internal.h"

#include "common/metrics.h"

#include <string.h>

/* The most fills that one call starts. */
#define PUMP_BATCH 16u
/* Warm-up reads in flight at once. */
#define WARM_READS 8u

/* ---- planning ---- */

/* The layer before has run: what did waiting in it cost, and was what was read ahead for this one
 * wanted? */
static void judge(struct sl_fetch *f) {
    struct sl_ahead *a = &f->ahead;
    bool may_prediction = sl_fetch_may_predict(f);
    sl_prefetch_trial_layer(&f->trial, f->stats.stall_ns, may_prediction ? f->run.rows.n : 0);
    if (a->layer == f->run.layer) {
        uint32_t n_read = 0, n_used = 0;
        for (uint32_t i = 0; i < a->cursor; i++) {
            bool started = a->started[i].slot != SL_SLOT_NONE;
            n_read += started;
            n_used += started && f->run.pair_count[a->ids[i].expert] > 0;
        }
        f->stats.ahead_used += n_used;
        if (a->prediction)
            sl_prefetch_trial_count(&f->trial, n_read, n_used);
    }
    if (a->layer != SL_NO_ROUTED_LAYER && !a->prediction)
        sl_fetch_prompt_begin(f);
    a->layer = SL_NO_ROUTED_LAYER;
    a->n = a->cursor = 0;
    if (!may_prediction || f->tiers) /* with a tier above: expert_predict.c */
        return;
    sl_prefetch_trial_decide(&f->trial);
    sl_gauge(expert_ahead_on, f->trial.on);
}

static void add(struct sl_fetch *f, struct sl_expert_id id) {
    struct sl_ahead *a = &f->ahead;
    a->started[a->n].slot = SL_SLOT_NONE;
    a->ids[a->n++] = id;
}

void sl_fetch_ahead_init(struct sl_fetch *f) {
    f->ahead.layer = SL_NO_ROUTED_LAYER;
    sl_read_depth_init(&f->depth);
    sl_prefetch_trial_init(&f->trial, f->layout->n_layer);
}

void sl_fetch_ahead_begin(struct sl_fetch *f) {
    sl_fetch_pace_layer(f);
    judge(f);
    sl_fetch_prediction_begin(f);
    if (!f->no_lookahead)
        sl_fetch_prompt_plan(f);
}

void sl_fetch_not_quiet(struct sl_fetch *f) {
    sl_prefetch_trial_read(&f->trial);
}

bool sl_fetch_wants_ahead(const struct sl_fetch *f) {
    return !f->no_lookahead && sl_fetch_may_predict(f) && f->run.layer + 1 < f->layout->n_layer &&
           sl_prefetch_trial_wants(&f->trial);
}

/* What an early router chose, without what is on the device. */
static void list(struct sl_fetch *f, uint32_t routed_layer, const uint32_t *ids, uint32_t n) {
    struct sl_ahead *a = &f->ahead;
    a->layer = routed_layer;
    a->prediction = true;
    a->n = a->cursor = 0;
    memset(f->run.in_call, 0, f->layout->n_expert);
    uint32_t k = f->layout->layers[routed_layer].k, n_rows = n / k;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = ids[i % n_rows * k + i / n_rows]; /* every row's first choice first */
        if (f->run.in_call[id])
            continue;
        f->run.in_call[id] = 1;
        struct sl_expert_id at = {(uint16_t)routed_layer, (uint16_t)id};
        if (!f->tiers || !sl_tiers_has(f->tiers, at))
            add(f, at);
    }
    memset(f->run.in_call, 0, f->layout->n_expert);
}

void sl_fetch_ahead(struct sl_fetch *f, uint32_t routed_layer, const uint32_t *ids, uint32_t n) {
    struct sl_ahead *a = &f->ahead;
    list(f, routed_layer, ids, n);
    /* Held back, they are submitted in one call with the layer's own. */
    a->priority = f->reads.hold ? SL_READ_DEMAND : SL_READ_PREFETCH;
    a->budget = sl_fetch_pace_ahead(f, routed_layer);
    sl_fetch_pump(f);
}

void sl_fetch_predict(struct sl_fetch *f, uint32_t which, uint32_t routed_layer,
                      const uint32_t *ids, uint32_t n) {
    sl_fetch_prediction_plan(f, which, routed_layer, ids, n);
    if (f->tiers && sl_fetch_prediction_ahead[which] == 1) {
        list(f, routed_layer, ids, n);
        sl_tiers_predict(f, f->ahead.ids, f->ahead.n);
        f->ahead.n = 0; /* what is on disk is read as expert_predict.c has planned */
    }
    sl_fetch_pump(f);
}

void sl_fetch_ahead_copy(struct sl_fetch *f) {
    const struct sl_ahead *a = &f->ahead;
    if (a->layer == f->run.layer + 1 && !a->prediction)
        sl_tiers_copy_next(f, a->ids, a->n);
}

/* ---- reading ---- */

static uint32_t ahead_room(struct sl_fetch *f) {
    if (!f->ahead.prediction)
        return sl_fetch_prompt_room(f);
    return f->reads.n_background < f->layout->k ? f->layout->k - f->reads.n_background : 0;
}

static void pump_ahead(struct sl_fetch *f) {
    struct sl_ahead *a = &f->ahead;
    struct sl_fill fills[PUMP_BATCH];
    uint32_t room;
    if (!a->prediction)
        sl_read_depth_look(&f->depth, f->reads.n);
    while (a->cursor < a->n && (room = ahead_room(f)) > 0) {
        uint32_t n = a->n - a->cursor, at = a->cursor;
        n = n < PUMP_BATCH ? n : PUMP_BATCH;
        n = n < room ? n : room;
        n = n < a->budget ? n : a->budget;
        a->cursor += n;
        uint32_t n_fill = sl_cache_prefetch(f->cache, SL_PREFETCH_LOOKAHEAD, a->ids + at, n,
                                            sl_fetch_now(f), fills);
        for (uint32_t i = 0; i < n_fill; i++)
            a->started[at + fills[i].index] = fills[i].lease;
        sl_slot_reads_start(&f->reads, fills, n_fill, a->priority, true);
        if (n_fill)
            sl_fetch_not_quiet(f);
        f->stats.ahead_read += n_fill;
        a->budget -= n_fill;
        if (!a->budget)
            a->n = a->cursor;
    }
}

/* The next expert to warm up that can be read. With a tier above, host slots become free as experts
 * move up; when none will any more, the warm-up has ended. */
static bool next_warm(struct sl_fetch *f) {
    for (; f->tiers && f->warm_cursor < f->n_warm; f->warm_cursor++)
        if (!sl_tiers_has(f->tiers, f->warm[f->warm_cursor]) &&
            !sl_cache_has(f->cache, f->warm[f->warm_cursor]))
            break;
    return f->warm_cursor < f->n_warm && f->reads.n_background < WARM_READS;
}

static void pump_warm(struct sl_fetch *f) {
    struct sl_fill fills[WARM_READS];
    while (next_warm(f)) {
        uint32_t n = f->n_warm - f->warm_cursor, room = WARM_READS - f->reads.n_background;
        n = f->tiers ? 1 : n < room ? n : room;
        uint32_t n_fill = sl_cache_prefetch(f->cache, SL_PREFETCH_WARMUP, f->warm + f->warm_cursor,
                                            n, sl_fetch_now(f), fills);
        if (f->tiers && !n_fill && (sl_tiers_warming(f) || sl_tiers_copying(f)))
            return;
        f->warm_cursor = f->tiers && !n_fill ? f->n_warm : f->warm_cursor + n;
        sl_slot_reads_start(&f->reads, fills, n_fill, SL_READ_WARMUP, true);
        sl_count(expert_warmups_total, n_fill);
    }
}

void sl_fetch_pump(struct sl_fetch *f) {
    if (f->quitting || f->run.n_wanted)
        return; /* this layer's own come first */
    pump_ahead(f);
    sl_fetch_prediction_pump(f);
    pump_warm(f);
}

void sl_fetch_warm_up(struct sl_fetch *f) {
    f->n_warm = sl_heat_hottest(f->heat, f->most_warm, f->warm);
    f->warm_cursor = 0;
}

bool sl_fetch_has_background(const struct sl_fetch *f) {
    return f->warm_cursor < f->n_warm || f->reads.n > 0 || (f->tiers && sl_tiers_warming(f));
}

/* What a canceled step has left behind: the layers that it was read for will not come. */
static void drop_plans(struct sl_fetch *f) {
    struct sl_ahead *a = &f->ahead;
    if (a->layer != SL_NO_ROUTED_LAYER && !a->prediction)
        sl_fetch_prompt_drop(f);
    a->layer = SL_NO_ROUTED_LAYER;
    a->n = a->cursor = 0;
    sl_read_plan_drop_all(&f->predictions.plan);
}

void sl_fetch_idle(struct sl_fetch *f, int64_t timeout_ns) {
    drop_plans(f);
    if (f->tiers)
        sl_tiers_warm(f);
    sl_fetch_pump(f);
    if (f->reads.n)
        sl_reader_wait(f->reader, 1, timeout_ns);
}
