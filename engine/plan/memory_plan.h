/* The memory plan: what an engine will hold, worked out before anything is loaded.
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
    bool relays;        /* others copy experts too, and their copies may stop over here */
    bool remote;        /* it is spoken to by messages from another machine */
    /* Of all stages some device has memory of its own, so that KV pages which it gives up go to the
     * memory of stage 0's host. */
    bool any_discrete;
    bool any_reads_back; /* of this host's, one is written to by copies alone, so that weights pass
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

/* The plan that sl_engine_create would carry out: with its device, and without ram_bytes or
 * vram_bytes with what is free now. out_device: the device's name, may be NULL. When the budget is
 * too small (SL_ERR_CONFIG) out_plan->least_bytes still says what would do; it is 0 for other
 * errors. */
enum sl_status sl_engine_plan(const struct sl_model *model, const struct sl_engine_config *config,
                              struct sl_memory_plan *out_plan, char out_device[64],
                              struct sl_err *err) SL_MUST_CHECK;

#endif
