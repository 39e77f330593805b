/* What a model's layers take and read, and what devices have, for dividing the one over the other
 * (stage_split.h). */
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
/* Has what heat_file knows of the model's routing counted from here on: costs->model.heat is set
 * where it tells experts apart. Without (none is there, it is of another model, no memory) all
 * count alike. False: the disk does not answer, after five seconds and a warning; ask no more. */
bool sl_stage_costs_add_heat(struct sl_stage_costs *costs, const struct sl_model *model,
                             const char *heat_file) SL_MUST_CHECK;
/* After plans of a split that was chosen did not fit after all: counts more for the cards whose
 * plans need more than their budgets; of several hosts, also for those that compute in the memory
 * of a host that has too little. False: there is none. */
bool sl_stage_costs_raise(struct sl_stage_costs *costs, const struct sl_stage_plans *plans);
/* Where no split fits: lets devices that compute in the host's memory take more than there is of
 * it, so that the plan of a stage says what is missing. False: none was bounded. */
bool sl_stage_costs_free_host(struct sl_stage_costs *costs, const struct sl_stage_plans *plans);
void sl_stage_costs_release(struct sl_stage_costs *costs);

#endif
