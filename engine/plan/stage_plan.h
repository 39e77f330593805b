/* The model cut into stages: runs of whole layers, with a device and a memory plan for each.
 *
 * Every stage has a slice of the model, which the whole engine treats as a model. What the stages
 * share is the same in every plan: config.parallel, ctx_tokens, batch_tokens, session_pages and
 * n_pages, so that a page's number means the same text on every device. What the process holds once
 * (the caller's bytes, sessions, the sampler, the prefix tree) is in the first stage's plan. */
#ifndef SL_ENGINE_STAGE_PLAN_H
#define SL_ENGINE_STAGE_PLAN_H

#include "engine/plan/memory_plan.h"

/* Opens the devices that the configuration names, divides the layers over them and plans for each;
 * budgets not given become what is free now. model is borrowed until release. Bad settings:
 * SL_ERR_CONFIG. A plan that does not fit: SL_ERR_CONFIG with out_plans->whole's least budgets set
 * (0 for other errors), and nothing is left open. */
enum sl_status sl_stage_plans_open(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   struct sl_stage_plans *out_plans,
                                   struct sl_err *err) SL_MUST_CHECK;
/* Closes the devices that are still open; zeroed plans are allowed. */
void sl_stage_plans_release(struct sl_stage_plans *plans);

/* The devices as shown to users: one device's name, or "2 x NVIDIA H200, sm_90". */
void sl_stage_plans_device(const struct sl_memory_plan *whole, char out_name[64]);

#endif
