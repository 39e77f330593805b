#include "backends/level_zero/driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *sl_lz_result_text(ze_result_t result, char *buf, size_t buf_bytes) {
    static const struct {
        ze_result_t result;
        const char *name;
    } names[] = {
#define NAME(result) {result, #result}
        NAME(ZE_RESULT_NOT_READY),
        NAME(ZE_RESULT_ERROR_DEVICE_LOST),
        NAME(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY),
        NAME(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY),
        NAME(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE),
        NAME(ZE_RESULT_ERROR_MODULE_LINK_FAILURE),
        NAME(ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET),
        NAME(ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE),
        NAME(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS),
        NAME(ZE_RESULT_ERROR_NOT_AVAILABLE),
        NAME(ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE),
        NAME(ZE_RESULT_ERROR_UNINITIALIZED),
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_VERSION),
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
        NAME(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        NAME(ZE_RESULT_ERROR_UNSUPPORTED_SIZE),
        NAME(ZE_RESULT_ERROR_INVALID_KERNEL_NAME),
        NAME(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY),
        NAME(ZE_RESULT_ERROR_UNKNOWN),
#undef NAME
    };
    snprintf(buf, buf_bytes, "Level Zero error 0x%x", (unsigned)result);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].result == result)
            snprintf(buf, buf_bytes, "%s", names[i].name);
    return buf;
}

static enum sl_status find_functions(void *lib, const char *name, struct sl_lz_loader *loader,
                                     struct sl_err *err) {
    const char *missing = NULL;
    void *found;
    /* A function pointer may not be cast from an object pointer; its bytes may be copied. */
#define FIND(field)                                                                                \
    found = dlsym(lib, "ze" #field);                                                               \
    memcpy(&loader->field, &found, sizeof found);                                                  \
    missing = missing || found ? missing : "ze" #field;
    SL_LZ_FUNCTIONS(FIND)
#undef FIND
    return missing ? sl_fail(err, SL_ERR_UNSUPPORTED, "level_zero: %s has no %s: it is too old",
                             name, missing)
                   : SL_OK;
}

static enum sl_status start(const char *name, struct sl_lz_loader *loader, struct sl_err *err) {
    char text[64];
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "level_zero: no loader here (%s); libze1 and the GPU's driver bring it",
                       dlerror());
    SL_TRY(find_functions(lib, name, loader, err));
    ze_result_t result = loader->Init(ZE_INIT_FLAG_GPU_ONLY);
    if (result == ZE_RESULT_ERROR_UNINITIALIZED)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "level_zero: the loader is here, but no driver or no GPU: install "
                       "intel-level-zero-gpu, or let this user use /dev/dri/renderD*");
    return result ? sl_fail(err, SL_ERR_UNSUPPORTED, "level_zero: the drivers do not start: %s",
                            sl_lz_result_text(result, text, sizeof text))
                  : SL_OK;
}

/* ---- those that were started ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct started {
    char *name;
    struct sl_lz_loader loader;
    enum sl_status status;
    struct sl_err err;
    struct started *next;
} * all;

static struct started *add(const char *name) {
    struct started *s = calloc(1, sizeof *s);
    if (s)
        s->name = strdup(name);
    if (!s || !s->name) {
        free(s);
        return NULL;
    }
    s->status = start(name, &s->loader, &s->err);
    s->next = all;
    all = s;
    return s;
}

enum sl_status sl_lz_loader_open(const char *path, const struct sl_lz_loader **out_loader,
                                 struct sl_err *err) {
    const char *name = path ? path : "libze_loader.so.1";
    pthread_mutex_lock(&lock);
    struct started *s = all;
    while (s && strcmp(s->name, name) != 0)
        s = s->next;
    if (!s)
        s = add(name);
    pthread_mutex_unlock(&lock);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "level_zero: out of memory");
    if (s->status)
        return sl_fail(err, s->status, "%s", s->err.text);
    *out_loader = &s->loader;
    return SL_OK;
}
