#include "engine/experts/expert_slots.h"

#include <assert.h>

enum sl_status sl_slot_spans_init(struct sl_slot_spans *slots, const struct sl_device *dev,
                                  const uint32_t *slot_bytes, const uint32_t *n_slots,
                                  uint32_t n_class, struct sl_err *err) {
    *slots = (struct sl_slot_spans){.n_class = n_class};
    sl_buffer_pool_init(&slots->pool, dev, 0);
    for (uint32_t c = 0; c < n_class; c++) {
        enum sl_status status =
            sl_buffer_pool_add(&slots->pool, n_slots[c], slot_bytes[c], &slots->items[c]);
        if (status == SL_ERR_UNSUPPORTED)
            return sl_buffer_pool_refuse(dev, "one expert", slot_bytes[c],
                                         "use another device, or a file with smaller types", err);
        if (status != SL_OK)
            return sl_fail(err, status, "no memory for the table of slots");
        slots->first_slot[c + 1] = slots->first_slot[c] + n_slots[c];
    }
    return SL_OK;
}

struct sl_span sl_slot_span(const struct sl_slot_spans *slots, uint32_t slot) {
    assert(slot < slots->first_slot[slots->n_class]);
    uint32_t c = 0;
    while (slot >= slots->first_slot[c + 1])
        c++;
    return sl_buffer_pool_at(&slots->pool, &slots->items[c], slot - slots->first_slot[c]);
}
