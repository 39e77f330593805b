/* Memory that the disk reads into: one slab, cut three ways that know nothing of each other.
 *
 * - The slab is memory: mapped once, aligned to huge pages and advised to use them, touched (so
 * that it is there before the first read) and, where the limit allows, locked.
 * - Regions are what io_uring and a GPU's driver register: pieces of at most 1 GiB (2 GiB in one
 *   registration fails with EFAULT).
 * - Slots are what the expert cache counts: equal places of one size class after the other.
 *
 * Over-read: O_DIRECT reads whole blocks of 4 KiB of the file. So that they land where they are
 * used with no copy, an extent has a place in the slot that begins at a multiple of 4 KiB, and its
 * payload begins at place + (file offset mod 4096). The bytes around it belong to its neighbours in
 * the file.
 *
 * Threads: init and release by one; the rest is read-only. */
#ifndef SL_STREAMING_SLAB_H
#define SL_STREAMING_SLAB_H

#include "common/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_IO_BLOCK_BYTES                                                                          \
    4096u /* alignment of file offsets, lengths and memory in O_DIRECT reads */
#define SL_REGION_BYTES       ((size_t)1 << 30)
#define SL_HUGE_PAGE_BYTES    ((size_t)2 << 20)
#define SL_SLOT_EXTENTS       8u  /* extents of one expert at most */
#define SL_SLAB_CLASSES       32u /* size classes at most */
#define SL_EXTENT_ALIGN_BYTES 32u /* GGUF's smallest alignment of tensor data */

struct sl_slab {
    uint8_t *base;     /* aligned to SL_HUGE_PAGE_BYTES; NULL: none */
    size_t size_bytes; /* whole 4 KiB pages */
    bool huge_pages;   /* the kernel took the advice */
    bool locked;
    void *map; /* what was mapped, a little more than the slab */
    size_t map_bytes;
};

/* Maps size_bytes (rounded up to whole pages) and touches all of it. lock: also mlock; when the
 * limit forbids it the slab is used unlocked, with one line at debug level.
 * SL_ERR_NOMEM says how much was asked for. */
enum sl_status sl_slab_init(struct sl_slab *slab, size_t size_bytes, bool lock,
                            struct sl_err *err) SL_MUST_CHECK;
/* Nothing may still be reading into it. */
void sl_slab_release(struct sl_slab *slab);

/* Regions: all of SL_REGION_BYTES but the last. */
static inline uint32_t sl_slab_n_regions(const struct sl_slab *slab) {
    return (uint32_t)((slab->size_bytes + SL_REGION_BYTES - 1) / SL_REGION_BYTES);
}
void *sl_slab_region(const struct sl_slab *slab, uint32_t region, size_t *out_size_bytes);

/* Where one expert's extents go in a slot of its size class. */
struct sl_slot_layout {
    uint32_t n_extents;
    uint32_t place_bytes[SL_SLOT_EXTENTS]; /* begin of each place in the slot, whole 4 KiB pages */
    uint32_t slot_bytes;                   /* whole 4 KiB pages */
};

/* Places for extents of these sizes [n], wherever in a file they begin (at a multiple of
 * align_bytes, a power of two; SL_EXTENT_ALIGN_BYTES suits any GGUF, 4096 saves the over-read).
 * SL_ERR_INVALID: no extents or too many, an empty one, or a slot of 4 GiB. */
enum sl_status sl_slot_layout_init(struct sl_slot_layout *layout, const uint32_t *size_bytes,
                                   uint32_t n, uint32_t align_bytes,
                                   struct sl_err *err) SL_MUST_CHECK;

/* Where an extent's payload begins in its slot, given where it begins in the file. */
static inline size_t sl_slot_payload_bytes(const struct sl_slot_layout *layout, uint32_t extent,
                                           uint64_t file_offset_bytes) {
    return layout->place_bytes[extent] + (size_t)(file_offset_bytes % SL_IO_BLOCK_BYTES);
}

/* Slots of size classes, one class after the other, numbered through all of them. */
struct sl_slots {
    uint8_t *base; /* first byte of slot 0 */
    uint32_t n_class;
    uint32_t slot_bytes[SL_SLAB_CLASSES];
    uint32_t first_slot[SL_SLAB_CLASSES + 1]; /* of each class; then the number of all slots */
    size_t first_bytes[SL_SLAB_CLASSES + 1];  /* from base; then the bytes of all slots */
};

/* Bytes of these slots [n_class] in a slab; what sl_slots_init takes. 0: they overflow. */
size_t sl_slots_size_bytes(const uint32_t *slot_bytes, const uint32_t *n_slots, uint32_t n_class);

/* Lays the slots out from offset_bytes (whole 4 KiB pages) of the slab on.
 * SL_ERR_INVALID: sizes that are not whole pages, too many classes, or more than the slab holds. */
enum sl_status sl_slots_init(struct sl_slots *slots, const struct sl_slab *slab,
                             size_t offset_bytes, const uint32_t *slot_bytes,
                             const uint32_t *n_slots, uint32_t n_class,
                             struct sl_err *err) SL_MUST_CHECK;

/* The slot's first byte. A slot that is not there is our own mistake and asserts. */
uint8_t *sl_slots_at(const struct sl_slots *slots, uint32_t slot);

#endif
