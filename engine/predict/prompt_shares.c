#include "engine/predict/prompt_shares.h"

#include <assert.h>
#include <math.h>

/* Shares in so many steps: experts are listed from the highest one down. */
#define LEVELS       32u
#define SURE_LEVEL   29u /* nine in ten */
#define LIKELY_LEVEL 19u /* three in five: docs/PERFORMANCE.md has what others cost */
/* Weight of a new observation in a share. */
#define NEW_SHARE (1.0f / 32)
/* Of the first column: log2 of how many rows would choose such an expert. */
#define FIRST_LOG2 (-6.0f)
/* The cell of experts that are left out. */
#define NOT_COUNTED UINT8_MAX
_Static_assert(2 * SL_SHARE_COLUMNS <= NOT_COUNTED, "cells are bytes");

static uint32_t min_u32(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

static uint32_t column_of(float n_uses) {
    float at = 2 * (log2f(n_uses) - FIRST_LOG2);
    return at > 0 ? min_u32((uint32_t)at, SL_SHARE_COLUMNS - 1) : 0;
}

void sl_prompt_shares_init(struct sl_prompt_shares *s, uint32_t n_expert, uint8_t *cell) {
    s->n_expert = n_expert;
    s->octave = 0;
    s->cell = cell;
    for (uint32_t i = 0; i < SL_SHARE_OCTAVES * 2 * SL_SHARE_COLUMNS; i++) {
        float log2_uses = FIRST_LOG2 + 0.5f * ((float)(i % SL_SHARE_COLUMNS) + 0.5f);
        s->chosen[i / (2 * SL_SHARE_COLUMNS)][i % (2 * SL_SHARE_COLUMNS)] =
            1 - expf(-exp2f(log2_uses));
    }
}

void sl_prompt_shares_begin(struct sl_prompt_shares *s, uint32_t n_rows) {
    assert(n_rows > 0);
    s->octave = min_u32(31 - (uint32_t)__builtin_clz(n_rows), SL_SHARE_OCTAVES - 1);
}

void sl_prompt_shares_place(struct sl_prompt_shares *s, uint32_t expert, float n_uses,
                            bool in_slot) {
    s->cell[expert] = (uint8_t)(in_slot * SL_SHARE_COLUMNS + column_of(n_uses));
}

void sl_prompt_shares_leave_out(struct sl_prompt_shares *s, uint32_t expert) {
    s->cell[expert] = NOT_COUNTED;
}

uint32_t sl_prompt_shares_list(const struct sl_prompt_shares *s, uint32_t layer,
                               struct sl_expert_id *out_ids, uint32_t *out_n_sure) {
    uint32_t n = 0, n_sure = 0;
    for (uint32_t level = LEVELS; level >= LIKELY_LEVEL; level--) {
        for (uint32_t e = 0; e < s->n_expert; e++)
            if (s->cell[e] != NOT_COUNTED &&
                (uint32_t)(s->chosen[s->octave][s->cell[e]] * LEVELS) == level)
                out_ids[n++] = (struct sl_expert_id){(uint16_t)layer, (uint16_t)e};
        if (level >= SURE_LEVEL)
            n_sure = n;
    }
    *out_n_sure = n_sure;
    return n;
}

void sl_prompt_shares_learn(struct sl_prompt_shares *s, const uint32_t *n_chosen) {
    for (uint32_t e = 0; e < s->n_expert; e++) {
        if (s->cell[e] == NOT_COUNTED)
            continue;
        float *share = &s->chosen[s->octave][s->cell[e]];
        *share += ((n_chosen[e] > 0) - *share) * NEW_SHARE;
    }
}
