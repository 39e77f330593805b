/* The mixer that is a short convolution between gates: a few rows of each sequence in place of keys
 * and values. */
#include "backends/ops/matmul.h"
#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

static enum sl_status convolve(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) {
    const struct sl_kv_part *part = sl_kv_part(f->kv, where->layer, 0);
    const struct sl_step *s = &f->step;
    struct sl_activations *a = &f->a;
    SL_FORWARD_TRY("convolution's norm",
                   sl_forward_norm(f, a->x, w->attn_norm, a->h, s->n_rows, f->hp->n_embd));
    SL_FORWARD_TRY(
        "convolution's gates and input",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = a->h,
                                                    .n_tok = s->n_rows,
                                                    .n_decode = s->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->joint, NULL, a->joint, false}}}));
    SL_FORWARD_TRY("convolution", sl_op_short_conv(f->dev, &(struct sl_op_short_conv){
                                                               .x = a->joint,
                                                               .w = w->conv,
                                                               .y = a->mixed,
                                                               .state = sl_forward_state(f, part),
                                                               .n_tok = s->n_rows,
                                                               .n = f->hp->n_embd,
                                                               .n_taps = w->spec->conv.n_taps}));
    return SL_OK;
}

static enum sl_status run(struct sl_forward *f, struct sl_rows *r, const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    uint64_t start = sl_timeline_now(f->timeline);
    SL_TRY(convolve(f, w, where));
    if (!f->resident)
        sl_fetch_poll(f->fetch);
    bool cut = sl_forward_cuts(f, where->layer);
    if (cut && f->step.n_out == 0) {
        r->n = 0;
        return SL_OK;
    }
    const float *mixed = f->a.mixed;
    if (cut)
        SL_TRY(sl_forward_cut(f, r, &mixed, f->hp->n_embd, where));
    SL_FORWARD_TRY(
        "convolution's output",
        sl_op_matmul(f->dev, &(struct sl_op_matmul){.x = mixed,
                                                    .n_tok = r->n,
                                                    .n_decode = r->n_decode,
                                                    .n_w = 1,
                                                    .out = {{w->out, NULL, r->x, true}}}));
    sl_timeline_since(f->timeline, "short convolution", start, {"rows", f->step.n_rows});
    return SL_OK;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    (void)spec;
    sl_raise(&needs->joint, 3 * hp->n_embd);
    sl_raise(&needs->mixed, hp->n_embd);
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->attn_norm = sl_bind_vector(b, in->t[SL_L_ATTN_NORM]);
    out->joint = sl_bind_matrix(b, in->t[SL_L_CONV_IN]);
    out->conv = sl_bind_vector(b, in->t[SL_L_CONV]);
    out->out = sl_bind_matrix(b, in->t[SL_L_CONV_OUT]);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    (void)hp;
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_short_conv);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_CONV_IN]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_CONV_OUT]);
}

/* The convolution's inputs before a row, which replaces them. */
static struct sl_seq_store keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype) {
    (void)kv_dtype;
    return (struct sl_seq_store){
        .name = "short convolution",
        .n_parts = 1,
        .part_bytes = {(size_t)(spec->conv.n_taps - 1) * spec->conv.n * sizeof(float)},
        .reach = 1};
}

const struct sl_mixer sl_mixer_conv = {.name = "short convolution",
                                       .ops = ops,
                                       .keeps = keeps,
                                       .need = need,
                                       .bind = bind,
                                       .run = run};
