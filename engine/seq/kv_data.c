/* A layer's part of the KV data, as ops take it. */
#include "engine/seq/kv_data.h"

#include <assert.h>

struct sl_kv_view sl_kv_shape(const struct sl_layer_spec *spec, enum sl_dtype dtype) {
    const struct sl_attention_spec *a = &spec->attention;
    size_t rows = (size_t)a->n_head_kv * SL_KV_PAGE_TOKENS;
    return (struct sl_kv_view){.dtype = dtype,
                               .n_kv_heads = a->n_head_kv,
                               .head_dim_k = a->head_dim_k,
                               .head_dim_v = a->head_dim_v,
                               .k_page_bytes = rows * sl_dtype_row_bytes(dtype, a->head_dim_k),
                               .v_page_bytes = rows * sl_dtype_row_bytes(dtype, a->head_dim_v)};
}

struct sl_kv_view sl_kv_layer(const struct sl_kv_data *kv, uint32_t layer) {
    assert(layer < kv->n_layer);
    return kv->layers[layer];
}

const struct sl_kv_part *sl_kv_part(const struct sl_kv_data *kv, uint32_t layer, uint32_t store) {
    assert(layer < kv->n_layer && store < SL_SEQ_STORES);
    return &kv->parts[layer * SL_KV_PARTS + store * SL_SEQ_PARTS];
}

bool sl_kv_is_tail(const struct sl_kv_data *kv, uint32_t layer) {
    return sl_kv_part(kv, layer, 0)->tail;
}
