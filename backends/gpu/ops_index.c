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
    return need->head_dim_k <= SL_INDEX_MAX_DIM &&
           sl_gpu_has(c, SL_FAMILY_index_score, sl_gpu_key_class(need->head_dim_k));
}

enum sl_status sl_gpu_index_choose(struct sl_device *d, const struct sl_op_index_choose *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_karg_index k = {.keys = a->keys.rows,
                              .page_bytes = a->keys.page_bytes,
                              .q = a->q,
                              .w = a->w,
                              .scores = c->scratch,
                              .chosen = a->chosen,
                              .page_table = a->page_table,
                              .row_seq = a->row_seq,
                              .row_len = a->row_len,
                              .n_heads = a->n_heads,
                              .dim = a->keys.n_latent,
                              .max_pages = a->max_pages,
                              .n_top = a->n_top,
                              .stride = a->max_pages * SL_KV_PAGE_TOKENS,
                              .pages_per_block = a->n_tok <= FEW_ROWS ? 1 : PAGES_OF_MANY,
                              .q8 = a->keys.dtype == SL_DTYPE_Q8_0};
    if (k.dim > SL_INDEX_MAX_DIM) {
        sl_error("index_choose: keys of %u elements; at most %u", k.dim, SL_INDEX_MAX_DIM);
        return SL_ERR_UNSUPPORTED;
    }
    uint64_t fit = c->scratch_bytes / ((uint64_t)k.stride * sizeof(float));
    uint32_t wave = fit < a->n_tok ? (uint32_t)fit : a->n_tok;
    wave = wave > SL_GPU_MAX_GRID_Y ? SL_GPU_MAX_GRID_Y : wave;
    for (uint32_t n; k.row0 < a->n_tok; k.row0 += n) {
        n = a->n_tok - k.row0 < wave ? a->n_tok - k.row0 : wave;
        if (k.stride > a->n_top) /* else every row sees all of its positions */
            SL_TRY(SL_LAUNCH(c, sl_kernel_of(SL_FAMILY_index_score, sl_gpu_key_class(k.dim)),
                             ((struct sl_dim3){sl_ceil_div(a->max_pages, k.pages_per_block), n, 1}),
                             ((struct sl_dim3){SL_INDEX_SCORE_THREADS, 1, 1}), 0, k));
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_index_choose, ((struct sl_dim3){n, 1, 1}),
                         ((struct sl_dim3){SL_INDEX_CHOOSE_THREADS, 1, 1}), 0, k));
    }
    return SL_OK;
}
