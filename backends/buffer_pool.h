/* Memory for many items of a device, in as many buffers as its largest allocation
 * (caps.max_alloc_bytes) requires: one if there is no such limit. No item crosses two buffers.
 *
 * First all items are added, which allocates nothing on the device and tells how much it will take.
 * Then the buffers are allocated, or host memory that holds the items one after another is mapped.
 * The place of an item is computed in constant time. One thread at a time; the spans may be used by
 * anybody. */
#ifndef SL_BACKENDS_BUFFER_POOL_H
#define SL_BACKENDS_BUFFER_POOL_H

#include "backends/backend.h"

struct sl_buffer_part {
    uint64_t bytes;           /* of all its items */
    struct sl_buffer *buffer; /* NULL: none yet */
    size_t begin;             /* where the items begin in it */
};

struct sl_buffer_pool {
    uint64_t max_bytes; /* of a buffer; 0: no limit */
    size_t
        align_bytes; /* alignment in memory of the first of the items added together; at least 64 */
    struct sl_buffer_part *parts;
    uint32_t n_parts, room;
    struct sl_device *dev; /* NULL: not allocated */
};

/* Items that were added together: n of the same size, one after another. */
struct sl_buffer_items {
    size_t bytes; /* of each */
    uint32_t n, part;
    uint64_t offset;          /* of the first, in its part */
    uint32_t n_first, n_each; /* items in that part; in each of those after it */
};

/* dev NULL: no device and no limit. align_bytes: a power of two; 0 = 64. Release it even if nothing
 * was allocated; a zeroed pool may be released too. */
void sl_buffer_pool_init(struct sl_buffer_pool *pool, const struct sl_device *dev,
                         size_t align_bytes);
void sl_buffer_pool_release(struct sl_buffer_pool *pool);
/* Adds n items of so many bytes. n 0: none. SL_ERR_UNSUPPORTED: one is larger than a buffer of the
 * device can be (sl_buffer_pool_refuse()); SL_ERR_NOMEM, also if sizes overflow. After a failure
 * the pool can only be released. */
enum sl_status sl_buffer_pool_add(struct sl_buffer_pool *pool, uint32_t n, size_t bytes,
                                  struct sl_buffer_items *out_items) SL_MUST_CHECK;
/* The bytes of all buffers. */
uint64_t sl_buffer_pool_bytes(const struct sl_buffer_pool *pool);
/* Allocates all buffers, or none. Contents undefined. */
enum sl_status sl_buffer_pool_alloc(struct sl_buffer_pool *pool,
                                    struct sl_device *dev) SL_MUST_CHECK;
/* Maps host memory instead, in which the items follow one another from host on. All are whole
 * pages, and so is align_bytes. Borrowed until release. */
enum sl_status sl_buffer_pool_map(struct sl_buffer_pool *pool, struct sl_device *dev,
                                  void *host) SL_MUST_CHECK;
/* "cuda:0: `what` takes 5.0 GiB, and its largest buffer has 4.0 GiB: `to_do`". */
enum sl_status sl_buffer_pool_refuse(const struct sl_device *dev, const char *what, uint64_t bytes,
                                     const char *to_do, struct sl_err *err);

/* Item i < items->n of a pool that has memory. */
static inline struct sl_span sl_buffer_pool_at(const struct sl_buffer_pool *pool,
                                               const struct sl_buffer_items *items, uint32_t i) {
    const struct sl_buffer_part *p = &pool->parts[items->part];
    uint64_t at = items->offset;
    if (i >= items->n_first) {
        i -= items->n_first;
        p += 1 + i / items->n_each;
        i %= items->n_each;
        at = 0;
    }
    return sl_span(p->buffer, p->begin + at + (size_t)i * items->bytes, items->bytes);
}

#endif
