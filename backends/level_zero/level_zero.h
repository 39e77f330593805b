/* The Level Zero backend: Intel's GPUs by Intel's own runtime, through its loader alone
 * (libze_loader.so.1, opened at run time).
 *
 * A machine without a loader or a driver, or a build without the headers or the compilers of its
 * kernels, is no error of the build: opening says so with SL_ERR_UNSUPPORTED and a text.
 *
 * What a device holds is allocated in memory of its own (zeMemAllocDevice) or refused. A device is
 * for one thread at a time. */
#ifndef SL_BACKENDS_LEVEL_ZERO_LEVEL_ZERO_H
#define SL_BACKENDS_LEVEL_ZERO_LEVEL_ZERO_H

#include "backends/backend_entry.h"

struct sl_level_zero_config {
    uint32_t number;         /* which of the devices that the loader shows */
    const char *loader_path; /* NULL: libze_loader.so.1 */
    uint32_t staging_bytes;  /* pinned staging; 0 = 16 MiB */
};

extern const struct sl_backend sl_level_zero_backend;

/* The registry's enumerate, over another loader: NULL = libze_loader.so.1. A device that cannot be
 * used is among what is found, with the reason. SL_ERR_UNSUPPORTED: there is no loader or no
 * device, and why. */
enum sl_status sl_level_zero_enumerate(const char *loader_path, struct sl_device_found *out_found,
                                       uint32_t max_found, uint32_t *out_n,
                                       struct sl_err *err) SL_MUST_CHECK;

enum sl_status sl_level_zero_open(const struct sl_level_zero_config *config,
                                  struct sl_device **out_device, struct sl_err *err) SL_MUST_CHECK;

#endif
