/* The feed-forward part that is one SwiGLU, or GEGLU, or a squared ReLU without a gate. */
#include "backends/ops/matmul.h"
#include "engine/layers/layer_kind.h"
#include "engine/layers/streams.h"
#include "engine/pass/pass_internal.h"
#include "engine/layers/op_asker.h"

static enum sl_status run(struct sl_forward *f, const struct sl_rows *r,
                          const struct sl_place *where) {
    const struct sl_layer_weights *w = &f->layers[where->layer];
    struct sl_activations *a = &f->a;
    struct sl_op_matmul in = {.x = a->h, .n_tok = r->n, .n_decode = r->n_decode};
    if (w->gate.data)
        in.out[in.n_w++] = (struct sl_matmul_out){w->gate, NULL, a->gate, false};
    in.out[in.n_w++] = (struct sl_matmul_out){w->up, NULL, w->gate.data ? a->up : a->gate, false};
    SL_FORWARD_TRY("FFN gate, up", sl_op_matmul(f->dev, &in));
    SL_FORWARD_TRY("FFN", sl_forward_glu(f, w->spec, (size_t)r->n * w->up.n_out));
    bool separate = w->ffn_post_norm || f->hp->n_stream;
    float *y = separate ? a->h : r->x;
    SL_FORWARD_TRY("FFN down", sl_op_matmul(f->dev, &(struct sl_op_matmul){
                                                        .x = a->gate,
                                                        .n_tok = r->n,
                                                        .n_decode = r->n_decode,
                                                        .n_w = 1,
                                                        .out = {{w->down, NULL, y, y == r->x}}}));
    enum sl_status status =
        separate ? sl_streams_write(f, r, &w->streams[1], y, w->ffn_post_norm, where) : SL_OK;
    return status == SL_OK ? sl_forward_end_layer(f, r, where) : status;
}

static void need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                 struct sl_layer_needs *needs) {
    (void)hp;
    sl_raise(&needs->n_in, spec->n_ff);
    sl_raise(&needs->ff, spec->n_ff);
}

static void bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out) {
    out->gate = sl_bind_matrix(b, in->t[SL_L_FFN_GATE]);
    out->up = sl_bind_matrix(b, in->t[SL_L_FFN_UP]);
    out->down = sl_bind_matrix(b, in->t[SL_L_FFN_DOWN]);
    out->ffn_post_norm = sl_bind_vector(b, in->t[SL_L_FFN_POST_NORM]);
    out->scale = sl_bind_vector(b, in->t[SL_L_LAYER_SCALE]);
}

static void ops(struct sl_op_asker *a, const struct sl_hparams *hp, const struct sl_layer *layer) {
    (void)hp;
    for (enum sl_layer_role role = SL_L_FFN_GATE; role <= SL_L_FFN_DOWN; role++)
        sl_ask_weight(a, SL_OP_matmul, layer->t[role]);
    sl_ask_plain(a, sl_glu_op(&layer->spec));
    if (layer->t[SL_L_FFN_POST_NORM])
        sl_ask_plain(a, SL_OP_add_gated);
    if (layer->t[SL_L_LAYER_SCALE])
        sl_ask_plain(a, SL_OP_scale);
}

const struct sl_ffn sl_ffn_dense = {
    .name = "dense feed-forward", .ops = ops, .need = need, .bind = bind, .run = run};
