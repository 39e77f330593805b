/* A GPU driver's calls as a table, filled at run time: nothing is linked, no toolkit header is
 * needed. Types, numbers and symbols are those of CUDA's binary interface, which does not change
 * within a symbol's version suffix; HIP's calls are made to look like them (backends/hip/).
 * Source: CUDA Driver API reference, and libcuda's own symbol names. */
#ifndef SL_BACKENDS_GPU_DRIVER_H
#define SL_BACKENDS_GPU_DRIVER_H

#include "common/status.h"

#include <stddef.h>
#include <stdint.h>

/* Handles. */
struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;

/* CUresult: those that are told apart. */
enum {
    SL_CU_OK = 0,
    SL_CU_INVALID_VALUE = 1,
    SL_CU_OUT_OF_MEMORY = 2,
    SL_CU_NO_DEVICE = 100,
    SL_CU_INVALID_DEVICE = 101,
    SL_CU_INVALID_IMAGE = 200,
    SL_CU_NO_BINARY_FOR_GPU = 209,
    SL_CU_PEER_ACCESS_UNSUPPORTED = 217,
    SL_CU_UNSUPPORTED_PTX_VERSION = 222,
    SL_CU_NOT_FOUND = 500,
    SL_CU_NOT_READY = 600,
    SL_CU_LAUNCH_OUT_OF_RESOURCES = 701,
    SL_CU_PEER_ACCESS_ALREADY_ENABLED = 704,
    SL_CU_TOO_MANY_PEERS = 711,
    SL_CU_HOST_MEMORY_ALREADY_REGISTERED = 712,
    SL_CU_NOT_SUPPORTED = 801,
    SL_CU_CAPTURE_FIRST = 900, /* what spoils a capture, and leaves the device in use */
    SL_CU_CAPTURE_LAST = 908,
};

/* CUdevice_attribute */
enum {
    SL_CU_ATTR_WARP_SIZE = 10,
    SL_CU_ATTR_MULTIPROCESSORS = 16,
    SL_CU_ATTR_INTEGRATED = 18,
    SL_CU_ATTR_CAN_MAP_HOST = 19,
    SL_CU_ATTR_MEMORY_KHZ = 36,
    SL_CU_ATTR_MEMORY_BITS = 37, /* of its bus */
    SL_CU_ATTR_CC_MAJOR = 75,
    SL_CU_ATTR_CC_MINOR = 76,
    SL_CU_ATTR_MAX_SHARED_OPTIN = 97,
};

enum {
    SL_CU_STREAM_NON_BLOCKING = 1,
    SL_CU_EVENT_NO_TIMING = 2,
    SL_CU_HOST_ALLOC_PORTABLE = 1,
    SL_CU_HOST_ALLOC_MAPPED = 2,
    SL_CU_HOST_REGISTER_PORTABLE = 1,
    SL_CU_HOST_REGISTER_MAPPED = 2,
    SL_CU_P2P_NATIVE_ATOMICS = 3, /* CUdevice_P2PAttribute */
    SL_CU_WAIT_FOR_AT_LEAST = 0,  /* of word_wait; differences count, so that values may wrap */
    SL_CU_CAPTURE_RELAXED = 2,
    SL_CU_FUNC_MAX_DYNAMIC_SHARED = 8, /* CUfunction_attribute */
    SL_CU_FUNC_SHARED_CARVEOUT = 9, /* a hint: percent of what L1 cache and shared memory share */
};
/* CUlaunchConfig with one CUlaunchAttribute. */
#define SL_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION 6
struct sl_cu_launch_attribute {
    int id;
    char pad[4];
    union {
        int flag;
        char bytes[64];
    } value;
};
struct sl_cu_launch_config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, smem_bytes;
    struct CUstream_st *stream;
    struct sl_cu_launch_attribute *attributes;
    unsigned n_attributes;
};
/* The `extra` array of cuLaunchKernel: all arguments as one buffer. */
#define SL_CU_PARAM_POINTER ((void *)0x01)
#define SL_CU_PARAM_SIZE    ((void *)0x02)
#define SL_CU_PARAM_END     ((void *)0x00)

/* X(field, symbol, arguments): every function returns a CUresult, an int. */
#define SL_CU_FUNCTIONS(X)                                                                         \
    X(init, "cuInit", (unsigned flags))                                                            \
    X(driver_version, "cuDriverGetVersion", (int *version))                                        \
    X(error_name, "cuGetErrorName", (int result, const char **text))                               \
    X(error_string, "cuGetErrorString", (int result, const char **text))                           \
    X(device_count, "cuDeviceGetCount", (int *n))                                                  \
    X(device_get, "cuDeviceGet", (int *device, int ordinal))                                       \
    X(device_name, "cuDeviceGetName", (char *name, int len, int device))                           \
    X(device_total_mem, "cuDeviceTotalMem_v2", (size_t * bytes, int device))                       \
    X(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device))           \
    X(ctx_retain, "cuDevicePrimaryCtxRetain", (struct CUctx_st * *ctx, int device))                \
    X(ctx_release, "cuDevicePrimaryCtxRelease_v2", (int device))                                   \
    X(ctx_set_current, "cuCtxSetCurrent", (struct CUctx_st * ctx))                                 \
    X(mem_info, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total_bytes))                    \
    X(mem_alloc, "cuMemAlloc_v2", (uint64_t * addr, size_t bytes))                                 \
    X(mem_free, "cuMemFree_v2", (uint64_t addr))                                                   \
    X(host_alloc, "cuMemHostAlloc", (void **addr, size_t bytes, unsigned flags))                   \
    X(host_free, "cuMemFreeHost", (void *addr))                                                    \
    X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                      \
      (uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream))                   \
    X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                        \
      (void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream))                         \
    X(copy, "cuMemcpyAsync",                                                                       \
      (uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st * stream))                     \
    X(can_access_peer, "cuDeviceCanAccessPeer", (int *can, int device, int peer))                  \
    X(peer_enable, "cuCtxEnablePeerAccess", (struct CUctx_st * peer, unsigned flags))              \
    X(copy_peer, "cuMemcpyPeerAsync",                                                              \
      (uint64_t dst, struct CUctx_st * dst_ctx, uint64_t src, struct CUctx_st * src_ctx,           \
       size_t bytes, struct CUstream_st * stream))                                                 \
    X(host_register, "cuMemHostRegister_v2", (void *addr, size_t bytes, unsigned flags))           \
    X(host_unregister, "cuMemHostUnregister", (void *addr))                                        \
    X(host_device_pointer, "cuMemHostGetDevicePointer_v2",                                         \
      (uint64_t * device_addr, void *addr, unsigned flags))                                        \
    X(stream_create, "cuStreamCreate", (struct CUstream_st * *stream, unsigned flags))             \
    X(stream_destroy, "cuStreamDestroy_v2", (struct CUstream_st * stream))                         \
    X(stream_sync, "cuStreamSynchronize", (struct CUstream_st * stream))                           \
    X(stream_query, "cuStreamQuery", (struct CUstream_st * stream))                                \
    X(stream_wait, "cuStreamWaitEvent",                                                            \
      (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags))                    \
    X(capture_begin, "cuStreamBeginCapture_v2", (struct CUstream_st * stream, int mode))           \
    X(capture_end, "cuStreamEndCapture",                                                           \
      (struct CUstream_st * stream, struct CUgraph_st * *graph))                                   \
    X(graph_instantiate, "cuGraphInstantiateWithFlags",                                            \
      (struct CUgraphExec_st * *exec, struct CUgraph_st * graph, unsigned long long flags))        \
    X(graph_destroy, "cuGraphDestroy", (struct CUgraph_st * graph))                                \
    X(graph_exec_destroy, "cuGraphExecDestroy", (struct CUgraphExec_st * exec))                    \
    X(graph_launch, "cuGraphLaunch", (struct CUgraphExec_st * exec, struct CUstream_st * stream))  \
    X(event_create, "cuEventCreate", (struct CUevent_st * *event, unsigned flags))                 \
    X(event_destroy, "cuEventDestroy_v2", (struct CUevent_st * event))                             \
    X(event_record, "cuEventRecord", (struct CUevent_st * event, struct CUstream_st * stream))     \
    X(event_query, "cuEventQuery", (struct CUevent_st * event))                                    \
    X(event_sync, "cuEventSynchronize", (struct CUevent_st * event))                               \
    X(module_load, "cuModuleLoadData", (struct CUmod_st * *module, const void *image))             \
    X(module_unload, "cuModuleUnload", (struct CUmod_st * module))                                 \
    X(module_function, "cuModuleGetFunction",                                                      \
      (struct CUfunc_st * *function, struct CUmod_st * module, const char *name))                  \
    X(func_set_attribute, "cuFuncSetAttribute",                                                    \
      (struct CUfunc_st * function, int attribute, int value))                                     \
    X(launch, "cuLaunchKernel",                                                                    \
      (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,                  \
       struct CUstream_st *stream, void **params, void **extra))

/* Functions that older drivers lack: NULL there. */
#define SL_CU_NEWER_FUNCTIONS(X)                                                                   \
    X(launch_ex, "cuLaunchKernelEx",                                                               \
      (const struct sl_cu_launch_config *config, struct CUfunc_st *function, void **params,        \
       void **extra))                                                                              \
    X(word_write, "cuStreamWriteValue32_v2",                                                       \
      (struct CUstream_st * stream, uint64_t addr, uint32_t value, unsigned flags))                \
    X(word_wait, "cuStreamWaitValue32_v2",                                                         \
      (struct CUstream_st * stream, uint64_t addr, uint32_t value, unsigned flags))                \
    X(p2p_attribute, "cuDeviceGetP2PAttribute", (int *value, int attribute, int from, int to))

struct sl_gpu_driver {
    void *lib;
    const char *runtime; /* "CUDA": for messages */
    int version;         /* 13000 = CUDA 13.0: the newest that this driver supports */
#define SL_CU_FIELD(field, symbol, args) int(*field) args;
    SL_CU_FUNCTIONS(SL_CU_FIELD)
    SL_CU_NEWER_FUNCTIONS(SL_CU_FIELD)
#undef SL_CU_FIELD
};

/* "CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", or a number the driver cannot name.
 */
const char *sl_gpu_result_text(const struct sl_gpu_driver *driver, int result, char *buf,
                               size_t buf_bytes);

#endif
