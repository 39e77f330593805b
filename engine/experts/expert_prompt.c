/* Reading ahead for prompt rows: which experts of the next layer some of them will choose.
 *
 * Rows are many, and an expert that one row in five would choose is chosen by some row of twenty.
 * How likely each is to be chosen is in prompt_shares.h; those of a high share are read.
 *
 * - The surest come first. Of those that are as good as sure many are read at once, behind the
 *   demand; what the disk does not get to before their router has spoken, it goes on with.
 * - Less sure ones only keep the disk from standing still: read_depth.h.
 * - What the layer turns out not to want is given up, unless all of it is on its way. */
#include "engine/experts/expert_fetch_internal.h"

/* ---- planning ---- */

static void place_all(struct sl_fetch *f, uint32_t layer, uint32_t n_rows) {
    const float *heat = sl_heat_layer(f->heat, layer);
    sl_prompt_shares_begin(&f->shares, n_rows);
    for (uint32_t e = f->layout->layers[layer].n_expert; e < f->layout->n_expert; e++)
        sl_prompt_shares_leave_out(&f->shares, e); /* it has none of this number */
    for (uint32_t e = 0; e < f->layout->layers[layer].n_expert; e++) {
        struct sl_expert_id id = {(uint16_t)layer, (uint16_t)e};
        if (f->tiers && sl_tiers_has(f->tiers, id))
            sl_prompt_shares_leave_out(&f->shares, e);
        else
            sl_prompt_shares_place(&f->shares, e, (float)n_rows * heat[e],
                                   sl_cache_has(f->cache, id));
    }
}

void sl_fetch_prompt_plan(struct sl_fetch *f) {
    struct sl_ahead *a = &f->ahead;
    uint32_t next = f->run.layer + 1, n = f->run.rows.n_next_prompt;
    if (next == f->layout->n_layer || n < 2)
        return;
    place_all(f, next, n);
    a->n = sl_prompt_shares_list(&f->shares, next, a->ids, &a->n_sure);
    for (uint32_t i = 0; i < a->n; i++)
        a->started[i].slot = SL_SLOT_NONE;
    sl_read_depth_restart(&f->depth);
    a->layer = next;
    a->prediction = false;
    a->priority = SL_READ_DEMAND;
    a->budget = UINT32_MAX;
}

/* ---- what came of it ---- */

/* Gives up what was started for the plan, except what its layer wants once that has begun. */
static void give_up(struct sl_fetch *f, bool came) {
    const struct sl_ahead *a = &f->ahead;
    bool gave_up = false;
    for (uint32_t i = 0; i < a->cursor; i++)
        if (a->started[i].slot != SL_SLOT_NONE && !(came && f->run.pair_count[a->ids[i].expert]))
            gave_up |= sl_slot_reads_give_up(&f->reads, a->ids[i], a->started[i]);
    if (gave_up)
        sl_reader_poll(f->reader); /* what is wanted wants their slots */
}

void sl_fetch_prompt_begin(struct sl_fetch *f) {
    bool came = f->ahead.layer == f->run.layer;
    if (came)
        sl_prompt_shares_learn(&f->shares, f->run.pair_count);
    give_up(f, came);
}

void sl_fetch_prompt_drop(struct sl_fetch *f) {
    give_up(f, false);
}

/* ---- reading ---- */

uint32_t sl_fetch_prompt_room(struct sl_fetch *f) {
    const struct sl_ahead *a = &f->ahead;
    if (a->cursor >= a->n_sure)
        return sl_read_depth_room(&f->depth, f->reads.n, f->layout->layers[a->layer].expert_bytes);
    uint32_t n = 2 * sl_fetch_queue_experts(f, a->layer), left = a->n_sure - a->cursor;
    n = f->reads.n_background < n ? n - f->reads.n_background : 0;
    return n < left ? n : left;
}
