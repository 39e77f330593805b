/* Embeddings of n-grams: rows of a table that a token chooses together with those before it, added
 * to a layer's streams before its mixer. */
#ifndef SL_ENGINE_LAYERS_NGRAMS_H
#define SL_ENGINE_LAYERS_NGRAMS_H

#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"

/* Which rows of the table a token has, out [spec->n_head]: id, and before it before[0], then
 * before[1]; SL_NO_TOKEN: there is none. */
void sl_ngram_rows(const struct sl_ngram_spec *spec, uint32_t id, const uint32_t *before,
                   uint32_t *out);

/* To r's rows, all of the step's. */
enum sl_status sl_ngrams_add(struct sl_forward *f, const struct sl_rows *r,
                             const struct sl_place *where) SL_MUST_CHECK;
void sl_ngrams_need(const struct sl_hparams *hp, const struct sl_layer_spec *spec,
                    struct sl_layer_needs *needs);
void sl_ngrams_bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out);
struct sl_op_asker;
void sl_ngrams_ops(struct sl_op_asker *a, const struct sl_layer *layer);
/* What the convolution reads of the positions before a row. */
struct sl_seq_store sl_ngrams_keeps(const struct sl_layer_spec *spec);

#endif
