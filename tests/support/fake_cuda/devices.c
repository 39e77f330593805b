#include "tests/support/fake_cuda/internal.h"

#include <stdlib.h>

int cuInit(unsigned flags);
int cuInit(unsigned flags) {
    (void)flags;
    ENTER("cuInit");
    return fake.init_result;
}

int cuDriverGetVersion(int *version);
int cuDriverGetVersion(int *version) {
    ENTER("cuDriverGetVersion");
    *version = 13000;
    return 0;
}

int cuGetErrorName(int result, const char **text);
int cuGetErrorName(int result, const char **text) {
    static _Thread_local char name[32];
    if (result == 999)
        return SL_CU_INVALID_VALUE; /* one that it cannot name */
    snprintf(name, sizeof name, "FAKE_ERROR_%d", result);
    *text = name;
    return 0;
}

int cuGetErrorString(int result, const char **text);
int cuGetErrorString(int result, const char **text) {
    (void)result;
    *text = "as the test asked";
    return 0;
}

int cuDeviceGetCount(int *n);
int cuDeviceGetCount(int *n) {
    ENTER("cuDeviceGetCount");
    *n = fake.n_devices;
    return 0;
}

int cuDeviceGet(int *device, int ordinal);
int cuDeviceGet(int *device, int ordinal) {
    ENTER("cuDeviceGet");
    if (ordinal < 0 || ordinal >= fake.n_devices)
        return SL_CU_INVALID_DEVICE;
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int len, int device);
int cuDeviceGetName(char *name, int len, int device) {
    ENTER("cuDeviceGetName");
    const char *same = getenv("FAKE_CUDA_NAME"); /* of all of them */
    if (same)
        snprintf(name, (size_t)len, "%s", same);
    else
        snprintf(name, (size_t)len, "Fake GPU %d", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    ENTER("cuDeviceTotalMem_v2");
    *bytes = fake.memory_bytes[device];
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER("cuDeviceGetAttribute");
    switch (attribute) {
    case SL_CU_ATTR_CC_MAJOR:
        *value = fake.cc[device] / 10;
        return 0;
    case SL_CU_ATTR_CC_MINOR:
        *value = fake.cc[device] % 10;
        return 0;
    case SL_CU_ATTR_INTEGRATED:
        *value = fake.integrated[device];
        return 0;
    case SL_CU_ATTR_WARP_SIZE:
        *value = (int)fake_wave_lanes();
        return 0;
    case SL_CU_ATTR_MULTIPROCESSORS:
        *value = 132;
        return 0;
    case SL_CU_ATTR_MAX_SHARED_OPTIN:
        *value = DEVICE_SHARED;
        return 0;
    case SL_CU_ATTR_CAN_MAP_HOST:
        *value = !fake.cannot_map;
        return 0;
    case SL_CU_ATTR_MEMORY_KHZ:
        *value = 1000000;
        return fake.no_memory_rate ? SL_CU_INVALID_VALUE : 0;
    case SL_CU_ATTR_MEMORY_BITS:
        *value = 4096;
        return 0;
    default:
        return SL_CU_INVALID_VALUE;
    }
}

int cuDeviceCanAccessPeer(int *can, int device, int peer);
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER("cuDeviceCanAccessPeer");
    *can = !fake.no_peer_access && device != peer;
    return 0;
}

int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to);
int cuDeviceGetP2PAttribute(int *value, int attribute, int from, int to) {
    ENTER("cuDeviceGetP2PAttribute");
    if (attribute != SL_CU_P2P_NATIVE_ATOMICS || from == to)
        return SL_CU_INVALID_VALUE;
    *value = !fake.no_peer_access && !fake.no_direct_link;
    return 0;
}

int cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned flags);
int cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned flags) {
    ENTER_CONTEXT("cuCtxEnablePeerAccess");
    if (fake.no_peer_access || !peer || peer == fake_current || flags)
        return SL_CU_PEER_ACCESS_UNSUPPORTED;
    bool *reads = &fake_current->reads[peer - fake_contexts];
    if (*reads)
        return SL_CU_PEER_ACCESS_ALREADY_ENABLED;
    *reads = true;
    return 0;
}

int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device);
int cuDevicePrimaryCtxRetain(struct CUctx_st **ctx, int device) {
    ENTER("cuDevicePrimaryCtxRetain");
    if (fake_contexts[device].stuck)
        return fake_contexts[device].stuck;
    fake_contexts[device].refs++;
    fake.live_objects++;
    *ctx = &fake_contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device);
int cuDevicePrimaryCtxRelease_v2(int device) {
    LOCKED;
    fake.n_calls++;
    if (fake_contexts[device].refs-- <= 0)
        return fake_wrong();
    if (!fake_contexts[device].refs) /* the next one is another */
        fake_contexts[device].stuck = fake_contexts[device].fault = 0;
    fake.live_objects--;
    return 0;
}

int cuCtxSetCurrent(struct CUctx_st *ctx);
int cuCtxSetCurrent(struct CUctx_st *ctx) {
    ENTER("cuCtxSetCurrent");
    fake_current = ctx;
    return 0;
}
