/* What plan asks of a model's files where no engine runs: how fast they give experts. Any thread.
 */
#ifndef SL_ENGINE_EXPERT_SPEED_H
#define SL_ENGINE_EXPERT_SPEED_H

#include "engine/types/config.h"
#include "model/arch/model.h"
#include "streaming/disk_probe.h"

/* How fast experts of the model's files and mirrors come, read as config says; the largest matrices
 * are taken, and memory as sl_disk_bandwidth() says. An engine that runs measures with its own
 * reader and slots: sl_engine_disk_speed(). SL_ERR_UNSUPPORTED: no routed experts; else the errors
 * of sl_disk_bandwidth(). */
enum sl_status sl_store_disk_speed(const struct sl_model *model,
                                   const struct sl_engine_config *config, double seconds,
                                   struct sl_disk_speed *out_speed,
                                   struct sl_err *err) SL_MUST_CHECK;

#endif
