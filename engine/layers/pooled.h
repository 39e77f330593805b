/* The indexer of grouped-query attention that goes by the mean keys of blocks: what it keeps of a
 * sequence, the choice, and attention. Called by the attention mixer alone (attention.c). */
#ifndef SL_ENGINE_LAYERS_POOLED_H
#define SL_ENGINE_LAYERS_POOLED_H

#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"

struct sl_op_asker;

/* Of the rows' input in a.h: keeps the blocks' keys, and leaves the queries in a.mixed. */
enum sl_status sl_pooled_index(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) SL_MUST_CHECK;
/* From a.q to a.mixed. */
enum sl_status sl_pooled_attend(struct sl_forward *f, const struct sl_layer_weights *w,
                                const struct sl_place *where) SL_MUST_CHECK;

void sl_pooled_need(const struct sl_attention_spec *spec, struct sl_layer_needs *needs);
void sl_pooled_ops(struct sl_op_asker *a, const struct sl_layer *layer);
/* Behind keys and values the blocks' keys, then the sum of a block that is not complete. */
bool sl_pooled_keeps(const struct sl_layer_spec *spec, uint32_t i, struct sl_seq_store *out);

#endif
