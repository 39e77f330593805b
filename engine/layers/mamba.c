/* The mixer that is a state space with one decay a head (Mamba-2): a short convolution, then a
 * state for each head that every row reads and replaces, in place of keys and values. */
#include "backends/ops/elementwise.h"
#include "backends/ops/matmul.h"
#include "backends/ops/norm.h"
#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

/* Elements of all heads' inputs. */
static uint32_t inner(const struct sl_mamba_spec *m) {
    return m->n_head * m->head_dim;
}

/* What the convolution reads: these, and of each group b and c. */
static uint32_t conv_width(const struct sl_mamba_spec *m) {
    return inner(m) + 2 * m->n_group * m->n_state;
}

/* The gate in v, what the convolution reads in joint, of each head a time step in k; what comes of
 * them in mixed, and the state goes on by all rows of the step. */
static enum sl_status scan(struct sl_forward *f, const struct sl_layer_weights *w,
                           const struct sl_place *where) {
    const struct sl_mamba_spec *m = &w->spec->mamba;
    const struct sl_kv_part *part = sl_kv_part(f->kv, where->layer, 0);
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    uint32_t width = conv_width(m);
    SL_FORWARD_TRY("Mamba's norm",
                   sl_forward_norm(f, a->x, w->attn_norm, a->h, s->n_rows, f->hp->n_embd));
    SL_FORWARD_TRY(
        "Mamba's input",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = s->n_rows,
                                                    .n_decode = s->n_decode,
                                                    .n_w = 3,
                                                    .out = {{w->z, NULL, a->v, false},
                                                            {w->joint, NULL, a->joint, false},
                                                            {w->alpha, NULL, a->k, false}}}));
    SL_FORWARD_TRY(
        "Mamba's convolution",
        sl_op_conv_silu(f->dev, &(struct sl_op_conv_silu){.x = a->joint,
                                                          .w = w->conv,
                                                          .bias = w->conv_bias,
                                                          .y = a->q,
                                                          .state = sl_forward_state(f, &part[0]),
                                                          .n_tok = s->n_rows,
                                                          .n = width,
                                                          .n_taps = m->n_taps}));
    SL_FORWARD_TRY("Mamba's states",
                   sl_op_state_scan(f->dev, &(struct sl_op_state_scan){
                                                .x = a->q,
                                                .b = a->q + inner(m),
                                                .c = a->q + inner(m) + m->n_group * m->n_state,
                                                .dt = a->k,
                                                .a = w->decay,
                                                .dt_bias = w->dt,
                                                .skip = w->skip,
                                                .y = a->mixed,
                                                .state = sl_forward_state(f, &part[1]),
                                                .n_tok = s->n_rows,
                                                .n_heads = m->n_head,
                                                .n_groups = m->n_group,
                                                .head_dim = m->head_dim,
                                                .n_state = m->n_state,
                                                .stride = width}));
    return SL_OK;
}

/* v = v's SiLU * mixed, normed by groups. */
static enum sl_status gate(struct sl_forward *f, const struct sl_layer_weights *w,
                           const struct sl_place *where) {
    const struct sl_mamba_spec *m = &w->spec->mamba;
    uint32_t n_rows = f->step.n_rows, n = inner(m) / m->n_group;
    float *v = f->a.v;
    SL_FORWARD_TRY(
        "Mamba's gate",
        sl_op_silu_mul(f->dev,
                       &(struct sl_op_silu_mul){
                           .gate = v, .up = f->a.mixed, .y = v, .n = (size_t)n_rows * inner(m)}));
    for (uint32_t i = 0; i < m->n_group; i++)
        SL_FORWARD_TRY(
            "Mamba's gated norm",
            sl_op_rms_norm(f->dev, &(struct sl_op_rms_norm){.x = v + (size_t)i * n,
                                                            .w = w->z_norm + (size_t)i * n,
                                                            .y = v + (size_t)i * n,
                                                            .n_rows = n_rows,
                                                            .n = n,
                                                            .stride_x = inner(m),
                                                            .stride_y = inner(m),
                                                            .eps = f->hp->norm_eps}));
    return SL_OK;
}

static enum sl_status out(struct sl_forward *f, const struct sl_rows *r, const float *mixed,
                          const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    float scale = w->spec->mamba.out_scale;
    float *y = scale > 0 ? f->a.h : r->x;
    SL_FORWARD_TRY(
        "Mamba's output",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = mixed,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, NULL, y, y == r->x}}}));
    if (!(scale > 0))
        return SL_OK;
    SL_FORWARD_TRY(
        "Mamba's scale",
        sl_op_scale(f->dev, &(struct sl_op_scale){
                                .x = y, .n_tok = r->n, .n = f->hp->n_embd, .scale = scale}));
    return sl_forward_add_normed(f, r, y, NULL, where);
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(scan(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    bool cut = sl_forward_cuts(f, where->layer);
    if (cut && f->step.n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    SL_TRY(gate(f, w, where));
    const float *mixed = f->a.v;
    if (cut)
        SL_TRY(sl_forward_cut(f, r, &mixed, inner(&w->spec->mamba), where));
    SL_TRY(out(f, r, mixed, where));
    sl_timeline_since(f->timeline, "Mamba", start, {"rows", f->step.n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    const struct sl_mamba_spec *m = &spec->mamba;
    (void)hp;
    sl_raise(&needs->joint, conv_width(m));
    sl_raise(&needs->q, conv_width(m));
    sl_raise(&needs->k, m->n_head);
    sl_raise(&needs->v, inner(m));
    sl_raise(&needs->mixed, inner(m));
    sl_raise(&needs->n_in, inner(m));
}

/* The rows of one matrix: the gate's, what the convolution reads, the time steps'. */
static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    const struct sl_mamba_spec *m = &in->spec.mamba;
    const struct sl_gguf_tensor *t = in->t[SL_L_MAMBA_IN];
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->z = sl_bind_rows(b, t, 0, inner(m));
    out->joint = sl_bind_rows(b, t, inner(m), conv_width(m));
    out->alpha = sl_bind_rows(b, t, inner(m) + conv_width(m), m->n_head);
    out->conv = sl_bind_vector(b, in->t[SL_L_MAMBA_CONV]);
    out->conv_bias = sl_bind_vector(b, in->t[SL_L_MAMBA_CONV_BIAS]);
    out->dt = sl_bind_vector(b, in->t[SL_L_MAMBA_DT]);
    out->decay = sl_bind_vector(b, in->t[SL_L_MAMBA_A]);
    out->skip = sl_bind_vector(b, in->t[SL_L_MAMBA_SKIP]);
    out->z_norm = sl_bind_vector(b, in->t[SL_L_MAMBA_NORM]);
    out->out = sl_bind_matrix(b, in->t[SL_L_MAMBA_OUT]);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    (void)hp;
    sl_ask_op(a, (struct sl_op_need){.op = SL_OP_state_scan,
                                     .dtype = SL_DTYPE_COUNT,
                                     .head_dim_k = layer->spec.mamba.n_state,
                                     .head_dim_v = layer->spec.mamba.head_dim});
    sl_ask_plain(a, SL_OP_conv_silu);
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_silu_mul);
    if (layer->spec.mamba.out_scale > 0) {
        sl_ask_plain(a, SL_OP_scale);
        sl_ask_plain(a, SL_OP_add_gated);
    }
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_MAMBA_IN]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_MAMBA_OUT]);
}

/* Inputs of the convolution, and the heads' states: a row replaces what the row before it left. */
static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    const struct sl_mamba_spec *m = &spec->mamba;
    (void)kv_dtype;
    return (struct sl_seq_store){
        .name = "Mamba",
        .n_parts = 2,
        .part_bytes = {(size_t)(m->n_taps - 1) * conv_width(m) * sizeof(float),
                       (size_t)inner(m) * m->n_state * sizeof(float)},
        .reach = 1};
}

const struct sl_mixer sl_mixer_mamba = {
    .name = "Mamba-2", .ops = ops, .keeps = keeps, .need = need, .bind = bind, .run = run};
