/* A Vulkan loader that fails when told to: a shared object named libvulkan.so.1 that stands between
 * a program and the real loader (tests/fault/vulkan_faults.py).
 *
 *   LD_LIBRARY_PATH=folder of it   the program opens it in the loader's place
 *   FAULTY_VULKAN_LOADER=/path     the real one
 *   FAULTY_VULKAN="lost FILE"      once FILE exists, the next submission and all after it fail: the
 *                                  device is lost
 *                 "late FILE"      the next submission never ends: waits time out for LATE_MS, then
 *                                  the device is lost
 *                 "gone FILE"      every call that can fail does, as if the GPU had fallen off its
 *                                  bus
 *                 "full FILE"      no allocation succeeds any more
 *                 "full-alloc N"   from the N-th allocation on, from 1
 *                 "slow"           every wait times out twice before the driver is asked
 *                 "old"            the driver has Vulkan 1.2
 *                 "twice"          every copy is recorded twice, without a barrier between: for
 *                                  validation layers to find
 *                 "lost:1 FILE"    (any of these) on the second GPU, whatever the others do
 * It says on stderr when it does so, once. */
#define VK_NO_PROTOTYPES 1
#include <vulkan/vulkan.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LATE_MS     300
#define MAX_GPUS    16u
#define MAX_OBJECTS 64u
#define ANY         UINT32_MAX

enum fault { LOST, LATE, GONE, FULL, FULL_ALLOC, SLOW, OLD, TWICE, NONE };
static const char *const names[NONE] = {"lost",       "late", "gone", "full",
                                        "full-alloc", "slow", "old",  "twice"};
static const char *const tells[NONE] = {"the device is lost",
                                        "a submission does not end",
                                        "is gone",
                                        "its memory is full",
                                        "its memory is full",
                                        "waits time out",
                                        "is old",
                                        "copies are recorded twice"};

static enum fault fault = NONE;
static uint32_t at_gpu = ANY;
static const char *trigger; /* a file */
static unsigned long at_alloc;
static atomic_ulong n_allocs;
static atomic_bool begun[MAX_GPUS], told[MAX_GPUS];
static atomic_llong late_until_ns[MAX_GPUS];

static PFN_vkGetInstanceProcAddr real_get_instance;
static PFN_vkGetDeviceProcAddr real_get_device;
static VkPhysicalDevice gpus[MAX_GPUS];
static uint32_t n_gpus;

/* Devices and queues, and which GPU they are of. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const void *object; /* NULL: free */
    uint32_t gpu;
    bool is_device;
} objects[MAX_OBJECTS];

static void note(const void *object, uint32_t gpu, bool is_device) {
    uint32_t at = MAX_OBJECTS;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < MAX_OBJECTS; i++)
        if (objects[i].object == object || (!objects[i].object && at == MAX_OBJECTS))
            at = i;
    if (at < MAX_OBJECTS) {
        objects[at].object = object;
        objects[at].gpu = gpu;
        objects[at].is_device = is_device;
    }
    pthread_mutex_unlock(&lock);
}

static void forget(const void *object) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < MAX_OBJECTS; i++)
        if (objects[i].object == object)
            objects[i].object = NULL;
    pthread_mutex_unlock(&lock);
}

static uint32_t gpu_of(const void *object) {
    uint32_t gpu = ANY;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < MAX_OBJECTS; i++)
        if (objects[i].object == object)
            gpu = objects[i].gpu;
    pthread_mutex_unlock(&lock);
    return gpu;
}

static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void tell(uint32_t gpu) {
    if (!atomic_exchange(&told[gpu], true))
        fprintf(stderr, "faulty_vulkan: GPU %u: %s\n", gpu, tells[fault]);
}

/* Is this GPU's fault of that kind, and has it begun? */
static bool is(enum fault kind, uint32_t gpu, bool may_begin) {
    if (fault != kind || gpu >= MAX_GPUS || (at_gpu != ANY && at_gpu != gpu))
        return false;
    if (!begun[gpu] && may_begin && (!trigger || access(trigger, F_OK) == 0))
        begun[gpu] = true;
    if (begun[gpu])
        tell(gpu);
    return begun[gpu];
}

#define REAL(device, name) ((PFN_##name)real_get_device(device, #name))

/* A lost device computes no more: what a real one has begun is waited for, before anybody frees
 * what it uses. */
static VkResult lost(uint32_t gpu) {
    for (uint32_t i = 0; i < MAX_OBJECTS; i++) {
        pthread_mutex_lock(&lock);
        bool mine = objects[i].object && objects[i].is_device && objects[i].gpu == gpu;
        VkDevice device = mine ? (VkDevice)(uintptr_t)objects[i].object : VK_NULL_HANDLE;
        pthread_mutex_unlock(&lock);
        if (device)
            REAL(device, vkDeviceWaitIdle)(device);
    }
    return VK_ERROR_DEVICE_LOST;
}

/* ---- of devices ---- */

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *a,
                                               VkDeviceMemory *out) {
    uint32_t gpu = gpu_of(device);
    if (is(GONE, gpu, true) || is(LOST, gpu, false))
        return lost(gpu);
    if (fault == FULL_ALLOC && (at_gpu == ANY || at_gpu == gpu) && gpu < MAX_GPUS &&
        atomic_fetch_add(&n_allocs, 1) + 1 >= at_alloc)
        begun[gpu] = true;
    if (is(FULL, gpu, true) || is(FULL_ALLOC, gpu, false))
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    return REAL(device, vkAllocateMemory)(device, info, a, out);
}

static PFN_vkQueueSubmit2 real_submit; /* the same for all of a driver's devices */

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t n, const VkSubmitInfo2 *infos,
                                             VkFence fence) {
    uint32_t gpu = gpu_of(queue);
    (void)is(FULL, gpu, true);
    if (is(LOST, gpu, true) || is(GONE, gpu, true))
        return lost(gpu);
    if (is(LATE, gpu, true)) {
        long long none = 0;
        atomic_compare_exchange_strong(&late_until_ns[gpu], &none, now_ns() + LATE_MS * 1000000LL);
    }
    return real_submit(queue, n, infos, fence);
}

/* What a wait or a look at a counter gives instead; VK_SUCCESS: what the driver says. */
static VkResult instead(uint32_t gpu, uint64_t timeout_ns) {
    if (is(LOST, gpu, false) || is(GONE, gpu, true))
        return lost(gpu);
    if (!is(LATE, gpu, false))
        return VK_SUCCESS;
    long long left = late_until_ns[gpu] - now_ns();
    if (left <= 0)
        return lost(gpu);
    if (timeout_ns) {
        uint64_t ns = timeout_ns < (uint64_t)left ? timeout_ns : (uint64_t)left;
        nanosleep(&(struct timespec){.tv_nsec = (long)(ns % 1000000000u)}, NULL);
    }
    return VK_TIMEOUT;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_for(VkDevice device, const VkSemaphoreWaitInfo *info,
                                               uint64_t timeout_ns) {
    static _Thread_local uint32_t n;
    uint32_t gpu = gpu_of(device);
    VkResult result = instead(gpu, timeout_ns);
    if (result)
        return result;
    if (is(SLOW, gpu, true) && n++ % 3 < 2)
        return VK_TIMEOUT;
    return REAL(device, vkWaitSemaphores)(device, info, timeout_ns);
}

static VKAPI_ATTR VkResult VKAPI_CALL counter(VkDevice device, VkSemaphore semaphore,
                                              uint64_t *value) {
    uint32_t gpu = gpu_of(device);
    VkResult result = instead(gpu, 0);
    if (!result)
        return REAL(device, vkGetSemaphoreCounterValue)(device, semaphore, value);
    *value = 0;
    return result == VK_TIMEOUT ? VK_SUCCESS : result;
}

static VKAPI_ATTR void VKAPI_CALL get_queue(VkDevice device, uint32_t family, uint32_t index,
                                            VkQueue *out) {
    REAL(device, vkGetDeviceQueue)(device, family, index, out);
    note(*out, gpu_of(device), false);
}

static PFN_vkCmdCopyBuffer real_copy;

static VKAPI_ATTR void VKAPI_CALL copy_twice(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                                             uint32_t n, const VkBufferCopy *regions) {
    real_copy(commands, from, to, n, regions);
    real_copy(commands, from, to, n, regions);
}

static VKAPI_ATTR VkResult VKAPI_CALL wait_idle(VkDevice device) {
    uint32_t gpu = gpu_of(device);
    VkResult result = REAL(device, vkDeviceWaitIdle)(device);
    return is(LOST, gpu, false) || is(GONE, gpu, false) || is(LATE, gpu, false)
               ? VK_ERROR_DEVICE_LOST
               : result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_device(VkDevice device, const VkAllocationCallbacks *a) {
    PFN_vkDestroyDevice real = REAL(device, vkDestroyDevice);
    forget(device);
    real(device, a);
}

#define OURS(name, ours)                                                                           \
    if (strcmp(asked, #name) == 0)                                                                 \
        return (PFN_vkVoidFunction)(PFN_##name)ours;

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *asked) {
    PFN_vkVoidFunction found = real_get_device(device, asked);
    if (!found)
        return found;
    if (strcmp(asked, "vkQueueSubmit2") == 0)
        real_submit = (PFN_vkQueueSubmit2)found;
    OURS(vkAllocateMemory, allocate)
    OURS(vkQueueSubmit2, submit)
    OURS(vkWaitSemaphores, wait_for)
    OURS(vkGetSemaphoreCounterValue, counter)
    OURS(vkGetDeviceQueue, get_queue)
    OURS(vkDeviceWaitIdle, wait_idle)
    OURS(vkDestroyDevice, destroy_device)
    if (strcmp(asked, "vkCmdCopyBuffer") == 0)
        real_copy = (PFN_vkCmdCopyBuffer)found;
    if (is(TWICE, gpu_of(device), true))
        OURS(vkCmdCopyBuffer, copy_twice)
    return found;
}

/* ---- of the instance ---- */

static PFN_vkEnumeratePhysicalDevices real_enumerate;
static PFN_vkCreateDevice real_create;
static PFN_vkGetPhysicalDeviceProperties2 real_properties;

static VKAPI_ATTR VkResult VKAPI_CALL enumerate(VkInstance instance, uint32_t *n,
                                                VkPhysicalDevice *out) {
    VkResult result = real_enumerate(instance, n, out);
    pthread_mutex_lock(&lock);
    n_gpus = 0;
    for (uint32_t i = 0; out && i < *n && i < MAX_GPUS; i++)
        gpus[n_gpus++] = out[i];
    pthread_mutex_unlock(&lock);
    return result;
}

static uint32_t number_of(VkPhysicalDevice physical) {
    uint32_t at = 0;
    pthread_mutex_lock(&lock);
    while (at < n_gpus && gpus[at] != physical)
        at++;
    pthread_mutex_unlock(&lock);
    return at;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *a, VkDevice *out) {
    VkResult result = real_create(physical, info, a, out);
    if (!result)
        note(*out, number_of(physical), true);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice physical,
                                             VkPhysicalDeviceProperties2 *out) {
    real_properties(physical, out);
    if (is(OLD, number_of(physical), true))
        out->properties.apiVersion = VK_API_VERSION_1_2;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL get_instance(VkInstance instance,
                                                             const char *asked) {
    PFN_vkVoidFunction found = real_get_instance(instance, asked);
    if (!found)
        return found;
#define KEEP(field, name)                                                                          \
    if (strcmp(asked, #name) == 0)                                                                 \
        field = (PFN_##name)found;
    KEEP(real_get_device, vkGetDeviceProcAddr)
    KEEP(real_enumerate, vkEnumeratePhysicalDevices)
    KEEP(real_create, vkCreateDevice)
    KEEP(real_properties, vkGetPhysicalDeviceProperties2)
    OURS(vkGetDeviceProcAddr, get_device)
    OURS(vkEnumeratePhysicalDevices, enumerate)
    OURS(vkCreateDevice, create_device)
    OURS(vkGetPhysicalDeviceProperties2, properties)
    return found;
}

static void fatal(const char *what, const char *more) {
    fprintf(stderr, "faulty_vulkan: %s: %s\n", what, more);
    _exit(99);
}

/* "lost:1 FILE" */
static void read_fault(const char *text) {
    char name[32] = "";
    size_t n = strcspn(text, ": ");
    if (n < sizeof name)
        memcpy(name, text, n);
    fault = LOST;
    while (fault < NONE && strcmp(names[fault], name) != 0)
        fault++;
    if (fault == NONE && *text)
        fatal("FAULTY_VULKAN is", text);
    text += n;
    if (*text == ':')
        at_gpu = (uint32_t)strtoul(text + 1, (char **)(uintptr_t)&text, 10);
    while (*text == ' ')
        text++;
    if (fault == FULL_ALLOC)
        at_alloc = strtoul(text, NULL, 10);
    else if (*text)
        trigger = text;
    if (fault == FULL_ALLOC && !at_alloc)
        fatal("FAULTY_VULKAN lacks", "a number");
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FAULTY_VULKAN_LOADER"), *text = getenv("FAULTY_VULKAN");
    if (!path)
        fatal("not set", "FAULTY_VULKAN_LOADER");
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = lib ? dlsym(lib, "vkGetInstanceProcAddr") : NULL;
    if (!symbol)
        fatal("no loader", path);
    memcpy(&real_get_instance, &symbol, sizeof symbol);
    if (text)
        read_fault(text);
}

VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                               const char *asked);
VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                               const char *asked) {
    return get_instance(instance, asked);
}
