#include "engine/layers/layer_kind.h"
#include "engine/layers/ngrams.h"
#include "engine/pass/pass_internal.h"

const struct sl_mixer *sl_mixer_of(const struct sl_layer_spec *spec) {
    static const struct sl_mixer *const mixers[SL_MIXER_KINDS] = {
        [SL_MIXER_ATTENTION] = &sl_mixer_attention,
        [SL_MIXER_DELTA] = &sl_mixer_delta,
        [SL_MIXER_LATENT] = &sl_mixer_latent,
        [SL_MIXER_CONV] = &sl_mixer_conv,
        [SL_MIXER_MAMBA] = &sl_mixer_mamba,
        [SL_MIXER_MAMBA1] = &sl_mixer_mamba1,
        [SL_MIXER_KDA] = &sl_mixer_kda,
        [SL_MIXER_COMPRESSED] = &sl_mixer_compressed,
        [SL_MIXER_NONE] = &sl_mixer_none};
    return mixers[spec->mixer];
}

const struct sl_ffn *sl_ffn_of(const struct sl_layer_spec *spec) {
    static const struct sl_ffn *const ffns[SL_FFN_KINDS] = {[SL_FFN_DENSE] = &sl_ffn_dense,
                                                            [SL_FFN_EXPERTS] = &sl_ffn_experts,
                                                            [SL_FFN_NONE] = &sl_ffn_none};
    return ffns[spec->ffn];
}

struct sl_layer_needs sl_layer_needs(const struct sl_model *model) {
    struct sl_layer_needs needs = {.n_in = model->hp.n_embd, .ff = model->hp.n_embd_layer};
    sl_raise(&needs.n_in, model->hp.n_embd_layer);
    if (sl_has_hyper_connections(&model->hp)) {
        needs.streams = sl_forward_stream_weights(&model->hp);
        sl_raise(&needs.n_in, model->hp.stream_rank);
        sl_raise(&needs.n_in, sl_row_elems(&model->hp));
    }
    if (model->hp.n_draft)
        sl_raise(&needs.n_in, 2 * model->hp.n_embd);
    for (uint32_t i = 0; i < model->hp.n_layer; i++) {
        const struct sl_layer_spec *spec = &model->layers[i].spec;
        sl_mixer_of(spec)->need(&model->hp, spec, &needs);
        sl_ffn_of(spec)->need(&model->hp, spec, &needs);
        sl_ngrams_need(&model->hp, spec, &needs);
    }
    return needs;
}
