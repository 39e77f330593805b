/* Which ops a model needs of a device, and for what: asked before anything is loaded, so that a
 * missing one is reported by name and not found at the tenth token. */
#include "engine/layers/layer_kind.h"
#include "engine/layers/ngrams.h"
#include "engine/layers/op_asker.h"

static enum sl_status fail_layer(const struct sl_op_asker *a, uint32_t layer, const char *kind,
                                 struct sl_err *err) {
    return sl_fail(err, a->status, "layer %u (%s): %s: choose another --device", layer, kind,
                   a->missing.text);
}

/* Of layers with embeddings. */
static void ask_embeddings(struct sl_op_asker *a, const struct sl_model *model) {
    sl_ask_weight(a, SL_OP_embed, model->global[SL_G_LAYER_EMBD]);
    sl_ask_weight(a, SL_OP_embed, model->global[SL_G_LAYER_TOKENS]);
    sl_ask_weight(a, SL_OP_matmul, model->global[SL_G_LAYER_PROJ]);
    sl_ask_plain(a, SL_OP_gelu_rows);
    sl_ask_plain(a, SL_OP_scale);
    sl_ask_plain(a, SL_OP_add_gated);
    for (uint32_t i = 0; i < model->hp.n_layer; i++) {
        sl_ask_weight(a, SL_OP_matmul, model->layers[i].t[SL_L_EMBD_GATE]);
        sl_ask_weight(a, SL_OP_matmul, model->layers[i].t[SL_L_EMBD_PROJ]);
    }
}

/* Of hyper-connections, or residual attention. */
static void ask_streams(struct sl_op_asker *a, const struct sl_model *model) {
    static const enum sl_op kept[] = {SL_OP_stream_spread, SL_OP_stream_attend, SL_OP_stream_keep};
    for (uint32_t i = 0; model->hp.keep_every && i < sizeof kept / sizeof kept[0]; i++)
        sl_ask_plain(a, kept[i]);
    if (model->hp.keep_every)
        return;
    static const enum sl_op mixed[] = {SL_OP_stream_weights, SL_OP_stream_read, SL_OP_stream_write},
                            low[] = {SL_OP_silu, SL_OP_stream_mean, SL_OP_stream_inject};
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_stream_spread);
    for (uint32_t i = 0; i < 3; i++)
        sl_ask_plain(a, model->hp.stream_rank ? low[i] : mixed[i]);
    sl_ask_weight(a, SL_OP_matmul, model->global[SL_G_STREAMS]);
    sl_ask_weight(a, SL_OP_matmul, model->global[SL_G_STREAMS_DOWN]);
    sl_ask_weight(a, SL_OP_matmul, model->global[SL_G_STREAMS_UP]);
    for (uint32_t i = 0; i < model->hp.n_layer; i++) {
        sl_ask_weight(a, SL_OP_matmul, model->layers[i].t[SL_L_STREAMS_MIX]);
        sl_ask_weight(a, SL_OP_matmul, model->layers[i].t[SL_L_STREAMS_FFN]);
        for (enum sl_layer_role r = SL_L_LOW_MIX_NORM; r <= SL_L_LOW_FFN_INJECT; r++)
            if (r != SL_L_LOW_MIX_NORM && r != SL_L_LOW_FFN_NORM)
                sl_ask_weight(a, SL_OP_matmul, model->layers[i].t[r]);
    }
}

/* Of a draft layer, besides its kinds. */
static void ask_draft(struct sl_op_asker *a, const struct sl_layer *layer) {
    sl_ask_plain(a, SL_OP_rms_norm);
    sl_ask_plain(a, SL_OP_gather_rows);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_DRAFT_JOIN]);
    sl_ask_weight(a, SL_OP_embed, layer->t[SL_L_DRAFT_EMBD]);
    sl_ask_weight(a, SL_OP_matmul, layer->t[SL_L_DRAFT_OUTPUT]);
}

static enum sl_status check_ends(struct sl_op_asker *a, const struct sl_model *model,
                                 struct sl_err *err) {
    sl_ask_weight(a, SL_OP_embed, model->global[SL_G_NGRAMS]);
    if (model->global[SL_G_TOKEN_EMBD])
        sl_ask_weight(a, SL_OP_embed, model->global[SL_G_TOKEN_EMBD]);
    if (model->hp.n_embd_layer)
        ask_embeddings(a, model);
    if (model->hp.n_stream)
        ask_streams(a, model);
    if (model->global[SL_G_OUTPUT]) {
        sl_ask_plain(a, SL_OP_rms_norm);
        sl_ask_weight(a, SL_OP_matmul, model->global[SL_G_OUTPUT]);
        sl_ask_plain(a, SL_OP_gather_rows);
        if (model->global[SL_G_OUTPUT_NORM_BIAS])
            sl_ask_plain(a, SL_OP_bias);
        if (model->hp.logit_softcap > 0 || model->hp.logit_scale != 1)
            sl_ask_plain(a, SL_OP_scale);
        if (!a->dev->caps.host_visible)
            sl_ask_plain(a, SL_OP_block_max);
    }
    return a->status ? sl_fail(err, a->status, "%s: choose another --device", a->missing.text)
                     : SL_OK;
}

enum sl_status sl_layers_check(const struct sl_model *model, enum sl_dtype kv,
                               const struct sl_device *dev, struct sl_err *err) {
    const struct sl_hparams *hp = &model->hp;
    struct sl_op_asker a = {.dev = dev, .kv = kv};
    for (uint32_t i = 0; i < hp->n_layer; i++) {
        const struct sl_layer *layer = &model->layers[i];
        const struct sl_mixer *mixer = sl_mixer_of(&layer->spec);
        const struct sl_ffn *ffn = sl_ffn_of(&layer->spec);
        mixer->ops(&a, hp, layer);
        sl_ngrams_ops(&a, layer);
        if (a.status)
            return fail_layer(&a, hp->first_layer + i, mixer->name, err);
        ffn->ops(&a, hp, layer);
        if (layer->spec.draft)
            ask_draft(&a, layer);
        if (a.status)
            return fail_layer(&a, hp->first_layer + i, ffn->name, err);
    }
    return check_ends(&a, model, err);
}
