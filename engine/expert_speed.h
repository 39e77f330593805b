/* How fast the disk gives a model's experts: measured for plan and bench. Any thread. */
#ifndef SL_ENGINE_EXPERT_SPEED_H
#define SL_ENGINE_EXPERT_SPEED_H

#include "engine/engine.h"
#include "streaming/disk_probe.h"

/* How fast experts of the model's files and mirrors come, read as config says; the largest matrices
 * are taken. Takes no more than most_bytes of memory: SL_ERR_NOMEM. SL_ERR_UNSUPPORTED: no routed
 * experts; else the errors of sl_disk_bandwidth. */
enum sl_status sl_store_disk_speed(const struct sl_model *model,
                                   const struct sl_engine_config *config, double seconds,
                                   uint64_t most_bytes, struct sl_disk_speed *out_speed,
                                   struct sl_err *err) SL_MUST_CHECK;

#endif
