/* Attention over paged KV, and writing to its pages. */
#include "backends/vulkan/ops.h"

#define MAX_HEAD_DIM 512u /* shaders/attention.comp */
#define UNITS        32u  /* elements of a thread of shaders/kv_write.comp */
#define WRITE_UNITS  64u  /* ... and its threads */

bool sl_vk_supports(const struct sl_device *d, const struct sl_op_need *need) {
    (void)d;
    if (need->op != SL_OP_attention)
        return true;
    return need->head_dim_k <= MAX_HEAD_DIM && need->head_dim_v <= MAX_HEAD_DIM;
}

static enum sl_status write(struct sl_vulkan *v, const struct sl_op_kv_write *a, const float *x,
                            void *pages, size_t page_bytes, uint32_t head_dim, uint32_t stride) {
    const struct sl_vk_kv_write k = {.x = sl_vk_addr(x),
                                     .pages = sl_vk_addr(pages),
                                     .slot = sl_vk_addr(a->slot),
                                     .page_bytes = page_bytes,
                                     .n_tok = a->n_tok,
                                     .n_heads = a->kv.n_kv_heads,
                                     .head_dim = head_dim,
                                     .stride = stride,
                                     .q8 = a->kv.dtype == SL_DTYPE_Q8_0};
    uint64_t units = (uint64_t)a->n_tok * a->kv.n_kv_heads * sl_vk_div_up(head_dim, UNITS);
    return SL_VK_LAUNCH(v, kv_write, 0, sl_vk_div_up(units, WRITE_UNITS), k);
}

enum sl_status sl_vk_op_kv_write(struct sl_device *d, const struct sl_op_kv_write *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    if (!a->n_tok)
        return SL_OK;
    SL_TRY(write(v, a, a->k, a->kv.k, a->kv.k_page_bytes, a->kv.head_dim_k, a->stride_k));
    return write(v, a, a->v, a->kv.v, a->kv.v_page_bytes, a->kv.head_dim_v, a->stride_v);
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
                                      .softcap = a->softcap};
    uint64_t n = (uint64_t)a->n_tok * a->n_heads;
    if (a->kv.head_dim_k > MAX_HEAD_DIM || a->kv.head_dim_v > MAX_HEAD_DIM || a->n_heads > 0xffff)
        return SL_ERR_UNSUPPORTED; /* sl_vk_supports says so before anything is loaded */
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, attention, (uint32_t)a->kv.dtype, n, k) : SL_OK;
}
