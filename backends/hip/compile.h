/* Kernels for a card that the build has no code for: compiled once by hipRTC (hiprtc.h), and kept
 * on disk (backends/code_cache.h). */
#ifndef SL_BACKENDS_HIP_COMPILE_H
#define SL_BACKENDS_HIP_COMPILE_H

#include "backends/gpu/driver.h"
#include "backends/gpu/images.h"
#include "backends/hip/hiprtc.h"

/* The most that one source may take; $SLUICE_TEST_COMPILE_SECONDS may say less. Several times what
 * the longest takes on one slow core. */
#define SL_HIP_COMPILE_SECONDS 1200u

/* What kernels are compiled for, and by what. */
struct sl_hip_target {
    const char *device; /* "hip:0", for messages */
    const char *arch;   /* "gfx1100" */
    int runtime_version;
    struct sl_hiprtc hiprtc;
};

/* An image of each embedded source, in their order: from the cache, or compiled, as many at once as
 * this process has CPUs, at most eight; the log shows progress. Free with sl_hip_images_free. Waits
 * for child processes, so SIGCHLD must not be ignored.
 * SL_ERR_UNSUPPORTED: one does not compile, or takes too long; SL_ERR_NOMEM; SL_ERR_CANCELED: the
 * process has been told to stop. What was compiled until then stays in the cache. */
enum sl_status sl_hip_compile(const struct sl_hip_target *target, struct sl_gpu_image **out_images,
                              uint32_t *out_n, struct sl_err *err) SL_MUST_CHECK;
void sl_hip_images_free(struct sl_gpu_image *images, uint32_t n);

#endif
