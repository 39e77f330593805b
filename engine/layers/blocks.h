/* The indexer of grouped-query attention over blocks of positions: what it keeps of a sequence, and
 * the choice of the blocks. Called by the attention mixer alone (attention.c). */
#ifndef SL_ENGINE_LAYERS_BLOCKS_H
#define SL_ENGINE_LAYERS_BLOCKS_H

#include "engine/layers/layer_kind.h"
#include "engine/pass/pass_internal.h"

struct sl_op_asker;

/* Of the rows' normed input in a.h: keeps the keys, and leaves the queries in a.joint. */
enum sl_status sl_blocks_index(struct sl_forward *f, const struct sl_layer_weights *w,
                               const struct sl_place *where) SL_MUST_CHECK;
/* Leaves the choice in a.chosen. */
enum sl_status sl_blocks_choose(struct sl_forward *f, const struct sl_layer_weights *w,
                                const struct sl_place *where) SL_MUST_CHECK;

void sl_blocks_need(const struct sl_attention_spec *spec, struct sl_layer_needs *needs);
void sl_blocks_bind(struct sl_binder *b, const struct sl_layer *in, struct sl_layer_weights *out);
void sl_blocks_ops(struct sl_op_asker *a, const struct sl_layer *layer);
/* Keys are of 16 bits whatever the type of the KV cache: they decide what is attended to. */
bool sl_blocks_keeps(const struct sl_layer_spec *spec, enum sl_dtype kv_dtype, uint32_t i,
                     struct sl_seq_store *out);

#endif
