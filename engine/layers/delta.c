/* The mixer that is a gated delta net: a short convolution, then a state for each head that every
 * row reads and replaces, in place of keys and values. */
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/streams.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

#include <math.h>

/* Elements of all heads' q, k and v. */
static uint32_t qkv_width(const struct sl_delta_spec *d) {
    return (2 * d->n_head_k + d->n_head) * d->head_dim;
}

/* q, k and v in one, the output's gate in v, and of each head beta and alpha in k. */
static enum sl_status project(struct sl_forward *f, const struct sl_layer_weights *w,
                              const struct sl_rows *r, const struct sl_place *where) {
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    float *alpha = a->k + (size_t)s->n_rows * w->spec->delta.n_head;
    const float *x;
    SL_TRY(sl_streams_read(f, r, &w->streams[0], &x, where));
    if (x != a->h)
        SL_FORWARD_TRY("delta net norm",
                       sl_forward_norm(f, x, w->attn_norm, a->h, s->n_rows, f->hp->n_embd));
    SL_FORWARD_TRY(
        "q, k, v and gates",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = s->n_rows,
                                                    .n_decode = s->n_decode,
                                                    .n_w = w->alpha.data ? 4 : 3,
                                                    .out = {{w->joint, NULL, a->joint, false},
                                                            {w->z, NULL, a->v, false},
                                                            {w->beta, NULL, a->k, false},
                                                            {w->alpha, NULL, alpha, false}}}));
    return SL_OK;
}

/* From what project() has left to mixed, and the state goes on by all rows of the step. */
static enum sl_status recur(struct sl_forward *f, const struct sl_layer_weights *w,
                            const struct sl_place *where) {
    const struct sl_delta_spec *d = &w->spec->delta;
    const struct sl_kv_part *part = sl_kv_part(f->kv, where->layer, 0);
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    uint32_t width = qkv_width(d), keys = d->n_head_k * d->head_dim, per = d->n_head / d->n_head_k;
    SL_FORWARD_TRY(
        "convolution",
        sl_op_conv_silu(f->dev, &(struct sl_op_conv_silu){.x = a->joint,
                                                          .w = w->conv,
                                                          .y = a->q,
                                                          .state = sl_forward_state(f, &part[0]),
                                                          .n_tok = s->n_rows,
                                                          .n = width,
                                                          .n_taps = d->n_taps}));
    SL_FORWARD_TRY("q and k norm",
                   sl_op_l2_norm(f->dev, &(struct sl_op_l2_norm){.x = a->q,
                                                                 .n_tok = s->n_rows,
                                                                 .n_heads = 2 * d->n_head_k,
                                                                 .head_dim = d->head_dim,
                                                                 .stride = width,
                                                                 .eps = f->hp->norm_eps}));
    /* In one matrix with beta, alpha stands behind it for the heads of each key head. */
    bool one = !w->alpha.data;
    SL_FORWARD_TRY(
        "delta rule",
        sl_op_delta_rule(f->dev, &(struct sl_op_delta_rule){
                                     .q = a->q,
                                     .k = a->q + keys,
                                     .v = a->q + 2 * keys,
                                     .alpha = a->k + (one ? per : (size_t)s->n_rows * d->n_head),
                                     .beta = a->k,
                                     .a = w->decay,
                                     .dt = w->dt,
                                     .y = a->mixed,
                                     .state = sl_forward_state(f, &part[1]),
                                     .n_tok = s->n_rows,
                                     .n_heads = d->n_head,
                                     .n_heads_k = d->n_head_k,
                                     .head_dim_k = d->head_dim,
                                     .head_dim_v = d->head_dim,
                                     .stride = width,
                                     .stride_gate = one ? 2 * d->n_head : d->n_head,
                                     .gate_group = one ? per : d->n_head,
                                     .gate_group_stride = one ? 2 * per : d->n_head,
                                     .grouped = d->grouped,
                                     .scale = 1.0f / sqrtf((float)d->head_dim)}));
    return SL_OK;
}

/* The normed heads by their gates, which are in v. */
static enum sl_status gate(struct sl_forward *f, const struct sl_layer_weights *w,
                           const float **out_mixed, const struct sl_place *where) {
    const struct sl_delta_spec *d = &w->spec->delta;
    struct sl_activations *a = &f->a;
    uint32_t n = d->n_head * d->head_dim;
    *out_mixed = d->gate_sigmoid ? a->mixed : a->v;
    if (d->gate_sigmoid)
        SL_FORWARD_TRY("gated norm", sl_op_mul_sigmoid(f->dev, &(struct sl_op_mul_sigmoid){
                                                                   .gate = a->v,
                                                                   .y = a->mixed,
                                                                   .n_rows = f->step.n_rows,
                                                                   .n = n,
                                                                   .stride_gate = n}));
    else
        SL_FORWARD_TRY("gated norm", sl_op_silu_mul(f->dev, &(struct sl_op_silu_mul){
                                                                .gate = a->v,
                                                                .up = a->mixed,
                                                                .y = a->v,
                                                                .n = (size_t)f->step.n_rows * n}));
    return SL_OK;
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    const struct sl_delta_spec *d = &w->spec->delta;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(project(f, w, r, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    SL_TRY(recur(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    bool cut = sl_forward_cuts(f, where->layer);
    if (cut && s->n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    const float *mixed;
    SL_FORWARD_TRY("gated norm", sl_forward_norm(f, a->mixed, w->z_norm, a->mixed,
                                                 s->n_rows * d->n_head, d->head_dim));
    SL_TRY(gate(f, w, &mixed, where));
    if (cut)
        SL_TRY(sl_forward_cut(f, r, &mixed, d->n_head * d->head_dim, where));
    float *y = f->hp->n_stream ? a->h : r->x;
    SL_FORWARD_TRY(
        "delta net out",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = mixed,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, NULL, y, y == r->x}}}));
    if (y != r->x)
        SL_TRY(sl_streams_write(f, r, &w->streams[0], y, NULL, where));
    sl_timeline_since(f->timeline, "delta net", start, {"rows", s->n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_delta_spec *d = &spec->delta;
    (void)hp;
    sl_raise(&needs->joint, qkv_width(d));
    sl_raise(&needs->q, qkv_width(d));
    sl_raise(&needs->k, 2 * d->n_head);
    sl_raise(&needs->v, d->n_head * d->head_dim);
    sl_raise(&needs->mixed, d->n_head * d->head_dim);
    sl_raise(&needs->n_in, d->n_head * d->head_dim);
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    const struct sl_gguf_tensor *both = in->t[SL_L_DELTA_BA];
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->joint = sl_bind_matrix(b, in->t[SL_L_DELTA_QKV]);
    out->z = sl_bind_matrix(b, in->t[SL_L_DELTA_Z]);
    out->beta = sl_bind_matrix(b, both ? both : in->t[SL_L_DELTA_BETA]);
    out->alpha = sl_bind_matrix(b, in->t[SL_L_DELTA_ALPHA]);
    out->conv = sl_bind_vector(b, in->t[SL_L_DELTA_CONV]);
    out->dt = sl_bind_vector(b, in->t[SL_L_DELTA_DT]);
    out->decay = sl_bind_vector(b, in->t[SL_L_DELTA_A]);
    out->z_norm = sl_bind_vector(b, in->t[SL_L_DELTA_NORM]);
    out->out = sl_bind_matrix(b, in->t[SL_L_DELTA_OUT]);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    static const enum sl_layer_role matrices[] = {SL_L_DELTA_QKV,   SL_L_DELTA_Z,  SL_L_DELTA_BETA,
                                                  SL_L_DELTA_ALPHA, SL_L_DELTA_BA, SL_L_DELTA_OUT};
    (void)hp;
    sl_ask_plain(a, SL_OP_conv_silu);
    sl_ask_plain(a, SL_OP_l2_norm);
    sl_ask_op(a, (struct sl_op_need){.op = SL_OP_delta_rule,
                                     .dtype = SL_DTYPE_COUNT,
                                     .head_dim_k = layer->spec.delta.head_dim,
                                     .head_dim_v = layer->spec.delta.head_dim});
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, layer->spec.delta.gate_sigmoid ? SL_OP_mul_sigmoid : SL_OP_silu_mul);
    for (uint32_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[matrices[i]]);
}

/* A row reads what the row before it left, and replaces it: inputs of the convolution, and the
 * heads' states. */
static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    const struct sl_delta_spec *d = &spec->delta;
    (void)kv_dtype;
    return (struct sl_seq_store){
        .name = "delta net",
        .n_parts = 2,
        .part_bytes = {(size_t)(d->n_taps - 1) * qkv_width(d) * sizeof(float),
                       (size_t)d->n_head * d->head_dim * d->head_dim * sizeof(float)},
        .reach = 1};
}

const struct sl_mixer sl_mixer_delta = {
    .name = "gated delta net", .ops = ops, .keeps = keeps, .need = need, .bind = bind, .run = run};
