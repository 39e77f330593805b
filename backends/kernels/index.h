/* Argument structs of index.cu: the indexer, which chooses the positions that rows attend to. */
#ifndef SL_BACKENDS_KERNELS_INDEX_H
#define SL_BACKENDS_KERNELS_INDEX_H

#include "backends/kernels/kernels.h"

/* As struct sl_op_hadamard; by: one over the root of n. grid (n_rows), SL_HADAMARD_THREADS(n)
 * threads, dynamic shared memory n * 4. */
#define SL_HADAMARD_THREADS(n) ((n) <= 64u ? 32u : (n) >= 512u ? 256u : (n) / 2u)
struct sl_karg_hadamard {
    float *x;
    uint32_t n;
    float by;
};

/* As struct sl_op_index_choose, in two steps, for rows row0 to row0 + n_rows: index_score_DIM,
 * heads of at most DIM, to scores [n_rows, stride]: grid (ceil(max_pages / pages_per_block),
 * n_rows), SL_INDEX_SCORE_THREADS; then index_choose: grid (n_rows), SL_INDEX_CHOOSE_THREADS. Rows
 * that attend to all of their positions have no scores. compressed_choose is the same of complete
 * blocks, which have one row each and are 64 to a "page" of the grid, with index_compressed_DIM. */
#define SL_INDEX_MAX_DIM        256u
#define SL_INDEX_SCORE_THREADS  128u
#define SL_INDEX_CHOOSE_THREADS 512u
struct sl_karg_index {
    const void *keys;
    uint64_t page_bytes;
    const float *q, *w;
    float *scores;
    uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t row0, n_heads, dim, max_pages, n_top, stride, pages_per_block, q8;
    struct sl_karg_block_rows of; /* ratio 1: positions */
};

/* As struct sl_op_block_choose, in two steps, for rows row0 to row0 + n_rows and heads head0 to
 * head0 + some_heads: index_block_score_DIM, heads of at most DIM, to scores [n_rows, some_heads,
 * stride], as integers that ascend as scores do: grid (ceil(stride / unit), ceil(n_rows /
 * rows_per_block), ceil(some_heads / 4)), SL_INDEX_SCORE_THREADS; then index_block_choose: grid
 * (some_heads, n_rows), SL_INDEX_CHOOSE_THREADS. stride: blocks of a row at most; unit: blocks that
 * a block of threads takes, 1 or no more than have SL_BLOCK_SPAN positions; rows_per_block: at most
 * SL_BLOCK_ROWS. Rows that attend to all of their blocks have no scores. */
#define SL_BLOCK_SPAN 128u
#define SL_BLOCK_ROWS 4u
struct sl_karg_blocks {
    const void *keys;
    uint64_t page_bytes;
    const float *q;
    uint32_t *scores, *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t row0, n_rows, head0, some_heads, n_heads, dim, max_pages, q8;
    uint32_t n_top, n_local, block, stride, unit, rows_per_block;
};

#endif
