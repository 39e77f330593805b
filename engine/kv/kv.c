#include "engine/kv/kv.h"

#include "common/metrics.h"
#include "common/populate.h"
#include "engine/layers/seq_shape.h"
#include "engine/step/step.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TOUCH_BYTES ((uint64_t)512 << 20) /* between two looks whether it is still wanted */

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

struct sl_kv_size sl_kv_size_of(const struct sl_memory_plan *p) {
    const struct sl_engine_config *c = &p->config;
    return (struct sl_kv_size){.stores = {c->kv_dtype, c->seq_source, p->n_tails != 0},
                               .n_pages = p->n_pages,
                               .n_tails = p->n_tails,
                               .n_seq = c->parallel};
}

uint64_t sl_kv_bytes(const struct sl_model *model, const struct sl_kv_size *size) {
    struct sl_seq_shape shape = sl_seq_shape(model, &size->stores);
    return shape.page_bytes * size->n_pages + shape.tail_bytes * size->n_tails +
           shape.once_bytes * size->n_seq;
}

uint64_t sl_kv_list_bytes(uint32_t n_layer) {
    return (uint64_t)n_layer *
           (sizeof(struct sl_kv_view) + SL_KV_PARTS * sizeof(struct sl_kv_part));
}

static enum sl_status add_part(struct sl_kv_data *kv, size_t bytes, struct sl_buffer_items *out,
                               struct sl_err *err) {
    enum sl_status status = sl_buffer_pool_add(&kv->data, 1, bytes, out);
    return status == SL_ERR_UNSUPPORTED
               ? sl_buffer_pool_refuse(kv->dev, "the KV cache of one layer", bytes,
                                       "lower the context size or the number of parallel "
                                       "sessions, or use KV type q8_0",
                                       err)
               : status;
}

/* Where a layer's parts are to be, without memory. */
static enum sl_status lay_out(struct sl_kv_data *kv, const struct sl_layer_spec *spec,
                              uint32_t layer, const struct sl_seq_config *config,
                              struct sl_err *err) {
    struct sl_seq_store stores[SL_SEQ_STORES];
    uint32_t n = sl_seq_stores(spec, config, stores);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = 0; j < stores[i].n_parts; j++) {
            const struct sl_seq_store *s = &stores[i];
            struct sl_kv_part *p = &kv->parts[layer * SL_KV_PARTS + i * SL_SEQ_PARTS + j];
            *p = (struct sl_kv_part){.bytes = s->part_bytes[j], .tail = sl_seq_is_tail(config, s)};
            SL_TRY(add_part(kv, p->bytes * (p->tail ? kv->n_tails : kv->n_pages), &p->pages, err));
            *(p->tail ? &kv->tail_bytes : &kv->page_bytes) += p->bytes;
            if (s->repeatable)
                continue;
            SL_TRY(add_part(kv, p->bytes * kv->n_seq, &p->saved, err));
            kv->saves = true;
        }
    return SL_OK;
}

/* While weights are read from a disk CPUs have time for it. */
static void *touch_pages(void *arg) {
    struct sl_kv_data *kv = arg;
    for (uint32_t i = 0; i < kv->data.n_parts; i++) {
        const struct sl_buffer_part *p = &kv->data.parts[i];
        char *base = (char *)p->buffer->host + p->begin;
        for (uint64_t at = 0; at < p->bytes; at += TOUCH_BYTES) {
            if (kv->canceled)
                return NULL;
            kv->touch_error =
                sl_populate(base + at, p->bytes - at < TOUCH_BYTES ? p->bytes - at : TOUCH_BYTES);
            if (kv->touch_error)
                return NULL;
        }
    }
    return NULL;
}

static void begin_to_touch(struct sl_kv_data *kv) {
    if (!kv->dev->caps.host_visible)
        return;
    kv->touching = pthread_create(&kv->toucher, NULL, touch_pages, kv) == 0;
    if (!kv->touching) /* no thread: now */
        touch_pages(kv);
}

static void end_touching(struct sl_kv_data *kv) {
    if (kv->touching)
        pthread_join(kv->toucher, NULL);
    kv->touching = false;
}

static enum sl_status no_memory(const struct sl_kv_data *kv, enum sl_status status,
                                struct sl_err *err) {
    return sl_fail(err, status,
                   "no memory for %.1f MiB of KV cache: lower the context size or the number of "
                   "parallel sessions, or use KV type q8_0",
                   (double)kv->data_bytes / 0x1p20);
}

enum sl_status sl_kv_data_touched(struct sl_kv_data *kv, struct sl_err *err) {
    end_touching(kv);
    return kv->touch_error ? no_memory(kv, SL_ERR_NOMEM, err) : SL_OK;
}

static void bind_layer(struct sl_kv_data *kv, const struct sl_layer_spec *spec, uint32_t layer,
                       enum sl_dtype kv_dtype) {
    const struct sl_kv_part *first = sl_kv_part(kv, layer, 0);
    uint32_t back = spec->mixer == SL_MIXER_ATTENTION ? spec->attention.kv_back : 0;
    if (back) {
        kv->layers[layer] = kv->layers[layer - back];
        return;
    }
    kv->layers[layer] = sl_kv_shape(spec, kv_dtype);
    if (first[0].bytes)
        kv->layers[layer].k = sl_span_addr(sl_kv_part_span(kv, &first[0]));
    if (first[1].bytes)
        kv->layers[layer].v = sl_span_addr(sl_kv_part_span(kv, &first[1]));
}

enum sl_status sl_kv_data_init(struct sl_kv_data *kv, struct sl_device *dev,
                               const struct sl_model *model, const struct sl_kv_size *size,
                               struct sl_err *err) {
    uint32_t n_layer = model->hp.n_layer;
    memset(kv, 0, sizeof *kv);
    if (size->stores.source && !dev->caps.host_visible)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "%s: the host cannot follow its addresses",
                       dev->caps.name);
    kv->dev = dev;
    kv->n_layer = n_layer;
    kv->n_pages = size->n_pages;
    kv->n_tails = size->n_tails;
    kv->n_seq = size->n_seq;
    kv->data_bytes = sl_kv_bytes(model, size);
    kv->layers = malloc(n_layer * sizeof *kv->layers);
    kv->parts = calloc(n_layer, SL_KV_PARTS * sizeof *kv->parts);
    sl_buffer_pool_init(&kv->data, dev, 0);
    enum sl_status status = kv->layers && kv->parts ? SL_OK : SL_ERR_NOMEM;
    for (uint32_t l = 0; l < n_layer && status == SL_OK; l++)
        status = lay_out(kv, &model->layers[l].spec, l, &size->stores, err);
    bool mailbox = status == SL_ERR_UNSUPPORTED;
    if (status == SL_OK)
        status = sl_buffer_pool_alloc(&kv->data, dev);
    if (status != SL_OK) {
        if (!mailbox)
            status = no_memory(kv, status, err);
        sl_kv_data_release(kv);
        return status;
    }
    for (uint32_t l = 0; l < n_layer; l++)
        bind_layer(kv, &model->layers[l].spec, l, size->stores.kv_dtype);
    begin_to_touch(kv);
    return SL_OK;
}

void sl_kv_data_release(struct sl_kv_data *kv) {
    kv->canceled = true;
    end_touching(kv);
    sl_buffer_pool_release(&kv->data);
    free(kv->layers);
    free(kv->parts);
    memset(kv, 0, sizeof *kv);
}

/* ---- copies ---- */

/* All that is kept of a page in parts of one kind; moves host on. */
static enum sl_status copy_parts(const struct sl_kv_data *kv, bool tail, uint32_t page,
                                 bool to_device, uint8_t **host) {
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < kv->n_layer * SL_KV_PARTS && status == SL_OK; i++) {
        const struct sl_kv_part *p = &kv->parts[i];
        if (p->tail != tail || !p->bytes)
            continue;
        struct sl_span at = sl_span_part(sl_kv_part_span(kv, p), p->bytes * page, p->bytes);
        status = to_device ? sl_device_upload(kv->dev, at, *host)
                           : sl_device_download(kv->dev, *host, at);
        *host += p->bytes;
    }
    return status;
}

enum sl_status sl_kv_page_copy(const struct sl_kv_data *kv, const struct sl_kv_copy *c,
                               uint8_t *host) {
    uint8_t *tail = host + kv->page_bytes;
    enum sl_status status = SL_OK;
    assert((c->page == SL_KV_NO_PAGE || c->page < kv->n_pages) &&
           (c->tail == SL_KV_NO_PAGE || (c->tail < kv->n_tails && c->holds_tail)));
    if (c->page != SL_KV_NO_PAGE)
        status = copy_parts(kv, false, c->page, c->to_device, &host);
    if (status == SL_OK && c->tail != SL_KV_NO_PAGE)
        status = copy_parts(kv, true, c->tail, c->to_device, &tail);
    return status == SL_OK ? sl_device_sync(kv->dev) : status;
}

/* ---- steps that begin again ---- */

/* Of each session the page that its first row goes on writing; a page that the step begins is
 * written from its first position, whatever is in it. */
static enum sl_status each_begun(const struct sl_kv_data *kv, const struct sl_step *s, bool save) {
    enum sl_status status = SL_OK;
    for (uint32_t r = 0; r < s->n_rows && kv->saves; r++) {
        bool first = !r || s->row_seq[r] != s->row_seq[r - 1];
        if (!first || (uint32_t)s->pos[r] % SL_KV_PAGE_TOKENS == 0)
            continue;
        for (uint32_t i = 0; i < kv->n_layer * SL_KV_PARTS && status == SL_OK; i++) {
            const struct sl_kv_part *p = &kv->parts[i];
            if (!p->saved.n)
                continue;
            uint32_t page = (p->tail ? s->tail_slot : s->slot)[r] / SL_KV_PAGE_TOKENS;
            struct sl_span at = sl_span_part(sl_kv_part_span(kv, p), p->bytes * page, p->bytes);
            struct sl_span saved = sl_span_part(sl_buffer_pool_at(&kv->data, &p->saved, 0),
                                                p->bytes * s->row_seq[r], p->bytes);
            status = sl_device_copy(kv->dev, SL_QUEUE_OPS, save ? saved : at, save ? at : saved);
        }
    }
    return status;
}

enum sl_status sl_kv_save(const struct sl_kv_data *kv, const struct sl_step *step) {
    return each_begun(kv, step, true);
}

enum sl_status sl_kv_restore(const struct sl_kv_data *kv, const struct sl_step *step) {
    return each_begun(kv, step, false);
}
