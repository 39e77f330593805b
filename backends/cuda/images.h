/* The kernels' machine code, embedded at build time: one fatbin for each backends/kernels/NAME.cu,
 * with code for several architectures. Defined by a generated file (mk/cuda.mk); a build without
 * nvcc has none. */
#ifndef SL_BACKENDS_CUDA_IMAGES_H
#define SL_BACKENDS_CUDA_IMAGES_H

#include "backends/gpu/images.h"

extern const struct sl_gpu_image sl_cuda_images[];
extern const uint64_t sl_cuda_n_images;
/* What they were built for: "75 80 90". */
extern const char sl_cuda_image_archs[];

#endif
