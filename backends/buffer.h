/* Memory of a device, and parts of it. */
#ifndef SL_BACKENDS_BUFFER_H
#define SL_BACKENDS_BUFFER_H

#include <stddef.h>
#include <stdint.h>

struct sl_device;

enum sl_buffer_kind {
    SL_BUFFER_DEVICE, /* allocated on the device: sl_device_alloc() */
    SL_BUFFER_MAPPED, /* host memory, pinned for the device: sl_device_map_host() */
};

/* Memory of one device, or host memory as one device sees it. Written only by the front end and the
 * backend; anybody may read it. */
struct sl_buffer {
    struct sl_device *device; /* the device whose calls accept it */
    enum sl_buffer_kind kind;
    size_t bytes;
    void *addr; /* device address of the first byte, for ops */
    void *host; /* the host's address of the first byte; NULL: the host cannot access it */
    void *own;  /* the backend's */
};

/* `bytes` bytes of a buffer, from offset on. */
struct sl_span {
    const struct sl_buffer *buffer;
    size_t offset, bytes;
};

static inline struct sl_span sl_span(const struct sl_buffer *buffer, size_t offset, size_t bytes) {
    return (struct sl_span){buffer, offset, bytes};
}
static inline struct sl_span sl_span_all(const struct sl_buffer *buffer) {
    return (struct sl_span){buffer, 0, buffer->bytes};
}
/* A part of a span, from offset within it on. */
static inline struct sl_span sl_span_part(struct sl_span s, size_t offset, size_t bytes) {
    return (struct sl_span){s.buffer, s.offset + offset, bytes};
}
/* The bytes of this buffer that begin at a device address (as ops use it) or at a host address. An
 * address outside the buffer makes a span that every call rejects. */
static inline struct sl_span sl_span_at(const struct sl_buffer *buffer, const void *addr,
                                        size_t bytes) {
    return (struct sl_span){buffer, (uintptr_t)addr - (uintptr_t)buffer->addr, bytes};
}
static inline struct sl_span sl_span_at_host(const struct sl_buffer *buffer, const void *host,
                                             size_t bytes) {
    return (struct sl_span){buffer, (uintptr_t)host - (uintptr_t)buffer->host, bytes};
}
/* Device address of its first byte. */
static inline void *sl_span_addr(struct sl_span s) {
    return (void *)((uintptr_t)s.buffer->addr + s.offset);
}
/* The host's address of it; only if buffer->host is set. */
static inline void *sl_span_host(struct sl_span s) {
    return (char *)s.buffer->host + s.offset;
}

#endif
