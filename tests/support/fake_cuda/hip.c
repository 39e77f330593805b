/* The driver's other face: the symbols of ROCm's runtime (FAKE_HIP), over those of CUDA's.
 * With FAKE_HIP_OLD it lacks those that the backend does without. */
#include "tests/support/fake_cuda/internal.h"

#ifdef FAKE_HIP
#include <stdlib.h>
#include <string.h>

#define NOT_SUPPORTED    801
#define PROPERTIES_BYTES 1472
#define ARCH_AT          1160
/* All that a block may have, and what the kernels' meetings take of it is counted as well. */
#define BLOCK_SHARED 65536

int cuInit(unsigned flags);
int cuDeviceGetCount(int *n);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetName(char *name, int len, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to);
int cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned flags);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes);
int cuMemAlloc_v2(uint64_t *addr, size_t bytes);
int cuMemFree_v2(uint64_t addr);
int cuMemHostAlloc(void **addr, size_t bytes, unsigned flags);
int cuMemFreeHost(void *addr);
int cuMemcpyHtoDAsync_v2(uint64_t dst, const void *src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyDtoHAsync_v2(void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, struct CUstream_st *stream);
int cuMemcpyPeerAsync(uint64_t dst, struct CUctx_st *dst_ctx, uint64_t src,
                      struct CUctx_st *src_ctx, size_t bytes, struct CUstream_st *stream);
int cuMemHostRegister_v2(void *addr, size_t bytes, unsigned flags);
int cuMemHostUnregister(void *addr);
int cuMemHostGetDevicePointer_v2(uint64_t *device_addr, void *addr, unsigned flags);
int cuStreamCreate(struct CUstream_st **stream, unsigned flags);
int cuStreamDestroy_v2(struct CUstream_st *stream);
int cuStreamSynchronize(struct CUstream_st *stream);
int cuStreamQuery(struct CUstream_st *stream);
int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode);
int cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph);
int cuGraphInstantiateWithFlags(struct CUgraphExec_st **exec, struct CUgraph_st *graph,
                                unsigned long long flags);
int cuGraphDestroy(struct CUgraph_st *graph);
int cuGraphExecDestroy(struct CUgraphExec_st *exec);
int cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream);
int cuEventCreate(struct CUevent_st **event, unsigned flags);
int cuEventDestroy_v2(struct CUevent_st *event);
int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
int cuEventQuery(struct CUevent_st *event);
int cuEventSynchronize(struct CUevent_st *event);
int cuModuleLoadData(struct CUmod_st **module, const void *image);
int cuModuleUnload(struct CUmod_st *module);
int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name);
int cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value);
int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,
                   struct CUstream_st *stream, void **params, void **extra);
int cuStreamWriteValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                            unsigned flags);
int cuStreamWaitValue32_v2(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                           unsigned flags);

/* hip_runtime_api.h has the arguments. FACE: those that differ in name alone. */
#define FACE(name, args, cuda, ...)                                                                \
    int name args;                                                                                 \
    int name args {                                                                                \
        return cuda(__VA_ARGS__);                                                                  \
    }
FACE(hipInit, (unsigned flags), cuInit, flags)
FACE(hipGetDeviceCount, (int *n), cuDeviceGetCount, n)
FACE(hipDeviceGet, (int *device, int ordinal), cuDeviceGet, device, ordinal)
FACE(hipDeviceGetName, (char *name, int len, int device), cuDeviceGetName, name, len, device)
FACE(hipDeviceTotalMem, (size_t * bytes, int device), cuDeviceTotalMem_v2, bytes, device)
FACE(hipDeviceCanAccessPeer, (int *can, int device, int peer), cuDeviceCanAccessPeer, can, device,
     peer)
FACE(hipMemGetInfo, (size_t * free_bytes, size_t *total), cuMemGetInfo_v2, free_bytes, total)
FACE(hipMalloc, (uint64_t * addr, size_t bytes), cuMemAlloc_v2, addr, bytes)
FACE(hipFree, (uint64_t addr), cuMemFree_v2, addr)
FACE(hipHostFree, (void *addr), cuMemFreeHost, addr)
FACE(hipMemcpyHtoDAsync, (uint64_t dst, void *src, size_t bytes, struct CUstream_st *stream),
     cuMemcpyHtoDAsync_v2, dst, src, bytes, stream)
FACE(hipMemcpyDtoHAsync, (void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream),
     cuMemcpyDtoHAsync_v2, dst, src, bytes, stream)
FACE(hipHostRegister, (void *addr, size_t bytes, unsigned flags), cuMemHostRegister_v2, addr, bytes,
     flags)
FACE(hipHostUnregister, (void *addr), cuMemHostUnregister, addr)
FACE(hipHostGetDevicePointer, (uint64_t * device_addr, void *addr, unsigned flags),
     cuMemHostGetDevicePointer_v2, device_addr, addr, flags)
FACE(hipStreamCreateWithFlags, (struct CUstream_st * *stream, unsigned flags), cuStreamCreate,
     stream, flags)
FACE(hipStreamDestroy, (struct CUstream_st * stream), cuStreamDestroy_v2, stream)
FACE(hipStreamSynchronize, (struct CUstream_st * stream), cuStreamSynchronize, stream)
FACE(hipStreamQuery, (struct CUstream_st * stream), cuStreamQuery, stream)
FACE(hipStreamWaitEvent, (struct CUstream_st * stream, struct CUevent_st *event, unsigned flags),
     cuStreamWaitEvent, stream, event, flags)
FACE(hipEventCreateWithFlags, (struct CUevent_st * *event, unsigned flags), cuEventCreate, event,
     flags)
FACE(hipEventDestroy, (struct CUevent_st * event), cuEventDestroy_v2, event)
FACE(hipEventRecord, (struct CUevent_st * event, struct CUstream_st *stream), cuEventRecord, event,
     stream)
FACE(hipEventQuery, (struct CUevent_st * event), cuEventQuery, event)
FACE(hipEventSynchronize, (struct CUevent_st * event), cuEventSynchronize, event)
FACE(hipModuleUnload, (struct CUmod_st * module), cuModuleUnload, module)

#ifndef FAKE_HIP_OLD
FACE(hipStreamBeginCapture, (struct CUstream_st * stream, int mode), cuStreamBeginCapture_v2,
     stream, mode)
FACE(hipStreamEndCapture, (struct CUstream_st * stream, struct CUgraph_st **graph),
     cuStreamEndCapture, stream, graph)
FACE(hipGraphInstantiateWithFlags,
     (struct CUgraphExec_st * *exec, struct CUgraph_st *graph, unsigned long long flags),
     cuGraphInstantiateWithFlags, exec, graph, flags)
FACE(hipGraphDestroy, (struct CUgraph_st * graph), cuGraphDestroy, graph)
FACE(hipGraphExecDestroy, (struct CUgraphExec_st * exec), cuGraphExecDestroy, exec)
FACE(hipGraphLaunch, (struct CUgraphExec_st * exec, struct CUstream_st *stream), cuGraphLaunch,
     exec, stream)
FACE(hipStreamWriteValue32,
     (struct CUstream_st * stream, uint64_t addr, uint32_t value, unsigned flags),
     cuStreamWriteValue32_v2, stream, addr, value, flags)
#endif

int hipDriverGetVersion(int *version);
int hipDriverGetVersion(int *version) {
    ENTER("hipDriverGetVersion");
    const char *text = getenv("FAKE_HIP_VERSION");
    *version = text ? atoi(text) : 60241133;
    return 0;
}

const char *hipGetErrorName(int result);
const char *hipGetErrorName(int result) {
    static _Thread_local char name[32];
    snprintf(name, sizeof name, "FAKE_ERROR_%d", result);
    return name;
}

const char *hipGetErrorString(int result);
const char *hipGetErrorString(int result) {
    (void)result;
    return "as the test asked";
}

/* In front of a struct of which nothing else is asked. */
int hipGetDevicePropertiesR0600(void *properties, int device);
int hipGetDevicePropertiesR0600(void *properties, int device) {
    ENTER("hipGetDevicePropertiesR0600");
    const char *arch = getenv("FAKE_HIP_ARCH");
    if (device < 0 || device >= fake.n_devices)
        return SL_CU_INVALID_DEVICE;
    memset(properties, 0, PROPERTIES_BYTES);
    snprintf((char *)properties + ARCH_AT, 256, "%s", arch ? arch : "gfx90a:sramecc+:xnack-");
    return 0;
}

int hipDeviceGetAttribute(int *value, int attribute, int device);
int hipDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 3:
        return cuDeviceGetAttribute(value, SL_CU_ATTR_CAN_MAP_HOST, device);
    case 16:
        return cuDeviceGetAttribute(value, SL_CU_ATTR_INTEGRATED, device);
    case 59:
        return cuDeviceGetAttribute(value, SL_CU_ATTR_MEMORY_BITS, device);
    case 60:
        return cuDeviceGetAttribute(value, SL_CU_ATTR_MEMORY_KHZ, device);
    case 63:
        return cuDeviceGetAttribute(value, SL_CU_ATTR_MULTIPROCESSORS, device);
    case 74:
        *value = BLOCK_SHARED;
        return 0;
    case 87:
        return cuDeviceGetAttribute(value, SL_CU_ATTR_WARP_SIZE, device);
    case 10013:
        *value = 1;
        return 0;
    default:
        return SL_CU_INVALID_VALUE;
    }
}

/* A thread's device; its context is made when it is first wanted, and stays. */
int hipSetDevice(int device);
int hipSetDevice(int device) {
    ENTER("hipSetDevice");
    if (device < 0 || device >= fake.n_devices)
        return SL_CU_INVALID_DEVICE;
    fake_current = &fake_contexts[device];
    return 0;
}

#ifndef FAKE_HIP_OLD
int hipDeviceGetP2PAttribute(int *value, int attribute, int from, int to);
int hipDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    return attribute == 2 ? cuDeviceGetP2PAttribute(value, SL_CU_P2P_NATIVE_ATOMICS, from, to)
                          : SL_CU_INVALID_VALUE;
}
#endif

int hipDeviceEnablePeerAccess(int peer, unsigned flags);
int hipDeviceEnablePeerAccess(int peer, unsigned flags) {
    return peer < 0 || peer >= fake.n_devices ? SL_CU_INVALID_DEVICE
                                              : cuCtxEnablePeerAccess(&fake_contexts[peer], flags);
}

int hipHostMalloc(void **addr, size_t bytes, unsigned flags);
int hipHostMalloc(void **addr, size_t bytes, unsigned flags) {
    if (!(flags & 0x40000000u))
        return fake_wrong(); /* words that kernels write would not be seen */
    return cuMemHostAlloc(addr, bytes, flags & ~0x40000000u);
}

int hipMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, int kind, struct CUstream_st *stream);
int hipMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, int kind, struct CUstream_st *stream) {
    return kind == 4 ? cuMemcpyAsync(dst, src, bytes, stream) : fake_wrong();
}

int hipMemcpyPeerAsync(uint64_t dst, int dst_device, uint64_t src, int src_device, size_t bytes,
                       struct CUstream_st *stream);
int hipMemcpyPeerAsync(uint64_t dst, int dst_device, uint64_t src, int src_device, size_t bytes,
                       struct CUstream_st *stream) {
    return cuMemcpyPeerAsync(dst, &fake_contexts[dst_device], src, &fake_contexts[src_device],
                             bytes, stream);
}

int hipModuleLoadData(struct CUmod_st **module, const void *image);
int hipModuleLoadData(struct CUmod_st **module, const void *image) {
    static const char magic[] = "__CLANG_OFFLOAD_BUNDLE__";
    static const unsigned char fatbin[4] = {0x50, 0xed, 0x55, 0xba};
    return memcmp(image, magic, sizeof magic - 1) == 0 || memcmp(image, "\177ELF", 4) == 0
               ? cuModuleLoadData(module, fatbin)
               : SL_CU_INVALID_IMAGE;
}

/* Shared memory is not asked for: what a block may have, each has. */
int hipModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name);
int hipModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name) {
    int result = cuModuleGetFunction(function, module, name);
    return result ? result
                  : cuFuncSetAttribute(*function, SL_CU_FUNC_MAX_DYNAMIC_SHARED, BLOCK_SHARED);
}

int hipModuleLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned smem_bytes, struct CUstream_st *stream, void **params,
                          void **extra);
int hipModuleLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned smem_bytes, struct CUstream_st *stream, void **params,
                          void **extra) {
    if (extra[4] != (void *)0x03)
        return fake_wrong();
    void *own[] = {extra[0], extra[1], extra[2], extra[3], SL_CU_PARAM_END};
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, smem_bytes,
                          stream, params, own);
}

#ifndef FAKE_HIP_OLD
int hipStreamWaitValue32(struct CUstream_st *stream, uint64_t addr, uint32_t value, unsigned flags,
                         uint32_t mask);
int hipStreamWaitValue32(struct CUstream_st *stream, uint64_t addr, uint32_t value, unsigned flags,
                         uint32_t mask) {
    return mask == UINT32_MAX ? cuStreamWaitValue32_v2(stream, addr, value, flags) : NOT_SUPPORTED;
}
#endif
#endif
