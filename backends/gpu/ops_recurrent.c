/* The ops of layers whose state every row replaces. */
#include "backends/gpu/ops_internal.h"
#include "common/log.h"

_Static_assert(SL_KV_PAGE_TOKENS == 64, "state.cuh counts in such pages");
_Static_assert(SL_CONV_MAX_TAPS == 8, "recurrent.cu has registers for so many");

static struct sl_karg_state state_args(const struct sl_state_view *s, uint32_t n_tok) {
    return (struct sl_karg_state){.pages = s->pages,
                                  .page_bytes = s->page_bytes,
                                  .page_table = s->page_table,
                                  .slot = s->slot,
                                  .row_seq = s->row_seq,
                                  .row_len = s->row_len,
                                  .max_pages = s->max_pages,
                                  .n_tok = n_tok};
}

enum sl_status sl_gpu_mul_sigmoid(struct sl_device *d, const struct sl_op_mul_sigmoid *a) {
    struct sl_karg_mul_sigmoid k = {a->gate, a->y, a->n, a->stride_gate};
    struct sl_dim3 grid = {a->n_rows, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_recurrent_mul_sigmoid, grid,
                     ((struct sl_dim3){256, 1, 1}), 0, k);
}

enum sl_status sl_gpu_l2_norm(struct sl_device *d, const struct sl_op_l2_norm *a) {
    struct sl_karg_l2_norm k = {a->x, a->n_heads, a->head_dim, a->stride, a->eps};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n_heads, 4), 1};
    return SL_LAUNCH((struct sl_gpu *)d, SL_KERNEL_recurrent_l2_norm, grid,
                     ((struct sl_dim3){128, 1, 1}), 0, k);
}

static enum sl_status conv(struct sl_device *d, enum sl_kernel kernel, struct sl_karg_conv k) {
    uint32_t n_tok = k.state.n_tok;
    k.rows = n_tok <= SL_DELTA_FEW ? 1 : SL_CONV_ROWS;
    struct sl_dim3 grid = {sl_ceil_div(k.n, SL_CONV_THREADS), sl_ceil_div(n_tok, k.rows), 1};
    return SL_LAUNCH((struct sl_gpu *)d, kernel, grid, ((struct sl_dim3){SL_CONV_THREADS, 1, 1}), 0,
                     k);
}

enum sl_status sl_gpu_conv_silu(struct sl_device *d, const struct sl_op_conv_silu *a) {
    return conv(d, SL_KERNEL_recurrent_conv_silu,
                (struct sl_karg_conv){.x = a->x,
                                      .w = a->w,
                                      .bias = a->bias,
                                      .y = a->y,
                                      .state = state_args(&a->state, a->n_tok),
                                      .n = a->n,
                                      .n_taps = a->n_taps});
}

enum sl_status sl_gpu_short_conv(struct sl_device *d, const struct sl_op_short_conv *a) {
    return conv(d, SL_KERNEL_recurrent_short_conv,
                (struct sl_karg_conv){.x = a->x,
                                      .w = a->w,
                                      .y = a->y,
                                      .state = state_args(&a->state, a->n_tok),
                                      .n = a->n,
                                      .n_taps = a->n_taps});
}

/* ---- matrices of state ---- */

static enum sl_kernel_family columns_family(enum sl_op op) {
    return op == SL_OP_state_scan      ? SL_FAMILY_recurrent_scan
           : op == SL_OP_channel_delta ? SL_FAMILY_recurrent_delta_channel
                                       : SL_FAMILY_recurrent_delta;
}

bool sl_gpu_columns_fit(const struct sl_gpu *c, const struct sl_op_need *need) {
    return need->head_dim_k <= SL_DELTA_MAX_DIM &&
           sl_gpu_has(c, columns_family(need->op), sl_gpu_key_class(need->head_dim_k));
}

/* What goes through rows column by column. */
static enum sl_status columns(struct sl_device *d, enum sl_op op, const struct sl_karg_delta *k) {
    uint32_t n_tok = k->state.n_tok;
    struct sl_dim3 grid = {sl_ceil_div(k->head_dim_v, SL_DELTA_COLS), k->n_heads,
                           n_tok <= SL_DELTA_FEW ? n_tok : SL_DELTA_Z};
    if (k->head_dim_k > SL_DELTA_MAX_DIM || k->n_heads > SL_GPU_MAX_GRID_Y) {
        sl_error("%s: %u heads, %s of %u elements; at most %u and %u", sl_op_name(op), k->n_heads,
                 op == SL_OP_state_scan ? "states" : "keys", k->head_dim_k, SL_GPU_MAX_GRID_Y,
                 SL_DELTA_MAX_DIM);
        return SL_ERR_UNSUPPORTED;
    }
    return SL_LAUNCH((struct sl_gpu *)d,
                     sl_kernel_of(columns_family(op), sl_gpu_key_class(k->head_dim_k)), grid,
                     ((struct sl_dim3){SL_DELTA_THREADS, 1, 1}), 0, *k);
}

enum sl_status sl_gpu_delta_rule(struct sl_device *d, const struct sl_op_delta_rule *a) {
    return columns(d, SL_OP_delta_rule,
                   &(struct sl_karg_delta){.q = a->q,
                                           .k = a->k,
                                           .v = a->v,
                                           .alpha = a->alpha,
                                           .beta = a->beta,
                                           .a = a->a,
                                           .dt = a->dt,
                                           .y = a->y,
                                           .state = state_args(&a->state, a->n_tok),
                                           .n_heads = a->n_heads,
                                           .n_heads_k = a->n_heads_k,
                                           .head_dim_k = a->head_dim_k,
                                           .head_dim_v = a->head_dim_v,
                                           .stride = a->stride,
                                           .stride_v = a->stride,
                                           .stride_gate = a->stride_gate,
                                           .gate_group = a->gate_group,
                                           .gate_group_stride = a->gate_group_stride,
                                           .grouped = a->grouped,
                                           .scale = a->scale});
}

enum sl_status sl_gpu_channel_delta(struct sl_device *d, const struct sl_op_channel_delta *a) {
    return columns(d, SL_OP_channel_delta,
                   &(struct sl_karg_delta){.q = a->q,
                                           .k = a->k,
                                           .v = a->v,
                                           .alpha = a->alpha,
                                           .beta = a->beta,
                                           .a = a->a,
                                           .dt = a->dt,
                                           .y = a->y,
                                           .state = state_args(&a->state, a->n_tok),
                                           .n_heads = a->n_heads,
                                           .n_heads_k = a->n_heads,
                                           .head_dim_k = a->head_dim_k,
                                           .head_dim_v = a->head_dim_v,
                                           .stride = a->n_heads * a->head_dim_k,
                                           .stride_v = a->n_heads * a->head_dim_v,
                                           .stride_gate = a->n_heads,
                                           .gate_group = a->n_heads,
                                           .scale = a->scale,
                                           .bound = a->bound});
}

enum sl_status sl_gpu_state_scan(struct sl_device *d, const struct sl_op_state_scan *a) {
    return columns(d, SL_OP_state_scan,
                   &(struct sl_karg_delta){.q = a->c,
                                           .k = a->b,
                                           .v = a->x,
                                           .alpha = a->dt,
                                           .a = a->a,
                                           .dt = a->dt_bias,
                                           .skip = a->skip,
                                           .y = a->y,
                                           .state = state_args(&a->state, a->n_tok),
                                           .n_heads = a->n_heads,
                                           .n_heads_k = a->n_groups,
                                           .head_dim_k = a->n_state,
                                           .head_dim_v = a->head_dim,
                                           .stride = a->stride,
                                           .stride_v = a->stride,
                                           .stride_gate = a->n_heads,
                                           .gate_group = a->n_heads,
                                           .grouped = true});
}

enum sl_status sl_gpu_channel_scan(struct sl_device *d, const struct sl_op_channel_scan *a) {
    struct sl_karg_channel_scan k = {.x = a->x,
                                     .b = a->b,
                                     .c = a->c,
                                     .dt = a->dt,
                                     .a = a->a,
                                     .skip = a->skip,
                                     .y = a->y,
                                     .state = state_args(&a->state, a->n_tok),
                                     .n = a->n,
                                     .n_state = a->n_state};
    struct sl_dim3 grid = {sl_ceil_div(a->n, SL_SCAN_THREADS / 4),
                           a->n_tok <= SL_DELTA_FEW ? a->n_tok : SL_DELTA_Z, 1};
    _Static_assert(SL_SCAN_MAX_STATE == 64, "the largest of recurrent_scan_channel_*");
    return SL_LAUNCH((struct sl_gpu *)d,
                     sl_kernel_of(SL_FAMILY_recurrent_scan_channel, a->n_state > 16), grid,
                     ((struct sl_dim3){SL_SCAN_THREADS, 1, 1}), 0, k);
}
