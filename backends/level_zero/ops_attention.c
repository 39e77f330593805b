/* Attention over paged KV, and writing to its pages. */
#include "backends/level_zero/ops.h"

#define UNIT 32u /* elements of a work-item of kernels/kv_write.cl */

/* Rows of n_heads heads to pages of one layer. */
static enum sl_status write(struct sl_level_zero *z, const struct sl_op_kv_write *a, const float *x,
                            void *pages, size_t page_bytes, uint32_t head_dim, uint32_t stride) {
    const struct sl_lz_kv_write k = {.x = sl_lz_addr_of(x),
                                     .pages = sl_lz_addr_of(pages),
                                     .slot = sl_lz_addr_of(a->slot),
                                     .page_bytes = page_bytes,
                                     .n_tok = a->n_tok,
                                     .n_heads = a->kv.n_kv_heads,
                                     .head_dim = head_dim,
                                     .stride = stride,
                                     .q8 = a->kv.dtype == SL_DTYPE_Q8_0};
    uint64_t units = (uint64_t)a->n_tok * k.n_heads * sl_lz_div_up(head_dim, UNIT);
    return units ? SL_LZ_LAUNCH(z, kv_write, 0, sl_lz_elems(units), k) : SL_OK;
}

enum sl_status sl_lz_op_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    const struct sl_kv_view *kv = &a->kv;
    SL_TRY(write(z, a, a->k, kv->k, kv->k_page_bytes, kv->head_dim_k, a->stride_k));
    if (a->n_tok)
        sl_lz_overlap(z);
    return write(z, a, a->v, kv->v, kv->v_page_bytes, kv->head_dim_v, a->stride_v);
}

enum sl_status sl_lz_op_attention(struct sl_device *d, const struct sl_op_attention *a) {
    const struct sl_lz_attention k = {.k = sl_lz_addr_of(a->kv.k),
                                      .v = sl_lz_addr_of(a->kv.v),
                                      .q = sl_lz_addr_of(a->q),
                                      .sinks = sl_lz_addr_of(a->sinks),
                                      .y = sl_lz_addr_of(a->y),
                                      .page_table = sl_lz_addr_of(a->page_table),
                                      .row_seq = sl_lz_addr_of(a->row_seq),
                                      .row_len = sl_lz_addr_of(a->row_len),
                                      .k_page_bytes = a->kv.k_page_bytes,
                                      .v_page_bytes = a->kv.v_page_bytes,
                                      .n_tok = a->n_tok,
                                      .n_heads = a->n_heads,
                                      .n_kv_heads = a->kv.n_kv_heads,
                                      .dim_k = a->kv.head_dim_k,
                                      .dim_v = a->kv.head_dim_v,
                                      .stride_q = a->stride_q,
                                      .max_pages = a->max_pages,
                                      .window = a->window,
                                      .chunk = a->chunk,
                                      .q8 = a->kv.dtype == SL_DTYPE_Q8_0,
                                      .scale = a->scale,
                                      .softcap = a->softcap};
    /* sl_lz_supports says so of dimensions before anything is loaded */
    if (k.dim_k > SL_LZ_MAX_HEAD_DIM || k.dim_v > SL_LZ_MAX_HEAD_DIM)
        return SL_ERR_UNSUPPORTED;
    uint64_t n = (uint64_t)a->n_tok * a->n_heads;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, attention, 0, n, k) : SL_OK;
}
