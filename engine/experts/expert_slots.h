/* Where the slots of experts are in terms of a device's buffers: in its own memory, or in mapped
 * host memory. A slot lies in one buffer; all slots may take several. Part of the tier
 * (expert_tiers_internal.h). */
#ifndef SL_ENGINE_EXPERT_SLOTS_H
#define SL_ENGINE_EXPERT_SLOTS_H

#include "backends/buffer_pool.h"
#include "streaming/slab.h"

struct sl_slot_spans {
    struct sl_buffer_pool pool; /* more may be added to it before it gets memory */
    struct sl_buffer_items items[SL_SLAB_CLASSES];
    uint32_t n_class;
    uint32_t first_slot[SL_SLAB_CLASSES + 1]; /* as struct sl_slots numbers them */
};

/* Lays out n_slots [n_class] slots of slot_bytes, without memory: sl_buffer_pool_alloc, or
 * sl_buffer_pool_map. The pool is the caller's to release, also after a failure. */
enum sl_status sl_slot_spans_init(struct sl_slot_spans *slots, const struct sl_device *dev,
                                  const uint32_t *slot_bytes, const uint32_t *n_slots,
                                  uint32_t n_class, struct sl_err *err) SL_MUST_CHECK;

/* A slot that does not exist is a bug and asserts. */
struct sl_span sl_slot_span(const struct sl_slot_spans *slots, uint32_t slot);

#endif
