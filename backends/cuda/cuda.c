/* What sets NVIDIA's GPUs apart, and the registry's entry. */
#include "backends/cuda/cuda_internal.h"
#include "backends/cuda/images.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>

/* Integer dot products of four bytes came with 6.1, what kernels use of tensor cores with 7.5. */
#define OLDEST_CC 75u

const struct sl_backend_ops sl_cuda_ops = {
    .name = "cuda",
#include "backends/gpu/ops_table.def"
};

static enum sl_status no_kernels(struct sl_err *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "cuda: this build has no CUDA kernels: it was made without nvcc or with "
                   "WITH_CUDA=0; build it with the CUDA toolkit, or use the CPU");
}

static int describe(const struct sl_gpu_driver *d, int device, struct sl_gpu_info *out) {
    int result = 0;
    out->cc = sl_gpu_attribute(d, device, SL_CU_ATTR_CC_MAJOR, &result) * 10 +
              sl_gpu_attribute(d, device, SL_CU_ATTR_CC_MINOR, &result);
    snprintf(out->arch, sizeof out->arch, "sm_%u", out->cc);
    return result;
}

static enum sl_status check_cc(const struct sl_gpu_driver *d, uint32_t ordinal,
                               const struct sl_gpu_info *info, struct sl_err *err) {
    (void)d;
    if (info->cc >= OLDEST_CC)
        return SL_OK;
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "cuda:%u: %s has compute capability %u.%u; %u.%u is the least", ordinal,
                   info->name, info->cc / 10, info->cc % 10, OLDEST_CC / 10, OLDEST_CC % 10);
}

/* Whether this GPU runs code that was built for a compute capability of at least `least`. */
static bool has_code_from(uint32_t least, uint32_t cc) {
    bool found = false;
    for (const char *p = sl_cuda_image_archs; *p;) {
        char *end;
        unsigned long arch = strtoul(p, &end, 10);
        found |= arch >= least && arch <= cc;
        p = *end ? end + 1 : end;
    }
    return found;
}

static void suit(struct sl_gpu *c, const struct sl_gpu_info *info) {
    c->early_start = c->driver.launch_ex && has_code_from(90, info->cc);
    /* Machine code runs on later GPUs of its own generation. */
    if (!has_code_from(info->cc / 10 * 10, info->cc))
        sl_info("cuda:%d: the kernels of this build are for sm_%s, not for %s: the driver "
                "compiles them at the start, and they are slower; build with CUDA_ARCHS=%u, or all",
                c->ordinal, sl_cuda_image_archs, info->arch, info->cc);
}

static enum sl_status misfit(const struct sl_gpu *c, const char *image, const char *why,
                             struct sl_err *err) {
    const char *arch = c->arch + 3; /* behind "sm_" */
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "cuda:%d: the kernels (%s) were built for sm %s and this is sm %s with a "
                   "driver for CUDA %d.%d: %s; install a newer driver, or build with CUDA_ARCHS=%s",
                   c->ordinal, image, sl_cuda_image_archs, arch, c->driver.version / 1000,
                   c->driver.version % 1000 / 10, why, arch);
}

static void write_version(const struct sl_gpu_driver *d, char *buf, size_t buf_bytes) {
    snprintf(buf, buf_bytes, "%d.%d", d->version / 1000, d->version % 1000 / 10);
}

const struct sl_gpu_kind sl_cuda_kind = {
    .name = "cuda",
    .backend = &sl_cuda_backend,
    .ops = &sl_cuda_ops,
    .images = sl_cuda_images,
    .n_images = &sl_cuda_n_images,
    .visible = "CUDA_VISIBLE_DEVICES",
    .driver_open = sl_cuda_driver_open,
    .no_kernels = no_kernels,
    .describe = describe,
    .check = check_cc,
    .suit = suit,
    .misfit = misfit,
    .write_version = write_version,
};

enum sl_status sl_cuda_enumerate(const char *driver_path, struct sl_device_found *out_found,
                                 uint32_t max_found, uint32_t *out_n, struct sl_err *err) {
    return sl_gpu_enumerate(&sl_cuda_kind, driver_path, out_found, max_found, out_n, err);
}

enum sl_status sl_cuda_open(const struct sl_cuda_config *config, struct sl_device **out_device,
                            struct sl_err *err) {
    return sl_gpu_open(&sl_cuda_kind, config->driver_path, config->ordinal, config->staging_bytes,
                       out_device, err);
}

static enum sl_status enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err) {
    return sl_cuda_enumerate(NULL, out, max, out_n, err);
}

static enum sl_status open_number(const struct sl_device_options *options, uint32_t number,
                                  struct sl_device **out_device, struct sl_err *err) {
    (void)options;
    return sl_cuda_open(&(struct sl_cuda_config){.ordinal = number}, out_device, err);
}

const struct sl_backend sl_cuda_backend = {.name = "cuda",
                                           .devices = "NVIDIA GPUs",
                                           .enumerate = enumerate,
                                           .open = open_number,
                                           .planned = sl_cuda_planned};
