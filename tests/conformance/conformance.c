#include "tests/conformance/conformance.h"

#include "backends/cpu/cpu.h"
#include "backends/cuda/cuda.h"
#include "backends/hip/hip.h"
#include "backends/level_zero/level_zero.h"
#include "backends/vulkan/vulkan.h"
#include "tests/support/device_memory.h"
#include "tests/support/slow_build.h"

#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RED_BYTES 64u
#define RED_VALUE 0x5a

struct block {
    char *addr; /* a red zone, the data, a red zone */
    size_t data_bytes, bytes;
    struct sl_device *d;
    struct block *next;
};

/* What the definition said, in the order of the cases, which is the same for every target: plain C
 * is too slow to be asked again each time. */
struct answer {
    char *what;
    size_t bytes;
    void *value;
    struct answer *next;
};

static struct {
    const struct sl_device_limits *limits;
    struct sl_device *definition, *device;
    const struct conf_target *target; /* NULL: the definition's own run */
    struct block *blocks;
    void **host;
    size_t n_host;
    struct answer **answers_end; /* while the definition runs */
    struct answer *next_answer;
    float tolerance;
    bool asked_for; /* by --backend */
    bool is_fast;   /* by --reference fast: another run checks the definition */
    bool gpu;       /* one is here, or asked for */
    bool lacks;     /* the target lacks what the next case needs */
    uint32_t n_lacked;
    struct sl_err absent;
} now;

static enum sl_status open_cpu(const struct conf_target *t, struct sl_device **out_device,
                               struct sl_err *err) {
    return sl_cpu_open(&(struct sl_cpu_config){t->n_threads, (enum sl_cpu_isa)t->isa, 0},
                       out_device, err);
}

static enum sl_status open_cuda(const struct conf_target *t, struct sl_device **out_device,
                                struct sl_err *err) {
    (void)t;
    return sl_cuda_open(&(struct sl_cuda_config){.ordinal = 0}, out_device, err);
}

static enum sl_status open_hip(const struct conf_target *t, struct sl_device **out_device,
                               struct sl_err *err) {
    (void)t;
    if (!now.asked_for && !sl_hip_backend.may_be_here(err))
        return SL_ERR_UNSUPPORTED;
    return sl_hip_open(&(struct sl_hip_config){.ordinal = 0}, out_device, err);
}

static enum sl_status open_level_zero(const struct conf_target *t, struct sl_device **out_device,
                                      struct sl_err *err) {
    (void)t;
    return sl_level_zero_open(&(struct sl_level_zero_config){.number = 0}, out_device, err);
}

static enum sl_status open_vulkan(const struct conf_target *t, struct sl_device **out_device,
                                  struct sl_err *err) {
    (void)t;
    if (!now.asked_for && sl_vulkan_backend.may_be_here && !sl_vulkan_backend.may_be_here(err))
        return SL_ERR_UNSUPPORTED;
    return sl_vulkan_open(&(struct sl_vulkan_config){.number = 0}, out_device, err);
}

#define CPU(isa_name, isa_id, threads)                                                             \
    {                                                                                              \
        .name = "cpu " isa_name " x " #threads, .open = open_cpu, .isa = isa_id,                   \
        .n_threads = threads, .same_bits = true                                                    \
    }

static const struct conf_target definition = CPU("c", SL_CPU_C, 1);
/* What has been held to the definition by another run, fastest first. */
static const struct conf_target fast[] = {
    CPU("vnni", SL_CPU_VNNI, 1),
    CPU("avx512", SL_CPU_AVX512, 1),
    CPU("avx2", SL_CPU_AVX2, 1),
    CPU("c", SL_CPU_C, 1),
};

/* A backend joins by its line here. How work is divided among threads is common to the instruction
 * sets: each goes with one and with the number that leaves a rest, and plain C as the definition
 * alone; tests/determinism/ has whole runs of it with several. Under a sanitizer each kernel goes
 * once. */
static const struct conf_target targets[] = {
#if !SLOW_BUILD
    CPU("avx2", SL_CPU_AVX2, 1),
    CPU("avx2", SL_CPU_AVX2, 2),
    CPU("avx512", SL_CPU_AVX512, 1),
    CPU("vnni", SL_CPU_VNNI, 1),
#endif
    CPU("avx2", SL_CPU_AVX2, 3),
    CPU("avx512", SL_CPU_AVX512, 3),
    CPU("vnni", SL_CPU_VNNI, 3),
    {.name = "cuda", .open = open_cuda},
    {.name = "hip", .open = open_hip},
    {.name = "vulkan", .open = open_vulkan},
    {.name = "level_zero", .open = open_level_zero},
};

bool conf_checking(void) {
    return !now.target && !now.is_fast;
}

bool conf_same_bits(void) {
    return now.target && now.target->same_bits;
}

bool conf_lacks(enum sl_dtype dtype) {
    return now.target && !now.device->caps.weight_dtype[dtype];
}

void conf_needs(enum sl_dtype dtype) {
    now.lacks = now.lacks || conf_lacks(dtype);
}

void conf_needs_form(bool has) {
    now.lacks = now.lacks || (now.target && !has);
}

void conf_needs_op(enum sl_op op) {
    if (!now.device || sl_device_has_op(now.device, op))
        return;
    print_message("%s has no op '%s'\n", now.device->caps.id, sl_op_name(op));
    skip();
}

bool conf_gpu(void) {
    return now.gpu;
}

struct sl_device *conf_device(void) {
    return now.device;
}

void conf_tolerance(float relative) {
    now.tolerance = relative;
}

void conf_ok(enum sl_status status) {
    if (status != SL_OK)
        fail_msg("the op was refused: %s", sl_status_text(status));
}

void *conf_put(struct sl_device *d, const void *src, size_t bytes) {
    struct block *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->data_bytes = bytes;
    b->bytes = bytes + 2 * RED_BYTES;
    b->d = d;
    void *addr = NULL;
    assert_int_equal(mem_alloc(d, b->bytes, &addr), SL_OK);
    b->addr = addr;
    b->next = now.blocks;
    now.blocks = b;
    char red[RED_BYTES], *data = b->addr + RED_BYTES;
    memset(red, RED_VALUE, sizeof red);
    assert_int_equal(mem_upload(d, b->addr, red, sizeof red), SL_OK);
    assert_int_equal(mem_upload(d, data + bytes, red, sizeof red), SL_OK);
    char *unset = src ? NULL : malloc(bytes + 1);
    assert_true(src || unset);
    if (unset)
        memset(unset, 0xff, bytes);
    assert_int_equal(mem_upload(d, data, src ? src : unset, bytes), SL_OK);
    free(unset);
    return data;
}

void conf_get(struct sl_device *d, void *dst, const void *src, size_t bytes) {
    assert_int_equal(sl_device_sync(d), SL_OK);
    assert_int_equal(mem_download(d, dst, src, bytes), SL_OK);
}

static void free_blocks(void) {
    bool whole = true;
    while (now.blocks) {
        struct block *b = now.blocks;
        char red[2 * RED_BYTES];
        conf_get(b->d, red, b->addr, RED_BYTES);
        conf_get(b->d, red + RED_BYTES, b->addr + RED_BYTES + b->data_bytes, RED_BYTES);
        for (size_t i = 0; i < sizeof red; i++)
            whole = whole && red[i] == RED_VALUE;
        mem_free(b->d, b->addr);
        now.blocks = b->next;
        free(b);
    }
    if (!whole)
        fail_msg("something was written beside an array");
}

void *conf_host(size_t bytes) {
    now.host = realloc(now.host, (now.n_host + 1) * sizeof *now.host);
    assert_non_null(now.host);
    void *p = calloc(1, bytes ? bytes : 1);
    assert_non_null(p);
    return now.host[now.n_host++] = p;
}

static bool same_f32(float a, float b) {
    /* NaNs need not agree in their payload. */
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void compare(const char *what, enum conf_kind kind, size_t n, const void *expected,
                    const void *got) {
    float most = 0, tolerance = now.target->same_bits ? 0 : now.tolerance;
    if (kind == CONF_F32)
        for (size_t i = 0; i < n; i++) {
            float size = fabsf(((const float *)expected)[i]);
            most = isfinite(size) && size > most ? size : most;
        }
    for (size_t i = 0; i < n; i++) {
        if (kind == CONF_F32) {
            float e = ((const float *)expected)[i], g = ((const float *)got)[i];
            bool ok =
                same_f32(e, g) || (isfinite(e) && isfinite(g) &&
                                   fabs((double)e - (double)g) <= (double)tolerance * (double)most);
            if (!ok)
                fail_msg("%s, %s: element %zu of %zu is %a (%.9g), the definition says %a (%.9g); "
                         "off by %.3g of the largest, allowed %.3g",
                         now.target->name, what, i, n, (double)g, (double)g, (double)e, (double)e,
                         fabs((double)e - (double)g) / (double)most, (double)tolerance);
        } else if (kind == CONF_U32) {
            uint32_t e = ((const uint32_t *)expected)[i], g = ((const uint32_t *)got)[i];
            if (e != g)
                fail_msg("%s, %s: element %zu of %zu is %u, the definition says %u",
                         now.target->name, what, i, n, g, e);
        } else {
            uint8_t e = ((const uint8_t *)expected)[i], g = ((const uint8_t *)got)[i];
            if (e != g)
                fail_msg("%s, %s: byte %zu of %zu is 0x%02x, the definition says 0x%02x",
                         now.target->name, what, i, n, g, e);
        }
    }
}

void conf_case(const char *what, conf_run *run, const void *ctx, enum conf_kind kind, size_t n,
               void *y) {
    static const size_t elem_bytes[] = {sizeof(float), sizeof(uint32_t), 1};
    size_t bytes = n * elem_bytes[kind];
    if (!now.target) {
        run(now.definition, ctx, y);
        free_blocks();
        struct answer *a = calloc(1, sizeof *a);
        assert_non_null(a);
        a->what = strdup(what);
        a->bytes = bytes;
        a->value = malloc(bytes ? bytes : 1);
        assert_non_null(a->value);
        memcpy(a->value, y, bytes);
        *now.answers_end = a;
        now.answers_end = &a->next;
        return;
    }
    struct answer *a = now.next_answer;
    if (!a || a->bytes != bytes || strcmp(a->what, what) != 0)
        fail_msg("%s: the definition was not asked this; its own run failed", what);
    now.next_answer = a->next;
    if (now.lacks) {
        now.lacks = false;
        now.n_lacked++;
        memcpy(y, a->value, bytes);
        return;
    }
    memset(y, 0x77, bytes);
    run(now.device, ctx, y);
    free_blocks();
    compare(what, kind, n, a->value, y);
}

void conf_near(const char *what, const float *y, const double *ref, const double *tol, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)y[i] - ref[i]) <= tol[i]))
            fail_msg("%s: element %zu of %zu is %.9g, in double it is %.17g, off by %g, allowed %g",
                     what, i, n, (double)y[i], ref[i], fabs((double)y[i] - ref[i]), tol[i]);
}

static float sign(struct sl_rng *rng) {
    return sl_rng_u64(rng) & 1 ? -1.0f : 1.0f;
}

void conf_fill(struct sl_rng *rng, enum conf_fill fill, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float u = (float)sl_rng_unit(rng);
        switch (fill) {
        case CONF_WIDE:
            x[i] = sign(rng) * powf(10.0f, 12.0f * u - 6.0f);
            break;
        case CONF_DENORMAL:
            x[i] = sign(rng) * (u < 0.3f   ? 0.0f
                                : u < 0.6f ? 0x1p-140f * (float)sl_rng_below(rng, 1000)
                                : u < 0.8f ? 0x1p-24f * u
                                           : u);
            break;
        case CONF_SPIKES:
            x[i] = sign(rng) * (sl_rng_below(rng, 50) ? 0.01f * u : 300.0f * u);
            break;
        case CONF_EQUAL:
            x[i] = 0.5f * (float)sl_rng_below(rng, 4) - 0.5f;
            break;
        default:
            x[i] = 2.0f * u - 1.0f;
        }
    }
}

/* A test and its answers. */
struct run {
    const struct conf_test *test;
    struct answer *answers;
};

static void run_one(void **state) {
    struct run *r = *state;
    now.answers_end = &r->answers;
    now.next_answer = r->answers;
    now.tolerance = 0;
    now.lacks = false;
    now.n_lacked = 0;
    r->test->fn();
    if (now.n_lacked)
        print_message("%s lacks the types or forms of %u cases\n", now.target->name, now.n_lacked);
}

static int end_one(void **state) {
    (void)state;
    free_blocks();
    for (size_t i = 0; i < now.n_host; i++)
        free(now.host[i]);
    free(now.host);
    now.host = NULL;
    now.n_host = 0;
    return 0;
}

static void absent(void **state) {
    (void)state;
    if (now.asked_for)
        fail_msg("%s: %s", now.target->name, now.absent.text);
    print_message("%s\n", now.absent.text);
    skip();
}

/* Mesa's, or that of the tests' driver of Level Zero. */
static bool is_software(const struct sl_device *d) {
    return strstr(d->caps.model, "llvmpipe") || strstr(d->caps.model, "Test GPU");
}

/* A software device, which takes minutes for what the CPU's own kernels take seconds, has to be
 * asked for. */
static struct sl_device *open_target(const struct conf_target *t) {
    struct sl_err err = {{0}};
    struct sl_device *d = NULL;
    enum sl_status status = t->open(t, &d, &err);
    if (!status && !now.asked_for && is_software(d)) {
        status = sl_fail(&err, SL_ERR_UNSUPPORTED, "%s computes on the CPU: only by --backend %s",
                         d->caps.name, t->name);
        sl_device_close(&d);
    }
    if (status == SL_ERR_UNSUPPORTED) {
        now.absent = err;
        return NULL;
    }
    if (!status)
        status = sl_device_configure(d, now.limits, &err);
    if (status) {
        fprintf(stderr, "%s: %s\n", t->name, err.text);
        exit(1);
    }
    return d;
}

/* The best of the CPU's kernels, in place of plain C. */
static struct sl_device *open_fast(void) {
    struct sl_device *d = NULL;
    for (size_t i = 0; !d && i < CONF_COUNT(fast); i++)
        d = open_target(&fast[i]);
    return d;
}

int conf_main(int argc, char **argv, const char *op, const struct sl_device_limits *limits,
              const struct conf_test *tests, size_t n_tests) {
    int n_failed = 0, n_run = 0;
    const char *only = NULL;
    struct conf_test *some = calloc(n_tests, sizeof *some);
    size_t n_some = 0;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 < argc && strcmp(argv[i], "--backend") == 0) {
            only = argv[i + 1];
        } else if (i + 1 < argc && strcmp(argv[i], "--reference") == 0 &&
                   strcmp(argv[i + 1], "fast") == 0) {
            now.is_fast = true;
        } else if (some && i + 1 < argc && strcmp(argv[i], "--test") == 0) {
            for (size_t k = 0; k < n_tests; k++)
                if (strstr(tests[k].name, argv[i + 1]) && n_some < n_tests)
                    some[n_some++] = tests[k];
            if (!n_some) {
                fprintf(stderr, "no test of %s has \"%s\" in its name\n", argv[0], argv[i + 1]);
                return 2;
            }
        } else {
            fprintf(stderr,
                    "usage: %s [--backend NAME] [--reference fast] [--test PART_OF_A_NAME]...\n",
                    argv[0]);
            return 2;
        }
    }
    if (n_some) {
        tests = some;
        n_tests = n_some;
    }
    now.asked_for = only != NULL;
    now.limits = limits;
    /* Arrays come and go with every case: the kernel need not clear their pages each time. */
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    for (size_t i = 0; i < CONF_COUNT(targets); i++) {
        if (targets[i].open == open_cpu || (only && strcmp(targets[i].name, only) != 0))
            continue;
        struct sl_device *gpu = open_target(&targets[i]);
        bool software = gpu && is_software(gpu);
        now.gpu = now.gpu || ((gpu || only) && !software);
        sl_device_close(&gpu);
    }
    now.definition = now.device = now.is_fast ? open_fast() : open_target(&definition);
    struct run *runs = calloc(n_tests, sizeof *runs);
    if (!runs)
        exit(1);
    char name[256];
    /* The first group holds the definition to the reference in the tests; the others hold the
     * targets to the definition. */
    for (size_t i = 0; i <= CONF_COUNT(targets); i++) {
        now.target = i ? &targets[i - 1] : NULL;
        if (now.target && only && strncmp(now.target->name, only, strlen(only)) != 0)
            continue;
        n_run += now.target != NULL;
        if (now.target)
            now.device = open_target(now.target);
        snprintf(name, sizeof name, "%s on %s", op, now.target ? now.target->name : "definition");
        struct CMUnitTest *list = calloc(n_tests, sizeof *list);
        char(*labels)[256] = calloc(n_tests, sizeof *labels);
        if (!list || !labels)
            exit(1);
        for (size_t k = 0; k < n_tests; k++) {
            runs[k].test = &tests[k];
            snprintf(labels[k], sizeof labels[k], "%.100s: %.100s", name, tests[k].name);
            list[k] = (struct CMUnitTest){labels[k], now.device ? run_one : absent, NULL, end_one,
                                          &runs[k]};
        }
        n_failed += _cmocka_run_group_tests(name, list, n_tests, NULL, NULL);
        free(labels);
        free(list);
        if (now.target)
            sl_device_close(&now.device);
        else
            now.device = NULL;
    }
    sl_device_close(&now.definition);
    if (!n_run) {
        fprintf(stderr, "no target's name starts with \"%s\"\n", only);
        n_failed++;
    }
    for (size_t k = 0; k < n_tests; k++)
        while (runs[k].answers) {
            struct answer *a = runs[k].answers;
            runs[k].answers = a->next;
            free(a->what);
            free(a->value);
            free(a);
        }
    free(runs);
    free(some);
    return n_failed ? 1 : 0;
}
