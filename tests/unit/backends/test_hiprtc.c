/* The embedded kernels' sources by ROCm's own hipRTC, which needs no card to compile. Some of them
 * for architectures that builds have no code for; HIPRTC_ARCHS="gfx90c" (environment):
 * all of them for these (make hip-rtc). Skipped without ROCm's runtime, and in a build without HIP
 * kernels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/hip/hiprtc.h"
#include "backends/hip/sources.h"
#include "common/clock.h"

#include <dlfcn.h>
#include <elf.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef EM_AMDGPU
#define EM_AMDGPU 224
#endif

static char program[PATH_MAX];

/* Headers as they are included: <stdint.h>, "backends/kernels/vec.cuh". */
static void are_embedded(const char *of, const char *text) {
    for (const char *at = text; (at = strstr(at, "#include ")); at++) {
        char name[128];
        if (at != text && at[-1] != '\n')
            continue;
        if (sscanf(at, "#include %*[<\"]%127[^>\"\n]", name) != 1)
            continue; /* SL_MACHINE's */
        bool found = strncmp(name, "cuda", 4) == 0 || strncmp(name, "hip/", 4) == 0;
        for (uint64_t i = 0; !found && i < sl_hip_n_headers; i++)
            found = strcmp(sl_hip_headers[i].name, name) == 0;
        if (!found)
            fail_msg("%s includes %s, which is not embedded (mk/hip.mk)", of, name);
    }
}

static void all_headers_are_there(void **state) {
    (void)state;
    if (!sl_hip_n_sources) {
        print_message("this build has no HIP kernels: skipped\n");
        skip();
    }
    for (uint64_t i = 0; i < sl_hip_n_sources; i++)
        are_embedded(sl_hip_sources[i].name, sl_hip_sources[i].text);
    for (uint64_t i = 0; i < sl_hip_n_headers; i++)
        are_embedded(sl_hip_headers[i].name, sl_hip_headers[i].text);
}

static bool find_compiler(struct sl_hiprtc *out) {
    static const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
    struct sl_err err;
    void *lib = NULL;
    for (size_t i = 0; i < 3 && !lib; i++)
        lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (!sl_hip_n_sources || !lib) {
        print_message("%s: skipped\n", lib ? "this build has no HIP kernels" : dlerror());
        return false;
    }
    if (sl_hiprtc_find(lib, out, &err))
        fail_msg("%s", err.text);
    return true;
}

static void compiles(const struct sl_hiprtc *c, const char *arch, const char *source,
                     uint32_t machine) {
    static char code[16 << 20];
    char command[PATH_MAX + 1024], path[] = "/tmp/sluice-hiprtc-XXXXXX";
    Elf64_Ehdr head;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, SL_HIPRTC_ORDER "='%s %s %s' '%s' >%s", arch, source, c->path,
             program, path);
    uint64_t begun_ns = sl_now_ns();
    int result = system(command);
    FILE *f = fopen(path, "r");
    size_t bytes = f ? fread(code, 1, sizeof code, f) : 0;
    if (f)
        fclose(f);
    unlink(path);
    if (result)
        fail_msg("%s does not compile for %s", source, arch);
    print_message("%s for %s: %zu bytes in %.1f s\n", source, arch, bytes,
                  (double)(sl_now_ns() - begun_ns) * 1e-9);
    assert_true(bytes > sizeof head && bytes < sizeof code);
    memcpy(&head, code, sizeof head);
    assert_memory_equal(head.e_ident, ELFMAG, SELFMAG);
    assert_int_equal(head.e_machine, EM_AMDGPU);
    if (machine)
        assert_int_equal(head.e_flags & 0xff, machine);
    assert_non_null(memmem(code, bytes, "sl_k_", 5));
}

/* Numbers: EF_AMDGPU_MACH of LLVM's AMDGPU usage. */
static void some_compile(void) {
    struct sl_hiprtc c;
    if (!find_compiler(&c))
        skip();
    compiles(&c, "gfx90c", "elem", 0x32); /* it has no dot products */
    compiles(&c, "gfx1031", "elem", 0x37);
    compiles(&c, "gfx1031", "matvec_block", 0x37);
    compiles(&c, "gfx1031", "small", 0x37);
}

static void all_compile(void) {
    struct sl_hiprtc c;
    char archs[256], *rest = NULL;
    snprintf(archs, sizeof archs, "%s", getenv("HIPRTC_ARCHS"));
    if (!find_compiler(&c))
        skip();
    for (char *arch = strtok_r(archs, " ", &rest); arch; arch = strtok_r(NULL, " ", &rest))
        for (uint64_t i = 0; i < sl_hip_n_sources; i++)
            compiles(&c, arch, sl_hip_sources[i].name, 0);
}

static void they_compile(void **state) {
    (void)state;
    if (getenv("HIPRTC_ARCHS"))
        all_compile();
    else
        some_compile();
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_headers_are_there),
        cmocka_unit_test(they_compile),
    };
    if (!realpath(argv[0], program))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
