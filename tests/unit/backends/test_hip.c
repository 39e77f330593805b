/* The HIP backend over a fake runtime (tests/support/fake_cuda.h, its other face), whose kernels do
 * what their names say of words alone. What it shares with CUDA is tested there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/gpu/gpu_internal.h"
#include "backends/hip/hip.h"
#include "backends/hip/hip_driver.h"
#include "backends/hip/images.h"
#include "backends/hip/sources.h"
#include "tests/support/fake_cuda.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Instead of the build's own: the fake has every kernel in any image. */
const struct sl_gpu_image sl_hip_images[] = {{"small", "__CLANG_OFFLOAD_BUNDLE__"}};
const uint64_t sl_hip_n_images = 1;
const char sl_hip_image_archs[] = "gfx906 gfx90a";
/* Nothing is compiled here: test_hip_compile.c. */
const struct sl_hip_text sl_hip_sources[] = {{"small", "text"}}, sl_hip_headers[] = {{"h", "text"}};
const uint64_t sl_hip_n_sources = 1, sl_hip_n_headers = 1;

static char folder[PATH_MAX - 32], driver_path[PATH_MAX], old_path[PATH_MAX], cuda_path[PATH_MAX];
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

static int reset(void **state) {
    (void)state;
    unsetenv("FAKE_HIP_ARCH");
    memset(&err, 0, sizeof err);
    fake = reset_of(driver_path);
    return fake ? 0 : -1;
}

static enum sl_status open_hip(const char *path, uint32_t ordinal, struct sl_device **out) {
    *out = NULL;
    return sl_hip_open(&(struct sl_hip_config){.ordinal = ordinal, .driver_path = path}, out, &err);
}

static struct sl_device *opened(uint32_t ordinal) {
    struct sl_device *d;
    if (open_hip(driver_path, ordinal, &d) != SL_OK)
        fail_msg("%s", err.text);
    return d;
}

static void refused(const char *path, uint32_t ordinal, const char *says) {
    struct sl_device *d;
    assert_int_equal(open_hip(path, ordinal, &d), SL_ERR_UNSUPPORTED);
    if (!strstr(err.text, says))
        fail_msg("not \"%s\", but \"%s\"", says, err.text);
}

static void what_a_card_is(void **state) {
    (void)state;
    fake->n_devices = 2;
    fake->integrated[1] = true;
    struct sl_device *d = opened(0), *e = opened(1);
    assert_string_equal(d->caps.id, "hip:0");
    assert_string_equal(d->caps.model, "Fake GPU 0, gfx90a");
    assert_int_equal(strncmp(d->caps.arithmetic_id, "hip: ", 5), 0);
    assert_int_equal(d->caps.kind, SL_DEVICE_DISCRETE);
    assert_int_equal(e->caps.kind, SL_DEVICE_INTEGRATED);
    assert_int_equal(d->caps.shared_bytes, 65536 - 64);
    assert_int_equal(d->caps.memory_bytes_per_s, (uint64_t)1000000 * 1000 * 2 * 4096 / 8);
    assert_true(d->caps.graphs && d->caps.mapped_host);
    sl_device_close(&d);
    sl_device_close(&e);
    assert_int_equal(fake->live_device_bytes + fake->live_pinned_bytes, 0);
    assert_false(fake->misused);
}

static void what_cannot_be_used(void **state) {
    (void)state;
    refused("/nowhere/libamdhip64.so.6", 0, "no ROCm here");
    refused(cuda_path, 0, "has no hipInit: the runtime is too old");
    refused(driver_path, 3, "hip:3: there is 1 GPU, numbered from 0");
    setenv("FAKE_HIP_ARCH", "", 1); /* a struct of another layout */
    refused(driver_path, 0, "architecture is '', which is none known here");
    setenv("FAKE_HIP_ARCH", "gfx90/../x", 1); /* a name that would lead elsewhere */
    refused(driver_path, 0, "architecture is 'gfx90/../x', which is none known here");
    unsetenv("FAKE_HIP_ARCH");
    fake->init_result = 100;
    refused(driver_path, 0, "hip: the runtime finds no GPU (FAKE_ERROR_100");
    fake->init_result = 3;
    refused(driver_path, 0, "may this user open /dev/kfd?");
    fake->init_result = 0;
    fake->module_result = 209;
    refused(driver_path, 0, "this is gfx90a: FAKE_ERROR_209");
    assert_int_equal(fake->live_device_bytes + fake->live_pinned_bytes, 0);
}

/* Up, by a kernel, and down. */
static void go_round(struct sl_device *d) {
    uint32_t words[256], back[256] = {0};
    struct sl_buffer *a = NULL, *b = NULL;
    for (uint32_t i = 0; i < 256; i++)
        words[i] = i * 2654435761u;
    assert_int_equal(sl_device_alloc(d, sizeof words, &a), SL_OK);
    assert_int_equal(sl_device_alloc(d, sizeof words, &b), SL_OK);
    assert_int_equal(sl_device_upload(d, sl_span_all(a), words), SL_OK);
    assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span_all(b), sl_span_all(a)), SL_OK);
    assert_int_equal(sl_device_download(d, back, sl_span_all(b)), SL_OK);
    assert_memory_equal(words, back, sizeof words);
    struct sl_gpu *c = (struct sl_gpu *)d;
    uint64_t at = (uint64_t)(uintptr_t)b->addr;
    assert_int_equal(sl_gpu_words(c, at, at + 512, 512), SL_OK);
    assert_int_equal(sl_device_download(d, back, sl_span_all(b)), SL_OK);
    assert_memory_equal(back, words + 128, 512);
    sl_device_free(d, &a);
    sl_device_free(d, &b);
}

static void memory_and_kernels(void **state) {
    (void)state;
    struct sl_device *d = opened(0);
    go_round(d);
    assert_true(fake->n_launches >= 1);
    sl_device_close(&d);
    assert_false(fake->misused);
}

/* One GPU takes of another's memory; each thread's device is the right one each time. */
static void two_cards(void **state) {
    (void)state;
    fake->n_devices = 2;
    struct sl_device *d = opened(0), *e = opened(1);
    struct sl_gpu *c = (struct sl_gpu *)d;
    assert_false(sl_gpu_same(d, e));
    go_round(d);
    go_round(e);
    assert_int_equal(sl_gpu_peer_open(d, e), SL_OK);
    assert_true(sl_gpu_reaches(d, e));
    struct sl_signal *s = NULL;
    assert_int_equal(sl_gpu_signal_create(d, &s), SL_OK);
    assert_int_equal(sl_gpu_signal_raise(d, s), SL_OK);
    assert_int_equal(sl_gpu_signal_follow(e, s), SL_OK);
    assert_int_equal(sl_gpu_sync(e), SL_OK);
    assert_false(sl_gpu_signal_is_out(s));
    sl_gpu_signal_free(d, s);
    assert_false(c->lost);
    sl_device_close(&e);
    sl_device_close(&d);
    assert_false(fake->misused);
}

static void a_kernel_faults(void **state) {
    (void)state;
    struct sl_device *d = opened(0);
    go_round(d);
    fake->kernel_fault = 719;
    struct sl_gpu *c = (struct sl_gpu *)d;
    struct sl_karg_fill a = {.dst = c->counters, .n = 1};
    const struct sl_dim3 one = {1, 1, 1};
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, one, one, 0, &a, sizeof a), SL_OK);
    assert_int_equal(sl_gpu_sync(d), SL_ERR_DEVICE_LOST);
    assert_true(c->lost);
    assert_int_equal(sl_gpu_launch(c, SL_KERNEL_fill, one, one, 0, &a, sizeof a),
                     SL_ERR_DEVICE_LOST);
    sl_device_close(&d);
}

/* It opens, and does without what the runtime lacks. */
static void an_old_runtime(void **state) {
    (void)state;
    struct sl_device *d;
    struct sl_signal *s = NULL;
    struct fake_cuda *old = reset_of(old_path);
    assert_non_null(old);
    if (open_hip(old_path, 0, &d) != SL_OK)
        fail_msg("%s", err.text);
    assert_false(d->caps.graphs);
    assert_int_equal(sl_gpu_signal_create(d, &s), SL_ERR_UNSUPPORTED);
    go_round(d);
    sl_device_close(&d);
    assert_false(old->misused);
}

static void found(void **state) {
    (void)state;
    struct sl_err why;
    memset(&why, 0, sizeof why);
    assert_string_equal(sl_hip_backend.name, "hip");
    assert_null(sl_hip_backend.planned);
    assert_true(sl_hip_backend.named_only);
    assert_true(sl_hip_backend.may_be_here(&why) || strstr(why.text, "/dev/kfd"));
}

int main(int argc, char **argv) {
    (void)argc;
    /* build/MODE/tests/unit/backends/NAME: beside unit/. */
    char path[PATH_MAX];
    char *slash = realpath(argv[0], path) ? strrchr(path, '/') : NULL;
    if (!slash)
        return 1;
    *slash = 0;
    snprintf(folder, sizeof folder, "%.*s", (int)sizeof folder - 1, path);
    snprintf(driver_path, sizeof driver_path, "%s/../../support/fake_hip.so", folder);
    snprintf(old_path, sizeof old_path, "%s/../../support/fake_hip_old.so", folder);
    snprintf(cuda_path, sizeof cuda_path, "%s/../../support/fake_cuda.so", folder);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_a_card_is, reset),
        cmocka_unit_test_setup(what_cannot_be_used, reset),
        cmocka_unit_test_setup(memory_and_kernels, reset),
        cmocka_unit_test_setup(two_cards, reset),
        cmocka_unit_test_setup(a_kernel_faults, reset),
        cmocka_unit_test_setup(an_old_runtime, reset),
        cmocka_unit_test(found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
