/* Device memory for tests and benches that think in addresses, as ops do: what is allocated and
 * mapped here is found again by its device address, or, where it is the host's, by the host's. Each
 * call is sl_device_*'s with spans in place of addresses. Any thread may call. */
#ifndef SL_TESTS_SUPPORT_DEVICE_MEMORY_H
#define SL_TESTS_SUPPORT_DEVICE_MEMORY_H

#include "backends/backend.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct mem_buffer {
    struct sl_buffer *buffer;
    struct mem_buffer *next;
};
/* One list for a program, however many of its files include this. */
__attribute__((weak)) struct mem_buffer *mem_buffers;
__attribute__((weak)) pthread_mutex_t mem_lock = PTHREAD_MUTEX_INITIALIZER;

static inline const char *mem_buffer_begin(const struct sl_buffer *b) {
    return b->kind == SL_BUFFER_MAPPED ? b->host : b->addr;
}

/* The link to the buffer that holds the address. The caller has the lock. */
static inline struct mem_buffer **mem_buffer_at(const struct sl_device *d, const void *p) {
    struct mem_buffer **at = &mem_buffers;
    for (; *at; at = &(*at)->next) {
        const struct sl_buffer *b = (*at)->buffer;
        uintptr_t from = (uintptr_t)mem_buffer_begin(b);
        if (b->device == d && (uintptr_t)p >= from && (uintptr_t)p - from < b->bytes + !b->bytes)
            break;
    }
    return at;
}

/* Without a buffer, which every call refuses, where the address is nobody's. */
static inline struct sl_span mem_span(const struct sl_device *d, const void *p, size_t bytes) {
    struct sl_span span = {.bytes = bytes};
    pthread_mutex_lock(&mem_lock);
    const struct mem_buffer *t = *mem_buffer_at(d, p);
    if (t)
        span = sl_span(t->buffer, (size_t)((const char *)p - mem_buffer_begin(t->buffer)), bytes);
    pthread_mutex_unlock(&mem_lock);
    return span;
}

/* For gcc, which cannot know that a test ends where a call has failed; it changes nothing. */
#define MEM_MAY_BE_SET(x) __asm__("" : "+m"(x))

static inline void mem_keep(struct sl_buffer *b) {
    struct mem_buffer *t = malloc(sizeof *t);
    if (!t)
        abort();
    pthread_mutex_lock(&mem_lock);
    *t = (struct mem_buffer){b, mem_buffers};
    mem_buffers = t;
    pthread_mutex_unlock(&mem_lock);
}

static inline struct sl_buffer *mem_forget(const struct sl_device *d, const void *p) {
    pthread_mutex_lock(&mem_lock);
    struct mem_buffer **at = mem_buffer_at(d, p), *t = *at;
    if (!t || mem_buffer_begin(t->buffer) != p) {
        fprintf(stderr, "device memory: %p was not allocated so\n", p);
        abort();
    }
    struct sl_buffer *b = t->buffer;
    *at = t->next;
    pthread_mutex_unlock(&mem_lock);
    free(t);
    return b;
}

static inline SL_MUST_CHECK enum sl_status mem_alloc(struct sl_device *d, size_t bytes,
                                                     void **out) {
    struct sl_buffer *b = NULL;
    MEM_MAY_BE_SET(*out);
    SL_TRY(sl_device_alloc(d, bytes, &b));
    mem_keep(b);
    *out = b->addr;
    return SL_OK;
}
static inline void mem_free(struct sl_device *d, const void *p) {
    struct sl_buffer *b = p ? mem_forget(d, p) : NULL;
    sl_device_free(d, &b);
}
static inline SL_MUST_CHECK enum sl_status mem_map_host(struct sl_device *d, void *host,
                                                        size_t bytes, void **out) {
    struct sl_buffer *b = NULL;
    MEM_MAY_BE_SET(*out);
    SL_TRY(sl_device_map_host(d, host, bytes, &b));
    mem_keep(b);
    *out = b->addr;
    return SL_OK;
}
static inline void mem_unmap_host(struct sl_device *d, const void *host) {
    struct sl_buffer *b = mem_forget(d, host);
    sl_device_unmap_host(d, &b);
}
static inline SL_MUST_CHECK enum sl_status mem_upload(struct sl_device *d, void *dst,
                                                      const void *src, size_t bytes) {
    return sl_device_upload(d, mem_span(d, dst, bytes), src);
}
static inline SL_MUST_CHECK enum sl_status mem_download(struct sl_device *d, void *dst,
                                                        const void *src, size_t bytes) {
    return sl_device_download(d, dst, mem_span(d, src, bytes));
}
static inline SL_MUST_CHECK enum sl_status mem_copy(struct sl_device *d, enum sl_queue q, void *dst,
                                                    const void *src, size_t bytes) {
    return sl_device_copy(d, q, mem_span(d, dst, bytes), mem_span(d, src, bytes));
}
static inline SL_MUST_CHECK enum sl_status mem_copy_from(struct sl_device *d, void *dst,
                                                         struct sl_device *other, const void *src,
                                                         size_t bytes) {
    return sl_device_copy_from(d, mem_span(d, dst, bytes), other, mem_span(other, src, bytes));
}

#endif
