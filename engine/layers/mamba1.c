/* The mixer that is a state space with a decay of each element (Mamba-1): a short convolution, then
 * a state for each channel that every row reads and replaces, in place of keys and values. */
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

/* What the convolution reads in joint, the gate in v; what comes of it in q. */
static enum sl_status convolve(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_mamba1_spec *m = &w->spec->mamba1;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    SL_FORWARD_TRY("Mamba's norm",
                   sl_forward_norm(f, a->x, w->attn_norm, a->h, s->n_rows, f->hp->n_embd));
    SL_FORWARD_TRY(
        "Mamba's input",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = s->n_rows,
                                                    .n_decode = s->n_decode,
                                                    .n_w = 2,
                                                    .out = {{w->joint, NULL, a->joint, false},
                                                            {w->z, NULL, a->v, false}}}));
    SL_FORWARD_TRY("Mamba's convolution",
                   sl_op_conv_silu(f->dev, &(struct sl_op_conv_silu){
                                               .x = a->joint,
                                               .w = w->conv,
                                               .bias = w->conv_bias,
                                               .y = a->q,
                                               .state = sl_forward_state(
                                                   f, &sl_kv_part(f->kv, where->layer, 0)[0]),
                                               .n_tok = s->n_rows,
                                               .n = m->n_inner,
                                               .n_taps = m->n_taps}));
    return SL_OK;
}

/* From q to mixed: time steps by way of a low rank, and the states go on by all rows. */
static enum sl_status scan(struct sl_forward *f, const struct sl_layer_weights *w,
                           const struct sl_place *where) {
    const struct sl_mamba1_spec *m = &w->spec->mamba1;
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    float *dt = a->k, *b = dt + (size_t)s->n_rows * m->n_rank;
    float *c = b + (size_t)s->n_rows * m->n_state;
    SL_FORWARD_TRY(
        "Mamba's time steps, b and c",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->q,
                                                    .n_tok = s->n_rows,
                                                    .n_decode = s->n_decode,
                                                    .n_w = 3,
                                                    .out = {{w->alpha, NULL, dt, false},
                                                            {w->beta, NULL, b, false},
                                                            {w->gamma, NULL, c, false}}}));
    SL_FORWARD_TRY("Mamba's norms", sl_forward_norm(f, dt, w->dt_norm, dt, s->n_rows, m->n_rank));
    SL_FORWARD_TRY("Mamba's norms", sl_forward_norm(f, b, w->b_norm, b, s->n_rows, m->n_state));
    SL_FORWARD_TRY("Mamba's norms", sl_forward_norm(f, c, w->c_norm, c, s->n_rows, m->n_state));
    SL_FORWARD_TRY(
        "Mamba's time steps",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = dt,
                                                    .n_tok = s->n_rows,
                                                    .n_decode = s->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->dt_out, w->dt, a->joint, false}}}));
    SL_FORWARD_TRY("Mamba's states",
                   sl_op_channel_scan(f->dev, &(struct sl_op_channel_scan){
                                                  .x = a->q,
                                                  .b = b,
                                                  .c = c,
                                                  .dt = a->joint,
                                                  .a = w->decay,
                                                  .skip = w->skip,
                                                  .y = a->mixed,
                                                  .state = sl_forward_state(
                                                      f, &sl_kv_part(f->kv, where->layer, 0)[1]),
                                                  .n_tok = s->n_rows,
                                                  .n = m->n_inner,
                                                  .n_state = m->n_state}));
    return SL_OK;
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    uint32_t inner = w->spec->mamba1.n_inner;
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(convolve(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    SL_TRY(scan(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    bool cut = sl_forward_cuts(f, where->layer);
    if (cut && f->step.n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    SL_FORWARD_TRY(
        "Mamba's gate",
        sl_op_silu_mul(f->dev, &(struct sl_op_silu_mul){.gate = f->a.v,
                                                        .up = f->a.mixed,
                                                        .y = f->a.v,
                                                        .n = (size_t)f->step.n_rows * inner}));
    const float *mixed = f->a.v;
    if (cut)
        SL_TRY(sl_forward_cut(f, r, &mixed, inner, where));
    SL_FORWARD_TRY(
        "Mamba's output",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = mixed,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, NULL, r->x, true}}}));
    sl_timeline_since(f->timeline, "Mamba", start, {"rows", f->step.n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_mamba1_spec *m = &spec->mamba1;
    (void)hp;
    sl_raise(&needs->joint, m->n_inner);
    sl_raise(&needs->q, m->n_inner);
    sl_raise(&needs->k, m->n_rank + 2 * m->n_state);
    sl_raise(&needs->v, m->n_inner);
    sl_raise(&needs->mixed, m->n_inner);
    sl_raise(&needs->n_in, m->n_inner > m->n_rank ? m->n_inner : m->n_rank);
}

/* Two matrices are several, one after another: x and the gate; time steps, b and c. */
static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    const struct sl_mamba1_spec *m = &in->spec.mamba1;
    const struct sl_gguf_tensor *t = in->t[SL_L_MAMBA1_IN], *x = in->t[SL_L_MAMBA1_X];
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->joint = sl_bind_rows(b, t, 0, m->n_inner);
    out->z = sl_bind_rows(b, t, m->n_inner, m->n_inner);
    out->alpha = sl_bind_rows(b, x, 0, m->n_rank);
    out->beta = sl_bind_rows(b, x, m->n_rank, m->n_state);
    out->gamma = sl_bind_rows(b, x, m->n_rank + m->n_state, m->n_state);
    out->conv = sl_bind_vector(b, in->t[SL_L_MAMBA1_CONV]);
    out->conv_bias = sl_bind_vector(b, in->t[SL_L_MAMBA1_CONV_BIAS]);
    out->dt_norm = sl_bind_vector(b, in->t[SL_L_MAMBA1_DT_NORM]);
    out->b_norm = sl_bind_vector(b, in->t[SL_L_MAMBA1_B_NORM]);
    out->c_norm = sl_bind_vector(b, in->t[SL_L_MAMBA1_C_NORM]);
    out->dt_out = sl_bind_matrix(b, in->t[SL_L_MAMBA1_DT]);
    out->dt = sl_bind_vector(b, in->t[SL_L_MAMBA1_DT_BIAS]);
    out->decay = sl_bind_vector(b, in->t[SL_L_MAMBA1_A]);
    out->skip = sl_bind_vector(b, in->t[SL_L_MAMBA1_SKIP]);
    out->out = sl_bind_matrix(b, in->t[SL_L_MAMBA1_OUT]);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    static const enum sl_layer_role matrices[] = {SL_L_MAMBA1_IN, SL_L_MAMBA1_X, SL_L_MAMBA1_DT,
                                                  SL_L_MAMBA1_OUT};
    (void)hp;
    sl_ask_plain(a, SL_OP_channel_scan);
    sl_ask_plain(a, SL_OP_conv_silu);
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_silu_mul);
    for (uint32_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[matrices[i]]);
}

/* Inputs of the convolution, and the channels' states: a row replaces what the one before it left.
 */
static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    const struct sl_mamba1_spec *m = &spec->mamba1;
    (void)kv_dtype;
    return (struct sl_seq_store){
        .name = "Mamba",
        .n_parts = 2,
        .part_bytes = {(size_t)(m->n_taps - 1) * m->n_inner * sizeof(float),
                       (size_t)m->n_state * m->n_inner * sizeof(float)},
        .reach = 1};
}

const struct sl_mixer sl_mixer_mamba1 = {
    .name = "Mamba-1", .ops = ops, .keeps = keeps, .need = need, .bind = bind, .run = run};
