/* The indexer: the rotation of its queries and keys, and which positions rows attend to. */
#include "backends/level_zero/ops.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"

#include <math.h>

_Static_assert(SL_KV_PAGE_TOKENS == 64, "kernels/index_score.cl counts in such pages");

enum sl_status sl_lz_op_hadamard(struct sl_device *d, const struct sl_op_hadamard *a) {
    const struct sl_lz_hadamard k = {sl_addr_of(a->x), a->n_rows, a->n,
                                     (float)(1 / sqrt((double)a->n))};
    return a->n_rows ? SL_LZ_LAUNCH((struct sl_level_zero *)d, hadamard, 0, a->n_rows, k) : SL_OK;
}

enum sl_status sl_lz_op_index_choose(struct sl_device *d, const struct sl_op_index_choose *a) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    struct sl_lz_index k = {.keys = sl_addr_of(a->keys.rows),
                            .q = sl_addr_of(a->q),
                            .w = sl_addr_of(a->w),
                            .scores = sl_addr_of(z->scratch),
                            .chosen = sl_addr_of(a->chosen),
                            .page_table = sl_addr_of(a->page_table),
                            .row_seq = sl_addr_of(a->row_seq),
                            .row_len = sl_addr_of(a->row_len),
                            .page_bytes = a->keys.page_bytes,
                            .n_heads = a->n_heads,
                            .dim = a->keys.n_latent,
                            .max_pages = a->max_pages,
                            .n_top = a->n_top,
                            .q8 = a->keys.dtype == SL_DTYPE_Q8_0};
    uint64_t row_bytes = (uint64_t)a->max_pages * SL_KV_PAGE_TOKENS * sizeof(float);
    uint64_t fit = z->scratch_bytes / row_bytes; /* a row does: max_pages is within the limits */
    for (; k.row0 < a->n_tok; k.row0 += k.n_rows) {
        k.n_rows = a->n_tok - k.row0 < fit ? a->n_tok - k.row0 : (uint32_t)fit;
        if ((uint64_t)a->max_pages * SL_KV_PAGE_TOKENS > a->n_top) /* else rows attend to all */
            SL_TRY(SL_LZ_LAUNCH(z, index_score, 0, (uint64_t)k.n_rows * a->max_pages, k));
        SL_TRY(SL_LZ_LAUNCH(z, index_choose, 0, k.n_rows, k));
    }
    return SL_OK;
}
