/* The memory plan: what an engine will hold, computed before anything is loaded.
 *
 * A pure function of the model, the configuration and the device's own scratch formula. It counts
 * everything that can become resident: what create allocates, what requests may take later, the
 * stacks, the allocator's gaps, what the kernel keeps for the process, and what the caller says. */
#ifndef SL_ENGINE_MEMORY_PLAN_H
#define SL_ENGINE_MEMORY_PLAN_H

#include "backends/backend.h"
#include "engine/types/plan.h"

/* dev may be NULL: the scratch is then counted as 0, the memory as the host's. Bad settings:
 * SL_ERR_CONFIG naming the setting; a KV type that the head size does not allow: SL_ERR_CONFIG; a
 * budget that is too small: SL_ERR_CONFIG naming the least, and out_plan->least_bytes and
 * vram_least_bytes are set, nothing else of it. */
enum sl_status sl_memory_plan_make(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   const struct sl_device *dev, struct sl_memory_plan *out_plan,
                                   struct sl_err *err) SL_MUST_CHECK;

/* Which of the stages of which model a plan is for. */
struct sl_plan_place {
    const struct sl_model *whole;
    uint32_t stage, n_stages;
    uint32_t host;
    bool first_on_host; /* none before it is on this host */
    bool relays;        /* its device may relay other stages' copies of experts */
    bool remote;        /* another machine speaks to it by messages */
    /* Some stage's device is discrete: KV pages evicted from it go to the memory of stage 0's host.
     */
    bool any_discrete;
    bool any_reads_back; /* some device of this host is written by copies alone, so weights pass
                            through buffers */
};
/* The same for a slice of place->whole: with what the process has once in stage 0's plan only (and
 * what any process has in that of each host's first stage), and pages in the host's memory counted
 * with all of the model's layers. config->cache_ram_bytes must not be SL_CACHE_RAM_AUTO where there
 * are several stages. */
enum sl_status
sl_memory_plan_make_stage(const struct sl_model *slice, const struct sl_plan_place *place,
                          const struct sl_engine_config *config, const struct sl_device *dev,
                          struct sl_memory_plan *out_plan, struct sl_err *err) SL_MUST_CHECK;

/* The plan that sl_engine_create would use: it opens the device, and takes what is free now where
 * ram_bytes or vram_bytes is 0. out_device: the device's name, may be NULL. If the budget is too
 * small (SL_ERR_CONFIG), out_plan->least_bytes is the least sufficient one; it is 0 for other
 * errors. */
enum sl_status sl_engine_plan(const struct sl_model *model, const struct sl_engine_config *config,
                              struct sl_memory_plan *out_plan, char out_device[64],
                              struct sl_err *err) SL_MUST_CHECK;

#endif
