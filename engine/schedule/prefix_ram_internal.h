/* The pages that are kept in the host's memory: prefix_ram.c writes them, prefix_ram_load.c has
 * sessions take them. */
#ifndef SL_ENGINE_PREFIX_RAM_INTERNAL_H
#define SL_ENGINE_PREFIX_RAM_INTERNAL_H

#include "engine/schedule/schedule.h"
#include "engine/prefix/block_index.h"
#include "engine/prefix/prefix_sizes.h"
#include "engine/schedule/prefix_ram.h"

struct sl_prefix_ram {
    struct sl_engine *e;
    struct sl_block_index index;
    struct sl_prefix_kept *kept; /* [n_slots]; entry i of the index is slot i */
    uint8_t *data;               /* [n_slots, page_bytes] */
    uint64_t page_bytes;
};
_Static_assert(sizeof(struct sl_prefix_ram) <= SL_PREFIX_HOME_BYTES, "the plan counts less");

#endif
