/* Attention over paged KV, and writing to its pages. */
#include "backends/level_zero/ops.h"
#include "backends/ops/attention.h"
#include "backends/ops/index.h"
#include "common/log.h"

#define UNIT 32u /* elements of a work-item of kernels/kv_write.cl */

/* Rows of n_heads heads to pages of one layer. */
static enum sl_status write(struct sl_level_zero *z, enum sl_dtype dtype, const float *x,
                            void *pages, const uint32_t *slot, size_t page_bytes, uint32_t n_tok,
                            uint32_t n_heads, uint32_t head_dim, uint32_t stride) {
    const struct sl_lz_kv_write k = {.x = sl_addr_of(x),
                                     .pages = sl_addr_of(pages),
                                     .slot = sl_addr_of(slot),
                                     .page_bytes = page_bytes,
                                     .n_tok = n_tok,
                                     .n_heads = n_heads,
                                     .head_dim = head_dim,
                                     .stride = stride,
                                     .q8 = dtype == SL_DTYPE_Q8_0};
    uint64_t units = (uint64_t)n_tok * n_heads * sl_div_up(head_dim, UNIT);
    return units ? SL_LZ_LAUNCH(z, kv_write, 0, sl_lz_elems(units), k) : SL_OK;
}

enum sl_status sl_lz_op_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    const struct sl_kv_view *kv = &a->kv;
    SL_TRY(write(z, kv->dtype, a->k, kv->k, a->slot, kv->k_page_bytes, a->n_tok, kv->n_kv_heads,
                 kv->head_dim_k, a->stride_k));
    if (a->n_tok)
        sl_lz_overlap(z);
    return write(z, kv->dtype, a->v, kv->v, a->slot, kv->v_page_bytes, a->n_tok, kv->n_kv_heads,
                 kv->head_dim_v, a->stride_v);
}

enum sl_status sl_lz_op_latent_write(struct sl_device *d, const struct sl_op_latent_write *a) {
    const struct sl_latent_view *kv = &a->kv;
    return write((struct sl_level_zero *)d, kv->dtype, a->x, kv->rows, a->slot, kv->page_bytes,
                 a->n_tok, 1, kv->n_latent + kv->n_rot, a->stride);
}

/* v_width: elements of a row of V. */
static struct sl_lz_attention args_of(const struct sl_op_attention *a, uint32_t v_width) {
    return (struct sl_lz_attention){.k = sl_addr_of(a->kv.k),
                                    .v = sl_addr_of(a->kv.v),
                                    .q = sl_addr_of(a->q),
                                    .sinks = sl_addr_of(a->sinks),
                                    .y = sl_addr_of(a->y),
                                    .page_table = sl_addr_of(a->page_table),
                                    .row_seq = sl_addr_of(a->row_seq),
                                    .row_len = sl_addr_of(a->row_len),
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
                                    .v_width = v_width,
                                    .scale = a->scale,
                                    .softcap = a->softcap};
}

static enum sl_status attend(struct sl_device *d, const struct sl_lz_attention *k) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    bool narrow = k->dim_k <= SL_LZ_NARROW_DIM && k->dim_v <= SL_LZ_NARROW_DIM;
    enum sl_lz_kernel kernel = k->chosen ? SL_LZ_attention_chosen
                               : narrow  ? SL_LZ_attention
                                         : SL_LZ_attention_wide;
    uint64_t n = (uint64_t)k->n_tok * k->n_heads;
    if (k->dim_k > SL_LZ_MAX_HEAD_DIM || k->dim_v > SL_LZ_MAX_HEAD_DIM) {
        sl_error("attention: heads of %u and %u elements; at most %u", k->dim_k, k->dim_v,
                 SL_LZ_MAX_HEAD_DIM);
        return SL_ERR_UNSUPPORTED; /* of a model sl_lz_supports() says so before it is loaded */
    }
    if (!n)
        return SL_OK;
    /* Few rows would leave most of the card idle: their parts have a group each. */
    struct sl_lz_attention own = *k;
    if (n <= SL_LZ_ATTENTION_ROWS &&
        n * SL_LZ_ATTENTION_PARTS * (k->dim_v + 2) * sizeof(float) <= z->scratch_bytes)
        own.parts = sl_addr_of(z->scratch);
    SL_TRY(sl_lz_launch(z, kernel, 0, own.parts ? n * SL_LZ_ATTENTION_PARTS : n, &own, sizeof own));
    const struct sl_lz_attention_join join = {.parts = own.parts,
                                              .sinks = k->sinks,
                                              .y = k->y,
                                              .row_len = k->row_len,
                                              .n_tok = k->n_tok,
                                              .n_heads = k->n_heads,
                                              .dim_v = k->dim_v,
                                              .window = k->window,
                                              .chunk = k->chunk,
                                              .n_top = k->chosen ? k->n_top : 0};
    return own.parts ? SL_LZ_LAUNCH(z, attention_join, 0, n, join) : SL_OK;
}

enum sl_status sl_lz_op_attention(struct sl_device *d, const struct sl_op_attention *a) {
    const struct sl_lz_attention k = args_of(a, a->kv.head_dim_v);
    return attend(d, &k);
}

/* chosen: NULL, or n_top positions of each row. */
static enum sl_status attend_latents(struct sl_device *d, const struct sl_op_latent_attention *a,
                                     const uint32_t *chosen, uint32_t n_top) {
    const struct sl_op_attention op = sl_latent_as_attention(a);
    struct sl_lz_attention k = args_of(&op, op.kv.head_dim_k);
    k.chosen = sl_addr_of(chosen), k.n_top = n_top;
    return attend(d, &k);
}

enum sl_status sl_lz_op_latent_attention(struct sl_device *d,
                                         const struct sl_op_latent_attention *a) {
    return attend_latents(d, a, NULL, 0);
}

enum sl_status sl_lz_op_chosen_attention(struct sl_device *d,
                                         const struct sl_op_chosen_attention *a) {
    const struct sl_op_latent_attention all = sl_chosen_as_latent(a);
    return attend_latents(d, &all, a->chosen, a->n_top);
}
