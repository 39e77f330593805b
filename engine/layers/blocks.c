#include "engine/layers/blocks.h"

#include "backends/ops/index.h"
#include "backends/ops/matmul.h"
#include "backends/ops/rope.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/op_asker.h"

#define KEY_DTYPE SL_DTYPE_F16

/* The store behind keys and values. */
static struct sl_latent_view index_keys(const struct sl_forward *f,
                                        const struct sl_attention_spec *spec, uint32_t layer) {
    const struct sl_kv_part *part = sl_kv_part(f->kv, layer, 1);
    return (struct sl_latent_view){.rows = sl_span_addr(sl_kv_part_span(f->kv, part)),
                                   .dtype = KEY_DTYPE,
                                   .n_latent = spec->index_dim,
                                   .page_bytes = part->bytes};
}

/* x [rows, n_head, index_dim]: each head normed, then rotated as those of attention are. */
static enum sl_status norm_and_rotate(struct sl_forward *f, const struct sl_attention_spec *spec,
                                      float *x, const float *norm, uint32_t n_head,
                                      const struct sl_place *where) {
    const struct sl_rope_spec *r = &f->hp->rope[spec->rope];
    uint32_t n = f->step.n_rows, dim = spec->index_dim;
    SL_FORWARD_TRY("index norm", sl_forward_norm(f, x, norm, x, n * n_head, dim));
    SL_FORWARD_TRY("index rope",
                   sl_op_rope(f->dev, &(struct sl_op_rope){.x = x,
                                                           .table = f->a.rope_table[spec->rope],
                                                           .n_tok = n,
                                                           .n_heads = n_head,
                                                           .head_dim = dim,
                                                           .stride = n_head * dim,
                                                           .n_freq = r->n_rot / 2,
                                                           .style = r->kind == SL_ROPE_KIND_NORM
                                                                        ? SL_ROPE_NORM
                                                                        : SL_ROPE_NEOX}));
    return SL_OK;
}

enum sl_status sl_blocks_index(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    float *q = f->a.joint, *k = f->a.mixed;
    SL_FORWARD_TRY("index", sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                                     .x = f->a.h,
                                                     .n_tok = f->step.n_rows,
                                                     .n_decode = f->step.n_decode,
                                                     .n_w = 2,
                                                     .out = {{w->index_q, NULL, q, false},
                                                             {w->index_k, NULL, k, false}}}));
    SL_TRY(norm_and_rotate(f, spec, q, w->index_q_norm, spec->n_head_kv, where));
    SL_TRY(norm_and_rotate(f, spec, k, w->index_norm, 1, where));
    SL_FORWARD_TRY("index write",
                   sl_op_latent_write(
                       f->dev, &(struct sl_op_latent_write){.kv = index_keys(f, spec, where->layer),
                                                            .x = k,
                                                            .slot = f->on_device.slot,
                                                            .n_tok = f->step.n_rows,
                                                            .stride = spec->index_dim}));
    return SL_OK;
}

enum sl_status sl_blocks_choose(struct sl_forward *f, const struct sl_layer_weights *w,
                                const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    SL_FORWARD_TRY("block choice",
                   sl_op_block_choose(f->dev, &(struct sl_op_block_choose){
                                                  .keys = index_keys(f, spec, where->layer),
                                                  .q = f->a.joint,
                                                  .chosen = f->a.chosen,
                                                  .page_table = f->a.page_table,
                                                  .row_seq = f->on_device.row_seq,
                                                  .row_len = f->on_device.row_len,
                                                  .n_tok = f->step.n_rows,
                                                  .n_decode = f->step.n_decode,
                                                  .n_heads = spec->n_head_kv,
                                                  .max_pages = f->plan->session_pages,
                                                  .n_top = spec->n_index_top,
                                                  .n_local = spec->n_index_local,
                                                  .block = spec->index_block}));
    return SL_OK;
}

void sl_blocks_need(const struct sl_attention_spec *spec, struct sl_layer_needs *needs) {
    if (!spec->n_index_top)
        return;
    sl_raise(&needs->chosen, spec->n_head_kv * spec->n_index_top);
    sl_raise(&needs->joint, spec->n_head_kv * spec->index_dim);
    sl_raise(&needs->mixed, spec->index_dim);
    sl_raise(&needs->head_dim, spec->index_dim);
}

void sl_blocks_bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->index_q = sl_bind_matrix(b, in->t[SL_L_INDEX_Q]);
    out->index_k = sl_bind_matrix(b, in->t[SL_L_INDEX_K]);
    out->index_q_norm = sl_bind_vector(b, in->t[SL_L_INDEX_Q_NORM]);
    out->index_norm = sl_bind_vector(b, in->t[SL_L_INDEX_K_NORM]);
}

void sl_blocks_ops(struct sl_op_asker *a, const struct sl_layer *layer) {
    static const enum sl_op on_keys[] = {SL_OP_latent_write, SL_OP_block_choose};
    const struct sl_attention_spec *s = &layer->spec.attention;
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_INDEX_Q]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_INDEX_K]);
    for (uint32_t i = 0; i < sizeof on_keys / sizeof on_keys[0]; i++)
        sl_ask_op(a, (struct sl_op_need){.op = on_keys[i],
                                         .dtype = KEY_DTYPE,
                                         .head_dim_k = s->index_dim,
                                         .head_dim_v = s->index_dim});
}

bool sl_blocks_keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype, uint32_t i,
                     struct sl_seq_store *out) {
    const struct sl_attention_spec *a = &spec->attention;
    (void)kv_dtype;
    if (i || !a->n_index_top)
        return false;
    *out = (struct sl_seq_store){
        .name = "index keys",
        .n_parts = 1,
        .part_bytes = {SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(KEY_DTYPE, a->index_dim)},
        .reach = SL_SEQ_ALL,
        .repeatable = true};
    return true;
}
