/* The face of ROCm's runtime that tests/support/faulty_cuda.c has with FAULTY_HIP: symbols that the
 * HIP backend asks for, of ROCm 6 and later, and kernels that fault, by hipRTC. Their fields have
 * the names of CUDA's calls that they stand for. */
#ifndef SL_TESTS_SUPPORT_FAULTY_HIP_H
#define SL_TESTS_SUPPORT_FAULTY_HIP_H

#include "backends/gpu/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* X(field, symbol, arguments). All are said to return an int: those that do not are only passed on.
 */
#define HIP_FUNCTIONS(X)                                                                           \
    X(init, "hipInit", (unsigned flags))                                                           \
    X(driver_version, "hipDriverGetVersion", (int *version))                                       \
    X(error_name, "hipGetErrorName", (int result))                                                 \
    X(error_string, "hipGetErrorString", (int result))                                             \
    X(device_count, "hipGetDeviceCount", (int *n))                                                 \
    X(device_get, "hipDeviceGet", (int *device, int ordinal))                                      \
    X(device_name, "hipDeviceGetName", (char *name, int len, int device))                          \
    X(device_total_mem, "hipDeviceTotalMem", (size_t * bytes, int device))                         \
    X(device_attribute, "hipDeviceGetAttribute", (int *value, int attribute, int device))          \
    X(device_properties, "hipGetDevicePropertiesR0600", (void *properties, int device))            \
    X(ctx_set_current, "hipSetDevice", (int device))                                               \
    X(mem_info, "hipMemGetInfo", (size_t * free_bytes, size_t * total_bytes))                      \
    X(mem_alloc, "hipMalloc", (uint64_t * addr, size_t bytes))                                     \
    X(mem_free, "hipFree", (uint64_t addr))                                                        \
    X(host_alloc, "hipHostMalloc", (void **addr, size_t bytes, unsigned flags))                    \
    X(host_free, "hipHostFree", (void *addr))                                                      \
    X(copy_to_device, "hipMemcpyHtoDAsync", (void))                                                \
    X(copy_to_host, "hipMemcpyDtoHAsync", (void))                                                  \
    X(copy, "hipMemcpyAsync", (void))                                                              \
    X(can_access_peer, "hipDeviceCanAccessPeer", (int *can, int device, int peer))                 \
    X(peer_enable, "hipDeviceEnablePeerAccess", (int peer, unsigned flags))                        \
    X(copy_peer, "hipMemcpyPeerAsync", (void))                                                     \
    X(p2p_attribute, "hipDeviceGetP2PAttribute", (void))                                           \
    X(host_register, "hipHostRegister", (void *addr, size_t bytes, unsigned flags))                \
    X(host_unregister, "hipHostUnregister", (void *addr))                                          \
    X(host_device_pointer, "hipHostGetDevicePointer", (void))                                      \
    X(stream_create, "hipStreamCreateWithFlags", (void))                                           \
    X(stream_destroy, "hipStreamDestroy", (struct CUstream_st * stream))                           \
    X(stream_sync, "hipStreamSynchronize", (struct CUstream_st * stream))                          \
    X(stream_query, "hipStreamQuery", (struct CUstream_st * stream))                               \
    X(stream_wait, "hipStreamWaitEvent", (void))                                                   \
    X(capture_begin, "hipStreamBeginCapture", (void))                                              \
    X(capture_end, "hipStreamEndCapture",                                                          \
      (struct CUstream_st * stream, struct CUgraph_st * *graph))                                   \
    X(graph_instantiate, "hipGraphInstantiateWithFlags", (void))                                   \
    X(graph_destroy, "hipGraphDestroy", (struct CUgraph_st * graph))                               \
    X(graph_exec_destroy, "hipGraphExecDestroy", (struct CUgraphExec_st * exec))                   \
    X(graph_launch, "hipGraphLaunch", (struct CUgraphExec_st * exec, struct CUstream_st * stream)) \
    X(event_create, "hipEventCreateWithFlags", (void))                                             \
    X(event_destroy, "hipEventDestroy", (struct CUevent_st * event))                               \
    X(event_record, "hipEventRecord", (void))                                                      \
    X(event_query, "hipEventQuery", (struct CUevent_st * event))                                   \
    X(event_sync, "hipEventSynchronize", (struct CUevent_st * event))                              \
    X(module_load, "hipModuleLoadData", (struct CUmod_st * *module, const void *image))            \
    X(module_unload, "hipModuleUnload", (struct CUmod_st * module))                                \
    X(module_function, "hipModuleGetFunction",                                                     \
      (struct CUfunc_st * *function, struct CUmod_st * module, const char *name))                  \
    X(launch, "hipModuleLaunchKernel",                                                             \
      (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned smem_bytes,                  \
       struct CUstream_st *stream, void **params, void **extra))                                   \
    X(word_write, "hipStreamWriteValue32", (void))                                                 \
    X(word_wait, "hipStreamWaitValue32", (void))

#define HIP_PROPERTIES_BYTES 4096 /* more than there are */
#define HIP_ARCH_AT          1160 /* of ROCm 6 and later */

/* The last one takes about LATE_MS at some 2 GHz: 127 * 64 cycles each time. */
static const char hip_kernels[] =
    "extern \"C\" __global__ void trapping() { __builtin_trap(); }\n"
    "extern \"C\" __global__ void writing() { *(volatile unsigned *)0 = 1; }\n"
    "extern \"C\" __global__ void late() {\n"
    "    for (int i = 0; i < 75000; i++)\n"
    "        __builtin_amdgcn_s_sleep(127);\n"
    "    __builtin_trap(); }\n";

/* Their code for an architecture, which stays; NULL: hipRTC is not there, or does not. */
static inline const void *hip_compile(void *runtime, const char *arch) {
    void *separate = dlopen("libhiprtc.so.7", RTLD_NOW | RTLD_LOCAL);
    char offload[320];
    const char *options[] = {offload};
    void *lib = dlsym(runtime, "hiprtcGetCode") ? runtime : separate, *program = NULL;
    int (*create)(void **, const char *, const char *, int, const char **, const char **);
    int (*compile)(void *, int, const char **);
    int (*code_size)(void *, size_t *), (*code)(void *, char *);
    if (!lib)
        return NULL;
    void *found[] = {dlsym(lib, "hiprtcCreateProgram"), dlsym(lib, "hiprtcCompileProgram"),
                     dlsym(lib, "hiprtcGetCodeSize"), dlsym(lib, "hiprtcGetCode")};
    memcpy(&create, &found[0], sizeof create);
    memcpy(&compile, &found[1], sizeof compile);
    memcpy(&code_size, &found[2], sizeof code_size);
    memcpy(&code, &found[3], sizeof code);
    snprintf(offload, sizeof offload, "--offload-arch=%.*s", (int)strcspn(arch, ":"), arch);
    size_t bytes = 0;
    if (create(&program, hip_kernels, "faults", 0, NULL, NULL) || compile(program, 1, options) ||
        code_size(program, &bytes) || !bytes)
        return NULL;
    char *image = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    return image && code(program, image) == 0 ? image : NULL;
}

#endif
