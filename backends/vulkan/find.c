/* Which devices there are, and what this backend needs of one. */
#include "backends/vulkan/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum sl_status sl_vk_list(const struct sl_vk_instance *in, VkPhysicalDevice *out_handles,
                          uint32_t max, uint32_t *out_n, struct sl_err *err) {
    char text[64];
    uint32_t n = max;
    VkResult result = in->EnumeratePhysicalDevices(in->handle, &n, out_handles);
    if (result && result != VK_INCOMPLETE)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan: cannot list the devices: %s",
                       sl_vk_result_text(result, text, sizeof text));
    if (!n)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan: the drivers here show no device");
    *out_n = n;
    return SL_OK;
}

static bool has_extension(const VkExtensionProperties *list, uint32_t n, const char *name) {
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i].extensionName, name) == 0)
            return true;
    return false;
}

/* Memory types are ordered by the driver so that the first that fits is the best. */
static void find_memory(const struct sl_vk_instance *in, struct sl_vk_info *info) {
    VkPhysicalDeviceMemoryProperties2 memory = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    in->GetPhysicalDeviceMemoryProperties2(info->handle, &memory);
    const VkPhysicalDeviceMemoryProperties *m = &memory.memoryProperties;
    const VkMemoryPropertyFlags staging =
        VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    info->device_type = info->host_type = SL_VK_NONE;
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->memoryTypeCount; i++) {
        VkMemoryPropertyFlags flags = m->memoryTypes[i].propertyFlags;
        uint64_t heap_bytes = m->memoryHeaps[m->memoryTypes[i].heapIndex].size;
        if (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT && heap_bytes > most) {
            most = heap_bytes;
            info->device_type = i;
        }
        bool cached = flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
        if ((flags & staging) == staging && (info->host_type == SL_VK_NONE || cached)) {
            bool had =
                info->host_type != SL_VK_NONE &&
                m->memoryTypes[info->host_type].propertyFlags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
            info->host_type = had ? info->host_type : i;
        }
    }
    info->memory_bytes = most;
    if (info->device_type != SL_VK_NONE)
        info->device_heap = m->memoryTypes[info->device_type].heapIndex;
    if (info->host_type != SL_VK_NONE)
        info->host_heap = m->memoryTypes[info->host_type].heapIndex;
}

/* Queues that can do nothing but copy are the card's copy engines. */
static void find_queues(const struct sl_vk_instance *in, struct sl_vk_info *info) {
    VkQueueFamilyProperties family[16];
    uint32_t n = 16;
    in->GetPhysicalDeviceQueueFamilyProperties(info->handle, &n, family);
    info->family = info->copy_family = SL_VK_NONE;
    for (uint32_t i = 0; i < n; i++) {
        VkQueueFlags flags = family[i].queueFlags;
        if (flags & VK_QUEUE_COMPUTE_BIT && info->family == SL_VK_NONE) {
            info->family = i;
            info->n_queues = family[i].queueCount;
        }
        if (flags & VK_QUEUE_TRANSFER_BIT && info->copy_family == SL_VK_NONE &&
            !(flags & (VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT)) &&
            !(flags & ~(VkQueueFlags)(VK_QUEUE_TRANSFER_BIT | VK_QUEUE_SPARSE_BINDING_BIT))) {
            info->copy_family = i;
            info->n_copy_queues = family[i].queueCount;
        }
    }
    if (info->copy_family == SL_VK_NONE) {
        info->copy_family = info->family;
        info->n_copy_queues = info->n_queues;
    }
}

/* shaders/matrix.glsl: what it needs but the extension, and the sizes. */
static void find_matrices(const struct sl_vk_instance *in, struct sl_vk_info *info) {
    VkPhysicalDeviceCooperativeMatrixFeaturesKHR matrices = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR};
    VkPhysicalDeviceVulkan13Features f13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES, .pNext = &matrices};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &f13};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &f12};
    VkPhysicalDeviceVulkan13Properties p13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &p13};
    uint32_t n = 0;
    in->GetPhysicalDeviceFeatures2(info->handle, &f);
    in->GetPhysicalDeviceProperties2(info->handle, &p);
    if (!matrices.cooperativeMatrix || !f12.vulkanMemoryModel || !f12.shaderFloat16 ||
        !f13.subgroupSizeControl || !f13.computeFullSubgroups ||
        !(p13.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) ||
        p13.minSubgroupSize > SL_VK_MATRIX_SUBGROUP ||
        p13.maxSubgroupSize < SL_VK_MATRIX_SUBGROUP ||
        in->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(info->handle, &n, NULL) || !n)
        return;
    VkCooperativeMatrixPropertiesKHR *list = calloc(n, sizeof *list);
    for (uint32_t i = 0; list && i < n; i++)
        list[i].sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
    if (list && in->GetPhysicalDeviceCooperativeMatrixPropertiesKHR(info->handle, &n, list) < 0)
        n = 0;
    for (uint32_t i = 0; list && i < n; i++) {
        const VkCooperativeMatrixPropertiesKHR *m = &list[i];
        if (m->MSize != 16 || m->NSize != 16 || m->scope != VK_SCOPE_SUBGROUP_KHR ||
            m->saturatingAccumulation)
            continue;
        if (m->AType == VK_COMPONENT_TYPE_SINT8_KHR && m->BType == m->AType &&
            m->CType == VK_COMPONENT_TYPE_SINT32_KHR && m->ResultType == m->CType &&
            (m->KSize == 16 || m->KSize == 32) && m->KSize > info->matrix_k)
            info->matrix_k = m->KSize;
        if (m->AType == VK_COMPONENT_TYPE_FLOAT16_KHR && m->BType == m->AType &&
            m->CType == VK_COMPONENT_TYPE_FLOAT32_KHR && m->ResultType == m->CType &&
            m->KSize == 16)
            info->half_matrices = true;
    }
    free(list);
}

/* Each of these is used by some shader or by the way in which memory is reached. */
static const char *missing_feature(const struct sl_vk_instance *in, struct sl_vk_info *info) {
    VkPhysicalDeviceVulkan13Features f13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES};
    VkPhysicalDeviceVulkan12Features f12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, .pNext = &f13};
    VkPhysicalDeviceVulkan11Features f11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &f12};
    VkPhysicalDeviceFeatures2 f = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2,
                                   .pNext = &f11};
    in->GetPhysicalDeviceFeatures2(info->handle, &f);
    info->has_float64 = f.features.shaderFloat64;
    const struct {
        VkBool32 there;
        const char *name;
    } needed[] = {{f12.bufferDeviceAddress, "bufferDeviceAddress"},
                  {f12.timelineSemaphore, "timelineSemaphore"},
                  {f12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
                  {f12.shaderInt8, "shaderInt8"},
                  {f11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
                  {f.features.shaderInt16, "shaderInt16"},
                  {f.features.shaderInt64, "shaderInt64"},
                  {f13.synchronization2, "synchronization2"},
                  {f13.maintenance4, "maintenance4"},
                  {f13.shaderIntegerDotProduct, "shaderIntegerDotProduct"}};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!needed[i].there)
            return needed[i].name;
    return NULL;
}

static const char *missing_extension(const struct sl_vk_instance *in, struct sl_vk_info *info) {
    uint32_t n = 0;
    const char *host = VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME;
    if (in->EnumerateDeviceExtensionProperties(info->handle, NULL, &n, NULL))
        return "a list of its extensions";
    VkExtensionProperties *list = calloc(n + 1, sizeof *list);
    bool there = list &&
                 in->EnumerateDeviceExtensionProperties(info->handle, NULL, &n, list) >= 0 &&
                 has_extension(list, n, host);
    info->has_budget = there && has_extension(list, n, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (there && in->GetPhysicalDeviceCooperativeMatrixPropertiesKHR &&
        has_extension(list, n, VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME))
        find_matrices(in, info);
    free(list);
    return there ? NULL : host;
}

static void find_properties(const struct sl_vk_instance *in, struct sl_vk_info *info,
                            uint32_t *out_version) {
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT};
    VkPhysicalDeviceVulkan13Properties p13 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_PROPERTIES, .pNext = &host};
    VkPhysicalDeviceVulkan12Properties p12 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES, .pNext = &p13};
    VkPhysicalDeviceVulkan11Properties p11 = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &p12};
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                     .pNext = &p11};
    in->GetPhysicalDeviceProperties2(info->handle, &p);
    VkPhysicalDeviceType type = p.properties.deviceType;
    snprintf(info->name, sizeof info->name, "%s", p.properties.deviceName);
    snprintf(info->driver, sizeof info->driver, "%.*s", (int)strcspn(p12.driverInfo, "("),
             p12.driverInfo);
    for (size_t n = strlen(info->driver); n && info->driver[n - 1] == ' '; n--)
        info->driver[n - 1] = 0;
    info->software = type == VK_PHYSICAL_DEVICE_TYPE_CPU;
    info->kind =
        type == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU ? SL_DEVICE_INTEGRATED : SL_DEVICE_DISCRETE;
    info->subgroup_width = p11.subgroupSize;
    info->cache_key = (struct sl_vk_cache_key){.vendor = p.properties.vendorID,
                                               .device = p.properties.deviceID,
                                               .driver_version = p.properties.driverVersion};
    memcpy(info->cache_key.uuid, p.properties.pipelineCacheUUID, sizeof info->cache_key.uuid);
    info->shared_bytes = p.properties.limits.maxComputeSharedMemorySize;
    if (p.properties.limits.timestampComputeAndGraphics)
        info->ns_per_tick = p.properties.limits.timestampPeriod;
    if (p12.denormBehaviorIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE)
        info->float_modes.denormals = p12.shaderDenormPreserveFloat32;
    if (p12.roundingModeIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE)
        info->float_modes.nearest_even = p12.shaderRoundingModeRTEFloat32;
    info->float_modes.inf_nan_zero = p12.shaderSignedZeroInfNanPreserveFloat32;
    info->max_alloc_bytes = p11.maxMemoryAllocationSize;
    if (p13.maxBufferSize && p13.maxBufferSize < info->max_alloc_bytes)
        info->max_alloc_bytes = p13.maxBufferSize;
    info->import_align_bytes = host.minImportedHostPointerAlignment;
    *out_version = p.properties.apiVersion;
}

void sl_vk_describe(const struct sl_vk_instance *in, VkPhysicalDevice handle, uint32_t number,
                    struct sl_vk_info *info, struct sl_err *why) {
    VkPhysicalDeviceProperties2 p = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2};
    const char *lacks;
    uint32_t version = 0;
    *info = (struct sl_vk_info){.handle = handle};
    why->text[0] = 0;
    in->GetPhysicalDeviceProperties2(handle, &p);
    version = p.properties.apiVersion;
    if (version >= VK_API_VERSION_1_3)
        find_properties(in, info, &version);
    else
        snprintf(info->name, sizeof info->name, "%s", p.properties.deviceName);
    find_memory(in, info);
    find_queues(in, info);
    if (version < VK_API_VERSION_1_3)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED,
                       "vulkan:%u: its driver has Vulkan %u.%u; 1.3 is the least", number,
                       VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    else if ((lacks = missing_feature(in, info)) || (lacks = missing_extension(in, info)))
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED, "vulkan:%u: its driver lacks %s", number, lacks);
    else if (info->device_type == SL_VK_NONE || info->host_type == SL_VK_NONE)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED, "vulkan:%u: it has no memory %s", number,
                       info->device_type == SL_VK_NONE ? "of its own" : "for staging");
    else if (info->family == SL_VK_NONE)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED, "vulkan:%u: it has no queue that computes", number);
    else if (info->kind == SL_DEVICE_INTEGRATED)
        (void)!sl_fail(why, SL_ERR_UNSUPPORTED,
                       "vulkan:%u: integrated GPUs are not supported yet: plans would count the "
                       "memory that they share with the host twice",
                       number);
}

void sl_vk_model(const struct sl_vk_info *info, char out_model[SL_DEVICE_NAME_BYTES]) {
    snprintf(out_model, SL_DEVICE_NAME_BYTES, "%.32s, %.16s", info->name, info->driver);
}

enum sl_status sl_vulkan_enumerate(const char *loader_path, struct sl_device_found *out_found,
                                   uint32_t max_found, uint32_t *out_n, struct sl_err *err) {
    struct sl_vk_instance in = {0};
    VkPhysicalDevice handles[SL_DEVICE_MAX_NUMBER + 1];
    struct sl_vk_info info;
    uint32_t n = 0;
    SL_TRY(sl_vk_instance_open(loader_path, &in, err));
    enum sl_status status = sl_vk_list(&in, handles, SL_DEVICE_MAX_NUMBER + 1, &n, err);
    for (uint32_t i = 0; !status && i < n && i < max_found; i++) {
        struct sl_device_found *found = &out_found[i];
        *found = (struct sl_device_found){.memory_bytes = 0};
        sl_device_ref_id((struct sl_device_ref){&sl_vulkan_backend, i}, found->id);
        sl_vk_describe(&in, handles[i], i, &info, &found->why_not);
        sl_vk_model(&info, found->model);
        found->kind = info.kind;
        found->software = info.software;
        found->memory_bytes = info.memory_bytes;
    }
    sl_vk_instance_close(&in);
    if (!status)
        *out_n = n;
    return status;
}
