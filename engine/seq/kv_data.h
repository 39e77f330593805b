/* The pages of a stage's layers: where each layer's part of them is, and how ops take it. Who makes
 * them: engine/kv/kv.h. */
#ifndef SL_ENGINE_KV_DATA_H
#define SL_ENGINE_KV_DATA_H

#include "backends/buffer_pool.h"
#include "backends/ops/kv.h"
#include "engine/seq/seq_state.h"
#include "model/arch/model.h"

#include <pthread.h>
#include <stdatomic.h>

/* One of a layer's arrays of pages: one item of the pool. */
struct sl_kv_part {
    struct sl_buffer_items pages; /* [n_pages or n_tails, bytes] */
    struct sl_buffer_items saved; /* [n_seq, bytes] sl_kv_save(); n 0: its store is repeatable */
    size_t bytes;                 /* of a page; 0: there is no such array */
    bool tail;                    /* its pages are tail pages */
};

/* What the layers of a stage keep of all sequences (seq_state.h). */
struct sl_kv_data {
    struct sl_device *dev;
    struct sl_buffer_pool data; /* each layer's parts */
    size_t data_bytes;
    size_t page_bytes, tail_bytes; /* of one page, of one tail page: of all layers */
    struct sl_kv_view *layers;     /* [n_layer] */
    struct sl_kv_part *parts;      /* [n_layer, SL_SEQ_STORES, SL_SEQ_PARTS] */
    uint32_t n_layer, n_pages, n_tails, n_seq;
    bool saves; /* some part is not repeatable */
    /* What touches the pages meanwhile. */
    pthread_t toucher;
    bool touching;
    atomic_bool canceled;
    int touch_error; /* the toucher's, until it is joined */
};

#define SL_KV_PARTS (SL_SEQ_STORES * SL_SEQ_PARTS) /* arrays of a layer */

/* A layer's pages of this type, without memory. */
struct sl_kv_view sl_kv_shape(const struct sl_layer_spec *spec, enum sl_dtype dtype);

/* Keys and values of a layer, and whether their pages are tail pages. */
struct sl_kv_view sl_kv_layer(const struct sl_kv_data *kv, uint32_t layer);
bool sl_kv_is_tail(const struct sl_kv_data *kv, uint32_t layer);
/* The first of the arrays of a layer's store, counted as sl_seq_stores() does. */
const struct sl_kv_part *sl_kv_part(const struct sl_kv_data *kv, uint32_t layer, uint32_t store);

/* All pages of a part that there is. */
static inline struct sl_span sl_kv_part_span(const struct sl_kv_data *kv,
                                             const struct sl_kv_part *part) {
    return sl_buffer_pool_at(&kv->data, &part->pages, 0);
}

#endif
