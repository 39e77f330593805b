#include "model/arch/model_slice.h"

#include <string.h>

enum sl_status sl_model_cut(const struct sl_model *m, uint32_t layer, struct sl_err *err) {
    for (uint32_t l = layer; layer && l < m->hp.n_layer; l++) {
        const struct sl_layer_spec *s = &m->layers[l].spec;
        uint32_t kv = s->mixer == SL_MIXER_ATTENTION ? s->attention.kv_back : 0;
        uint32_t choice = s->mixer == SL_MIXER_LATENT ? s->latent.choice_back : 0;
        uint32_t back = kv ? kv : choice;
        if (back > l - layer)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "layer %u %s of layer %u: a split must not be between them", l,
                           kv ? "reads the keys and values" : "attends to the choice", l - back);
    }
    return SL_OK;
}

enum sl_status sl_model_slice(const struct sl_model *m, uint32_t first, uint32_t n,
                              struct sl_model *out_slice, struct sl_err *err) {
    SL_TRY(sl_model_slice_alone(m, first, n, out_slice, err));
    SL_TRY(sl_model_cut(m, first, err));
    return first + n < m->hp.n_layer ? sl_model_cut(m, first + n, err) : SL_OK;
}

enum sl_status sl_model_slice_alone(const struct sl_model *m, uint32_t first, uint32_t n,
                                    struct sl_model *out_slice, struct sl_err *err) {
    uint32_t all = m->hp.n_layer;
    if (first >= all || n > all - first || (!n && first))
        return sl_fail(err, SL_ERR_INVALID, "%u layers from layer %u on: there are %u", n, first,
                       all);
    struct sl_model s = *m;
    s.layers = m->layers + first;
    s.hp.n_layer = n;
    s.hp.first_layer = m->hp.first_layer + first;
    if (first)
        s.global[SL_G_TOKEN_EMBD] = NULL;
    if (!n) { /* no layer, nothing of layers */
        s.hp.n_embd_layer = 0;
        s.global[SL_G_LAYER_EMBD] = s.global[SL_G_LAYER_PROJ] = s.global[SL_G_LAYER_PROJ_NORM] =
            s.global[SL_G_LAYER_TOKENS] = NULL;
    }
    if (first + n < all)
        s.global[SL_G_OUTPUT_NORM] = s.global[SL_G_OUTPUT] = s.global[SL_G_OUTPUT_NORM_BIAS] =
            s.global[SL_G_OUTPUT_BIAS] = s.global[SL_G_STREAMS] = s.global[SL_G_STREAMS_BASE] =
                s.global[SL_G_STREAMS_SCALE] = s.global[SL_G_STREAMS_SCORE] =
                    s.global[SL_G_STREAMS_NORM] = s.global[SL_G_STREAMS_DOWN] =
                        s.global[SL_G_STREAMS_UP] = NULL;
    bool ngrams = false;
    for (uint32_t l = 0; l < n; l++)
        ngrams |= s.layers[l].spec.ngram.n_taps > 0;
    if (!ngrams) {
        s.hp.ngram = (struct sl_ngram_spec){0};
        s.global[SL_G_NGRAMS] = NULL;
    }
    *out_slice = s;
    return SL_OK;
}

void sl_model_slice_drop_input(struct sl_model *slice) {
    slice->global[SL_G_TOKEN_EMBD] = NULL;
}

void sl_model_slice_release(struct sl_model *slice) {
    memset(slice, 0, sizeof *slice);
}
