/* Products with weights. Rows of input are quantised first where the weights are. */
#include "backends/vulkan/ops.h"

#define QUANTIZE_GROUPS 4u /* of 256 elements, that a workgroup takes: shaders/quantize.comp */

/* From so many rows on, products go by tiles, which have the same bits: rows of a call, and pairs
 * for each expert of a layer. */
#define TILE_LEAST_ROWS   16u
#define TILE_LEAST_PAIRS  4u
#define TILE_MOST_EXPERTS 1024u /* shaders/moe_group.comp */

static bool has_tiles(const struct sl_vulkan *v) {
    return v->info.shared_bytes >= SL_VK_TILE_SHARED_BYTES;
}
/* Tiles of n_pairs pairs of so many experts, at most. */
static uint64_t most_tiles(uint64_t n_pairs, uint32_t n_expert) {
    uint64_t n = n_pairs / SL_VK_TILE_TOK + n_expert;
    return n < n_pairs ? n : n_pairs;
}

/* Scratch of matmul: the input, quantised both ways. Of moe: the same, and for each pair gate, up
 * and the activation's output, quantised; and the pairs by experts. Of head_matmul: each head's
 * part of the rows, quantised. */
uint64_t sl_vk_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *l) {
    (void)d;
    uint64_t matmul = 2 * sl_vk_round_256(sl_vk_qx_bytes(l->max_tok, l->max_n_in));
    uint64_t moe = 2 * sl_vk_round_256(sl_vk_qx_bytes(l->max_tok, l->max_n_embd)) +
                   2 * sl_vk_round_256((uint64_t)l->max_pairs * l->max_n_ff * sizeof(float)) +
                   sl_vk_round_256(sl_vk_qx_bytes(l->max_pairs, l->max_n_ff)) +
                   sl_vk_round_256(l->max_pairs * sizeof(uint32_t)) +
                   (1 + 3 * most_tiles(l->max_pairs, l->max_expert)) * sizeof(uint32_t);
    uint64_t heads =
        sl_vk_round_256(sl_vk_qx_bytes((uint64_t)l->max_tok * l->max_heads, l->max_head_n));
    uint64_t most = matmul > moe ? matmul : moe;
    return most > heads ? most : heads;
}

enum sl_status sl_vk_quantize(struct sl_vulkan *v, enum sl_dtype t, uint64_t x, uint32_t n_rows,
                              uint32_t n, uint32_t stride, uint64_t y) {
    const struct sl_vk_quantize k = {x, y, n_rows, n, sl_vk_is_block32(t), stride};
    uint64_t groups = (uint64_t)n_rows * sl_vk_div_up(n, 256);
    return SL_VK_LAUNCH(v, quantize, 0, sl_vk_div_up(groups, QUANTIZE_GROUPS), k);
}

enum sl_status sl_vk_op_matmul(struct sl_device *d, const struct sl_op_matmul *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    uint64_t quantized[2] = {0}; /* by sl_vk_is_block32() */
    uint32_t n_in = a->out[0].w.n_in;
    if (!a->n_tok)
        return SL_OK;
    for (uint32_t m = 0; m < a->n_w; m++) {
        const struct sl_matmul_out *o = &a->out[m];
        bool is_float = sl_vk_is_float(o->w.dtype), b32 = sl_vk_is_block32(o->w.dtype);
        bool ready = is_float || quantized[b32];
        if (!ready) {
            quantized[b32] =
                v->scratch.addr + (b32 ? sl_vk_round_256(sl_vk_qx_bytes(a->n_tok, n_in)) : 0);
            SL_TRY(sl_vk_quantize(v, o->w.dtype, sl_vk_addr(a->x), a->n_tok, n_in, n_in,
                                  quantized[b32]));
        }
        const struct sl_vk_matmul k = {.w = sl_vk_addr(o->w.data),
                                       .x = is_float ? sl_vk_addr(a->x) : quantized[b32],
                                       .bias = sl_vk_addr(o->bias),
                                       .y = sl_vk_addr(o->y),
                                       .grid = sl_vk_grid(v, o->w.dtype),
                                       .row_bytes = sl_dtype_row_bytes(o->w.dtype, n_in),
                                       .n_in = n_in,
                                       .n_out = o->w.n_out,
                                       .n_tok = a->n_tok,
                                       .add = o->add};
        uint64_t n = sl_vk_div_up(o->w.n_out, SL_VK_PRODUCT_ROWS) *
                     sl_vk_div_up(a->n_tok, SL_VK_PRODUCT_TOK);
        if (ready && m)
            sl_vk_overlap(v);
        if (!is_float && a->n_tok >= TILE_LEAST_ROWS && has_tiles(v)) {
            n = sl_vk_div_up(o->w.n_out, SL_VK_TILE_ROWS) * sl_vk_div_up(a->n_tok, SL_VK_TILE_TOK);
            SL_TRY(sl_vk_launch(v, SL_VK_matmul_tile, (uint32_t)o->w.dtype, n, &k, sizeof k));
            continue;
        }
        SL_TRY(sl_vk_launch(v, is_float ? SL_VK_matmul_float : SL_VK_matmul_quant,
                            (uint32_t)o->w.dtype, n, &k, sizeof k));
    }
    return SL_OK;
}

/* ---- by heads ---- */

static enum sl_status keep(struct sl_vulkan *v, const struct sl_op_head_matmul *a) {
    const struct sl_vk_keep k = {.x = sl_vk_addr(a->x + a->n_in),
                                 .y = sl_vk_addr(a->y + a->n_out),
                                 .n_rows = a->n_tok * a->n_heads,
                                 .n = a->n_keep,
                                 .stride_x = a->stride_x,
                                 .stride_y = a->stride_y};
    uint64_t n = (uint64_t)k.n_rows * k.n;
    return n ? SL_VK_LAUNCH(v, keep, 0, sl_vk_div_up(n, SL_VK_ELEMS), k) : SL_OK;
}

enum sl_status sl_vk_op_head_matmul(struct sl_device *d, const struct sl_op_head_matmul *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    bool is_float = sl_vk_is_float(a->dtype);
    struct sl_vk_head k = {.w = sl_vk_addr(a->w),
                           .x = sl_vk_addr(a->x),
                           .y = sl_vk_addr(a->y),
                           .grid = sl_vk_grid(v, a->dtype),
                           .head_bytes = a->head_bytes,
                           .row_bytes =
                               sl_dtype_row_bytes(a->dtype, a->transposed ? a->n_out : a->n_in),
                           .n_in = a->n_in,
                           .n_out = a->n_out,
                           .n_tok = a->n_tok,
                           .n_heads = a->n_heads,
                           .stride_x = a->stride_x,
                           .stride_y = a->stride_y};
    if (!a->n_tok)
        return SL_OK;
    SL_TRY(keep(v, a));
    if (a->transposed) {
        uint64_t units = (uint64_t)a->n_tok * a->n_heads * sl_vk_div_up(a->n_out, 16);
        return sl_vk_launch(v, SL_VK_head_turned, (uint32_t)a->dtype, sl_vk_div_up(units, 64), &k,
                            sizeof k);
    }
    if (!is_float) {
        SL_TRY(sl_vk_quantize(v, a->dtype, k.x, a->n_tok * a->n_heads, a->n_in, a->stride_x,
                              v->scratch.addr));
        k.x = v->scratch.addr;
    }
    uint64_t n = sl_vk_div_up(a->n_out, SL_VK_PRODUCT_ROWS) * a->n_heads *
                 sl_vk_div_up(a->n_tok, SL_VK_PRODUCT_TOK);
    return sl_vk_launch(v, is_float ? SL_VK_head_float : SL_VK_head_quant, (uint32_t)a->dtype, n,
                        &k, sizeof k);
}

/* ---- experts ---- */

enum { GATE, UP, DOWN };

struct run {
    struct sl_vulkan *v;
    const struct sl_op_moe *a;
    uint64_t refs;
    uint64_t x[2]; /* quantised rows, by sl_vk_is_block32() */
    bool x_made[2];
    uint64_t gate, up, h; /* h: the quantised output of the activation */
    uint64_t order, tiles;
    bool grouped; /* these two are there */
};

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
        const struct sl_vk_moe_group g = {m->ids,     m->pairs,    r->order,      r->tiles,
                                          a->n_pairs, a->n_expert, SL_VK_TILE_TOK};
        SL_TRY(SL_VK_LAUNCH(r->v, moe_group, 0, 1, g));
        r->grouped = true;
    }
    uint64_t n = most_tiles(a->n_pairs, a->n_expert) * sl_vk_div_up(m->n_out, SL_VK_TILE_ROWS);
    return sl_vk_launch(r->v, SL_VK_moe_tile, (uint32_t)t, n, &k, sizeof k);
}

/* One matrix of the experts of all pairs. */
static enum sl_status product(struct run *r, int which) {
    const struct sl_op_moe *a = r->a;
    const enum sl_dtype types[] = {a->gate_dtype, a->up_dtype, a->down_dtype};
    const float *biases[] = {a->gate_bias, a->up_bias, a->down_bias};
    enum sl_dtype t = types[which];
    bool is_float = sl_vk_is_float(t), b32 = sl_vk_is_block32(t), down = which == DOWN;
    uint32_t n_in = down ? a->n_ff : a->n_embd, n_out = down ? a->n_embd : a->n_ff;
    uint64_t x = sl_vk_addr(a->x);
    bool ready = which == UP && (is_float || r->x_made[b32]);
    if (down) {
        x = is_float ? r->gate : r->h;
        if (!is_float)
            SL_TRY(sl_vk_quantize(r->v, t, r->gate, a->n_pairs, n_in, n_in, r->h));
    } else if (!is_float) {
        x = r->x[b32];
        if (!r->x_made[b32])
            SL_TRY(sl_vk_quantize(r->v, t, sl_vk_addr(a->x), a->n_tok, n_in, n_in, x));
        r->x_made[b32] = true;
    }
    const struct sl_vk_moe k = {.x = x,
                                .ids = sl_vk_addr(a->ids),
                                .pairs = sl_vk_addr(a->pairs),
                                .refs = r->refs,
                                .bias = sl_vk_addr(biases[which]),
                                .y = down          ? sl_vk_addr(a->pair_y)
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
    uint64_t n = sl_vk_div_up(n_out, SL_VK_PRODUCT_ROWS) * a->n_pairs;
    if (ready)
        sl_vk_overlap(r->v);
    if (!is_float && a->n_pairs >= (uint64_t)TILE_LEAST_PAIRS * a->n_expert &&
        a->n_expert <= TILE_MOST_EXPERTS && has_tiles(r->v))
        return tiles(r, t, &k);
    return sl_vk_launch(r->v, is_float ? SL_VK_moe_float : SL_VK_moe_quant, (uint32_t)t, n, &k,
                        sizeof k);
}

enum sl_status sl_vk_op_moe(struct sl_device *d, const struct sl_op_moe *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    struct run r = {.v = v, .a = a, .refs = sl_vk_addr(a->device_refs)};
    uint64_t rows = sl_vk_round_256(sl_vk_qx_bytes(a->n_tok, a->n_embd));
    uint64_t pairs = sl_vk_round_256((uint64_t)a->n_pairs * a->n_ff * sizeof(float));
    if (!a->n_pairs)
        return SL_OK;
    if (!r.refs)
        SL_TRY(sl_vk_push(v, a->refs, a->n_expert * sizeof *a->refs, &r.refs));
    r.x[0] = v->scratch.addr;
    r.x[1] = r.x[0] + rows;
    r.gate = r.x[1] + rows;
    r.up = r.gate + pairs;
    r.h = r.up + pairs;
    r.order = r.h + sl_vk_round_256(sl_vk_qx_bytes(a->n_pairs, a->n_ff));
    r.tiles = r.order + sl_vk_round_256(a->n_pairs * sizeof(uint32_t));
    SL_TRY(product(&r, GATE));
    SL_TRY(product(&r, UP));
    SL_TRY(sl_vk_glu(v, r.gate, r.up, r.gate, (uint64_t)a->n_pairs * a->n_ff,
                     (uint32_t)a->activation, a->limit));
    return product(&r, DOWN);
}
