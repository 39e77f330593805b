/* The mixer that is Kimi Delta Attention: convolutions of q, k and v, then a state for each head
 * that every row reads and replaces, each of its rows with a decay of its own; a gate and a norm
 * behind. */
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/streams.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

#include <math.h>

static uint32_t inner(const struct sl_kda_spec *s) {
    return s->n_head * s->head_dim;
}

/* Where what has several parts in one buffer has the rows of part i, n elements each. */
static float *part_at(const struct sl_forward *f, float *buffer, uint32_t i, uint32_t n) {
    return buffer + (size_t)i * f->step.n_rows * n;
}

static enum sl_status product(struct sl_forward *f, const float *x, const struct sl_weight *w,
                              float *y) {
    return sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = x,
                                                       .n_tok = f->step.n_rows,
                                                       .n_decode = f->step.n_decode,
                                                       .n_w = 1,
                                                       .out = {{*w, NULL, y, false}}});
}

/* q, k and v in joint, one behind the other; decays and the output's gate in v; of each head beta
 * in k, behind two low ranks, if these are the way to decays and gate. */
static enum sl_status project(struct sl_forward *f, const struct sl_layer_weights *w,
                              const struct sl_rows *r, const struct sl_place *where) {
    const struct sl_kda_spec *d = &w->spec->kda;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    uint32_t n = inner(d);
    const float *x;
    SL_TRY(sl_streams_read(f, r, &w->streams[0], &x, where));
    SL_FORWARD_TRY("KDA norm", sl_forward_norm(f, x, w->attn_norm, a->h, s->n_rows, f->hp->n_embd));
    SL_FORWARD_TRY(
        "q, k, v",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                 .x = a->h,
                                 .n_tok = s->n_rows,
                                 .n_decode = s->n_decode,
                                 .n_w = 3,
                                 .out = {{w->q, NULL, a->joint, false},
                                         {w->k, NULL, part_at(f, a->joint, 1, n), false},
                                         {w->v, NULL, part_at(f, a->joint, 2, n), false}}}));
    bool low = !d->full, low_gate = !d->full_gate;
    float *decay = low ? a->k : a->v;
    float *gate = low_gate ? part_at(f, a->k, 1, d->head_dim) : part_at(f, a->v, 1, n);
    SL_FORWARD_TRY(
        "KDA's gates",
        sl_op_matmul(f->dev,
                     &(struct sl_op_matmul){
                         .x = a->h,
                         .n_tok = s->n_rows,
                         .n_decode = s->n_decode,
                         .n_w = 3,
                         .out = {{low ? w->decay_low : w->decay_up, NULL, decay, false},
                                 {low_gate ? w->z_low : w->z, NULL, gate, false},
                                 {w->beta, NULL, part_at(f, a->k, 2, d->head_dim), false}}}));
    if (low)
        SL_FORWARD_TRY("KDA's decays", product(f, decay, &w->decay_up, a->v));
    if (low_gate)
        SL_FORWARD_TRY("KDA's gate", product(f, gate, &w->z, part_at(f, a->v, 1, n)));
    return SL_OK;
}

/* From joint to q, one behind the other again. A state's page has the inputs of each of the three.
 */
static enum sl_status convolve(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_kda_spec *d = &w->spec->kda;
    const float *const taps[] = {w->conv, w->conv_k, w->conv_v};
    uint32_t n = inner(d);
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_state_view state = sl_forward_state(f, sl_kv_part(f->kv, where->layer, 0));
        state.pages = (char *)state.pages + (size_t)i * (d->n_taps - 1) * n * sizeof(float);
        SL_FORWARD_TRY("convolution", sl_op_conv_silu(f->dev, &(struct sl_op_conv_silu){
                                                                  .x = part_at(f, f->a.joint, i, n),
                                                                  .w = taps[i],
                                                                  .y = part_at(f, f->a.q, i, n),
                                                                  .state = state,
                                                                  .n_tok = f->step.n_rows,
                                                                  .n = n,
                                                                  .n_taps = d->n_taps}));
    }
    for (uint32_t i = 0; i < 2; i++)
        SL_FORWARD_TRY("q and k norm",
                       sl_op_l2_norm(f->dev, &(struct sl_op_l2_norm){.x = part_at(f, f->a.q, i, n),
                                                                     .n_tok = f->step.n_rows,
                                                                     .n_heads = d->n_head,
                                                                     .head_dim = d->head_dim,
                                                                     .stride = n,
                                                                     .eps = f->hp->norm_eps}));
    return SL_OK;
}

/* To mixed, normed by heads and gated; the state goes on by all rows of the step. */
static enum sl_status recur(struct sl_forward *f, const struct sl_layer_weights *w,
                            const struct sl_place *where) {
    const struct sl_kda_spec *d = &w->spec->kda;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    uint32_t n = inner(d);
    SL_FORWARD_TRY("delta rule",
                   sl_op_channel_delta(f->dev, &(struct sl_op_channel_delta){
                                                   .q = a->q,
                                                   .k = part_at(f, a->q, 1, n),
                                                   .v = part_at(f, a->q, 2, n),
                                                   .alpha = a->v,
                                                   .beta = part_at(f, a->k, 2, d->head_dim),
                                                   .a = w->decay,
                                                   .dt = w->dt,
                                                   .y = a->mixed,
                                                   .state = sl_forward_state(
                                                       f, sl_kv_part(f->kv, where->layer, 0) + 1),
                                                   .n_tok = s->n_rows,
                                                   .n_heads = d->n_head,
                                                   .head_dim_k = d->head_dim,
                                                   .head_dim_v = d->head_dim,
                                                   .scale = 1.0f / sqrtf((float)d->head_dim),
                                                   .bound = d->bound}));
    SL_FORWARD_TRY("heads' norm", sl_forward_norm(f, a->mixed, w->z_norm, a->mixed,
                                                  s->n_rows * d->n_head, d->head_dim));
    SL_FORWARD_TRY("output gate", sl_op_mul_sigmoid(f->dev, &(struct sl_op_mul_sigmoid){
                                                                .gate = part_at(f, a->v, 1, n),
                                                                .y = a->mixed,
                                                                .n_rows = s->n_rows,
                                                                .n = n,
                                                                .stride_gate = n}));
    return SL_OK;
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    const float *mixed = f->a.mixed;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(project(f, w, r, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    SL_TRY(convolve(f, w, where));
    SL_TRY(recur(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    bool cut = sl_forward_cuts(f, where->layer);
    if (cut && f->step.n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    if (cut)
        SL_TRY(sl_forward_cut(f, r, &mixed, inner(&w->spec->kda), where));
    bool separate = f->hp->n_stream;
    float *y = separate ? f->a.h : r->x;
    SL_FORWARD_TRY(
        "KDA's output",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = mixed,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, NULL, y, !separate}}}));
    if (separate)
        SL_TRY(sl_streams_write(f, r, &w->streams[0], y, NULL, where));
    sl_timeline_since(f->timeline, "KDA", start, {"rows", f->step.n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_kda_spec *d = &spec->kda;
    (void)hp;
    sl_raise(&needs->joint, 3 * inner(d));
    sl_raise(&needs->q, 3 * inner(d));
    sl_raise(&needs->k, 2 * d->head_dim + d->n_head);
    sl_raise(&needs->v, 2 * inner(d));
    sl_raise(&needs->mixed, inner(d));
    sl_raise(&needs->n_in, inner(d));
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->q = sl_bind_matrix(b, in->t[SL_L_ATTN_Q]);
    out->k = sl_bind_matrix(b, in->t[SL_L_ATTN_K]);
    out->v = sl_bind_matrix(b, in->t[SL_L_ATTN_V]);
    out->conv = sl_bind_vector(b, in->t[SL_L_KDA_CONV_Q]);
    out->conv_k = sl_bind_vector(b, in->t[SL_L_KDA_CONV_K]);
    out->conv_v = sl_bind_vector(b, in->t[SL_L_KDA_CONV_V]);
    bool full = in->spec.kda.full, full_gate = in->spec.kda.full_gate;
    out->decay_low = sl_bind_matrix(b, full ? NULL : in->t[SL_L_KDA_DECAY_A]);
    out->decay_up = sl_bind_matrix(b, in->t[full ? SL_L_KDA_DECAY_A : SL_L_KDA_DECAY_B]);
    out->beta = sl_bind_matrix(b, in->t[SL_L_KDA_BETA]);
    out->decay = sl_bind_vector(b, in->t[SL_L_KDA_A]);
    out->dt = sl_bind_vector(b, in->t[SL_L_KDA_DT]);
    out->z_low = sl_bind_matrix(b, full_gate ? NULL : in->t[SL_L_KDA_GATE_A]);
    out->z = sl_bind_matrix(b, in->t[full_gate ? SL_L_KDA_GATE_A : SL_L_KDA_GATE_B]);
    out->z_norm = sl_bind_vector(b, in->t[SL_L_KDA_NORM]);
    out->out = sl_bind_matrix(b, in->t[SL_L_ATTN_OUT]);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    static const enum sl_layer_role matrices[] = {SL_L_ATTN_Q,   SL_L_ATTN_K,      SL_L_ATTN_V,
                                                  SL_L_ATTN_OUT, SL_L_KDA_DECAY_A, SL_L_KDA_DECAY_B,
                                                  SL_L_KDA_BETA, SL_L_KDA_GATE_A,  SL_L_KDA_GATE_B};
    (void)hp;
    sl_ask_op(a, (struct sl_op_need){.op = SL_OP_channel_delta,
                                     .dtype = SL_DTYPE_COUNT,
                                     .head_dim_k = layer->spec.kda.head_dim,
                                     .head_dim_v = layer->spec.kda.head_dim});
    sl_ask_plain(a, SL_OP_conv_silu);
    sl_ask_plain(a, SL_OP_l2_norm);
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_mul_sigmoid);
    for (uint32_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[matrices[i]]);
}

/* Inputs of the convolutions, and the heads' states: a row replaces what the row before it left. */
static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    const struct sl_kda_spec *d = &spec->kda;
    (void)kv_dtype;
    return (struct sl_seq_store){
        .name = "delta net",
        .n_parts = 2,
        .part_bytes = {(size_t)3 * (d->n_taps - 1) * inner(d) * sizeof(float),
                       (size_t)inner(d) * d->head_dim * sizeof(float)},
        .reach = 1};
}

const struct sl_mixer sl_mixer_kda = {.name = "Kimi Delta Attention",
                                      .ops = ops,
                                      .keeps = keeps,
                                      .need = need,
                                      .bind = bind,
                                      .run = run};
