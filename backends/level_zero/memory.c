/* Device memory, host memory that a device sees, and the way in and out. */
#include "backends/level_zero/level_zero_internal.h"
#include "common/log.h"
#include "common/metrics.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENTS          SL_LZ_STAGING_SEGMENTS
#define PUSH_ALIGN        256u
#define MIN_STAGING_BYTES (SEGMENTS * (256u << 10))
#define DEVICE_ALIGN      4096u

enum sl_status sl_lz_memory_alloc(struct sl_level_zero *z, uint64_t bytes, void **out_at) {
    const ze_device_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC};
    void *at = NULL;
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    SL_TRY(sl_lz_check(
        z, z->ze->MemAllocDevice(z->context, &desc, bytes, DEVICE_ALIGN, z->info.handle, &at),
        "allocating device memory"));
    sl_debug("level_zero:%u: %llu bytes of device memory at %p", z->number,
             (unsigned long long)bytes, at);
    sl_count(device_memory_bytes, (int64_t)bytes);
    sl_count(device_allocs_total, 1);
    z->base.own_bytes += bytes;
    *out_at = at;
    return SL_OK;
}

void sl_lz_memory_free(struct sl_level_zero *z, void *at, uint64_t bytes) {
    if (!at)
        return;
    z->ze->MemFree(z->context, at);
    sl_count(device_memory_bytes, -(int64_t)bytes);
    z->base.own_bytes -= bytes;
}

enum sl_status sl_lz_buffer_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    return sl_lz_memory_alloc((struct sl_level_zero *)d, buffer->bytes, &buffer->addr);
}

void sl_lz_buffer_free(struct sl_device *d, struct sl_buffer *buffer) {
    (void)!sl_lz_sync(d); /* a lost device has let go of it */
    sl_lz_memory_free((struct sl_level_zero *)d, buffer->addr, buffer->bytes);
}

/* ---- host memory ---- */

enum sl_status sl_lz_map_host(struct sl_device *d, struct sl_buffer *buffer) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    ze_result_t result = z->info.import(z->info.driver, buffer->host, buffer->bytes);
    if (result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY ||
        result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY) {
        sl_error("level_zero:%u: the system does not lock another %zu MiB of memory for the GPU; "
                 "see ulimit -l, or give less",
                 z->number, buffer->bytes >> 20);
        return SL_ERR_NOMEM;
    }
    SL_TRY(sl_lz_check(z, result, "mapping host memory"));
    sl_debug("level_zero:%u: %zu bytes of host memory mapped", z->number, buffer->bytes);
    sl_count(device_mapped_bytes, (int64_t)buffer->bytes);
    buffer->addr = buffer->host;
    return SL_OK;
}

void sl_lz_unmap_host(struct sl_device *d, struct sl_buffer *buffer) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    (void)!sl_lz_sync(d);
    z->info.release(z->info.driver, buffer->host);
    sl_count(device_mapped_bytes, -(int64_t)buffer->bytes);
}

/* ---- staging ---- */

static uint64_t staging_bytes(const struct sl_lz_staging *s) {
    return (uint64_t)s->segment_bytes * SEGMENTS;
}

enum sl_status sl_lz_staging_init(struct sl_level_zero *z, uint32_t bytes) {
    const ze_host_mem_alloc_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC};
    struct sl_lz_staging *s = &z->staging;
    void *at = NULL;
    if (bytes < MIN_STAGING_BYTES)
        bytes = MIN_STAGING_BYTES;
    s->segment_bytes = bytes / SEGMENTS / PUSH_ALIGN * PUSH_ALIGN;
    SL_TRY(sl_lz_check(z,
                       z->ze->MemAllocHost(z->context, &desc, staging_bytes(s), DEVICE_ALIGN, &at),
                       "allocating staging memory"));
    sl_count(device_pinned_bytes, (int64_t)staging_bytes(s));
    s->host = at;
    return SL_OK;
}

void sl_lz_staging_release(struct sl_level_zero *z) {
    struct sl_lz_staging *s = &z->staging;
    if (!s->host)
        return;
    z->ze->MemFree(z->context, s->host);
    sl_count(device_pinned_bytes, -(int64_t)staging_bytes(s));
    s->host = NULL;
}

/* Closes the segment being filled and opens the next, waiting for the work that reads it. */
static enum sl_status next_segment(struct sl_level_zero *z) {
    struct sl_lz_staging *s = &z->staging;
    SL_TRY(sl_lz_mark(&z->base, SL_QUEUE_OPS, &s->passes[s->segment]));
    s->segment = (s->segment + 1) % SEGMENTS;
    s->used_bytes = 0;
    enum sl_status status = sl_lz_passed(&z->base, SL_QUEUE_OPS, s->passes[s->segment]);
    if (status != SL_AGAIN)
        return status;
    sl_count(device_stage_waits_total, 1);
    return sl_lz_await(&z->base, SL_QUEUE_OPS, s->passes[s->segment]);
}

/* Room for up to `bytes` in the staging buffer; *out_bytes is how much. */
static enum sl_status staging_room(struct sl_level_zero *z, size_t bytes, size_t least_bytes,
                                   char **out_at, size_t *out_bytes) {
    struct sl_lz_staging *s = &z->staging;
    if (s->segment_bytes - s->used_bytes < least_bytes)
        SL_TRY(next_segment(z));
    size_t room = s->segment_bytes - s->used_bytes;
    *out_bytes = bytes < room ? bytes : room;
    *out_at = s->host + (size_t)s->segment * s->segment_bytes + s->used_bytes;
    /* Segments are whole units, so this stays within. */
    s->used_bytes += (uint32_t)((*out_bytes + PUSH_ALIGN - 1) / PUSH_ALIGN * PUSH_ALIGN);
    return SL_OK;
}

enum sl_status sl_lz_upload(struct sl_device *d, struct sl_span dst, const void *src) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    char *at;
    for (size_t done = 0, n; done < dst.bytes; done += n) {
        SL_TRY(staging_room(z, dst.bytes - done, PUSH_ALIGN, &at, &n));
        memcpy(at, (const char *)src + done, n);
        SL_TRY(sl_lz_append_copy(z, SL_QUEUE_OPS, (char *)sl_span_addr(dst) + done, at, n));
    }
    return SL_OK;
}

enum sl_status sl_lz_download(struct sl_device *d, void *dst_host, struct sl_span src) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    sl_point point;
    char *at;
    for (size_t done = 0, n; done < src.bytes; done += n) {
        SL_TRY(staging_room(z, src.bytes - done, PUSH_ALIGN, &at, &n));
        SL_TRY(sl_lz_append_copy(z, SL_QUEUE_OPS, at, (char *)sl_span_addr(src) + done, n));
        SL_TRY(sl_lz_mark(d, SL_QUEUE_OPS, &point));
        SL_TRY(sl_lz_await(d, SL_QUEUE_OPS, point));
        memcpy((char *)dst_host + done, at, n);
    }
    return SL_OK;
}

enum sl_status sl_lz_push(struct sl_level_zero *z, const void *src, size_t bytes,
                          uint64_t *out_addr) {
    char *at;
    size_t n;
    if (bytes > z->staging.segment_bytes) {
        sl_error("level_zero:%u: %zu bytes of arguments; a segment of the staging buffer has %u",
                 z->number, bytes, z->staging.segment_bytes);
        return SL_ERR_INVALID;
    }
    SL_TRY(staging_room(z, bytes, bytes, &at, &n));
    memcpy(at, src, n);
    *out_addr = sl_addr_of(at);
    return SL_OK;
}

/* ---- how much there is ---- */

/* Its core interface does not say what other programs use: only what is allocated here is known. */
enum sl_status sl_lz_memory_left(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    const struct sl_level_zero *z = (const struct sl_level_zero *)d;
    uint64_t total = z->info.memory_bytes, used = d->own_bytes;
    *out_free = total > used ? total - used : 0;
    *out_total = total;
    return SL_OK;
}
