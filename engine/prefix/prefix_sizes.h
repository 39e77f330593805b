/* What the homes of prefixes outside the device take: for the memory plan, and for those who
 * allocate it (engine/schedule/prefix_ram.h, engine/schedule/prefix_disk.h). */
#ifndef SL_ENGINE_PREFIX_SIZES_H
#define SL_ENGINE_PREFIX_SIZES_H

#include "backends/backend.h"
#include "backends/ops/kv.h"
#include "common/siphash.h"
#include "engine/types/plan.h"

/* A page in the host's memory: what it holds. */
struct sl_prefix_kept {
    struct sl_hash128 parent;
    bool holds_tail; /* with its tail page, where there are such */
    uint32_t ids[SL_KV_PAGE_TOKENS];
};

/* Where a page's copy on disk stands. */
enum sl_prefix_copy_state { SL_COPY_NONE, SL_COPY_WANTED, SL_COPY_UNDER_WAY, SL_COPY_THERE };
struct sl_prefix_copy {
    enum sl_prefix_copy_state state;
    uint32_t next, prev; /* of those that are wanted, the first wanted first */
};

/* Each home's own struct, at most. */
#define SL_PREFIX_HOME_BYTES 256u

/* Slots that so much memory has room for, and what they take with their list; copy_bytes:
 * sl_plan_copy_bytes(). */
uint32_t sl_prefix_ram_slots(uint64_t bytes, uint64_t copy_bytes);
uint64_t sl_prefix_ram_bytes(uint32_t n_slots, uint64_t copy_bytes);
/* What a home on disk allocates at most. */
uint64_t sl_prefix_disk_memory_bytes(const struct sl_memory_plan *plan);

#endif
