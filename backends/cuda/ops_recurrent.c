/* The ops of layers whose state every row replaces. */
#include "backends/cuda/ops_internal.h"
#include "common/log.h"

_Static_assert(SL_KV_PAGE_TOKENS == 64, "recurrent.cu counts in such pages");
_Static_assert(SL_CONV_MAX_TAPS == 8, "recurrent.cu has registers for so many");

#define MAX_GRID_Y 65535u

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

enum sl_status sl_cuda_mul_sigmoid(struct sl_device *d, const struct sl_op_mul_sigmoid *a) {
    struct sl_karg_mul_sigmoid k = {a->gate, a->y, a->n, a->stride_gate};
    struct sl_dim3 grid = {a->n_rows, sl_ceil_div(a->n, 256), 1};
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_recurrent_mul_sigmoid, grid,
                     ((struct sl_dim3){256, 1, 1}), 0, k);
}

enum sl_status sl_cuda_l2_norm(struct sl_device *d, const struct sl_op_l2_norm *a) {
    struct sl_karg_l2_norm k = {a->x, a->n_heads, a->head_dim, a->stride, a->eps};
    struct sl_dim3 grid = {a->n_tok, sl_ceil_div(a->n_heads, 4), 1};
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_recurrent_l2_norm, grid,
                     ((struct sl_dim3){128, 1, 1}), 0, k);
}

enum sl_status sl_cuda_conv_silu(struct sl_device *d, const struct sl_op_conv_silu *a) {
    if (a->bias) /* only layers with state_scan have one, and are refused */
        return SL_ERR_UNSUPPORTED;
    struct sl_karg_conv_silu k = {.x = a->x,
                                  .w = a->w,
                                  .y = a->y,
                                  .state = state_args(&a->state, a->n_tok),
                                  .n = a->n,
                                  .n_taps = a->n_taps,
                                  .rows = a->n_tok <= SL_DELTA_FEW ? 1 : SL_CONV_ROWS};
    struct sl_dim3 grid = {sl_ceil_div(a->n, SL_CONV_THREADS), sl_ceil_div(a->n_tok, k.rows), 1};
    return SL_LAUNCH((struct sl_cuda *)d, SL_KERNEL_recurrent_conv_silu, grid,
                     ((struct sl_dim3){SL_CONV_THREADS, 1, 1}), 0, k);
}

/* The size class of keys of dim elements; the last has the longest. */
static uint32_t key_class(uint32_t dim) {
    return dim <= 64 ? 0 : dim <= 128 ? 1 : 2;
}

bool sl_cuda_delta_rule_fits(const struct sl_cuda *c, const struct sl_op_need *need) {
    return need->head_dim_k <= SL_DELTA_MAX_DIM &&
           sl_cuda_has(c, SL_FAMILY_recurrent_delta, key_class(need->head_dim_k));
}

enum sl_status sl_cuda_delta_rule(struct sl_device *d, const struct sl_op_delta_rule *a) {
    struct sl_karg_delta k = {.q = a->q,
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
                              .stride_gate = a->stride_gate,
                              .gate_group = a->gate_group,
                              .gate_group_stride = a->gate_group_stride,
                              .grouped = a->grouped,
                              .scale = a->scale};
    struct sl_dim3 grid = {sl_ceil_div(a->head_dim_v, SL_DELTA_COLS), a->n_heads,
                           a->n_tok <= SL_DELTA_FEW ? a->n_tok : SL_DELTA_Z};
    if (a->head_dim_k > SL_DELTA_MAX_DIM || a->n_heads > MAX_GRID_Y) {
        sl_error("delta_rule: %u heads, keys of %u elements; at most %u and %u", a->n_heads,
                 a->head_dim_k, MAX_GRID_Y, SL_DELTA_MAX_DIM);
        return SL_ERR_UNSUPPORTED;
    }
    return SL_LAUNCH((struct sl_cuda *)d,
                     sl_kernel_of(SL_FAMILY_recurrent_delta, key_class(a->head_dim_k)), grid,
                     ((struct sl_dim3){SL_DELTA_THREADS, 1, 1}), 0, k);
}
