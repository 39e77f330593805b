/* Device memory, and the way in and out of it. */
#include "backends/gpu/gpu_internal.h"
#include "common/log.h"
#include "common/metrics.h"

#include <string.h>

#define SEGMENTS   SL_GPU_STAGING_SEGMENTS
#define PUSH_ALIGN 256u
/* Uploads up to this size go by a kernel. */
#define WORDS_BYTES (64u << 10)
/* The driver refuses 2 GiB in one piece. */
#define MIN_STAGING_BYTES (SEGMENTS * (256u << 10))

static uint64_t address(const void *p) {
    return (uint64_t)(uintptr_t)p;
}

enum sl_status sl_gpu_alloc(struct sl_device *d, size_t bytes, void **out_addr) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    uint64_t addr = 0;
    SL_TRY(sl_gpu_enter(c));
    /* Plain device allocation and nothing else: what does not fit on the card is refused. */
    int result = c->driver.mem_alloc(&addr, bytes ? bytes : 1);
    if (result) {
        size_t free_bytes = 0, total_bytes = 0;
        if (result == SL_CU_OUT_OF_MEMORY &&
            c->driver.mem_info(&free_bytes, &total_bytes) == SL_CU_OK)
            sl_error("%s:%d: %zu MiB asked for, %zu of %zu are free", c->name, c->ordinal,
                     (bytes + 0xfffff) >> 20, free_bytes >> 20, total_bytes >> 20);
        return sl_gpu_check(c, result, "allocating device memory");
    }
    sl_debug("%s:%d: %zu bytes of device memory at 0x%llx", c->name, c->ordinal, bytes,
             (unsigned long long)addr);
    sl_count(device_memory_bytes, bytes);
    d->own_bytes += bytes;
    sl_count(device_allocs_total, 1);
    *out_addr = (void *)(uintptr_t)addr;
    return SL_OK;
}

void sl_gpu_free(struct sl_device *d, void *addr, size_t bytes) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    sl_count(device_memory_bytes, -(int64_t)bytes);
    d->own_bytes -= bytes;
    /* A lost device's memory went with it, and so may have that of one which worked with it: no
     * news to anybody. cuMemFree waits for what was enqueued. */
    if (sl_gpu_enter_to_end(c))
        return;
    int result = c->driver.mem_free(address(addr));
    if (result)
        sl_debug("%s:%d: freeing device memory: error %d", c->name, c->ordinal, result);
}

enum sl_status sl_gpu_buffer_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    return sl_gpu_alloc(d, buffer->bytes, &buffer->addr);
}

void sl_gpu_buffer_free(struct sl_device *d, struct sl_buffer *buffer) {
    sl_gpu_free(d, buffer->addr, buffer->bytes);
}

enum sl_status sl_gpu_memory(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    size_t free_bytes = 0, total_bytes = 0;
    enum sl_status status = sl_gpu_enter(c);
    if (!status)
        status = sl_gpu_check(c, c->driver.mem_info(&free_bytes, &total_bytes),
                              "asking for free memory");
    *out_free = free_bytes;
    *out_total = total_bytes;
    return status;
}

static enum sl_status register_piece(struct sl_gpu *c, char *host, size_t bytes) {
    int result = c->driver.host_register(host, bytes,
                                         SL_CU_HOST_REGISTER_PORTABLE | SL_CU_HOST_REGISTER_MAPPED);
    if (result == SL_CU_OUT_OF_MEMORY) {
        sl_error("%s:%d: the system does not lock another %zu MiB of memory for the GPU; see "
                 "ulimit -l, or give less",
                 c->name, c->ordinal, bytes >> 20);
        return SL_ERR_NOMEM;
    }
    if (result == SL_CU_HOST_MEMORY_ALREADY_REGISTERED) {
        sl_error("%s:%d: memory at %p is mapped already", c->name, c->ordinal, (void *)host);
        return SL_ERR_INVALID;
    }
    return sl_gpu_check(c, result, "mapping host memory");
}

static void unregister(struct sl_gpu *c, char *host, size_t bytes) {
    for (size_t at = 0; at < bytes; at += SL_GPU_MAP_PIECE_BYTES)
        if (!sl_gpu_enter_to_end(c))
            (void)!sl_gpu_check(c, c->driver.host_unregister(host + at), "unmapping host memory");
}

enum sl_status sl_gpu_map_host(struct sl_device *d, struct sl_buffer *buffer) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    char *from = buffer->host;
    size_t bytes = buffer->bytes;
    uint64_t first = 0, here = 0;
    enum sl_status status = sl_gpu_enter(c);
    size_t at = 0;
    while (!status && at < bytes) {
        size_t n = bytes - at < SL_GPU_MAP_PIECE_BYTES ? bytes - at : SL_GPU_MAP_PIECE_BYTES;
        status = register_piece(c, from + at, n);
        if (status)
            break;
        at += n;
        status = sl_gpu_check(c, c->driver.host_device_pointer(&here, from + at - n, 0),
                              "mapping host memory");
        if (at == n)
            first = here;
        if (!status && here - first != at - n) {
            sl_error("%s:%d: host memory is mapped in pieces that do not join", c->name,
                     c->ordinal);
            status = SL_ERR_UNSUPPORTED;
        }
    }
    if (status) {
        unregister(c, from, at);
        return status;
    }
    sl_debug("%s:%d: %zu bytes of host memory mapped", c->name, c->ordinal, bytes);
    sl_count(device_mapped_bytes, bytes);
    buffer->addr = (void *)(uintptr_t)first;
    return SL_OK;
}

void sl_gpu_unmap_host(struct sl_device *d, struct sl_buffer *buffer) {
    sl_count(device_mapped_bytes, -(int64_t)buffer->bytes);
    (void)!sl_gpu_sync(d); /* a lost device has let go of it */
    unregister((struct sl_gpu *)d, buffer->host, buffer->bytes);
}

enum sl_status sl_gpu_staging_init(struct sl_gpu *c, size_t bytes) {
    struct sl_gpu_staging *s = &c->staging;
    if (bytes < MIN_STAGING_BYTES)
        bytes = MIN_STAGING_BYTES;
    s->segment_bytes = (uint32_t)(bytes / SEGMENTS / PUSH_ALIGN * PUSH_ALIGN);
    bytes = (size_t)s->segment_bytes * SEGMENTS;
    void *host = NULL, *mirror = NULL;
    unsigned flags = SL_CU_HOST_ALLOC_PORTABLE | SL_CU_HOST_ALLOC_MAPPED;
    SL_TRY(sl_gpu_check(c, c->driver.host_alloc(&host, bytes + SL_GPU_WORDS_BYTES, flags),
                        "allocating pinned memory"));
    s->host = host;
    sl_count(device_pinned_bytes, bytes + SL_GPU_WORDS_BYTES);
    SL_TRY(
        sl_gpu_check(c, c->driver.host_device_pointer(&s->seen, host, 0), "mapping pinned memory"));
    sl_debug("%s:%d: %zu bytes of pinned host memory", c->name, c->ordinal,
             bytes + SL_GPU_WORDS_BYTES);
    sl_count(device_allocs_total, 1);
    SL_TRY(sl_gpu_alloc(&c->base, bytes, &mirror));
    s->mirror = address(mirror);
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < SEGMENTS && !status; i++)
        status = sl_gpu_check(c, c->driver.event_create(&s->passed[i], SL_CU_EVENT_NO_TIMING),
                              "creating an event");
    return status;
}

void sl_gpu_staging_release(struct sl_gpu *c) {
    struct sl_gpu_staging *s = &c->staging;
    size_t bytes = (size_t)s->segment_bytes * SEGMENTS;
    for (uint32_t i = 0; i < SEGMENTS; i++)
        if (s->passed[i])
            c->driver.event_destroy(s->passed[i]);
    if (s->mirror)
        sl_gpu_free(&c->base, (void *)(uintptr_t)s->mirror, bytes);
    if (s->host) {
        c->driver.host_free(s->host);
        sl_count(device_pinned_bytes, -(int64_t)(bytes + SL_GPU_WORDS_BYTES));
    }
    memset(s, 0, sizeof *s);
}

/* Closes the segment being filled and opens the next, waiting for the copies out of it. */
static enum sl_status next_segment(struct sl_gpu *c) {
    struct sl_gpu_staging *s = &c->staging;
    SL_TRY(sl_gpu_check(c, c->driver.event_record(s->passed[s->segment], c->stream),
                        "recording an event"));
    s->in_flight[s->segment] = true;
    s->segment = (s->segment + 1) % SEGMENTS;
    s->used_bytes = 0;
    if (!s->in_flight[s->segment])
        return SL_OK;
    sl_count(device_stage_waits_total, 1);
    enum sl_status status =
        sl_gpu_check(c, sl_gpu_await_event(c, s->passed[s->segment]), "waiting for a copy");
    if (!status)
        s->in_flight[s->segment] = false;
    return status;
}

/* Room for up to `bytes` in the staging buffer, at least one alignment unit; *out_bytes is how
 * much. */
static enum sl_status staging_room(struct sl_gpu *c, size_t bytes, size_t least_bytes,
                                   size_t *out_at, size_t *out_bytes) {
    struct sl_gpu_staging *s = &c->staging;
    if (s->segment_bytes - s->used_bytes < least_bytes)
        SL_TRY(next_segment(c));
    size_t room = s->segment_bytes - s->used_bytes;
    *out_bytes = bytes < room ? bytes : room;
    *out_at = (size_t)s->segment * s->segment_bytes + s->used_bytes;
    size_t taken = (*out_bytes + PUSH_ALIGN - 1) / PUSH_ALIGN * PUSH_ALIGN;
    s->used_bytes += (uint32_t)taken; /* segments are whole units, so this stays within */
    return SL_OK;
}

/* Copies what lies at `at` of the staging buffer. A little goes by a kernel: a copy would wait for
 * the experts that other queues have given the copy engine. While a model is loaded there are none.
 */
static enum sl_status from_staging(struct sl_gpu *c, uint64_t dst, size_t at, size_t n) {
    if (n <= WORDS_BYTES && sl_gpu_are_words(dst, at, n) && c->working) {
        c->uploaded = true;
        return sl_gpu_words(c, dst, c->staging.seen + at, n);
    }
    return sl_gpu_check(c, c->driver.copy_to_device(dst, c->staging.host + at, n, c->stream),
                        "copying to the device");
}

enum sl_status sl_gpu_upload(struct sl_device *d, struct sl_span dst, const void *src) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum sl_status status = sl_gpu_enter(c);
    for (size_t done = 0; !status && done < dst.bytes;) {
        size_t at, n;
        status = staging_room(c, dst.bytes - done, PUSH_ALIGN, &at, &n);
        if (status)
            break;
        memcpy(c->staging.host + at, (const char *)src + done, n);
        status = from_staging(c, sl_gpu_address(dst) + done, at, n);
        done += n;
    }
    return status;
}

enum sl_status sl_gpu_push(struct sl_gpu *c, const void *src, size_t bytes, const void **out_addr) {
    size_t at, n;
    if (bytes > c->staging.segment_bytes) {
        sl_error("%s:%d: %zu bytes of arguments; a segment of the staging buffer has %u", c->name,
                 c->ordinal, bytes, c->staging.segment_bytes);
        return SL_ERR_INVALID;
    }
    SL_TRY(sl_gpu_enter(c));
    SL_TRY(staging_room(c, bytes, bytes, &at, &n));
    memcpy(c->staging.host + at, src, n);
    enum sl_status status = from_staging(c, c->staging.mirror + at, at, n);
    if (!status)
        *out_addr = (const void *)(uintptr_t)(c->staging.mirror + at);
    return status;
}

static enum sl_status wait_for(struct sl_gpu *c, enum sl_queue q) {
    enum sl_status status = sl_gpu_enter_to_end(c);
    if (!status)
        status =
            sl_gpu_check(c, sl_gpu_await_stream(c, c->queue[q].stream), "waiting for the device");
    if (status)
        return status;
    c->queue[q].passed = c->queue[q].marked;
    if (q == SL_QUEUE_OPS)
        memset(c->staging.in_flight, 0, sizeof c->staging.in_flight);
    return SL_OK;
}

enum sl_status sl_gpu_sync(struct sl_device *d) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum sl_status status = SL_OK;
    for (int q = 0; q < SL_QUEUES && !status; q++)
        status = wait_for(c, (enum sl_queue)q);
    return status ? status : sl_gpu_came_whole(c);
}

/* One segment at a time, through the staging buffer: the destination need not be pinned. */
enum sl_status sl_gpu_download(struct sl_device *d, void *dst_host, struct sl_span src) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    enum sl_status status = sl_gpu_enter(c);
    for (size_t done = 0; !status && done < src.bytes;) {
        size_t at, n;
        status = staging_room(c, src.bytes - done, PUSH_ALIGN, &at, &n);
        if (!status)
            status = sl_gpu_check(c,
                                  c->driver.copy_to_host(c->staging.host + at,
                                                         sl_gpu_address(src) + done, n, c->stream),
                                  "copying from the device");
        if (!status)
            status = wait_for(c, SL_QUEUE_OPS);
        if (!status)
            status = sl_gpu_came_whole(c);
        if (!status)
            memcpy((char *)dst_host + done, c->staging.host + at, n);
        done += n;
    }
    return status;
}
