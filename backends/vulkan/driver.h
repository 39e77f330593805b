/* The Vulkan functions that are used, found at run time: the loader's library is opened, nothing is
 * linked. A struct of function pointers for the instance and one for the device. */
#ifndef SL_BACKENDS_VULKAN_DRIVER_H
#define SL_BACKENDS_VULKAN_DRIVER_H

#include "common/status.h"

#define VK_NO_PROTOTYPES 1
#include <vulkan/vulkan.h>

#define SL_VK_INSTANCE_FUNCTIONS(X)                                                                \
    X(DestroyInstance)                                                                             \
    X(EnumeratePhysicalDevices)                                                                    \
    X(GetPhysicalDeviceProperties2)                                                                \
    X(GetPhysicalDeviceFeatures2)                                                                  \
    X(GetPhysicalDeviceMemoryProperties2)                                                          \
    X(GetPhysicalDeviceQueueFamilyProperties)                                                      \
    X(EnumerateDeviceExtensionProperties)                                                          \
    X(CreateDevice)                                                                                \
    X(GetDeviceProcAddr)

#define SL_VK_DEVICE_FUNCTIONS(X)                                                                  \
    X(DestroyDevice)                                                                               \
    X(GetDeviceQueue)                                                                              \
    X(DeviceWaitIdle)                                                                              \
    X(AllocateMemory)                                                                              \
    X(FreeMemory)                                                                                  \
    X(MapMemory)                                                                                   \
    X(CreateBuffer)                                                                                \
    X(DestroyBuffer)                                                                               \
    X(GetBufferMemoryRequirements)                                                                 \
    X(BindBufferMemory)                                                                            \
    X(GetBufferDeviceAddress)                                                                      \
    X(CreateSemaphore)                                                                             \
    X(DestroySemaphore)                                                                            \
    X(GetSemaphoreCounterValue)                                                                    \
    X(WaitSemaphores)                                                                              \
    X(CreateCommandPool)                                                                           \
    X(DestroyCommandPool)                                                                          \
    X(AllocateCommandBuffers)                                                                      \
    X(FreeCommandBuffers)                                                                          \
    X(ResetCommandBuffer)                                                                          \
    X(BeginCommandBuffer)                                                                          \
    X(EndCommandBuffer)                                                                            \
    X(QueueSubmit2)                                                                                \
    X(CmdBindPipeline)                                                                             \
    X(CmdPushConstants)                                                                            \
    X(CmdDispatch)                                                                                 \
    X(CmdCopyBuffer)                                                                               \
    X(CmdPipelineBarrier2)                                                                         \
    X(CreateShaderModule)                                                                          \
    X(DestroyShaderModule)                                                                         \
    X(CreatePipelineLayout)                                                                        \
    X(DestroyPipelineLayout)                                                                       \
    X(CreatePipelineCache)                                                                         \
    X(DestroyPipelineCache)                                                                        \
    X(GetPipelineCacheData)                                                                        \
    X(CreateComputePipelines)                                                                      \
    X(DestroyPipeline)                                                                             \
    X(CreateQueryPool)                                                                             \
    X(DestroyQueryPool)                                                                            \
    X(GetQueryPoolResults)                                                                         \
    X(CmdResetQueryPool)                                                                           \
    X(CmdWriteTimestamp2)

#ifndef VK_KHR_cooperative_matrix /* since Vulkan's headers of 1.3.255; as in its registry */
#define VK_KHR_COOPERATIVE_MATRIX_EXTENSION_NAME "VK_KHR_cooperative_matrix"
#define VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR                          \
    ((VkStructureType)1000506000)
#define VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR ((VkStructureType)1000506001)
#define VK_SCOPE_SUBGROUP_KHR                               3
#define VK_COMPONENT_TYPE_FLOAT16_KHR                       0
#define VK_COMPONENT_TYPE_FLOAT32_KHR                       1
#define VK_COMPONENT_TYPE_SINT8_KHR                         3
#define VK_COMPONENT_TYPE_SINT32_KHR                        5
typedef int VkComponentTypeKHR;
typedef int VkScopeKHR;
typedef struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix;
    VkBool32 cooperativeMatrixRobustBufferAccess;
} VkPhysicalDeviceCooperativeMatrixFeaturesKHR;
typedef struct VkCooperativeMatrixPropertiesKHR {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize;
    uint32_t NSize;
    uint32_t KSize;
    VkComponentTypeKHR AType;
    VkComponentTypeKHR BType;
    VkComponentTypeKHR CType;
    VkComponentTypeKHR ResultType;
    VkBool32 saturatingAccumulation;
    VkScopeKHR scope;
} VkCooperativeMatrixPropertiesKHR;
typedef VkResult(VKAPI_PTR *PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR)(
    VkPhysicalDevice, uint32_t *, VkCooperativeMatrixPropertiesKHR *);
#endif

struct sl_vk_instance {
    void *lib;
    VkInstance handle;
    /* Of VK_KHR_cooperative_matrix; NULL: no driver here has it. */
    PFN_vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR
        GetPhysicalDeviceCooperativeMatrixPropertiesKHR;
#define FIELD(name) PFN_vk##name name;
    SL_VK_INSTANCE_FUNCTIONS(FIELD)
#undef FIELD
};

struct sl_vk_functions {
#define FIELD(name) PFN_vk##name name;
    SL_VK_DEVICE_FUNCTIONS(FIELD)
#undef FIELD
    /* Of VK_EXT_external_memory_host; NULL without it. */
    PFN_vkGetMemoryHostPointerPropertiesEXT GetMemoryHostPointerPropertiesEXT;
};

/* Opens the loader (path NULL: libvulkan.so.1) and an instance of Vulkan 1.3. SL_ERR_UNSUPPORTED:
 * there is none here, and why. */
enum sl_status sl_vk_instance_open(const char *path, struct sl_vk_instance *out_instance,
                                   struct sl_err *err) SL_MUST_CHECK;
/* The library stays open: drivers are not all able to be opened a second time. */
void sl_vk_instance_close(struct sl_vk_instance *instance);

/* SL_ERR_UNSUPPORTED: the driver lacks a function of Vulkan 1.3, which the text names. */
enum sl_status sl_vk_functions_find(const struct sl_vk_instance *instance, VkDevice device,
                                    struct sl_vk_functions *out_functions,
                                    struct sl_err *err) SL_MUST_CHECK;

/* "VK_ERROR_DEVICE_LOST", or the number. */
const char *sl_vk_result_text(VkResult result, char *buf, size_t buf_bytes);

#endif
