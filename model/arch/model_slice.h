/* A run of a model's layers, seen as a model: what one device computes when the layers are divided
 * over several.
 *
 * A slice has hp.n_layer layers from hp.first_layer of the whole model on, and of the global
 * tensors those that these layers' device needs: the embedding with the first layer, the last norm
 * and the output matrix with the last (a tied output is then the embedding, without being the
 * slice's embedding), the RoPE divisors everywhere. Where layers have embeddings of their own, a
 * slice with layers has the tensors these are made of, the tokens' embeddings among them
 * (SL_G_LAYER_TOKENS), and uses its layers' part of two of them (engine/tables/table_layout.h).
 * Everything that takes a model takes a slice. */
#ifndef SL_MODEL_MODEL_SLICE_H
#define SL_MODEL_MODEL_SLICE_H

#include "model/arch/model.h"

/* Layers [first, first + n) of m, which may be a slice itself; n at least 1, or 0 for the embedding
 * alone, with first 0. The slice borrows m and must be gone before it. SL_ERR_INVALID: m has no
 * such layers. SL_ERR_UNSUPPORTED: it cannot be cut at one of the ends. */
enum sl_status sl_model_slice(const struct sl_model *m, uint32_t first, uint32_t n,
                              struct sl_model *out_slice, struct sl_err *err) SL_MUST_CHECK;
/* The same without asking whether the model can be cut there: to measure what layers take. */
enum sl_status sl_model_slice_alone(const struct sl_model *m, uint32_t first, uint32_t n,
                                    struct sl_model *out_slice, struct sl_err *err) SL_MUST_CHECK;
/* May a slice begin with this layer? SL_ERR_UNSUPPORTED: a layer from there on reads what one
 * before it keeps or has chosen; the error names both. */
enum sl_status sl_model_cut(const struct sl_model *m, uint32_t layer,
                            struct sl_err *err) SL_MUST_CHECK;
/* The embedding is another slice's: the one of layer 0, where a slice of no layers comes before. */
void sl_model_slice_drop_input(struct sl_model *slice);
/* Zeroes it; also a zeroed one. Never sl_model_close a slice. */
void sl_model_slice_release(struct sl_model *slice);

/* Does it turn ids into rows; does it turn rows into logits? A whole model does both. */
static inline bool sl_model_has_input(const struct sl_model *m) {
    return m->global[SL_G_TOKEN_EMBD] != NULL;
}
static inline bool sl_model_has_output(const struct sl_model *m) {
    return m->global[SL_G_OUTPUT] != NULL;
}

/* Embeddings of tokens that it needs for those of its layers and for nothing else; NULL: none. */
static inline const struct sl_gguf_tensor *sl_model_layer_tokens(const struct sl_model *m) {
    const struct sl_gguf_tensor *t = m->global[SL_G_LAYER_TOKENS];
    return t == m->global[SL_G_TOKEN_EMBD] || t == m->global[SL_G_OUTPUT] ? NULL : t;
}

#endif
