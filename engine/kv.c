#include "engine/kv.h"

#include "common/metrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void tell(const struct sl_kv_pool *pool) {
    sl_gauge(kv_pages_used, pool->n_pages - pool->n_free - pool->n_idle);
    sl_gauge(kv_pages_cached, pool->n_idle);
}

enum sl_status sl_kv_init(struct sl_kv_pool *pool, struct sl_device *dev,
                          const struct sl_kv_view *shape, uint32_t n_layer, uint32_t n_pages,
                          struct sl_err *err) {
    memset(pool, 0, sizeof *pool);
    pool->free_pages = malloc((size_t)n_pages * sizeof *pool->free_pages);
    if (!pool->free_pages)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the list of %u KV pages", n_pages);
    pool->dev = dev;
    pool->shape = *shape;
    pool->n_layer = n_layer;
    pool->n_pages = pool->n_free = n_pages;
    pool->layer_bytes = (shape->k_page_bytes + shape->v_page_bytes) * n_pages;
    pool->data_bytes = pool->layer_bytes * n_layer;
    enum sl_status st = sl_device_alloc(dev, pool->data_bytes, &pool->data);
    if (st != SL_OK) {
        sl_kv_release(pool);
        return sl_fail(
            err, st,
            "no memory for %.1f MiB of KV cache: lower the context size or the number "
            "of parallel sessions, or use KV type q8_0",
            (double)(n_layer * (uint64_t)n_pages * (shape->k_page_bytes + shape->v_page_bytes)) /
                0x1p20);
    }
    if (dev->caps.host_visible)
        memset(pool->data, 0, pool->data_bytes);
    /* The lowest page is on top. */
    for (uint32_t i = 0; i < n_pages; i++)
        pool->free_pages[i] = n_pages - 1 - i;
    sl_gauge(kv_pages_total, n_pages);
    tell(pool);
    return SL_OK;
}

void sl_kv_release(struct sl_kv_pool *pool) {
    if (pool->data)
        sl_device_free(pool->dev, pool->data, pool->data_bytes);
    free(pool->free_pages);
    memset(pool, 0, sizeof *pool);
}

struct sl_kv_view sl_kv_layer(const struct sl_kv_pool *pool, uint32_t layer) {
    assert(layer < pool->n_layer);
    struct sl_kv_view v = pool->shape;
    v.k = (char *)pool->data + pool->layer_bytes * layer;
    v.v = (char *)v.k + pool->shape.k_page_bytes * pool->n_pages;
    return v;
}

uint32_t sl_kv_page_take(struct sl_kv_pool *pool) {
    if (!pool->n_free)
        return SL_KV_NO_PAGE;
    uint32_t page = pool->free_pages[--pool->n_free];
    tell(pool);
    return page;
}

void sl_kv_page_give(struct sl_kv_pool *pool, uint32_t page) {
    assert(page < pool->n_pages && pool->n_free < pool->n_pages);
    pool->free_pages[pool->n_free++] = page;
    tell(pool);
}

void sl_kv_set_idle(struct sl_kv_pool *pool, uint32_t n_idle) {
    pool->n_idle = n_idle;
    tell(pool);
}
