/* The symbols of ROCm's runtime which backends/hip/ asks for, over NVIDIA's driver: so HIP's host
 * side runs on a card of NVIDIA's. Their numbers are HIP's; where CUDA has others they are
 * translated, and a result that HIP has no number for is hipErrorUnknown, as in HIP's own headers
 * for NVIDIA. Nothing is emulated: what the driver lacks fails.
 *
 * The driver is libcuda.so.1, as the loader finds it: NVIDIA's or a test's. A card says that it is
 * gfx-sm-90, or the like, for which no build has code: hiprtc.c compiles it.
 *
 * Source: hip_runtime_api.h of ROCm 5.2 and 6, and the CUDA driver API reference. */
#include "backends/gpu/driver.h"
#include "tests/support/hip_nvidia/hip_nvidia.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define MAX_DEVICES         16
#define VERSION             60200000 /* HIP 6.2 */
#define UNKNOWN             999
#define NOT_INITIALIZED     3
#define PROPERTIES_BYTES    1472 /* hipDeviceProp_tR0600 */
#define TOTAL_MEMORY_AT     288
#define ARCH_AT             1160
#define HOST_COHERENT       0x40000000u /* all pinned memory is, here */
#define HOST_KNOWN          (HOST_COHERENT | 3u)
#define COPY_BY_ADDRESS     4
#define PARAM_END           ((void *)0x03)
#define STATIC_SHARED_BYTES 1 /* CUfunction_attribute */

static struct {
    struct sl_gpu_driver driver;
    int (*func_get_attribute)(int *value, int attribute, struct CUfunc_st *function);
    int found; /* a result */
} cuda;
static struct CUctx_st *contexts[MAX_DEVICES];
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int current =
    -1; /* the thread's device; -1: none yet, which means the first */

/* ---- results ---- */

#define HIP_RESULTS(X)                                                                             \
    X(0, "hipSuccess")                                                                             \
    X(1, "hipErrorInvalidValue")                                                                   \
    X(2, "hipErrorOutOfMemory")                                                                    \
    X(3, "hipErrorNotInitialized")                                                                 \
    X(4, "hipErrorDeinitialized")                                                                  \
    X(100, "hipErrorNoDevice")                                                                     \
    X(101, "hipErrorInvalidDevice")                                                                \
    X(200, "hipErrorInvalidImage")                                                                 \
    X(201, "hipErrorInvalidContext")                                                               \
    X(205, "hipErrorMapFailed")                                                                    \
    X(206, "hipErrorUnmapFailed")                                                                  \
    X(208, "hipErrorAlreadyMapped")                                                                \
    X(209, "hipErrorNoBinaryForGpu")                                                               \
    X(211, "hipErrorNotMapped")                                                                    \
    X(214, "hipErrorECCNotCorrectable")                                                            \
    X(217, "hipErrorPeerAccessUnsupported")                                                        \
    X(400, "hipErrorInvalidHandle")                                                                \
    X(401, "hipErrorIllegalState")                                                                 \
    X(500, "hipErrorNotFound")                                                                     \
    X(600, "hipErrorNotReady")                                                                     \
    X(700, "hipErrorIllegalAddress")                                                               \
    X(701, "hipErrorLaunchOutOfResources")                                                         \
    X(702, "hipErrorLaunchTimeOut")                                                                \
    X(704, "hipErrorPeerAccessAlreadyEnabled")                                                     \
    X(705, "hipErrorPeerAccessNotEnabled")                                                         \
    X(710, "hipErrorAssert")                                                                       \
    X(712, "hipErrorHostMemoryAlreadyRegistered")                                                  \
    X(713, "hipErrorHostMemoryNotRegistered")                                                      \
    X(719, "hipErrorLaunchFailure")                                                                \
    X(801, "hipErrorNotSupported")                                                                 \
    X(900, "hipErrorStreamCaptureUnsupported")                                                     \
    X(901, "hipErrorStreamCaptureInvalidated")                                                     \
    X(902, "hipErrorStreamCaptureMerge")                                                           \
    X(903, "hipErrorStreamCaptureUnmatched")                                                       \
    X(904, "hipErrorStreamCaptureUnjoined")                                                        \
    X(905, "hipErrorStreamCaptureIsolation")                                                       \
    X(906, "hipErrorStreamCaptureImplicit")                                                        \
    X(907, "hipErrorCapturedEvent")                                                                \
    X(908, "hipErrorStreamCaptureWrongThread")                                                     \
    X(UNKNOWN, "hipErrorUnknown")

static const char *name_of(int result) {
    switch (result) {
#define NAME(number, name)                                                                         \
    case number:                                                                                   \
        return name;
        HIP_RESULTS(NAME)
#undef NAME
    default:
        return NULL;
    }
}

static int translated(int result) {
    return name_of(result) ? result : UNKNOWN;
}

const char *hipGetErrorName(int result) {
    const char *name = name_of(result);
    return name ? name : "hipErrorUnknown";
}

const char *hipGetErrorString(int result) {
    const char *text = NULL;
    if (cuda.found || cuda.driver.error_string(result, &text) || !text)
        return "unknown error";
    return text;
}

/* ---- the driver ---- */

static void find(void) {
    struct sl_gpu_driver *d = &cuda.driver;
    void *needed, *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    cuda.found = lib ? 0 : SL_CU_NO_DEVICE;
    if (!lib)
        return;
#define FIND(field, symbol, args)                                                                  \
    needed = dlsym(lib, symbol);                                                                   \
    memcpy(&d->field, &needed, sizeof needed);                                                     \
    if (!needed)                                                                                   \
        cuda.found = SL_CU_NOT_SUPPORTED;
    SL_CU_FUNCTIONS(FIND)
    int found = cuda.found;
    SL_CU_NEWER_FUNCTIONS(FIND)
    cuda.found = found;
#undef FIND
    needed = dlsym(lib, "cuFuncGetAttribute");
    memcpy(&cuda.func_get_attribute, &needed, sizeof needed);
}

int hipInit(unsigned flags) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find);
    return cuda.found ? cuda.found : translated(cuda.driver.init(flags));
}

/* A device's only context, made when it is first wanted. */
static int context_of(int device, struct CUctx_st **out) {
    int result = 0;
    if (device < 0 || device >= MAX_DEVICES)
        return SL_CU_INVALID_DEVICE;
    pthread_mutex_lock(&contexts_lock);
    if (!contexts[device])
        result = cuda.driver.ctx_retain(&contexts[device], device);
    *out = contexts[device];
    pthread_mutex_unlock(&contexts_lock);
    return result;
}

static int set_device(int device) {
    struct CUctx_st *ctx;
    int result = context_of(device, &ctx);
    if (!result)
        result = cuda.driver.ctx_set_current(ctx);
    if (!result)
        current = device;
    return result;
}

/* What a thread calls before it has chosen a device is for the first one. */
static int enter(void) {
    if (!cuda.driver.init || cuda.found)
        return NOT_INITIALIZED;
    return current < 0 ? set_device(0) : 0;
}

int hipSetDevice(int device) {
    return cuda.driver.init ? translated(set_device(device)) : NOT_INITIALIZED;
}

/* Calls that differ in name alone. */
#define SAME(name, args, field, ...)                                                               \
    int name args {                                                                                \
        int result = enter();                                                                      \
        return translated(result ? result : cuda.driver.field(__VA_ARGS__));                       \
    }
#define STREAM struct CUstream_st *stream
#define EVENT  struct CUevent_st *event
SAME(hipMemGetInfo, (size_t * free_bytes, size_t *total_bytes), mem_info, free_bytes, total_bytes)
SAME(hipHostFree, (void *addr), host_free, addr)
SAME(hipMemcpyHtoDAsync, (uint64_t dst, void *src, size_t bytes, STREAM), copy_to_device, dst, src,
     bytes, stream)
SAME(hipMemcpyDtoHAsync, (void *dst, uint64_t src, size_t bytes, STREAM), copy_to_host, dst, src,
     bytes, stream)
SAME(hipHostRegister, (void *addr, size_t bytes, unsigned flags), host_register, addr, bytes, flags)
SAME(hipHostUnregister, (void *addr), host_unregister, addr)
SAME(hipHostGetDevicePointer, (uint64_t * device_addr, void *addr, unsigned flags),
     host_device_pointer, device_addr, addr, flags)
SAME(hipStreamCreateWithFlags, (struct CUstream_st * *stream, unsigned flags), stream_create,
     stream, flags)
SAME(hipStreamDestroy, (STREAM), stream_destroy, stream)
SAME(hipStreamSynchronize, (STREAM), stream_sync, stream)
SAME(hipStreamQuery, (STREAM), stream_query, stream)
SAME(hipStreamWaitEvent, (STREAM, EVENT, unsigned flags), stream_wait, stream, event, flags)
SAME(hipEventCreateWithFlags, (struct CUevent_st * *event, unsigned flags), event_create, event,
     flags)
SAME(hipEventDestroy, (EVENT), event_destroy, event)
SAME(hipEventRecord, (EVENT, STREAM), event_record, event, stream)
SAME(hipEventQuery, (EVENT), event_query, event)
SAME(hipEventSynchronize, (EVENT), event_sync, event)
SAME(hipModuleLoadData, (struct CUmod_st * *module, const void *image), module_load, module, image)
SAME(hipModuleUnload, (struct CUmod_st * module), module_unload, module)
SAME(hipStreamBeginCapture, (STREAM, int mode), capture_begin, stream, mode)
SAME(hipStreamEndCapture, (STREAM, struct CUgraph_st **graph), capture_end, stream, graph)
SAME(hipGraphInstantiateWithFlags,
     (struct CUgraphExec_st * *exec, struct CUgraph_st *graph, unsigned long long flags),
     graph_instantiate, exec, graph, flags)
SAME(hipGraphDestroy, (struct CUgraph_st * graph), graph_destroy, graph)
SAME(hipGraphExecDestroy, (struct CUgraphExec_st * exec), graph_exec_destroy, exec)
SAME(hipGraphLaunch, (struct CUgraphExec_st * exec, STREAM), graph_launch, exec, stream)

/* ---- devices ---- */

/* Those that no context is needed for. */
#define PLAIN(name, args, field, ...)                                                              \
    int name args {                                                                                \
        return cuda.driver.init && !cuda.found ? translated(cuda.driver.field(__VA_ARGS__))        \
                                               : NOT_INITIALIZED;                                  \
    }
PLAIN(hipDeviceGet, (int *device, int ordinal), device_get, device, ordinal)
PLAIN(hipDeviceGetName, (char *name, int len, int device), device_name, name, len, device)
PLAIN(hipDeviceTotalMem, (size_t * bytes, int device), device_total_mem, bytes, device)
PLAIN(hipDeviceCanAccessPeer, (int *can, int device, int peer), can_access_peer, can, device, peer)

int hipDriverGetVersion(int *version) {
    *version = VERSION;
    return 0;
}

/* HIP says that there is none where CUDA's number of them is 0. */
int hipGetDeviceCount(int *n) {
    int result = hipInit(0);
    *n = 0;
    if (!result)
        result = translated(cuda.driver.device_count(n));
    return result ? result : *n ? 0 : SL_CU_NO_DEVICE;
}

/* hipDeviceAttribute_t: those that are asked for. What HIP's devices need not be asked for, shared
 * memory beyond what any block has, is a block's here as well: hipModuleGetFunction. */
int hipDeviceGetAttribute(int *value, int attribute, int device) {
    static const struct {
        int hip, cuda;
    } of[] = {
        {3, SL_CU_ATTR_CAN_MAP_HOST},     {16, SL_CU_ATTR_INTEGRATED},
        {59, SL_CU_ATTR_MEMORY_BITS},     {60, SL_CU_ATTR_MEMORY_KHZ},
        {63, SL_CU_ATTR_MULTIPROCESSORS}, {74, SL_CU_ATTR_MAX_SHARED_OPTIN},
        {87, SL_CU_ATTR_WARP_SIZE},
    };
    if (!cuda.driver.init || cuda.found)
        return NOT_INITIALIZED;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].hip == attribute)
            return translated(cuda.driver.device_attribute(value, of[i].cuda, device));
    if (attribute != 10013) /* hipDeviceAttributeCanUseStreamWaitValue */
        return SL_CU_INVALID_VALUE;
    *value = cuda.driver.word_write && cuda.driver.word_wait;
    return 0;
}

int hipGetDevicePropertiesR0600(void *properties, int device) {
    char *at = properties;
    int major, minor;
    size_t bytes;
    if (!cuda.driver.init || cuda.found)
        return NOT_INITIALIZED;
    memset(at, 0, PROPERTIES_BYTES);
    int result = cuda.driver.device_name(at, 256, device);
    if (!result)
        result = cuda.driver.device_total_mem(&bytes, device);
    if (!result)
        result = cuda.driver.device_attribute(&major, SL_CU_ATTR_CC_MAJOR, device);
    if (!result)
        result = cuda.driver.device_attribute(&minor, SL_CU_ATTR_CC_MINOR, device);
    if (result)
        return translated(result);
    memcpy(at + TOTAL_MEMORY_AT, &bytes, sizeof bytes);
    snprintf(at + ARCH_AT, 256, HIP_NVIDIA_ARCH "%d%d", major, minor);
    return 0;
}

int hipDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    if (!cuda.driver.p2p_attribute)
        return SL_CU_NOT_SUPPORTED;
    return translated(cuda.driver.p2p_attribute(value, attribute + 1, from, to));
}

int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    struct CUctx_st *ctx;
    int result = enter();
    if (!result)
        result = context_of(peer, &ctx);
    return translated(result ? result : cuda.driver.peer_enable(ctx, flags));
}

/* ---- memory ---- */

int hipMalloc(uint64_t *addr, size_t bytes) {
    int result = enter();
    *addr = 0;
    if (!result && bytes)
        result = cuda.driver.mem_alloc(addr, bytes);
    return translated(result);
}

int hipFree(uint64_t addr) {
    int result = enter();
    return translated(result || !addr ? result : cuda.driver.mem_free(addr));
}

int hipHostMalloc(void **addr, size_t bytes, unsigned flags) {
    int result = flags & ~HOST_KNOWN ? SL_CU_INVALID_VALUE : enter();
    return translated(result ? result
                             : cuda.driver.host_alloc(addr, bytes, flags & ~HOST_COHERENT));
}

int hipMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, int kind, STREAM) {
    int result = kind == COPY_BY_ADDRESS ? enter() : SL_CU_INVALID_VALUE;
    return translated(result ? result : cuda.driver.copy(dst, src, bytes, stream));
}

int hipMemcpyPeerAsync(uint64_t dst, int dst_device, uint64_t src, int src_device, size_t bytes,
                       STREAM) {
    struct CUctx_st *to, *from;
    int result = enter();
    if (!result)
        result = context_of(dst_device, &to);
    if (!result)
        result = context_of(src_device, &from);
    return translated(result ? result : cuda.driver.copy_peer(dst, to, src, from, bytes, stream));
}

/* ---- kernels, words ---- */

/* Of a block's shared memory all that the kernel does not declare itself. */
int hipModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name) {
    int all = 0, own = 0, result = enter();
    if (!result)
        result = cuda.driver.module_function(function, module, name);
    if (!result)
        result = cuda.driver.device_attribute(&all, SL_CU_ATTR_MAX_SHARED_OPTIN, current);
    if (!result && cuda.func_get_attribute)
        result = cuda.func_get_attribute(&own, STATIC_SHARED_BYTES, *function);
    if (!result)
        result =
            cuda.driver.func_set_attribute(*function, SL_CU_FUNC_MAX_DYNAMIC_SHARED, all - own);
    return translated(result);
}

int hipModuleLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned smem_bytes, STREAM, void **params, void **extra) {
    int result = extra[4] == PARAM_END ? enter() : SL_CU_INVALID_VALUE;
    void *own[] = {extra[0], extra[1], extra[2], extra[3], SL_CU_PARAM_END};
    return translated(result
                          ? result
                          : cuda.driver.launch(function, grid_x, grid_y, grid_z, block_x, block_y,
                                               block_z, smem_bytes, stream, params, own));
}

int hipStreamWriteValue32(STREAM, uint64_t addr, uint32_t value, unsigned flags) {
    int result = cuda.driver.word_write ? enter() : SL_CU_NOT_SUPPORTED;
    return translated(result ? result : cuda.driver.word_write(stream, addr, value, flags));
}

/* CUDA's wait has no mask. */
int hipStreamWaitValue32(STREAM, uint64_t addr, uint32_t value, unsigned flags, uint32_t mask) {
    int result = cuda.driver.word_wait && mask == UINT32_MAX ? enter() : SL_CU_NOT_SUPPORTED;
    return translated(result ? result : cuda.driver.word_wait(stream, addr, value, flags));
}
