/* Paged KV: pages that hold SL_KV_PAGE_TOKENS positions of one session each, over all layers. A
 * session's pages need not be neighbours; its page table says where they are.
 *
 * Which pages are taken is one list for the whole model, the scheduler's. Their keys and values are
 * with the layers: every stage has those of its own, under the same numbers. No locks. */
#ifndef SL_ENGINE_KV_H
#define SL_ENGINE_KV_H

#include "backends/buffer_pool.h"
#include "model/arch/model.h"

#define SL_KV_NO_PAGE UINT32_MAX

struct sl_kv_pages {
    uint32_t n_pages;
    uint32_t n_free;
    uint32_t n_idle;      /* taken, and kept for their text alone */
    uint32_t *free_pages; /* a stack: [n_free] */
};

enum sl_status sl_kv_pages_init(struct sl_kv_pages *pages, uint32_t n_pages,
                                struct sl_err *err) SL_MUST_CHECK;
void sl_kv_pages_release(struct sl_kv_pages *pages);
/* SL_KV_NO_PAGE when all are taken. */
uint32_t sl_kv_page_take(struct sl_kv_pages *pages);
void sl_kv_page_give(struct sl_kv_pages *pages, uint32_t page);
/* Of the pages that are taken so many are used by no session: for the gauges. */
void sl_kv_set_idle(struct sl_kv_pages *pages, uint32_t n_idle);

/* The keys and values of a stage's layers. */
struct sl_kv_data {
    struct sl_device *dev;
    struct sl_buffer_pool data;    /* of each layer its K pages, and its V pages */
    struct sl_buffer_items *items; /* [n_layer, 2] in it: K, V; one item each, in one buffer */
    size_t data_bytes, page_bytes; /* of one page: of all layers */
    struct sl_kv_view *layers;     /* [n_layer] */
    uint32_t n_layer, n_pages;
};

/* A layer's pages of this type, without memory. */
struct sl_kv_view sl_kv_shape(const struct sl_layer_spec *spec, enum sl_dtype dtype);
/* Bytes of one page of all layers of a model or slice. */
size_t sl_kv_page_bytes(const struct sl_model *model, enum sl_dtype dtype);

/* Allocates all pages of the model's layers on dev and touches them, so that no page fault or
 * out-of-memory comes later. They are in as many buffers as the device's largest makes necessary; a
 * layer's K pages are in one of them, and so are its V pages: SL_ERR_UNSUPPORTED where that has no
 * room for them. */
enum sl_status sl_kv_data_init(struct sl_kv_data *kv, struct sl_device *dev,
                               const struct sl_model *model, enum sl_dtype dtype, uint32_t n_pages,
                               struct sl_err *err) SL_MUST_CHECK;
void sl_kv_data_release(struct sl_kv_data *kv);
struct sl_kv_view sl_kv_layer(const struct sl_kv_data *kv, uint32_t layer);
/* Bytes of one page, all layers. */
static inline size_t sl_kv_data_page_bytes(const struct sl_kv_data *kv) {
    return kv->page_bytes;
}
/* Copies a page of all layers, K then V each, to or from the host, and waits for it. */
enum sl_status sl_kv_page_copy(const struct sl_kv_data *kv, uint32_t page, uint8_t *host,
                               bool to_device) SL_MUST_CHECK;

#endif
