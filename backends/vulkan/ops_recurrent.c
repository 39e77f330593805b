/* The ops of layers whose state every row replaces. */
#include "backends/vulkan/ops.h"
#include "common/log.h"

_Static_assert(SL_KV_PAGE_TOKENS == 64, "shaders/state.glsl counts in such pages");
_Static_assert(SL_CONV_MAX_TAPS == 8, "shaders/conv_silu.comp has registers for so many");

#define COLUMNS 64u /* of a workgroup */

static struct sl_vk_state state(const struct sl_state_view *s) {
    return (struct sl_vk_state){.pages = sl_addr_of(s->pages),
                                .page_bytes = s->page_bytes,
                                .page_table = sl_addr_of(s->page_table),
                                .slot = sl_addr_of(s->slot),
                                .row_seq = sl_addr_of(s->row_seq),
                                .row_len = sl_addr_of(s->row_len)};
}

enum sl_status sl_vk_op_conv_silu(struct sl_device *d, const struct sl_op_conv_silu *a) {
    const struct sl_vk_conv_silu k = {.x = sl_addr_of(a->x),
                                      .w = sl_addr_of(a->w),
                                      .bias = sl_addr_of(a->bias),
                                      .y = sl_addr_of(a->y),
                                      .state = state(&a->state),
                                      .max_pages = a->state.max_pages,
                                      .n_tok = a->n_tok,
                                      .n = a->n,
                                      .n_taps = a->n_taps};
    uint64_t n = sl_div_up(a->n, COLUMNS) * a->n_tok;
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, conv_silu, 0, n, k) : SL_OK;
}

/* What shaders/delta_rule.comp has room for in its arguments: parts of the same rows are so many
 * elements from one another. */
static bool distance(const float *from, const float *to, int32_t *out) {
    ptrdiff_t n = (ptrdiff_t)((intptr_t)to - (intptr_t)from) / (ptrdiff_t)sizeof *to;
    *out = (int32_t)n;
    return *out == n;
}

enum sl_status sl_vk_op_delta_rule(struct sl_device *d, const struct sl_op_delta_rule *a) {
    const struct sl_state_view *s = &a->state;
    struct sl_vk_delta_rule k = {.q = sl_addr_of(a->q),
                                 .alpha = sl_addr_of(a->alpha),
                                 .decay = sl_addr_of(a->a),
                                 .dt = sl_addr_of(a->dt),
                                 .y = sl_addr_of(a->y),
                                 .pages = sl_addr_of(s->pages),
                                 .page_table = sl_addr_of(s->page_table),
                                 .slot = sl_addr_of(s->slot),
                                 .row_seq = sl_addr_of(s->row_seq),
                                 .row_len = sl_addr_of(s->row_len),
                                 .page_bytes = (uint32_t)s->page_bytes,
                                 .max_pages = s->max_pages,
                                 .n_tok = a->n_tok,
                                 .heads = a->n_heads | a->n_heads_k << 16,
                                 .dims = a->head_dim_k | a->head_dim_v << 16,
                                 .gates = a->stride_gate | a->gate_group << 16,
                                 .gate_group = a->gate_group_stride | (uint32_t)a->grouped << 16,
                                 .stride = a->stride,
                                 .scale = a->scale};
    uint32_t variant = a->head_dim_k <= 64 ? 0 : a->head_dim_k <= 128 ? 1 : 2;
    uint64_t n = sl_div_up(a->head_dim_v, COLUMNS) * a->n_heads * a->n_tok;
    uint32_t most = a->n_heads | a->head_dim_v | a->stride_gate | a->gate_group_stride;
    if (a->head_dim_k > SL_VK_DELTA_MAX_DIM || most > 0xffff || s->page_bytes > UINT32_MAX ||
        !distance(a->q, a->k, &k.k) || !distance(a->q, a->v, &k.v) ||
        !distance(a->alpha, a->beta, &k.beta)) {
        sl_error("delta_rule: %u heads, keys of %u elements, values of %u, states of %zu bytes: "
                 "more than the kernel has room for",
                 a->n_heads, a->head_dim_k, a->head_dim_v, s->page_bytes);
        return SL_ERR_UNSUPPORTED;
    }
    return n ? SL_VK_LAUNCH((struct sl_vulkan *)d, delta_rule, variant, n, k) : SL_OK;
}
