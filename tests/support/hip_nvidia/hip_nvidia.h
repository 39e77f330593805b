/* HIP's runtime and hipRTC over NVIDIA's driver and NVRTC: libamdhip64.so.6 for tests. What it
 * exports, which HIP's own headers declare elsewhere. */
#ifndef TESTS_SUPPORT_HIP_NVIDIA_H
#define TESTS_SUPPORT_HIP_NVIDIA_H

#include "backends/gpu/driver.h"

/* Before the digits of the compute capability: what a card says that it is. */
#define HIP_NVIDIA_ARCH "gfx-sm-"

int hipInit(unsigned flags);
int hipSetDevice(int device);
int hipDriverGetVersion(int *version);
int hipGetDeviceCount(int *n);
int hipDeviceGet(int *device, int ordinal);
int hipDeviceGetName(char *name, int len, int device);
int hipDeviceTotalMem(size_t *bytes, int device);
int hipDeviceGetAttribute(int *value, int attribute, int device);
int hipGetDevicePropertiesR0600(void *properties, int device);
int hipDeviceCanAccessPeer(int *can, int device, int peer);
int hipDeviceGetP2PAttribute(int *value, int attribute, int from, int to);
int hipDeviceEnablePeerAccess(int peer, unsigned flags);
const char *hipGetErrorName(int result);
const char *hipGetErrorString(int result);
int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes);
int hipMalloc(uint64_t *addr, size_t bytes);
int hipFree(uint64_t addr);
int hipHostMalloc(void **addr, size_t bytes, unsigned flags);
int hipHostFree(void *addr);
int hipHostRegister(void *addr, size_t bytes, unsigned flags);
int hipHostUnregister(void *addr);
int hipHostGetDevicePointer(uint64_t *device_addr, void *addr, unsigned flags);
int hipMemcpyHtoDAsync(uint64_t dst, void *src, size_t bytes, struct CUstream_st *stream);
int hipMemcpyDtoHAsync(void *dst, uint64_t src, size_t bytes, struct CUstream_st *stream);
int hipMemcpyAsync(uint64_t dst, uint64_t src, size_t bytes, int kind, struct CUstream_st *stream);
int hipMemcpyPeerAsync(uint64_t dst, int dst_device, uint64_t src, int src_device, size_t bytes,
                       struct CUstream_st *stream);
int hipStreamCreateWithFlags(struct CUstream_st **stream, unsigned flags);
int hipStreamDestroy(struct CUstream_st *stream);
int hipStreamSynchronize(struct CUstream_st *stream);
int hipStreamQuery(struct CUstream_st *stream);
int hipStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags);
int hipStreamWriteValue32(struct CUstream_st *stream, uint64_t addr, uint32_t value,
                          unsigned flags);
int hipStreamWaitValue32(struct CUstream_st *stream, uint64_t addr, uint32_t value, unsigned flags,
                         uint32_t mask);
int hipEventCreateWithFlags(struct CUevent_st **event, unsigned flags);
int hipEventDestroy(struct CUevent_st *event);
int hipEventRecord(struct CUevent_st *event, struct CUstream_st *stream);
int hipEventQuery(struct CUevent_st *event);
int hipEventSynchronize(struct CUevent_st *event);
int hipStreamBeginCapture(struct CUstream_st *stream, int mode);
int hipStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **graph);
int hipGraphInstantiateWithFlags(struct CUgraphExec_st **exec, struct CUgraph_st *graph,
                                 unsigned long long flags);
int hipGraphDestroy(struct CUgraph_st *graph);
int hipGraphExecDestroy(struct CUgraphExec_st *exec);
int hipGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream);
int hipModuleLoadData(struct CUmod_st **module, const void *image);
int hipModuleUnload(struct CUmod_st *module);
int hipModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name);
int hipModuleLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
                          unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned smem_bytes, struct CUstream_st *stream, void **params,
                          void **extra);

struct hip_nvidia_program;
int hiprtcVersion(int *major, int *minor);
const char *hiprtcGetErrorString(int result);
int hiprtcCreateProgram(struct hip_nvidia_program **out, const char *text, const char *name,
                        int n_headers, const char *const *headers, const char *const *header_names);
int hiprtcCompileProgram(struct hip_nvidia_program *p, int n_options, const char *const *options);
int hiprtcGetProgramLogSize(struct hip_nvidia_program *p, size_t *out_bytes);
int hiprtcGetProgramLog(struct hip_nvidia_program *p, char *out);
int hiprtcGetCodeSize(struct hip_nvidia_program *p, size_t *out_bytes);
int hiprtcGetCode(struct hip_nvidia_program *p, char *out);

#endif
