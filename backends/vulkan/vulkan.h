/* The Vulkan backend: any card with a driver for Vulkan 1.3, through the loader alone
 * (libvulkan.so.1, opened at run time).
 *
 * A machine without a loader or a driver, or a build without glslc, is no error of the build:
 * opening says so with SL_ERR_UNSUPPORTED and a text.
 *
 * What a device holds is allocated in memory of its own (DEVICE_LOCAL) or refused; host-visible
 * memory is for staging alone. A device is for one thread at a time. */
#ifndef SL_BACKENDS_VULKAN_VULKAN_H
#define SL_BACKENDS_VULKAN_VULKAN_H

#include "backends/backend_entry.h"

struct sl_vulkan_config {
    uint32_t number;         /* which of the devices that the loader shows */
    const char *loader_path; /* NULL: libvulkan.so.1 */
    uint32_t staging_bytes;  /* host-visible staging; 0 = 16 MiB */
};

extern const struct sl_backend sl_vulkan_backend;

/* The registry's enumerate, over another loader: NULL = libvulkan.so.1. A device that cannot be
 * used is among what is found, with the reason. SL_ERR_UNSUPPORTED: there is no loader or no
 * device, and why. */
enum sl_status sl_vulkan_enumerate(const char *loader_path, struct sl_device_found *out_found,
                                   uint32_t max_found, uint32_t *out_n,
                                   struct sl_err *err) SL_MUST_CHECK;

enum sl_status sl_vulkan_open(const struct sl_vulkan_config *config, struct sl_device **out_device,
                              struct sl_err *err) SL_MUST_CHECK;

#endif
