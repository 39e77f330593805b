/* Kernels for a card that the build has no code for, over a fake runtime with a fake compiler
 * (tests/support/fake_cuda/hiprtc.c): each is compiled once, by a process that may fail in any way.
 * This program is that process, too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/hip/hip.h"
#include "backends/hip/images.h"
#include "backends/hip/sources.h"
#include "common/interrupt.h"
#include "tests/support/capture.h"
#include "tests/support/fake_cuda.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Instead of the build's own. */
const struct sl_gpu_image sl_hip_images[] = {{"small", "__CLANG_OFFLOAD_BUNDLE__"}};
const uint64_t sl_hip_n_images = 1;
const char sl_hip_image_archs[] = "gfx906 gfx90a";
const struct sl_hip_text sl_hip_sources[] = {{"elem", "one"}, {"matvec", "two"}, {"small", "3"}};
const struct sl_hip_text sl_hip_headers[] = {{"a/b.h", ""}, {"c.h", "text"}};
const uint64_t sl_hip_n_sources = 3, sl_hip_n_headers = 2;
#define N 3u

static char driver_path[PATH_MAX], old_path[PATH_MAX], folder[64], log_path[PATH_MAX];
static struct fake_cuda *fake;
static struct sl_err err;

static struct fake_cuda *reset_of(const char *path) {
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    fake_cuda_reset_fn *fn = NULL;
    void *found = lib ? dlsym(lib, "fake_cuda_reset") : NULL;
    memcpy(&fn, &found, sizeof fn);
    if (!fn)
        print_error("no fake driver at %s: %s\n", path, dlerror());
    return fn ? fn() : NULL;
}

static int begin(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/sluice-hip-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("FAKE_HIPRTC_LOG", log_path, 1);
    setenv("FAKE_HIP_ARCH", "gfx1100:xnack-", 1);
    memset(&err, 0, sizeof err);
    fake = reset_of(driver_path);
    return fake ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    char command[96];
    unsetenv("FAKE_HIPRTC");
    unsetenv("FAKE_HIP_VERSION");
    unsetenv("HIPRTC_COMPILE_OPTIONS_APPEND");
    unsetenv("HIPRTC_LINK_OPTIONS_APPEND");
    unsetenv("SLUICE_TEST_COMPILE_SECONDS");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static enum sl_status open_hip(const char *path) {
    struct sl_device *d = NULL;
    enum sl_status status = sl_hip_open(&(struct sl_hip_config){.driver_path = path}, &d, &err);
    if (d)
        sl_device_close(&d);
    return status;
}

static void opens(void) {
    if (open_hip(driver_path) != SL_OK)
        fail_msg("%s", err.text);
    assert_false(fake->misused);
    assert_int_equal(fake->live_device_bytes + fake->live_pinned_bytes, 0);
    assert_int_equal(fake->live_objects, 0);
}

static void refused(enum sl_status status, const char *says) {
    assert_int_equal(open_hip(driver_path), status);
    if (!strstr(err.text, says))
        fail_msg("not \"%s\", but \"%s\"", says, err.text);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    assert_int_equal(errno, ECHILD);
    assert_int_equal(fake->live_device_bytes + fake->live_pinned_bytes, 0);
}

/* What was compiled since the last time this was asked; the last of it in out. */
static uint32_t n_compiled(char out[128]) {
    char line[128] = "";
    uint32_t n = 0;
    FILE *f = fopen(log_path, "r");
    for (; f && fgets(line, sizeof line, f); n++)
        if (out)
            snprintf(out, 128, "%s", line);
    if (f)
        fclose(f);
    unlink(log_path);
    return n;
}

/* The file of a source in the cache. */
static void kept(const char *begins, char out[PATH_MAX]) {
    char path[128];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s/sluice/hip", folder);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));)
        if (strncmp(e->d_name, begins, strlen(begins)) == 0) {
            snprintf(out, PATH_MAX, "%s/%s", path, e->d_name);
            n++;
        }
    closedir(dir);
    assert_int_equal(n, 1);
}

/* Opens the device; text [size]: what was logged. */
static enum sl_status open_hip_logged(char *text, size_t size) {
    struct capture c = capture_begin(stderr);
    enum sl_status status = open_hip(driver_path);
    FILE *said = capture_end(&c);
    text[fread(text, 1, size - 1, said)] = 0;
    fclose(said);
    return status;
}

static void compiled_once(void **state) {
    (void)state;
    char text[4096], path[PATH_MAX];
    assert_int_equal(open_hip_logged(text, sizeof text), SL_OK);
    for (uint32_t i = 0; i < N; i++) {
        char line[96];
        snprintf(line, sizeof line, "hip:0: compiling GPU kernels for gfx1100: %u of 3, %s", i + 1,
                 sl_hip_sources[i].name);
        if (!strstr(text, line))
            fail_msg("not \"%s\", but \"%s\"", line, text);
    }
    assert_int_equal(n_compiled(NULL), N);
    opens();
    assert_int_equal(n_compiled(NULL), 0);
    for (uint32_t i = 0; i < N; i++) {
        char begins[32];
        snprintf(begins, sizeof begins, "gfx1100-%s-", sl_hip_sources[i].name);
        kept(begins, path);
    }
}

/* Other cards, and other runtimes, have kernels of their own; not by the beginning of a name. */
static void for_what(void **state) {
    (void)state;
    opens();
    assert_int_equal(n_compiled(NULL), N);
    setenv("FAKE_HIP_ARCH", "gfx90", 1);
    opens();
    assert_int_equal(n_compiled(NULL), N);
    setenv("FAKE_HIP_VERSION", "60342133", 1);
    opens();
    assert_int_equal(n_compiled(NULL), N);
    setenv("FAKE_HIP_ARCH", "gfx1100", 1);
    unsetenv("FAKE_HIP_VERSION");
    opens();
    assert_int_equal(n_compiled(NULL), 0);
    setenv("HIPRTC_COMPILE_OPTIONS_APPEND", "-O0", 1); /* hipRTC adds it to ours */
    opens();
    assert_int_equal(n_compiled(NULL), N);
    unsetenv("HIPRTC_COMPILE_OPTIONS_APPEND");
    setenv("HIPRTC_LINK_OPTIONS_APPEND", "-O0", 1);
    opens();
    assert_int_equal(n_compiled(NULL), N);
    unsetenv("HIPRTC_LINK_OPTIONS_APPEND");
    opens();
    setenv("FAKE_HIP_ARCH", "gfx90a", 1); /* the build's own */
    opens();
    assert_int_equal(n_compiled(NULL), 0);
}

static void a_damaged_file(void **state) {
    (void)state;
    char path[PATH_MAX], line[128] = "";
    opens();
    assert_int_equal(n_compiled(NULL), N);
    kept("gfx1100-matvec-", path);
    int fd = open(path, O_RDWR);
    uint8_t byte = 0;
    assert_true(fd >= 0 && pread(fd, &byte, 1, 60) == 1);
    byte ^= 1;
    assert_true(pwrite(fd, &byte, 1, 60) == 1);
    close(fd);
    opens();
    assert_int_equal(n_compiled(line), 1);
    assert_string_equal(line, "gfx1100 matvec\n");
    opens();
    assert_int_equal(n_compiled(NULL), 0);
    kept("gfx1100-matvec-", path);
}

/* Nothing is kept from before, however much was compiled until another source failed. */
static void ask(const char *what) {
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s/sluice", folder);
    assert_int_equal(system(command), 0);
    setenv("FAKE_HIPRTC", what, 1);
}

static void one_does_not_compile(void **state) {
    (void)state;
    ask("error matvec");
    refused(SL_ERR_UNSUPPORTED,
            "hip:0: kernels 'matvec' do not compile for gfx1100 with hipRTC 9.0; use vulkan or the "
            "CPU: matvec.cu:12:5: error: unknown builtin     it_is_here();     ^");
    assert_null(strstr(err.text, "fourth"));
    ask("crash small");
    refused(SL_ERR_UNSUPPORTED,
            "hipRTC 9.0 died of signal 6 while it compiled 'small' for gfx1100, "
            "which it may not know: install a newer ROCm");
    ask("kill small");
    refused(SL_ERR_UNSUPPORTED,
            "hip:0: the process that compiled the kernels 'small' for gfx1100 was killed, perhaps "
            "because memory ran out");
    ask("silent small");
    refused(SL_ERR_UNSUPPORTED, "use vulkan or the CPU: it does not say why");
    n_compiled(NULL);
    unsetenv("FAKE_HIPRTC");
    opens();
    assert_true(n_compiled(NULL) >= 1);
}

static void no_code(void **state) {
    (void)state;
    setenv("FAKE_HIPRTC", "empty elem", 1);
    refused(SL_ERR_UNSUPPORTED,
            "hip:0: what hipRTC 9.0 made of the kernels 'elem' for gfx1100 is not code");
}

/* What the compiler prints does not become a part of the code. */
static void one_prints(void **state) {
    (void)state;
    setenv("FAKE_HIPRTC", "print elem", 1);
    opens();
    assert_int_equal(n_compiled(NULL), N);
    opens();
    assert_int_equal(n_compiled(NULL), 0);
}

static void one_never_ends(void **state) {
    (void)state;
    setenv("FAKE_HIPRTC", "hang elem", 1);
    setenv("SLUICE_TEST_COMPILE_SECONDS", "1", 1);
    refused(SL_ERR_UNSUPPORTED, "hip:0: compiling the kernels 'elem' for gfx1100 takes longer than "
                                "1 s and was given up; what is compiled is kept: start again");
    n_compiled(NULL);
    unsetenv("FAKE_HIPRTC");
    unsetenv("SLUICE_TEST_COMPILE_SECONDS");
    opens();
    uint32_t n = n_compiled(NULL);
    assert_true(n >= 1 && n <= N);
}

static void no_compiler(void **state) {
    (void)state;
    static const char *const real[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5"};
    for (size_t i = 0; i < 3; i++)
        if (dlopen(real[i], RTLD_NOW | RTLD_LOCAL)) {
            print_message("there is a %s, which is found: skipped\n", real[i]);
            skip();
        }
    assert_non_null(reset_of(old_path));
    assert_int_equal(open_hip(old_path), SL_ERR_UNSUPPORTED);
    const char *says = "hip:0: Fake GPU 0 is gfx1100, and the kernels of this build are for gfx906 "
                       "gfx90a: neither its runtime nor a libhiprtc has hiprtcVersion to compile "
                       "them; install ROCm's hipRTC, or build with HIP_ARCHS=gfx1100, or use "
                       "vulkan or the CPU";
    assert_string_equal(err.text, says);
}

static void nowhere_to_keep(void **state) {
    (void)state;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    setenv("XDG_CACHE_HOME", "/nowhere/at/all", 1);
    setenv("HOME", "/nowhere", 1);
    opens();
    assert_int_equal(n_compiled(NULL), N);
    opens();
    assert_int_equal(n_compiled(NULL), N);
    if (home)
        setenv("HOME", home, 1);
    free(home);
}

/* A cache that cannot be written: every start compiles, and says why, once. */
static void not_kept(void **state) {
    (void)state;
    char text[8192], path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sluice", folder);
    assert_int_equal(symlink("nowhere/at/all", path), 0);
    assert_int_equal(open_hip_logged(text, sizeof text), SL_OK);
    assert_int_equal(n_compiled(NULL), N);
    const char *found = strstr(text, "hip: compiled kernels are not kept in ");
    assert_non_null(found);
    assert_non_null(strstr(found, "so the next start compiles them again: No such file"));
    assert_null(strstr(strchr(found, '\n'), "are not kept in"));
    opens();
    assert_int_equal(n_compiled(NULL), N);
}

static void several_processes(void **state) {
    (void)state;
    pid_t pid[4];
    for (int i = 0; i < 4; i++) {
        pid[i] = fork();
        assert_true(pid[i] >= 0);
        if (pid[i] == 0) {
            enum sl_status status = open_hip(driver_path);
            if (status)
                fprintf(stderr, "%s\n", err.text);
            _exit(status != SL_OK);
        }
    }
    for (int i = 0; i < 4; i++) {
        int how = -1;
        assert_int_equal(waitpid(pid[i], &how, 0), pid[i]);
        assert_int_equal(how, 0);
    }
    assert_in_range(n_compiled(NULL), N, 4 * N);
    opens();
    assert_int_equal(n_compiled(NULL), 0);
    char path[PATH_MAX];
    kept("gfx1100-small-", path); /* and nothing half written */
}

/* The last: what is noted stays. */
static void told_to_stop(void **state) {
    (void)state;
    setenv("FAKE_HIPRTC", "hang matvec", 1);
    sl_interrupt_note();
    refused(SL_ERR_CANCELED, "hip:0: stopped while kernels were being compiled");
}

int main(int argc, char **argv) {
    (void)argc;
    /* build/MODE/tests/unit/backends/NAME: beside unit/. */
    char path[PATH_MAX - 64];
    char *slash = realpath(argv[0], path) ? strrchr(path, '/') : NULL;
    if (!slash)
        return 1;
    *slash = 0;
    snprintf(driver_path, sizeof driver_path, "%s/../../support/fake_hip.so", path);
    snprintf(old_path, sizeof old_path, "%s/../../support/fake_hip_old.so", path);
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(compiled_once),     TEST(for_what),
        TEST(a_damaged_file),    TEST(one_does_not_compile),
        TEST(no_code),           TEST(one_prints),
        TEST(one_never_ends),    TEST(no_compiler),
        TEST(nowhere_to_keep),   TEST(not_kept),
        TEST(several_processes), TEST(told_to_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
