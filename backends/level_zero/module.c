/* Kernels: from the embedded SPIR-V to a launch. */
#include "backends/level_zero/level_zero_internal.h"
#include "backends/level_zero/modules.h"
#include "common/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Groups of one dimension of a launch, below what cards allow. */
#define MAX_GROUPS 65535u

static const struct {
    const char *name;
    uint32_t threads;
    bool typed;
} kernels[] = {
#define ENTRY(name, threads, typed) {#name, threads, typed},
    SL_LZ_KERNELS(ENTRY)
#undef ENTRY
};

static const struct sl_level_zero_module *find(enum sl_lz_kernel kernel, uint32_t type) {
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", kernels[kernel].name, kernels[kernel].typed ? "." : "",
             kernels[kernel].typed ? sl_dtype_info(type)->name : "");
    for (uint64_t i = 0; i < sl_level_zero_n_modules; i++)
        if (strcmp(sl_level_zero_modules[i].name, name) == 0)
            return &sl_level_zero_modules[i];
    return NULL;
}

bool sl_lz_has_kernel(enum sl_lz_kernel kernel, enum sl_dtype t) {
    return sl_dtype_info((uint32_t)t) && find(kernel, (uint32_t)t);
}

void sl_lz_kernels_release(struct sl_level_zero *z) {
    for (uint32_t k = 0; k < SL_LZ_KERNEL_COUNT; k++)
        for (uint32_t t = 0; t < SL_DTYPE_COUNT; t++) {
            if (z->kernel[k][t])
                z->ze->KernelDestroy(z->kernel[k][t]);
            if (z->module[k][t])
                z->ze->ModuleDestroy(z->module[k][t]);
        }
}

/* What the driver's compiler said, in the log. */
static void log_build(struct sl_level_zero *z, ze_module_build_log_handle_t log, const char *name) {
    size_t bytes = 0;
    char *text = NULL;
    if (z->ze->ModuleBuildLogGetString(log, &bytes, NULL) == ZE_RESULT_SUCCESS && bytes > 1)
        text = calloc(1, bytes + 1);
    if (text && z->ze->ModuleBuildLogGetString(log, &bytes, text) == ZE_RESULT_SUCCESS)
        sl_warn("level_zero:%u: %s: %s", z->number, name, text);
    free(text);
}

static enum sl_status make_module(struct sl_level_zero *z, const struct sl_level_zero_module *m,
                                  ze_module_handle_t *out_module) {
    ze_module_build_log_handle_t log = NULL;
    const ze_module_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
                                   .format = ZE_MODULE_FORMAT_IL_SPIRV,
                                   .inputSize = m->bytes,
                                   .pInputModule = m->spirv};
    ze_result_t result = z->ze->ModuleCreate(z->context, z->info.handle, &desc, out_module, &log);
    if (result)
        *out_module = NULL;
    if (log) {
        if (result)
            log_build(z, log, m->name);
        z->ze->ModuleBuildLogDestroy(log);
    }
    return sl_lz_check(z, result, m->name);
}

static enum sl_status make(struct sl_level_zero *z, enum sl_lz_kernel kernel, uint32_t type) {
    const struct sl_level_zero_module *m = find(kernel, type);
    if (!m) {
        sl_error("level_zero: the embedded kernels lack %s: the build is incomplete",
                 kernels[kernel].name);
        return SL_ERR_UNSUPPORTED;
    }
    if (!z->module[kernel][type])
        SL_TRY(make_module(z, m, &z->module[kernel][type]));
    const ze_kernel_desc_t desc = {.stype = ZE_STRUCTURE_TYPE_KERNEL_DESC,
                                   .pKernelName = kernels[kernel].name};
    ze_kernel_handle_t made = NULL;
    SL_TRY(sl_lz_check(z, z->ze->KernelCreate(z->module[kernel][type], &desc, &made), m->name));
    /* Addresses are within the argument: the driver cannot see what a kernel will reach. */
    ze_result_t result = z->ze->KernelSetIndirectAccess(
        made, ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE | ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST);
    if (!result)
        result = z->ze->KernelSetGroupSize(made, kernels[kernel].threads, 1, 1);
    if (result)
        z->ze->KernelDestroy(made);
    else
        z->kernel[kernel][type] = made;
    return sl_lz_check(z, result, m->name);
}

enum sl_status sl_lz_launch(struct sl_level_zero *z, enum sl_lz_kernel kernel, uint32_t type,
                            uint64_t n_groups, const void *args, size_t args_bytes) {
    assert(args_bytes <= SL_LZ_ARGS_BYTES && type < SL_DTYPE_COUNT && n_groups);
    ze_command_list_handle_t list;
    if (z->lost)
        return SL_ERR_DEVICE_LOST;
    if (!z->kernel[kernel][type])
        SL_TRY(make(z, kernel, type));
    /* Kernels number their groups over both dimensions and leave those that are too many. */
    uint64_t y = sl_div_up(n_groups, MAX_GROUPS), x = sl_div_up(n_groups, (uint32_t)y);
    if (y > MAX_GROUPS) {
        sl_error("level_zero:%u: %s: %llu groups", z->number, kernels[kernel].name,
                 (unsigned long long)n_groups);
        return SL_ERR_INVALID;
    }
    SL_TRY(sl_lz_list_for(z, SL_QUEUE_OPS, &list));
    const ze_group_count_t groups = {(uint32_t)x, (uint32_t)y, 1};
    ze_result_t result =
        z->ze->KernelSetArgumentValue(z->kernel[kernel][type], 0, args_bytes, args);
    if (!result)
        result = z->ze->CommandListAppendLaunchKernel(list, z->kernel[kernel][type], &groups, NULL,
                                                      0, NULL);
    z->base.n_kernels++;
    return sl_lz_check(z, result, kernels[kernel].name);
}
