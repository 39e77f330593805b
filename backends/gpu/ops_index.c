/* The indexer: index.cu. */
#include "backends/gpu/ops_internal.h"
#include "common/log.h"

#include <math.h>

_Static_assert(SL_KV_PAGE_TOKENS == 64, "index.cu counts in such pages");

/* Rows up to which a block takes one page, so that there are blocks enough; and pages for more
 * rows, whose queries a block then loads less often. */
#define FEW_ROWS      16u
#define PAGES_OF_MANY 4u

enum sl_status sl_gpu_hadamard(struct sl_device *d, const struct sl_op_hadamard *a) {
    struct sl_karg_hadamard k = {a->x, a->n, (float)(1 / sqrt((double)a->n))};
    return SL_LAUNCH(
        (struct sl_gpu *)d, SL_KERNEL_index_hadamard, ((struct sl_dim3){a->n_rows, 1, 1}),
        ((struct sl_dim3){SL_HADAMARD_THREADS(a->n), 1, 1}), a->n * (uint32_t)sizeof(float), k);
}

bool sl_gpu_index_fits(const struct sl_gpu *c, const struct sl_op_need *need) {
    enum sl_kernel_family score = need->op == SL_OP_block_choose ? SL_FAMILY_index_block_score
                                  : need->op == SL_OP_compressed_choose ? SL_FAMILY_index_compressed
                                                                        : SL_FAMILY_index_score;
    return need->head_dim_k <= SL_INDEX_MAX_DIM &&
           sl_gpu_has(c, score, sl_gpu_key_class(need->head_dim_k));
}

/* Rows of a launch whose scores need row_bytes each. */
static uint32_t wave_rows(const struct sl_gpu *c, uint32_t n_tok, uint64_t row_bytes) {
    uint64_t fit = c->scratch_bytes / row_bytes;
    uint32_t wave = fit < n_tok ? (uint32_t)fit : n_tok;
    return wave < SL_GPU_MAX_GRID_Y ? wave : SL_GPU_MAX_GRID_Y;
}

static enum sl_status too_long(const char *op, uint32_t dim) {
    sl_error("%s: keys of %u elements; at most %u", op, dim, SL_INDEX_MAX_DIM);
    return SL_ERR_UNSUPPORTED;
}

/* Among rows of keys for `ratio` positions each; scores: by which kernels. */
static enum sl_status choose(struct sl_gpu *c, const char *op, const struct sl_op_index_choose *a,
                             uint32_t ratio, enum sl_kernel_family scores) {
    uint32_t n_pages =
        sl_ceil_div((uint64_t)a->max_pages * SL_KV_PAGE_TOKENS / ratio, SL_KV_PAGE_TOKENS);
    n_pages = n_pages ? n_pages : 1; /* blocks longer than all of it */
    struct sl_karg_index k = {.keys = a->keys.rows,
                              .page_bytes = a->keys.page_bytes,
                              .q = a->q,
                              .w = a->w,
                              .scores = c->scratch,
                              .chosen = a->chosen,
                              .page_table = a->page_table,
                              .row_seq = a->row_seq,
                              .row_len = a->row_len,
                              .stride = n_pages * SL_KV_PAGE_TOKENS,
                              .n_heads = a->n_heads,
                              .dim = a->keys.n_latent,
                              .max_pages = a->max_pages,
                              .n_top = a->n_top,
                              .pages_per_block = a->n_tok <= FEW_ROWS ? 1 : PAGES_OF_MANY,
                              .q8 = a->keys.dtype == SL_DTYPE_Q8_0,
                              .of = sl_gpu_block_rows(ratio)};
    if (k.dim > SL_INDEX_MAX_DIM)
        return too_long(op, k.dim);
    uint32_t wave = wave_rows(c, a->n_tok, (uint64_t)k.stride * sizeof *k.scores);
    for (uint32_t n; k.row0 < a->n_tok; k.row0 += n) {
        n = a->n_tok - k.row0 < wave ? a->n_tok - k.row0 : wave;
        if (k.stride > k.n_top) /* else every row sees all of its positions */
            SL_TRY(SL_LAUNCH(c, sl_kernel_of(scores, sl_gpu_key_class(k.dim)),
                             ((struct sl_dim3){sl_ceil_div(n_pages, k.pages_per_block), n, 1}),
                             ((struct sl_dim3){SL_INDEX_SCORE_THREADS, 1, 1}), 0, k));
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_index_choose, ((struct sl_dim3){n, 1, 1}),
                         ((struct sl_dim3){SL_INDEX_CHOOSE_THREADS, 1, 1}), 0, k));
    }
    return SL_OK;
}

enum sl_status sl_gpu_index_choose(struct sl_device *d, const struct sl_op_index_choose *a) {
    return choose((struct sl_gpu *)d, "index_choose", a, 1, SL_FAMILY_index_score);
}

enum sl_status sl_gpu_compressed_choose(struct sl_device *d,
                                        const struct sl_op_compressed_choose *a) {
    return choose((struct sl_gpu *)d, "compressed_choose", &a->choice, a->ratio,
                  SL_FAMILY_index_compressed);
}

/* Heads [k->head0, k->head0 + k->some_heads), so many rows at once as the scratch has room for. */
static enum sl_status choose_blocks(struct sl_gpu *c, struct sl_karg_blocks *k, uint32_t n_tok) {
    uint32_t wave = wave_rows(c, n_tok, (uint64_t)k->some_heads * k->stride * sizeof *k->scores);
    enum sl_kernel score = sl_kernel_of(SL_FAMILY_index_block_score, sl_gpu_key_class(k->dim));
    for (k->row0 = 0; k->row0 < n_tok; k->row0 += k->n_rows) {
        k->n_rows = n_tok - k->row0 < wave ? n_tok - k->row0 : wave;
        if (k->stride > k->n_top) /* else every row sees all of its blocks */
            SL_TRY(SL_LAUNCH(c, score,
                             ((struct sl_dim3){sl_ceil_div(k->stride, k->unit),
                                               sl_ceil_div(k->n_rows, k->rows_per_block),
                                               sl_ceil_div(k->some_heads, 4)}),
                             ((struct sl_dim3){SL_INDEX_SCORE_THREADS, 1, 1}), 0, *k));
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_index_block_choose,
                         ((struct sl_dim3){k->some_heads, k->n_rows, 1}),
                         ((struct sl_dim3){SL_INDEX_CHOOSE_THREADS, 1, 1}), 0, *k));
    }
    return SL_OK;
}

enum sl_status sl_gpu_block_choose(struct sl_device *d, const struct sl_op_block_choose *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    bool few = a->n_tok <= FEW_ROWS;
    uint32_t span = few ? SL_KV_PAGE_TOKENS : SL_BLOCK_SPAN;
    struct sl_karg_blocks k = {
        .keys = a->keys.rows,
        .page_bytes = a->keys.page_bytes,
        .q = a->q,
        .scores = c->scratch,
        .chosen = a->chosen,
        .page_table = a->page_table,
        .row_seq = a->row_seq,
        .row_len = a->row_len,
        .n_heads = a->n_heads,
        .dim = a->keys.n_latent,
        .max_pages = a->max_pages,
        .q8 = a->keys.dtype == SL_DTYPE_Q8_0,
        .n_top = a->n_top,
        .n_local = a->n_local,
        .block = a->block,
        .stride = sl_ceil_div((uint64_t)a->max_pages * SL_KV_PAGE_TOKENS, a->block),
        .unit = a->block < span ? span / a->block : 1,
        .rows_per_block = few ? 1 : SL_BLOCK_ROWS};
    if (k.dim > SL_INDEX_MAX_DIM)
        return too_long("block_choose", k.dim);
    /* A row has no more blocks than positions, for which there is room. */
    uint64_t fit = c->scratch_bytes / ((uint64_t)k.stride * sizeof *k.scores);
    for (; k.head0 < a->n_heads; k.head0 += k.some_heads) {
        k.some_heads = a->n_heads - k.head0 < fit ? a->n_heads - k.head0 : (uint32_t)fit;
        SL_TRY(choose_blocks(c, &k, a->n_tok));
    }
    return SL_OK;
}
