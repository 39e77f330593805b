/* Compressed attention: compress.cu, and the kernels of attention.cu that attend to rows of blocks
 * and of a window. */
#include "backends/gpu/ops_internal.h"

#include <math.h>

/* ---- compression ---- */

struct sl_karg_block_rows sl_gpu_block_rows(uint32_t ratio) {
    struct sl_karg_block_rows b = {.ratio = ratio, .pages = 1};
    if (ratio > SL_KV_PAGE_TOKENS)
        b.pages = ratio / SL_KV_PAGE_TOKENS;
    while (ratio && (1u << b.shift) < sl_block_rows(ratio))
        b.shift++;
    return b;
}

bool sl_gpu_compress_fits(const struct sl_gpu *c, const struct sl_op_need *need) {
    return need->head_dim_k * sizeof(float) <= c->max_smem_bytes;
}

enum sl_status sl_gpu_compress(struct sl_device *d, const struct sl_op_compress *a) {
    struct sl_karg_compress k = {.kv = a->kv,
                                 .gate = a->gate,
                                 .ape = a->ape,
                                 .norm = a->norm,
                                 .inv_freq = a->inv_freq,
                                 .kept = a->kept,
                                 .out = a->out.rows,
                                 .kept_bytes = a->kept_bytes,
                                 .out_page_bytes = a->out.page_bytes,
                                 .slot = a->slot,
                                 .kept_table = a->kept_table,
                                 .out_table = a->out_table,
                                 .row_seq = a->row_seq,
                                 .row_len = a->row_len,
                                 .n = a->n,
                                 .max_pages = a->max_pages,
                                 .n_freq = a->n_freq,
                                 .spread = a->spread,
                                 .overlap = a->overlap,
                                 .q8 = a->out.dtype == SL_DTYPE_Q8_0,
                                 .eps = a->eps,
                                 .mscale = a->mscale,
                                 .by = a->spread ? (float)(1 / sqrt((double)a->spread)) : 0,
                                 .of = sl_gpu_block_rows(a->ratio)};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_compress, ((struct sl_dim3){a->n_tok, 1, 1}),
                     ((struct sl_dim3){SL_COMPRESS_THREADS(a->n), 1, 1}),
                     a->n * (uint32_t)sizeof(float), k);
}

/* ---- attention ---- */

static struct sl_karg_attention attention_args(const struct sl_gpu *c,
                                               const struct sl_op_compressed_attention *a) {
    return (struct sl_karg_attention){.kv = sl_gpu_latents(&a->kv),
                                      .q = a->q,
                                      .sinks = a->sinks,
                                      .y = a->y,
                                      .part = c->scratch,
                                      .page_table = a->page_table,
                                      .row_seq = a->row_seq,
                                      .row_len = a->row_len,
                                      .n_heads = a->n_heads,
                                      .stride_q = a->n_heads * a->kv.n_latent,
                                      .max_pages = a->max_pages,
                                      .window = a->window,
                                      .scale = a->scale,
                                      .chosen = a->chosen,
                                      .n_top = a->n_top,
                                      .blocks = a->blocks.rows,
                                      .block_page_bytes = a->blocks.page_bytes,
                                      .block_table = a->block_table,
                                      .of = sl_gpu_block_rows(a->ratio)};
}

/* Rows that a row attends to at most. */
static uint64_t most_rows(const struct sl_op_compressed_attention *a) {
    uint64_t positions = (uint64_t)a->max_pages * SL_KV_PAGE_TOKENS;
    uint64_t blocks = a->ratio ? positions / a->ratio : 0;
    if (a->chosen && blocks > a->n_top)
        blocks = a->n_top;
    return blocks + (a->window < positions ? a->window : positions);
}

enum sl_status sl_gpu_compressed_attention(struct sl_device *d,
                                           const struct sl_op_compressed_attention *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_karg_attention k = attention_args(c, a);
    uint64_t pages = sl_div_up(most_rows(a), SL_KV_PAGE_TOKENS);
    uint32_t splits = pages < SL_ATTN_SPLITS ? (uint32_t)pages : SL_ATTN_SPLITS;
    uint32_t wave = sl_gpu_wave_rows(c, a->n_heads, SL_ATTN_SPLITS, k.kv.dim_v);
    for (; k.row0 < a->n_tok; k.row0 += k.n_rows) {
        k.n_rows = a->n_tok - k.row0 < wave ? a->n_tok - k.row0 : wave;
        struct sl_dim3 grid = {splits, sl_ceil_div(a->n_heads, SL_ATTN_HEAD_BLOCK), k.n_rows};
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_compressed, grid, ((struct sl_dim3){128, 1, 1}),
                         SL_ATTN_SMEM(k.kv.dim_k, k.kv.dim_k), k));
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_attention_compressed_join,
                         ((struct sl_dim3){a->n_heads, k.n_rows, 1}), ((struct sl_dim3){128, 1, 1}),
                         0, k));
    }
    return SL_OK;
}
