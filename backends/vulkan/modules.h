/* The shaders' SPIR-V, embedded at build time by a generated file (mk/vulkan.mk). */
#ifndef SL_BACKENDS_VULKAN_MODULES_H
#define SL_BACKENDS_VULKAN_MODULES_H

#include <stdint.h>

struct sl_vulkan_module {
    const char *name; /* "rms_norm" */
    const uint32_t *words;
    uint64_t bytes;
};

extern const struct sl_vulkan_module sl_vulkan_modules[];
extern const uint64_t sl_vulkan_n_modules;

#endif
