/* Which device computes, and the plan for it. */
#ifndef SL_ENGINE_OPEN_DEVICE_H
#define SL_ENGINE_OPEN_DEVICE_H

#include "engine/memory_plan.h"

/* Opens the device that the configuration names and plans for it; budgets that it leaves open
 * become what is free now. SL_ERR_UNSUPPORTED: there is no such device, and why. On a plan that
 * does not fit (SL_ERR_CONFIG) out_plan's least budgets are set and no device is left open. */
enum sl_status sl_engine_open_device(const struct sl_model *model,
                                     const struct sl_engine_config *config,
                                     struct sl_device **out_device, struct sl_memory_plan *out_plan,
                                     struct sl_err *err) SL_MUST_CHECK;

#endif
