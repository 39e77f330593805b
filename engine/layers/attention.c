/* The mixer that is grouped-query attention over paged keys and values. */
#include "backends/ops/attention.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "engine/layers/blocks.h"
#include "engine/layers/experts.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/pooled.h"
#include "engine/layers/streams.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

/* Where q's product goes: with gates, each head's norm takes its query from there. */
static float *q_product(const struct sl_forward *f, const struct sl_attention_spec *spec) {
    return spec->gated ? f->a.joint : f->a.q;
}

/* Queries of heads that have gates: normed, and from there on without them. */
static enum sl_status gated_q_norm(struct sl_forward *f, const struct sl_layer_weights *w) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    return sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = f->a.joint,
                                                           .w = w->q_norm,
                                                           .y = f->a.q,
                                                           .n_rows = f->step.n_rows * spec->n_head,
                                                           .n = spec->head_dim_k,
                                                           .stride_x = 2 * spec->head_dim_k,
                                                           .stride_y = spec->head_dim_k,
                                                           .eps = f->hp->norm_eps});
}

/* Of q or k, as the layer has it: one of n_head heads. */
static enum sl_status head_norm(struct sl_forward *f, const struct sl_attention_spec *spec,
                                float *x, const float *w, uint32_t n_head) {
    uint32_t dim = spec->head_dim_k, n_tok = f->step.n_rows;
    return spec->qk_norm == SL_QK_NORM_ROW ? sl_forward_norm(f, x, w, x, n_tok, n_head * dim)
                                           : sl_forward_norm(f, x, w, x, n_tok * n_head, dim);
}

static enum sl_status qk_norms(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    if (spec->gated)
        SL_FORWARD_TRY("q norm", gated_q_norm(f, w));
    else if (w->q_norm)
        SL_FORWARD_TRY("q norm", head_norm(f, spec, f->a.q, w->q_norm, spec->n_head));
    if (w->k_norm)
        SL_FORWARD_TRY("k norm", head_norm(f, spec, f->a.k, w->k_norm, spec->n_head_kv));
    return SL_OK;
}

static enum sl_status rope(struct sl_forward *f, const struct sl_attention_spec *spec, float *x,
                           uint32_t n_head) {
    const struct sl_rope_spec *r = &f->hp->rope[spec->rope];
    return sl_op_rope(
        f->dev,
        &(struct sl_op_rope){.x = x,
                             .table = f->a.rope_table[spec->rope],
                             .n_tok = f->step.n_rows,
                             .n_heads = n_head,
                             .head_dim = spec->head_dim_k,
                             .stride = n_head * spec->head_dim_k,
                             .n_freq = r->n_rot / 2,
                             .style = r->kind == SL_ROPE_KIND_NORM ? SL_ROPE_NORM : SL_ROPE_NEOX});
}

static enum sl_status after_rope(struct sl_forward *f, const struct sl_attention_spec *spec,
                                 const struct sl_place *where) {
    uint32_t n = f->step.n_rows, dim = spec->head_dim_k;
    if (spec->qk_norm_plain) {
        SL_FORWARD_TRY("q norm", sl_forward_norm(f, f->a.q, NULL, f->a.q, n * spec->n_head, dim));
        SL_FORWARD_TRY("k norm",
                       sl_forward_norm(f, f->a.k, NULL, f->a.k, n * spec->n_head_kv, dim));
    }
    if (spec->temper_span)
        SL_FORWARD_TRY("temperature",
                       sl_op_temper(f->dev, &(struct sl_op_temper){.x = f->a.q,
                                                                   .pos = f->on_device.pos,
                                                                   .n_tok = n,
                                                                   .n = spec->n_head * dim,
                                                                   .span = spec->temper_span,
                                                                   .offset = spec->temper_ahead,
                                                                   .scale = spec->temper_scale}));
    return SL_OK;
}

/* The layer whose keys and values it reads. */
static uint32_t kv_layer(const struct sl_attention_spec *spec, const struct sl_place *where) {
    return where->layer - spec->kv_back;
}

static enum sl_status write_kv(struct sl_forward *f, const struct sl_attention_spec *spec,
                               const float *v, const struct sl_place *where) {
    SL_FORWARD_TRY("kv write",
                   sl_op_kv_write(f->dev, &(struct sl_op_kv_write){
                                              .kv = sl_kv_layer(f->kv, where->layer),
                                              .k = f->a.k,
                                              .v = v,
                                              .slot = sl_kv_is_tail(f->kv, where->layer)
                                                          ? f->on_device.tail_slot
                                                          : f->on_device.slot,
                                              .n_tok = f->step.n_rows,
                                              .stride_k = spec->n_head_kv * spec->head_dim_k,
                                              .stride_v = spec->n_head_kv * spec->head_dim_v}));
    return SL_OK;
}

/* q, k, v of all rows; k and v go to the cache, unless the layer reads another's. */
static enum sl_status project_qkv(struct sl_forward *f, const struct sl_layer_weights *w,
                                  const struct sl_rows *r, const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    const float *x;
    SL_TRY(sl_streams_read(f, r, &w->streams[0], &x, where));
    if (x != a->h)
        SL_FORWARD_TRY("attention norm",
                       sl_forward_row_norm(f, x, w->attn_norm, w->attn_norm_bias, a->h, s->n_rows));
    struct sl_op_matmul in = {.x = a->h,
                              .n_tok = s->n_rows,
                              .n_decode = s->n_decode,
                              .n_w = 1,
                              .out = {{w->q, w->q_bias, q_product(f, spec), false}}};
    if (!spec->kv_back)
        in.out[in.n_w++] = (struct sl_matmul_out){w->k, w->k_bias, a->k, false};
    if (!spec->kv_back && !spec->v_of_k)
        in.out[in.n_w++] = (struct sl_matmul_out){w->v, w->v_bias, a->v, false};
    if (spec->gate)
        in.out[in.n_w++] = (struct sl_matmul_out){w->attn_gate, NULL, a->joint, false};
    SL_FORWARD_TRY("q, k, v", sl_op_matmul(f->dev, &in));
    if (spec->n_index_top)
        SL_TRY(sl_blocks_index(f, w, where));
    if (spec->pool)
        SL_TRY(sl_pooled_index(f, w, where));
    for (uint32_t i = 0; i < in.n_w - (spec->gate != 0) && spec->clamp > 0; i++)
        SL_FORWARD_TRY("q, k, v", sl_op_clamp(f->dev, &(struct sl_op_clamp){.x = in.out[i].y,
                                                                            .n = (size_t)s->n_rows *
                                                                                 in.out[i].w.n_out,
                                                                            .limit = spec->clamp}));
    const float *v = spec->v_of_k ? a->k : a->v;
    if (spec->v_norm && !spec->kv_back) {
        SL_FORWARD_TRY("v norm", sl_forward_norm(f, v, NULL, a->v, s->n_rows * spec->n_head_kv,
                                                 spec->head_dim_v));
        v = a->v;
    }
    SL_TRY(spec->norm_after_rope ? SL_OK : qk_norms(f, w, where));
    if (!spec->no_rope) {
        SL_FORWARD_TRY("rope", rope(f, spec, a->q, spec->n_head));
        if (!spec->kv_back)
            SL_FORWARD_TRY("rope", rope(f, spec, a->k, spec->n_head_kv));
    }
    SL_TRY(spec->norm_after_rope ? qk_norms(f, w, where) : SL_OK);
    SL_TRY(after_rope(f, spec, where));
    return spec->kv_back ? SL_OK : write_kv(f, spec, v, where);
}

/* To all positions that its range has. */
static enum sl_status attend_all(struct sl_forward *f, const struct sl_layer_weights *w,
                                 const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    SL_FORWARD_TRY(
        "attention",
        sl_op_attention(f->dev, &(struct sl_op_attention){
                                    .kv = sl_kv_layer(f->kv, where->layer),
                                    .q = a->q,
                                    .sinks = w->sinks,
                                    .y = a->mixed,
                                    .page_table = sl_kv_is_tail(f->kv, kv_layer(spec, where))
                                                      ? a->tail_table
                                                      : a->page_table,
                                    .row_seq = f->on_device.row_seq,
                                    .row_len = f->on_device.row_len,
                                    .n_tok = s->n_rows,
                                    .n_decode = s->n_decode,
                                    .n_heads = spec->n_head,
                                    .stride_q = spec->n_head * spec->head_dim_k,
                                    .max_pages = f->plan->session_pages,
                                    .window = spec->window,
                                    .scale = spec->scale,
                                    .softcap = spec->softcap,
                                    .chunk = spec->chunk}));
    return SL_OK;
}

/* To the blocks that the indexer chooses. */
static enum sl_status attend_blocks(struct sl_forward *f, const struct sl_layer_weights *w,
                                    const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    SL_TRY(sl_blocks_choose(f, w, where));
    SL_FORWARD_TRY("attention",
                   sl_op_block_attention(f->dev, &(struct sl_op_block_attention){
                                                     .kv = sl_kv_layer(f->kv, where->layer),
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
                                                     .n_top = spec->n_index_top,
                                                     .block = spec->index_block,
                                                     .scale = spec->scale}));
    return SL_OK;
}

static enum sl_status attend(struct sl_forward *f, const struct sl_layer_weights *w,
                             const struct sl_place *where) {
    const struct sl_attention_spec *spec = &w->spec->attention;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    if (spec->n_index_top)
        return attend_blocks(f, w, where);
    SL_TRY(spec->pool ? sl_pooled_attend(f, w, where) : attend_all(f, w, where));
    if (spec->value_scale > 0 && spec->value_scale != 1)
        SL_FORWARD_TRY("value scale", sl_op_scale(f->dev, &(struct sl_op_scale){
                                                              .x = a->mixed,
                                                              .n_tok = s->n_rows,
                                                              .n = spec->n_head * spec->head_dim_v,
                                                              .scale = spec->value_scale}));
    if (spec->gate == SL_GATE_ELEMENT && !spec->gate_softplus)
        SL_FORWARD_TRY("attention gate",
                       sl_op_mul_sigmoid(
                           f->dev, &(struct sl_op_mul_sigmoid){.gate = a->joint,
                                                               .y = a->mixed,
                                                               .n_rows = s->n_rows * spec->n_head,
                                                               .n = spec->head_dim_v,
                                                               .stride_gate = spec->head_dim_v}));
    else if (spec->gate)
        SL_FORWARD_TRY("attention gate",
                       sl_op_gate_heads(f->dev, &(struct sl_op_gate_heads){
                                                    .gate = a->joint,
                                                    .y = a->mixed,
                                                    .n_tok = s->n_rows,
                                                    .n_heads = spec->n_head,
                                                    .n = spec->head_dim_v,
                                                    .per_head = spec->gate == SL_GATE_HEAD,
                                                    .softplus = spec->gate_softplus}));
    if (spec->gated)
        SL_FORWARD_TRY("attention gate",
                       sl_op_mul_sigmoid(f->dev, &(struct sl_op_mul_sigmoid){
                                                     .gate = a->joint + spec->head_dim_k,
                                                     .y = a->mixed,
                                                     .n_rows = s->n_rows * spec->n_head,
                                                     .n = spec->head_dim_v,
                                                     .stride_gate = 2 * spec->head_dim_k}));
    return SL_OK;
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    const struct sl_attention_spec *spec = &w->spec->attention;
    const struct sl_step *s = &f->step;
    const float *mixed = f->a.mixed;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(project_qkv(f, w, r, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    bool cut = sl_forward_cuts(f, where->layer);
    if (cut && s->n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    SL_TRY(attend(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    if (cut)
        SL_TRY(sl_forward_cut(f, r, &mixed, spec->n_head * spec->head_dim_v, where));
    if (w->spec->experts.early) /* before attention is added */
        SL_FORWARD_TRY("experts' norm",
                       sl_forward_row_norm(f, r->x, w->experts_norm, NULL, f->a.early_h, r->n));
    if (cut && w->spec->parallel) /* of the rows that go on */
        SL_FORWARD_TRY("attention norm",
                       sl_forward_row_norm(f, r->x, w->attn_norm, w->attn_norm_bias, f->a.h, r->n));
    SL_TRY(sl_forward_route_first(f, r, where));
    bool separate = w->attn_post_norm || spec->out_scale > 0 || f->hp->n_stream;
    float *y = separate ? f->a.h : r->x;
    SL_FORWARD_TRY(
        "attention out",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = mixed,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, w->out_bias, y, y == r->x}}}));
    if (spec->out_scale > 0)
        SL_FORWARD_TRY("attention scale",
                       sl_op_scale(f->dev, &(struct sl_op_scale){.x = y,
                                                                 .n_tok = r->n,
                                                                 .n = f->hp->n_embd,
                                                                 .scale = spec->out_scale}));
    if (separate)
        SL_TRY(sl_streams_write(f, r, &w->streams[0], y, w->attn_post_norm, where));
    sl_timeline_since(f->timeline, "attention", start, {"rows", s->n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_attention_spec *a = &spec->attention;
    (void)hp;
    if (a->gated)
        sl_raise(&needs->joint, 2 * a->n_head * a->head_dim_k);
    if (a->gate)
        sl_raise(&needs->joint, a->gate == SL_GATE_HEAD ? a->n_head : a->n_head * a->head_dim_v);
    sl_raise(&needs->q, a->n_head * a->head_dim_k);
    sl_raise(&needs->k, a->n_head_kv * a->head_dim_k);
    sl_raise(&needs->v, a->n_head_kv * a->head_dim_v);
    sl_raise(&needs->mixed, a->n_head * a->head_dim_v);
    sl_raise(&needs->n_in, a->n_head * a->head_dim_v);
    sl_raise(&needs->heads, a->n_head);
    sl_raise(&needs->head_dim, a->head_dim_k);
    sl_raise(&needs->head_dim, a->head_dim_v);
    sl_blocks_need(a, needs);
    sl_pooled_need(a, needs);
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->attn_norm_bias = sl_bind_vector(b, in->t[SL_L_ATTN_NORM_BIAS]);
    const struct sl_gguf_tensor *qkv = in->t[SL_L_ATTN_QKV];
    const struct sl_attention_spec *a = &in->spec.attention;
    uint32_t q = a->n_head * a->head_dim_k, k = a->n_head_kv * a->head_dim_k;
    out->q = qkv ? sl_bind_rows(b, qkv, 0, q) : sl_bind_matrix(b, in->t[SL_L_ATTN_Q]);
    out->k = qkv ? sl_bind_rows(b, qkv, q, k) : sl_bind_matrix(b, in->t[SL_L_ATTN_K]);
    out->v = qkv ? sl_bind_rows(b, qkv, q + k, a->n_head_kv * a->head_dim_v)
                 : sl_bind_matrix(b, in->t[SL_L_ATTN_V]);
    out->attn_gate = sl_bind_matrix(b, in->t[SL_L_ATTN_GATE]);
    out->out = sl_bind_matrix(b, in->t[SL_L_ATTN_OUT]);
    out->q_bias = sl_bind_vector(b, in->t[SL_L_ATTN_Q_BIAS]);
    out->k_bias = sl_bind_vector(b, in->t[SL_L_ATTN_K_BIAS]);
    out->v_bias = sl_bind_vector(b, in->t[SL_L_ATTN_V_BIAS]);
    out->out_bias = sl_bind_vector(b, in->t[SL_L_ATTN_OUT_BIAS]);
    out->q_norm = sl_bind_vector(b, in->t[SL_L_ATTN_Q_NORM]);
    out->k_norm = sl_bind_vector(b, in->t[SL_L_ATTN_K_NORM]);
    out->sinks = sl_bind_vector(b, in->t[SL_L_ATTN_SINKS]);
    out->attn_post_norm = sl_bind_vector(b, in->t[SL_L_ATTN_POST_NORM]);
    if (a->n_index_top || a->pool)
        sl_blocks_bind(b, in, out);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    const struct sl_attention_spec *s = &layer->spec.attention;
    enum sl_dtype kv = sl_asker_kv(a);
    sl_ask_plain(a, SL_OP_rms_norm);
    if (hp->layer_norm)
        sl_ask_plain(a, SL_OP_center);
    if (layer->t[SL_L_ATTN_NORM_BIAS] || layer->t[SL_L_FFN_NORM_BIAS])
        sl_ask_plain(a, SL_OP_bias);
    for (enum sl_layer_role role = SL_L_ATTN_Q; role <= SL_L_ATTN_OUT; role++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[role]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_ATTN_QKV]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_ATTN_GATE]);
    sl_ask_op(a, (struct sl_op_need){.op = SL_OP_kv_write,
                                     .dtype = kv,
                                     .head_dim_k = s->head_dim_k,
                                     .head_dim_v = s->head_dim_v});
    if (s->n_index_top)
        sl_blocks_ops(a, layer);
    if (s->pool)
        sl_pooled_ops(a, layer);
    sl_ask_op(a, (struct sl_op_need){.op = s->n_index_top ? SL_OP_block_attention
                                           : s->pool      ? SL_OP_pooled_attention
                                                          : SL_OP_attention,
                                     .dtype = kv,
                                     .head_dim_k = s->head_dim_k,
                                     .head_dim_v = s->head_dim_v,
                                     .extra = s->softcap > 0 ? " with a soft cap"
                                              : s->chunk     ? " in chunks"
                                                             : NULL});
    if (s->gated || (s->gate == SL_GATE_ELEMENT && !s->gate_softplus))
        sl_ask_plain(a, SL_OP_mul_sigmoid);
    else if (s->gate)
        sl_ask_plain(a, SL_OP_gate_heads);
    if (s->temper_span)
        sl_ask_plain(a, SL_OP_temper);
    if (s->clamp > 0)
        sl_ask_plain(a, SL_OP_clamp);
    if ((s->value_scale > 0 && s->value_scale != 1) || s->out_scale > 0)
        sl_ask_plain(a, SL_OP_scale);
    if (layer->t[SL_L_ATTN_POST_NORM] || s->out_scale > 0)
        sl_ask_plain(a, SL_OP_add_gated);
    if (hp->n_rope && hp->rope[s->rope].n_rot && !s->no_rope) {
        sl_ask_plain(a, SL_OP_rope_table);
        sl_ask_plain(a, SL_OP_rope);
    }
}

/* Rows see themselves and what the window has before them. A layer that reads another's keeps
 * nothing. */
static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    struct sl_kv_view shape = sl_kv_shape(spec, kv_dtype);
    return (struct sl_seq_store){
        .name = "keys and values",
        .n_parts = spec->attention.kv_back ? 0 : 2,
        .part_bytes = {shape.k_page_bytes, shape.v_page_bytes},
        .kv_elems = {spec->attention.head_dim_k, spec->attention.head_dim_v},
        .reach = spec->attention.window  ? spec->attention.window - 1
                 : spec->attention.chunk ? spec->attention.chunk - 1
                                         : SL_SEQ_ALL,
        .repeatable = true};
}

static bool keeps_more(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype, uint32_t i,
                       struct sl_seq_store *out) {
    return sl_pooled_keeps(spec, i, out) || sl_blocks_keeps(spec, kv_dtype, i, out);
}

const struct sl_mixer sl_mixer_attention = {.name = "grouped-query attention",
                                            .ops = ops,
                                            .keeps = keeps,
                                            .keeps_more = keeps_more,
                                            .need = need,
                                            .bind = bind,
                                            .run = run};
