/* Opening and closing a device, and what its errors mean. */
#include "backends/vulkan/ops.h"
#include "backends/vulkan/times.h"
#include "backends/vulkan/vulkan_internal.h"
#include "common/log.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_STAGING_BYTES (16u << 20)

enum sl_status sl_vk_check(struct sl_vulkan *v, VkResult result, const char *what) {
    char text[64];
    if (result == VK_SUCCESS)
        return SL_OK;
    if (v->lost) /* said once */
        return SL_ERR_DEVICE_LOST;
    sl_vk_result_text(result, text, sizeof text);
    switch (result) {
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        sl_error("vulkan:%u: %s: %s", v->number, what, text);
        return SL_ERR_DEVICE_OOM;
    case VK_ERROR_OUT_OF_HOST_MEMORY:
    case VK_ERROR_MEMORY_MAP_FAILED:
        sl_error("vulkan:%u: %s: %s", v->number, what, text);
        return SL_ERR_NOMEM;
    case VK_ERROR_TOO_MANY_OBJECTS:
    case VK_ERROR_INVALID_EXTERNAL_HANDLE:
        sl_error("vulkan:%u: %s: refused: %s", v->number, what, text);
        return SL_ERR_INVALID;
    default:
        v->lost = true;
        sl_error("vulkan:%u: %s: %s; the device is given up, restart to use it again", v->number,
                 what, text);
        return SL_ERR_DEVICE_LOST;
    }
}

void sl_vk_close(struct sl_device *d) {
    struct sl_vulkan *v = (struct sl_vulkan *)d;
    if (v->device) {
        v->vk.DeviceWaitIdle(v->device); /* a lost device says so, and frees what there is */
        sl_vk_memory_free(v, &v->scratch);
        sl_vk_memory_free(v, &v->grids);
        sl_vk_memory_free(v, &v->staging.m);
        sl_vk_times_release(v);
        sl_vk_pipelines_release(v);
        sl_vk_queues_release(v);
        v->vk.DestroyDevice(v->device, NULL);
    }
    sl_vk_instance_close(&v->instance);
    free(v);
}

static enum sl_status create(struct sl_vulkan *v, struct sl_err *err) {
    char text[64];
    const float priorities[SL_QUEUES] = {1, 1, 1};
    const char *extensions[3] = {VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME};
    uint32_t n_extensions = 1;
    bool matrices = v->info.matrix_k || v->info.half_matrices;
    if (v->info.has_budget)
        extensions[n_extensions++] = VK_EXT_MEMORY_BUDGET_EXTENSION_NAME;
    if (matrices)
        extensions[n_extensions++] = VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME;
    bool own_copy_family = v->info.copy_family != v->info.family;
    uint32_t n = own_copy_family ? 1 : v->info.n_queues, n_copies = v->info.n_copy_queues;
    const VkDeviceQueueCreateInfo queues[] = {
        {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
         .queueFamilyIndex = v->info.family,
         .queueCount = n < SL_QUEUES ? n : SL_QUEUES,
         .pQueuePriorities = priorities},
        {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
         .queueFamilyIndex = v->info.copy_family,
         .queueCount = n_copies < SL_QUEUES - 1 ? n_copies : SL_QUEUES - 1,
         .pQueuePriorities = priorities}};
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR of_matrices = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR,
        .cooperativeMatrix = true};
    VkPhysicalDeviceVulkan13Features f13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES,
        .pNext = matrices ? &of_matrices : NULL,
        .subgroupSizeControl = matrices,
        .computeFullSubgroups = matrices,
        .synchronization2 = true,
        .shaderIntegerDotProduct = true,
        .maintenance4 = true /* how modules for Vulkan 1.3 state the size of workgroups */};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
        .pNext = &f13,
        .bufferDeviceAddress = true,
        .timelineSemaphore = true,
        .vulkanMemoryModel = matrices,
        .shaderFloat16 = matrices,
        .storageBuffer8BitAccess = true,
        .shaderInt8 = true};
    VkPhysicalDeviceVulkan11Features f11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
        .pNext = &f12,
        .storageBuffer16BitAccess = true};
    const VkPhysicalDeviceFeatures2 features = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
        .pNext = &f11,
        .features = {
            .shaderInt64 = true, .shaderInt16 = true, .shaderFloat64 = v->info.has_float64}};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &features,
                                     .queueCreateInfoCount = own_copy_family ? 2 : 1,
                                     .pQueueCreateInfos = queues,
                                     .enabledExtensionCount = n_extensions,
                                     .ppEnabledExtensionNames = extensions};
    VkResult result = v->instance.CreateDevice(v->info.handle, &info, NULL, &v->device);
    if (result) {
        v->device = NULL;
        return sl_fail(
            err, result == VK_ERROR_OUT_OF_DEVICE_MEMORY ? SL_ERR_DEVICE_OOM : SL_ERR_UNSUPPORTED,
            "vulkan:%u: %s does not open: %s", v->number, v->info.name,
            sl_vk_result_text(result, text, sizeof text));
    }
    VkDevice device = v->device;
    enum sl_status status = sl_vk_functions_find(&v->instance, device, &v->vk, err);
    if (status && !(v->vk.DestroyDevice && v->vk.DeviceWaitIdle))
        v->device = NULL; /* nothing can be done with it */
    return status;
}

/* Runs a kernel that shows whether fma rounds once. Results of products are defined with such an
 * fma; a device without it computes it in doubles. */
static enum sl_status probe(struct sl_vulkan *v, struct sl_err *err) {
    struct sl_buffer *y = NULL;
    uint32_t got[2] = {0};
    v->fused_fma = true; /* the form that needs no doubles */
    enum sl_status status = sl_device_alloc(&v->base, sizeof got, &y);
    if (!status) {
        const struct sl_vk_probe args = {sl_addr_of(y->addr)};
        status = SL_VK_LAUNCH(v, probe, 0, 1, args);
    }
    if (!status)
        status = sl_device_download(&v->base, got, sl_span_all(y));
    sl_device_free(&v->base, &y);
    if (status)
        return sl_fail(err, status, "vulkan:%u: the first kernel does not run: %s", v->number,
                       sl_status_text(status));
    v->fused_fma = got[0] == 1;
    v->emulate_matrices = getenv("SLUICE_TEST_EMULATED_MATRICES") != NULL;
    if (!v->fused_fma && !v->info.has_float64)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "vulkan:%u: its fma rounds twice, and it has no doubles to do better",
                       v->number);
    sl_debug("vulkan:%u: fma %s", v->number,
             v->fused_fma ? "rounds once" : "rounds twice: computed in doubles");
    return SL_OK;
}

static enum sl_status start(struct sl_vulkan *v, const struct sl_vulkan_config *config,
                            struct sl_err *err) {
    uint32_t staging_bytes = config->staging_bytes ? config->staging_bytes : DEFAULT_STAGING_BYTES;
    SL_TRY(create(v, err));
    enum sl_status status = sl_vk_queues_init(v);
    if (status)
        return sl_fail(err, status, "vulkan:%u: %s gives no queues: %s", v->number, v->info.name,
                       sl_status_text(status));
    status = sl_vk_times_init(v);
    if (!status)
        status = sl_vk_pipelines_init(v);
    if (status)
        return sl_fail(err, status, "vulkan:%u: the kernels do not load: %s", v->number,
                       sl_status_text(status));
    status = sl_vk_staging_init(v, staging_bytes);
    if (status)
        return sl_fail(err, status, "vulkan:%u: cannot allocate %u KiB of staging: %s", v->number,
                       staging_bytes >> 10, sl_status_text(status));
    SL_TRY(probe(v, err));
    status = sl_vk_grids_init(v);
    if (status)
        return sl_fail(err, status, "vulkan:%u: the tables of tensor types do not load: %s",
                       v->number, sl_status_text(status));
    return SL_OK;
}

static void set_caps(struct sl_vulkan *v) {
    struct sl_device_caps *caps = &v->base.caps;
    sl_vk_model(&v->info, caps->model);
    sl_device_caps_set_id(caps, sl_vulkan_ops.name, v->number, false);
    snprintf(caps->arithmetic_id, sizeof caps->arithmetic_id, "%s: %.55s", sl_vulkan_ops.name,
             caps->model);
    caps->kind = v->info.kind;
    caps->mapped_host = true;
    caps->graphs = true;
    caps->subgroup_width = v->info.subgroup_width;
    caps->shared_bytes = v->info.shared_bytes;
    caps->memory_bytes = v->info.memory_bytes;
    caps->held_bytes = v->grids.bytes;
    caps->max_alloc_bytes = v->info.max_alloc_bytes;
    sl_vk_ops_caps(caps);
    caps->rows_alike = !sl_vk_has_prompt_attention(v, 0);
    sl_debug("vulkan:%u: %s, %s, %llu MiB, %s, memory types %u and %u for staging, buffers of at "
             "most %llu MiB, %u queue%s",
             v->number, v->info.name, v->info.driver,
             (unsigned long long)(v->info.memory_bytes >> 20),
             v->info.software ? "software" : sl_device_kind_name(v->info.kind), v->info.device_type,
             v->info.host_type, (unsigned long long)(v->info.max_alloc_bytes >> 20),
             v->info.n_queues, v->info.n_queues == 1 ? "" : "s");
}

/* Finds the device that is asked for. */
static enum sl_status find(struct sl_vulkan *v, struct sl_err *err) {
    VkPhysicalDevice handles[SL_DEVICE_MAX_NUMBER + 1];
    struct sl_err why;
    uint32_t n = 0;
    SL_TRY(sl_vk_list(&v->instance, handles, SL_DEVICE_MAX_NUMBER + 1, &n, err));
    if (v->number >= n)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan:%u: there %s %u device%s, numbered from 0",
                       v->number, n == 1 ? "is" : "are", n, n == 1 ? "" : "s");
    sl_vk_describe(&v->instance, handles[v->number], v->number, &v->info, &why);
    return why.text[0] ? sl_fail(err, SL_ERR_UNSUPPORTED, "%s", why.text) : SL_OK;
}

enum sl_status sl_vulkan_open(const struct sl_vulkan_config *config, struct sl_device **out_device,
                              struct sl_err *err) {
    struct sl_vulkan *v = calloc(1, sizeof *v);
    if (!v)
        return sl_fail(err, SL_ERR_NOMEM, "vulkan: out of memory");
    v->base.ops = &sl_vulkan_ops;
    v->number = config->number;
    enum sl_status status = sl_vk_instance_open(config->loader_path, &v->instance, err);
    if (!status)
        status = find(v, err);
    if (!status)
        status = start(v, config, err);
    if (status) {
        sl_vk_close(&v->base);
        return status;
    }
    set_caps(v);
    *out_device = &v->base;
    return SL_OK;
}

/* ---- the registry's entry ---- */

static enum sl_status enumerate(struct sl_device_found *out, uint32_t max, uint32_t *out_n,
                                struct sl_err *err) {
    return sl_vulkan_enumerate(NULL, out, max, out_n, err);
}

static enum sl_status open_number(const struct sl_device_options *options, uint32_t number,
                                  struct sl_device **out_device, struct sl_err *err) {
    (void)options;
    return sl_vulkan_open(&(struct sl_vulkan_config){.number = number}, out_device, err);
}

/* The kernel's interfaces to GPUs: drivers on the CPU alone are not worth starting unasked, as they
 * take some 200 MiB. */
static bool may_be_here(struct sl_err *why_not) {
    static const char *const files[] = {"/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/dxg",
                                        "/dev/mali*"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        glob_t found = {0};
        bool any = glob(files[i], GLOB_NOSORT, NULL, &found) == 0 && found.gl_pathc;
        globfree(&found);
        if (any)
            return true;
    }
    (void)!sl_fail(why_not, SL_ERR_UNSUPPORTED, "vulkan: the kernel shows no GPU");
    return false;
}

const struct sl_backend sl_vulkan_backend = {.name = "vulkan",
                                             .devices = "GPUs with a driver for Vulkan 1.3",
                                             .may_be_here = may_be_here,
                                             .enumerate = enumerate,
                                             .open = open_number,
                                             .planned = sl_vk_planned};
