#include "streaming/slab.h"

#include "common/log.h"
#include "common/populate.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t round_up(uint64_t n, uint64_t to) {
    return (n + to - 1) / to * to;
}

enum sl_status sl_slab_init(struct sl_slab *slab, size_t size_bytes, bool lock,
                            struct sl_err *err) {
    memset(slab, 0, sizeof *slab);
    if (size_bytes == 0 || size_bytes > SIZE_MAX / 2)
        return sl_fail(err, SL_ERR_INVALID, "a slab of %zu bytes makes no sense", size_bytes);
    size_bytes = round_up(size_bytes, SL_IO_BLOCK_BYTES);

    /* Address space for the alignment is never touched and costs nothing. Not MAP_NORESERVE: more
     * than the machine has must fail here, where it can be said, not be killed while touching. */
    size_t map_bytes = size_bytes + SL_HUGE_PAGE_BYTES;
    void *map = mmap(NULL, map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return sl_fail(err, SL_ERR_NOMEM, "cannot map %zu MiB for experts: %s; lower --ram",
                       size_bytes >> 20, strerror(errno));
    uint8_t *base = (uint8_t *)(uintptr_t)round_up((uintptr_t)map, SL_HUGE_PAGE_BYTES);
    bool huge = madvise(base, size_bytes, MADV_HUGEPAGE) == 0;
    if (!huge)
        sl_debug("slab: no huge pages: %s", strerror(errno));
    /* A forked child (a shell, a tool) must not pay for, or be handed, pages that a disk writes. */
    madvise(base, size_bytes, MADV_DONTFORK);
    int rc = sl_populate(base, size_bytes);
    if (rc != 0) {
        munmap(map, map_bytes);
        return sl_fail(err, SL_ERR_NOMEM,
                       "cannot get %zu MiB of memory for experts: %s; lower --ram",
                       size_bytes >> 20, strerror(rc));
    }
    bool locked = lock && mlock(base, size_bytes) == 0;
    if (lock && !locked)
        sl_debug("slab: not locked in memory: %s (see ulimit -l)", strerror(errno));
    *slab = (struct sl_slab){.base = base,
                             .size_bytes = size_bytes,
                             .huge_pages = huge,
                             .locked = locked,
                             .map = map,
                             .map_bytes = map_bytes};
    return SL_OK;
}

void sl_slab_release(struct sl_slab *slab) {
    if (slab->map)
        munmap(slab->map, slab->map_bytes);
    memset(slab, 0, sizeof *slab);
}

void *sl_slab_region(const struct sl_slab *slab, uint32_t region, size_t *out_size_bytes) {
    assert(region < sl_slab_n_regions(slab));
    size_t first = region * SL_REGION_BYTES;
    size_t left = slab->size_bytes - first;
    *out_size_bytes = left < SL_REGION_BYTES ? left : SL_REGION_BYTES;
    return slab->base + first;
}

enum sl_status sl_slot_layout_init(struct sl_slot_layout *layout, const uint32_t *size_bytes,
                                   uint32_t n, uint32_t align_bytes, struct sl_err *err) {
    if (n == 0 || n > SL_SLOT_EXTENTS)
        return sl_fail(err, SL_ERR_INVALID, "an expert of %u extents; 1 to %u are read as one", n,
                       SL_SLOT_EXTENTS);
    if (align_bytes == 0 || (align_bytes & (align_bytes - 1)) != 0)
        return sl_fail(err, SL_ERR_INVALID, "tensor alignment %u is not a power of two",
                       align_bytes);
    /* The extent that begins latest in its first block. */
    uint32_t latest = align_bytes < SL_IO_BLOCK_BYTES ? SL_IO_BLOCK_BYTES - align_bytes : 0;
    uint64_t at = 0;
    struct sl_slot_layout l = {.n_extents = n};
    for (uint32_t i = 0; i < n; i++) {
        if (size_bytes[i] == 0)
            return sl_fail(err, SL_ERR_INVALID, "extent %u of an expert is empty", i);
        l.place_bytes[i] = (uint32_t)at;
        at += round_up((uint64_t)latest + size_bytes[i], SL_IO_BLOCK_BYTES);
        if (at > UINT32_MAX)
            return sl_fail(err, SL_ERR_INVALID, "an expert of 4 GiB or more does not fit a slot");
    }
    l.slot_bytes = (uint32_t)at;
    *layout = l;
    return SL_OK;
}

size_t sl_slots_size_bytes(const uint32_t *slot_bytes, const uint32_t *n_slots, uint32_t n_class) {
    size_t sum = 0;
    for (uint32_t c = 0; c < n_class; c++) {
        size_t bytes;
        if (__builtin_mul_overflow((size_t)slot_bytes[c], (size_t)n_slots[c], &bytes) ||
            __builtin_add_overflow(sum, bytes, &sum))
            return 0;
    }
    return sum;
}

enum sl_status sl_slots_init(struct sl_slots *slots, const struct sl_slab *slab,
                             size_t offset_bytes, const uint32_t *slot_bytes,
                             const uint32_t *n_slots, uint32_t n_class, struct sl_err *err) {
    if (n_class == 0 || n_class > SL_SLAB_CLASSES)
        return sl_fail(err, SL_ERR_INVALID, "%u slot size classes; 1 to %u are possible", n_class,
                       SL_SLAB_CLASSES);
    size_t size_bytes = sl_slots_size_bytes(slot_bytes, n_slots, n_class);
    if (size_bytes == 0 || offset_bytes % SL_IO_BLOCK_BYTES != 0 ||
        offset_bytes > slab->size_bytes || size_bytes > slab->size_bytes - offset_bytes)
        return sl_fail(err, SL_ERR_INVALID, "slots of %zu bytes at %zu do not fit a slab of %zu",
                       size_bytes, offset_bytes, slab->size_bytes);
    struct sl_slots s = {.base = slab->base + offset_bytes, .n_class = n_class};
    for (uint32_t c = 0; c < n_class; c++) {
        if (slot_bytes[c] == 0 || slot_bytes[c] % SL_IO_BLOCK_BYTES != 0)
            return sl_fail(err, SL_ERR_INVALID, "slot size %u is not a multiple of %u",
                           slot_bytes[c], SL_IO_BLOCK_BYTES);
        if (n_slots[c] > UINT32_MAX - 1 - s.first_slot[c])
            return sl_fail(err, SL_ERR_INVALID, "too many slots");
        s.slot_bytes[c] = slot_bytes[c];
        s.first_slot[c + 1] = s.first_slot[c] + n_slots[c];
        s.first_bytes[c + 1] = s.first_bytes[c] + (size_t)slot_bytes[c] * n_slots[c];
    }
    *slots = s;
    return SL_OK;
}

uint8_t *sl_slots_at(const struct sl_slots *slots, uint32_t slot) {
    assert(slot < slots->first_slot[slots->n_class]);
    uint32_t c = 0;
    while (slot >= slots->first_slot[c + 1])
        c++;
    return slots->base + slots->first_bytes[c] +
           (size_t)(slot - slots->first_slot[c]) * slots->slot_bytes[c];
}
