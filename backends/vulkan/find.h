/* What is known of a device before it is opened, and whether it can be used. */
#ifndef SL_BACKENDS_VULKAN_FIND_H
#define SL_BACKENDS_VULKAN_FIND_H

#include "backends/vulkan/cache.h"
#include "backends/vulkan/driver.h"
#include "backends/vulkan/spirv.h"
#include "backends/vulkan/vulkan.h"

#define SL_VK_NONE UINT32_MAX
/* Invocations that share a cooperative matrix: shaders/matrix.glsl. */
#define SL_VK_MATRIX_SUBGROUP 32u

struct sl_vk_info {
    VkPhysicalDevice handle;
    char name[256], driver[256]; /* "NVIDIA H200", "580.95" */
    enum sl_device_kind kind;
    bool software;         /* computes on the host's CPU */
    uint64_t memory_bytes; /* of all heaps that are the device's own */
    uint64_t max_alloc_bytes;
    uint32_t device_type; /* memory type of what the device holds: DEVICE_LOCAL */
    uint32_t host_type;   /* of staging: host-visible, coherent, cached if there is one */
    uint32_t device_heap, host_heap; /* of these types */
    uint32_t family;                 /* of queues that compute */
    uint32_t n_queues;               /* of that family */
    uint32_t copy_family; /* of queues that only copy, alongside the others; else the same */
    uint32_t n_copy_queues;
    uint32_t subgroup_width, shared_bytes;
    uint64_t import_align_bytes; /* of host memory that is mapped for it */
    bool has_budget;             /* VK_EXT_memory_budget */
    bool has_float64;
    /* Cooperative matrices of subgroups of 32, [16, K] times [K, 16]: K of int8; 0: none. And of
     * binary16 with sums in floats, K 16. */
    uint32_t matrix_k;
    bool half_matrices;
    double ns_per_tick; /* of timestamps; 0: its queues have none */
    struct sl_vk_float_modes float_modes;
    struct sl_vk_cache_key cache_key; /* but for the kernels */
};

/* The devices that the loader shows, at most max of them. SL_ERR_UNSUPPORTED: none. */
enum sl_status sl_vk_list(const struct sl_vk_instance *instance, VkPhysicalDevice *out_handles,
                          uint32_t max, uint32_t *out_n, struct sl_err *err) SL_MUST_CHECK;
/* Describes one; what it lacks is in out_why_not. */
void sl_vk_describe(const struct sl_vk_instance *instance, VkPhysicalDevice handle, uint32_t number,
                    struct sl_vk_info *out_info, struct sl_err *out_why_not);
/* "NVIDIA H200, 580.95" */
void sl_vk_model(const struct sl_vk_info *info, char out_model[SL_DEVICE_NAME_BYTES]);

#endif
