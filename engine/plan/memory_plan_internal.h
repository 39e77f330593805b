/* Inside the memory plan: what memory_plan.c and memory_plan_slots.c share, memory_plan_sums.c's
 * first. */
#ifndef SL_ENGINE_MEMORY_PLAN_INTERNAL_H
#define SL_ENGINE_MEMORY_PLAN_INTERNAL_H

#include "engine/reads/expert_layout.h"
#include "engine/plan/memory_plan.h"

/* Memory registered with io_uring has 16 bytes a page more than a page table's 8: together 1/170,
 * counted as 1/128. */
#define SL_REGISTERED_SHARE 128u

/* Everything except slots and what they entail: of host memory, and of the device's own. */
uint64_t sl_plan_fixed_bytes(const struct sl_memory_plan *p);
uint64_t sl_plan_fixed_device_bytes(const struct sl_memory_plan *p);
/* The budget to name in an error when this much is needed: in whole MiB. */
uint64_t sl_plan_name_least(uint64_t bytes);
/* Whether weights, KV, activations and these experts fit the device's own memory; always true if it
 * has none. */
bool sl_plan_fits_device(const struct sl_memory_plan *p);

/* Refuses a budget that is too small only because of --cache-ram: names what the plans need with
 * its pages and without. */
enum sl_status sl_plan_refuse_cache(uint64_t cache_bytes, uint64_t budget_bytes,
                                    uint64_t least_bytes, uint64_t least_without_bytes,
                                    struct sl_err *err);

/* memory_plan_slots.c: refuses a plan that needs more pinned memory than is allowed. */
enum sl_status sl_plan_refuse_pinned(const struct sl_memory_plan *p, uint64_t least_bytes,
                                     struct sl_err *err);

/* memory_plan_slots.c: divides what the budgets leave among the size classes. SL_ERR_CONFIG: they
 * leave too little; the least budgets are set even then. */
enum sl_status sl_plan_slots(const struct sl_expert_layout *l, struct sl_memory_plan *p,
                             struct sl_err *err) SL_MUST_CHECK;

#endif
