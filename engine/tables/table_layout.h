/* Which tensors of a model are tables: matrices of which a step needs single rows, those of its
 * tokens. They can be read from the file by row (engine/tables/table_store.h) instead of being
 * resident. */
#ifndef SL_ENGINE_TABLE_LAYOUT_H
#define SL_ENGINE_TABLE_LAYOUT_H

#include "model/arch/model.h"

/* In masks: bit (1 << id). */
enum sl_table_id {
    SL_TABLE_TOKENS, /* the tokens' embeddings; not where the output or a draft layer
                        needs the same matrix as a whole */
    SL_TABLE_LAYERS, /* embeddings of the layers' own */
    SL_TABLE_NGRAMS, /* embeddings of n-grams, of which a token has several rows */
    SL_TABLES
};

/* NULL: the model (or slice) has no such table, or the file's rows are larger than SL_ROW_BYTES. */
const struct sl_gguf_tensor *sl_table_tensor(const struct sl_model *model, enum sl_table_id id);
/* Of what it keeps of a row. 0: it has none. */
uint32_t sl_table_row_bytes(const struct sl_model *model, enum sl_table_id id);
/* Rows of a token, which are its number, or for n-grams what sl_ngram_rows() says; and the most of
 * any of these tables. */
uint32_t sl_table_token_rows(const struct sl_model *model, enum sl_table_id id);
uint32_t sl_tables_token_rows(const struct sl_model *model, uint32_t tables);
/* Tables that can be streamed; of these the ones that `auto` may stream: the tokens' embeddings are
 * a fraction of a percent of a model too large for its memory, and would cost every step a read. */
uint32_t sl_tables_possible(const struct sl_model *model);
uint32_t sl_tables_large(const struct sl_model *model);
/* All of these together. */
uint64_t sl_tables_bytes(const struct sl_model *model, uint32_t tables);
/* Layers' embeddings: a slice needs those of its own layers alone, which are some columns of one
 * tensor (SL_G_LAYER_EMBD) and some rows of another (SL_G_LAYER_PROJ). Which layers' it keeps, of
 * the whole model's: its own, and where their first or last element is within a block of the
 * tensor's type some besides them. All where the table's rows are larger than SL_ROW_BYTES; none in
 * a model without. */
struct sl_kept_layers {
    uint32_t first, n;
};
struct sl_kept_layers sl_table_layers(const struct sl_model *model);

/* The part of a tensor that a slice keeps: of each of n_rows rows some bytes, which are packed in
 * memory. */
struct sl_tensor_cut {
    uint64_t offset_bytes; /* of the first row's part in the file */
    uint64_t n_rows;
    uint32_t stride_bytes; /* from a row to the next in the file; SL_ROW_BYTES at most */
    uint32_t row_bytes;    /* that are kept of each */
};
/* False: it keeps all of the tensor. */
bool sl_table_cut(const struct sl_model *model, const struct sl_gguf_tensor *tensor,
                  struct sl_tensor_cut *out_cut);
/* Bytes from the first to the last that is kept, in the file. */
static inline uint64_t sl_tensor_cut_extent(const struct sl_tensor_cut *c) {
    return (c->n_rows - 1) * c->stride_bytes + c->row_bytes;
}

bool sl_tables_have(const struct sl_model *model, uint32_t tables,
                    const struct sl_gguf_tensor *tensor);

#endif
