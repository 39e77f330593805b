/* The functions of Level Zero that are used, found at run time: the loader's library is opened,
 * nothing is linked. */
#ifndef SL_BACKENDS_LEVEL_ZERO_DRIVER_H
#define SL_BACKENDS_LEVEL_ZERO_DRIVER_H

#include "common/status.h"

#include <level_zero/ze_api.h>
#include <stddef.h>

#define SL_LZ_FUNCTIONS(X)                                                                         \
    X(Init)                                                                                        \
    X(DriverGet)                                                                                   \
    X(DriverGetProperties)                                                                         \
    X(DriverGetExtensionFunctionAddress)                                                           \
    X(DeviceGet)                                                                                   \
    X(DeviceGetProperties)                                                                         \
    X(DeviceGetComputeProperties)                                                                  \
    X(DeviceGetModuleProperties)                                                                   \
    X(DeviceGetMemoryProperties)                                                                   \
    X(DeviceGetCommandQueueGroupProperties)                                                        \
    X(ContextCreate)                                                                               \
    X(ContextDestroy)                                                                              \
    X(CommandListCreateImmediate)                                                                  \
    X(CommandListCreate)                                                                           \
    X(CommandListClose)                                                                            \
    X(CommandQueueCreate)                                                                          \
    X(CommandQueueDestroy)                                                                         \
    X(CommandQueueExecuteCommandLists)                                                             \
    X(CommandListAppendEventReset)                                                                 \
    X(CommandListDestroy)                                                                          \
    X(CommandListAppendBarrier)                                                                    \
    X(CommandListAppendMemoryCopy)                                                                 \
    X(CommandListAppendLaunchKernel)                                                               \
    X(EventPoolCreate)                                                                             \
    X(EventPoolDestroy)                                                                            \
    X(EventCreate)                                                                                 \
    X(EventDestroy)                                                                                \
    X(EventHostReset)                                                                              \
    X(EventQueryStatus)                                                                            \
    X(EventHostSynchronize)                                                                        \
    X(MemAllocDevice)                                                                              \
    X(MemAllocHost)                                                                                \
    X(MemFree)                                                                                     \
    X(ModuleCreate)                                                                                \
    X(ModuleDestroy)                                                                               \
    X(ModuleBuildLogGetString)                                                                     \
    X(ModuleBuildLogDestroy)                                                                       \
    X(KernelCreate)                                                                                \
    X(KernelDestroy)                                                                               \
    X(KernelSetGroupSize)                                                                          \
    X(KernelSetArgumentValue)                                                                      \
    X(KernelSetIndirectAccess)

struct sl_lz_loader {
#define FIELD(name) __typeof__(&ze##name) name;
    SL_LZ_FUNCTIONS(FIELD)
#undef FIELD
};

/* Opens and starts the loader (path NULL: libze_loader.so.1). Once in a process for each path, and
 * for good: drivers do not stand being started again, after a failure least of all; so what was
 * said then is said again. SL_ERR_UNSUPPORTED: there is none here, and why. Any thread. */
enum sl_status sl_lz_loader_open(const char *path, const struct sl_lz_loader **out_loader,
                                 struct sl_err *err) SL_MUST_CHECK;

/* "ZE_RESULT_ERROR_DEVICE_LOST", or the number. */
const char *sl_lz_result_text(ze_result_t result, char *buf, size_t buf_bytes);

#endif
