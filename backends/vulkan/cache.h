/* What the driver has compiled, on disk (backends/code_cache.h): one file for each device, driver
 * and build. The data begin with a header of the driver's, which is checked as well. */
#ifndef SL_BACKENDS_VULKAN_CACHE_H
#define SL_BACKENDS_VULKAN_CACHE_H

#include "backends/code_cache.h"

#include <stdint.h>

/* What compiled kernels belong to. */
struct sl_vk_cache_key {
    uint32_t vendor, device, driver_version;
    uint8_t uuid[16];     /* pipelineCacheUUID: of the driver's build, as it says */
    uint32_t kernels_crc; /* of all SPIR-V */
};

/* Where they are kept; without a folder for them out->path is empty, and nothing is kept. */
void sl_vk_cache_find(const struct sl_vk_cache_key *key, struct sl_code_file *out);
/* The driver's data, for the caller to free; NULL: there is no sound file. */
void *sl_vk_cache_read(const struct sl_code_file *f, const struct sl_vk_cache_key *key,
                       size_t *out_bytes);

#endif
