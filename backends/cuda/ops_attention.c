/* sl_op_attention and sl_op_kv_write. */
#include "backends/cuda/ops_internal.h"

uint64_t sl_cuda_attention_scratch(const struct sl_device_limits *limits) {
    uint64_t rows = limits->max_tok < SL_ATTN_WAVE_ROWS ? limits->max_tok : SL_ATTN_WAVE_ROWS;
    return rows * limits->max_heads * SL_ATTN_SPLITS * (limits->max_head_dim + 2) * 4;
}

static struct sl_karg_kv kv_args(const struct sl_kv_view *kv) {
    return (struct sl_karg_kv){.k = kv->k,
                               .v = kv->v,
                               .k_page_bytes = kv->k_page_bytes,
                               .v_page_bytes = kv->v_page_bytes,
                               .n_kv_heads = kv->n_kv_heads,
                               .dim_k = kv->head_dim_k,
                               .dim_v = kv->head_dim_v,
                               .q8 = kv->dtype == SL_DTYPE_Q8_0};
}

enum sl_status sl_cuda_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_karg_kv_write k = {.kv = kv_args(&a->kv),
                                 .k = a->k,
                                 .v = a->v,
                                 .slot = a->slot,
                                 .n_tok = a->n_tok,
                                 .stride_k = a->stride_k,
                                 .stride_v = a->stride_v};
    struct sl_dim3 grid = {a->n_tok, a->kv.n_kv_heads, 1};
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_kv_write, grid, ((struct sl_dim3){64, 1, 1}), 0,
                     k);
}

enum sl_status sl_cuda_attention(struct sl_device *d, const struct sl_op_attention *a) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    struct sl_karg_attention k = {.kv = kv_args(&a->kv),
                                  .q = a->q,
                                  .sinks = a->sinks,
                                  .y = a->y,
                                  .part = c->scratch,
                                  .page_table = a->page_table,
                                  .row_seq = a->row_seq,
                                  .row_len = a->row_len,
                                  .n_heads = a->n_heads,
                                  .stride_q = a->stride_q,
                                  .max_pages = a->max_pages,
                                  .window = a->window,
                                  .scale = a->scale};
    uint32_t group = a->n_heads / a->kv.n_kv_heads;
    uint32_t heads = a->kv.n_kv_heads * sl_ceil_div(group, SL_ATTN_HEAD_BLOCK);
    uint32_t dim = a->kv.head_dim_k > a->kv.head_dim_v ? a->kv.head_dim_k : a->kv.head_dim_v;
    uint32_t splits = a->max_pages < SL_ATTN_SPLITS ? a->max_pages : SL_ATTN_SPLITS;
    uint32_t smem = SL_ATTN_SMEM(a->kv.head_dim_k, dim);
    for (uint32_t row0 = 0; row0 < a->n_tok; row0 += SL_ATTN_WAVE_ROWS) {
        k.row0 = row0;
        k.n_rows = a->n_tok - row0 < SL_ATTN_WAVE_ROWS ? a->n_tok - row0 : SL_ATTN_WAVE_ROWS;
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_row, ((struct sl_dim3){splits, heads, k.n_rows}),
                         ((struct sl_dim3){128, 1, 1}), smem, k));
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_join, ((struct sl_dim3){a->n_heads, k.n_rows, 1}),
                         ((struct sl_dim3){128, 1, 1}), 0, k));
    }
    return SL_OK;
}
