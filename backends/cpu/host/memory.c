#include "backends/cpu/host/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)

static size_t huge_round(size_t bytes) {
    return (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

enum sl_status sl_cpu_alloc(size_t bytes, void **out_addr) {
    if (bytes < HUGE_BYTES) {
        void *p = aligned_alloc(64, bytes < 64 ? 64 : (bytes + 63) / 64 * 64);
        if (!p)
            return SL_ERR_NOMEM;
        *out_addr = p;
        return SL_OK;
    }
    if (bytes > SIZE_MAX / 2)
        return SL_ERR_NOMEM;
    size_t size = huge_round(bytes), mapped = size + HUGE_BYTES;
    char *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return SL_ERR_NOMEM;
    size_t head = (HUGE_BYTES - (uintptr_t)base % HUGE_BYTES) % HUGE_BYTES;
    if (head)
        munmap(base, head);
    if (mapped - head > size)
        munmap(base + head + size, mapped - head - size);
    base += head;
    madvise(base, size, MADV_HUGEPAGE); /* a kernel without it serves small pages */
    *out_addr = base;
    return SL_OK;
}

void sl_cpu_free(void *addr, size_t bytes) {
    if (bytes < HUGE_BYTES)
        free(addr);
    else
        munmap(addr, huge_round(bytes));
}
