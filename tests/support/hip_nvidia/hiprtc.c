/* hipRTC by NVRTC: prelude.cuh before each source, and HIP's options as NVRTC has them. Options of
 * $HIPRTC_COMPILE_OPTIONS_APPEND are added, as hipRTC does.
 *
 * libnvrtc.so.13 is what the loader finds, or CUDA's own folder has; cuda_fp16.h is in the include
 * folder beside it. */
#include "tests/support/hip_nvidia/hip_nvidia.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INVALID_INPUT  3 /* hiprtcResult */
#define INVALID_OPTION 5
#define INTERNAL       11
#define MAX_OPTIONS    24
#define MAX_HEADERS    128
#define PRELUDE        "hip_nvidia_prelude.cuh"
#define OFFLOAD        "--offload-arch=" HIP_NVIDIA_ARCH

__asm__(".section .rodata\n"
        "prelude: .incbin \"tests/support/hip_nvidia/prelude.cuh\"\n"
        ".byte 0\n"
        ".previous");
extern const char prelude[] __attribute__((visibility("hidden")));

struct nvrtc_program;
static struct {
    int (*version)(int *major, int *minor);
    const char *(*error)(int result);
    int (*create)(struct nvrtc_program **out, const char *text, const char *name, int n_headers,
                  const char *const *headers, const char *const *names);
    int (*compile)(struct nvrtc_program *p, int n_options, const char *const *options);
    int (*log_size)(struct nvrtc_program *p, size_t *out_bytes);
    int (*log)(struct nvrtc_program *p, char *out);
    int (*code_size)(struct nvrtc_program *p, size_t *out_bytes);
    int (*code)(struct nvrtc_program *p, char *out);
} nvrtc;
#define FUNCTIONS(X)                                                                               \
    X(version, "nvrtcVersion")                                                                     \
    X(error, "nvrtcGetErrorString")                                                                \
    X(create, "nvrtcCreateProgram")                                                                \
    X(compile, "nvrtcCompileProgram")                                                              \
    X(log_size, "nvrtcGetProgramLogSize")                                                          \
    X(log, "nvrtcGetProgramLog")                                                                   \
    X(code_size, "nvrtcGetCUBINSize")                                                              \
    X(code, "nvrtcGetCUBIN")

struct hip_nvidia_program {
    struct nvrtc_program *p;
};

static char include[600]; /* "-I" and CUDA's headers; "" before NVRTC is found */

/* False: there is none, or it lacks something. */
static bool find(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    struct link_map *map = NULL;
    void *lib = NULL, *found;
    if (*include)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names && !lib; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib || dlinfo(lib, RTLD_DI_LINKMAP, &map))
        return false;
#define FIND(field, symbol)                                                                        \
    if (!(found = dlsym(lib, symbol)))                                                             \
        return false;                                                                              \
    memcpy(&nvrtc.field, &found, sizeof found);
    FUNCTIONS(FIND)
#undef FIND
    const char *end = strrchr(map->l_name, '/');
    snprintf(include, sizeof include, "-I%.*s/../include", end ? (int)(end - map->l_name) : 0,
             map->l_name);
    return true;
}

int hiprtcVersion(int *major, int *minor) {
    return find() ? nvrtc.version(major, minor) : INTERNAL;
}

const char *hiprtcGetErrorString(int result) {
    return *include ? nvrtc.error(result) : "there is no libnvrtc.so.13 to compile with";
}

int hiprtcCreateProgram(struct hip_nvidia_program **out, const char *text, const char *name,
                        int n_headers, const char *const *headers,
                        const char *const *header_names) {
    const char *texts[MAX_HEADERS + 1] = {prelude}, *names[MAX_HEADERS + 1] = {PRELUDE};
    char file[96];
    if (!find())
        return INTERNAL;
    if (n_headers < 0 || n_headers > MAX_HEADERS)
        return INVALID_INPUT;
    memcpy(texts + 1, headers, (size_t)n_headers * sizeof *headers);
    memcpy(names + 1, header_names, (size_t)n_headers * sizeof *header_names);
    snprintf(file, sizeof file, "%s.cu", name);
    struct hip_nvidia_program *p = calloc(1, sizeof *p);
    if (!p)
        return INTERNAL;
    int result = nvrtc.create(&p->p, text, file, n_headers + 1, texts, names);
    if (result)
        free(p);
    else
        *out = p;
    return result;
}

/* What NVRTC calls an option; NULL: nothing like it, "": as it is anyway. */
static const char *named(const char *option, char arch[64]) {
    if (strncmp(option, OFFLOAD, strlen(OFFLOAD)) == 0) {
        snprintf(arch, 64, "--gpu-architecture=sm_%s", option + strlen(OFFLOAD));
        return arch;
    }
    if (strcmp(option, "-ffp-contract=off") == 0)
        return "-fmad=false";
    if (strcmp(option, "-std=c++17") == 0)
        return "--std=c++17";
    if (strcmp(option, "-O3") == 0)
        return "";
    return strcmp(option, "-w") == 0 || strncmp(option, "-D", 2) == 0 ? option : NULL;
}

int hiprtcCompileProgram(struct hip_nvidia_program *p, int n_options, const char *const *options) {
    const char *all[MAX_OPTIONS] = {"--pre-include=" PRELUDE, include,
                                    "--device-as-default-execution-space"};
    char arch[64], more[512], *rest = more;
    const char *asked = getenv("HIPRTC_COMPILE_OPTIONS_APPEND");
    int n = 3, i = 0;
    snprintf(more, sizeof more, "%s", asked ? asked : "");
    for (;;) {
        const char *option = i < n_options ? options[i++] : strsep(&rest, " ");
        if (!option)
            break;
        const char *ours = *option ? named(option, arch) : "";
        if (!ours || n == MAX_OPTIONS)
            return INVALID_OPTION;
        if (*ours)
            all[n++] = ours;
    }
    return nvrtc.compile(p->p, n, all);
}

int hiprtcGetProgramLogSize(struct hip_nvidia_program *p, size_t *out_bytes) {
    return nvrtc.log_size(p->p, out_bytes);
}

int hiprtcGetProgramLog(struct hip_nvidia_program *p, char *out) {
    return nvrtc.log(p->p, out);
}

int hiprtcGetCodeSize(struct hip_nvidia_program *p, size_t *out_bytes) {
    return nvrtc.code_size(p->p, out_bytes);
}

int hiprtcGetCode(struct hip_nvidia_program *p, char *out) {
    return nvrtc.code(p->p, out);
}
