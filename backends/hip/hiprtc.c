#include "backends/hip/hiprtc.h"

#include "backends/hip/sources.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MAX_HEADERS 128u

struct program;
struct functions {
    int (*version)(int *major, int *minor);
    int (*create)(struct program **out, const char *source, const char *name, int n_headers,
                  const char *const *headers, const char *const *header_names);
    int (*compile)(struct program *p, int n_options, const char *const *options);
    int (*log_size)(struct program *p, size_t *out_bytes);
    int (*log)(struct program *p, char *out);
    int (*code_size)(struct program *p, size_t *out_bytes);
    int (*code)(struct program *p, char *out);
    const char *(*error)(int result);
};
#define FUNCTIONS(X)                                                                               \
    X(version, "hiprtcVersion")                                                                    \
    X(create, "hiprtcCreateProgram")                                                               \
    X(compile, "hiprtcCompileProgram")                                                             \
    X(log_size, "hiprtcGetProgramLogSize")                                                         \
    X(log, "hiprtcGetProgramLog")                                                                  \
    X(code_size, "hiprtcGetCodeSize")                                                              \
    X(code, "hiprtcGetCode")                                                                       \
    X(error, "hiprtcGetErrorString")

/* Those that mk/hip.mk gives hipcc, without warnings, which only a developer can act on. */
static const char *const options[] = {"-std=c++17", "-O3", "-ffp-contract=off", "-w"};
#define N_OPTIONS (sizeof options / sizeof *options)

const char *sl_hiprtc_option(uint32_t i) {
    return i < N_OPTIONS ? options[i] : NULL;
}

/* The first function that a library lacks; NULL: none. */
static const char *find_functions(void *lib, struct functions *out) {
#define FIND(field, symbol)                                                                        \
    do {                                                                                           \
        void *found = dlsym(lib, symbol);                                                          \
        if (!found)                                                                                \
            return symbol;                                                                         \
        memcpy(&out->field, &found, sizeof found);                                                 \
    } while (0);
    FUNCTIONS(FIND)
#undef FIND
    return NULL;
}

enum sl_status sl_hiprtc_find(void *runtime, struct sl_hiprtc *out, struct sl_err *err) {
    static const char *const names[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5"};
    struct functions f;
    struct link_map *map = NULL;
    void *lib = runtime;
    const char *missing = find_functions(lib, &f);
    for (size_t i = 0; missing && i < sizeof names / sizeof *names; i++)
        if ((lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)))
            missing = find_functions(lib, &f);
    if (missing)
        return sl_fail(err, SL_ERR_UNSUPPORTED,
                       "neither its runtime nor a libhiprtc has %s to compile them", missing);
    if (dlinfo(lib, RTLD_DI_LINKMAP, &map) || !map || strlen(map->l_name) >= sizeof out->path)
        return sl_fail(err, SL_ERR_UNSUPPORTED, "hipRTC's path is not known, or too long");
    *out = (struct sl_hiprtc){.major = 0};
    memcpy(out->path, map->l_name, strlen(map->l_name));
    if (f.version(&out->major, &out->minor))
        out->major = out->minor = 0;
    return SL_OK;
}

/* ---- in the process that compiles ---- */

static int failed(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

static int write_code(const struct functions *f, struct program *p, int to) {
    size_t bytes = 0;
    int result = f->code_size(p, &bytes);
    char *code = result || !bytes ? NULL : malloc(bytes);
    if (code)
        result = f->code(p, code);
    if (result)
        return failed("no code", f->error(result));
    if (!code)
        return failed("no code", bytes ? strerror(errno) : "its size is 0");
    for (size_t at = 0; at < bytes;) {
        ssize_t put = write(to, code + at, bytes - at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return failed("the code cannot be written", strerror(errno));
        at += (size_t)put;
    }
    return 0;
}

static int write_log(const struct functions *f, struct program *p, int result) {
    size_t bytes = 0;
    char *text = f->log_size(p, &bytes) || !bytes ? NULL : calloc(1, bytes + 1);
    if (!text || f->log(p, text) || !*text)
        return failed("hiprtcCompileProgram", f->error(result));
    fputs(text, stderr);
    return 1;
}

static int compile(const char *arch, const struct sl_hip_text *source, const char *path) {
    const char *headers[MAX_HEADERS], *names[MAX_HEADERS], *all[N_OPTIONS + 1];
    char offload[64];
    struct functions f;
    struct program *p = NULL;
    /* What the compiler prints must not get into the code: stdout is the log from now on. */
    int to = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (to < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0)
        return failed("stdout", strerror(errno));
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return failed("hipRTC does not open", dlerror());
    const char *missing = find_functions(lib, &f);
    if (missing || sl_hip_n_headers > MAX_HEADERS)
        return failed(path, missing ? missing : "more headers than MAX_HEADERS");
    for (uint64_t i = 0; i < sl_hip_n_headers; i++) {
        names[i] = sl_hip_headers[i].name;
        headers[i] = sl_hip_headers[i].text;
    }
    snprintf(offload, sizeof offload, "--offload-arch=%s", arch);
    all[0] = offload;
    memcpy(all + 1, options, sizeof options);
    int result = f.create(&p, source->text, source->name, (int)sl_hip_n_headers, headers, names);
    if (result)
        return failed("hiprtcCreateProgram", f.error(result));
    result = f.compile(p, N_OPTIONS + 1, all);
    return result ? write_log(&f, p, result) : write_code(&f, p, to);
}

static int follow(const char *order) {
    char arch[32], name[64];
    int path_at = 0;
    if (sscanf(order, "%31s %63s %n", arch, name, &path_at) != 2 || !order[path_at])
        return failed(SL_HIPRTC_ORDER, "it is not ARCH NAME LIBRARY");
    for (uint64_t i = 0; i < sl_hip_n_sources; i++)
        if (strcmp(sl_hip_sources[i].name, name) == 0)
            return compile(arch, &sl_hip_sources[i], order + path_at);
    return failed(name, "no such source is embedded");
}

__attribute__((constructor)) static void compile_and_end(void) {
    const char *order = getenv(SL_HIPRTC_ORDER);
    if (!order)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody else wants the code */
    int code = follow(order);
    fflush(stderr);
    _exit(code); /* the compiler's exit handlers do not run */
}
