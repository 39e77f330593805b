#include "engine/forward/kv.h"

#include "common/metrics.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- which pages are taken ---- */

static void tell(const struct sl_kv_pages *p) {
    sl_gauge(kv_pages_used, p->n_pages - p->n_free - p->n_idle);
    sl_gauge(kv_pages_cached, p->n_idle);
}

enum sl_status sl_kv_pages_init(struct sl_kv_pages *p, uint32_t n_pages, struct sl_err *err) {
    memset(p, 0, sizeof *p);
    p->free_pages = malloc((size_t)n_pages * sizeof *p->free_pages);
    if (!p->free_pages)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the list of %u KV pages", n_pages);
    p->n_pages = p->n_free = n_pages;
    /* The lowest page is on top. */
    for (uint32_t i = 0; i < n_pages; i++)
        p->free_pages[i] = n_pages - 1 - i;
    sl_gauge(kv_pages_total, n_pages);
    tell(p);
    return SL_OK;
}

void sl_kv_pages_release(struct sl_kv_pages *p) {
    free(p->free_pages);
    memset(p, 0, sizeof *p);
}

uint32_t sl_kv_page_take(struct sl_kv_pages *p) {
    if (!p->n_free)
        return SL_KV_NO_PAGE;
    uint32_t page = p->free_pages[--p->n_free];
    tell(p);
    return page;
}

void sl_kv_page_give(struct sl_kv_pages *p, uint32_t page) {
    assert(page < p->n_pages && p->n_free < p->n_pages);
    p->free_pages[p->n_free++] = page;
    tell(p);
}

void sl_kv_set_idle(struct sl_kv_pages *p, uint32_t n_idle) {
    p->n_idle = n_idle;
    tell(p);
}

/* ---- what is in them ---- */

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

size_t sl_kv_page_bytes(const struct sl_model *model, enum sl_dtype dtype) {
    size_t bytes = 0;
    for (uint32_t l = 0; l < model->hp.n_layer; l++) {
        struct sl_kv_view shape = sl_kv_shape(&model->layers[l].spec, dtype);
        bytes += shape.k_page_bytes + shape.v_page_bytes;
    }
    return bytes;
}

/* Where layers' pages are to be, without memory. */
static enum sl_status lay_out(struct sl_kv_data *kv, const struct sl_model *model,
                              enum sl_dtype dtype, struct sl_err *err) {
    sl_buffer_pool_init(&kv->data, kv->dev, 0);
    for (uint32_t l = 0; l < kv->n_layer; l++) {
        struct sl_kv_view *v = &kv->layers[l];
        *v = sl_kv_shape(&model->layers[l].spec, dtype);
        size_t bytes[2] = {v->k_page_bytes * kv->n_pages, v->v_page_bytes * kv->n_pages};
        for (uint32_t i = 0; i < 2; i++) {
            enum sl_status st =
                sl_buffer_pool_add(&kv->data, 1, bytes[i], &kv->items[2 * (size_t)l + i]);
            if (st == SL_ERR_UNSUPPORTED)
                return sl_buffer_pool_refuse(kv->dev, "the KV cache of one layer", bytes[i],
                                             "lower the context size or the number of parallel "
                                             "sessions, or use KV type q8_0",
                                             err);
            SL_TRY(st);
        }
    }
    return SL_OK;
}

enum sl_status sl_kv_data_init(struct sl_kv_data *kv, struct sl_device *dev,
                               const struct sl_model *model, enum sl_dtype dtype, uint32_t n_pages,
                               struct sl_err *err) {
    memset(kv, 0, sizeof *kv);
    kv->dev = dev;
    kv->n_layer = model->hp.n_layer;
    kv->n_pages = n_pages;
    kv->page_bytes = sl_kv_page_bytes(model, dtype);
    kv->data_bytes = kv->page_bytes * n_pages;
    kv->layers = malloc(kv->n_layer * sizeof *kv->layers);
    kv->items = malloc(2 * (size_t)kv->n_layer * sizeof *kv->items);
    enum sl_status st = kv->layers && kv->items ? lay_out(kv, model, dtype, err) : SL_ERR_NOMEM;
    bool told = st == SL_ERR_UNSUPPORTED;
    if (st == SL_OK)
        st = sl_buffer_pool_alloc(&kv->data, dev);
    if (st != SL_OK) {
        double mib = (double)kv->data_bytes / 0x1p20;
        sl_kv_data_release(kv);
        return told ? st
                    : sl_fail(err, st,
                              "no memory for %.1f MiB of KV cache: lower the context size or the "
                              "number of parallel sessions, or use KV type q8_0",
                              mib);
    }
    for (uint32_t l = 0; l < kv->n_layer; l++)
        for (uint32_t i = 0; i < 2; i++) {
            struct sl_span pages = sl_buffer_pool_at(&kv->data, &kv->items[2 * (size_t)l + i], 0);
            *(i ? &kv->layers[l].v : &kv->layers[l].k) = sl_span_addr(pages);
            if (dev->caps.host_visible)
                memset(sl_span_host(pages), 0, pages.bytes);
        }
    return SL_OK;
}

void sl_kv_data_release(struct sl_kv_data *kv) {
    sl_buffer_pool_release(&kv->data);
    free(kv->layers);
    free(kv->items);
    memset(kv, 0, sizeof *kv);
}

struct sl_kv_view sl_kv_layer(const struct sl_kv_data *kv, uint32_t layer) {
    assert(layer < kv->n_layer);
    return kv->layers[layer];
}

enum sl_status sl_kv_page_copy(const struct sl_kv_data *kv, uint32_t page, uint8_t *host,
                               bool to_device) {
    enum sl_status st = SL_OK;
    for (uint32_t l = 0; l < kv->n_layer && st == SL_OK; l++) {
        struct sl_kv_view v = sl_kv_layer(kv, l);
        const struct sl_buffer_items *items = &kv->items[2 * (size_t)l];
        struct sl_span part[2] = {sl_span_part(sl_buffer_pool_at(&kv->data, &items[0], 0),
                                               v.k_page_bytes * page, v.k_page_bytes),
                                  sl_span_part(sl_buffer_pool_at(&kv->data, &items[1], 0),
                                               v.v_page_bytes * page, v.v_page_bytes)};
        for (int i = 0; i < 2 && st == SL_OK; i++) {
            st = to_device ? sl_device_upload(kv->dev, part[i], host)
                           : sl_device_download(kv->dev, host, part[i]);
            host += part[i].bytes;
        }
    }
    return st == SL_OK ? sl_device_sync(kv->dev) : st;
}
