#include "model/arch/model_slice.h"

#include <string.h>

enum sl_status sl_model_slice(const struct sl_model *m, uint32_t first, uint32_t n,
                              struct sl_model *out_slice, struct sl_err *err) {
    uint32_t all = m->hp.n_layer;
    if (first >= all || n > all - first || (!n && first))
        return sl_fail(err, SL_ERR_INVALID, "%u layers from layer %u on: there are %u", n, first,
                       all);
    if (m->hp.n_embd_layer && n != all)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "layers with embeddings of their own cannot be split among devices or "
                       "machines: give one --device, and no --worker");
    for (uint32_t l = first; l < first + n; l++)
        if (m->layers[l].spec.attention.kv_back > l - first)
            return sl_fail(err, SL_ERR_UNSUPPORTED,
                           "layer %u reads the keys and values of layer %u: a split must not be "
                           "between them",
                           l, l - m->layers[l].spec.attention.kv_back);
    struct sl_model s = *m;
    s.layers = m->layers + first;
    s.hp.n_layer = n;
    s.hp.first_layer = m->hp.first_layer + first;
    if (first)
        s.global[SL_G_TOKEN_EMBD] = NULL;
    if (first + n < all)
        s.global[SL_G_OUTPUT_NORM] = s.global[SL_G_OUTPUT] = s.global[SL_G_OUTPUT_NORM_BIAS] =
            s.global[SL_G_OUTPUT_BIAS] = NULL;
    *out_slice = s;
    return SL_OK;
}

void sl_model_slice_drop_input(struct sl_model *slice) {
    slice->global[SL_G_TOKEN_EMBD] = NULL;
}

void sl_model_slice_release(struct sl_model *slice) {
    memset(slice, 0, sizeof *slice);
}
