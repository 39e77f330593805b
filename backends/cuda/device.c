/* Opening and closing a GPU, and what its errors mean. */
#include "backends/cuda/cuda_internal.h"
#include "backends/cuda/images.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_STAGE_BYTES (16u << 20)
/* Integer dot products of four bytes came with 6.1, what kernels use of tensor cores with 7.5. */
#define OLDEST_CC 75u

enum sl_status sl_cuda_check(struct sl_cuda *c, int result, const char *what) {
    char text[256];
    if (result == SL_CU_OK)
        return SL_OK;
    if (c->lost) /* said once */
        return SL_ERR_DEVICE_LOST;
    sl_cuda_result_text(&c->driver, result, text, sizeof text);
    switch (result) {
    case SL_CU_OUT_OF_MEMORY:
        sl_error("cuda:%d: %s: %s", c->ordinal, what, text);
        return SL_ERR_DEVICE_OOM;
    case SL_CU_INVALID_VALUE:
    case SL_CU_LAUNCH_OUT_OF_RESOURCES: /* registers or threads: refused, nothing ran */
    case SL_CU_CAPTURE_FIRST ... SL_CU_CAPTURE_LAST:
        sl_error("cuda:%d: %s: refused: %s", c->ordinal, what, text);
        return SL_ERR_INVALID;
    default:
        /* A kernel that failed, a card that fell off its bus, an uncorrectable memory error: all
         * leave a context that answers every further call with the same error. */
        c->lost = true;
        sl_cuda_relay_let_go(c);
        sl_error("cuda:%d: %s: %s; the device is given up, restart to use it again", c->ordinal,
                 what, text);
        return SL_ERR_DEVICE_LOST;
    }
}

enum sl_status sl_cuda_enter_to_end(struct sl_cuda *c) {
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    return sl_cuda_check(c, c->driver.ctx_set_current(c->ctx), "making the context current");
}

enum sl_status sl_cuda_enter(struct sl_cuda *c) {
    enum sl_status status = sl_cuda_came_whole(c);
    return status ? status : sl_cuda_enter_to_end(c);
}

/* What is known of a GPU before its context. */
struct info {
    char name[64];
    uint64_t memory_bytes;
    uint32_t cc; /* compute capability: 90 for 9.0 */
    uint32_t n_sm, warp_size;
    bool integrated; /* shares the host's memory */
};

/* Adds an attribute to what is known of a GPU; keeps the first error. */
static uint32_t attribute(const struct sl_cuda_driver *d, int device, int which, int *result) {
    int value = 0;
    int r = d->device_attribute(&value, which, device);
    if (r && !*result)
        *result = r;
    return r || value < 0 ? 0 : (uint32_t)value;
}

static int describe(const struct sl_cuda_driver *d, int device, struct info *out) {
    size_t total_bytes = 0;
    memset(out, 0, sizeof *out);
    int result = d->device_name(out->name, sizeof out->name, device);
    int memory_result = d->device_total_mem(&total_bytes, device);
    result = result ? result : memory_result;
    out->memory_bytes = total_bytes;
    out->cc = attribute(d, device, SL_CU_ATTR_CC_MAJOR, &result) * 10 +
              attribute(d, device, SL_CU_ATTR_CC_MINOR, &result);
    out->n_sm = attribute(d, device, SL_CU_ATTR_MULTIPROCESSORS, &result);
    out->integrated = attribute(d, device, SL_CU_ATTR_INTEGRATED, &result) != 0;
    int unknown = 0;
    out->warp_size = attribute(d, device, SL_CU_ATTR_WARP_SIZE, &unknown);
    return result;
}

/* What its memory moves at best, two transfers a cycle; 0 where the driver does not say. */
static uint64_t memory_rate(const struct sl_cuda_driver *d, int device) {
    int unknown = 0;
    uint64_t khz = attribute(d, device, SL_CU_ATTR_MEMORY_KHZ, &unknown);
    uint64_t bits = attribute(d, device, SL_CU_ATTR_MEMORY_BITS, &unknown);
    return unknown ? 0 : khz * 1000 * 2 * bits / 8;
}

/* How many GPUs the driver shows; none is an error. */
static enum sl_status count_devices(const struct sl_cuda_driver *d, uint32_t *out_n,
                                    struct sl_err *err) {
    char text[256];
    int n = 0, result = d->device_count(&n);
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "cuda: cannot count the GPUs: %s",
                       sl_cuda_result_text(d, result, text, sizeof text));
    if (n <= 0)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "cuda: the driver is here but shows no GPU; is "
                       "CUDA_VISIBLE_DEVICES empty?");
    *out_n = (uint32_t)n;
    return SL_OK;
}

static enum sl_status no_kernels(struct sl_err *err) {
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "cuda: this build has no CUDA kernels: it was made without nvcc or with "
                   "WITH_CUDA=0; build it with the CUDA toolkit, or use the CPU");
}

static enum sl_status check_cc(uint32_t ordinal, const struct info *info, struct sl_err *err) {
    if (info->cc >= OLDEST_CC)
        return SL_OK;
    return sl_fail(err, SL_ERR_UNSUPPORTED,
                   "cuda:%u: %s has compute capability %u.%u; %u.%u is the least", ordinal,
                   info->name, info->cc / 10, info->cc % 10, OLDEST_CC / 10, OLDEST_CC % 10);
}

static enum sl_device_kind kind_of(const struct info *info) {
    return info->integrated ? SL_DEVICE_INTEGRATED : SL_DEVICE_DISCRETE;
}

static void write_model(const struct info *info, char out_model[SL_DEVICE_NAME_BYTES]) {
    snprintf(out_model, SL_DEVICE_NAME_BYTES, "%.40s, sm_%u", info->name, info->cc);
}

/* One GPU as the registry lists it. */
static void find_one(const struct sl_cuda_driver *d, uint32_t ordinal,
                     struct sl_device_found *out) {
    struct info info;
    char text[256];
    int device = 0, result = d->device_get(&device, (int)ordinal);
    *out = (struct sl_device_found){.memory_bytes = 0};
    sl_device_ref_id((struct sl_device_ref){&sl_cuda_backend, ordinal}, out->id);
    if (!result)
        result = describe(d, device, &info);
    if (result) {
        (void)!sl_fail(&out->why_not, SL_ERR_UNSUPPORTED, "cuda:%u: %s", ordinal,
                       sl_cuda_result_text(d, result, text, sizeof text));
        return;
    }
    write_model(&info, out->model);
    out->kind = kind_of(&info);
    out->memory_bytes = info.memory_bytes;
    if (!sl_cuda_n_images)
        (void)!no_kernels(&out->why_not);
    else
        (void)!check_cc(ordinal, &info, &out->why_not);
}

enum sl_status sl_cuda_enumerate(const char *driver_path, struct sl_device_found *out_found,
                                 uint32_t max_found, uint32_t *out_n, struct sl_err *err) {
    struct sl_cuda_driver driver;
    uint32_t n = 0;
    enum sl_status status = sl_cuda_driver_open(driver_path, &driver, err);
    if (!status)
        status = count_devices(&driver, &n, err);
    if (status)
        return status;
    for (uint32_t i = 0; i < n && i < max_found; i++)
        find_one(&driver, i, &out_found[i]);
    *out_n = n;
    return SL_OK;
}

void sl_cuda_close(struct sl_device *d) {
    struct sl_cuda *c = (struct sl_cuda *)d;
    if (c->ctx) { /* on a lost device each of these fails, and its end frees what there is */
        c->driver.ctx_set_current(c->ctx);
        for (int q = 0; q < SL_QUEUES; q++)
            if (c->queue[q].stream)
                c->driver.stream_sync(c->queue[q].stream);
        if (c->scratch)
            sl_cuda_free(d, c->scratch, c->scratch_bytes);
        if (c->counters)
            sl_cuda_free(d, c->counters, SL_CUDA_COUNTERS * sizeof *c->counters);
        sl_cuda_stage_release(c);
        sl_cuda_modules_unload(c);
        sl_cuda_queues_release(c);
        c->driver.ctx_set_current(NULL);
        c->driver.ctx_release(c->device);
    }
    free(c);
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

static enum sl_status make_counters(struct sl_cuda *c) {
    static const uint32_t zeros[SL_CUDA_COUNTERS];
    struct sl_buffer b = {.device = &c->base, .kind = SL_BUFFER_DEVICE, .bytes = sizeof zeros};
    SL_TRY(sl_cuda_buffer_alloc(&c->base, &b));
    c->counters = b.addr;
    return sl_cuda_upload(&c->base, sl_span_all(&b), zeros);
}

/* Finds the GPU that is asked for, and what this build can do with it. */
static enum sl_status find(struct sl_cuda *c, const struct sl_cuda_config *config,
                           struct info *out_info, struct sl_err *err) {
    const struct sl_cuda_driver *d = &c->driver;
    char text[256];
    uint32_t n = 0;
    enum sl_status status = count_devices(d, &n, err);
    if (status)
        return status;
    if (config->ordinal >= n)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "cuda:%u: there %s %u GPU%s, numbered from 0",
                       config->ordinal, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    int result = d->device_get(&c->device, c->ordinal);
    if (!result)
        result = describe(d, c->device, out_info);
    if (!result) {
        c->max_smem_bytes = attribute(d, c->device, SL_CU_ATTR_MAX_SHARED_OPTIN, &result);
        c->base.caps.mapped_host = attribute(d, c->device, SL_CU_ATTR_CAN_MAP_HOST, &result) != 0;
    }
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "cuda:%d: %s", c->ordinal,
                       sl_cuda_result_text(d, result, text, sizeof text));
    status = check_cc(config->ordinal, out_info, err);
    if (status)
        return status;
    c->cc = out_info->cc;
    c->n_sm = out_info->n_sm;
    c->early_start = d->launch_ex && has_code_from(90, out_info->cc);
    /* Machine code runs on later GPUs of its own generation. */
    if (!has_code_from(c->cc / 10 * 10, c->cc))
        sl_info("cuda:%d: the kernels of this build are for sm_%s, not for sm_%u: the driver "
                "compiles them at the start, and they are slower; build with CUDA_ARCHS=%u, or all",
                c->ordinal, sl_cuda_image_archs, c->cc, c->cc);
    return SL_OK;
}

/* The context, and what ops need in it. */
static enum sl_status start(struct sl_cuda *c, const struct sl_cuda_config *config,
                            const struct info *info, struct sl_err *err) {
    const struct sl_cuda_driver *d = &c->driver;
    char text[256];
    int result = d->ctx_retain(&c->ctx, c->device);
    if (result) {
        c->ctx = NULL;
        return sl_fail(err, result == SL_CU_OUT_OF_MEMORY ? SL_ERR_DEVICE_OOM : SL_ERR_DEVICE_LOST,
                       "cuda:%d: %s gives no context: %s", c->ordinal, info->name,
                       sl_cuda_result_text(d, result, text, sizeof text));
    }
    enum sl_status status = sl_cuda_enter(c);
    if (!status)
        status = sl_cuda_queues_init(c);
    if (status)
        return sl_fail(err, status, "cuda:%d: %s gives no stream: %s", c->ordinal, info->name,
                       sl_status_text(status));
    status = sl_cuda_modules_load(c, err);
    if (status)
        return status;
    uint32_t stage_bytes = config->stage_bytes ? config->stage_bytes : DEFAULT_STAGE_BYTES;
    status = sl_cuda_stage_init(c, stage_bytes);
    if (status)
        return sl_fail(err, status, "cuda:%d: cannot allocate %u KiB of staging: %s", c->ordinal,
                       stage_bytes >> 10, sl_status_text(status));
    status = make_counters(c);
    if (status)
        return sl_fail(err, status, "cuda:%d: cannot allocate counters: %s", c->ordinal,
                       sl_status_text(status));
    return SL_OK;
}

void sl_cuda_caps(const struct sl_cuda *c, struct sl_device_caps *caps) {
    caps->graphs = caps->moe_placed = caps->mailbox = true;
    caps->moe_bias = caps->moe_as_host = caps->swiglu_clamped = caps->geglu = caps->extra_args =
        true;
    caps->swiglu_limited = caps->swiglu_cut = caps->reglu = caps->sigmoid_topk = true;
    sl_cuda_ops_caps(c, caps);
}

/* What a started device says of itself. */
static void set_caps(struct sl_cuda *c, const struct info *info) {
    struct sl_device_caps *caps = &c->base.caps;
    int version = c->driver.version;
    write_model(info, caps->model);
    sl_device_caps_set_id(caps, sl_cuda_ops.name, (uint32_t)c->ordinal, false);
    snprintf(caps->arithmetic_id, sizeof caps->arithmetic_id, "%s: %.57s", sl_cuda_ops.name,
             caps->model);
    caps->kind = kind_of(info);
    caps->subgroup_width = info->warp_size;
    caps->shared_bytes = c->max_smem_bytes;
    caps->memory_bytes = info->memory_bytes;
    caps->held_bytes = (uint64_t)c->stage.segment_bytes * SL_CUDA_STAGE_SEGMENTS +
                       SL_CUDA_COUNTERS * sizeof(uint32_t);
    caps->memory_bytes_per_s = memory_rate(&c->driver, c->device);
    sl_cuda_caps(c, caps);
    sl_debug("cuda:%d: %s, %llu MiB, %s, %u multiprocessors, driver for CUDA %d.%d", c->ordinal,
             info->name, (unsigned long long)(info->memory_bytes >> 20),
             info->integrated ? "integrated" : "discrete", info->n_sm, version / 1000,
             version % 1000 / 10);
}

static double link_slowdown(void) {
    const char *text = getenv("SLUICE_TEST_LINK_SLOWDOWN");
    double times = text ? strtod(text, NULL) : 1;
    return times > 1 && times <= 100 ? times : 1;
}

enum sl_status sl_cuda_open(const struct sl_cuda_config *config, struct sl_device **out_device,
                            struct sl_err *err) {
    if (!sl_cuda_n_images)
        return no_kernels(err);
    struct sl_cuda *c = calloc(1, sizeof *c);
    if (!c)
        return sl_fail(err, SL_ERR_NOMEM, "cuda: out of memory");
    enum sl_status status = sl_cuda_driver_open(config->driver_path, &c->driver, err);
    if (status) {
        free(c);
        return status;
    }
    c->base.ops = &sl_cuda_ops;
    c->ordinal = (int)config->ordinal;
    c->link_slowdown = link_slowdown();
    struct info info;
    status = find(c, config, &info, err);
    if (!status)
        status = start(c, config, &info, err);
    if (status) {
        sl_cuda_close(&c->base);
        return status;
    }
    set_caps(c, &info);
    *out_device = &c->base;
    return SL_OK;
}

/* ---- the registry's entry ---- */

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
