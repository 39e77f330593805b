/* Kernels' machine code, embedded at build time: an image for each backends/kernels/NAME.cu. */
#ifndef SL_BACKENDS_GPU_IMAGES_H
#define SL_BACKENDS_GPU_IMAGES_H

#include <stdint.h>

struct sl_gpu_image {
    const char *name; /* "matvec" */
    const void *data; /* for the driver's module_load */
};

#endif
