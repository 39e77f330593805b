/* What stands for the Vulkan backend in a build without glslc or Vulkan's headers. */
#include "backends/vulkan/vulkan.h"

static enum sl_status absent(struct sl_err *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "vulkan: this build was made without it: without glslc, without the headers of "
                   "Vulkan 1.3, or with WITH_VULKAN=0");
}

enum sl_status sl_vulkan_enumerate(const char *loader_path, struct sl_device_found *out_found,
                                   uint32_t max_found, uint32_t *out_n, struct sl_err *err) {
    (void)loader_path, (void)out_found, (void)max_found, (void)out_n;
    return absent(err);
}

enum sl_status sl_vulkan_open(const struct sl_vulkan_config *config, struct sl_device **out_device,
                              struct sl_err *err) {
    (void)config, (void)out_device;
    return absent(err);
}

static enum sl_status enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err) {
    return sl_vulkan_enumerate(NULL, out, max, out_n, err);
}

static enum sl_status open_number(const struct sl_device_options *options, uint32_t number,
                                  struct sl_device **out_device, struct sl_err *err) {
    (void)options;
    return sl_vulkan_open(&(struct sl_vulkan_config){.number = number}, out_device, err);
}

const struct sl_backend sl_vulkan_backend = {.name = "vulkan",
                                             .devices = "GPUs with a driver for Vulkan 1.3",
                                             .hidden = true,
                                             .enumerate = enumerate,
                                             .open = open_number};
