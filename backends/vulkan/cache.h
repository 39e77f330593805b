/* Compiled kernels on disk, so that they are compiled once for a driver: one file a device in
 * sluice/vulkan/ below $XDG_CACHE_HOME or ~/.cache; where neither folder exists nothing is kept.
 *
 * A file is a header of this program's (whose kernels, which device and driver, sizes, sums) and
 * the driver's data, whose own header is checked as well. A file that is not as it must be is
 * removed, with a line in the log, and kernels are compiled anew. */
#ifndef SL_BACKENDS_VULKAN_CACHE_H
#define SL_BACKENDS_VULKAN_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_VK_CACHE_PATH_BYTES 1024u
#define SL_VK_CACHE_MAX_BYTES  ((size_t)64 << 20)

/* What compiled kernels belong to. */
struct sl_vk_cache_key {
    uint32_t vendor, device, driver_version;
    uint8_t uuid[16];     /* pipelineCacheUUID: of the driver's build, as it says */
    uint32_t kernels_crc; /* of all SPIR-V */
};

/* False: there is no folder for it. */
bool sl_vk_cache_path(const struct sl_vk_cache_key *key, char out_path[SL_VK_CACHE_PATH_BYTES]);
/* The driver's data, for the caller to free; NULL: there is no sound file. */
void *sl_vk_cache_read(const char *path, const struct sl_vk_cache_key *key, size_t *out_bytes);
/* Replaces the file at once, or leaves it; makes the folders. What fails is logged at debug level:
 * nothing depends on it. */
void sl_vk_cache_write(const char *path, const struct sl_vk_cache_key *key, const void *data,
                       size_t bytes);

#endif
