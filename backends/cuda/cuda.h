/* The CUDA backend: NVIDIA GPUs through the driver alone (libcuda.so.1, opened at run time).
 *
 * A machine without a driver or a GPU, or a build without nvcc, is no error of the build: opening
 * says so with SL_ERR_UNSUPPORTED and a text.
 *
 * Memory is the driver's plain device allocation, never managed; host-visible memory is for staging
 * alone, and each kind is counted (common/metrics.def). A device is for one thread at a time. */
#ifndef SL_BACKENDS_CUDA_CUDA_H
#define SL_BACKENDS_CUDA_CUDA_H

#include "backends/backend_entry.h"

struct sl_cuda_config {
    uint32_t ordinal;        /* which of the GPUs that the driver shows */
    const char *driver_path; /* NULL: libcuda.so.1; tests bring their own */
    uint32_t staging_bytes;  /* pinned staging for uploads; 0 = 16 MiB */
};

extern const struct sl_backend sl_cuda_backend;

/* The registry's enumerate, over another driver: NULL = libcuda.so.1. A GPU that this build or
 * backend cannot use is among what is found, with the reason. SL_ERR_UNSUPPORTED: there is no
 * driver or no GPU, and why. */
enum sl_status sl_cuda_enumerate(const char *driver_path, struct sl_device_found *out_found,
                                 uint32_t max_found, uint32_t *out_n,
                                 struct sl_err *err) SL_MUST_CHECK;

enum sl_status sl_cuda_open(const struct sl_cuda_config *config, struct sl_device **out_device,
                            struct sl_err *err) SL_MUST_CHECK;

#endif
