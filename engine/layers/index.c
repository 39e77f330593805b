#include "engine/layers/index.h"

#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/op_asker.h"

#define KEY_DTYPE SL_DTYPE_F16
/* Of the keys' layer norm: no key of the file says it. */
#define KEY_NORM_EPS 1e-6f

/* Elements that are rotated together so that none sticks out: the largest power of two that divides
 * a head. */
static uint32_t spread(const struct sl_latent_spec *c) {
    return c->index_dim & -c->index_dim;
}

static enum sl_status rope(struct sl_forward *f, const struct sl_latent_spec *c, float *x,
                           uint32_t n_head) {
    return sl_op_rope(f->dev,
                      &(struct sl_op_rope){.x = x,
                                           .table = f->a.rope_table[c->rope],
                                           .n_tok = f->step.n_rows,
                                           .n_heads = n_head,
                                           .head_dim = c->index_dim,
                                           .stride = n_head * c->index_dim,
                                           .n_freq = f->hp->rope[c->rope].n_rot / 2,
                                           .style = c->index_neox ? SL_ROPE_NEOX : SL_ROPE_NORM});
}

/* A layer norm of each row's key. */
static enum sl_status norm_keys(struct sl_forward *f, const struct sl_layer_weights *w,
                                const struct sl_place *where) {
    uint32_t n_rows = f->step.n_rows, dim = w->spec->latent.index_dim;
    float *k = sl_index_key(f);
    SL_FORWARD_TRY(
        "index norm",
        sl_op_center(f->dev, &(struct sl_op_center){.x = k, .y = k, .n_tok = n_rows, .n = dim}));
    SL_FORWARD_TRY("index norm",
                   sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = k,
                                                                   .w = w->index_norm,
                                                                   .y = k,
                                                                   .n_rows = n_rows,
                                                                   .n = dim,
                                                                   .stride_x = dim,
                                                                   .stride_y = dim,
                                                                   .eps = KEY_NORM_EPS}));
    SL_FORWARD_TRY("index norm",
                   sl_op_bias(f->dev, &(struct sl_op_bias){
                                          .x = k, .b = w->index_bias, .n_tok = n_rows, .n = dim}));
    return SL_OK;
}

enum sl_status sl_index_choose(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_latent_spec *c = &w->spec->latent;
    const struct sl_step *s = &f->step;
    const struct sl_kv_part *part = sl_kv_part(f->kv, where->layer, 1);
    struct sl_latent_view keys = {.rows = sl_span_addr(sl_kv_part_span(f->kv, part)),
                                  .dtype = KEY_DTYPE,
                                  .n_latent = c->index_dim,
                                  .page_bytes = part->bytes};
    float *q = sl_index_queries(f), *k = sl_index_key(f);
    uint32_t n = spread(c);
    SL_TRY(norm_keys(f, w, where));
    SL_FORWARD_TRY("index rope", rope(f, c, k, 1));
    SL_FORWARD_TRY("index rope", rope(f, c, q, c->n_index_head));
    SL_FORWARD_TRY(
        "index rotation",
        sl_op_hadamard(f->dev, &(struct sl_op_hadamard){
                                   .x = k, .n_rows = s->n_rows * (c->index_dim / n), .n = n}));
    SL_FORWARD_TRY(
        "index rotation",
        sl_op_hadamard(
            f->dev,
            &(struct sl_op_hadamard){
                .x = q, .n_rows = s->n_rows * c->n_index_head * (c->index_dim / n), .n = n}));
    SL_FORWARD_TRY("index write", sl_op_latent_write(f->dev, &(struct sl_op_latent_write){
                                                                 .kv = keys,
                                                                 .x = k,
                                                                 .slot = f->on_device.slot,
                                                                 .n_tok = s->n_rows,
                                                                 .stride = c->index_dim}));
    SL_FORWARD_TRY("index", sl_op_index_choose(f->dev, &(struct sl_op_index_choose){
                                                           .keys = keys,
                                                           .q = q,
                                                           .w = sl_index_weights(f, c),
                                                           .chosen = f->a.chosen,
                                                           .page_table = f->a.page_table,
                                                           .row_seq = f->on_device.row_seq,
                                                           .row_len = f->on_device.row_len,
                                                           .n_tok = s->n_rows,
                                                           .n_decode = s->n_decode,
                                                           .n_heads = c->n_index_head,
                                                           .max_pages = f->plan->session_pages,
                                                           .n_top = c->n_index_top}));
    return SL_OK;
}

void sl_index_need(const struct sl_latent_spec *c, struct sl_layer_needs *needs) {
    sl_raise(&needs->chosen, c->n_index_top);
    if (!sl_latent_chooses(c))
        return;
    sl_raise(&needs->joint, c->n_index_head * c->index_dim);
    sl_raise(&needs->mixed, c->index_dim + c->n_index_head);
    sl_raise(&needs->heads, c->n_index_head);
    sl_raise(&needs->head_dim, c->index_dim);
}

void sl_index_bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->index_q = sl_bind_matrix(b, in->t[SL_L_INDEX_Q]);
    out->index_k = sl_bind_matrix(b, in->t[SL_L_INDEX_K]);
    out->index_w = sl_bind_matrix(b, in->t[SL_L_INDEX_WEIGHTS]);
    out->index_norm = sl_bind_vector(b, in->t[SL_L_INDEX_K_NORM]);
    out->index_bias = sl_bind_vector(b, in->t[SL_L_INDEX_K_BIAS]);
}

void sl_index_ops(struct sl_op_asker *a, const struct sl_layer *layer) {
    static const enum sl_layer_role matrices[] = {SL_L_INDEX_Q, SL_L_INDEX_K, SL_L_INDEX_WEIGHTS};
    static const enum sl_op plain[] = {SL_OP_center, SL_OP_bias, SL_OP_hadamard};
    static const enum sl_op on_keys[] = {SL_OP_latent_write, SL_OP_index_choose};
    const struct sl_latent_spec *c = &layer->spec.latent;
    if (!sl_latent_chooses(c))
        return;
    for (uint32_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        sl_ask_plain(a, plain[i]);
    for (uint32_t i = 0; i < sizeof on_keys / sizeof on_keys[0]; i++)
        sl_ask_op(a, (struct sl_op_need){.op = on_keys[i],
                                         .dtype = KEY_DTYPE,
                                         .head_dim_k = c->index_dim,
                                         .head_dim_v = c->index_dim});
    for (uint32_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[matrices[i]]);
}

bool sl_index_keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype, uint32_t i,
                    struct sl_seq_store *out) {
    const struct sl_latent_spec *c = &spec->latent;
    (void)kv_dtype;
    if (i || !sl_latent_chooses(c))
        return false;
    *out = (struct sl_seq_store){
        .name = "index keys",
        .n_parts = 1,
        .part_bytes = {SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(KEY_DTYPE, c->index_dim)},
        .reach = SL_SEQ_ALL,
        .repeatable = true};
    return true;
}
