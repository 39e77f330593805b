/* A weight as ops take it. */
#ifndef SL_BACKENDS_OPS_WEIGHT_H
#define SL_BACKENDS_OPS_WEIGHT_H

#include "common/dtype.h"

#include <stdint.h>

/* A weight matrix, row-major: n_out rows of n_in elements, n_in a multiple of the type's block. */
struct sl_weight {
    enum sl_dtype dtype;
    uint32_t n_in, n_out;
    const void *data;
};

#endif
