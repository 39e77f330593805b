/* Modules and kernels: SPIR-V becomes LLVM's form by llvm-spirv, and that a program of OpenCL's. */
#include "tests/support/ze_driver/internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_ARG_BYTES 2048u

extern char **environ;

struct module {
    cl_program program;
};
struct kernel {
    cl_kernel handle;
    uint32_t width; /* work-items of a group */
    size_t args_bytes;
    unsigned char args[MAX_ARG_BYTES]; /* of the one argument, a struct */
};
struct launch {
    cl_kernel handle;
    uint32_t width;
    ze_group_count_t groups;
    size_t args_bytes;
    unsigned char args[];
};

static cl_device_id cl_cpu;
static cl_context context;
static cl_command_queue queue;

static void must(cl_int result, const char *what) {
    if (!result)
        return;
    fprintf(stderr, "ze_driver: OpenCL: %s: %d\n", what, (int)result);
    abort();
}

/* With the lock. */
static bool start(void) {
    cl_platform_id platform[8];
    cl_uint n = 0;
    cl_int result = 0;
    if (queue)
        return true;
    if (clGetPlatformIDs(8, platform, &n))
        return false;
    for (cl_uint i = 0; i < n && i < 8 && !cl_cpu; i++) /* others may be installed too */
        if (clGetDeviceIDs(platform[i], CL_DEVICE_TYPE_CPU, 1, &cl_cpu, NULL))
            cl_cpu = NULL;
    if (!cl_cpu)
        return false;
    context = clCreateContext(NULL, 1, &cl_cpu, NULL, NULL, &result);
    must(result, "clCreateContext");
    queue = clCreateCommandQueue(context, cl_cpu, 0, &result);
    must(result, "clCreateCommandQueue");
    return true;
}

/* ---- translation ---- */

static bool write_file(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    bool good = f && fwrite(data, 1, bytes, f) == bytes;
    return f ? fclose(f) == 0 && good : false;
}

static void *read_file(const char *path, size_t *out_bytes) {
    struct stat st;
    FILE *f = fopen(path, "rb");
    void *data = f && fstat(fileno(f), &st) == 0 && st.st_size ? malloc((size_t)st.st_size) : NULL;
    if (data && fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
        free(data);
        data = NULL;
    }
    if (f)
        fclose(f);
    *out_bytes = data ? (size_t)st.st_size : 0;
    return data;
}

static bool translate(const char *spv, const char *bc) {
    char *argv[] = {
        (char *)"llvm-spirv-15", (char *)"-r", (char *)spv, (char *)"-o", (char *)bc, NULL};
    pid_t pid;
    int status = -1;
    if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ))
        return false;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static uint64_t hash(const uint8_t *p, size_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* ---- what stands for modules with subgroups, which PoCL lacks ---- */

static struct emulated {
    char *name;
    uint64_t hash; /* of the module that it stands for */
} * emulated;
static uint32_t n_emulated;

/* The names in ZE_TEST_EMULATED/emulated, and the hashes of those beside it. With the lock. */
static void list_emulated(const char *dir) {
    char path[600];
    snprintf(path, sizeof path, "%.480s/emulated", dir);
    DIR *d = emulated ? NULL : opendir(path);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d)) {
        size_t n = strlen(e->d_name), bytes = 0;
        if (n < 4 || strcmp(e->d_name + n - 4, ".spv") != 0 || n > 100)
            continue;
        snprintf(path, sizeof path, "%.480s/%.100s", dir, e->d_name);
        uint8_t *data = read_file(path, &bytes);
        struct emulated *more = realloc(emulated, (n_emulated + 1) * sizeof *emulated);
        if (more)
            emulated = more;
        if (more && data)
            emulated[n_emulated++] = (struct emulated){strdup(e->d_name), hash(data, bytes)};
        free(data);
    }
    if (d)
        closedir(d);
}

/* The module that is to run instead, or NULL: this one itself. */
static uint8_t *instead(const uint8_t *spirv, size_t bytes, size_t *out_bytes) {
    const char *dir = getenv("ZE_TEST_EMULATED");
    uint8_t *data = NULL;
    uint64_t h = hash(spirv, bytes);
    char path[600];
    if (!dir || !*dir)
        return NULL;
    pthread_mutex_lock(&ze_lock);
    list_emulated(dir);
    for (uint32_t i = 0; i < n_emulated && !data; i++)
        if (emulated[i].hash == h) {
            snprintf(path, sizeof path, "%.480s/emulated/%.100s", dir, emulated[i].name);
            data = read_file(path, out_bytes);
            ze_counts.n_emulated += data != NULL;
        }
    pthread_mutex_unlock(&ze_lock);
    return data;
}

/* A program's bitcode, kept under its hash where there is a folder for that. */
static void *bitcode(const uint8_t *spirv, size_t bytes, size_t *out_bytes) {
    const char *kept = getenv("ZE_TEST_CACHE");
    char dir[256], path[320], spv[320], bc[320];
    void *data = NULL;
    if (kept && *kept) {
        mkdir(kept, 0777);
        snprintf(path, sizeof path, "%.255s/%016llx.bc", kept,
                 (unsigned long long)hash(spirv, bytes));
        if ((data = read_file(path, out_bytes)))
            return data;
    }
    snprintf(dir, sizeof dir, "%.200s/ze_driver_XXXXXX", kept && *kept ? kept : "/tmp");
    if (!mkdtemp(dir))
        return NULL;
    snprintf(spv, sizeof spv, "%s/k.spv", dir);
    snprintf(bc, sizeof bc, "%s/k.bc", dir);
    if (write_file(spv, spirv, bytes) && translate(spv, bc))
        data = read_file(bc, out_bytes);
    unlink(spv);
    if (!data || !kept || !*kept || rename(bc, path))
        unlink(bc);
    rmdir(dir);
    return data;
}

/* ---- modules ---- */

static ze_result_t module_create(ze_context_handle_t c, ze_device_handle_t d,
                                 const ze_module_desc_t *desc, ze_module_handle_t *out,
                                 ze_module_build_log_handle_t *log) {
    (void)c;
    if (log)
        *log = NULL;
    ENTER(zeModuleCreate, d);
    size_t bytes = 0;
    cl_int result = 0, loaded = 0;
    if (desc->format != ZE_MODULE_FORMAT_IL_SPIRV)
        return ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION;
    size_t other_bytes = 0;
    uint8_t *other = instead(desc->pInputModule, desc->inputSize, &other_bytes);
    unsigned char *data = other ? bitcode(other, other_bytes, &bytes)
                                : bitcode(desc->pInputModule, desc->inputSize, &bytes);
    free(other);
    struct module *m = calloc(1, sizeof *m);
    pthread_mutex_lock(&ze_lock);
    if (!data || !m || !start())
        result = CL_INVALID_BINARY;
    if (!result)
        m->program = clCreateProgramWithBinary(context, 1, &cl_cpu, &bytes,
                                               (const unsigned char **)&data, &loaded, &result);
    if (!result)
        result = clBuildProgram(m->program, 1, &cl_cpu, "-x spir -spir-std=1.2", NULL, NULL);
    ze_counts.n_modules += !result;
    pthread_mutex_unlock(&ze_lock);
    free(data);
    if (result) {
        fprintf(stderr, "ze_driver: a module does not build: OpenCL error %d\n", (int)result);
        free(m);
        return ZE_RESULT_ERROR_MODULE_BUILD_FAILURE;
    }
    *out = (ze_module_handle_t)m;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t module_destroy(ze_module_handle_t h) {
    struct module *m = (struct module *)h;
    pthread_mutex_lock(&ze_lock);
    clReleaseProgram(m->program);
    ze_counts.n_modules--;
    pthread_mutex_unlock(&ze_lock);
    free(m);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t log_string(ze_module_build_log_handle_t h, size_t *bytes, char *text) {
    (void)h;
    if (text && *bytes)
        text[0] = 0;
    *bytes = 1;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t log_destroy(ze_module_build_log_handle_t h) {
    (void)h;
    return ZE_RESULT_SUCCESS;
}

/* ---- kernels ---- */

static ze_result_t kernel_create(ze_module_handle_t h, const ze_kernel_desc_t *desc,
                                 ze_kernel_handle_t *out) {
    ENTER(zeKernelCreate, NULL);
    cl_int result = 0;
    struct kernel *k = calloc(1, sizeof *k);
    if (!k)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    pthread_mutex_lock(&ze_lock);
    k->handle = clCreateKernel(((struct module *)h)->program, desc->pKernelName, &result);
    ze_counts.n_kernels += !result;
    pthread_mutex_unlock(&ze_lock);
    if (result) {
        free(k);
        return ZE_RESULT_ERROR_INVALID_KERNEL_NAME;
    }
    *out = (ze_kernel_handle_t)k;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t kernel_destroy(ze_kernel_handle_t h) {
    struct kernel *k = (struct kernel *)h;
    pthread_mutex_lock(&ze_lock);
    clReleaseKernel(k->handle);
    ze_counts.n_kernels--;
    pthread_mutex_unlock(&ze_lock);
    free(k);
    return ZE_RESULT_SUCCESS;
}

static ze_result_t set_group_size(ze_kernel_handle_t h, uint32_t x, uint32_t y, uint32_t z) {
    ENTER(zeKernelSetGroupSize, NULL);
    if (!x || y != 1 || z != 1)
        return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    ((struct kernel *)h)->width = x;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t set_argument(ze_kernel_handle_t h, uint32_t index, size_t bytes,
                                const void *value) {
    struct kernel *k = (struct kernel *)h;
    ENTER(zeKernelSetArgumentValue, NULL);
    if (index)
        return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX;
    if (bytes > sizeof k->args)
        return ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE;
    memcpy(k->args, value, bytes);
    k->args_bytes = bytes;
    return ZE_RESULT_SUCCESS;
}

static ze_result_t set_indirect(ze_kernel_handle_t h, ze_kernel_indirect_access_flags_t flags) {
    (void)h, (void)flags;
    ENTER(zeKernelSetIndirectAccess, NULL);
    return ZE_RESULT_SUCCESS;
}

/* ---- launches ---- */

ze_result_t ze_launch_make(ze_kernel_handle_t h, const ze_group_count_t *groups,
                           struct launch **out) {
    const struct kernel *k = (const struct kernel *)h;
    struct launch *l = calloc(1, sizeof *l + k->args_bytes);
    if (!l)
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    if (!k->width || !groups->groupCountX || !groups->groupCountY || groups->groupCountZ != 1) {
        free(l);
        return ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION;
    }
    *l = (struct launch){k->handle, k->width, *groups, k->args_bytes};
    memcpy(l->args, k->args, k->args_bytes);
    clRetainKernel(l->handle);
    *out = l;
    return ZE_RESULT_SUCCESS;
}

struct launch *ze_launch_again(const struct launch *l) {
    struct launch *same = malloc(sizeof *same + l->args_bytes);
    if (!same)
        abort();
    memcpy(same, l, sizeof *same + l->args_bytes);
    clRetainKernel(same->handle);
    return same;
}

void ze_launch_drop(struct launch *l) {
    clReleaseKernel(l->handle);
    free(l);
}

void ze_launch_run(struct launch *l) {
    const size_t items[2] = {(size_t)l->groups.groupCountX * l->width, l->groups.groupCountY};
    const size_t group[2] = {l->width, 1};
    must(clSetKernelArg(l->handle, 0, l->args_bytes, l->args), "clSetKernelArg");
    must(clEnqueueNDRangeKernel(queue, l->handle, 2, NULL, items, group, 0, NULL, NULL),
         "clEnqueueNDRangeKernel");
    must(clFinish(queue), "clFinish");
    ze_counts.n_launches++;
    ze_launch_drop(l);
}

void ze_module_table(ze_module_dditable_t *t) {
    t->pfnCreate = module_create;
    t->pfnDestroy = module_destroy;
}

void ze_log_table(ze_module_build_log_dditable_t *t) {
    t->pfnGetString = log_string;
    t->pfnDestroy = log_destroy;
}

void ze_kernel_table(ze_kernel_dditable_t *t) {
    t->pfnCreate = kernel_create;
    t->pfnDestroy = kernel_destroy;
    t->pfnSetGroupSize = set_group_size;
    t->pfnSetArgumentValue = set_argument;
    t->pfnSetIndirectAccess = set_indirect;
}
