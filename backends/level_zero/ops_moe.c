/* Routing, and experts: one matrix of theirs at a time. */
#include "backends/level_zero/ops.h"
#include "backends/ops/moe.h"
#include "backends/ops/router.h"
#include "common/limits.h"

_Static_assert(SL_LZ_MAX_EXPERTS == SL_MAX_EXPERTS, "kernels/router.cl has room for so many");
_Static_assert(SL_LZ_MAX_USED == SL_MAX_EXPERTS_USED, "it has a work-item for each");

enum { GATE, UP, DOWN };

struct run {
    struct sl_level_zero *z;
    const struct sl_op_moe *a;
    uint64_t refs;
    uint64_t x[2]; /* quantised rows, by sl_is_block32() */
    bool x_made[2], gate_made;
    uint64_t gate, up, h; /* h: the quantised output of the activation */
};

/* One matrix of the experts of all pairs. */
static enum sl_status product(struct run *r, int which) {
    const struct sl_op_moe *a = r->a;
    const enum sl_dtype types[] = {a->gate_dtype, a->up_dtype, a->down_dtype};
    const float *biases[] = {a->gate_bias, a->up_bias, a->down_bias};
    enum sl_dtype t = types[which];
    bool is_float = sl_is_float(t), b32 = sl_is_block32(t), down = which == DOWN;
    uint32_t n_in = down ? a->n_ff : a->n_embd, n_out = down ? a->n_embd : a->n_ff;
    uint64_t x = sl_addr_of(a->x);
    bool quantized = false;
    if (down) {
        x = is_float ? r->gate : r->h;
        if (!is_float)
            SL_TRY(sl_lz_quantize(r->z, t, r->gate, a->n_pairs, n_in, n_in, r->h));
    } else if (!is_float) {
        x = r->x[b32];
        quantized = !r->x_made[b32];
        if (quantized)
            SL_TRY(sl_lz_quantize(r->z, t, sl_addr_of(a->x), a->n_tok, n_in, n_in, x));
        r->x_made[b32] = true;
    }
    const struct sl_lz_moe k = {.x = x,
                                .ids = sl_addr_of(a->ids),
                                .pairs = sl_addr_of(a->pairs),
                                .refs = r->refs,
                                .bias = sl_addr_of(biases[which]),
                                .y = down          ? sl_addr_of(a->pair_y)
                                     : which == UP ? r->up
                                                   : r->gate,
                                .row_bytes = sl_dtype_row_bytes(t, n_in),
                                .n_in = n_in,
                                .n_out = n_out,
                                .n_pairs = a->n_pairs,
                                .k = a->k,
                                .which = (uint32_t)which,
                                .by_pair = down,
                                .to_pair = down};
    if (which == UP && r->gate_made && !quantized)
        sl_lz_overlap(r->z); /* gate and up have the same input */
    const struct sl_lz_product p = sl_lz_product(r->z, t, 1, SL_LZ_moe_float, SL_LZ_moe_quant,
                                                 SL_LZ_moe_quant_one, SL_LZ_moe_quant_one);
    return sl_lz_launch(r->z, p.kernel, (uint32_t)t, sl_div_up(n_out, p.rows) * a->n_pairs, &k,
                        sizeof k);
}

enum sl_status sl_lz_op_moe(struct sl_device *d, const struct sl_op_moe *a) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    uint64_t rows = sl_round_256(sl_qx_bytes(a->n_tok, a->n_embd));
    uint64_t pairs = sl_round_256((uint64_t)a->n_pairs * a->n_ff * sizeof(float));
    struct run r = {.z = z, .a = a, .refs = sl_addr_of(a->device_refs)};
    if (!a->n_pairs)
        return SL_OK;
    if (!r.refs)
        SL_TRY(sl_lz_push(z, a->refs, a->n_expert * sizeof *a->refs, &r.refs));
    r.x[0] = sl_addr_of(z->scratch);
    r.x[1] = r.x[0] + rows;
    r.gate = r.x[1] + rows;
    r.up = r.gate + pairs;
    r.h = r.up + pairs;
    if (a->activation != SL_RELU_SQUARED)
        SL_TRY(product(&r, GATE));
    r.gate_made = a->activation != SL_RELU_SQUARED;
    SL_TRY(product(&r, UP));
    SL_TRY(sl_lz_glu(z, r.gate, r.up, r.gate, (uint64_t)a->n_pairs * a->n_ff,
                     (uint32_t)a->activation, a->limit));
    return product(&r, DOWN);
}

enum sl_status sl_lz_op_moe_combine(struct sl_device *d, const struct sl_op_moe_combine *a) {
    const struct sl_lz_moe_combine k = {.pair_y = sl_addr_of(a->pair_y),
                                        .weights = sl_addr_of(a->weights),
                                        .y = sl_addr_of(a->y),
                                        .n_tok = a->n_tok,
                                        .k = a->k,
                                        .n = a->n,
                                        .set = a->set};
    uint64_t n = sl_lz_elems((uint64_t)a->n_tok * a->n);
    return n ? SL_LZ_LAUNCH((struct sl_level_zero *)d, moe_combine, 0, n, k) : SL_OK;
}

enum sl_status sl_lz_op_router(struct sl_device *d, const struct sl_op_router *a) {
    const struct sl_lz_router k = {.logits = sl_addr_of(a->logits),
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
                                   .n_group_used = a->n_group_used,
                                   .share = a->share};
    return a->n_tok ? SL_LZ_LAUNCH((struct sl_level_zero *)d, router, 0, a->n_tok, k) : SL_OK;
}
