#include "tests/support/fake_cuda/internal.h"
#include "tests/support/quiet_fill.h"

#include <stdlib.h>
#include <string.h>

struct memory *fake_memories;
static uint32_t n_memories; /* that there have been */

/* Can the current context's kernels and copies get at it? */
static bool within_reach(const struct memory *m) {
    return m->kind != DEVICE || m->ctx == fake_current ||
           fake_current->reads[m->ctx - fake_contexts];
}

char *fake_device_range(uint64_t addr, size_t bytes) {
    for (struct memory *m = fake_memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + ADDRESS_BIAS;
        if (within_reach(m) && addr >= base && addr - base <= m->bytes &&
            bytes <= m->bytes - (addr - base))
            return m->host + (addr - base);
    }
    return NULL;
}

char *fake_any_range(uint64_t addr, size_t bytes) {
    for (struct memory *m = fake_memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + (m->kind == DEVICE ? ADDRESS_BIAS : 0);
        if (within_reach(m) && addr >= base && addr - base <= m->bytes &&
            bytes <= m->bytes - (addr - base))
            return m->host + (addr - base);
    }
    return NULL;
}

/* Is it the memory of a device that is not the current one? */
static bool is_anothers(uint64_t addr) {
    for (const struct memory *m = fake_memories; m; m = m->next) {
        uint64_t base = (uint64_t)(uintptr_t)m->host + ADDRESS_BIAS;
        if (m->kind == DEVICE && m->ctx != fake_current && addr >= base && addr - base < m->bytes)
            return true;
    }
    return false;
}

void fake_forget_memory(void) {
    while (fake_memories) {
        struct memory *m = fake_memories;
        fake_memories = m->next;
        if (m->kind != MAPPED)
            fake_put_back(m->host, m->bytes);
        free(m);
    }
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    ENTER_CONTEXT("cuMemGetInfo_v2");
    *total_bytes = fake.memory_bytes[fake_current - fake_contexts];
    *free_bytes = *total_bytes - (size_t)fake_current->live_bytes;
    return 0;
}

static int64_t *live(enum kind kind) {
    return kind == DEVICE   ? &fake.live_device_bytes
           : kind == PINNED ? &fake.live_pinned_bytes
                            : &fake.live_mapped_bytes;
}

static void *add(void *host, size_t bytes, enum kind kind) {
    struct memory *m = calloc(1, sizeof *m);
    if (!m)
        abort();
    *m = (struct memory){host, fake_current, bytes, kind, n_memories++, fake_memories};
    if (kind == DEVICE)
        fake_current->live_bytes += (int64_t)bytes;
    fake_memories = m;
    *live(kind) += (int64_t)bytes;
    return host;
}

static void *allocate(size_t bytes, enum kind kind) {
    void *host = fake_get(bytes);
    if (!host)
        abort();
    quiet_fill(host, fake.zeroed ? 0 : 0xee, bytes);
    return add(host, bytes, kind);
}

static int release(const void *host, enum kind kind) {
    for (struct memory **at = &fake_memories; *at; at = &(*at)->next) {
        struct memory *m = *at;
        if (m->host != host || m->kind != kind)
            continue;
        *live(kind) -= (int64_t)m->bytes;
        if (kind == DEVICE)
            m->ctx->live_bytes -= (int64_t)m->bytes;
        *at = m->next;
        if (kind != MAPPED)
            fake_put_back(m->host, m->bytes);
        free(m);
        return 0;
    }
    return fake_wrong();
}

int cuMemAlloc_v2(uint64_t *addr, size_t bytes);
int cuMemAlloc_v2(uint64_t *addr, size_t bytes) {
    ENTER_CONTEXT("cuMemAlloc_v2");
    if (!bytes)
        return SL_CU_INVALID_VALUE;
    if (bytes > fake.memory_bytes[fake_current - fake_contexts] - (size_t)fake_current->live_bytes)
        return SL_CU_OUT_OF_MEMORY;
    *addr = (uint64_t)(uintptr_t)allocate(bytes, DEVICE) + ADDRESS_BIAS;
    return 0;
}

int cuMemFree_v2(uint64_t addr);
int cuMemFree_v2(uint64_t addr) {
    ENTER_CONTEXT("cuMemFree_v2");
    int result = fake_wait_for_all(); /* as the real one, it waits */
    return result ? result : release((void *)(uintptr_t)(addr - ADDRESS_BIAS), DEVICE);
}

int cuMemHostAlloc(void **addr, size_t bytes, unsigned flags);
int cuMemHostAlloc(void **addr, size_t bytes, unsigned flags) {
    ENTER_CONTEXT("cuMemHostAlloc");
    if (!(flags & SL_CU_HOST_ALLOC_MAPPED) || flags > 3)
        return fake_wrong();
    *addr = allocate(bytes, PINNED);
    return 0;
}

int cuMemFreeHost(void *addr);
int cuMemFreeHost(void *addr) {
    ENTER_CONTEXT("cuMemFreeHost");
    const struct memory *m = fake_memories;
    while (m && m->host != addr)
        m = m->next;
    for (const struct CUstream_st *s = fake_streams; s && m; s = s->next)
        for (const struct operation *o = s->queue.first; o && !s->ctx->stuck; o = o->next)
            if (o->kind == UNTIL && (const char *)o->src - m->host >= 0 &&
                (size_t)((const char *)o->src - m->host) < m->bytes)
                return fake_wrong(); /* a word that a stream still waits for */
    return release(addr, PINNED);
}

int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyHtoDAsync_v2", stream);
    char *to = fake_device_range(dst, bytes);
    if (!to || !fake_any_range((uint64_t)(uintptr_t)src, bytes) || !stream)
        return fake_wrong(); /* the backend gives pinned memory alone */
    fake.n_to_device++;
    return fake_enqueue(stream,
                        (struct operation){.kind = COPY, .dst = to, .src = src, .bytes = bytes});
}

int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyDtoHAsync_v2", stream);
    const char *from = fake_device_range(src, bytes);
    if (!from || !fake_any_range((uint64_t)(uintptr_t)dst, bytes) || !stream)
        return fake_wrong();
    return fake_enqueue(stream,
                        (struct operation){.kind = COPY, .dst = dst, .src = from, .bytes = bytes});
}

int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyAsync", stream);
    char *to = fake_any_range(dst, bytes), *from = fake_any_range(src, bytes);
    if (!to || !from || !stream)
        return fake_wrong();
    return fake_enqueue(
        stream,
        (struct operation){
            .kind = COPY, .dst = to, .src = from, .bytes = bytes, .to_other = is_anothers(dst)});
}

int cuMemcpyPeerAsync(uint64_t dst, struct CUctx_st *dst_ctx, uint64_t src,
                      struct CUctx_st *src_ctx, size_t bytes, struct CUstream_st *stream);
int cuMemcpyPeerAsync(uint64_t dst, struct CUctx_st *dst_ctx, uint64_t src,
                      struct CUctx_st *src_ctx, size_t bytes, struct CUstream_st *stream) {
    ENTER_STREAM("cuMemcpyPeerAsync", stream);
    struct CUctx_st *caller = fake_current;
    char *to, *from;
    fake_current = dst_ctx; /* with or without access: without, it goes through the host */
    to = fake_any_range(dst, bytes);
    fake_current = src_ctx;
    from = fake_any_range(src, bytes);
    fake_current = caller;
    if (!to || !from || dst_ctx == src_ctx || stream->capture)
        return fake_wrong();
    fake.n_peer_copies++;
    return fake_enqueue(stream,
                        (struct operation){.kind = COPY, .dst = to, .src = from, .bytes = bytes});
}

int cuMemHostRegister_v2(void *addr, size_t bytes, unsigned flags);
int cuMemHostRegister_v2(void *addr, size_t bytes, unsigned flags) {
    ENTER_CONTEXT("cuMemHostRegister_v2");
    if (!addr || (uintptr_t)addr % 4096 || bytes % 4096 || bytes > (size_t)1 << 30 ||
        !(flags & SL_CU_HOST_REGISTER_MAPPED))
        return fake_wrong();
    if (fake_any_range((uint64_t)(uintptr_t)addr, 1))
        return SL_CU_HOST_MEMORY_ALREADY_REGISTERED;
    add(addr, bytes, MAPPED);
    fake.n_mapped++;
    return 0;
}

int cuMemHostUnregister(void *addr);
int cuMemHostUnregister(void *addr) {
    ENTER_CONTEXT("cuMemHostUnregister");
    return release(addr, MAPPED);
}

int cuMemHostGetDevicePointer_v2(uint64_t *device_addr, void *addr, unsigned flags);
int cuMemHostGetDevicePointer_v2(uint64_t *device_addr, void *addr, unsigned flags) {
    ENTER_CONTEXT("cuMemHostGetDevicePointer_v2");
    if (flags || !fake_any_range((uint64_t)(uintptr_t)addr, 1))
        return fake_wrong();
    *device_addr = (uint64_t)(uintptr_t)addr + ADDRESS_BIAS;
    return 0;
}
