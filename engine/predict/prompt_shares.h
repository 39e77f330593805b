/* How likely prompt rows are to choose an expert. Heat says how many of the rows would choose it if
 * they had nothing to do with each other; rows of one text choose alike. So what share of such
 * experts was chosen is counted, by octaves of the rows and half octaves of those that would choose
 * it, apart for experts in a slot and experts in none.
 *
 * For each step: begin, then place or leave_out every expert of the layer, list; when the layer's
 * router has spoken, learn. Counts and shares come in and go out as numbers: nothing here knows a
 * slot or a read. One thread; nothing is allocated. */
#ifndef SL_ENGINE_PROMPT_SHARES_H
#define SL_ENGINE_PROMPT_SHARES_H

#include "expert_cache/heat.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_SHARE_OCTAVES 14u /* of rows; the last: 8192 and more */
#define SL_SHARE_COLUMNS 28u /* half octaves of rows that would choose an expert */

/* Written by prompt_shares.c alone. */
struct sl_prompt_shares {
    /* 0..1: of the experts in no slot, then of those in one. */
    float chosen[SL_SHARE_OCTAVES][2 * SL_SHARE_COLUMNS];
    uint32_t n_expert;
    uint32_t octave; /* of the rows since begin */
    uint8_t *cell;   /* [n_expert] borrowed: which of chosen[octave] */
};

/* As of rows that have nothing to do with each other, until something has been learned. cell
 * [n_expert] must outlive s. */
void sl_prompt_shares_init(struct sl_prompt_shares *s, uint32_t n_expert, uint8_t *cell);
/* A plan for so many rows, one at least. Every expert must be placed or left out next. */
void sl_prompt_shares_begin(struct sl_prompt_shares *s, uint32_t n_rows);
/* n_uses: rows that would choose the expert, by its heat; not necessarily whole. */
void sl_prompt_shares_place(struct sl_prompt_shares *s, uint32_t expert, float n_uses,
                            bool in_slot);
/* An expert that need not be read: never listed, never counted. */
void sl_prompt_shares_leave_out(struct sl_prompt_shares *s, uint32_t expert);
/* Lists the experts worth reading, likeliest first, as ids of that layer: out_ids [n_expert].
 * Returns how many; the first *out_n_sure of them are as good as sure. */
uint32_t sl_prompt_shares_list(const struct sl_prompt_shares *s, uint32_t layer,
                               struct sl_expert_id *out_ids, uint32_t *out_n_sure);
/* n_chosen [n_expert]: rows that chose each expert of the layer that was planned. */
void sl_prompt_shares_learn(struct sl_prompt_shares *s, const uint32_t *n_chosen);

#endif
