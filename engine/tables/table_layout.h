/* Which tensors of a model are tables: matrices of which a step needs single rows, those of its
 * tokens. They can be read from the file by row (engine/tables/table_store.h) instead of being
 * resident. */
#ifndef SL_ENGINE_TABLE_LAYOUT_H
#define SL_ENGINE_TABLE_LAYOUT_H

#include "model/arch/model.h"

/* In masks: bit (1 << id). */
enum sl_table_id {
    SL_TABLE_TOKENS, /* the tokens' embeddings; not where the output or a layer that guesses ahead
                        needs the same matrix as a whole */
    SL_TABLE_LAYERS, /* embeddings of the layers' own */
    SL_TABLES
};

/* NULL: the model (or slice) has no such table, or its rows are larger than SL_ROW_BYTES. */
const struct sl_gguf_tensor *sl_table_tensor(const struct sl_model *model, enum sl_table_id id);
/* 0: it has none. */
uint32_t sl_table_row_bytes(const struct sl_model *model, enum sl_table_id id);
/* Tables that can be streamed; of these the ones that `auto` may stream: the tokens' embeddings are
 * a fraction of a percent of a model too large for its memory, and would cost every step a read. */
uint32_t sl_tables_possible(const struct sl_model *model);
uint32_t sl_tables_large(const struct sl_model *model);
/* All of these together. */
uint64_t sl_tables_bytes(const struct sl_model *model, uint32_t tables);
bool sl_tables_have(const struct sl_model *model, uint32_t tables,
                    const struct sl_gguf_tensor *tensor);

#endif
