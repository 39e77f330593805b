/* Products with weights. Rows of input are quantised first where the weights are. */
#include "backends/vulkan/ops.h"

#define QUANTIZE_GROUPS 4u /* of 256 elements, that a workgroup takes: shaders/quantize.comp */

/* From so many rows on, products go by tiles, which have the same bits. */
#define TILE_LEAST_ROWS 33u
/* From so many rows of weights on, more of them have a workgroup. */
#define TALL_LEAST_ROWS 16384u
/* ... and of types with strips where one row of input has fewer elements: an invocation then has
 * two strips. */
#define TALL_MOST_STRIPS_IN 4096u
/* Float matrices of so few rows have a workgroup for each, for so few rows of input. */
#define FLOAT_MOST_ROWS 1024u
#define FLOAT_MOST_TOK  16u

/* Scratch of matmul: the input, quantised both ways. Of moe: the same, and for each pair gate, up
 * and the activation's output, quantised; and the pairs by experts. Of head_matmul: each head's
 * part of the rows, quantised. Of attention: its parts, and what is made of them, quantised. */
uint64_t sl_vk_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *l) {
    (void)d;
    uint64_t matmul = 2 * sl_round_256(sl_qx_bytes(l->max_tok, l->max_n_in));
    uint64_t moe = 2 * sl_round_256(sl_qx_bytes(l->max_tok, l->max_n_embd)) +
                   2 * sl_round_256((uint64_t)l->max_pairs * l->max_n_ff * sizeof(float)) +
                   sl_round_256(sl_qx_bytes(l->max_pairs, l->max_n_ff)) +
                   sl_round_256(l->max_pairs * sizeof(uint32_t)) +
                   (1 + 3 * sl_vk_most_tiles(l->max_pairs, l->max_expert)) * sizeof(uint32_t);
    uint64_t heads = sl_round_256(sl_qx_bytes((uint64_t)l->max_tok * l->max_heads, l->max_head_n));
    uint64_t n_rows = (uint64_t)l->max_tok * l->max_heads;
    n_rows = n_rows < SL_VK_ATTENTION_ROWS ? n_rows : SL_VK_ATTENTION_ROWS;
    uint64_t attention = sl_round_256(n_rows * SL_VK_ATTENTION_PARTS *
                                      ((uint64_t)l->max_head_dim + 2) * sizeof(float)) +
                         2 * sl_round_256(sl_qx_bytes(n_rows, l->max_head_dim));
    uint64_t most = matmul > moe ? matmul : moe;
    most = most > attention ? most : attention;
    return most > heads ? most : heads;
}

enum sl_status sl_vk_quantize(struct sl_vulkan *v, enum sl_dtype t, uint64_t x, uint32_t n_rows,
                              uint32_t n, uint32_t stride, uint64_t y) {
    const struct sl_vk_quantize k = {x, y, n_rows, n, sl_is_block32(t), stride};
    uint64_t groups = (uint64_t)n_rows * sl_div_up(n, 256);
    return SL_VK_LAUNCH(v, quantize, 0, sl_div_up(groups, QUANTIZE_GROUPS), k);
}

static enum sl_status float_rows(struct sl_vulkan *v, const struct sl_op_matmul *a, uint32_t m) {
    const struct sl_matmul_out *o = &a->out[m];
    const struct sl_vk_float_row k = {.w = sl_addr_of(o->w.data),
                                      .x = sl_addr_of(a->x),
                                      .bias = sl_addr_of(o->bias),
                                      .y = sl_addr_of(o->y),
                                      .row_bytes = sl_dtype_row_bytes(o->w.dtype, o->w.n_in),
                                      .n_in = o->w.n_in,
                                      .n_out = o->w.n_out,
                                      .n_tok = a->n_tok,
                                      .add = o->add};
    return sl_vk_launch(v, SL_VK_float_row, (uint32_t)o->w.dtype, (uint64_t)a->n_tok * o->w.n_out,
                        &k, sizeof k);
}

static bool takes_float_rows(const struct sl_op_matmul *a, uint32_t m) {
    const struct sl_weight *w = &a->out[m].w;
    return sl_is_float(w->dtype) && w->n_out <= FLOAT_MOST_ROWS && a->n_tok <= FLOAT_MOST_TOK;
}

static enum sl_status rows(struct sl_vulkan *v, const struct sl_op_matmul *a, uint32_t m,
                           uint64_t x) {
    const struct sl_matmul_out *o = &a->out[m];
    bool is_float = sl_is_float(o->w.dtype);
    const struct sl_vk_matmul k = {.w = sl_addr_of(o->w.data),
                                   .x = x,
                                   .bias = sl_addr_of(o->bias),
                                   .y = sl_addr_of(o->y),
                                   .grid = sl_vk_grid(v, o->w.dtype),
                                   .row_bytes = sl_dtype_row_bytes(o->w.dtype, o->w.n_in),
                                   .n_in = o->w.n_in,
                                   .n_out = o->w.n_out,
                                   .n_tok = a->n_tok,
                                   .add = o->add};
    bool tall = !is_float &&
                (sl_vk_has_strips(o->w.dtype) ? a->n_tok == 1 && o->w.n_in < TALL_MOST_STRIPS_IN
                                              : o->w.n_out >= TALL_LEAST_ROWS);
    uint64_t n = sl_div_up(o->w.n_out, tall ? SL_VK_PRODUCT_ROWS : SL_VK_WIDE_ROWS) *
                 sl_div_up(a->n_tok, SL_VK_PRODUCT_TOK);
    enum sl_vk_kernel kernel = is_float ? SL_VK_matmul_float
                               : tall   ? SL_VK_matmul_tall
                                        : SL_VK_matmul_quant;
    if (!is_float && a->n_tok >= TILE_LEAST_ROWS && sl_vk_has_tiles(v)) {
        n = sl_div_up(o->w.n_out, SL_VK_TILE_ROWS) * sl_div_up(a->n_tok, sl_vk_tile_tok(v));
        kernel = sl_vk_by_matrices(v) ? SL_VK_matmul_matrix : SL_VK_matmul_tile;
    }
    return sl_vk_launch(v, kernel, (uint32_t)o->w.dtype, n, &k, sizeof k);
}

/* quantized: where the input already is, by sl_is_block32(); 0: not yet. */
static enum sl_status products(struct sl_vulkan *v, const struct sl_op_matmul *a,
                               uint64_t quantized[2]) {
    uint32_t n_in = a->out[0].w.n_in;
    for (uint32_t m = 0; m < a->n_w; m++) {
        enum sl_dtype t = a->out[m].w.dtype;
        bool is_float = sl_is_float(t), b32 = sl_is_block32(t);
        bool ready = is_float || quantized[b32];
        if (!ready) {
            quantized[b32] = sl_vk_quantized_at(v, b32, a->n_tok, n_in);
            SL_TRY(sl_vk_quantize(v, t, sl_addr_of(a->x), a->n_tok, n_in, n_in, quantized[b32]));
        }
        if (ready && m)
            sl_vk_overlap(v);
        if (takes_float_rows(a, m))
            SL_TRY(float_rows(v, a, m));
        else
            SL_TRY(rows(v, a, m, is_float ? sl_addr_of(a->x) : quantized[b32]));
    }
    return SL_OK;
}

enum sl_status sl_vk_op_matmul(struct sl_device *d, const struct sl_op_matmul *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    uint64_t quantized[2] = {0};
    if (!a->n_tok)
        return SL_OK;
    for (uint32_t m = 0; m < a->n_w; m++) {
        const struct sl_weight *w = &a->out[m].w;
        bool b32 = sl_is_block32(w->dtype);
        if (!sl_is_float(w->dtype))
            quantized[b32] = sl_vk_left_at(v, b32, sl_addr_of(a->x), a->n_tok, w->n_in);
    }
    return products(v, a, quantized);
}

bool sl_vk_takes_norm_quantize(const struct sl_op_rms_norm *a) {
    uint64_t all = sl_addr_of(a->x) | sl_addr_of(a->w) | sl_addr_of(a->y);
    return a->n_rows && a->n % 32 == 0 && all % 16 == 0;
}

enum sl_status sl_vk_norm_quantize(struct sl_vulkan *v, const struct sl_op_rms_norm *a,
                                   const bool want[2], uint64_t out[2]) {
    for (int b32 = 0; b32 < 2; b32++)
        out[b32] = want[b32] ? sl_vk_quantized_at(v, b32, a->n_rows, a->n) : 0;
    const struct sl_vk_norm_quantize k = {.x = sl_addr_of(a->x),
                                          .w = sl_addr_of(a->w),
                                          .y = sl_addr_of(a->y),
                                          .q256 = out[0],
                                          .q32 = out[1],
                                          .n_rows = a->n_rows,
                                          .n = a->n,
                                          .eps = a->eps};
    return SL_VK_LAUNCH(v, norm_quantize, 0, a->n_rows, k);
}

bool sl_vk_takes_norm_matmul(const struct sl_device *d, const struct sl_fused_norm_matmul *a) {
    (void)d;
    for (uint32_t m = 0; m < a->matmul->n_w; m++)
        if (!sl_is_float(a->matmul->out[m].w.dtype))
            return sl_vk_takes_norm_quantize(a->norm);
    return false;
}

enum sl_status sl_vk_fused_norm_matmul(struct sl_device *d, const struct sl_fused_norm_matmul *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    bool want[2] = {false};
    uint64_t quantized[2];
    for (uint32_t m = 0; m < a->matmul->n_w; m++) {
        enum sl_dtype t = a->matmul->out[m].w.dtype;
        if (!sl_is_float(t))
            want[sl_is_block32(t)] = true;
    }
    SL_TRY(sl_vk_norm_quantize(v, a->norm, want, quantized));
    return products(v, a->matmul, quantized);
}

/* Experts follow, of which it is not known yet what they are: quantised for all. */
bool sl_vk_takes_norm_router(const struct sl_device *d, const struct sl_fused_norm_router *a) {
    (void)d;
    return takes_float_rows(a->logits, 0) && sl_vk_takes_norm_quantize(a->norm);
}

enum sl_status sl_vk_fused_norm_router(struct sl_device *d, const struct sl_fused_norm_router *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    const bool want[2] = {a->norm->n % 256 == 0, true};
    uint64_t quantized[2];
    SL_TRY(sl_vk_norm_quantize(v, a->norm, want, quantized));
    SL_TRY(float_rows(v, a->logits, 0));
    SL_TRY(sl_vk_op_router(d, a->router));
    sl_vk_leave(v, sl_addr_of(a->norm->y), a->norm->n_rows, a->norm->n, quantized);
    return SL_OK;
}

/* ---- by heads ---- */

static enum sl_status keep(struct sl_vulkan *v, const struct sl_op_head_matmul *a) {
    const struct sl_vk_keep k = {.x = sl_addr_of(a->x + a->n_in),
                                 .y = sl_addr_of(a->y + a->n_out),
                                 .n_rows = a->n_tok * a->n_heads,
                                 .n = a->n_keep,
                                 .stride_x = a->stride_x,
                                 .stride_y = a->stride_y};
    uint64_t n = (uint64_t)k.n_rows * k.n;
    return n ? SL_VK_LAUNCH(v, keep, 0, sl_vk_elems(n), k) : SL_OK;
}

enum sl_status sl_vk_op_head_matmul(struct sl_device *d, const struct sl_op_head_matmul *a) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    bool is_float = sl_is_float(a->dtype);
    struct sl_vk_head k = {.w = sl_addr_of(a->w),
                           .x = sl_addr_of(a->x),
                           .y = sl_addr_of(a->y),
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
        uint64_t units = (uint64_t)a->n_tok * a->n_heads * sl_div_up(a->n_out, 16);
        return sl_vk_launch(v, SL_VK_head_turned, (uint32_t)a->dtype, sl_div_up(units, 64), &k,
                            sizeof k);
    }
    if (!is_float) {
        SL_TRY(sl_vk_quantize(v, a->dtype, k.x, a->n_tok * a->n_heads, a->n_in, a->stride_x,
                              v->scratch.addr));
        k.x = v->scratch.addr;
    }
    uint64_t n = sl_div_up(a->n_out, is_float ? SL_VK_WIDE_ROWS : SL_VK_PRODUCT_ROWS) * a->n_heads *
                 sl_div_up(a->n_tok, SL_VK_PRODUCT_TOK);
    return sl_vk_launch(v, is_float ? SL_VK_head_float : SL_VK_head_quant, (uint32_t)a->dtype, n,
                        &k, sizeof k);
}
