/* An NVRTC that compiles nothing: for the tests' drivers, which take any machine code for the
 * kernels that they have themselves. */
#include <stddef.h>
#include <string.h>

static const char code[] = "\177ELF of nothing";

int nvrtcVersion(int *major, int *minor);
int nvrtcVersion(int *major, int *minor) {
    *major = 13;
    *minor = 0;
    return 0;
}

const char *nvrtcGetErrorString(int result);
const char *nvrtcGetErrorString(int result) {
    return result ? "NVRTC_ERROR_INVALID_OPTION" : "NVRTC_SUCCESS";
}

int nvrtcCreateProgram(void **out, const char *text, const char *name, int n_headers,
                       const char *const *headers, const char *const *names);
int nvrtcCreateProgram(void **out, const char *text, const char *name, int n_headers,
                       const char *const *headers, const char *const *names) {
    static char program;
    (void)name, (void)headers;
    *out = &program;
    return !*text || !n_headers || !strstr(names[0], "prelude");
}

/* All that a source needs to become what the GPU runs. */
int nvrtcCompileProgram(void *program, int n_options, const char *const *options);
int nvrtcCompileProgram(void *program, int n_options, const char *const *options) {
    static const char *const needed[] = {"--gpu-architecture=sm_90", "--std=c++17", "-fmad=false"};
    size_t found = 0;
    (void)program;
    for (int i = 0; i < n_options; i++)
        for (size_t k = 0; k < sizeof needed / sizeof *needed; k++)
            found += strcmp(options[i], needed[k]) == 0;
    return found == sizeof needed / sizeof *needed ? 0 : 5;
}

int nvrtcGetProgramLogSize(void *program, size_t *out_bytes);
int nvrtcGetProgramLogSize(void *program, size_t *out_bytes) {
    (void)program;
    *out_bytes = 1;
    return 0;
}

int nvrtcGetProgramLog(void *program, char *out);
int nvrtcGetProgramLog(void *program, char *out) {
    (void)program;
    *out = 0;
    return 0;
}

int nvrtcGetCUBINSize(void *program, size_t *out_bytes);
int nvrtcGetCUBINSize(void *program, size_t *out_bytes) {
    (void)program;
    *out_bytes = sizeof code;
    return 0;
}

int nvrtcGetCUBIN(void *program, char *out);
int nvrtcGetCUBIN(void *program, char *out) {
    (void)program;
    memcpy(out, code, sizeof code);
    return 0;
}
