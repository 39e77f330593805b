#include "backends/vulkan/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What drivers write first. Source: Vulkan 1.3, VkPipelineCacheHeaderVersionOne. */
struct driver_header {
    uint32_t header_bytes, version, vendor, device;
    uint8_t uuid[16];
};
_Static_assert(sizeof(struct driver_header) == 32, "as the driver writes it");
_Static_assert(sizeof(struct sl_vk_cache_key) == 32, "it is hashed: no padding");

void sl_vk_cache_find(const struct sl_vk_cache_key *key, struct sl_code_file *out) {
    char name[64];
    out->key = sl_siphash128((struct sl_hash128){0, 0}, key, sizeof *key);
    snprintf(name, sizeof name, "%04x-%04x-%08x.bin", key->vendor, key->device,
             (uint32_t)out->key.lo);
    sl_code_file_find(out, "vulkan", name);
}

void *sl_vk_cache_read(const struct sl_code_file *f, const struct sl_vk_cache_key *key,
                       size_t *out_bytes) {
    struct driver_header d = {.version = 0};
    size_t bytes = 0;
    void *data = *f->path ? sl_code_file_read(f, &bytes) : NULL;
    if (!data)
        return NULL;
    if (bytes >= sizeof d)
        memcpy(&d, data, sizeof d);
    if (d.header_bytes < sizeof d || d.version != 1 || d.vendor != key->vendor ||
        d.device != key->device || memcmp(d.uuid, key->uuid, sizeof d.uuid) != 0) {
        sl_code_file_drop(f, "the driver's own header names another device or driver");
        free(data);
        return NULL;
    }
    *out_bytes = bytes;
    return data;
}
