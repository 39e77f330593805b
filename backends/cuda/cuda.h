/* The CUDA backend: NVIDIA GPUs through the driver alone (libcuda.so.1, opened at run time).
 *
 * A machine without a driver or a GPU, or a build without nvcc, is no error of the build: opening
 * says so with SL_ERR_UNSUPPORTED and a text.
 *
 * Memory is the driver's plain device allocation, never managed; host-visible memory is for staging
 * alone, and each kind is counted (common/metrics.def). A device is for one thread at a time. */
#ifndef SL_BACKENDS_CUDA_CUDA_H
#define SL_BACKENDS_CUDA_CUDA_H

#include "backends/backend.h"

struct sl_cuda_config {
    uint32_t ordinal;        /* which of the GPUs that the driver shows */
    const char *driver_path; /* NULL: libcuda.so.1; tests bring their own */
    uint32_t stage_bytes;    /* pinned staging for uploads; 0 = 16 MiB */
};

struct sl_cuda_info {
    char name[64];
    uint64_t memory_bytes;
    uint32_t cc; /* compute capability: 90 for 9.0 */
    uint32_t n_sm;
    bool integrated; /* shares the host's memory */
};

/* What GPUs there are: fills at most max_info entries, *out_n is how many there are.
 * SL_ERR_UNSUPPORTED: none can be used, and why. */
enum sl_status sl_cuda_probe(const char *driver_path, struct sl_cuda_info *out_info,
                             uint32_t max_info, uint32_t *out_n, struct sl_err *err) SL_MUST_CHECK;

enum sl_status sl_cuda_open(const struct sl_cuda_config *config, struct sl_device **out_device,
                            struct sl_err *err) SL_MUST_CHECK;

#endif
