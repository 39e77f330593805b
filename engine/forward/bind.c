/* Binds tensor roles to device addresses and checks that the device can take their types. */
#include "engine/forward/forward_internal.h"

#include <stdlib.h>

static int name_len(const struct sl_gguf_tensor *t) {
    return (int)(t->name.len < 100 ? t->name.len : 100);
}

const void *sl_bind_address(struct sl_binder *b, const struct sl_gguf_tensor *t) {
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

const float *sl_bind_vector(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    if (!t || b->status != SL_OK)
        return NULL;
    if (t->dtype != SL_DTYPE_F32) {
        b->status =
            sl_fail(b->err, SL_ERR_UNSUPPORTED, "tensor '%.*s' is %s: norms and biases must be F32",
                    name_len(t), t->name.ptr, sl_dtype_name(t->dtype));
        return NULL;
    }
    return sl_bind_address(b, t);
}

bool sl_bind_type(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    if (b->status != SL_OK)
        return false;
    if (b->dev->caps.weight_dtype[t->dtype])
        return true;
    b->status =
        sl_fail(b->err, SL_ERR_UNSUPPORTED, "tensor '%.*s' is %s, which %s does not support",
                name_len(t), t->name.ptr, sl_dtype_name(t->dtype), b->dev->caps.name);
    return false;
}

struct sl_weight sl_bind_matrix(struct sl_binder *b, const struct sl_gguf_tensor *t) {
    struct sl_weight w = {0};
    if (!t || !sl_bind_type(b, t))
        return w;
    w.dtype = t->dtype;
    w.n_in = (uint32_t)t->ne[0];
    w.n_out = (uint32_t)t->ne[1];
    w.data = sl_bind_address(b, t);
    return w;
}

struct sl_weight sl_bind_rows(struct sl_binder *b, const struct sl_gguf_tensor *t, uint32_t first,
                              uint32_t n) {
    struct sl_weight w = sl_bind_matrix(b, t);
    if (w.data)
        w.data = (const char *)w.data + (size_t)first * (t->size_bytes / t->ne[1]);
    w.n_out = n;
    return w;
}

enum sl_status sl_forward_bind(struct sl_forward *f, const struct sl_model *model,
                               const struct sl_weights *weights, struct sl_err *err) {
    const struct sl_hparams *hp = &model->hp;
    struct sl_binder b = {.weights = weights, .dev = f->dev, .err = err};
    f->layers = calloc(hp->n_layer, sizeof *f->layers);
    if (!f->fetch)
        f->refs = calloc((size_t)hp->n_layer * hp->n_expert + 1, sizeof *f->refs);
    if (!f->layers || (!f->fetch && !f->refs))
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the table of weights");
    f->embd = sl_bind_matrix(&b, model->global[SL_G_TOKEN_EMBD]);
    f->output = sl_bind_matrix(&b, model->global[SL_G_OUTPUT]);
    f->output_norm = sl_bind_vector(&b, model->global[SL_G_OUTPUT_NORM]);
    uint32_t n_routed = 0;
    for (uint32_t i = 0; i < hp->n_layer && b.status == SL_OK; i++) {
        const struct sl_layer *in = &model->layers[i];
        struct sl_layer_weights *out = &f->layers[i];
        b.refs = f->refs ? f->refs + (size_t)i * hp->n_expert : NULL;
        out->spec = &in->spec;
        out->mixer = sl_mixer_of(&in->spec);
        out->ffn = sl_ffn_of(&in->spec);
        out->ffn_norm = sl_bind_vector(&b, in->t[SL_L_FFN_NORM]);
        out->mixer->bind(&b, in, out);
        if (in->spec.parallel)
            out->ffn_norm = out->attn_norm; /* for who looks ahead */
        out->ffn->bind(&b, in, out);
        out->routed_layer = out->ffn->routed ? n_routed++ : SL_NO_ROUTED_LAYER;
    }
    return b.status;
}
