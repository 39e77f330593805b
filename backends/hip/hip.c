/* What sets AMD's GPUs apart, and the registry's entry. */
#include "backends/hip/hip.h"
#include "backends/gpu/gpu_internal.h"
#include "backends/hip/compile.h"
#include "backends/hip/hip_driver.h"
#include "backends/hip/images.h"
#include "backends/hip/sources.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* All that the name of an architecture may consist of: it becomes part of the compiler's options
 * and of file names. */
#define ARCH_CHARS "abcdefghijklmnopqrstuvwxyz0123456789-"

static const struct sl_backend_ops hip_ops = {
    .name = "hip",
#include "backends/gpu/ops_table.def"
};

static enum sl_status no_kernels(struct sl_err *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "hip: this build has no HIP kernels: it was made without hipcc or with "
                   "WITH_HIP=0; build it with hipcc, or use vulkan or the CPU");
}

static int describe(const struct sl_gpu_driver *d, int device, struct sl_gpu_info *out) {
    return sl_hip_arch(d, device, out->arch, sizeof out->arch);
}

/* Code for one architecture runs on no other. */
static bool is_built_for(const char *arch) {
    size_t n = strlen(arch);
    for (const char *p = sl_hip_image_archs; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == n && memcmp(p, arch, n) == 0)
            return true;
    return false;
}

static enum sl_status check(const struct sl_gpu_driver *d, uint32_t ordinal,
                            const struct sl_gpu_info *info, struct sl_err *err) {
    struct sl_hiprtc compiler;
    struct sl_err why;
    if (strncmp(info->arch, "gfx", 3) != 0 || info->arch[strspn(info->arch, ARCH_CHARS)])
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "hip:%u: %s says that its architecture is '%s', which is none known here",
                       ordinal, info->name, info->arch);
    if (is_built_for(info->arch) || sl_hiprtc_find(d->lib, &compiler, &why) == SL_OK)
        return SL_OK;
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "hip:%u: %s is %s, and the kernels of this build are for %s: %s; install "
                   "ROCm's hipRTC, or build with HIP_ARCHS=%s, or use vulkan or the CPU",
                   ordinal, info->name, info->arch, sl_hip_image_archs, why.text, info->arch);
}

static enum sl_status make_images(const struct sl_gpu *c, struct sl_gpu_image **out_images,
                                  uint32_t *out_n, struct sl_err *err) {
    char device[32];
    struct sl_hip_target target = {
        .device = device, .arch = c->arch, .runtime_version = c->driver.version};
    if (is_built_for(c->arch))
        return SL_OK;
    snprintf(device, sizeof device, "hip:%d", c->ordinal);
    SL_TRY(sl_hiprtc_find(c->driver.lib, &target.hiprtc, err)); /* as check() has done */
    return sl_hip_compile(&target, out_images, out_n, err);
}

static void suit(struct sl_gpu *c, const struct sl_gpu_info *info) {
    (void)c, (void)info;
}

static enum sl_status misfit(const struct sl_gpu *c, const char *image, const char *why,
                             struct sl_err *err) {
    if (c->made_images)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "hip:%d: the kernels (%s) that hipRTC compiled for %s are refused: %s; "
                       "build with HIP_ARCHS=%s, or use vulkan or the CPU",
                       c->ordinal, image, c->arch, why, c->arch);
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "hip:%d: the kernels (%s) were built for %s and this is %s: %s; install a newer "
                   "ROCm, or build with HIP_ARCHS=%s",
                   c->ordinal, image, sl_hip_image_archs, c->arch, why, c->arch);
}

/* 60241133: 6.2 and a number of the build's. */
static void write_version(const struct sl_gpu_driver *d, char *buf, size_t buf_bytes) {
    snprintf(buf, buf_bytes, "%d.%d", d->version / 10000000, d->version / 100000 % 100);
}

static const struct sl_gpu_kind kind = {
    .name = "hip",
    .backend = &sl_hip_backend,
    .ops = &hip_ops,
    .images = sl_hip_images,
    .n_images = &sl_hip_n_images,
    .visible = "HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES",
    .driver_open = sl_hip_driver_open,
    .no_kernels = no_kernels,
    .describe = describe,
    .check = check,
    .make_images = make_images,
    .free_images = sl_hip_images_free,
    .suit = suit,
    .misfit = misfit,
    .write_version = write_version,
};

enum sl_status sl_hip_open(const struct sl_hip_config *config, struct sl_device **out_device,
                           struct sl_err *err) {
    return sl_gpu_open(&kind, config->driver_path, config->ordinal, config->staging_bytes,
                       out_device, err);
}

/* The kernel's driver for computing on AMD's GPUs; starting the runtime without it costs time. */
#define KERNEL_DRIVER "/dev/kfd"

static bool may_be_here(struct sl_err *why_not) {
    if (access(KERNEL_DRIVER, F_OK) == 0)
        return true;
    (void)!sl_fail(why_not, SL_ERR_UNSUPPORTED,
                   "hip: there is no " KERNEL_DRIVER ": no AMD GPU here, or no driver for it");
    return false;
}

static enum sl_status enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err) {
    return sl_gpu_enumerate(&kind, NULL, out, max, out_n, err);
}

static enum sl_status open_number(const struct sl_device_options *options, uint32_t number,
                                  struct sl_device **out_device, struct sl_err *err) {
    (void)options;
    return sl_hip_open(&(struct sl_hip_config){.ordinal = number}, out_device, err);
}

const struct sl_backend sl_hip_backend = {.name = "hip",
                                          .devices = "AMD GPUs",
                                          .named_only = true, /* until it has run on a card */
                                          .may_be_here = may_be_here,
                                          .enumerate = enumerate,
                                          .open = open_number};
