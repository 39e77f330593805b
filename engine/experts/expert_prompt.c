/* Reading ahead for prompt rows: which experts of the next layer some of them will choose.
 *
 * Rows are many, and an expert that one row in five would choose is chosen by some row of twenty.
 * But rows of one text choose alike: five hundred of them leave experts alone that as many rows of
 * anything would not. So how many of the rows would choose an expert, by its heat, does not tell
 * yet how likely it is that any does: what share of such experts was chosen is counted, and those
 * of a high share are read.
 *
 * - The surest come first. Of those that are as good as sure many are read at once, behind the
 *   demand; what the disk does not get to before their router has spoken, it goes on with.
 * - Less sure ones only keep the disk from standing still: no more of them are on their way than it
 *   does until somebody looks after it again.
 * - What the layer turns out not to want is given up, unless all of it is on its way. */
#include "engine/experts/expert_fetch_internal.h"

#include <math.h>

/* Shares in so many steps: experts are taken from the highest one down. */
#define LEVELS       32u
#define SURE_LEVEL   29u /* nine in ten */
#define LIKELY_LEVEL 19u /* three in five: docs/PERFORMANCE.md has what others cost */
/* What a new observation weighs in a share. */
#define NEW_TOUCH (1.0f / 32)
/* Of the table's first column: log2 of how many rows would choose such an expert. */
#define FIRST_LOG2 (-6.0f)
/* Bytes of less sure ones on their way: from what covers a drive's latency up to what a fast disk
 * reads during a long operation. */
#define DEPTH_LEAST_BYTES (1u << 20)
#define DEPTH_MOST_BYTES  (64u << 20)
/* A cell for experts that are on the device: never read, never counted. */
#define NOT_COUNTED UINT8_MAX
_Static_assert(2 * SL_TOUCH_USES <= NOT_COUNTED, "cells are bytes");

static uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t octave_of(uint32_t n_rows) {
    return least(31 - (uint32_t)__builtin_clz(n_rows), SL_TOUCH_ROWS - 1);
}

static uint32_t column_of(float n_uses) {
    float at = 2 * (log2f(n_uses) - FIRST_LOG2);
    return at > 0 ? least((uint32_t)at, SL_TOUCH_USES - 1) : 0;
}

/* As of rows that have nothing to do with each other, until something has been counted. */
void sl_fetch_prompt_init(struct sl_fetch *f) {
    struct sl_prompt_ahead *p = &f->prompt;
    for (uint32_t i = 0; i < SL_TOUCH_ROWS * 2 * SL_TOUCH_USES; i++) {
        float log2_uses = FIRST_LOG2 + 0.5f * ((float)(i % SL_TOUCH_USES) + 0.5f);
        p->touched[i / (2 * SL_TOUCH_USES)][i % (2 * SL_TOUCH_USES)] = 1 - expf(-exp2f(log2_uses));
    }
    p->depth_bytes = DEPTH_LEAST_BYTES;
}

/* ---- planning ---- */

/* Which column of the table's row each expert of the layer belongs to. */
static void find_cells(struct sl_fetch *f, uint32_t layer, uint32_t n_rows) {
    const float *heat = sl_heat_layer(f->heat, layer);
    for (uint32_t e = 0; e < f->layout->n_expert; e++) {
        struct sl_expert_id id = {(uint16_t)layer, (uint16_t)e};
        uint32_t in_slot = sl_cache_has(f->cache, id);
        f->prompt.cell[e] =
            f->tiers && sl_tiers_has(f->tiers, id)
                ? NOT_COUNTED
                : (uint8_t)(in_slot * SL_TOUCH_USES + column_of((float)n_rows * heat[e]));
    }
}

void sl_fetch_prompt_plan(struct sl_fetch *f) {
    struct sl_prompt_ahead *p = &f->prompt;
    struct sl_ahead *a = &f->ahead;
    uint32_t next = f->layer + 1, n = f->rows.n_next_prompt;
    if (next == f->layout->n_layer || n < 2)
        return;
    p->octave = octave_of(n);
    p->n_sure = p->n_full = 0;
    find_cells(f, next, n);
    for (uint32_t level = LEVELS; level >= LIKELY_LEVEL; level--) {
        for (uint32_t e = 0; e < f->layout->n_expert; e++)
            if (p->cell[e] != NOT_COUNTED &&
                (uint32_t)(p->touched[p->octave][p->cell[e]] * LEVELS) == level)
                sl_fetch_ahead_add(f, (struct sl_expert_id){(uint16_t)next, (uint16_t)e});
        if (level >= SURE_LEVEL)
            p->n_sure = a->n;
    }
    a->layer = next;
    a->prediction = false;
    a->priority = SL_READ_DEMAND;
    a->budget = UINT32_MAX;
}

/* ---- what came of it ---- */

static void learn(struct sl_fetch *f) {
    struct sl_prompt_ahead *p = &f->prompt;
    for (uint32_t e = 0; e < f->layout->n_expert; e++) {
        if (p->cell[e] == NOT_COUNTED)
            continue;
        float *share = &p->touched[p->octave][p->cell[e]];
        *share += ((f->pair_count[e] > 0) - *share) * NEW_TOUCH;
    }
}

/* What was started of the plan; of what has come to its layer, the layer's own are wanted. */
static void give_up(struct sl_fetch *f, bool came) {
    const struct sl_ahead *a = &f->ahead;
    bool gave_up = false;
    for (uint32_t i = 0; i < a->cursor; i++)
        if (a->started[i].slot != SL_SLOT_NONE && !(came && f->pair_count[a->ids[i].expert]))
            gave_up |= sl_fetch_give_up(f, a->ids[i], a->started[i]);
    if (gave_up)
        sl_reader_poll(f->reader); /* what is wanted wants their slots */
}

void sl_fetch_prompt_begin(struct sl_fetch *f) {
    bool came = f->ahead.layer == f->layer;
    if (came)
        learn(f);
    give_up(f, came);
}

void sl_fetch_prompt_drop(struct sl_fetch *f) {
    give_up(f, false);
}

/* ---- reading ---- */

void sl_fetch_prompt_look(struct sl_fetch *f) {
    struct sl_prompt_ahead *p = &f->prompt;
    if (p->n_full && !f->n_reading)
        p->depth_bytes = least(2 * p->depth_bytes, DEPTH_MOST_BYTES);
    else if (p->n_full && 2 * f->n_reading > p->n_full)
        p->depth_bytes = larger(p->depth_bytes - p->depth_bytes / 8, DEPTH_LEAST_BYTES);
    p->n_full = 0;
}

void sl_fetch_prompt_waited(struct sl_fetch *f) {
    f->prompt.n_full = 0;
}

/* Of less sure ones; where there is no more, the next look will know. */
static uint32_t spare_room(struct sl_fetch *f) {
    struct sl_prompt_ahead *p = &f->prompt;
    uint64_t bytes = f->layout->layers[f->ahead.layer].expert_bytes;
    uint32_t n = (uint32_t)(p->depth_bytes / bytes) + 1;
    if (f->n_reading < n)
        return n - f->n_reading;
    p->n_full = f->n_reading;
    return 0;
}

uint32_t sl_fetch_prompt_room(struct sl_fetch *f) {
    const struct sl_ahead *a = &f->ahead;
    if (a->cursor >= f->prompt.n_sure)
        return spare_room(f);
    uint32_t n = 2 * sl_fetch_queue_experts(f, a->layer);
    return f->n_background < n ? least(n - f->n_background, f->prompt.n_sure - a->cursor) : 0;
}
