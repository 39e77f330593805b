#include "engine/prefix/prefix_sizes.h"

#include "engine/prefix/block_index.h"
#include "engine/prefix/block_store.h"

uint32_t sl_prefix_ram_slots(uint64_t bytes, uint64_t copy_bytes) {
    uint64_t slot = copy_bytes + sizeof(struct sl_prefix_kept) + 2 * sl_block_index_bytes(64) / 64;
    uint64_t n = bytes / slot;
    return n < SL_NO_BLOCK - 1 ? (uint32_t)n : SL_NO_BLOCK - 1;
}

uint64_t sl_prefix_ram_bytes(uint32_t n_slots, uint64_t copy_bytes) {
    return n_slots ? SL_PREFIX_HOME_BYTES + sl_block_index_bytes(n_slots) +
                         n_slots * (sizeof(struct sl_prefix_kept) + copy_bytes)
                   : 0;
}

uint64_t sl_prefix_disk_memory_bytes(const struct sl_memory_plan *p) {
    return SL_PREFIX_HOME_BYTES + (uint64_t)p->n_pages * sizeof(struct sl_prefix_copy) +
           sl_block_store_bytes(p->config.cache_disk_bytes, sl_plan_copy_bytes(p));
}
