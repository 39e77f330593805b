/* Attention over paged KV, and writing to its pages. */
#include "backends/vulkan/ops.h"

#define NARROW_DIM   256u  /* shaders/attention.comp */
#define MAX_HEAD_DIM 1024u /* shaders/attention_wide.comp */
#define UNITS        32u   /* elements of a thread of shaders/kv_write.comp */
#define WRITE_UNITS  64u   /* ... and its threads */

bool sl_vk_supports(const struct sl_device *d, const struct sl_op_need *need) {
    (void)d;
    if (need->op == SL_OP_delta_rule)
        return need->head_dim_k <= SL_VK_DELTA_MAX_DIM;
    if (need->op != SL_OP_attention && need->op != SL_OP_latent_attention)
        return true;
    return need->head_dim_k <= MAX_HEAD_DIM && need->head_dim_v <= MAX_HEAD_DIM;
}

/* Rows of n_heads heads to pages of one layer. */
static enum sl_status write(struct sl_vulkan *v, enum sl_dtype dtype, const float *x, void *pages,
                            const uint32_t *slot, size_t page_bytes, uint32_t n_tok,
                            uint32_t n_heads, uint32_t head_dim, uint32_t stride) {
    const struct sl_vk_kv_write k = {.x = sl_vk_addr(x),
                                     .pages = sl_vk_addr(pages),
                                     .slot = sl_vk_addr(slot),
                                     .page_bytes = page_bytes,
                                     .n_tok = n_tok,
                                     .n_heads = n_heads,
                                     .head_dim = head_dim,
                                     .stride = stride,
                                     .q8 = dtype == SL_DTYPE_Q8_0};
    uint64_t units = (uint64_t)n_tok * n_heads * sl_vk_div_up(head_dim, UNITS);
    return units ? SL_VK_LAUNCH(v, kv_write, 0, sl_vk_div_up(units, WRITE_UNITS), k) : SL_OK;
}

enum sl_status sl_vk_op_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    const struct sl_kv_view *kv = &a->kv;
    SL_TRY(write(v, kv->dtype, a->k, kv->k, a->slot, kv->k_page_bytes, a->n_tok, kv->n_kv_heads,
                 kv->head_dim_k, a->stride_k));
    if (a->n_tok)
        sl_vk_overlap(v);
    return write(v, kv->dtype, a->v, kv->v, a->slot, kv->v_page_bytes, a->n_tok, kv->n_kv_heads,
                 kv->head_dim_v, a->stride_v);
}

enum sl_status sl_vk_op_latent_write(struct sl_device *d, const struct sl_op_latent_write *a) {
    const struct sl_latent_view *kv = &a->kv;
    return write((struct sl_vulkan *)d, kv->dtype, a->x, kv->rows, a->slot, kv->page_bytes,
                 a->n_tok, 1, kv->n_latent + kv->n_rot, a->stride);
}

static enum sl_status attend(struct sl_device *d, enum sl_dtype dtype, uint32_t n_tok,
                             const struct sl_vk_attention *k) {
    uint32_t n_heads = k->heads & 0xffff, dim_k = k->dims & 0xffff, dim_v = k->dims >> 16;
    uint64_t n = (uint64_t)n_tok * n_heads;
    bool narrow = dim_k <= NARROW_DIM && dim_v <= NARROW_DIM;
    if (!n)
        return SL_OK;
    return sl_vk_launch((struct sl_vulkan *)d, narrow ? SL_VK_attention : SL_VK_attention_wide,
                        (uint32_t)dtype, n, k, sizeof *k);
}

enum sl_status sl_vk_op_attention(struct sl_device *d, const struct sl_op_attention *a) {
    const struct sl_vk_attention k = {.k = sl_vk_addr(a->kv.k),
                                      .v = sl_vk_addr(a->kv.v),
                                      .q = sl_vk_addr(a->q),
                                      .sinks = sl_vk_addr(a->sinks),
                                      .y = sl_vk_addr(a->y),
                                      .page_table = sl_vk_addr(a->page_table),
                                      .row_seq = sl_vk_addr(a->row_seq),
                                      .row_len = sl_vk_addr(a->row_len),
                                      .k_page_bytes = a->kv.k_page_bytes,
                                      .v_page_bytes = a->kv.v_page_bytes,
                                      .heads = a->n_heads | a->kv.n_kv_heads << 16,
                                      .dims = a->kv.head_dim_k | a->kv.head_dim_v << 16,
                                      .stride_q = a->stride_q,
                                      .max_pages = a->max_pages,
                                      .window = a->window,
                                      .chunk = a->chunk,
                                      .scale = a->scale,
                                      .softcap = a->softcap,
                                      .v_width = a->kv.head_dim_v};
    /* sl_vk_supports says so of dimensions before anything is loaded */
    if (a->kv.head_dim_k > MAX_HEAD_DIM || a->kv.head_dim_v > MAX_HEAD_DIM || a->n_heads > 0xffff)
        return SL_ERR_UNSUPPORTED;
    return attend(d, a->kv.dtype, a->n_tok, &k);
}

/* Latents are the keys of one head, whose first elements are its values too. */
enum sl_status sl_vk_op_latent_attention(struct sl_device *d,
                                         const struct sl_op_latent_attention *a) {
    uint32_t dim = a->kv.n_latent + a->kv.n_rot;
    const struct sl_vk_attention k = {.k = sl_vk_addr(a->kv.rows),
                                      .v = sl_vk_addr(a->kv.rows),
                                      .q = sl_vk_addr(a->q),
                                      .y = sl_vk_addr(a->y),
                                      .page_table = sl_vk_addr(a->page_table),
                                      .row_seq = sl_vk_addr(a->row_seq),
                                      .row_len = sl_vk_addr(a->row_len),
                                      .k_page_bytes = a->kv.page_bytes,
                                      .v_page_bytes = a->kv.page_bytes,
                                      .heads = a->n_heads | 1u << 16,
                                      .dims = dim | a->kv.n_latent << 16,
                                      .stride_q = a->n_heads * dim,
                                      .max_pages = a->max_pages,
                                      .scale = a->scale,
                                      .v_width = dim};
    if (dim > MAX_HEAD_DIM || a->n_heads > 0xffff)
        return SL_ERR_UNSUPPORTED;
    return attend(d, a->kv.dtype, a->n_tok, &k);
}
