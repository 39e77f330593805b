/* Blocks of positions compressed to one row each: making the rows, choosing among them, and
 * attention over them. Who owns the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_COMPRESS_H
#define SL_BACKENDS_OPS_COMPRESS_H

#include "backends/ops/index.h"
#include "backends/ops/kv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of compressed keys: positions are in blocks of `ratio`, which divides SL_KV_PAGE_TOKENS or is a
 * multiple of it. A block has one row, in the page of its last position: so many to a page, of
 * which a longer block's is the first. */
static inline uint32_t sl_block_rows(uint32_t ratio) {
    return ratio < SL_KV_PAGE_TOKENS ? SL_KV_PAGE_TOKENS / ratio : 1;
}
/* Which page of its sequence block b is in. Its row there: b % sl_block_rows(ratio). */
static inline uint32_t sl_block_page(uint32_t b, uint32_t ratio) {
    return (uint32_t)(((uint64_t)b + 1) * ratio - 1) / SL_KV_PAGE_TOKENS;
}

/* Compresses blocks of positions to one row each, as their last rows come. Of each row of the step
 * kv and gate [n_tok, width] are kept, gate + ape[position % ratio], for blocks that are not
 * complete; width = n, or with overlap 2 n. Of a row at position p with (p + 1) % ratio == 0
 *   c[i] = sum_j e_j kv_j[i] / sum_j e_j,  e_j = exp(gate_j[i] - max_j gate_j[i])
 * over the ratio positions j up to p, ascending, one fused multiply-add each from 0; with overlap
 * over the ratio positions before these too, of which the first n elements are taken, and the
 * second n of the others; there are none before the sequence's first. Then c becomes what
 * sl_op_rms_norm makes of it with norm and eps, its last 2 * n_freq elements are rotated (pairs 2i,
 * 2i + 1) as a row at position p + 1 - ratio is, by angles as sl_op_rope_table makes them, each
 * `spread` elements go through sl_op_hadamard, and the row goes to its place in out. kept: page q
 * at kept + q * kept_bytes as [SL_KV_PAGE_TOKENS, 2, width] f32, kv before gate; row t is at
 * slot[t], those before it where kept_table says, and out's where out_table does, both [.,
 * max_pages] as page_table in sl_op_attention. Rows of one sequence are adjacent, in the order of
 * their positions and without gaps. out: n_latent = n, n_rot 0. ape [ratio, width], norm [n],
 * inv_freq [n_freq]. Source: DeepSeek-AI 2026, "DeepSeek-V4", compressed sparse and heavily
 * compressed attention. */
struct sl_op_compress {
    const float *kv, *gate, *ape, *norm, *inv_freq;
    void *kept;
    size_t kept_bytes;
    struct sl_latent_view out;
    const uint32_t *slot, *kept_table, *out_table, *row_seq, *row_len;
    uint32_t n_tok, n, ratio, max_pages, n_freq;
    uint32_t spread; /* 0: not */
    bool overlap;
    float eps, mscale;
};

/* sl_op_index_choose among complete blocks of positions: b < row_len[t] / ratio, whose keys have
 * one row a block, as sl_op_compress leaves them. choice.chosen [n_tok, n_top], blocks. */
struct sl_op_compressed_choose {
    struct sl_op_index_choose choice;
    uint32_t ratio;
};

/* Attention over the rows of complete blocks, then those of a window of positions: row t over
 * blocks chosen[t, 0 .. min(n_top, row_len[t] / ratio)), ascending, or, where chosen is NULL, all b
 * < row_len[t] / ratio, and after these over the positions [max(0, row_len[t] - window),
 * row_len[t]), in the order of operations that sl_op_attention would have if these rows were the
 * first positions of a sequence. A row is key and value of all heads.
 * kv: of positions, n_rot 0; blocks: of the same shape, one row a block as sl_op_compress leaves
 * them; ratio 0: there are none. page_table is of kv, block_table of blocks; sinks, q, y, row_seq
 * and row_len as in sl_op_attention. window at least 1. */
struct sl_op_compressed_attention {
    struct sl_latent_view kv, blocks;
    const float *q, *sinks;
    float *y;
    const uint32_t *chosen;
    const uint32_t *page_table, *block_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, window, ratio, n_top;
    float scale;
};

#endif
