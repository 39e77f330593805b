/* Grouped-query attention over blocks of positions, which an indexer chooses by the mean of their
 * keys: making these, choosing, and attention. Who owns the arguments, and until when: backend.h.
 */
#ifndef SL_BACKENDS_OPS_POOL_H
#define SL_BACKENDS_OPS_POOL_H

#include "backends/ops/index.h"
#include "backends/ops/kv.h"
#include "backends/ops/recurrent.h"

#include <stdint.h>

/* Positions are in blocks of `ratio`, a divisor of SL_KV_PAGE_TOKENS. A block's key is the mean of
 * its positions', normed and rotated, and made as its last row comes:
 *   sum = k of the block's positions, added one by one, ascending, from the first
 *   c   = sum * (1 / ratio), then as sl_op_rms_norm makes it with norm and eps
 * whose first 2 * n_freq elements are rotated (pairs i, i + n_freq) as those of a row at the
 * block's first position are, by angles as sl_op_rope_table makes them. It goes to row
 * b % (SL_KV_PAGE_TOKENS / ratio) of its positions' page in out, by out_table [., max_pages].
 * k [n_tok, n], norm [n], inv_freq [n_freq]; out: n_latent = n, n_rot 0
 * state: the sum so far, [n] f32; behind the last position of a block anything */
struct sl_op_pool_keys {
    const float *k, *norm, *inv_freq;
    struct sl_state_view state;
    struct sl_latent_view out;
    const uint32_t *out_table;
    uint32_t n_tok, n, ratio, n_freq;
    float eps, mscale;
};

/* sl_op_compressed_choose by a plain sum: among complete blocks b < row_len[t] / ratio those of the
 * highest scores sum_h max(q[t,h,:].k[b,:], 0), whose keys sl_op_pool_keys leaves. chosen [n_tok,
 * n_top], blocks. */
struct sl_op_pooled_choose {
    struct sl_latent_view keys;
    const float *q;
    uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top, ratio;
};

/* sl_op_attention over the positions of chosen blocks, then those behind the last complete block:
 * all heads of row t over blocks chosen[t, 0 .. n_top), ascending, and the positions from
 * row_len[t] / block * block on, in the order of operations that they would have if these were the
 * first positions of a sequence. Of rows that see no more than n_top complete blocks chosen is not
 * read: they get the same bits as there. chosen [n_tok, n_top]; the rest as in sl_op_attention. */
struct sl_op_pooled_attention {
    struct sl_op_block_attention blocks; /* chosen by row, not by KV head */
};

#endif
