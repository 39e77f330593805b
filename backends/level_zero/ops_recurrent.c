/* The ops of layers whose state every row replaces. */
#include "backends/level_zero/ops.h"
#include "backends/ops/kv.h"
#include "backends/ops/recurrent.h"

_Static_assert(SL_KV_PAGE_TOKENS == 64, "kernels/state.clh counts in such pages");
_Static_assert(SL_CONV_MAX_TAPS == SL_LZ_MAX_TAPS, "kernels have registers for so many");
_Static_assert(SL_CHANNEL_DELTA_MAX == SL_LZ_MAX_DECAYS, "channel_delta.cl has room for so many");

#define COLUMNS 64u /* of a group */

static struct sl_lz_state state(const struct sl_state_view *s, uint32_t n_tok) {
    return (struct sl_lz_state){.pages = sl_addr_of(s->pages),
                                .page_table = sl_addr_of(s->page_table),
                                .slot = sl_addr_of(s->slot),
                                .row_seq = sl_addr_of(s->row_seq),
                                .row_len = sl_addr_of(s->row_len),
                                .page_bytes = s->page_bytes,
                                .max_pages = s->max_pages,
                                .n_tok = n_tok};
}

enum sl_status sl_lz_op_conv_silu(struct sl_device *d, const struct sl_op_conv_silu *a) {
    const struct sl_lz_conv k = {.x = sl_addr_of(a->x),
                                 .w = sl_addr_of(a->w),
                                 .bias = sl_addr_of(a->bias),
                                 .y = sl_addr_of(a->y),
                                 .state = state(&a->state, a->n_tok),
                                 .n = a->n,
                                 .n_taps = a->n_taps};
    uint64_t n = sl_div_up(a->n, COLUMNS) * a->n_tok;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, conv_silu, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_short_conv(struct sl_device *d, const struct sl_op_short_conv *a) {
    const struct sl_lz_conv k = {.x = sl_addr_of(a->x),
                                 .w = sl_addr_of(a->w),
                                 .y = sl_addr_of(a->y),
                                 .state = state(&a->state, a->n_tok),
                                 .n = a->n,
                                 .n_taps = a->n_taps};
    uint64_t n = sl_div_up(a->n, COLUMNS) * a->n_tok;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, short_conv, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_delta_rule(struct sl_device *d, const struct sl_op_delta_rule *a) {
    const struct sl_lz_delta_rule k = {.q = sl_addr_of(a->q),
                                       .k = sl_addr_of(a->k),
                                       .v = sl_addr_of(a->v),
                                       .alpha = sl_addr_of(a->alpha),
                                       .beta = sl_addr_of(a->beta),
                                       .a = sl_addr_of(a->a),
                                       .dt = sl_addr_of(a->dt),
                                       .y = sl_addr_of(a->y),
                                       .state = state(&a->state, a->n_tok),
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
    uint64_t n = sl_div_up(a->head_dim_v, COLUMNS) * a->n_heads * a->n_tok;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, delta_rule, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_channel_delta(struct sl_device *d, const struct sl_op_channel_delta *a) {
    const struct sl_lz_channel_delta k = {.q = sl_addr_of(a->q),
                                          .k = sl_addr_of(a->k),
                                          .v = sl_addr_of(a->v),
                                          .alpha = sl_addr_of(a->alpha),
                                          .beta = sl_addr_of(a->beta),
                                          .a = sl_addr_of(a->a),
                                          .dt = sl_addr_of(a->dt),
                                          .y = sl_addr_of(a->y),
                                          .state = state(&a->state, a->n_tok),
                                          .n_heads = a->n_heads,
                                          .head_dim_k = a->head_dim_k,
                                          .head_dim_v = a->head_dim_v,
                                          .scale = a->scale,
                                          .bound = a->bound};
    uint64_t n = sl_div_up(a->head_dim_v, COLUMNS) * a->n_heads * a->n_tok;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, channel_delta, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_state_scan(struct sl_device *d, const struct sl_op_state_scan *a) {
    const struct sl_lz_state_scan k = {.x = sl_addr_of(a->x),
                                       .b = sl_addr_of(a->b),
                                       .c = sl_addr_of(a->c),
                                       .dt = sl_addr_of(a->dt),
                                       .a = sl_addr_of(a->a),
                                       .dt_bias = sl_addr_of(a->dt_bias),
                                       .skip = sl_addr_of(a->skip),
                                       .y = sl_addr_of(a->y),
                                       .state = state(&a->state, a->n_tok),
                                       .n_heads = a->n_heads,
                                       .n_groups = a->n_groups,
                                       .head_dim = a->head_dim,
                                       .n_state = a->n_state,
                                       .stride = a->stride};
    uint64_t n = sl_div_up(a->head_dim, COLUMNS) * a->n_heads * a->n_tok;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, state_scan, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_channel_scan(struct sl_device *d, const struct sl_op_channel_scan *a) {
    const struct sl_lz_channel_scan k = {.x = sl_addr_of(a->x),
                                         .b = sl_addr_of(a->b),
                                         .c = sl_addr_of(a->c),
                                         .dt = sl_addr_of(a->dt),
                                         .a = sl_addr_of(a->a),
                                         .skip = sl_addr_of(a->skip),
                                         .y = sl_addr_of(a->y),
                                         .state = state(&a->state, a->n_tok),
                                         .n = a->n,
                                         .n_state = a->n_state};
    uint64_t n = sl_div_up(a->n, COLUMNS) * a->n_tok;
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, channel_scan, 0, n, k) : SL_OK;
}
