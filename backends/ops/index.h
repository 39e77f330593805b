/* Choosing the positions or blocks that a row attends to, and attention over these alone. Who owns
 * the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_INDEX_H
#define SL_BACKENDS_OPS_INDEX_H

#include "backends/ops/attention.h"
#include "backends/ops/kv.h"

#include <stdint.h>

/* Which positions a row attends to: of the positions j < row_len[t] of its sequence the n_top of
 * the highest scores s[t,j] = sum_h w[t,h] * max(q[t,h,:].k[j,:], 0) or all of them where there are
 * no more. Of equal scores the lower position goes first; -0 equals 0, and what is not a number is
 * below all numbers. chosen[t, 0 .. min(n_top, row_len[t])) are the positions in ascending order;
 * what is behind them is not written. Dot products are as in sl_op_attention, with a scale of 1 (a
 * positive one would change no order); the sum is a chain of fused multiply-adds from 0 on, h
 * ascending. So a row's choice depends on nothing but its own sequence. keys: n_rot 0, one row of
 * n_latent elements per position; q [n_tok, n_heads, n_latent], w [n_tok, n_heads], chosen [n_tok,
 * n_top]; page_table, row_seq and row_len as in sl_op_attention. Source: DeepSeek-AI 2025,
 * "DeepSeek-V3.2", section 2.1 (lightning indexer). */
struct sl_op_index_choose {
    struct sl_latent_view keys;
    const float *q, *w;
    uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top;
};

/* sl_op_latent_attention over chosen positions alone: row t over chosen[t, 0 .. n), n = min(n_top,
 * row_len[t]), ascending, in the order of operations that it would have if these were positions 0
 * to n of a sequence. So rows that have no more than n_top get the same bits as there. */
struct sl_op_chosen_attention {
    struct sl_latent_view kv;
    const float *q;
    float *y;
    const uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top;
    float scale;
};

/* The same over all positions. */
static inline struct sl_op_latent_attention
sl_chosen_as_latent(const struct sl_op_chosen_attention *a) {
    return (struct sl_op_latent_attention){.kv = a->kv,
                                           .q = a->q,
                                           .y = a->y,
                                           .page_table = a->page_table,
                                           .row_seq = a->row_seq,
                                           .row_len = a->row_len,
                                           .n_tok = a->n_tok,
                                           .n_decode = a->n_decode,
                                           .n_heads = a->n_heads,
                                           .max_pages = a->max_pages,
                                           .scale = a->scale};
}

/* Which blocks of positions each head of a row attends to. Positions are in blocks of `block`, of
 * which a row sees those that begin before row_len[t]; of these each head chooses n_top, or all
 * where there are no more: first the last n_local, then those of the highest scores
 * s[t,h,b] = max_j q[t,h,:].k[j,:] over the positions j < row_len[t] of block b. Of equal scores
 * the lower block goes first; -0 equals 0; products that are not numbers are left out, and minus
 * infinity is the score where none is left. chosen[t, h, 0 .. min(n_top, blocks)) are the blocks in
 * ascending order; what is behind them is not written. Dot products are as in sl_op_attention, with
 * a scale of 1 (a positive one would change no order). So a row's choice depends on nothing but its
 * own sequence. keys: n_rot 0, one row of n_latent elements per position for all heads; q [n_tok,
 * n_heads, n_latent], chosen [n_tok, n_heads, n_top]; n_local 1 to n_top; page_table, row_seq and
 * row_len as in sl_op_attention. Source: MiniMax 2026, "MiniMax-M3", its sparse attention. */
struct sl_op_block_choose {
    struct sl_latent_view keys;
    const float *q;
    uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top, n_local, block;
};

/* sl_op_attention over the positions of chosen blocks alone: the heads of row t that share KV head
 * g over those of blocks chosen[t, g, 0 .. n_top), ascending, of which the last is the row's own,
 * in the order of operations that they would have if these were the first positions of a sequence.
 * Of rows that see no more than n_top blocks chosen is not read: they get the same bits as there.
 * chosen [n_tok, n_kv_heads, n_top]; the rest as in sl_op_attention. */
struct sl_op_block_attention {
    struct sl_kv_view kv;
    const float *q;
    float *y;
    const uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, stride_q, max_pages, n_top, block;
    float scale;
};

#endif
