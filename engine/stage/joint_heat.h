/* The heat of all stages together, so that one heat file serves however the layers are divided.
 *
 * Every stage's heat is its thread's own. This is a copy of all, which stages take their beginning
 * from, and which is brought up to date by something that passes through them before it is written.
 * With one stage there is none: the store keeps the file itself. */
#ifndef SL_ENGINE_JOINT_HEAT_H
#define SL_ENGINE_JOINT_HEAT_H

#include "engine/stage/pipeline.h"
#include "model/arch/model.h"

struct sl_heat;
struct sl_joint_heat;

/* path as in heat_store.h. *out NULL with SL_OK: the model has no routed experts. */
enum sl_status sl_joint_heat_open(const char *path, const struct sl_model *model,
                                  struct sl_joint_heat **out_heat,
                                  struct sl_err *err) SL_MUST_CHECK;
void sl_joint_heat_close(struct sl_joint_heat **j);
/* What open allocates. */
size_t sl_joint_heat_bytes(const struct sl_hparams *hp);
const struct sl_heat *sl_joint_heat(const struct sl_joint_heat *j);

/* Gathers what the stages know, after what is under way, and has it written; unless now is set,
 * the caller goes on meanwhile. The scheduler's. */
void sl_joint_heat_save(struct sl_joint_heat *j, struct sl_pipeline *p, bool now);

#endif
