#include "engine/tables/table_layout.h"

#include "streaming/row_reader.h"

/* The tokens' embeddings are needed where ids become rows, and where layers' embeddings are made.
 */
static const struct sl_gguf_tensor *tensor_of(const struct sl_model *m, enum sl_table_id id) {
    const struct sl_gguf_tensor *tokens = m->global[SL_G_TOKEN_EMBD];
    return id == SL_TABLE_LAYERS   ? m->global[SL_G_LAYER_EMBD]
           : id == SL_TABLE_NGRAMS ? m->global[SL_G_NGRAMS]
           : tokens                ? tokens
                                   : m->global[SL_G_LAYER_TOKENS];
}

struct sl_kept_layers sl_table_layers(const struct sl_model *m) {
    const struct sl_gguf_tensor *t = m->global[SL_G_LAYER_EMBD];
    uint64_t n = m->hp.n_embd_layer;
    if (!t || !n)
        return (struct sl_kept_layers){0, 0};
    uint64_t all = t->ne[0] / n, first = m->hp.first_layer, end = first + m->hp.n_layer;
    uint32_t block = sl_dtype_info(t->dtype)->block_elems;
    if (t->size_bytes / t->ne[1] > SL_ROW_BYTES)
        return (struct sl_kept_layers){0, (uint32_t)all};
    while (first * n % block)
        first--;
    while (end < all && end * n % block)
        end++;
    return (struct sl_kept_layers){(uint32_t)first, (uint32_t)(end - first)};
}

bool sl_table_cut(const struct sl_model *m, const struct sl_gguf_tensor *t,
                  struct sl_tensor_cut *out) {
    const struct sl_gguf_tensor *embd = m->global[SL_G_LAYER_EMBD];
    bool columns = t && t == embd, rows = t && t == m->global[SL_G_LAYER_PROJ];
    if (!columns && !rows)
        return false;
    struct sl_kept_layers keep = sl_table_layers(m);
    uint64_t n = m->hp.n_embd_layer, row_bytes = t->size_bytes / t->ne[1];
    if (keep.n == embd->ne[0] / n || row_bytes > SL_ROW_BYTES)
        return false;
    *out = (struct sl_tensor_cut){
        .offset_bytes = t->offset_bytes + (columns ? sl_dtype_row_bytes(t->dtype, keep.first * n)
                                                   : keep.first * n * row_bytes),
        .n_rows = columns ? t->ne[1] : keep.n * n,
        .stride_bytes = (uint32_t)row_bytes,
        .row_bytes = (uint32_t)(columns ? sl_dtype_row_bytes(t->dtype, keep.n * n) : row_bytes)};
    return true;
}

const struct sl_gguf_tensor *sl_table_tensor(const struct sl_model *m, enum sl_table_id id) {
    const struct sl_gguf_tensor *t = tensor_of(m, id);
    bool whole = t && (t == m->global[SL_G_OUTPUT] || (id == SL_TABLE_TOKENS && m->hp.n_draft));
    return !t || whole || t->size_bytes / t->ne[1] > SL_ROW_BYTES ? NULL : t;
}

uint32_t sl_table_row_bytes(const struct sl_model *m, enum sl_table_id id) {
    const struct sl_gguf_tensor *t = sl_table_tensor(m, id);
    struct sl_tensor_cut cut;
    if (!t)
        return 0;
    return sl_table_cut(m, t, &cut) ? cut.row_bytes : (uint32_t)(t->size_bytes / t->ne[1]);
}

uint32_t sl_table_token_rows(const struct sl_model *m, enum sl_table_id id) {
    return id == SL_TABLE_NGRAMS ? m->hp.ngram.n_head : 1;
}

uint32_t sl_tables_token_rows(const struct sl_model *m, uint32_t tables) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < SL_TABLES; i++) {
        uint32_t n = tables >> i & 1 ? sl_table_token_rows(m, (enum sl_table_id)i) : 0;
        most = n > most ? n : most;
    }
    return most;
}

uint32_t sl_tables_possible(const struct sl_model *m) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < SL_TABLES; i++)
        mask |= sl_table_tensor(m, (enum sl_table_id)i) ? 1u << i : 0;
    return mask;
}

uint32_t sl_tables_large(const struct sl_model *m) {
    return sl_tables_possible(m) & ~(1u << SL_TABLE_TOKENS);
}

uint64_t sl_tables_bytes(const struct sl_model *m, uint32_t tables) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < SL_TABLES; i++)
        if (tables >> i & 1)
            sum += sl_table_tensor(m, (enum sl_table_id)i)->ne[1] *
                   sl_table_row_bytes(m, (enum sl_table_id)i);
    return sum;
}

bool sl_tables_have(const struct sl_model *m, uint32_t tables, const struct sl_gguf_tensor *t) {
    for (uint32_t i = 0; i < SL_TABLES; i++)
        if (tables >> i & 1 && sl_table_tensor(m, (enum sl_table_id)i) == t)
            return true;
    return false;
}
