/* What stands for the Level Zero backend in a build without what its kernels are made with, or
 * without Level Zero's headers. */
#include "backends/level_zero/level_zero.h"

static enum sl_status absent(struct sl_err *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "level_zero: this build was made without it: without clang-15, llvm-spirv-15 or "
                   "the headers of Level Zero, or with WITH_LEVEL_ZERO=0");
}

enum sl_status sl_level_zero_enumerate(const char *loader_path, struct sl_device_found *out_found,
                                       uint32_t max_found, uint32_t *out_n, struct sl_err *err) {
    (void)loader_path, (void)out_found, (void)max_found, (void)out_n;
    return absent(err);
}

enum sl_status sl_level_zero_open(const struct sl_level_zero_config *config,
                                  struct sl_device **out_device, struct sl_err *err) {
    (void)config, (void)out_device;
    return absent(err);
}

static enum sl_status enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err) {
    return sl_level_zero_enumerate(NULL, out, max, out_n, err);
}

static enum sl_status open_number(const struct sl_device_options *options, uint32_t number,
                                  struct sl_device **out_device, struct sl_err *err) {
    (void)options;
    return sl_level_zero_open(&(struct sl_level_zero_config){.number = number}, out_device, err);
}

const struct sl_backend sl_level_zero_backend = {.name = "level_zero",
                                                 .devices = "Intel GPUs",
                                                 .hidden = true,
                                                 .enumerate = enumerate,
                                                 .open = open_number};
