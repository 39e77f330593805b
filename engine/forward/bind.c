/* Binds tensor roles to device addresses and checks that the device can take their types. */
#include "engine/forward/forward_internal.h"

#include <stdlib.h>

struct binder {
    const struct sl_weights *weights;
    const struct sl_device *dev;
    struct sl_err *err;
    enum sl_status status; /* of the first thing that failed */
};

static int name_len(const struct sl_gguf_tensor *t) {
    return (int)(t->name.len < 100 ? t->name.len : 100);
}

static const void *address(struct binder *b, const struct sl_gguf_tensor *t) {
    const void *p = sl_weights_addr(b->weights, t);
    /* Blocks hold 16-bit scales and vectors are read as floats: an odd general.alignment in the
     * file would put them astray. */
    if ((uintptr_t)p % 4 && b->status == SL_OK)
        b->status = sl_fail(b->err, SL_ERR_UNSUPPORTED,
                            "tensor '%.*s' lies at an odd offset: general.alignment must be a "
                            "multiple of 4",
                            name_len(t), t->name.ptr);
    return p;
}

/* A vector that ops take as plain floats. */
static const float *vector(struct binder *b, const struct sl_gguf_tensor *t) {
    if (!t || b->status != SL_OK)
        return NULL;
    if (t->dtype != SL_DTYPE_F32) {
        b->status =
            sl_fail(b->err, SL_ERR_UNSUPPORTED, "tensor '%.*s' is %s: norms and biases must be F32",
                    name_len(t), t->name.ptr, sl_dtype_name(t->dtype));
        return NULL;
    }
    return address(b, t);
}

static bool check_type(struct binder *b, const struct sl_gguf_tensor *t) {
    if (b->dev->caps.weight_dtype[t->dtype])
        return true;
    b->status =
        sl_fail(b->err, SL_ERR_UNSUPPORTED, "tensor '%.*s' is %s, which %s does not support",
                name_len(t), t->name.ptr, sl_dtype_name(t->dtype), b->dev->caps.name);
    return false;
}

static struct sl_weight matrix(struct binder *b, const struct sl_gguf_tensor *t) {
    struct sl_weight w = {0};
    if (!t || b->status != SL_OK || !check_type(b, t))
        return w;
    w.dtype = t->dtype;
    w.n_in = (uint32_t)t->ne[0];
    w.n_out = (uint32_t)t->ne[1];
    w.data = address(b, t);
    return w;
}

/* Expert e of a [n_in, n_out, n_expert] tensor. */
static const void *expert(const struct sl_gguf_tensor *t, const void *base, uint32_t e) {
    return (const char *)base + e * (t->size_bytes / t->ne[2]);
}

static void bind_experts(struct binder *b, const struct sl_layer *in, struct sl_layer_weights *out,
                         struct sl_expert_ref *refs, uint32_t n_expert) {
    const struct sl_gguf_tensor *gate = in->t[SL_L_EXPERTS_GATE], *up = in->t[SL_L_EXPERTS_UP],
                                *down = in->t[SL_L_EXPERTS_DOWN];
    if (b->status != SL_OK || !check_type(b, gate) || !check_type(b, up) || !check_type(b, down))
        return;
    out->expert_gate = gate->dtype;
    out->expert_up = up->dtype;
    out->expert_down = down->dtype;
    out->expert_bytes = (gate->size_bytes + up->size_bytes + down->size_bytes) / n_expert;
    if (!refs)
        return; /* they are streamed */
    const void *gate_data = address(b, gate), *up_data = address(b, up),
               *down_data = address(b, down);
    for (uint32_t e = 0; e < n_expert; e++)
        refs[e] = (struct sl_expert_ref){expert(gate, gate_data, e), expert(up, up_data, e),
                                         expert(down, down_data, e)};
    out->experts = refs;
}

static void bind_layer(struct binder *b, const struct sl_hparams *hp, const struct sl_layer *in,
                       struct sl_layer_weights *out, struct sl_expert_ref *refs) {
    out->attn_norm = vector(b, in->t[SL_L_ATTN_NORM]);
    out->q = matrix(b, in->t[SL_L_ATTN_Q]);
    out->k = matrix(b, in->t[SL_L_ATTN_K]);
    out->v = matrix(b, in->t[SL_L_ATTN_V]);
    out->out = matrix(b, in->t[SL_L_ATTN_OUT]);
    out->q_bias = vector(b, in->t[SL_L_ATTN_Q_BIAS]);
    out->k_bias = vector(b, in->t[SL_L_ATTN_K_BIAS]);
    out->v_bias = vector(b, in->t[SL_L_ATTN_V_BIAS]);
    out->out_bias = vector(b, in->t[SL_L_ATTN_OUT_BIAS]);
    out->q_norm = vector(b, in->t[SL_L_ATTN_Q_NORM]);
    out->k_norm = vector(b, in->t[SL_L_ATTN_K_NORM]);
    if (out->q_norm)
        out->q_norm_row = in->t[SL_L_ATTN_Q_NORM]->ne[0] != hp->head_dim_k;
    if (out->k_norm)
        out->k_norm_row = in->t[SL_L_ATTN_K_NORM]->ne[0] != hp->head_dim_k;
    out->ffn_norm = vector(b, in->t[SL_L_FFN_NORM]);
    out->gate = matrix(b, in->t[SL_L_FFN_GATE]);
    out->up = matrix(b, in->t[SL_L_FFN_UP]);
    out->down = matrix(b, in->t[SL_L_FFN_DOWN]);
    out->router = matrix(b, in->t[SL_L_ROUTER]);
    out->router_bias = vector(b, in->t[SL_L_ROUTER_BIAS]);
    out->shared_gate = matrix(b, in->t[SL_L_SHARED_GATE]);
    out->shared_up = matrix(b, in->t[SL_L_SHARED_UP]);
    out->shared_down = matrix(b, in->t[SL_L_SHARED_DOWN]);
    out->shared_router = matrix(b, in->t[SL_L_SHARED_ROUTER]);
    out->routed_layer = SL_NO_ROUTED_LAYER;
    if (in->t[SL_L_ROUTER])
        bind_experts(b, in, out, refs, hp->n_expert);
}

enum sl_status sl_forward_bind(struct sl_forward *f, const struct sl_model *model,
                               const struct sl_weights *weights, struct sl_err *err) {
    const struct sl_hparams *hp = &model->hp;
    struct binder b = {weights, f->dev, err, SL_OK};
    f->layers = calloc(hp->n_layer, sizeof *f->layers);
    if (!f->fetch)
        f->refs = calloc((size_t)hp->n_layer * hp->n_expert + 1, sizeof *f->refs);
    if (!f->layers || (!f->fetch && !f->refs))
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the table of weights");
    f->embd = matrix(&b, model->global[SL_G_TOKEN_EMBD]);
    f->output = matrix(&b, model->global[SL_G_OUTPUT]);
    f->output_norm = vector(&b, model->global[SL_G_OUTPUT_NORM]);
    uint32_t n_routed = 0;
    for (uint32_t i = 0; i < hp->n_layer && b.status == SL_OK; i++) {
        bind_layer(&b, hp, &model->layers[i], &f->layers[i],
                   f->refs ? f->refs + (size_t)i * hp->n_expert : NULL);
        if (sl_model_layer_is_moe(model, i))
            f->layers[i].routed_layer = n_routed++;
    }
    return b.status;
}
