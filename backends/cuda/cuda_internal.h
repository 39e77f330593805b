/* What the CUDA backend's files share: what sets NVIDIA's GPUs apart from others of their kind. The
 * rest is backends/gpu/. */
#ifndef SL_BACKENDS_CUDA_CUDA_INTERNAL_H
#define SL_BACKENDS_CUDA_CUDA_INTERNAL_H

#include "backends/cuda/cuda.h"
#include "backends/gpu/gpu_internal.h"

extern const struct sl_gpu_kind sl_cuda_kind;
extern const struct sl_backend_ops sl_cuda_ops;

/* Opens path (NULL: libcuda.so.1), finds every symbol and initialises the driver. The library stays
 * open for the life of the process: it has threads of its own.
 * SL_ERR_UNSUPPORTED: there is no driver, it is too old, or it finds no usable GPU; the text says
 * which. */
enum sl_status sl_cuda_driver_open(const char *path, struct sl_gpu_driver *out_driver,
                                   struct sl_err *err) SL_MUST_CHECK;

/* planned.c: the registry's entry of that name. */
enum sl_status sl_cuda_planned(const struct sl_device_offer *offer, uint32_t number,
                               struct sl_device **out_device, struct sl_err *err);

#endif
