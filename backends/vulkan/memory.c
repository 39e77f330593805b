/* Device memory, host memory that a device sees, and the way in and out. */
#include "backends/vulkan/vulkan_internal.h"
#include "common/log.h"
#include "common/metrics.h"

#include <stdlib.h>
#include <string.h>

#define SEGMENTS          SL_VK_STAGING_SEGMENTS
#define PUSH_ALIGN        256u
#define MIN_STAGING_BYTES (SEGMENTS * (256u << 10))

#define BUFFER_USAGE                                                                               \
    (VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |                         \
     VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT)

static void release(struct sl_vulkan *v, struct sl_vk_memory *m) {
    if (m->buffer)
        v->vk.DestroyBuffer(v->device, m->buffer, NULL);
    if (m->memory) /* this also ends its mapping */
        v->vk.FreeMemory(v->device, m->memory, NULL);
    memset(m, 0, sizeof *m);
}

static enum sl_status make_buffer(struct sl_vulkan *v, uint64_t bytes, const void *next,
                                  struct sl_vk_memory *m, VkMemoryRequirements *out_needs) {
    const uint32_t families[] = {v->info.family, v->info.copy_family};
    bool shared = families[0] != families[1];
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .pNext = next,
                                     .size = bytes,
                                     .usage = BUFFER_USAGE,
                                     .sharingMode = shared ? VK_SHARING_MODE_CONCURRENT
                                                           : VK_SHARING_MODE_EXCLUSIVE,
                                     .queueFamilyIndexCount = shared ? 2 : 0,
                                     .pQueueFamilyIndices = families};
    SL_TRY(sl_vk_check(v, v->vk.CreateBuffer(v->device, &info, NULL, &m->buffer),
                       "creating a buffer"));
    v->vk.GetBufferMemoryRequirements(v->device, m->buffer, out_needs);
    return SL_OK;
}

static enum sl_status bind(struct sl_vulkan *v, struct sl_vk_memory *m) {
    SL_TRY(sl_vk_check(v, v->vk.BindBufferMemory(v->device, m->buffer, m->memory, 0),
                       "binding memory"));
    const VkBufferDeviceAddressInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                            .buffer = m->buffer};
    m->addr = v->vk.GetBufferDeviceAddress(v->device, &info);
    return SL_OK;
}

static enum sl_status allocate(struct sl_vulkan *v, uint64_t bytes, bool staging,
                               struct sl_vk_memory *m) {
    uint32_t type = staging ? v->info.host_type : v->info.device_type;
    VkMemoryRequirements needs;
    SL_TRY(make_buffer(v, bytes, NULL, m, &needs));
    if (!(needs.memoryTypeBits >> type & 1)) {
        sl_error("vulkan:%u: the driver wants buffers in memory of another type than %u", v->number,
                 type);
        return SL_ERR_UNSUPPORTED;
    }
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = needs.size,
                                       .memoryTypeIndex = type};
    SL_TRY(sl_vk_check(v, v->vk.AllocateMemory(v->device, &info, NULL, &m->memory),
                       staging ? "allocating staging memory" : "allocating device memory"));
    m->bytes = needs.size;
    if (staging)
        SL_TRY(sl_vk_check(
            v, v->vk.MapMemory(v->device, m->memory, 0, VK_WHOLE_SIZE, 0, (void **)&m->host),
            "mapping staging memory"));
    return bind(v, m);
}

enum sl_status sl_vk_memory_alloc(struct sl_vulkan *v, uint64_t bytes, bool staging,
                                  struct sl_vk_memory *out_memory) {
    struct sl_vk_memory m = {0};
    if (v->lost)
        return SL_ERR_DEVICE_LOST;
    enum sl_status status = allocate(v, bytes ? bytes : 1, staging, &m);
    if (status) {
        release(v, &m);
        return status;
    }
    sl_debug("vulkan:%u: %llu bytes of %s memory (type %u, heap %u) at 0x%llx", v->number,
             (unsigned long long)m.bytes, staging ? "staging" : "device",
             staging ? v->info.host_type : v->info.device_type,
             staging ? v->info.host_heap : v->info.device_heap, (unsigned long long)m.addr);
    if (staging) {
        sl_count(device_pinned_bytes, (int64_t)m.bytes);
    } else {
        sl_count(device_memory_bytes, (int64_t)m.bytes);
        v->base.own_bytes += m.bytes;
    }
    sl_count(device_allocs_total, 1);
    *out_memory = m;
    return SL_OK;
}

void sl_vk_memory_free(struct sl_vulkan *v, struct sl_vk_memory *m) {
    if (!m->memory)
        return;
    if (m->host) {
        sl_count(device_pinned_bytes, -(int64_t)m->bytes);
    } else {
        sl_count(device_memory_bytes, -(int64_t)m->bytes);
        v->base.own_bytes -= m->bytes;
    }
    release(v, m);
}

enum sl_status sl_vk_buffer_alloc(struct sl_device *d, struct sl_buffer *buffer) {
    struct sl_vk_memory *m = calloc(1, sizeof *m);
    if (!m)
        return SL_ERR_NOMEM;
    enum sl_status status = sl_vk_memory_alloc((struct sl_vulkan *)d, buffer->bytes, false, m);
    if (status) {
        free(m);
        return status;
    }
    buffer->addr = (void *)(uintptr_t)m->addr;
    buffer->own = m;
    return SL_OK;
}

void sl_vk_buffer_free(struct sl_device *d, struct sl_buffer *buffer) {
    (void)!sl_vk_sync(d); /* a lost device has let go of it */
    sl_vk_memory_free((struct sl_vulkan *)d, buffer->own);
    free(buffer->own);
}

/* ---- host memory ---- */

static enum sl_status import(struct sl_vulkan *v, char *host, uint64_t bytes,
                             struct sl_vk_memory *m) {
    const VkExternalMemoryHandleTypeFlagBits kind =
        VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    VkMemoryHostPointerPropertiesEXT may = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    SL_TRY(sl_vk_check(v, v->vk.GetMemoryHostPointerPropertiesEXT(v->device, kind, host, &may),
                       "asking how to map host memory"));
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = (VkExternalMemoryHandleTypeFlags)kind};
    VkMemoryRequirements needs;
    SL_TRY(make_buffer(v, bytes, &external, m, &needs));
    uint32_t types = may.memoryTypeBits & needs.memoryTypeBits;
    /* The type of staging is the best one where it may be that. */
    uint32_t type = types >> v->info.host_type & 1 ? v->info.host_type
                                                   : (uint32_t)__builtin_ctz(types | 1u << 31);
    if (!types || needs.size > bytes) {
        sl_error("vulkan:%u: the driver does not map host memory for buffers", v->number);
        return SL_ERR_UNSUPPORTED;
    }
    const VkImportMemoryHostPointerInfoEXT imported = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = kind,
        .pHostPointer = host};
    const VkMemoryAllocateFlagsInfo flags = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                             .pNext = &imported,
                                             .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &flags,
                                       .allocationSize = bytes,
                                       .memoryTypeIndex = type};
    VkResult result = v->vk.AllocateMemory(v->device, &info, NULL, &m->memory);
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
        result == VK_ERROR_INVALID_EXTERNAL_HANDLE) {
        sl_error("vulkan:%u: the system does not lock another %llu MiB of memory for the GPU; see "
                 "ulimit -l, or give less",
                 v->number, (unsigned long long)(bytes >> 20));
        return SL_ERR_NOMEM;
    }
    SL_TRY(sl_vk_check(v, result, "mapping host memory"));
    m->bytes = bytes;
    return bind(v, m);
}

enum sl_status sl_vk_map_host(struct sl_device *d, struct sl_buffer *buffer) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    uint64_t align = v->info.import_align_bytes ? v->info.import_align_bytes : 1;
    if (v->lost)
        return SL_ERR_DEVICE_LOST;
    if ((uintptr_t)buffer->host % align || buffer->bytes % align) {
        sl_error("vulkan:%u: host memory is mapped in units of %llu bytes; %zu at %p are none",
                 v->number, (unsigned long long)align, buffer->bytes, buffer->host);
        return SL_ERR_UNSUPPORTED;
    }
    struct sl_vk_memory *m = calloc(1, sizeof *m);
    if (!m)
        return SL_ERR_NOMEM;
    enum sl_status status = import(v, buffer->host, buffer->bytes, m);
    if (status) {
        release(v, m);
        free(m);
        return status;
    }
    sl_debug("vulkan:%u: %zu bytes of host memory mapped", v->number, buffer->bytes);
    sl_count(device_mapped_bytes, (int64_t)buffer->bytes);
    buffer->addr = (void *)(uintptr_t)m->addr;
    buffer->own = m;
    return SL_OK;
}

void sl_vk_unmap_host(struct sl_device *d, struct sl_buffer *buffer) {
    sl_count(device_mapped_bytes, -(int64_t)buffer->bytes);
    (void)!sl_vk_sync(d);
    release((struct sl_vulkan *)d, buffer->own);
    free(buffer->own);
}

/* ---- staging ---- */

enum sl_status sl_vk_staging_init(struct sl_vulkan *v, uint32_t bytes) {
    struct sl_vk_staging *s = &v->staging;
    if (bytes < MIN_STAGING_BYTES)
        bytes = MIN_STAGING_BYTES;
    s->segment_bytes = bytes / SEGMENTS / PUSH_ALIGN * PUSH_ALIGN;
    return sl_vk_memory_alloc(v, (uint64_t)s->segment_bytes * SEGMENTS, true, &s->m);
}

/* Closes the segment being filled and opens the next, waiting for the work that reads it. */
static enum sl_status next_segment(struct sl_vulkan *v) {
    struct sl_vk_staging *s = &v->staging;
    SL_TRY(sl_vk_mark(&v->base, SL_QUEUE_OPS, &s->passes[s->segment]));
    s->segment = (s->segment + 1) % SEGMENTS;
    s->used_bytes = 0;
    enum sl_status status = sl_vk_passed(&v->base, SL_QUEUE_OPS, s->passes[s->segment]);
    if (status != SL_AGAIN)
        return status;
    sl_count(device_stage_waits_total, 1);
    return sl_vk_await(&v->base, SL_QUEUE_OPS, s->passes[s->segment]);
}

/* Room for up to `bytes` in the staging buffer; *out_bytes is how much. */
static enum sl_status staging_room(struct sl_vulkan *v, size_t bytes, size_t least_bytes,
                                   size_t *out_at, size_t *out_bytes) {
    struct sl_vk_staging *s = &v->staging;
    if (s->segment_bytes - s->used_bytes < least_bytes)
        SL_TRY(next_segment(v));
    size_t room = s->segment_bytes - s->used_bytes;
    *out_bytes = bytes < room ? bytes : room;
    *out_at = (size_t)s->segment * s->segment_bytes + s->used_bytes;
    /* Segments are whole units, so this stays within. */
    s->used_bytes += (uint32_t)((*out_bytes + PUSH_ALIGN - 1) / PUSH_ALIGN * PUSH_ALIGN);
    return SL_OK;
}

static enum sl_status copy_staged(struct sl_vulkan *v, struct sl_span span, size_t at, size_t n,
                                  size_t staged_at, bool up) {
    const struct sl_vk_memory *m = span.buffer->own;
    VkCommandBuffer commands;
    VkBufferCopy copy = {.srcOffset = staged_at, .dstOffset = span.offset + at, .size = n};
    if (!up)
        copy = (VkBufferCopy){.srcOffset = span.offset + at, .dstOffset = staged_at, .size = n};
    SL_TRY(sl_vk_commands(v, SL_QUEUE_OPS, false, &commands));
    v->vk.CmdCopyBuffer(commands, up ? v->staging.m.buffer : m->buffer,
                        up ? m->buffer : v->staging.m.buffer, 1, &copy);
    return SL_OK;
}

enum sl_status sl_vk_upload(struct sl_device *d, struct sl_span dst, const void *src) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    for (size_t done = 0, at, n; done < dst.bytes; done += n) {
        SL_TRY(staging_room(v, dst.bytes - done, PUSH_ALIGN, &at, &n));
        memcpy(v->staging.m.host + at, (const char *)src + done, n);
        SL_TRY(copy_staged(v, dst, done, n, at, true));
    }
    return SL_OK;
}

enum sl_status sl_vk_download(struct sl_device *d, void *dst_host, struct sl_span src) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    sl_point point;
    for (size_t done = 0, at, n; done < src.bytes; done += n) {
        SL_TRY(staging_room(v, src.bytes - done, PUSH_ALIGN, &at, &n));
        SL_TRY(copy_staged(v, src, done, n, at, false));
        SL_TRY(sl_vk_mark(d, SL_QUEUE_OPS, &point));
        SL_TRY(sl_vk_await(d, SL_QUEUE_OPS, point));
        memcpy((char *)dst_host + done, v->staging.m.host + at, n);
    }
    return SL_OK;
}

enum sl_status sl_vk_push(struct sl_vulkan *v, const void *src, size_t bytes, uint64_t *out_addr) {
    size_t at, n;
    if (bytes > v->staging.segment_bytes) {
        sl_error("vulkan:%u: %zu bytes of arguments; a segment of the staging buffer has %u",
                 v->number, bytes, v->staging.segment_bytes);
        return SL_ERR_INVALID;
    }
    SL_TRY(staging_room(v, bytes, bytes, &at, &n));
    memcpy(v->staging.m.host + at, src, n);
    *out_addr = v->staging.m.addr + at;
    return SL_OK;
}

/* ---- how much there is ---- */

enum sl_status sl_vk_memory_left(struct sl_device *d, uint64_t *out_free, uint64_t *out_total) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2,
        .pNext = v->info.has_budget ? &budget : NULL};
    v->instance.GetPhysicalDeviceMemoryProperties2(v->info.handle, &memory);
    uint32_t heap = v->info.device_heap;
    uint64_t total = memory.memoryProperties.memoryHeaps[heap].size, may = total;
    uint64_t used = d->own_bytes;
    if (v->info.has_budget) { /* the budget counts what other programs use, the usage does not */
        may = budget.heapBudget[heap];
        used = budget.heapUsage[heap];
    }
    *out_free = may > used ? may - used : 0;
    *out_total = total;
    return SL_OK;
}
