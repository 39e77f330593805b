#include "engine/tables/table_layout.h"

#include "streaming/row_reader.h"

static const enum sl_global_role roles[SL_TABLES] = {
    [SL_TABLE_TOKENS] = SL_G_TOKEN_EMBD, [SL_TABLE_LAYERS] = SL_G_LAYER_EMBD};

const struct sl_gguf_tensor *sl_table_tensor(const struct sl_model *m, enum sl_table_id id) {
    const struct sl_gguf_tensor *t = m->global[roles[id]];
    bool whole = t && (t == m->global[SL_G_OUTPUT] || (id == SL_TABLE_TOKENS && m->hp.n_draft));
    return !t || whole || t->size_bytes / t->ne[1] > SL_ROW_BYTES ? NULL : t;
}

uint32_t sl_table_row_bytes(const struct sl_model *m, enum sl_table_id id) {
    const struct sl_gguf_tensor *t = sl_table_tensor(m, id);
    return t ? (uint32_t)(t->size_bytes / t->ne[1]) : 0;
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
        sum += tables >> i & 1 ? sl_table_tensor(m, (enum sl_table_id)i)->size_bytes : 0;
    return sum;
}

bool sl_tables_have(const struct sl_model *m, uint32_t tables, const struct sl_gguf_tensor *t) {
    for (uint32_t i = 0; i < SL_TABLES; i++)
        if (tables >> i & 1 && sl_table_tensor(m, (enum sl_table_id)i) == t)
            return true;
    return false;
}
