/* The ops that are one small kernel each, and what all ops need together. */
#include "backends/gpu/ops_internal.h"

#include <string.h>

uint64_t sl_gpu_ops_scratch_bytes(const struct sl_gpu *c, const struct sl_device_limits *limits) {
    (void)c;
    uint64_t bytes = sl_gpu_matmul_scratch(limits), other = sl_gpu_moe_scratch(limits);
    bytes = bytes > other ? bytes : other;
    bytes = bytes > (other = sl_gpu_attention_scratch(limits)) ? bytes : other;
    bytes = bytes > (other = sl_index_scratch(limits)) ? bytes : other;
    return bytes;
}

void sl_gpu_ops_caps(const struct sl_gpu *c, struct sl_device_caps *caps) {
    for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++)
        caps->weight_dtype[t] = sl_kernel_of(SL_FAMILY_matvec, t) != SL_KERNEL_COUNT;
    caps->fused_ops = ((1u << SL_FUSED_COUNT) - 1) & ~c->lacks_fused;
    caps->kv_dtype[SL_DTYPE_F16] = caps->kv_dtype[SL_DTYPE_Q8_0] = true;
    caps->router_groups = c->kernel[SL_KERNEL_router_groups] != NULL;
    caps->router_share = c->kernel[SL_KERNEL_router_share] != NULL;
}

bool sl_gpu_supports(const struct sl_device *d, const struct sl_op_need *need) {
    const struct sl_gpu *c = (const struct sl_gpu *)d;
    if ((uint32_t)need->dtype < SL_DTYPE_COUNT && c->lacks_type[need->op][need->dtype])
        return false;
    if (need->op == SL_OP_delta_rule || need->op == SL_OP_channel_delta ||
        need->op == SL_OP_state_scan)
        return sl_gpu_columns_fit(c, need);
    if (need->op == SL_OP_compress)
        return sl_gpu_compress_fits(c, need);
    if (need->op == SL_OP_index_choose || need->op == SL_OP_block_choose ||
        need->op == SL_OP_compressed_choose)
        return sl_gpu_index_fits(c, need);
    if (need->op == SL_OP_latent_attention || need->op == SL_OP_chosen_attention ||
        need->op == SL_OP_compressed_attention)
        return sl_gpu_latent_fits(c, need);
    if (need->op == SL_OP_attention || need->op == SL_OP_block_attention)
        return sl_gpu_attention_fits(c, need);
    return true;
}

static enum sl_status launch(struct sl_device *d, enum sl_kernel kernel, uint32_t grid_x,
                             uint32_t grid_y, uint32_t block, const void *args, size_t args_bytes) {
    return sl_gpu_launch((struct sl_gpu *)d, kernel, (struct sl_dim3){grid_x, grid_y, 1},
                         (struct sl_dim3){block, 1, 1}, 0, args, args_bytes);
}

enum sl_status sl_gpu_embed(struct sl_device *d, const struct sl_op_embed *a) {
    struct sl_karg_embed k = {a->w.data, a->ids, a->y, a->w.n_in, a->n_tok, a->scale};
    return launch(d, sl_kernel_of(SL_FAMILY_embed, a->w.dtype), a->n_tok,
                  sl_ceil_div(a->w.n_in, 4096), 128, &k, sizeof k);
}

enum sl_status sl_gpu_rms_norm(struct sl_device *d, const struct sl_op_rms_norm *a) {
    struct sl_karg_rms_norm k = {a->x, a->w,        a->y,        a->n_rows,
                                 a->n, a->stride_x, a->stride_y, a->eps};
    return launch(d, SL_KERNEL_rms_norm, a->n_rows, 1, a->n <= 256 ? 32 : 256, &k, sizeof k);
}

enum sl_status sl_gpu_rope_table(struct sl_device *d, const struct sl_op_rope_table *a) {
    struct sl_karg_rope_table k = {a->pos, a->inv_freq, a->table, a->n_tok, a->n_freq, a->mscale};
    return launch(d, SL_KERNEL_rope_table, a->n_tok, 1, 64, &k, sizeof k);
}

enum sl_status sl_gpu_rope(struct sl_device *d, const struct sl_op_rope *a) {
    struct sl_karg_rope k = {a->x,        a->table,  a->n_tok,  a->n_heads,
                             a->head_dim, a->stride, a->n_freq, a->style == SL_ROPE_NEOX};
    return launch(d, SL_KERNEL_rope, a->n_tok, sl_ceil_div((uint64_t)a->n_heads * a->n_freq, 128),
                  128, &k, sizeof k);
}

static struct sl_karg_router router_args(const struct sl_op_router *a) {
    return (struct sl_karg_router){.logits = a->logits,
                                   .bias = a->bias,
                                   .ids = a->ids,
                                   .weights = a->weights,
                                   .n_tok = a->n_tok,
                                   .n_expert = a->n_expert,
                                   .k = a->k,
                                   .sigmoid = a->score == SL_ROUTER_SIGMOID,
                                   .softmax_topk = a->softmax_topk,
                                   .normalize = a->normalize,
                                   .scale = a->scale};
}

enum sl_status sl_gpu_router(struct sl_device *d, const struct sl_op_router *a) {
    struct sl_karg_router k = router_args(a);
    if (a->share > 1) {
        struct sl_karg_groups all = {1, 1}, some = {a->n_group, a->n_group_used};
        struct sl_karg_router_share of = {k, a->n_group > 1 ? some : all, a->share};
        SL_TRY(launch(d, SL_KERNEL_router_share, a->n_tok, 1, 128, &of, sizeof of));
    } else if (a->n_group > 1) {
        struct sl_karg_router_groups of = {k, {a->n_group, a->n_group_used}};
        SL_TRY(launch(d, SL_KERNEL_router_groups, a->n_tok, 1, 128, &of, sizeof of));
    } else {
        SL_TRY(launch(d, SL_KERNEL_router, a->n_tok, 1, 128, &k, sizeof k));
    }
    return sl_gpu_scale_chosen((struct sl_gpu *)d, a);
}

enum sl_status sl_gpu_softplus_router(struct sl_device *d, const struct sl_op_softplus_router *a) {
    struct sl_karg_softplus_router k = {.logits = a->logits,
                                        .bias = a->bias,
                                        .table = a->table,
                                        .tokens = a->tokens,
                                        .rows = a->rows,
                                        .ids = a->ids,
                                        .weights = a->weights,
                                        .n_expert = a->n_expert,
                                        .k = a->k,
                                        .normalize = a->normalize,
                                        .scale = a->scale};
    return launch(d, SL_KERNEL_router_softplus, a->n_tok, 1, 128, &k, sizeof k);
}

/* A row's blocks read all weights; above this many rows products that share them are faster. */
#define ROUTE_MAX_TOK 64u

bool sl_gpu_takes_norm_router(const struct sl_device *d, const struct sl_fused_norm_router *a) {
    const struct sl_gpu *c = (const struct sl_gpu *)d;
    return sl_gpu_norm_fits(a->norm) && a->logits->out[0].w.dtype == SL_DTYPE_F32 &&
           a->router->n_tok <= ROUTE_MAX_TOK && a->router->share <= 1 &&
           (a->router->n_group <= 1 || c->kernel[SL_KERNEL_fused_route_groups]);
}

enum sl_status sl_gpu_fused_norm_router(struct sl_device *d, const struct sl_fused_norm_router *a) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    const struct sl_op_rms_norm *norm = a->norm;
    const struct sl_op_router *router = a->router;
    struct sl_karg_route k = {.x = norm->x,
                              .w = a->logits->out[0].w.data,
                              .norm = {norm->w, norm->y, norm->eps},
                              .router = router_args(router),
                              .logit_bias = a->logits->out[0].bias,
                              .done = c->counters,
                              .n_in = norm->n};
    struct sl_dim3 grid = {sl_ceil_div(router->n_expert, SL_ROUTE_EXPERTS), router->n_tok, 1};
    if (router->n_group > 1) {
        struct sl_karg_route_groups of = {k, {router->n_group, router->n_group_used}};
        SL_TRY(SL_LAUNCH(c, SL_KERNEL_fused_route_groups, grid,
                         ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}), norm->n * 4, of));
    } else {
        bool narrow = norm->n <= SL_ROUTE_NARROW && !k.logit_bias;
        SL_TRY(SL_LAUNCH(c, narrow ? SL_KERNEL_fused_route : SL_KERNEL_fused_route_wide, grid,
                         ((struct sl_dim3){SL_MATVEC_WARPS * SL_WARP, 1, 1}), norm->n * 4, k));
    }
    return sl_gpu_scale_chosen(c, router);
}

enum sl_status sl_gpu_silu_mul(struct sl_device *d, const struct sl_op_silu_mul *a) {
    struct sl_karg_silu_mul k = {a->gate, a->up, a->y, a->n};
    return launch(d, SL_KERNEL_silu_mul, sl_ceil_div(a->n, 256), 1, 256, &k, sizeof k);
}

enum sl_status sl_gpu_add_gated(struct sl_device *d, const struct sl_op_add_gated *a) {
    struct sl_karg_add_gated k = {a->x, a->gate, a->y, a->n_tok, a->n};
    return launch(d, SL_KERNEL_add_gated, a->n_tok, sl_ceil_div(a->n, 256), 256, &k, sizeof k);
}

enum sl_status sl_gpu_gather_rows(struct sl_device *d, const struct sl_op_gather_rows *a) {
    struct sl_karg_gather k = {a->x, a->rows, a->y, a->n_out, a->n};
    return launch(d, SL_KERNEL_gather_rows, a->n_out, sl_ceil_div(a->n, 256), 256, &k, sizeof k);
}

enum sl_status sl_gpu_block_max(struct sl_device *d, const struct sl_op_block_max *a) {
    _Static_assert(SL_BLOCK_MAX_ELEMS == 64, "the kernel has a warp for each block, two a lane");
    struct sl_karg_block_max k = {a->x, a->max, a->at, a->sum, a->inv_t, a->n};
    uint32_t n_blocks = sl_ceil_div(a->n, SL_BLOCK_MAX_ELEMS);
    return launch(d, SL_KERNEL_block_max, a->n_tok, sl_ceil_div(n_blocks, SL_BLOCK_MAX_WARPS),
                  SL_BLOCK_MAX_WARPS * SL_WARP, &k, sizeof k);
}

enum sl_status sl_gpu_send(struct sl_device *d, const struct sl_op_send *a) {
    struct sl_karg_send k = {a->x, a->to, a->raised, a->channel, a->seqno, a->n, a->stride};
    return launch(d, SL_KERNEL_send, 1, 1, 1024, &k, sizeof k);
}

enum sl_status sl_gpu_receive(struct sl_device *d, const struct sl_op_receive *a) {
    struct sl_karg_receive k = {a->from,  a->x, a->raised, a->released, a->channel,
                                a->seqno, a->n, a->stride, a->alone};
    return launch(d, SL_KERNEL_receive, 1, 1, 1024, &k, sizeof k);
}
