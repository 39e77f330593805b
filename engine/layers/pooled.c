#include "engine/layers/pooled.h"

#include "backends/ops/matmul.h"
#include "backends/ops/pool.h"
#include "backends/ops/rope.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/op_asker.h"

/* Of blocks' keys, which decide what is attended to: whatever the type of the KV cache. */
#define KEY_DTYPE SL_DTYPE_F16

/* Stores of a layer, behind that of keys and values. */
enum { STORE_KEYS = 1, STORE_SUM };

static struct sl_latent_view block_keys(const struct sl_forward *f,
                                        const struct sl_attention_spec *spec, uint32_t layer) {
    const struct sl_kv_part *part = sl_kv_part(f->kv, layer, STORE_KEYS);
    return (struct sl_latent_view){.rows = sl_span_addr(sl_kv_part_span(f->kv, part)),
                                   .dtype = KEY_DTYPE,
                                   .n_latent = spec->index_dim,
                                   .page_bytes = part->bytes};
}

/* x [rows, n_pool_head, index_dim]: each head normed, then rotated as those of attention are. */
static enum sl_status norm_and_rotate(struct sl_forward *f, const struct sl_layer_weights *w,
                                      float *x, const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    const struct sl_rope_spec *r = &f->hp->rope[spec->rope];
    uint32_t n = f->step.n_rows, dim = spec->index_dim;
    SL_FORWARD_TRY("index norm",
                   sl_forward_norm(f, x, w->index_q_norm, x, n * spec->n_pool_head, dim));
    SL_FORWARD_TRY("index rope",
                   sl_op_rope(f->dev, &(struct sl_op_rope){.x = x,
                                                           .table = f->a.rope_table[spec->rope],
                                                           .n_tok = n,
                                                           .n_heads = spec->n_pool_head,
                                                           .head_dim = dim,
                                                           .stride = spec->n_pool_head * dim,
                                                           .n_freq = r->n_rot / 2,
                                                           .style = SL_ROPE_NEOX}));
    return SL_OK;
}

enum sl_status sl_pooled_index(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    uint32_t n = f->step.n_rows, dim = spec->index_dim;
    float *q = f->a.mixed, *k = q + (size_t)n * spec->n_pool_head * dim;
    SL_FORWARD_TRY("index", sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                                     .x = f->a.h,
                                                     .n_tok = n,
                                                     .n_decode = f->step.n_decode,
                                                     .n_w = 2,
                                                     .out = {{w->index_q, NULL, q, false},
                                                             {w->index_k, NULL, k, false}}}));
    SL_TRY(norm_and_rotate(f, w, q, where));
    SL_FORWARD_TRY("keys of blocks",
                   sl_op_pool_keys(f->dev, &(struct sl_op_pool_keys){
                                               .k = k,
                                               .norm = w->index_norm,
                                               .inv_freq = f->a.inv_freq[spec->rope],
                                               .state = sl_forward_state(
                                                   f, sl_kv_part(f->kv, where->layer, STORE_SUM)),
                                               .out = block_keys(f, spec, where->layer),
                                               .out_table = f->a.page_table,
                                               .n_tok = n,
                                               .n = dim,
                                               .ratio = spec->pool,
                                               .n_freq = f->hp->rope[spec->rope].n_rot / 2,
                                               .eps = f->hp->norm_eps,
                                               .mscale = f->rope_mscale[spec->rope]}));
    return SL_OK;
}

enum sl_status sl_pooled_attend(struct sl_forward *f, const struct sl_layer_weights *w,
                                const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    SL_FORWARD_TRY("block choice",
                   sl_op_pooled_choose(f->dev, &(struct sl_op_pooled_choose){
                                                   .keys = block_keys(f, spec, where->layer),
                                                   .q = f->a.mixed,
                                                   .chosen = f->a.chosen,
                                                   .page_table = f->a.page_table,
                                                   .row_seq = f->on_device.row_seq,
                                                   .row_len = f->on_device.row_len,
                                                   .n_tok = f->step.n_rows,
                                                   .n_decode = f->step.n_decode,
                                                   .n_heads = spec->n_pool_head,
                                                   .max_pages = f->plan->session_pages,
                                                   .n_top = spec->n_pool_top,
                                                   .ratio = spec->pool}));
    SL_FORWARD_TRY("attention",
                   sl_op_pooled_attention(f->dev, &(struct sl_op_pooled_attention){
                                                      {.kv = sl_kv_layer(f->kv, where->layer),
                                                       .q = f->a.q,
                                                       .y = f->a.mixed,
                                                       .chosen = f->a.chosen,
                                                       .page_table = f->a.page_table,
                                                       .row_seq = f->on_device.row_seq,
                                                       .row_len = f->on_device.row_len,
                                                       .n_tok = f->step.n_rows,
                                                       .n_decode = f->step.n_decode,
                                                       .n_heads = spec->n_head,
                                                       .stride_q = spec->n_head * spec->head_dim_k,
                                                       .max_pages = f->plan->session_pages,
                                                       .n_top = spec->n_pool_top,
                                                       .block = spec->pool,
                                                       .scale = spec->scale}}));
    return SL_OK;
}

void sl_pooled_need(const struct sl_attention_spec *spec, struct sl_layer_needs *needs) {
    if (!spec->pool)
        return;
    sl_raise(&needs->chosen, spec->n_pool_top);
    sl_raise(&needs->mixed, (spec->n_pool_head + 1) * spec->index_dim);
    sl_raise(&needs->heads, spec->n_pool_head);
    sl_raise(&needs->head_dim, spec->index_dim);
}

void sl_pooled_ops(struct sl_op_asker *a, const struct sl_layer *layer) {
    static const enum sl_op on_keys[] = {SL_OP_pool_keys, SL_OP_pooled_choose};
    const struct sl_attention_spec *s = &layer->spec.attention;
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_INDEX_Q]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_INDEX_K]);
    for (uint32_t i = 0; i < sizeof on_keys / sizeof on_keys[0]; i++)
        sl_ask_op(a, (struct sl_op_need){.op = on_keys[i],
                                         .dtype = KEY_DTYPE,
                                         .head_dim_k = s->index_dim,
                                         .head_dim_v = s->index_dim});
}

bool sl_pooled_keeps(const struct sl_layer_spec *spec, uint32_t i, struct sl_seq_store *out) {
    const struct sl_attention_spec *a = &spec->attention;
    if (!a->pool || i > 1)
        return false;
    *out = i ? (struct sl_seq_store){.name = "sums of keys",
                                     .n_parts = 1,
                                     .part_bytes = {a->index_dim * sizeof(float)},
                                     .reach = 1}
             : (struct sl_seq_store){.name = "keys of blocks",
                                     .n_parts = 1,
                                     .part_bytes = {SL_KV_PAGE_TOKENS / a->pool *
                                                    sl_dtype_row_bytes(KEY_DTYPE, a->index_dim)},
                                     .reach = SL_SEQ_ALL,
                                     .repeatable = true};
    return true;
}
