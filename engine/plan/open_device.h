/* Which devices compute, and what of their memory and the host's there is for them. */
#ifndef SL_ENGINE_OPEN_DEVICE_H
#define SL_ENGINE_OPEN_DEVICE_H

#include "backends/backend.h"
#include "engine/types/config.h"
#include "model/arch/model.h"

/* What config->device names; "auto" is one device, opened as the CPU. */
struct sl_device_names {
    uint32_t n; /* 1 .. SL_MAX_STAGES */
    bool gpu;   /* GPUs, the ordinal-th of the driver each; the same one may come twice */
    uint32_t ordinal[SL_MAX_STAGES];
};

/* n_split: how many numbers config->split has, 0 = it has none; "cuda" is then so many GPUs.
 * SL_ERR_CONFIG: no such name, more devices than layers, or counts that differ, and what would be
 * right. SL_ERR_UNSUPPORTED: "cuda:all" where there is none. Opens nothing. */
enum sl_status sl_device_names(const struct sl_engine_config *config, uint32_t n_layer,
                               uint32_t n_split, struct sl_device_names *out_names,
                               struct sl_err *err) SL_MUST_CHECK;

/* Opens them, [names->n]. out_planned: the configuration with ram_bytes, vram_each and n_vram
 * filled in (what is left open becomes what is free now; a device that does not know its memory
 * keeps 0) and what the drivers took added to process_bytes. SL_ERR_UNSUPPORTED: there is no such
 * device, or they are of different kinds. */
enum sl_status sl_devices_open(const struct sl_engine_config *config,
                               const struct sl_device_names *names, struct sl_device **out_devices,
                               struct sl_engine_config *out_planned,
                               struct sl_err *err) SL_MUST_CHECK;

#endif
