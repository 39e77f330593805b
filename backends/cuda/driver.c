/* NVIDIA's driver as the table of backends/gpu/driver.h. */
#include "backends/cuda/cuda_internal.h"

#include <dlfcn.h>
#include <string.h>

enum sl_status sl_cuda_driver_open(const char *path, struct sl_gpu_driver *out_driver,
                                   struct sl_err *err) {
    const char *name = path ? path : "libcuda.so.1";
    struct sl_gpu_driver d = {.lib = dlopen(name, RTLD_NOW | RTLD_LOCAL), .runtime = "CUDA"};
    if (!d.lib)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "cuda: no NVIDIA driver here (%s); install the GPU's driver, or use the CPU",
                       dlerror());
    const char *missing = NULL;
    /* A function pointer may not be cast from dlsym's object pointer; its bytes may be copied. */
#define FIND(field, symbol, args)                                                                  \
    do {                                                                                           \
        void *found = dlsym(d.lib, symbol);                                                        \
        memcpy(&d.field, &found, sizeof found);                                                    \
        if (!found && !missing)                                                                    \
            missing = symbol;                                                                      \
    } while (0);
    SL_CU_FUNCTIONS(FIND)
    const char *needed = missing;
    SL_CU_NEWER_FUNCTIONS(FIND)
#undef FIND
    missing = needed;
    if (missing)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "cuda: %s has no %s: the driver is too old; install a newer one", name,
                       missing);
    char text[256];
    int result = d.init(0);
    if (result == SL_CU_NO_DEVICE)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "cuda: the driver finds no GPU (%s)",
                       sl_gpu_result_text(&d, result, text, sizeof text));
    if (result)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "cuda: the driver does not start (%s); does nvidia-smi work?",
                       sl_gpu_result_text(&d, result, text, sizeof text));
    if (d.driver_version(&d.version))
        d.version = 0;
    *out_driver = d;
    return SL_OK;
}
