/* Paged KV: one pool of pages, each holding SL_KV_PAGE_TOKENS positions of one session over all
 * layers. A session's pages need not be neighbours; its page table says where they are.
 *
 * Owned by the scheduler thread; no locks. */
#ifndef SL_ENGINE_KV_H
#define SL_ENGINE_KV_H

#include "backends/backend.h"

#define SL_KV_NO_PAGE UINT32_MAX

struct sl_kv_pool {
    struct sl_device *dev;
    void *data; /* [n_layer] x ([n_pages] K pages, [n_pages] V pages) */
    size_t data_bytes, layer_bytes;
    struct sl_kv_view shape; /* k, v unset */
    uint32_t n_layer, n_pages;
    uint32_t n_free;
    uint32_t n_idle;      /* taken, and kept for their text alone */
    uint32_t *free_pages; /* a stack: [n_free] */
};

/* Allocates all pages on dev and touches them, so that no page fault or out-of-memory comes later.
 * shape: dtype, heads, head sizes and page bytes. */
enum sl_status sl_kv_init(struct sl_kv_pool *pool, struct sl_device *dev,
                          const struct sl_kv_view *shape, uint32_t n_layer, uint32_t n_pages,
                          struct sl_err *err) SL_MUST_CHECK;
void sl_kv_release(struct sl_kv_pool *pool);

struct sl_kv_view sl_kv_layer(const struct sl_kv_pool *pool, uint32_t layer);
/* SL_KV_NO_PAGE when all are taken. */
uint32_t sl_kv_page_take(struct sl_kv_pool *pool);
void sl_kv_page_give(struct sl_kv_pool *pool, uint32_t page);
/* Of the pages that are taken so many are used by no session: for the gauges. */
void sl_kv_set_idle(struct sl_kv_pool *pool, uint32_t n_idle);

#endif
