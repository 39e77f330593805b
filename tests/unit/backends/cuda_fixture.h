/* What the CUDA backend's tests share: the fake driver, set back for each test, and devices opened
 * over it. */
#ifndef SL_TESTS_UNIT_BACKENDS_CUDA_FIXTURE_H
#define SL_TESTS_UNIT_BACKENDS_CUDA_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/cuda/cuda.h"
#include "backends/cuda/images.h"
#include "backends/gpu/gpu_internal.h"
#include "tests/support/fake_cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CU_UNKNOWN         999
#define CU_ILLEGAL_ADDRESS 700

static char driver_path[PATH_MAX];
static struct fake_cuda *fake;
static struct sl_err err;

static inline int reset(void **state) {
    (void)state;
    void *lib = dlopen(driver_path, RTLD_NOW | RTLD_LOCAL);
    fake_cuda_reset_fn *fn = NULL;
    void *found = lib ? dlsym(lib, "fake_cuda_reset") : NULL;
    memcpy(&fn, &found, sizeof fn);
    if (!fn) {
        print_error("no fake driver at %s: %s\n", driver_path, dlerror());
        return -1;
    }
    fake = fn();
    memset(&err, 0, sizeof err);
    return 0;
}

/* Most of this wants kernels in the build, as opening does. */
static inline void need_kernels(void) {
    if (sl_cuda_n_images)
        return;
    print_message("built without nvcc\n");
    skip();
}

static inline enum sl_status open_gpu(uint32_t ordinal, uint32_t staging_bytes,
                                      struct sl_device **out) {
    struct sl_cuda_config config = {
        .ordinal = ordinal, .driver_path = driver_path, .staging_bytes = staging_bytes};
    return sl_cuda_open(&config, out, &err);
}

static inline struct sl_device *opened(uint32_t staging_bytes) {
    struct sl_device *d = NULL;
    if (open_gpu(0, staging_bytes, &d))
        fail_msg("%s", err.text);
    return d;
}

static inline void fill(struct sl_device *d, void *addr, uint32_t value) {
    struct sl_karg_fill a = {.dst = addr, .n = 1, .value = value};
    const struct sl_dim3 one = {1, 1, 1}, block = {32, 1, 1};
    assert_int_equal(sl_gpu_launch((struct sl_gpu *)d, SL_KERNEL_fill, one, block, 0, &a, sizeof a),
                     SL_OK);
}

/* Where the fake driver is, for a program build/MODE/tests/unit/backends/NAME: beside unit/. */
static inline bool find_driver(const char *program) {
    char *slash = realpath(program, driver_path) ? strrchr(driver_path, '/') : NULL;
    if (!slash)
        return false;
    snprintf(slash, sizeof driver_path - (size_t)(slash - driver_path),
             "/../../support/fake_cuda.so");
    return true;
}

#endif
