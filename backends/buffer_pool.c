#include "backends/buffer_pool.h"

#include <stdlib.h>
#include <string.h>

/* As every buffer begins. */
#define ALLOC_ALIGN_BYTES 64u

static uint64_t round_up(uint64_t n, size_t align) {
    return (n + align - 1) & ~(uint64_t)(align - 1);
}

/* What a buffer takes besides its items, so that they can begin where they are to. */
static uint64_t slack(const struct sl_buffer_pool *p) {
    return p->align_bytes > ALLOC_ALIGN_BYTES ? p->align_bytes : 0;
}

/* What items of one buffer may take. */
static uint64_t capacity(const struct sl_buffer_pool *p) {
    uint64_t most = p->max_bytes ? p->max_bytes : SIZE_MAX / 2;
    return most > slack(p) ? most - slack(p) : 0;
}

void sl_buffer_pool_init(struct sl_buffer_pool *pool, const struct sl_device *dev,
                         size_t align_bytes) {
    *pool = (struct sl_buffer_pool){.max_bytes = dev ? dev->caps.max_alloc_bytes : 0,
                                    .align_bytes = align_bytes ? align_bytes : ALLOC_ALIGN_BYTES};
}

static enum sl_status add_part(struct sl_buffer_pool *p, uint64_t bytes) {
    if (p->n_parts == p->room) {
        uint32_t room = p->room ? 2 * p->room : 4;
        struct sl_buffer_part *parts = realloc(p->parts, room * sizeof *parts);
        if (!parts)
            return SL_ERR_NOMEM;
        p->parts = parts;
        p->room = room;
    }
    p->parts[p->n_parts++] = (struct sl_buffer_part){.bytes = bytes};
    return SL_OK;
}

/* How many of n fit. */
static uint32_t fit(uint64_t room_bytes, size_t bytes, uint32_t n) {
    uint64_t most = bytes ? room_bytes / bytes : n;
    return most < n ? (uint32_t)most : n;
}

enum sl_status sl_buffer_pool_add(struct sl_buffer_pool *p, uint32_t n, size_t bytes,
                                  struct sl_buffer_items *out_items) {
    struct sl_buffer_items items = {.bytes = bytes, .n = n, .n_each = 1};
    uint64_t most = capacity(p);
    if (n && bytes > most)
        return p->max_bytes ? SL_ERR_UNSUPPORTED : SL_ERR_NOMEM;
    struct sl_buffer_part *last = p->n_parts ? &p->parts[p->n_parts - 1] : NULL;
    uint64_t at = last ? round_up(last->bytes, p->align_bytes) : 0;
    uint32_t here = last && at <= most ? fit(most - at, bytes, n) : 0;
    if (n && !here) {
        SL_TRY(add_part(p, 0));
        last = &p->parts[p->n_parts - 1];
        at = 0;
        here = fit(most, bytes, n);
    }
    if (n) {
        items.part = p->n_parts - 1;
        items.offset = at;
        items.n_first = here;
        items.n_each = fit(most, bytes, n);
        last->bytes = at + (uint64_t)here * bytes;
    }
    for (uint32_t left = n - here; left;) {
        uint32_t these = left < items.n_each ? left : items.n_each;
        SL_TRY(add_part(p, (uint64_t)these * bytes));
        left -= these;
    }
    *out_items = items;
    return SL_OK;
}

uint64_t sl_buffer_pool_bytes(const struct sl_buffer_pool *p) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < p->n_parts; i++)
        sum += p->parts[i].bytes + slack(p);
    return sum;
}

static void give_back(struct sl_buffer_pool *p) {
    for (uint32_t i = 0; i < p->n_parts; i++) {
        struct sl_buffer **b = &p->parts[i].buffer;
        if (*b && (*b)->kind == SL_BUFFER_MAPPED)
            sl_device_unmap_host(p->dev, b);
        else if (*b)
            sl_device_free(p->dev, b);
    }
    p->dev = NULL;
}

void sl_buffer_pool_release(struct sl_buffer_pool *p) {
    give_back(p);
    free(p->parts);
    memset(p, 0, sizeof *p);
}

enum sl_status sl_buffer_pool_alloc(struct sl_buffer_pool *p, struct sl_device *dev) {
    enum sl_status status = SL_OK;
    p->dev = dev;
    for (uint32_t i = 0; i < p->n_parts && status == SL_OK; i++) {
        struct sl_buffer_part *part = &p->parts[i];
        status = sl_device_alloc(dev, part->bytes + slack(p), &part->buffer);
        if (status == SL_OK)
            part->begin =
                slack(p) ? (size_t) - (uintptr_t)part->buffer->addr & (p->align_bytes - 1) : 0;
    }
    if (status != SL_OK)
        give_back(p);
    return status;
}

enum sl_status sl_buffer_pool_map(struct sl_buffer_pool *p, struct sl_device *dev, void *host) {
    enum sl_status status = SL_OK;
    char *at = host;
    p->dev = dev;
    for (uint32_t i = 0; i < p->n_parts && status == SL_OK; i++) {
        struct sl_buffer_part *part = &p->parts[i];
        status = sl_device_map_host(dev, at, part->bytes, &part->buffer);
        at += part->bytes;
    }
    if (status != SL_OK)
        give_back(p);
    return status;
}

enum sl_status sl_buffer_pool_refuse(const struct sl_device *dev, const char *what, uint64_t bytes,
                                     const char *to_do, struct sl_err *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "%s: %s takes %.1f MiB, and the largest buffer there has %.1f MiB: %s",
                   dev->caps.id, what, (double)bytes / 0x1p20,
                   (double)dev->caps.max_alloc_bytes / 0x1p20, to_do);
}
