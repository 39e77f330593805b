/* Which devices there are, and what this backend needs of one. */
#include "backends/level_zero/find.h"
#include "backends/level_zero/kernels.h"

#include <stdio.h>
#include <string.h>

#define MAX_DRIVERS      8u
#define MAX_MEMORIES     16u
#define MAX_QUEUE_GROUPS 16u
#define MAX_DEVICES      (SL_DEVICE_MAX_NUMBER + 1)

enum sl_status sl_lz_list(const struct sl_lz_loader *l, struct sl_lz_place *out, uint32_t max,
                          uint32_t *out_n, struct sl_err *err) {
    char text[64];
    ze_driver_handle_t drivers[MAX_DRIVERS];
    uint32_t n_drivers = MAX_DRIVERS, n = 0;
    ze_result_t result = l->DriverGet(&n_drivers, drivers);
    for (uint32_t i = 0; !result && i < n_drivers && n < max; i++) {
        ze_device_handle_t handles[MAX_DEVICES];
        uint32_t n_here = max - n; /* no more than there is room for */
        result = l->DeviceGet(drivers[i], &n_here, handles);
        for (uint32_t k = 0; !result && k < n_here; k++)
            out[n++] = (struct sl_lz_place){drivers[i], handles[k]};
    }
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "level_zero: cannot list the devices: %s",
                       sl_lz_result_text(result, text, sizeof text));
    if (!n)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "level_zero: the drivers here show no device");
    *out_n = n;
    return SL_OK;
}

static ze_result_t find_memory(const struct sl_lz_loader *l, struct sl_lz_info *info) {
    ze_device_memory_properties_t memory[MAX_MEMORIES];
    uint32_t n = MAX_MEMORIES;
    for (uint32_t i = 0; i < MAX_MEMORIES; i++)
        memory[i] =
            (ze_device_memory_properties_t){.stype = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES};
    ze_result_t result = l->DeviceGetMemoryProperties(info->handle, &n, memory);
    for (uint32_t i = 0; !result && i < n; i++)
        if (memory[i].totalSize > info->memory_bytes)
            info->memory_bytes = memory[i].totalSize;
    return result;
}

/* Groups that can do nothing but copy are the card's copy engines. */
static ze_result_t find_queues(const struct sl_lz_loader *l, struct sl_lz_info *info) {
    ze_command_queue_group_properties_t group[MAX_QUEUE_GROUPS];
    uint32_t n = MAX_QUEUE_GROUPS;
    for (uint32_t i = 0; i < MAX_QUEUE_GROUPS; i++)
        group[i] = (ze_command_queue_group_properties_t){
            .stype = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES};
    info->compute_ordinal = info->copy_ordinal = SL_LZ_NONE;
    ze_result_t result = l->DeviceGetCommandQueueGroupProperties(info->handle, &n, group);
    for (uint32_t i = 0; !result && i < n; i++) {
        bool computes = group[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE;
        bool copies = group[i].flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        if (computes && info->compute_ordinal == SL_LZ_NONE) {
            info->compute_ordinal = i;
            info->n_queues = group[i].numQueues;
        } else if (copies && !computes && info->copy_ordinal == SL_LZ_NONE) {
            info->copy_ordinal = i;
            info->n_copy_queues = group[i].numQueues;
        }
    }
    if (info->copy_ordinal == SL_LZ_NONE) {
        info->copy_ordinal = info->compute_ordinal;
        info->n_copy_queues = info->n_queues;
    }
    return result;
}

static ze_result_t find_properties(const struct sl_lz_loader *l, struct sl_lz_info *info,
                                   bool *out_is_gpu) {
    ze_driver_properties_t driver = {.stype = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES};
    ze_device_properties_t device = {.stype = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES};
    ze_device_compute_properties_t compute = {.stype = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES};
    ze_result_t result = l->DriverGetProperties(info->driver, &driver);
    if (!result)
        result = l->DeviceGetProperties(info->handle, &device);
    if (!result)
        result = l->DeviceGetComputeProperties(info->handle, &compute);
    if (result)
        return result;
    info->driver_version = driver.driverVersion;
    snprintf(info->name, sizeof info->name, "%s", device.name);
    info->kind = device.flags & ZE_DEVICE_PROPERTY_FLAG_INTEGRATED ? SL_DEVICE_INTEGRATED
                                                                   : SL_DEVICE_DISCRETE;
    info->max_alloc_bytes = device.maxMemAllocSize;
    info->shared_bytes = compute.maxSharedLocalMemory;
    info->max_group = compute.maxTotalGroupSize;
    info->max_groups = compute.maxGroupCountX;
    for (uint32_t i = 0; i < compute.numSubGroupSizes && i < ZE_SUBGROUPSIZE_COUNT; i++) {
        if (compute.subGroupSizes[i] > info->subgroup_width)
            info->subgroup_width = compute.subGroupSizes[i];
        info->subgroups = info->subgroups || compute.subGroupSizes[i] == SL_LZ_SUBGROUP;
    }
    *out_is_gpu = device.type == ZE_DEVICE_TYPE_GPU;
    return result;
}

/* What kernels need: addresses are arguments, and arithmetic rounds as its definitions say. Says
 * too whether those for subgroups will do. */
static const char *missing_feature(const struct sl_lz_loader *l, struct sl_lz_info *info) {
    ze_device_module_properties_t m = {.stype = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES};
    if (l->DeviceGetModuleProperties(info->handle, &m))
        return "a list of what its kernels may do";
    info->subgroups = info->subgroups && (m.flags & ZE_DEVICE_MODULE_FLAG_DP4A) &&
                      (m.flags & ZE_DEVICE_MODULE_FLAG_FP16) &&
                      (m.fp16flags & ZE_DEVICE_FP_FLAG_DENORM);
    if (m.spirvVersionSupported < (ze_api_version_t)ZE_MAKE_VERSION(1, 2))
        return "SPIR-V 1.2";
    if (!(m.fp32flags & ZE_DEVICE_FP_FLAG_FMA))
        return "an fma that rounds once";
    if (!(m.fp32flags & ZE_DEVICE_FP_FLAG_ROUND_TO_NEAREST))
        return "rounding to nearest";
    if (m.maxArgumentsSize < SL_LZ_ARGS_BYTES)
        return "room for a kernel's arguments";
    return NULL;
}

static void find_extensions(const struct sl_lz_loader *l, struct sl_lz_info *info) {
    void *import = NULL, *release = NULL;
    if (l->DriverGetExtensionFunctionAddress(info->driver, "zexDriverImportExternalPointer",
                                             &import) ||
        l->DriverGetExtensionFunctionAddress(info->driver, "zexDriverReleaseImportedPointer",
                                             &release) ||
        !import || !release)
        return;
    memcpy(&info->import, &import, sizeof import);
    memcpy(&info->release, &release, sizeof release);
}

void sl_lz_describe(const struct sl_lz_loader *l, struct sl_lz_place place, uint32_t number,
                    struct sl_lz_info *info, struct sl_err *why) {
    char text[64];
    const char *lacks;
    bool is_gpu = false;
    *why = (struct sl_err){{0}};
    *info = (struct sl_lz_info){.driver = place.driver, .handle = place.handle};
    ze_result_t result = find_properties(l, info, &is_gpu);
    if (!result)
        result = find_memory(l, info);
    if (!result)
        result = find_queues(l, info);
    find_extensions(l, info);
    if (result)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED,
                       "level_zero:%u: its driver does not describe it: %s", number,
                       sl_lz_result_text(result, text, sizeof text));
    else if (!is_gpu)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED, "level_zero:%u: it is no GPU", number);
    else if (!info->memory_bytes || !info->max_alloc_bytes)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED, "level_zero:%u: it has no memory of its own",
                       number);
    else if (info->compute_ordinal == SL_LZ_NONE)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED, "level_zero:%u: it has no queue that computes",
                       number);
    else if ((lacks = missing_feature(l, info)))
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED, "level_zero:%u: its driver lacks %s", number,
                       lacks);
    else if (info->shared_bytes < SL_LZ_SHARED_BYTES || info->max_group < SL_LZ_MAX_THREADS)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED,
                       "level_zero:%u: its groups have %u bytes of shared memory and %u threads; "
                       "kernels need %u and %u",
                       number, info->shared_bytes, info->max_group, SL_LZ_SHARED_BYTES,
                       SL_LZ_MAX_THREADS);
    else if (!info->import)
        (void)!sl_fail(
            why, SL_ERR_UNSUPPORTED,
            "level_zero:%u: its driver lacks zexDriverImportExternalPointer, by which it "
            "would use memory of the host's own",
            number);
    else if (info->kind == SL_DEVICE_INTEGRATED)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED,
                       "level_zero:%u: integrated GPUs are not supported yet: plans would count "
                       "the memory that they share with the host twice",
                       number);
}

void sl_lz_model(const struct sl_lz_info *info, char out_model[SL_DEVICE_NAME_BYTES]) {
    snprintf(out_model, SL_DEVICE_NAME_BYTES, "%.34s, driver %u, %s", info->name,
             info->driver_version, info->subgroups ? "dp4a" : "plain");
}

enum sl_status sl_level_zero_enumerate(const char *loader_path, struct sl_device_found *out_found,
                                       uint32_t max_found, uint32_t *out_n, struct sl_err *err) {
    const struct sl_lz_loader *loader = NULL;
    struct sl_lz_place places[MAX_DEVICES];
    struct sl_lz_info info;
    uint32_t n = 0;
    SL_TRY(sl_lz_loader_open(loader_path, &loader, err));
    SL_TRY(sl_lz_list(loader, places, MAX_DEVICES, &n, err));
    for (uint32_t i = 0; i < n && i < max_found; i++) {
        struct sl_device_found *found = &out_found[i];
        *found = (struct sl_device_found){.memory_bytes = 0};
        sl_device_ref_id((struct sl_device_ref){&sl_level_zero_backend, i}, found->id);
        sl_lz_describe(loader, places[i], i, &info, &found->why_not);
        sl_lz_model(&info, found->model);
        found->kind = info.kind;
        found->memory_bytes = info.memory_bytes;
    }
    *out_n = n;
    return SL_OK;
}
