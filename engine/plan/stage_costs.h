/* What a model's layers need and what devices have, as input for dividing the layers over the
 * devices (stage_split.h). */
#ifndef SL_ENGINE_STAGE_COSTS_H
#define SL_ENGINE_STAGE_COSTS_H

#include "engine/plan/stage_plan.h"
#include "engine/plan/stage_split.h"

struct sl_stage_costs {
    struct sl_split_model model;
    struct sl_split_layer *layers;
    struct sl_split_heat *heat;
    struct sl_split_card cards[SL_MAX_STAGES];
};

/* plans: its devices, open; their budgets are in config->vram_each. Plans every layer alone: what
 * several take together is no more than the sum. */
enum sl_status sl_stage_costs_make(const struct sl_model *model,
                                   const struct sl_engine_config *config,
                                   const struct sl_stage_plans *plans,
                                   struct sl_stage_costs *out_costs,
                                   struct sl_err *err) SL_MUST_CHECK;
/* Takes routing statistics from heat_file into account: sets costs->model.heat if they distinguish
 * experts. Otherwise (no file, a file of another model, no memory) all experts count alike. False:
 * the disk did not answer within five seconds, which is logged; do not ask again. */
bool sl_stage_costs_add_heat(struct sl_stage_costs *costs, const struct sl_model *model,
                             const char *heat_file) SL_MUST_CHECK;
/* Call when the plans of a chosen split did not fit: raises the costs of the cards whose plans
 * exceed their budgets and, with several hosts, of devices that compute in the memory of a host
 * that has too little. False: there is no such card or device. */
bool sl_stage_costs_raise(struct sl_stage_costs *costs, const struct sl_stage_plans *plans);
/* Call when no split fits: lifts the bound on devices that compute in host memory, so that the plan
 * of a stage can say what is missing. False: none had a bound. */
bool sl_stage_costs_free_host(struct sl_stage_costs *costs, const struct sl_stage_plans *plans);
void sl_stage_costs_release(struct sl_stage_costs *costs);

#endif
