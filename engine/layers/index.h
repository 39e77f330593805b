/* The indexer of latent attention: what it keeps of a sequence, and the choice of the positions
 * that a layer attends to. Called by the latent mixer alone (latent.c). */
#ifndef SL_ENGINE_LAYERS_INDEX_H
#define SL_ENGINE_LAYERS_INDEX_H

#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"

struct sl_op_asker;

/* Where its parts of a row are until it has chosen: the first product of a row's norm, of its low
 * rank. */
static inline float *sl_index_key(const struct sl_forward *f) {
    return f->a.mixed;
}
static inline float *sl_index_weights(const struct sl_forward *f, const struct sl_latent_spec *c) {
    return f->a.mixed + (size_t)f->step.n_rows * c->index_dim;
}
static inline float *sl_index_queries(const struct sl_forward *f) {
    return f->a.joint;
}

/* Norms and rotates what is there, keeps the keys, and leaves the choice in a.chosen. */
enum sl_status sl_index_choose(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) SL_MUST_CHECK;

void sl_index_need(const struct sl_latent_spec *c, struct sl_layer_needs *needs);
void sl_index_bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out);
void sl_index_ops(struct sl_op_asker *a, const struct sl_layer *layer);
/* Keys are of 16 bits whatever the type of the KV cache: they decide what is attended to. */
bool sl_index_keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype, uint32_t i,
                    struct sl_seq_store *out);

#endif
