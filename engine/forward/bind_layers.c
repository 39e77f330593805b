/* Binds the tensors of a model or slice: each kind of layer its own. */
#include "engine/forward/forward_internal.h"
#include "engine/layers/ngrams.h"
#include "engine/layers/streams.h"

#include <stdlib.h>

/* What a draft layer has besides its kinds. */
static void bind_draft(struct sl_binder *b, const struct sl_forward *f, const struct sl_layer *in,
                       struct sl_layer_weights *out) {
    out->draft_join = sl_bind_matrix(b, in->t[SL_L_DRAFT_JOIN]);
    out->draft_embd_norm = sl_bind_vector(b, in->t[SL_L_DRAFT_EMBD_NORM]);
    out->draft_state_norm = sl_bind_vector(b, in->t[SL_L_DRAFT_STATE_NORM]);
    const struct sl_gguf_tensor *embd = in->t[SL_L_DRAFT_EMBD], *output = in->t[SL_L_DRAFT_OUTPUT];
    const struct sl_gguf_tensor *norm = in->t[SL_L_DRAFT_NORM];
    out->draft_norm = norm ? sl_bind_vector(b, norm) : f->output_norm;
    out->draft_embd = embd ? sl_bind_matrix(b, embd) : f->embd;
    out->draft_output = output ? sl_bind_matrix(b, output) : f->output;
}

/* Of layers with embeddings. */
static void bind_embeddings(struct sl_binder *b, struct sl_forward *f,
                            const struct sl_model *model) {
    const struct sl_gguf_tensor *const *of = model->global, *proj = of[SL_G_LAYER_PROJ];
    struct sl_tensor_cut cut;
    uint32_t n = model->hp.n_embd_layer;
    f->embd_layers = sl_table_layers(model);
    f->layer_embd = sl_bind_matrix(b, of[SL_G_LAYER_EMBD]);
    f->layer_embd.n_in = f->embd_layers.n * n;
    f->layer_proj =
        sl_bind_rows(b, proj, sl_table_cut(model, proj, &cut) ? 0 : f->embd_layers.first * n,
                     f->embd_layers.n * n);
    f->layer_proj_norm = sl_bind_vector(b, of[SL_G_LAYER_PROJ_NORM]);
    if (!of[SL_G_TOKEN_EMBD])
        f->layer_tokens = sl_bind_matrix(b, of[SL_G_LAYER_TOKENS]);
}

enum sl_status sl_forward_bind(struct sl_forward *f, const struct sl_model *model,
                               const struct sl_weights *weights, struct sl_err *err) {
    const struct sl_hparams *hp = &model->hp;
    struct sl_binder b = {.weights = weights, .dev = f->dev, .err = err};
    f->layers = calloc(hp->n_layer, sizeof *f->layers);
    if (!f->fetch)
        f->refs = calloc((size_t)hp->n_layer * hp->n_expert + 1, sizeof *f->refs);
    uint32_t n_adjugate = sl_layer_needs(model).adjugate;
    if (n_adjugate)
        f->adjugate_refs = calloc((size_t)hp->n_layer * n_adjugate, sizeof *f->adjugate_refs);
    if (!f->layers || (!f->fetch && !f->refs) || (n_adjugate && !f->adjugate_refs))
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the table of weights");
    f->embd = sl_bind_matrix(&b, model->global[SL_G_TOKEN_EMBD]);
    f->output = sl_bind_matrix(&b, model->global[SL_G_OUTPUT]);
    f->output_norm = sl_bind_vector(&b, model->global[SL_G_OUTPUT_NORM]);
    f->output_norm_bias = sl_bind_vector(&b, model->global[SL_G_OUTPUT_NORM_BIAS]);
    f->output_bias = sl_bind_vector(&b, model->global[SL_G_OUTPUT_BIAS]);
    f->output_streams =
        (struct sl_streams){.fn = sl_bind_matrix(&b, model->global[SL_G_STREAMS]),
                            .base = sl_bind_vector(&b, model->global[SL_G_STREAMS_BASE]),
                            .scale = sl_bind_vector(&b, model->global[SL_G_STREAMS_SCALE]),
                            .score = sl_bind_vector(&b, model->global[SL_G_STREAMS_SCORE]),
                            .n_kept = sl_kept_streams(hp, hp->first_layer + hp->n_layer),
                            .norm = sl_bind_vector(&b, model->global[SL_G_STREAMS_NORM]),
                            .down = sl_bind_matrix(&b, model->global[SL_G_STREAMS_DOWN]),
                            .up = sl_bind_matrix(&b, model->global[SL_G_STREAMS_UP])};
    f->ngrams = sl_bind_matrix(&b, model->global[SL_G_NGRAMS]);
    if (hp->n_embd_layer)
        bind_embeddings(&b, f, model);
    uint32_t n_routed = 0;
    for (uint32_t i = 0; i < hp->n_layer && b.status == SL_OK; i++) {
        const struct sl_layer *in = &model->layers[i];
        struct sl_layer_weights *out = &f->layers[i];
        b.refs = f->refs ? f->refs + (size_t)i * hp->n_expert : NULL;
        b.adjugate = n_adjugate ? f->adjugate_refs + (size_t)i * n_adjugate : NULL;
        out->spec = &in->spec;
        out->mixer = sl_mixer_of(&in->spec);
        out->ffn = sl_ffn_of(&in->spec);
        out->ffn_norm = sl_bind_vector(&b, in->t[SL_L_FFN_NORM]);
        out->ffn_norm_bias = sl_bind_vector(&b, in->t[SL_L_FFN_NORM_BIAS]);
        out->embd_gate = sl_bind_matrix(&b, in->t[SL_L_EMBD_GATE]);
        out->embd_proj = sl_bind_matrix(&b, in->t[SL_L_EMBD_PROJ]);
        out->embd_norm = sl_bind_vector(&b, in->t[SL_L_EMBD_NORM]);
        sl_streams_bind(&b, hp, hp->first_layer + i, in, out);
        sl_ngrams_bind(&b, in, out);
        out->mixer->bind(&b, in, out);
        if (in->spec.parallel)
            out->ffn_norm = out->attn_norm,
            out->ffn_norm_bias = out->attn_norm_bias; /* for who looks ahead */
        out->ffn->bind(&b, in, out);
        if (in->spec.draft)
            bind_draft(&b, f, in, out);
        out->routed_layer = out->ffn->routed ? n_routed++ : SL_NO_ROUTED_LAYER;
    }
    return b.status;
}
