/* hipRTC of the driver's other face (hip.c). Its code is what hipModuleLoadData there takes.
 *
 * FAKE_HIPRTC (environment), "WHAT NAME": the source of that name does "error": not compile,
 * "crash": end the process by a signal, "kill": by SIGKILL, "hang": never end, "empty": give what
 * is no code, "print": write to stdout meanwhile, "silent": fail without a word. With
 * FAKE_HIPRTC_LOG=FILE each compilation is a line there, "ARCH NAME", when it begins. */
#include "tests/support/fake_cuda/internal.h"

#if defined(FAKE_HIP) && !defined(FAKE_HIP_OLD)
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMPILATION 6 /* HIPRTC_ERROR_COMPILATION */

struct program {
    char name[64];
    const char *text;
    int n_headers;
    char log[256], code[512];
};

int hiprtcVersion(int *major, int *minor);
int hiprtcVersion(int *major, int *minor) {
    *major = 9;
    *minor = 0;
    return 0;
}

const char *hiprtcGetErrorString(int result);
const char *hiprtcGetErrorString(int result) {
    return result ? "HIPRTC_ERROR_AS_ASKED" : "HIPRTC_SUCCESS";
}

int hiprtcCreateProgram(struct program **out, const char *text, const char *name, int n_headers,
                        const char *const *headers, const char *const *header_names);
int hiprtcCreateProgram(struct program **out, const char *text, const char *name, int n_headers,
                        const char *const *headers, const char *const *header_names) {
    for (int i = 0; i < n_headers; i++)
        if (!headers[i] || !header_names[i] || !*header_names[i])
            return 3;
    struct program *p = calloc(1, sizeof *p);
    if (!p || !*text)
        return 3;
    snprintf(p->name, sizeof p->name, "%s", name);
    p->text = text;
    p->n_headers = n_headers;
    *out = p;
    return 0;
}

static bool asked(const char *what, const char *name) {
    const char *text = getenv("FAKE_HIPRTC");
    size_t n = strlen(what);
    return text && strncmp(text, what, n) == 0 && text[n] == ' ' && strcmp(text + n + 1, name) == 0;
}

/* In one piece, of whatever process. */
static void write_down(const char *arch, const char *name) {
    const char *path = getenv("FAKE_HIPRTC_LOG");
    char line[128];
    int n = snprintf(line, sizeof line, "%s %s\n", arch, name);
    int fd = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (path && (fd < 0 || write(fd, line, (size_t)n) != n))
        abort();
    if (fd >= 0)
        close(fd);
}

int hiprtcCompileProgram(struct program *p, int n_options, const char *const *options);
int hiprtcCompileProgram(struct program *p, int n_options, const char *const *options) {
    static const char offload[] = "--offload-arch=";
    if (n_options < 1 || strncmp(options[0], offload, sizeof offload - 1) != 0)
        return 4;
    const char *arch = options[0] + sizeof offload - 1;
    write_down(arch, p->name);
    if (asked("crash", p->name))
        abort();
    if (asked("kill", p->name))
        raise(SIGKILL);
    if (asked("print", p->name) && write(STDOUT_FILENO, "one moment\n", 11) != 11)
        abort();
    if (asked("silent", p->name))
        return COMPILATION;
    while (asked("hang", p->name))
        pause();
    if (asked("error", p->name)) {
        snprintf(p->log, sizeof p->log,
                 "%s.cu:12:5: error: unknown builtin\n    it_is_here();\n    ^\n"
                 "a fourth line\n1 error generated\n",
                 p->name);
        return COMPILATION;
    }
    snprintf(p->code, sizeof p->code, "%s %s, %zu bytes, %d headers",
             asked("empty", p->name) ? "nothing" : "\177ELF", arch, strlen(p->text), p->n_headers);
    return 0;
}

int hiprtcGetProgramLogSize(struct program *p, size_t *out_bytes);
int hiprtcGetProgramLogSize(struct program *p, size_t *out_bytes) {
    *out_bytes = strlen(p->log) + 1;
    return 0;
}

int hiprtcGetProgramLog(struct program *p, char *out);
int hiprtcGetProgramLog(struct program *p, char *out) {
    if (asked("silent", p->name))
        _exit(1);
    memcpy(out, p->log, strlen(p->log) + 1);
    return 0;
}

int hiprtcGetCodeSize(struct program *p, size_t *out_bytes);
int hiprtcGetCodeSize(struct program *p, size_t *out_bytes) {
    *out_bytes = strlen(p->code) + 1;
    return 0;
}

int hiprtcGetCode(struct program *p, char *out);
int hiprtcGetCode(struct program *p, char *out) {
    memcpy(out, p->code, strlen(p->code) + 1);
    return 0;
}
#endif
