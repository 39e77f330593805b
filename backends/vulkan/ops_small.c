/* Ops that go element by element or row by row, and what the kernels can do. */
#include "backends/vulkan/ops.h"

#define ROWS_OF_NORM 4u   /* rows of a workgroup: shaders/rms_norm.comp */
#define WIDE_NORM    512u /* elements from which on a row has one: shaders/rms_norm_wide.comp */

void sl_vk_ops_caps(struct sl_device_caps *caps) {
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        caps->weight_dtype[t] = sl_dtype_info(t) != NULL;
    caps->kv_dtype[SL_DTYPE_F16] = caps->kv_dtype[SL_DTYPE_Q8_0] = true;
    caps->moe_bias = caps->swiglu_clamped = caps->geglu = true;
    caps->swiglu_limited = caps->swiglu_cut = caps->reglu = true;
    caps->sigmoid_topk = caps->router_groups = true;
    caps->extra_args = true;
    caps->fused_ops = (1u << SL_FUSED_COUNT) - 1;
}

enum sl_status sl_vk_op_embed(struct sl_device *d, const struct sl_op_embed *a) {
    const struct sl_vk_embed k = {.w = sl_addr_of(a->w.data),
                                  .ids = sl_addr_of(a->ids),
                                  .y = sl_addr_of(a->y),
                                  .grid = sl_vk_grid((struct sl_vulkan *)d, a->w.dtype),
                                  .row_bytes = sl_dtype_row_bytes(a->w.dtype, a->w.n_in),
                                  .n_in = a->w.n_in,
                                  .n_tok = a->n_tok,
                                  .scale = a->scale};
    uint64_t n = sl_div_up(sl_div_up(a->w.n_in, 16) * a->n_tok, 64);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, embed, (uint32_t)a->w.dtype, n, k) : SL_OK;
}

enum sl_status sl_vk_op_rms_norm(struct sl_device *d, const struct sl_op_rms_norm *a) {
    const struct sl_vk_rms_norm k = {sl_addr_of(a->x),
                                     sl_addr_of(a->w),
                                     sl_addr_of(a->y),
                                     a->n_rows,
                                     a->n,
                                     a->stride_x,
                                     a->stride_y,
                                     a->eps};
    uint64_t n = sl_div_up(a->n_rows, ROWS_OF_NORM);
    if (a->n_rows && a->n >= WIDE_NORM)
        return SL_VK_LAUNCH((struct sl_vulkan *)d, rms_norm_wide, 0, a->n_rows, k);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, rms_norm, 0, n, k) : SL_OK;
}

enum sl_status sl_vk_op_rope_table(struct sl_device *d, const struct sl_op_rope_table *a) {
    const struct sl_vk_rope_table k = {
        sl_addr_of(a->pos), sl_addr_of(a->inv_freq), sl_addr_of(a->table), a->n_tok, a->n_freq,
        a->mscale};
    uint64_t n = sl_vk_elems((uint64_t)a->n_tok * a->n_freq);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, rope_table, 0, n, k) : SL_OK;
}

enum sl_status sl_vk_op_rope(struct sl_device *d, const struct sl_op_rope *a) {
    const struct sl_vk_rope k = {
        sl_addr_of(a->x), sl_addr_of(a->table),    a->n_tok, a->n_heads, a->head_dim, a->stride,
        a->n_freq,        a->style == SL_ROPE_NEOX};
    uint64_t n = sl_vk_elems((uint64_t)a->n_heads * a->n_freq) * a->n_tok;
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, rope, 0, n, k) : SL_OK;
}

enum sl_status sl_vk_op_router(struct sl_device *d, const struct sl_op_router *a) {
    const struct sl_vk_router k = {.logits = sl_addr_of(a->logits),
                                   .bias = sl_addr_of(a->bias),
                                   .ids = sl_addr_of(a->ids),
                                   .weights = sl_addr_of(a->weights),
                                   .expert_scale = sl_addr_of(a->expert_scale),
                                   .n_tok = a->n_tok,
                                   .n_expert = a->n_expert,
                                   .k = a->k,
                                   .sigmoid = a->score == SL_ROUTER_SIGMOID,
                                   .softmax_topk = a->softmax_topk,
                                   .normalize = a->normalize,
                                   .scale = a->scale,
                                   .n_group = a->n_group,
                                   .n_group_used = a->n_group_used};
    return a->n_tok ? SL_VK_LAUNCH((struct sl_vulkan *)d, router, 0, a->n_tok, k) : SL_OK;
}

enum sl_status sl_vk_op_moe_combine(struct sl_device *d, const struct sl_op_moe_combine *a) {
    const struct sl_vk_moe_combine k = {sl_addr_of(a->pair_y),
                                        sl_addr_of(a->weights),
                                        sl_addr_of(a->y),
                                        a->n_tok,
                                        a->k,
                                        a->n,
                                        a->set};
    uint64_t n = sl_vk_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, moe_combine, 0, n, k) : SL_OK;
}

enum sl_status sl_vk_glu(struct sl_vulkan *v, uint64_t gate, uint64_t up, uint64_t y, uint64_t n,
                         uint32_t activation, float limit) {
    const struct sl_vk_glu k = {gate, up, y, n, activation, limit};
    return n ? SL_VK_LAUNCH(v, glu, 0, sl_vk_elems(n), k) : SL_OK;
}

enum sl_status sl_vk_op_silu_mul(struct sl_device *d, const struct sl_op_silu_mul *a) {
    return sl_vk_glu((struct sl_vulkan *)d, sl_addr_of(a->gate), sl_addr_of(a->up),
                     sl_addr_of(a->y), a->n, SL_SWIGLU, 0);
}

enum sl_status sl_vk_op_gelu_mul(struct sl_device *d, const struct sl_op_gelu_mul *a) {
    return sl_vk_glu((struct sl_vulkan *)d, sl_addr_of(a->gate), sl_addr_of(a->up),
                     sl_addr_of(a->y), a->n, SL_GEGLU, 0);
}

enum sl_status sl_vk_op_limited_glu(struct sl_device *d, const struct sl_op_limited_glu *a) {
    return sl_vk_glu((struct sl_vulkan *)d, sl_addr_of(a->gate), sl_addr_of(a->up),
                     sl_addr_of(a->y), a->n, SL_SWIGLU_LIMITED, a->limit);
}

enum sl_status sl_vk_op_add_gated(struct sl_device *d, const struct sl_op_add_gated *a) {
    const struct sl_vk_add_gated k = {sl_addr_of(a->x), sl_addr_of(a->gate), sl_addr_of(a->y),
                                      a->n_tok, a->n};
    uint64_t n = sl_vk_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, add_gated, 0, n, k) : SL_OK;
}

enum sl_status sl_vk_op_gather_rows(struct sl_device *d, const struct sl_op_gather_rows *a) {
    const struct sl_vk_gather_rows k = {sl_addr_of(a->x), sl_addr_of(a->rows), sl_addr_of(a->y),
                                        a->n_out, a->n};
    uint64_t n = sl_vk_elems((uint64_t)a->n_out * a->n);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, gather_rows, 0, n, k) : SL_OK;
}

enum sl_status sl_vk_op_block_max(struct sl_device *d, const struct sl_op_block_max *a) {
    uint32_t n_blocks = (a->n + SL_BLOCK_MAX_ELEMS - 1) / SL_BLOCK_MAX_ELEMS;
    const struct sl_vk_block_max k = {sl_addr_of(a->x),
                                      sl_addr_of(a->max),
                                      sl_addr_of(a->at),
                                      sl_addr_of(a->sum),
                                      sl_addr_of(a->inv_t),
                                      a->n_tok,
                                      a->n,
                                      n_blocks};
    uint64_t n = sl_div_up((uint64_t)a->n_tok * n_blocks, 64);
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, block_max, 0, n, k) : SL_OK;
}
