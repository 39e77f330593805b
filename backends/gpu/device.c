/* Opening and closing a GPU, and what its errors mean. */
#include "backends/gpu/gpu_internal.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_STAGING_BYTES (16u << 20)

enum sl_status sl_gpu_check(struct sl_gpu *c, int result, const char *what) {
    char text[256];
    if (result == SL_CU_OK)
        return SL_OK;
    if (c->lost) /* said once */
        return SL_ERR_DEVICE_LOST;
    sl_gpu_result_text(&c->driver, result, text, sizeof text);
    switch (result) {
    case SL_CU_OUT_OF_MEMORY:
        sl_error("%s:%d: %s: %s", c->name, c->ordinal, what, text);
        return SL_ERR_DEVICE_OOM;
    case SL_CU_INVALID_VALUE:
    case SL_CU_LAUNCH_OUT_OF_RESOURCES: /* registers or threads: refused, nothing ran */
    case SL_CU_CAPTURE_FIRST ... SL_CU_CAPTURE_LAST:
        sl_error("%s:%d: %s: refused: %s", c->name, c->ordinal, what, text);
        return SL_ERR_INVALID;
    default:
        /* A kernel that failed, a card that fell off its bus, an uncorrectable memory error: all
         * leave a context that answers every further call with the same error. */
        c->lost = true;
        sl_gpu_relay_let_go(c);
        sl_error("%s:%d: %s: %s; the device is given up, restart to use it again", c->name,
                 c->ordinal, what, text);
        return SL_ERR_DEVICE_LOST;
    }
}

enum sl_status sl_gpu_enter_to_end(struct sl_gpu *c) {
    if (c->lost)
        return SL_ERR_DEVICE_LOST;
    return sl_gpu_check(c, c->driver.ctx_set_current(c->ctx), "making the context current");
}

enum sl_status sl_gpu_enter(struct sl_gpu *c) {
    enum sl_status status = sl_gpu_came_whole(c);
    return status ? status : sl_gpu_enter_to_end(c);
}

/* Adds an attribute to what is known of a GPU; keeps the first error. */
uint32_t sl_gpu_attribute(const struct sl_gpu_driver *d, int device, int which, int *result) {
    int value = 0;
    int r = d->device_attribute(&value, which, device);
    if (r && !*result)
        *result = r;
    return r || value < 0 ? 0 : (uint32_t)value;
}

static int describe(const struct sl_gpu_kind *kind, const struct sl_gpu_driver *d, int device,
                    struct sl_gpu_info *out) {
    size_t total_bytes = 0;
    memset(out, 0, sizeof *out);
    int result = d->device_name(out->name, sizeof out->name, device);
    int memory_result = d->device_total_mem(&total_bytes, device);
    result = result ? result : memory_result;
    out->memory_bytes = total_bytes;
    out->n_sm = sl_gpu_attribute(d, device, SL_CU_ATTR_MULTIPROCESSORS, &result);
    out->integrated = sl_gpu_attribute(d, device, SL_CU_ATTR_INTEGRATED, &result) != 0;
    int unknown = 0;
    out->warp_size = sl_gpu_attribute(d, device, SL_CU_ATTR_WARP_SIZE, &unknown);
    int arch_result = kind->describe(d, device, out);
    return result ? result : arch_result;
}

/* What its memory moves at best, two transfers a cycle; 0 where the driver does not say. */
static uint64_t memory_rate(const struct sl_gpu_driver *d, int device) {
    int unknown = 0;
    uint64_t khz = sl_gpu_attribute(d, device, SL_CU_ATTR_MEMORY_KHZ, &unknown);
    uint64_t bits = sl_gpu_attribute(d, device, SL_CU_ATTR_MEMORY_BITS, &unknown);
    return unknown ? 0 : khz * 1000 * 2 * bits / 8;
}

/* How many GPUs the driver shows; none is an error. */
static enum sl_status count_devices(const struct sl_gpu_kind *kind, const struct sl_gpu_driver *d,
                                    uint32_t *out_n, struct sl_err *err) {
    char text[256];
    int n = 0, result = d->device_count(&n);
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "%s: cannot count the GPUs: %s", kind->name,
                       sl_gpu_result_text(d, result, text, sizeof text));
    if (n <= 0)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "%s: the driver is here but shows no GPU; is %s empty?", kind->name,
                       kind->visible);
    *out_n = (uint32_t)n;
    return SL_OK;
}

static enum sl_device_kind kind_of(const struct sl_gpu_info *info) {
    return info->integrated ? SL_DEVICE_INTEGRATED : SL_DEVICE_DISCRETE;
}

static void write_model(const struct sl_gpu_info *info, char out_model[SL_DEVICE_NAME_BYTES]) {
    snprintf(out_model, SL_DEVICE_NAME_BYTES, "%.40s, %.20s", info->name, info->arch);
}

/* One GPU as the registry lists it. */
static void find_one(const struct sl_gpu_kind *kind, const struct sl_gpu_driver *d,
                     uint32_t ordinal, struct sl_device_found *out) {
    struct sl_gpu_info info;
    char text[256];
    int device = 0, result = d->device_get(&device, (int)ordinal);
    *out = (struct sl_device_found){.memory_bytes = 0};
    sl_device_ref_id((struct sl_device_ref){kind->backend, ordinal}, out->id);
    if (!result)
        result = describe(kind, d, device, &info);
    if (result) {
        (void)!sl_fail(&out->why_not, SL_ERR_UNSUPPORTED, "%s:%u: %s", kind->name, ordinal,
                       sl_gpu_result_text(d, result, text, sizeof text));
        return;
    }
    write_model(&info, out->model);
    out->kind = kind_of(&info);
    out->memory_bytes = info.memory_bytes;
    if (!*kind->n_images)
        (void)!kind->no_kernels(&out->why_not);
    else
        (void)!kind->check(d, ordinal, &info, &out->why_not);
}

enum sl_status sl_gpu_enumerate(const struct sl_gpu_kind *kind, const char *driver_path,
                                struct sl_device_found *out_found, uint32_t max_found,
                                uint32_t *out_n, struct sl_err *err) {
    struct sl_gpu_driver driver;
    uint32_t n = 0;
    SL_TRY(kind->driver_open(driver_path, &driver, err));
    SL_TRY(count_devices(kind, &driver, &n, err));
    for (uint32_t i = 0; i < n && i < max_found; i++)
        find_one(kind, &driver, i, &out_found[i]);
    *out_n = n;
    return SL_OK;
}

uint64_t sl_gpu_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *limits) {
    return sl_gpu_ops_scratch_bytes((const struct sl_gpu *)d, limits);
}

enum sl_status sl_gpu_configure(struct sl_device *d, const struct sl_device_limits *limits) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    uint64_t bytes = sl_gpu_scratch_bytes(d, limits);
    void *scratch = NULL;
    if (bytes)
        SL_TRY(sl_gpu_alloc(d, bytes, &scratch));
    if (c->scratch)
        sl_gpu_free(d, c->scratch, c->scratch_bytes);
    c->scratch = scratch;
    c->scratch_bytes = bytes;
    return SL_OK;
}

void sl_gpu_close(struct sl_device *d) {
    struct sl_gpu *c = (struct sl_gpu *)d;
    if (c->ctx) { /* on a lost device each of these fails, and its end frees what there is */
        c->driver.ctx_set_current(c->ctx);
        for (int q = 0; q < SL_QUEUES; q++)
            if (c->queue[q].stream)
                c->driver.stream_sync(c->queue[q].stream);
        if (c->scratch)
            sl_gpu_free(d, c->scratch, c->scratch_bytes);
        if (c->counters)
            sl_gpu_free(d, c->counters, SL_GPU_COUNTERS * sizeof *c->counters);
        sl_gpu_staging_release(c);
        sl_gpu_modules_unload(c);
        sl_gpu_queues_release(c);
        c->driver.ctx_set_current(NULL);
        c->driver.ctx_release(c->device);
    }
    free(c);
}

static enum sl_status make_counters(struct sl_gpu *c) {
    static const uint32_t zeros[SL_GPU_COUNTERS];
    struct sl_buffer b = {.device = &c->base, .kind = SL_BUFFER_DEVICE, .bytes = sizeof zeros};
    SL_TRY(sl_gpu_buffer_alloc(&c->base, &b));
    c->counters = b.addr;
    return sl_gpu_upload(&c->base, sl_span_all(&b), zeros);
}

/* Finds the GPU that is asked for, and what this build can do with it. */
static enum sl_status find(struct sl_gpu *c, struct sl_gpu_info *out_info, struct sl_err *err) {
    const struct sl_gpu_driver *d = &c->driver;
    char text[256];
    uint32_t n = 0;
    SL_TRY(count_devices(c->kind, d, &n, err));
    if ((uint32_t)c->ordinal >= n)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "%s:%d: there %s %u GPU%s, numbered from 0",
                       c->name, c->ordinal, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    int result = d->device_get(&c->device, c->ordinal);
    if (!result)
        result = describe(c->kind, d, c->device, out_info);
    if (!result) {
        c->max_smem_bytes = sl_gpu_attribute(d, c->device, SL_CU_ATTR_MAX_SHARED_OPTIN, &result);
        c->base.caps.mapped_host =
            sl_gpu_attribute(d, c->device, SL_CU_ATTR_CAN_MAP_HOST, &result) != 0;
    }
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "%s:%d: %s", c->name, c->ordinal,
                       sl_gpu_result_text(d, result, text, sizeof text));
    SL_TRY(c->kind->check(d, (uint32_t)c->ordinal, out_info, err));
    snprintf(c->arch, sizeof c->arch, "%s", out_info->arch);
    c->n_sm = out_info->n_sm;
    c->kind->suit(c, out_info);
    return SL_OK;
}

/* The context, and what ops need in it. */
static enum sl_status start(struct sl_gpu *c, uint32_t staging_bytes,
                            const struct sl_gpu_info *info, struct sl_err *err) {
    const struct sl_gpu_driver *d = &c->driver;
    char text[256];
    int result = d->ctx_retain(&c->ctx, c->device);
    if (result) {
        c->ctx = NULL;
        return sl_fail(err, result == SL_CU_OUT_OF_MEMORY ? SL_ERR_DEVICE_OOM : SL_ERR_DEVICE_LOST,
                       "%s:%d: %s gives no context: %s", c->name, c->ordinal, info->name,
                       sl_gpu_result_text(d, result, text, sizeof text));
    }
    enum sl_status status = sl_gpu_enter(c);
    if (!status)
        status = sl_gpu_queues_init(c);
    if (status)
        return sl_fail(err, status, "%s:%d: %s gives no stream: %s", c->name, c->ordinal,
                       info->name, sl_status_text(status));
    SL_TRY(sl_gpu_modules_load(c, err));
    if (!staging_bytes)
        staging_bytes = DEFAULT_STAGING_BYTES;
    status = sl_gpu_staging_init(c, staging_bytes);
    if (status)
        return sl_fail(err, status, "%s:%d: cannot allocate %u KiB of staging: %s", c->name,
                       c->ordinal, staging_bytes >> 10, sl_status_text(status));
    status = make_counters(c);
    if (status)
        return sl_fail(err, status, "%s:%d: cannot allocate counters: %s", c->name, c->ordinal,
                       sl_status_text(status));
    return SL_OK;
}

void sl_gpu_caps(const struct sl_gpu *c, struct sl_device_caps *caps) {
    caps->graphs = caps->moe_placed = caps->mailbox = true;
    caps->moe_bias = caps->moe_as_host = caps->swiglu_clamped = caps->geglu = caps->extra_args =
        true;
    caps->swiglu_limited = caps->swiglu_cut = caps->reglu = caps->relu_squared = true;
    caps->sigmoid_topk = caps->latent_window = true;
    sl_gpu_ops_caps(c, caps);
}

/* What a started device says of itself. */
static void set_caps(struct sl_gpu *c, const struct sl_gpu_info *info) {
    struct sl_device_caps *caps = &c->base.caps;
    char version[32];
    write_model(info, caps->model);
    sl_device_caps_set_id(caps, c->name, (uint32_t)c->ordinal, false);
    snprintf(caps->arithmetic_id, sizeof caps->arithmetic_id, "%s: %.57s", c->name, caps->model);
    caps->kind = kind_of(info);
    caps->subgroup_width = info->warp_size;
    caps->shared_bytes = c->max_smem_bytes;
    caps->memory_bytes = info->memory_bytes;
    caps->held_bytes = (uint64_t)c->staging.segment_bytes * SL_GPU_STAGING_SEGMENTS +
                       SL_GPU_COUNTERS * sizeof(uint32_t);
    caps->memory_bytes_per_s = memory_rate(&c->driver, c->device);
    sl_gpu_caps(c, caps);
    caps->graphs = c->driver.graph_launch != NULL;
    c->kind->write_version(&c->driver, version, sizeof version);
    sl_debug("%s:%d: %s, %llu MiB, %s, %u multiprocessors, driver for %s %s", c->name, c->ordinal,
             info->name, (unsigned long long)(info->memory_bytes >> 20),
             info->integrated ? "integrated" : "discrete", info->n_sm, c->driver.runtime, version);
}

static double link_slowdown(void) {
    const char *text = getenv("SLUICE_TEST_LINK_SLOWDOWN");
    double times = text ? strtod(text, NULL) : 1;
    return times > 1 && times <= 100 ? times : 1;
}

enum sl_status sl_gpu_open(const struct sl_gpu_kind *kind, const char *driver_path,
                           uint32_t ordinal, uint32_t staging_bytes, struct sl_device **out_device,
                           struct sl_err *err) {
    if (!*kind->n_images)
        return kind->no_kernels(err);
    struct sl_gpu *c = calloc(1, sizeof *c);
    if (!c)
        return sl_fail(err, SL_ERR_NOMEM, "%s: out of memory", kind->name);
    enum sl_status status = kind->driver_open(driver_path, &c->driver, err);
    if (status) {
        free(c);
        return status;
    }
    c->base.ops = kind->ops;
    c->kind = kind;
    c->name = kind->name;
    c->ordinal = (int)ordinal;
    c->link_slowdown = link_slowdown();
    struct sl_gpu_info info;
    status = find(c, &info, err);
    if (!status)
        status = start(c, staging_bytes, &info, err);
    if (status) {
        sl_gpu_close(&c->base);
        return status;
    }
    set_caps(c, &info);
    *out_device = &c->base;
    return SL_OK;
}
