#include "backends/vulkan/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const char *sl_vk_result_text(VkResult result, char *buf, size_t buf_bytes) {
    static const struct {
        VkResult result;
        const char *name;
    } names[] = {
#define NAME(result) {result, #result}
        NAME(VK_TIMEOUT),
        NAME(VK_NOT_READY),
        NAME(VK_ERROR_OUT_OF_HOST_MEMORY),
        NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY),
        NAME(VK_ERROR_INITIALIZATION_FAILED),
        NAME(VK_ERROR_DEVICE_LOST),
        NAME(VK_ERROR_MEMORY_MAP_FAILED),
        NAME(VK_ERROR_LAYER_NOT_PRESENT),
        NAME(VK_ERROR_EXTENSION_NOT_PRESENT),
        NAME(VK_ERROR_FEATURE_NOT_PRESENT),
        NAME(VK_ERROR_INCOMPATIBLE_DRIVER),
        NAME(VK_ERROR_TOO_MANY_OBJECTS),
        NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE),
        NAME(VK_ERROR_UNKNOWN),
#undef NAME
    };
    snprintf(buf, buf_bytes, "Vulkan error %d", (int)result);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].result == result)
            snprintf(buf, buf_bytes, "%s", names[i].name);
    return buf;
}

#ifdef __SANITIZE_ADDRESS__
/* AddressSanitizer's builds keep every library. Mesa's drivers leave memory behind a global of
 * theirs (on AMD CPUs the masks of the level 3 caches), the loader closes them, and LeakSanitizer
 * then reports a leak in a module that it can no longer name. */
int dlclose(void *library) {
    (void)library;
    return 0;
}
#endif

/* A function pointer may not be cast from an object pointer; its bytes may be copied. */
#define SET(field, found) memcpy(&(field), &(found), sizeof(field))

static enum sl_status create(struct sl_vk_instance *in, PFN_vkGetInstanceProcAddr get,
                             const char *name, struct sl_err *err) {
    char text[64];
    PFN_vkVoidFunction found = get(NULL, "vkCreateInstance");
    PFN_vkCreateInstance create_instance;
    SET(create_instance, found);
    if (!create_instance)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan: %s has no vkCreateInstance", name);
    const VkApplicationInfo app = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "sluice",
                                   .apiVersion = VK_API_VERSION_1_3};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &app};
    VkResult result = create_instance(&info, NULL, &in->handle);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "vulkan: the loader is here, but no driver: install the GPU's");
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan: the loader does not start: %s",
                       sl_vk_result_text(result, text, sizeof text));
    const char *missing = NULL;
#define FIND(field)                                                                                \
    found = get(in->handle, "vk" #field);                                                          \
    SET(in->field, found);                                                                         \
    missing = missing || found ? missing : "vk" #field;
    SL_VK_INSTANCE_FUNCTIONS(FIND)
#undef FIND
    found = get(in->handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    SET(in->GetPhysicalDeviceCooperativeMatrixPropertiesKHR, found);
    if (!missing)
        return SL_OK;
    if (in->DestroyInstance)
        in->DestroyInstance(in->handle, NULL);
    return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan: %s has no %s: it is too old", name, missing);
}

enum sl_status sl_vk_instance_open(const char *path, struct sl_vk_instance *out_instance,
                                   struct sl_err *err) {
    const char *name = path ? path : "libvulkan.so.1";
    struct sl_vk_instance in = {.lib = dlopen(name, RTLD_NOW | RTLD_LOCAL)};
    if (!in.lib)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "vulkan: no loader here (%s); libvulkan1 and the GPU's driver bring it",
                       dlerror());
    void *symbol = dlsym(in.lib, "vkGetInstanceProcAddr");
    PFN_vkGetInstanceProcAddr get;
    SET(get, symbol);
    if (!get)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan: %s has no vkGetInstanceProcAddr", name);
    enum sl_status status = create(&in, get, name, err);
    if (!status)
        *out_instance = in;
    return status;
}

void sl_vk_instance_close(struct sl_vk_instance *instance) {
    if (instance->handle)
        instance->DestroyInstance(instance->handle, NULL);
    instance->handle = NULL;
}

enum sl_status sl_vk_functions_find(const struct sl_vk_instance *instance, VkDevice device,
                                    struct sl_vk_functions *out_functions, struct sl_err *err) {
    struct sl_vk_functions f = {0};
    PFN_vkVoidFunction found;
    const char *missing = NULL;
#define FIND(field)                                                                                \
    found = instance->GetDeviceProcAddr(device, "vk" #field);                                      \
    SET(f.field, found);                                                                           \
    missing = missing || found ? missing : "vk" #field;
    SL_VK_DEVICE_FUNCTIONS(FIND)
#undef FIND
    found = instance->GetDeviceProcAddr(device, "vkGetMemoryHostPointerPropertiesEXT");
    SET(f.GetMemoryHostPointerPropertiesEXT, found);
    *out_functions = f;
    if (missing)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "vulkan: the driver has no %s", missing);
    return SL_OK;
}
