/* A device that need not be here: it answers what planning asks, and nothing can be allocated on
 * it. What backends share for struct sl_backend.planned. */
#ifndef SL_BACKENDS_PLANNED_H
#define SL_BACKENDS_PLANNED_H

#include "backends/backend_entry.h"
#include "backends/backend_table.h"

/* A backend's ops, of which none needs a driver for what planning asks. close frees the device,
 * which must be the first member of what calloc gave; memory has what caps say. */
struct sl_backend_ops sl_planned_ops(const struct sl_backend_ops *ops);
/* The capabilities of a discrete GPU, but for those that the backend computes from others.
 * bytes_per_s: of its memory, where the offer does not say. */
void sl_planned_gpu(struct sl_device *d, const struct sl_device_offer *offer, uint32_t number,
                    uint64_t bytes_per_s);

#endif
