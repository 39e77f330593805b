/* Experts: one matrix of theirs at a time, or gate with up and down with the sum; many pairs by
 * tiles. */
#include "backends/vulkan/ops.h"

/* From so many pairs for each expert of a layer on, products go by tiles, which have the same bits.
 */
#define TILE_LEAST_PAIRS  4u
#define TILE_MOST_EXPERTS 1024u /* shaders/moe_group.comp */
#define UP_ROWS           4u    /* of gate and of up, that a workgroup has: shaders/moe_up.comp */
/* So few rows' activations are quantised by every workgroup of down for itself. */
#define QUANTIZES_MOST_TOK 2u

enum { GATE, UP, DOWN };

struct run {
    struct sl_vulkan *v;
    const struct sl_op_moe *a;
    uint64_t refs;
    uint64_t x[2]; /* quantised rows, by sl_is_block32() */
    bool x_made[2];
    uint64_t gate, up, h; /* h: the quantised output of the activation */
    uint64_t order, tiles;
    bool grouped; /* these two are there */
};

static bool by_tiles(const struct sl_vulkan *v, const struct sl_op_moe *a) {
    return a->n_pairs >= (uint64_t)TILE_LEAST_PAIRS * a->n_expert &&
           a->n_expert <= TILE_MOST_EXPERTS && sl_vk_has_tiles(v);
}

/* The same of pairs that are many for each expert, in quantised types. */
static enum sl_status tiles(struct run *r, enum sl_dtype t, const struct sl_vk_moe *m) {
    const struct sl_op_moe *a = r->a;
    const struct sl_vk_moe_tile k = {.x = m->x,
                                     .pairs = m->pairs,
                                     .refs = m->refs,
                                     .bias = m->bias,
                                     .y = m->y,
                                     .grid = m->grid,
                                     .order = r->order,
                                     .tiles = r->tiles,
                                     .row_bytes = m->row_bytes,
                                     .n_in = m->n_in,
                                     .n_out = m->n_out,
                                     .k = m->k,
                                     .which = m->which,
                                     .by_pair = m->by_pair,
                                     .to_pair = m->to_pair};
    if (!r->grouped) {
        const struct sl_vk_moe_group g = {
            m->ids, m->pairs, r->order, r->tiles, a->n_pairs, a->n_expert, sl_vk_tile_tok(r->v)};
        SL_TRY(SL_VK_LAUNCH(r->v, moe_group, 0, 1, g));
        r->grouped = true;
    }
    uint64_t n_tiles = a->n_pairs / sl_vk_tile_tok(r->v) + a->n_expert;
    uint64_t n =
        (n_tiles < a->n_pairs ? n_tiles : a->n_pairs) * sl_div_up(m->n_out, SL_VK_TILE_ROWS);
    return sl_vk_launch(r->v, sl_vk_by_matrices(r->v) ? SL_VK_moe_matrix : SL_VK_moe_tile,
                        (uint32_t)t, n, &k, sizeof k);
}

/* One matrix of the experts of all pairs. */
static enum sl_status product(struct run *r, int which) {
    const struct sl_op_moe *a = r->a;
    const enum sl_dtype types[] = {a->gate_dtype, a->up_dtype, a->down_dtype};
    const float *biases[] = {a->gate_bias, a->up_bias, a->down_bias};
    enum sl_dtype t = types[which];
    bool is_float = sl_is_float(t), b32 = sl_is_block32(t), down = which == DOWN;
    uint32_t n_in = down ? a->n_ff : a->n_embd, n_out = down ? a->n_embd : a->n_ff;
    uint64_t x = sl_addr_of(a->x);
    bool ready = which == UP && (is_float || r->x_made[b32]);
    if (down) {
        x = is_float ? r->gate : r->h;
        if (!is_float)
            SL_TRY(sl_vk_quantize(r->v, t, r->gate, a->n_pairs, n_in, n_in, r->h));
    } else if (!is_float) {
        x = r->x[b32];
        if (!r->x_made[b32])
            SL_TRY(sl_vk_quantize(r->v, t, sl_addr_of(a->x), a->n_tok, n_in, n_in, x));
        r->x_made[b32] = true;
    }
    const struct sl_vk_moe k = {.x = x,
                                .ids = sl_addr_of(a->ids),
                                .pairs = sl_addr_of(a->pairs),
                                .refs = r->refs,
                                .bias = sl_addr_of(biases[which]),
                                .y = down          ? sl_addr_of(a->pair_y)
                                     : which == UP ? r->up
                                                   : r->gate,
                                .grid = sl_vk_grid(r->v, t),
                                .row_bytes = sl_dtype_row_bytes(t, n_in),
                                .n_in = n_in,
                                .n_out = n_out,
                                .n_pairs = a->n_pairs,
                                .k = a->k,
                                .which = (uint32_t)which,
                                .by_pair = down,
                                .to_pair = down};
    uint64_t n = sl_div_up(n_out, is_float ? SL_VK_WIDE_ROWS : SL_VK_PRODUCT_ROWS) * a->n_pairs;
    if (ready)
        sl_vk_overlap(r->v);
    if (!is_float && by_tiles(r->v, a))
        return tiles(r, t, &k);
    return sl_vk_launch(r->v, is_float ? SL_VK_moe_float : SL_VK_moe_quant, (uint32_t)t, n, &k,
                        sizeof k);
}

/* Gate and up of few pairs, of one quantised type, with the activation. */
static bool takes_up(const struct sl_vulkan *v, const struct sl_op_moe *a) {
    return a->gate_dtype == a->up_dtype && !sl_is_float(a->up_dtype) && !by_tiles(v, a);
}

static enum sl_status up(struct run *r) {
    const struct sl_op_moe *a = r->a;
    bool b32 = sl_is_block32(a->up_dtype);
    if (!r->x_made[b32])
        SL_TRY(sl_vk_quantize(r->v, a->up_dtype, sl_addr_of(a->x), a->n_tok, a->n_embd, a->n_embd,
                              r->x[b32]));
    const struct sl_vk_moe_up k = {.x = r->x[b32],
                                   .ids = sl_addr_of(a->ids),
                                   .pairs = sl_addr_of(a->pairs),
                                   .refs = r->refs,
                                   .gate_bias = sl_addr_of(a->gate_bias),
                                   .up_bias = sl_addr_of(a->up_bias),
                                   .y = r->gate,
                                   .grid = sl_vk_grid(r->v, a->up_dtype),
                                   .row_bytes = sl_dtype_row_bytes(a->up_dtype, a->n_embd),
                                   .n_in = a->n_embd,
                                   .n_out = a->n_ff,
                                   .n_pairs = a->n_pairs,
                                   .k = a->k,
                                   .activation = (uint32_t)a->activation,
                                   .limit = a->limit};
    return sl_vk_launch(r->v, SL_VK_moe_up, (uint32_t)a->up_dtype,
                        sl_div_up(a->n_ff, UP_ROWS) * a->n_pairs, &k, sizeof k);
}

static enum sl_status begin(struct sl_vulkan *v, const struct sl_op_moe *a, struct run *r) {
    uint64_t rows = sl_round_256(sl_qx_bytes(a->n_tok, a->n_embd));
    uint64_t pairs = sl_round_256((uint64_t)a->n_pairs * a->n_ff * sizeof(float));
    *r = (struct run){.v = v, .a = a, .refs = sl_addr_of(a->device_refs)};
    if (!r->refs)
        SL_TRY(sl_vk_push(v, a->refs, a->n_expert * sizeof *a->refs, &r->refs));
    for (int b32 = 0; b32 < 2; b32++) {
        r->x[b32] = sl_vk_quantized_at(v, b32, a->n_tok, a->n_embd);
        r->x_made[b32] = sl_vk_left_at(v, b32, sl_addr_of(a->x), a->n_tok, a->n_embd) == r->x[b32];
    }
    r->gate = r->x[1] + rows;
    r->up = r->gate + pairs;
    r->h = r->up + pairs;
    r->order = r->h + sl_round_256(sl_qx_bytes(a->n_pairs, a->n_ff));
    r->tiles = r->order + sl_round_256(a->n_pairs * sizeof(uint32_t));
    return SL_OK;
}

enum sl_status sl_vk_op_moe(struct sl_device *d, const struct sl_op_moe *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    struct run r;
    if (!a->n_pairs)
        return SL_OK;
    SL_TRY(begin(v, a, &r));
    if (takes_up(v, a)) {
        SL_TRY(up(&r));
        return product(&r, DOWN);
    }
    SL_TRY(product(&r, GATE));
    SL_TRY(product(&r, UP));
    SL_TRY(sl_vk_glu(v, r.gate, r.up, r.gate, (uint64_t)a->n_pairs * a->n_ff,
                     (uint32_t)a->activation, a->limit));
    return product(&r, DOWN);
}

bool sl_vk_takes_moe_sum(const struct sl_device *d, const struct sl_fused_moe_sum *a) {
    const struct sl_vulkan *v = (const struct sl_vulkan *)d;
    return takes_up(v, a->moe) && !sl_is_float(a->moe->down_dtype);
}

enum sl_status sl_vk_fused_moe_sum(struct sl_device *d, const struct sl_fused_moe_sum *fused) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    const struct sl_op_moe *a = fused->moe;
    const struct sl_op_moe_combine *sum = fused->sum;
    struct run r;
    SL_TRY(begin(v, a, &r));
    SL_TRY(up(&r));
    bool strips =
        sl_vk_has_strips(a->down_dtype) && v->info.shared_bytes >= SL_VK_DOWN_SHARED_BYTES;
    bool is_float = strips && a->n_tok <= QUANTIZES_MOST_TOK;
    if (!is_float)
        SL_TRY(sl_vk_quantize(v, a->down_dtype, r.gate, a->n_pairs, a->n_ff, a->n_ff, r.h));
    const struct sl_vk_moe_down k = {.x = is_float ? r.gate : r.h,
                                     .ids = sl_addr_of(a->ids),
                                     .weights = sl_addr_of(sum->weights),
                                     .refs = r.refs,
                                     .bias = sl_addr_of(a->down_bias),
                                     .pair_y = sl_addr_of(a->pair_y),
                                     .y = sl_addr_of(sum->y),
                                     .grid = sl_vk_grid(v, a->down_dtype),
                                     .row_bytes = sl_dtype_row_bytes(a->down_dtype, a->n_ff),
                                     .n_in = a->n_ff,
                                     .n_out = a->n_embd,
                                     .n_tok = a->n_tok,
                                     .k = a->k,
                                     .set = sum->set,
                                     .is_float = is_float};
    return sl_vk_launch(v, strips ? SL_VK_moe_down_strips : SL_VK_moe_down, (uint32_t)a->down_dtype,
                        sl_div_up(a->n_embd, SL_VK_PRODUCT_ROWS) * a->n_tok, &k, sizeof k);
}
