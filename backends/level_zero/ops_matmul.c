/* Products with weights. Rows of input are quantised first where the weights are. */
#include "backends/level_zero/ops.h"
#include "backends/ops/matmul.h"

#define QUANTIZE_BLOCKS 4u /* of 256 elements, that a group takes: kernels/quantize.cl */

/* Scratch of matmul: the input, quantised for types of 256 elements and of 32. Of moe: the same,
 * and for each pair gate, up and the activation's output, quantised. Of head_matmul: each head's
 * part of the rows, quantised. Of index_choose: scores. Of attention: the parts of a row of heads.
 */
uint64_t sl_lz_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *l) {
    (void)d;
    uint64_t matmul = 2 * sl_round_256(sl_qx_bytes(l->max_tok, l->max_n_in));
    uint64_t moe = 2 * sl_round_256(sl_qx_bytes(l->max_tok, l->max_n_embd)) +
                   2 * sl_round_256((uint64_t)l->max_pairs * l->max_n_ff * sizeof(float)) +
                   sl_round_256(sl_qx_bytes(l->max_pairs, l->max_n_ff));
    uint64_t heads = sl_round_256(sl_qx_bytes((uint64_t)l->max_tok * l->max_heads, l->max_head_n));
    uint64_t scores = sl_index_scratch(l), n_rows = (uint64_t)l->max_tok * l->max_heads;
    n_rows = n_rows < SL_LZ_ATTENTION_ROWS ? n_rows : SL_LZ_ATTENTION_ROWS;
    uint64_t parts =
        n_rows * SL_LZ_ATTENTION_PARTS * ((uint64_t)l->max_head_dim + 2) * sizeof(float);
    uint64_t most = matmul > moe ? matmul : moe;
    most = most > heads ? most : heads;
    most = most > parts ? most : parts;
    return most > scores ? most : scores;
}

enum sl_status sl_lz_quantize(struct sl_level_zero *z, enum sl_dtype t, uint64_t x, uint32_t n_rows,
                              uint32_t n, uint32_t stride, uint64_t y) {
    const struct sl_lz_quantize k = {x, y, n_rows, n, sl_is_block32(t), stride};
    uint64_t blocks = (uint64_t)n_rows * sl_div_up(n, 256);
    return SL_LZ_LAUNCH(z, quantize, 0, sl_div_up(blocks, QUANTIZE_BLOCKS), k);
}

static enum sl_status product(struct sl_level_zero *z, const struct sl_op_matmul *a,
                              const struct sl_matmul_out *o, uint64_t x) {
    const struct sl_lz_matmul k = {.w = sl_addr_of(o->w.data),
                                   .x = x,
                                   .bias = sl_addr_of(o->bias),
                                   .y = sl_addr_of(o->y),
                                   .row_bytes = sl_dtype_row_bytes(o->w.dtype, o->w.n_in),
                                   .n_in = o->w.n_in,
                                   .n_out = o->w.n_out,
                                   .n_tok = a->n_tok,
                                   .add = o->add};
    const struct sl_lz_product p =
        sl_lz_product(z, o->w.dtype, a->n_tok, SL_LZ_matmul_float, SL_LZ_matmul_quant,
                      SL_LZ_matmul_quant_one, SL_LZ_matmul_quant_few);
    uint64_t n = sl_div_up(o->w.n_out, p.rows) * sl_div_up(a->n_tok, p.tok);
    return n ? sl_lz_launch(z, p.kernel, (uint32_t)o->w.dtype, n, &k, sizeof k) : SL_OK;
}

enum sl_status sl_lz_op_matmul(struct sl_device *d, const struct sl_op_matmul *a) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    uint32_t n_in = a->n_w ? a->out[0].w.n_in : 0;
    uint64_t half = sl_round_256(sl_qx_bytes(a->n_tok, n_in));
    bool made[2] = {false, false}, alone = true; /* products of one input need no order */
    if (!a->n_tok)
        return SL_OK;
    for (uint32_t m = 0; m < a->n_w; m++) {
        const struct sl_matmul_out *o = &a->out[m];
        uint64_t x = sl_addr_of(a->x);
        if (!sl_is_float(o->w.dtype)) {
            bool b32 = sl_is_block32(o->w.dtype);
            x = sl_addr_of(z->scratch) + (b32 ? half : 0);
            if (!made[b32]) {
                SL_TRY(sl_lz_quantize(z, o->w.dtype, sl_addr_of(a->x), a->n_tok, n_in, n_in, x));
                alone = true; /* this waits for what was just launched */
            }
            made[b32] = true;
        }
        if (!alone && o->w.n_out) /* else nothing is launched that would use it up */
            sl_lz_overlap(z);
        alone = false;
        SL_TRY(product(z, a, o, x));
    }
    return SL_OK;
}

/* ---- a matrix for each head ---- */

static enum sl_status keep(struct sl_level_zero *z, const struct sl_op_head_matmul *a) {
    const struct sl_lz_keep k = {.x = sl_addr_of(a->x + a->n_in),
                                 .y = sl_addr_of(a->y + a->n_out),
                                 .n_rows = a->n_tok * a->n_heads,
                                 .n = a->n_keep,
                                 .stride_x = a->stride_x,
                                 .stride_y = a->stride_y};
    uint64_t n = (uint64_t)k.n_rows * k.n;
    return n ? SL_LZ_LAUNCH(z, keep, 0, sl_lz_elems(n), k) : SL_OK;
}

enum sl_status sl_lz_op_head_matmul(struct sl_device *d, const struct sl_op_head_matmul *a) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    bool is_float = sl_is_float(a->dtype);
    struct sl_lz_head k = {.w = sl_addr_of(a->w),
                           .x = sl_addr_of(a->x),
                           .y = sl_addr_of(a->y),
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
    SL_TRY(keep(z, a));
    if (a->transposed) {
        uint64_t units = (uint64_t)a->n_tok * a->n_heads * sl_div_up(a->n_out, 16);
        return SL_LZ_LAUNCH(z, head_turned, (uint32_t)a->dtype, sl_lz_elems(units), k);
    }
    if (!is_float) {
        SL_TRY(sl_lz_quantize(z, a->dtype, k.x, a->n_tok * a->n_heads, a->n_in, a->stride_x,
                              sl_addr_of(z->scratch)));
        k.x = sl_addr_of(z->scratch);
    }
    const struct sl_lz_product p =
        sl_lz_product(z, a->dtype, a->n_tok, SL_LZ_head_float, SL_LZ_head_quant,
                      SL_LZ_head_quant_one, SL_LZ_head_quant_few);
    uint64_t n = sl_div_up(a->n_out, p.rows) * a->n_heads * sl_div_up(a->n_tok, p.tok);
    return sl_lz_launch(z, p.kernel, (uint32_t)a->dtype, n, &k, sizeof k);
}
