/* The HIP backend: AMD's GPUs through ROCm's runtime (libamdhip64, opened at run time), with the
 * kernels and the host layer of the CUDA backend (backends/gpu/).
 *
 * A machine without ROCm or a GPU, or a build without hipcc, is no error of the build: opening says
 * so with SL_ERR_UNSUPPORTED and a text. Nothing here has run on a card yet (docs/GPU-SUPPORT.md).
 */
#ifndef SL_BACKENDS_HIP_HIP_H
#define SL_BACKENDS_HIP_HIP_H

#include "backends/backend_entry.h"

struct sl_hip_config {
    uint32_t ordinal;        /* which of the GPUs that the runtime shows */
    const char *driver_path; /* NULL: libamdhip64.so.7, .6 or .5; tests bring their own */
    uint32_t staging_bytes;  /* pinned staging for uploads; 0 = 16 MiB */
};

extern const struct sl_backend sl_hip_backend;

enum sl_status sl_hip_open(const struct sl_hip_config *config, struct sl_device **out_device,
                           struct sl_err *err) SL_MUST_CHECK;

#endif
