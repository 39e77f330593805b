/* Small ops on whole rows: gates, scaling, centring, biases, clamping. */
#include "backends/level_zero/ops.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/norm.h"

#define ROWS_OF_NORM 4u /* rows of a group: kernels/l2_norm.cl, kernels/center.cl */

enum sl_status sl_lz_op_mul_sigmoid(struct sl_device *d, const struct sl_op_mul_sigmoid *a) {
    const struct sl_lz_mul_sigmoid k = {sl_addr_of(a->gate), sl_addr_of(a->y), a->n_rows, a->n,
                                        a->stride_gate};
    uint64_t n = sl_lz_elems((uint64_t)a->n_rows * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, mul_sigmoid, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_l2_norm(struct sl_device *d, const struct sl_op_l2_norm *a) {
    const struct sl_lz_l2_norm k = {sl_addr_of(a->x), a->n_tok,  a->n_heads,
                                    a->head_dim,      a->stride, a->eps};
    uint64_t n = sl_div_up((uint64_t)a->n_tok * a->n_heads, ROWS_OF_NORM);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, l2_norm, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_center(struct sl_device *d, const struct sl_op_center *a) {
    const struct sl_lz_center k = {sl_addr_of(a->x), sl_addr_of(a->y), a->n_tok, a->n};
    uint64_t n = sl_div_up(a->n_tok, ROWS_OF_NORM);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, center, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_scale(struct sl_device *d, const struct sl_op_scale *a) {
    const struct sl_lz_scale k = {sl_addr_of(a->x),
                                  sl_addr_of(a->by),
                                  sl_addr_of(a->rows),
                                  sl_addr_of(a->y ? a->y : a->x),
                                  a->n_tok,
                                  a->n,
                                  a->scale,
                                  a->cap};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, scale, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_gate_heads(struct sl_device *d, const struct sl_op_gate_heads *a) {
    const struct sl_lz_gate_heads k = {sl_addr_of(a->gate),   sl_addr_of(a->y),
                                       a->n_tok * a->n_heads, a->n,
                                       a->per_head,           a->softplus};
    uint64_t n = sl_lz_elems((uint64_t)k.n_rows * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, gate_heads, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_temper(struct sl_device *d, const struct sl_op_temper *a) {
    const struct sl_lz_temper k = {sl_addr_of(a->x), sl_addr_of(a->pos), a->n_tok, a->n,
                                   a->span,          a->offset,          a->scale};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, temper, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_clamp(struct sl_device *d, const struct sl_op_clamp *a) {
    const struct sl_lz_clamp k = {sl_addr_of(a->x), a->n, a->limit};
    uint64_t n = sl_lz_elems(a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, clamp, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_bias(struct sl_device *d, const struct sl_op_bias *a) {
    const struct sl_lz_bias k = {sl_addr_of(a->x), sl_addr_of(a->b), a->n_tok, a->n};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, bias, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_gelu_rows(struct sl_device *d, const struct sl_op_gelu_rows *a) {
    const struct sl_lz_gelu_rows k = {sl_addr_of(a->gate), sl_addr_of(a->up), sl_addr_of(a->rows),
                                      sl_addr_of(a->y),    a->n_tok,          a->n,
                                      a->stride_up};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, gelu_rows, 0, n, k) : SL_OK;
}
