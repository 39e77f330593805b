/* The mixer that is latent attention. What heads would project from a position's latent to get its
 * key and value is taken into their queries and outputs instead: one row a position is kept and
 * read, whatever the number of heads. Where an indexer chooses positions (index.c), rows
 * attend to these alone. */
#include "backends/ops/attention.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/index.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "backends/ops/rope.h"
#include "engine/layers/index.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/op_asker.h"
#include "engine/layers/streams.h"

static struct sl_latent_view latents(const struct sl_forward *f, const struct sl_latent_spec *c,
                                     uint32_t layer) {
    const struct sl_kv_part *part = sl_kv_part(f->kv, layer, 0);
    return (struct sl_latent_view){.rows = sl_span_addr(sl_kv_part_span(f->kv, part)),
                                   .dtype = f->plan->config.kv_dtype,
                                   .n_latent = c->n_latent,
                                   .n_rot = c->n_rot,
                                   .page_bytes = part->bytes};
}

/* Latents of a window may be kept in tail pages. */
static const uint32_t *page_table(const struct sl_forward *f, uint32_t layer) {
    return sl_kv_is_tail(f->kv, layer) ? f->a.tail_table : f->a.page_table;
}

static enum sl_status rope(struct sl_forward *f, const struct sl_latent_spec *c, float *x,
                           uint32_t n_head, uint32_t head_dim, uint32_t stride) {
    const struct sl_rope_spec *r = &f->hp->rope[c->rope];
    return sl_op_rope(
        f->dev,
        &(struct sl_op_rope){.x = x,
                             .table = f->a.rope_table[c->rope],
                             .n_tok = f->step.n_rows,
                             .n_heads = n_head,
                             .head_dim = head_dim,
                             .stride = stride,
                             .n_freq = r->n_rot / 2,
                             .style = r->kind == SL_ROPE_KIND_NORM ? SL_ROPE_NORM : SL_ROPE_NEOX});
}

/* Elements of the gate on a row's output; 0: there is none. */
static uint32_t gate_width(const struct sl_latent_spec *c) {
    return c->gate == SL_GATE_HEAD      ? c->n_head
           : c->gate == SL_GATE_ELEMENT ? c->n_head * c->head_dim_v
                                        : 0;
}

/* It is in v, behind the queries' low rank. */
static float *gate_at(const struct sl_forward *f, const struct sl_latent_spec *c) {
    return f->a.v + (size_t)f->step.n_rows * c->n_lora_q;
}

/* What is made of the layer's normed input, and of the queries' low rank. */
static enum sl_status products(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_latent_spec *c = &w->spec->latent;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    bool low = c->n_lora_q > 0, index = sl_latent_chooses(c);
    SL_FORWARD_TRY(
        "q, latent",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                 .x = a->h,
                                 .n_tok = s->n_rows,
                                 .n_decode = s->n_decode,
                                 .n_w = index     ? 4
                                        : c->gate ? 3
                                                  : 2, /* of both the gate is made below */
                                 .out = {{low ? w->q_a : w->q, NULL, low ? a->v : a->q, false},
                                         {w->kv_a, NULL, a->k, false},
                                         {index ? w->index_k : w->attn_gate, NULL,
                                          index ? sl_index_key(f) : gate_at(f, c), false},
                                         {w->index_w, NULL, sl_index_weights(f, c), false}}}));
    if (index && c->gate)
        SL_FORWARD_TRY(
            "gate", sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                             .x = a->h,
                                             .n_tok = s->n_rows,
                                             .n_decode = s->n_decode,
                                             .n_w = 1,
                                             .out = {{w->attn_gate, NULL, gate_at(f, c), false}}}));
    if (!low)
        return SL_OK;
    SL_FORWARD_TRY("q norm", sl_forward_norm(f, a->v, w->q_a_norm, a->v, s->n_rows, c->n_lora_q));
    SL_FORWARD_TRY(
        "q", sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                      .x = a->v,
                                      .n_tok = s->n_rows,
                                      .n_decode = s->n_decode,
                                      .n_w = index ? 2 : 1,
                                      .out = {{w->q, NULL, a->q, false},
                                              {w->index_q, NULL, sl_index_queries(f), false}}}));
    return SL_OK;
}

/* Queries to q, as the heads have them; latents go to the cache. */
static enum sl_status project(struct sl_forward *f, const struct sl_layer_weights *w,
                              const struct sl_rows *r, const struct sl_place *where) {
    const struct sl_latent_spec *c = &w->spec->latent;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    uint32_t head = c->n_nope + c->n_rot, row = c->n_latent + c->n_rot;
    const float *x;
    SL_TRY(sl_streams_read(f, r, &w->streams[0], &x, where));
    SL_FORWARD_TRY("attention norm",
                   sl_forward_norm(f, x, w->attn_norm, a->h, s->n_rows, f->hp->n_embd));
    SL_TRY(products(f, w, where));
    if (sl_latent_chooses(c))
        SL_TRY(sl_index_choose(f, w, where));
    SL_FORWARD_TRY("latent norm",
                   sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = a->k,
                                                                   .w = w->kv_a_norm,
                                                                   .y = a->k,
                                                                   .n_rows = s->n_rows,
                                                                   .n = c->n_latent,
                                                                   .stride_x = row,
                                                                   .stride_y = row,
                                                                   .eps = f->hp->norm_eps}));
    if (c->k_norm)
        SL_FORWARD_TRY("k norm",
                       sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = a->k + c->n_latent,
                                                                       .w = w->k_norm,
                                                                       .y = a->k + c->n_latent,
                                                                       .n_rows = s->n_rows,
                                                                       .n = c->n_rot,
                                                                       .stride_x = row,
                                                                       .stride_y = row,
                                                                       .eps = f->hp->norm_eps}));
    if (!c->no_rope) {
        SL_FORWARD_TRY("rope", rope(f, c, a->q + c->n_nope, c->n_head, head, c->n_head * head));
        SL_FORWARD_TRY("rope", rope(f, c, a->k + c->n_latent, 1, c->n_rot, row));
    }
    if (c->temper_span)
        SL_FORWARD_TRY("temperature",
                       sl_op_temper(f->dev, &(struct sl_op_temper){.x = a->q,
                                                                   .pos = f->on_device.pos,
                                                                   .n_tok = s->n_rows,
                                                                   .n = c->n_head * head,
                                                                   .span = c->temper_span,
                                                                   .scale = c->temper_scale}));
    SL_FORWARD_TRY("latent write",
                   sl_op_latent_write(f->dev, &(struct sl_op_latent_write){
                                                  .kv = latents(f, c, where->layer),
                                                  .x = a->k,
                                                  .slot = sl_kv_is_tail(f->kv, where->layer)
                                                              ? f->on_device.tail_slot
                                                              : f->on_device.slot,
                                                  .n_tok = s->n_rows,
                                                  .stride = row}));
    return SL_OK;
}

/* The part of the joined matrix that makes keys, or values: of each head rows of latents. */
static const void *joined_part(const struct sl_weight *w, uint32_t first_row) {
    return (const char *)w->data + first_row * sl_dtype_row_bytes(w->dtype, w->n_in);
}

/* From joint to q. */
static enum sl_status attend_latents(struct sl_forward *f, const struct sl_latent_spec *c,
                                     const struct sl_place *where) {
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    if (c->n_index_top) {
        SL_FORWARD_TRY("latent attention",
                       sl_op_chosen_attention(f->dev, &(struct sl_op_chosen_attention){
                                                          .kv = latents(f, c, where->layer),
                                                          .q = a->joint,
                                                          .y = a->q,
                                                          .chosen = a->chosen,
                                                          .page_table = a->page_table,
                                                          .row_seq = f->on_device.row_seq,
                                                          .row_len = f->on_device.row_len,
                                                          .n_tok = s->n_rows,
                                                          .n_decode = s->n_decode,
                                                          .n_heads = c->n_head,
                                                          .max_pages = f->plan->session_pages,
                                                          .n_top = c->n_index_top,
                                                          .scale = c->scale}));
        return SL_OK;
    }
    SL_FORWARD_TRY("latent attention",
                   sl_op_latent_attention(f->dev, &(struct sl_op_latent_attention){
                                                      .kv = latents(f, c, where->layer),
                                                      .q = a->joint,
                                                      .y = a->q,
                                                      .page_table = page_table(f, where->layer),
                                                      .row_seq = f->on_device.row_seq,
                                                      .row_len = f->on_device.row_len,
                                                      .n_tok = s->n_rows,
                                                      .n_decode = s->n_decode,
                                                      .n_heads = c->n_head,
                                                      .max_pages = f->plan->session_pages,
                                                      .scale = c->scale,
                                                      .window = c->window}));
    return SL_OK;
}

/* Queries of keys become queries of latents, in joint; outputs come back as latents, in q, and
 * become values, in mixed. */
static enum sl_status attend(struct sl_forward *f, const struct sl_layer_weights *w,
                             const struct sl_place *where) {
    const struct sl_latent_spec *c = &w->spec->latent;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    uint32_t n_row = c->joined ? c->n_latent : c->n_nope;
    uint32_t k_rows = c->joined ? c->n_nope + c->head_dim_v : c->n_latent;
    uint32_t v_rows = c->joined ? k_rows : c->head_dim_v;
    SL_FORWARD_TRY("query of latents",
                   sl_op_head_matmul(
                       f->dev, &(struct sl_op_head_matmul){
                                   .x = a->q,
                                   .y = a->joint,
                                   .w = w->k_b.data,
                                   .dtype = w->k_b.dtype,
                                   .head_bytes = k_rows * sl_dtype_row_bytes(w->k_b.dtype, n_row),
                                   .n_tok = s->n_rows,
                                   .n_decode = s->n_decode,
                                   .n_heads = c->n_head,
                                   .n_in = c->n_nope,
                                   .n_out = c->n_latent,
                                   .n_keep = c->n_rot,
                                   .stride_x = c->n_nope + c->n_rot,
                                   .stride_y = c->n_latent + c->n_rot,
                                   .transposed = c->joined}));
    SL_TRY(attend_latents(f, c, where));
    SL_FORWARD_TRY(
        "values",
        sl_op_head_matmul(f->dev,
                          &(struct sl_op_head_matmul){
                              .x = a->q,
                              .y = a->mixed,
                              .w = c->joined ? joined_part(&w->v_b, c->n_nope) : w->v_b.data,
                              .dtype = w->v_b.dtype,
                              .head_bytes = v_rows * sl_dtype_row_bytes(w->v_b.dtype, c->n_latent),
                              .n_tok = s->n_rows,
                              .n_decode = s->n_decode,
                              .n_heads = c->n_head,
                              .n_in = c->n_latent,
                              .n_out = c->head_dim_v,
                              .stride_x = c->n_latent,
                              .stride_y = c->head_dim_v}));
    if (c->gate)
        SL_FORWARD_TRY("attention gate",
                       sl_op_gate_heads(f->dev, &(struct sl_op_gate_heads){
                                                    .gate = gate_at(f, c),
                                                    .y = a->mixed,
                                                    .n_tok = s->n_rows,
                                                    .n_heads = c->n_head,
                                                    .n = c->head_dim_v,
                                                    .per_head = c->gate == SL_GATE_HEAD}));
    return SL_OK;
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    const struct sl_latent_spec *c = &w->spec->latent;
    const struct sl_step *s = &f->step;
    const float *mixed = f->a.mixed;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(project(f, w, r, where));
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
        SL_TRY(sl_forward_cut(f, r, &mixed, c->n_head * c->head_dim_v, where));
    bool separate = f->hp->n_stream;
    float *y = separate ? f->a.h : r->x;
    SL_FORWARD_TRY(
        "attention out",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = mixed,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, NULL, y, !separate}}}));
    if (separate)
        SL_TRY(sl_streams_write(f, r, &w->streams[0], y, NULL, where));
    sl_timeline_since(f->timeline, "latent attention", start, {"rows", s->n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_latent_spec *c = &spec->latent;
    (void)hp;
    sl_raise(&needs->q, c->n_head * (c->n_nope + c->n_rot));
    sl_raise(&needs->q, c->n_head * c->n_latent);
    sl_raise(&needs->k, c->n_latent + c->n_rot);
    sl_raise(&needs->v, c->n_lora_q + gate_width(c));
    sl_raise(&needs->joint, c->n_head * (c->n_latent + c->n_rot));
    sl_raise(&needs->mixed, c->n_head * c->head_dim_v);
    sl_raise(&needs->n_in, c->n_lora_q);
    sl_raise(&needs->n_in, c->n_head * c->head_dim_v);
    sl_raise(&needs->heads, c->n_head);
    sl_raise(&needs->head_dim, c->n_latent + c->n_rot);
    sl_raise(&needs->head_n, c->n_nope);
    sl_raise(&needs->head_n, c->n_latent);
    sl_raise(&needs->head_n, c->head_dim_v);
    sl_index_need(c, needs);
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    const struct sl_gguf_tensor *low = in->t[SL_L_LATENT_Q_B], *both = in->t[SL_L_LATENT_KV_B];
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->q_a = sl_bind_matrix(b, in->t[SL_L_LATENT_Q_A]);
    out->q_a_norm = sl_bind_vector(b, in->t[SL_L_LATENT_Q_A_NORM]);
    out->q = sl_bind_matrix(b, low ? low : in->t[SL_L_ATTN_Q]);
    out->kv_a = sl_bind_matrix(b, in->t[SL_L_LATENT_KV_A]);
    out->kv_a_norm = sl_bind_vector(b, in->t[SL_L_LATENT_KV_A_NORM]);
    out->k_b = sl_bind_matrix(b, both ? both : in->t[SL_L_LATENT_K_B]);
    out->v_b = sl_bind_matrix(b, both ? both : in->t[SL_L_LATENT_V_B]);
    out->attn_gate = sl_bind_matrix(b, in->t[SL_L_ATTN_GATE]);
    out->k_norm = sl_bind_vector(b, in->t[SL_L_ATTN_K_NORM]);
    out->out = sl_bind_matrix(b, in->t[SL_L_ATTN_OUT]);
    sl_index_bind(b, in, out);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    static const enum sl_layer_role matrices[] = {SL_L_LATENT_Q_A,  SL_L_LATENT_Q_B, SL_L_ATTN_Q,
                                                  SL_L_LATENT_KV_A, SL_L_ATTN_GATE,  SL_L_ATTN_OUT};
    static const enum sl_layer_role of_heads[] = {SL_L_LATENT_K_B, SL_L_LATENT_V_B,
                                                  SL_L_LATENT_KV_B};
    const struct sl_latent_spec *c = &layer->spec.latent;
    const enum sl_op on_latents[] = {SL_OP_latent_write, c->n_index_top ? SL_OP_chosen_attention
                                                                        : SL_OP_latent_attention};
    (void)hp;
    for (uint32_t i = 0; i < sizeof on_latents / sizeof on_latents[0]; i++)
        sl_ask_op(a, (struct sl_op_need){.op = on_latents[i],
                                         .dtype = sl_asker_kv(a),
                                         .head_dim_k = c->n_latent + c->n_rot,
                                         .head_dim_v = c->n_latent,
                                         .window = c->window != 0});
    for (uint32_t i = 0; i < sizeof of_heads / sizeof of_heads[0]; i++)
        sl_ask_weight(a, SL_OP_head_matmul, layer->t[of_heads[i]]);
    sl_ask_plain(a, SL_OP_rms_norm);
    if (c->temper_span)
        sl_ask_plain(a, SL_OP_temper);
    if (c->gate)
        sl_ask_plain(a, SL_OP_gate_heads);
    sl_ask_plain(a, SL_OP_rope_table);
    if (!c->no_rope)
        sl_ask_plain(a, SL_OP_rope);
    for (uint32_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[matrices[i]]);
    sl_index_ops(a, layer);
}

static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    const struct sl_latent_spec *c = &spec->latent;
    return (struct sl_seq_store){
        .name = "latents",
        .n_parts = 1,
        .part_bytes = {SL_KV_PAGE_TOKENS * sl_dtype_row_bytes(kv_dtype, c->n_latent + c->n_rot)},
        .kv_elems = {c->n_latent, c->n_rot},
        .reach = c->window ? c->window - 1 : SL_SEQ_ALL,
        .repeatable = true};
}

const struct sl_mixer sl_mixer_latent = {.name = "latent attention",
                                         .ops = ops,
                                         .keeps = keeps,
                                         .keeps_more = sl_index_keeps,
                                         .need = need,
                                         .bind = bind,
                                         .run = run};
