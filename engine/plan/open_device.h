/* Opens the devices that compute, and finds how much of their memory and the host's they may use.
 */
#ifndef SL_ENGINE_OPEN_DEVICE_H
#define SL_ENGINE_OPEN_DEVICE_H

#include "backends/registry/registry.h"
#include "engine/types/config.h"
#include "model/arch/model.h"

/* What config->device names; "auto" is the host, until sl_stage_plans_open has chosen. */
struct sl_device_names {
    uint32_t n;       /* 1 .. SL_MAX_STAGES */
    uint32_t n_local; /* of them this process's, before the config's remote ones */
    bool any;         /* "auto": the first of them is to be chosen */
    /* The same device may appear twice; .backend NULL: one of the config's device_source, by index,
     * or a remote one. */
    struct sl_device_ref at[SL_MAX_STAGES];
};

/* n_split: how many numbers config->split has, 0 = none; a backend named without a number then
 * means as many of its devices. Looks for devices only if all of a backend's are asked for; those
 * that cannot be used are left out with a warning. SL_ERR_CONFIG: no such name, more devices than
 * layers, the host twice, or counts that differ, with what would be right. SL_ERR_UNSUPPORTED: all
 * of a backend's devices were asked for and there is none. */
enum sl_status sl_device_names(const struct sl_engine_config *config, uint32_t n_layer,
                               uint32_t n_split, struct sl_device_names *out_names,
                               struct sl_err *err) SL_MUST_CHECK;

/* Like backend->enumerate; remembers how much host memory starting the driver takes, which
 * sl_devices_open counts. */
enum sl_status sl_devices_look(const struct sl_backend *backend, struct sl_device_found *out_found,
                               uint32_t max_found, uint32_t *out_n,
                               struct sl_err *err) SL_MUST_CHECK;

/* Opens the devices, [names->n]. out_planned: the configuration with ram_bytes, vram_each and
 * n_vram filled in (defaults become what is free now; a device that does not know its memory keeps
 * 0) and the drivers' memory added to process_bytes. SL_ERR_UNSUPPORTED: there is no such device,
 * with the list of those there are. */
enum sl_status sl_devices_open(const struct sl_engine_config *config,
                               const struct sl_device_names *names, struct sl_device **out_devices,
                               struct sl_engine_config *out_planned,
                               struct sl_err *err) SL_MUST_CHECK;

#endif
