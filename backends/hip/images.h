/* The kernels' code objects, embedded at build time: one bundle for each backends/kernels/NAME.cu,
 * with code for several architectures. Defined by a generated file (mk/hip.mk); a build without
 * hipcc has none. */
#ifndef SL_BACKENDS_HIP_IMAGES_H
#define SL_BACKENDS_HIP_IMAGES_H

#include "backends/gpu/images.h"

extern const struct sl_gpu_image sl_hip_images[];
extern const uint64_t sl_hip_n_images;
/* What they were built for: "gfx90a gfx1030". */
extern const char sl_hip_image_archs[];

#endif
