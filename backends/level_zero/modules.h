/* The kernels' SPIR-V, embedded at build time by a generated file (mk/level_zero.mk). */
#ifndef SL_BACKENDS_LEVEL_ZERO_MODULES_H
#define SL_BACKENDS_LEVEL_ZERO_MODULES_H

#include <stdint.h>

struct sl_level_zero_module {
    const char *name; /* "rms_norm", or "embed.Q8_0" of a typed one */
    const uint8_t *spirv;
    uint64_t bytes;
};

extern const struct sl_level_zero_module sl_level_zero_modules[];
extern const uint64_t sl_level_zero_n_modules;

#endif
