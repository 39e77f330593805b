/* Memory: each allocation stands alone, with nothing behind it, and is counted by kind. */
#include "tests/support/ze_driver/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE       4096u
#define LEAST_UNIT 64u

enum kind { DEVICE, HOST, IMPORTED };

static struct block {
    enum kind kind;
    uint32_t device;
    char *at, *map; /* map: of pages, the last of which nobody may touch; NULL: imported */
    size_t bytes, map_bytes;
    struct block *next;
} * blocks;

static uint64_t *counter(const struct block *b) {
    return b->kind == DEVICE ? &ze_counts.device_bytes[b->device]
           : b->kind == HOST ? &ze_counts.host_bytes
                             : &ze_counts.imported_bytes;
}

static void add(struct block *b) {
    b->next = blocks;
    blocks = b;
    *counter(b) += b->bytes;
    ze_counts.n_allocs++;
}

static ze_result_t allocate(enum kind kind, uint32_t device, size_t bytes, size_t align,
                            void **out) {
    struct block *b = calloc(1, sizeof *b);
    if (!b)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    align = align < LEAST_UNIT ? LEAST_UNIT : align;
    size_t whole = (bytes + align - 1) / align * align;
    *b = (struct block){.kind = kind, .device = device, .bytes = bytes};
    b->map_bytes = (whole + PAGE - 1) / PAGE * PAGE + PAGE;
    /* A device's is shared, so that /proc tells it from the process's own (RssShmem). */
    int sharing = kind == DEVICE ? MAP_SHARED : MAP_PRIVATE;
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) {
        free(b);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    mprotect(b->map + b->map_bytes - PAGE, PAGE, PROT_NONE);
    b->at = b->map + b->map_bytes - PAGE - whole;
    add(b);
    *out = b->at;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t alloc_device(ze_context_handle_t c, const ze_device_mem_alloc_desc_t *desc,
                                size_t bytes, size_t align, ze_device_handle_t h, void **out) {
    struct device *d = (struct device *)h;
    (void)c, (void)desc;
    ENTER(zeMemAllocDevice, d);
    if (!bytes || bytes > ze_number("ZE_TEST_MAX_ALLOC_MIB", 256) << 20)
        return ZE_RESULT_ERROR_UNSUPPORTED_SIZE;
    pthread_mutex_lock(&ze_lock);
    uint64_t all = ze_number("ZE_TEST_MEMORY_MIB", 1024) << 20;
    ze_result_t result = ze_counts.device_bytes[d->number] + bytes > all
                             ? ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
                             : allocate(DEVICE, d->number, bytes, align, out);
    pthread_mutex_unlock(&ze_lock);
    return result;
}

static ze_result_t alloc_host(ze_context_handle_t c, const ze_host_mem_alloc_desc_t *desc,
                              size_t bytes, size_t align, void **out) {
    (void)c, (void)desc;
    ENTER(zeMemAllocHost, NULL);
    pthread_mutex_lock(&ze_lock);
    ze_result_t result = allocate(HOST, 0, bytes, align, out);
    pthread_mutex_unlock(&ze_lock);
    return result;
}

static ze_result_t take(void *at, bool imported) {
    pthread_mutex_lock(&ze_lock);
    struct block **at_block = &blocks;
    while (*at_block && ((*at_block)->at != at || ((*at_block)->kind == IMPORTED) != imported))
        at_block = &(*at_block)->next;
    struct block *b = *at_block;
    if (b) {
        *at_block = b->next;
        *counter(b) -= b->bytes;
        if (b->map)
            munmap(b->map, b->map_bytes);
        free(b);
    }
    pthread_mutex_unlock(&ze_lock);
    return b ? ZE_RESULT_SUCCESS : ZE_RESULT_ERROR_INVALID_ARGUMENT;
}

static ze_result_t mem_free(ze_context_handle_t c, void *at) {
    (void)c;
    return take(at, false);
}

ze_result_t ze_import(ze_driver_handle_t driver, void *at, size_t bytes) {
    (void)driver;
    ENTER(zexDriverImportExternalPointer, NULL);
    struct block *b = calloc(1, sizeof *b);
    if (!b)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    *b = (struct block){.kind = IMPORTED, .at = at, .bytes = bytes};
    pthread_mutex_lock(&ze_lock);
    add(b);
    pthread_mutex_unlock(&ze_lock);
    return ZE_RESULT_SUCCESS;
}

ze_result_t ze_release(ze_driver_handle_t driver, void *at) {
    (void)driver;
    return take(at, true);
}

void ze_must_know(const void *at, size_t bytes, const char *what) {
    uintptr_t from = (uintptr_t)at;
    for (const struct block *b = blocks; b; b = b->next)
        if (from >= (uintptr_t)b->at && from + bytes <= (uintptr_t)b->at + b->bytes)
            return;
    fprintf(stderr, "ze_driver: %s: %zu bytes at %p are no memory of this driver's\n", what, bytes,
            at);
    abort();
}

void ze_memory_table(ze_mem_dditable_t *t) {
    t->pfnAllocDevice = alloc_device;
    t->pfnAllocHost = alloc_host;
    t->pfnFree = mem_free;
}
