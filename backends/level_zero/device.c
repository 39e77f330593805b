/* Opening and closing a device, and what its errors mean. */
#include "backends/level_zero/level_zero_internal.h"
#include "backends/level_zero/ops.h"
#include "common/log.h"

#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_STAGING_BYTES (16u << 20)

enum sl_status sl_lz_check(struct sl_level_zero *z, ze_result_t result, const char *what) {
    char text[64];
    if (result == ZE_RESULT_SUCCESS)
        return SL_OK;
    if (z->lost) /* said once */
        return SL_ERR_DEVICE_LOST;
    sl_lz_result_text(result, text, sizeof text);
    switch ((uint32_t)result) {
    case ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY:
    case ZE_RESULT_ERROR_UNSUPPORTED_SIZE: /* of an allocation: the card has not so much in a row */
        sl_error("level_zero:%u: %s: %s", z->number, what, text);
        return SL_ERR_DEVICE_OOM;
    case ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY:
        sl_error("level_zero:%u: %s: %s", z->number, what, text);
        return SL_ERR_NOMEM;
    case ZE_RESULT_ERROR_MODULE_BUILD_FAILURE:
    case ZE_RESULT_ERROR_MODULE_LINK_FAILURE:
    case ZE_RESULT_ERROR_INVALID_NATIVE_BINARY:
    case ZE_RESULT_ERROR_INVALID_KERNEL_NAME:
        sl_error("level_zero:%u: the driver does not compile the kernel %s: %s", z->number, what,
                 text);
        return SL_ERR_UNSUPPORTED;
    default:
        z->lost = true;
        sl_error("level_zero:%u: %s: %s; the device is given up, restart to use it again",
                 z->number, what, text);
        return SL_ERR_DEVICE_LOST;
    }
}

void sl_lz_close(struct sl_device *d) {
    struct sl_level_zero *z = (struct sl_level_zero *)d;
    if (z->context) {
        if (z->queue[SL_QUEUES - 1].list)
            (void)!sl_lz_sync(d); /* a lost device says so, and frees what there is */
        sl_lz_memory_free(z, z->scratch, z->scratch_bytes);
        sl_lz_staging_release(z);
        sl_lz_kernels_release(z);
        sl_lz_queues_release(z);
        z->ze->ContextDestroy(z->context);
    }
    free(z);
}

static enum sl_status start(struct sl_level_zero *z, const struct sl_level_zero_config *config,
                            struct sl_err *err) {
    char text[64];
    uint32_t staging = config->staging_bytes ? config->staging_bytes : DEFAULT_STAGING_BYTES;
    const ze_context_desc_t context = {.stype = ZE_STRUCTURE_TYPE_CONTEXT_DESC};
    ze_result_t result = z->ze->ContextCreate(z->info.driver, &context, &z->context);
    if (result) {
        z->context = NULL;
        return sl_fail(err, SL_ERR_UNSUPPORTED, "level_zero:%u: %s does not open: %s", z->number,
                       z->info.name, sl_lz_result_text(result, text, sizeof text));
    }
    enum sl_status status = sl_lz_queues_init(z);
    if (status)
        return sl_fail(err, status, "level_zero:%u: %s gives no queues: %s", z->number,
                       z->info.name, sl_status_text(status));
    status = sl_lz_staging_init(z, staging);
    if (status)
        return sl_fail(err, status, "level_zero:%u: cannot allocate %u KiB of staging: %s",
                       z->number, staging >> 10, sl_status_text(status));
    return SL_OK;
}

static void set_caps(struct sl_level_zero *z) {
    struct sl_device_caps *caps = &z->base.caps;
    sl_lz_model(&z->info, caps->model);
    sl_device_caps_set_id(caps, sl_level_zero_ops.name, z->number, false);
    snprintf(caps->arithmetic_id, sizeof caps->arithmetic_id, "%s: %.50s", sl_level_zero_ops.name,
             caps->model);
    caps->kind = z->info.kind;
    caps->mapped_host = caps->graphs = true;
    caps->subgroup_width = z->info.subgroup_width;
    caps->shared_bytes = z->info.shared_bytes;
    caps->memory_bytes = z->info.memory_bytes;
    caps->max_alloc_bytes = z->info.max_alloc_bytes;
    caps->rows_alike = true; /* one kernel has generated and prompt rows */
    sl_lz_ops_caps(caps);
    sl_debug("level_zero:%u: %s, driver %u, %llu MiB, %s, buffers of at most %llu MiB, %u queue%s "
             "that compute%s, copies %s, %s",
             z->number, z->info.name, z->info.driver_version,
             (unsigned long long)(z->info.memory_bytes >> 20), sl_device_kind_name(z->info.kind),
             (unsigned long long)(z->info.max_alloc_bytes >> 20), z->info.n_queues,
             z->info.n_queues == 1 ? "" : "s", z->info.n_queues == 1 ? "s" : "",
             z->info.copy_ordinal == z->info.compute_ordinal ? "beside them"
                                                             : "by engines of their own",
             z->info.subgroups ? "products by " SL_LZ_SUBGROUPS_NEED
                               : "plain products: it lacks one of " SL_LZ_SUBGROUPS_NEED);
}

/* Finds the device that is asked for. */
static enum sl_status find(struct sl_level_zero *z, struct sl_err *err) {
    struct sl_lz_place places[SL_DEVICE_MAX_NUMBER + 1];
    struct sl_err why;
    uint32_t n = 0;
    SL_TRY(sl_lz_list(z->ze, places, SL_DEVICE_MAX_NUMBER + 1, &n, err));
    if (z->number >= n)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "level_zero:%u: there %s %u device%s, numbered from 0", z->number,
                       n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    sl_lz_describe(z->ze, places[z->number], z->number, &z->info, &why);
    return why.text[0] ? sl_fail(err, SL_ERR_UNSUPPORTED, "%s", why.text) : SL_OK;
}

enum sl_status sl_level_zero_open(const struct sl_level_zero_config *config,
                                  struct sl_device **out_device, struct sl_err *err) {
    struct sl_level_zero *z = calloc(1, sizeof *z);
    if (!z)
        return sl_fail(err, SL_ERR_NOMEM, "level_zero: out of memory");
    z->base.ops = &sl_level_zero_ops;
    z->number = config->number;
    enum sl_status status = sl_lz_loader_open(config->loader_path, &z->ze, err);
    if (!status)
        status = find(z, err);
    if (!status)
        status = start(z, config, err);
    if (status) {
        sl_lz_close(&z->base);
        return status;
    }
    set_caps(z);
    *out_device = &z->base;
    return SL_OK;
}

/* ---- the registry's entry ---- */

static enum sl_status enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err) {
    return sl_level_zero_enumerate(NULL, out, max, out_n, err);
}

static enum sl_status open_number(const struct sl_device_options *options, uint32_t number,
                                  struct sl_device **out_device, struct sl_err *err) {
    (void)options;
    return sl_level_zero_open(&(struct sl_level_zero_config){.number = number}, out_device, err);
}

/* named_only: no card has tried it yet (docs/GPU-SUPPORT.md). */
const struct sl_backend sl_level_zero_backend = {.name = "level_zero",
                                                 .devices = "Intel GPUs",
                                                 .named_only = true,
                                                 .enumerate = enumerate,
                                                 .open = open_number,
                                                 .planned = sl_lz_planned};
