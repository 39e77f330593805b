/* Ops that go element by element or row by row, and what the kernels can do. */
#include "backends/level_zero/ops.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "backends/ops/rows.h"

#define ROWS_OF_NORM 4u  /* rows of a group: kernels/rms_norm.cl */
#define UNIT         16u /* elements of a work-item: kernels/embed.cl */

void sl_lz_ops_caps(struct sl_device_caps *caps) {
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        caps->weight_dtype[t] = sl_lz_has_kernel(SL_LZ_embed, (enum sl_dtype)t);
    caps->kv_dtype[SL_DTYPE_F16] = caps->kv_dtype[SL_DTYPE_Q8_0] = true;
    caps->moe_bias = caps->moe_as_host = caps->swiglu_clamped = caps->geglu = true;
    caps->swiglu_limited = caps->swiglu_cut = caps->reglu = caps->relu_squared = true;
    caps->sigmoid_topk = caps->router_groups = caps->router_share = true;
    caps->extra_args = caps->latent_window = true;
}

bool sl_lz_supports(const struct sl_device *d, const struct sl_op_need *need) {
    (void)d;
    if (need->op != SL_OP_attention && need->op != SL_OP_latent_attention &&
        need->op != SL_OP_chosen_attention)
        return true;
    return need->head_dim_k <= SL_LZ_MAX_HEAD_DIM && need->head_dim_v <= SL_LZ_MAX_HEAD_DIM;
}

enum sl_status sl_lz_op_embed(struct sl_device *d, const struct sl_op_embed *a) {
    const struct sl_lz_embed k = {.w = sl_addr_of(a->w.data),
                                  .ids = sl_addr_of(a->ids),
                                  .y = sl_addr_of(a->y),
                                  .row_bytes = sl_dtype_row_bytes(a->w.dtype, a->w.n_in),
                                  .n_in = a->w.n_in,
                                  .n_tok = a->n_tok,
                                  .scale = a->scale};
    uint64_t n = sl_lz_elems(sl_div_up(a->w.n_in, UNIT) * a->n_tok);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, embed, (uint32_t)a->w.dtype, n, k) : SL_OK;
}

enum sl_status sl_lz_op_rms_norm(struct sl_device *d, const struct sl_op_rms_norm *a) {
    const struct sl_lz_rms_norm k = {.x = sl_addr_of(a->x),
                                     .w = sl_addr_of(a->w),
                                     .y = sl_addr_of(a->y),
                                     .n_rows = a->n_rows,
                                     .n = a->n,
                                     .stride_x = a->stride_x,
                                     .stride_y = a->stride_y,
                                     .eps = a->eps};
    uint64_t n = sl_div_up(a->n_rows, ROWS_OF_NORM);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, rms_norm, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_rope_table(struct sl_device *d, const struct sl_op_rope_table *a) {
    const struct sl_lz_rope_table k = {.pos = sl_addr_of(a->pos),
                                       .inv_freq = sl_addr_of(a->inv_freq),
                                       .table = sl_addr_of(a->table),
                                       .n_tok = a->n_tok,
                                       .n_freq = a->n_freq,
                                       .mscale = a->mscale};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * a->n_freq);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, rope_table, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_rope(struct sl_device *d, const struct sl_op_rope *a) {
    const struct sl_lz_rope k = {.x = sl_addr_of(a->x),
                                 .table = sl_addr_of(a->table),
                                 .n_tok = a->n_tok,
                                 .n_heads = a->n_heads,
                                 .head_dim = a->head_dim,
                                 .stride = a->stride,
                                 .n_freq = a->n_freq,
                                 .neox = a->style == SL_ROPE_NEOX};
    uint64_t n = sl_lz_elems((uint64_t)a->n_heads * a->n_freq) * a->n_tok;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, rope, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_glu(struct sl_level_zero *z, uint64_t gate, uint64_t up, uint64_t y,
                         uint64_t n, uint32_t activation, float limit) {
    const struct sl_lz_glu k = {gate, up, y, n, activation, limit};
    return n ? SL_LZ_LAUNCH(z, glu, 0, sl_lz_elems(n), k) : SL_OK;
}

enum sl_status sl_lz_op_silu_mul(struct sl_device *d, const struct sl_op_silu_mul *a) {
    return sl_lz_glu((struct sl_level_zero *)d, sl_addr_of(a->gate), sl_addr_of(a->up),
                     sl_addr_of(a->y), a->n, SL_SWIGLU, 0);
}

enum sl_status sl_lz_op_gelu_mul(struct sl_device *d, const struct sl_op_gelu_mul *a) {
    return sl_lz_glu((struct sl_level_zero *)d, sl_addr_of(a->gate), sl_addr_of(a->up),
                     sl_addr_of(a->y), a->n, SL_GEGLU, 0);
}

enum sl_status sl_lz_op_limited_glu(struct sl_device *d, const struct sl_op_limited_glu *a) {
    return sl_lz_glu((struct sl_level_zero *)d, sl_addr_of(a->gate), sl_addr_of(a->up),
                     sl_addr_of(a->y), a->n, SL_SWIGLU_LIMITED, a->limit);
}

enum sl_status sl_lz_op_relu_squared(struct sl_device *d, const struct sl_op_relu_squared *a) {
    uint64_t x = sl_addr_of(a->x);
    return sl_lz_glu((struct sl_level_zero *)d, x, x, x, a->n, SL_RELU_SQUARED, 0);
}

enum sl_status sl_lz_op_add_gated(struct sl_device *d, const struct sl_op_add_gated *a) {
    const struct sl_lz_add_gated k = {sl_addr_of(a->x), sl_addr_of(a->gate), sl_addr_of(a->y),
                                      a->n_tok, a->n};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, add_gated, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_gather_rows(struct sl_device *d, const struct sl_op_gather_rows *a) {
    const struct sl_lz_gather_rows k = {sl_addr_of(a->x), sl_addr_of(a->rows), sl_addr_of(a->y),
                                        a->n_out, a->n};
    uint64_t n = sl_lz_elems((uint64_t)a->n_out * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, gather_rows, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_block_max(struct sl_device *d, const struct sl_op_block_max *a) {
    const struct sl_lz_block_max k = {.x = sl_addr_of(a->x),
                                      .most = sl_addr_of(a->max),
                                      .at = sl_addr_of(a->at),
                                      .sum = sl_addr_of(a->sum),
                                      .inv_t = sl_addr_of(a->inv_t),
                                      .n_tok = a->n_tok,
                                      .n = a->n,
                                      .n_blocks = (uint32_t)sl_div_up(a->n, SL_BLOCK_MAX_ELEMS)};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * k.n_blocks);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, block_max, 0, n, k) : SL_OK;
}
