/* Inside the memory plan: what memory_plan.c and memory_plan_slots.c share. */
#ifndef SL_ENGINE_MEMORY_PLAN_INTERNAL_H
#define SL_ENGINE_MEMORY_PLAN_INTERNAL_H

#include "engine/experts/expert_layout.h"
#include "engine/plan/memory_plan.h"

/* Memory registered with io_uring has 16 bytes a page more than a page table's 8: together 1/170,
 * counted as 1/128. */
#define SL_REGISTERED_SHARE 128u

/* All but slots and what comes with them: of the host, and of the device's own memory. */
uint64_t sl_plan_fixed_bytes(const struct sl_memory_plan *p);
uint64_t sl_plan_fixed_device_bytes(const struct sl_memory_plan *p);
/* The budget to name when this much is needed: whole MiB. */
uint64_t sl_plan_name_least(uint64_t bytes);
/* Whether weights, KV and activations with these experts fit the device's own memory; always, where
 * it has none. */
bool sl_plan_fits_device(const struct sl_memory_plan *p);

/* The budget would do, but for the pages that --cache-ram asks for: what the plans need with them
 * and without. */
enum sl_status sl_plan_refuse_cache(uint64_t cache_bytes, uint64_t budget_bytes,
                                    uint64_t least_bytes, uint64_t least_without_bytes,
                                    struct sl_err *err);

/* memory_plan_slots.c: so much would have to be pinned, and may not be. */
enum sl_status sl_plan_refuse_pinned(const struct sl_memory_plan *p, uint64_t least_bytes,
                                     struct sl_err *err);

/* memory_plan_slots.c: divides what the budgets leave over the size classes. SL_ERR_CONFIG when
 * they leave too little; the least budgets are set before that. */
enum sl_status sl_plan_slots(const struct sl_expert_layout *l, struct sl_memory_plan *p,
                             struct sl_err *err) SL_MUST_CHECK;

#endif
