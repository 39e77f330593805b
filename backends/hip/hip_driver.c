#include "backends/hip/hip_driver.h"
#include "common/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The runtime's calls by symbols of its own. An address is a pointer there and a number in the
 * table: one register either way wherever ROCm runs. */
#define NEEDED_AS_THEY_ARE(X)                                                                      \
    X(init, "hipInit")                                                                             \
    X(driver_version, "hipDriverGetVersion")                                                       \
    X(device_count, "hipGetDeviceCount")                                                           \
    X(device_get, "hipDeviceGet")                                                                  \
    X(device_name, "hipDeviceGetName")                                                             \
    X(device_total_mem, "hipDeviceTotalMem")                                                       \
    X(mem_info, "hipMemGetInfo")                                                                   \
    X(mem_alloc, "hipMalloc")                                                                      \
    X(mem_free, "hipFree")                                                                         \
    X(host_free, "hipHostFree")                                                                    \
    X(copy_to_device, "hipMemcpyHtoDAsync")                                                        \
    X(copy_to_host, "hipMemcpyDtoHAsync")                                                          \
    X(can_access_peer, "hipDeviceCanAccessPeer")                                                   \
    X(host_register, "hipHostRegister")                                                            \
    X(host_unregister, "hipHostUnregister")                                                        \
    X(host_device_pointer, "hipHostGetDevicePointer")                                              \
    X(stream_create, "hipStreamCreateWithFlags")                                                   \
    X(stream_destroy, "hipStreamDestroy")                                                          \
    X(stream_sync, "hipStreamSynchronize")                                                         \
    X(stream_query, "hipStreamQuery")                                                              \
    X(stream_wait, "hipStreamWaitEvent")                                                           \
    X(event_create, "hipEventCreateWithFlags")                                                     \
    X(event_destroy, "hipEventDestroy")                                                            \
    X(event_record, "hipEventRecord")                                                              \
    X(event_query, "hipEventQuery")                                                                \
    X(event_sync, "hipEventSynchronize")                                                           \
    X(module_load, "hipModuleLoadData")                                                            \
    X(module_unload, "hipModuleUnload")                                                            \
    X(module_function, "hipModuleGetFunction")

/* All of a feature or none of it. */
#define OF_GRAPHS(X)                                                                               \
    X(capture_begin, "hipStreamBeginCapture")                                                      \
    X(capture_end, "hipStreamEndCapture")                                                          \
    X(graph_instantiate, "hipGraphInstantiateWithFlags")                                           \
    X(graph_destroy, "hipGraphDestroy")                                                            \
    X(graph_exec_destroy, "hipGraphExecDestroy")                                                   \
    X(graph_launch, "hipGraphLaunch")

/* Those that the table's calls are made of. */
static struct calls {
    void *lib;
    const char *(*error_name)(int result);
    const char *(*error_string)(int result);
    int (*get_attribute)(int *value, int attribute, int device);
    int (*set_device)(int device);
    int (*host_malloc)(void **addr, size_t bytes, unsigned flags);
    int (*memcpy_async)(void *dst, const void *src, size_t bytes, int kind,
                        struct CUstream_st *stream);
    int (*enable_peer)(int peer, unsigned flags);
    int (*memcpy_peer)(void *dst, int dst_device, const void *src, int src_device, size_t bytes,
                       struct CUstream_st *stream);
    int (*launch_kernel)(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                         unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                         unsigned smem_bytes, struct CUstream_st *stream, void **params,
                         void **extra);
    int (*wait_value)(struct CUstream_st *stream, void *addr, uint32_t value, unsigned flags,
                      uint32_t mask);
    int (*get_p2p_attribute)(int *value, int attribute, int from, int to);
} hip;
#define NEEDED(X)                                                                                  \
    X(error_name, "hipGetErrorName")                                                               \
    X(error_string, "hipGetErrorString")                                                           \
    X(get_attribute, "hipDeviceGetAttribute")                                                      \
    X(set_device, "hipSetDevice")                                                                  \
    X(host_malloc, "hipHostMalloc")                                                                \
    X(memcpy_async, "hipMemcpyAsync")                                                              \
    X(enable_peer, "hipDeviceEnablePeerAccess")                                                    \
    X(memcpy_peer, "hipMemcpyPeerAsync")                                                           \
    X(launch_kernel, "hipModuleLaunchKernel")

/* hipDeviceAttribute_t */
enum {
    CAN_MAP_HOST = 3,
    INTEGRATED = 16,
    MEMORY_BITS = 59,
    MEMORY_KHZ = 60,
    MULTIPROCESSORS = 63,
    MAX_SHARED = 74,
    WARP_SIZE = 87,
    CAN_WAIT_VALUE = 10013,
};
#define COPY_BY_ADDRESS    4 /* hipMemcpyDefault */
#define HOST_COHERENT      0x40000000u
#define PARAM_END          ((void *)0x03)
#define P2P_NATIVE_ATOMICS 2
/* machine_hip.cuh has so much of a block's shared memory itself. */
#define MEET_WORDS_BYTES 64

static int error_name(int result, const char **text) {
    *text = hip.error_name(result);
    return SL_CU_OK;
}

static int error_string(int result, const char **text) {
    *text = hip.error_string(result);
    return SL_CU_OK;
}

static int device_attribute(int *value, int attribute, int device) {
    static const struct {
        int cuda, hip;
    } of[] = {
        {SL_CU_ATTR_WARP_SIZE, WARP_SIZE},         {SL_CU_ATTR_MULTIPROCESSORS, MULTIPROCESSORS},
        {SL_CU_ATTR_INTEGRATED, INTEGRATED},       {SL_CU_ATTR_CAN_MAP_HOST, CAN_MAP_HOST},
        {SL_CU_ATTR_MEMORY_KHZ, MEMORY_KHZ},       {SL_CU_ATTR_MEMORY_BITS, MEMORY_BITS},
        {SL_CU_ATTR_MAX_SHARED_OPTIN, MAX_SHARED},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].cuda == attribute) {
            int result = hip.get_attribute(value, of[i].hip, device);
            if (!result && of[i].hip == MAX_SHARED)
                *value -= MEET_WORDS_BYTES;
            return result;
        }
    return SL_CU_INVALID_VALUE;
}

/* A thread has a device where CUDA has a context: one above its number stands for it. */
static struct CUctx_st *context_of(int device) {
    return (struct CUctx_st *)((uintptr_t)device + 1);
}

static int device_of(const struct CUctx_st *ctx) {
    return (int)((uintptr_t)ctx - 1);
}

static int ctx_retain(struct CUctx_st **ctx, int device) {
    *ctx = context_of(device);
    return hip.set_device(device);
}

static int ctx_release(int device) {
    (void)device;
    return SL_CU_OK;
}

static int ctx_set_current(struct CUctx_st *ctx) {
    return ctx ? hip.set_device(device_of(ctx)) : SL_CU_OK;
}

/* Coherent: kernels and queues write words there that the host looks at meanwhile. */
static int host_alloc(void **addr, size_t bytes, unsigned flags) {
    return hip.host_malloc(addr, bytes, flags | HOST_COHERENT);
}

static int copy(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream) {
    return hip.memcpy_async((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes,
                            COPY_BY_ADDRESS, stream);
}

static int peer_enable(struct CUctx_st *peer, unsigned flags) {
    return hip.enable_peer(device_of(peer), flags);
}

static int copy_peer(uint64_t dst, struct CUctx_st *dst_ctx, uint64_t src, struct CUctx_st *src_ctx,
                     size_t bytes, struct CUstream_st *stream) {
    return hip.memcpy_peer((void *)(uintptr_t)dst, device_of(dst_ctx), (const void *)(uintptr_t)src,
                           device_of(src_ctx), bytes, stream);
}

/* All of a block's shared memory is any kernel's without asking, and there is nothing else to tell.
 */
static int func_set_attribute(struct CUfunc_st *function, int attribute, int value) {
    (void)function, (void)attribute, (void)value;
    return SL_CU_OK;
}

static int launch(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                  unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                  struct CUstream_st *stream, void **params, void **extra) {
    void *own[] = {extra[0], extra[1], extra[2], extra[3], PARAM_END};
    return hip.launch_kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                             smem_bytes, stream, params, own);
}

static int word_wait(struct CUstream_st *stream, uint64_t addr, uint32_t value, unsigned flags) {
    return hip.wait_value(stream, (void *)(uintptr_t)addr, value, flags, UINT32_MAX);
}

static int p2p_attribute(int *value, int attribute, int from, int to) {
    return attribute == SL_CU_P2P_NATIVE_ATOMICS
               ? hip.get_p2p_attribute(value, P2P_NATIVE_ATOMICS, from, to)
               : SL_CU_INVALID_VALUE;
}

/* ---- opening ---- */

/* A function pointer may not be cast from dlsym's object pointer; its bytes may be copied. */
static bool find(void *lib, const char *symbol, void *out_function) {
    void *found = dlsym(lib, symbol);
    memcpy(out_function, &found, sizeof found);
    return found;
}

static void *open_any(const char *path, const char **out_name) {
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
    void *lib = NULL;
    *out_name = path;
    if (path)
        return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; i < sizeof names / sizeof *names && !lib; i++) {
        *out_name = names[i];
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    return lib;
}

/* Whether each of the GPUs' queues can wait for a word. */
static bool all_wait(const struct sl_gpu_driver *d) {
    int n = 0, can = 1;
    if (d->device_count(&n) || n <= 0)
        return true; /* and nobody asks */
    for (int i = 0; i < n && can; i++)
        if (hip.get_attribute(&can, CAN_WAIT_VALUE, i))
            can = 0;
    return can;
}

static void find_features(void *lib, const char *name, struct sl_gpu_driver *d) {
    const char *lacks = NULL;
#define FIND(field, symbol)                                                                        \
    if (!find(lib, symbol, &d->field))                                                             \
        lacks = symbol;
    OF_GRAPHS(FIND)
#undef FIND
    if (lacks) {
        sl_info("hip: %s has no %s: ops are launched one by one, not as graphs", name, lacks);
        d->graph_launch = NULL;
    }
    if (!find(lib, "hipStreamWriteValue32", &d->word_write) ||
        !find(lib, "hipStreamWaitValue32", &hip.wait_value)) {
        sl_info("hip: %s has no hipStreamWaitValue32: GPUs wait for one another by the host", name);
        d->word_write = NULL;
    } else {
        d->word_wait = word_wait;
    }
    if (find(lib, "hipDeviceGetP2PAttribute", &hip.get_p2p_attribute))
        d->p2p_attribute = p2p_attribute;
    else
        sl_debug("hip: %s has no hipDeviceGetP2PAttribute: no copy goes by way of another GPU",
                 name);
}

/* The first symbol that is needed and not there; NULL: none. */
static const char *fill(void *lib, const char *name, struct sl_gpu_driver *d) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const char *missing = NULL;
    pthread_mutex_lock(&lock);
#define FIND(field, symbol)                                                                        \
    if (!find(lib, symbol, &d->field) && !missing)                                                 \
        missing = symbol;
    NEEDED_AS_THEY_ARE(FIND)
#undef FIND
    if (!missing && hip.lib != lib) {
        struct calls found = {.lib = lib};
#define FIND(field, symbol)                                                                        \
    if (!find(lib, symbol, &found.field) && !missing)                                              \
        missing = symbol;
        NEEDED(FIND)
#undef FIND
        if (!missing)
            hip = found;
    }
    if (!missing)
        find_features(lib, name, d);
    pthread_mutex_unlock(&lock);
    d->error_name = error_name;
    d->error_string = error_string;
    d->device_attribute = device_attribute;
    d->ctx_retain = ctx_retain;
    d->ctx_release = ctx_release;
    d->ctx_set_current = ctx_set_current;
    d->host_alloc = host_alloc;
    d->copy = copy;
    d->peer_enable = peer_enable;
    d->copy_peer = copy_peer;
    d->func_set_attribute = func_set_attribute;
    d->launch = launch;
    return missing;
}

enum sl_status sl_hip_driver_open(const char *path, struct sl_gpu_driver *out_driver,
                                  struct sl_err *err) {
    const char *name;
    void *lib = open_any(path, &name);
    if (!lib)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "hip: no ROCm here (%s); install its runtime, or use vulkan or the CPU",
                       dlerror());
    struct sl_gpu_driver d = {.lib = lib, .runtime = "HIP"};
    const char *missing = fill(lib, name, &d);
    if (missing)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "hip: %s has no %s: the runtime is too old; install a newer ROCm", name,
                       missing);
    char text[256];
    int result = d.init(0);
    if (result == SL_CU_NO_DEVICE || result == SL_CU_INVALID_DEVICE) /* as ROCm 5.2 says it */
        return sl_fail(err, SL_ERR_UNSUPPORTED, "hip: the runtime finds no GPU (%s)",
                       sl_gpu_result_text(&d, result, text, sizeof text));
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "hip: the runtime does not start (%s); may this user open /dev/kfd?",
                       sl_gpu_result_text(&d, result, text, sizeof text));
    if (d.word_wait && !all_wait(&d)) {
        sl_info("hip: a GPU's queues cannot wait for words: GPUs wait for one another by the host");
        d.word_wait = NULL;
        d.word_write = NULL;
    }
    if (d.driver_version(&d.version))
        d.version = 0;
    *out_driver = d;
    return SL_OK;
}

/* The properties of a device are a struct that has grown: where the architecture's name is in that
 * of ROCm 6 and later, which has a symbol of its own, and in that before. */
int sl_hip_arch(const struct sl_gpu_driver *d, int device, char *out, size_t out_bytes) {
    static const struct {
        const char *symbol;
        size_t at;
    } forms[] = {{"hipGetDevicePropertiesR0600", 1160}, {"hipGetDeviceProperties", 396}};
    union {
        char bytes[4096]; /* more than any of them */
        long double aligned;
    } properties;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        int (*get)(void *properties, int device);
        if (!find(d->lib, forms[i].symbol, &get))
            continue;
        memset(&properties, 0, sizeof properties);
        int result = get(&properties, device);
        const char *arch = properties.bytes + forms[i].at;
        if (!result)
            snprintf(out, out_bytes, "%.*s", (int)strcspn(arch, ":"), arch);
        return result;
    }
    return SL_CU_NOT_SUPPORTED;
}
