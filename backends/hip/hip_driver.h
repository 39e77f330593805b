/* ROCm's runtime as the table of calls that the host layer of GPUs goes by.
 *
 * Source: the HIP runtime API reference, and hip_runtime_api.h of ROCm 5.2 and 6, whose numbers
 * these are. Those of errors are CUDA's, where both have one. */
#ifndef SL_BACKENDS_HIP_HIP_DRIVER_H
#define SL_BACKENDS_HIP_HIP_DRIVER_H

#include "backends/gpu/driver.h"

/* Opens path (NULL: libamdhip64.so.7, .6 or .5, the first that there is), finds its symbols and
 * initialises it. Without those of graphs, of waiting for words or of links, what needs them is
 * left out: NULL in the table, and a line of the log says which. The library stays open for the
 * life of the process, and a process uses one. Threads may call. SL_ERR_UNSUPPORTED: there is none,
 * it is too old, or it does not start; the text says which. */
enum sl_status sl_hip_driver_open(const char *path, struct sl_gpu_driver *out_driver,
                                  struct sl_err *err) SL_MUST_CHECK;

/* The name of a GPU's architecture without its features: "gfx90a". An error of the runtime's. */
int sl_hip_arch(const struct sl_gpu_driver *d, int device, char *out, size_t out_bytes);

#endif
