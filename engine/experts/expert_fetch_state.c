/* Fetching experts as a whole: created, emptied, destroyed, and what is asked about it. */
#include "engine/experts/expert_fetch_internal.h"

#include "common/clock.h"
#include "common/metrics.h"

#include <assert.h>
#include <stdlib.h>

static uint64_t wall_clock(void *clock) {
    (void)clock;
    return sl_now_ns();
}

size_t sl_fetch_bytes(const struct sl_expert_layout *l, uint32_t n_slots, uint32_t max_rows) {
    struct sl_heat_config shape;
    sl_expert_layout_heat(l, 0, &shape);
    struct sl_fetch *f;
    size_t slot = sizeof *f->warm;
    size_t expert = sizeof *f->leases + sizeof *f->new_fills + sizeof *f->refs +
                    sizeof *f->ahead.ids + sizeof *f->ahead.started + 1;
    size_t pair = sizeof *f->route_ids;
    return sizeof *f + sl_slot_reads_bytes(n_slots) +
           sl_layer_run_bytes(l->n_expert, l->k, max_rows) + slot * n_slots + expert * l->n_expert +
           pair * max_rows * l->k + sl_fetch_prediction_bytes(l->k) + sl_heat_bytes(&shape) +
           sl_cache_bytes(&shape, n_slots);
}

static bool allocate(struct sl_fetch *f, uint32_t max_rows) {
    size_t n_expert = f->layout->n_expert, n_pairs = (size_t)max_rows * f->layout->k;
    f->warm = calloc(f->most_warm, sizeof *f->warm);
    f->leases = calloc(n_expert, sizeof *f->leases);
    f->new_fills = calloc(n_expert, sizeof *f->new_fills);
    f->refs = calloc(n_expert, sizeof *f->refs);
    f->route_ids = calloc(n_pairs, sizeof *f->route_ids);
    f->ahead.ids = calloc(n_expert, sizeof *f->ahead.ids);
    f->ahead.started = calloc(n_expert, sizeof *f->ahead.started);
    sl_prompt_shares_init(&f->shares, f->layout->n_expert, calloc(n_expert, 1));
    return f->warm && f->leases && f->new_fills && f->refs && f->route_ids && f->ahead.ids &&
           f->ahead.started && f->shares.cell &&
           sl_layer_run_init(&f->run, f->layout->n_expert, f->layout->k, max_rows) == SL_OK &&
           sl_fetch_prediction_create(f);
}

enum sl_status sl_fetch_create(const struct sl_fetch_config *config, struct sl_fetch **out_fetch,
                               struct sl_err *err) {
    const struct sl_expert_layout *l = config->layout;
    struct sl_fetch *f = calloc(1, sizeof *f);
    if (!f)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the table of slots");
    f->layout = l;
    f->slots = config->slots;
    f->reader = config->reader;
    f->no_lookahead = config->no_lookahead;
    f->now_ns = config->now_ns ? config->now_ns : wall_clock;
    f->clock = config->clock;
    f->timeline = config->timeline;
    uint32_t n_slots = f->slots->first_slot[f->slots->n_class];
    f->most_warm = n_slots + config->n_device_slots;
    sl_fetch_ahead_init(f);
    enum sl_status status = SL_OK;
    if (!allocate(f, config->max_rows))
        status = sl_fail(err, SL_ERR_NOMEM, "no memory for a table of %u slots", n_slots);
    struct sl_heat_config shape;
    sl_expert_layout_heat(l, config->fingerprint, &shape);
    if (status == SL_OK)
        status = sl_heat_create(&shape, &f->heat, err);
    uint32_t class_slots[SL_SLAB_CLASSES];
    for (uint32_t c = 0; c < l->n_class; c++)
        class_slots[c] = f->slots->first_slot[c + 1] - f->slots->first_slot[c];
    if (status == SL_OK)
        status = sl_cache_create(&(struct sl_cache_config){.heat = f->heat,
                                                           .layer_class = l->layer_class,
                                                           .n_class = l->n_class,
                                                           .class_slots = class_slots,
                                                           .source = SL_TIER_DISK},
                                 &f->cache, err);
    if (status == SL_OK) {
        status =
            sl_slot_reads_init(&f->reads, &(struct sl_slot_reads_config){.layout = l,
                                                                         .slots = f->slots,
                                                                         .reader = f->reader,
                                                                         .cache = f->cache,
                                                                         .timeline = f->timeline,
                                                                         .now_ns = f->now_ns,
                                                                         .clock = f->clock});
        if (status != SL_OK)
            sl_fail(err, status, "no memory for a table of %u slots", n_slots);
    }
    if (status != SL_OK) {
        sl_fetch_destroy(&f);
        return status;
    }
    *out_fetch = f;
    return SL_OK;
}

static void end_reading(struct sl_fetch *f) {
    bool quitting = f->quitting;
    f->quitting = true;
    sl_slot_reads_end(&f->reads);
    f->quitting = quitting;
}

void sl_fetch_quit(struct sl_fetch *f) {
    f->quitting = true;
    end_reading(f);
}

void sl_fetch_forget(struct sl_fetch *f) {
    assert(!f->run.n_held && !f->run.n_wanted);
    end_reading(f);
    if (f->tiers)
        sl_tiers_forget(f);
    sl_cache_forget(f->cache);
    f->ahead.layer = SL_NO_ROUTED_LAYER;
    f->ahead.n = f->ahead.cursor = 0;
    sl_fetch_prediction_forget(f);
}

void sl_fetch_destroy(struct sl_fetch **pf) {
    struct sl_fetch *f = *pf;
    if (!f)
        return;
    sl_tiers_destroy(&f->tiers);
    sl_slot_reads_release(&f->reads);
    sl_layer_run_release(&f->run);
    if (f->cache)
        sl_cache_destroy(&f->cache);
    if (f->heat)
        sl_heat_destroy(&f->heat);
    free(f->warm);
    free(f->leases);
    free(f->new_fills);
    free(f->refs);
    free(f->route_ids);
    free(f->ahead.ids);
    free(f->ahead.started);
    free(f->shares.cell);
    sl_fetch_prediction_destroy(f);
    free(f);
    *pf = NULL;
}

/* ---- asked from outside ---- */

const struct sl_fetch_stats *sl_fetch_stats(const struct sl_fetch *f) {
    return &f->stats;
}

const struct sl_cache_stats *sl_fetch_cache_stats(const struct sl_fetch *f) {
    return sl_cache_stats(f->cache);
}

struct sl_heat *sl_fetch_heat(struct sl_fetch *f) {
    return f->heat;
}

bool sl_fetch_is_reading(const struct sl_fetch *f) {
    return f->run.n_loading > 0;
}

void sl_fetch_count_hits(struct sl_fetch *f, uint32_t n) {
    f->stats.hits += n;
    sl_count(expert_hits_total, n);
}

const struct sl_tiers *sl_fetch_tiers(const struct sl_fetch *f) {
    return f->tiers;
}

const struct sl_cache *sl_fetch_cache(const struct sl_fetch *f) {
    return f->cache;
}
