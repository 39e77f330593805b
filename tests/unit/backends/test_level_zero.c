/* The host side of the Level Zero backend over a driver of the tests' own, which the real loader
 * opens (tests/support/ze_driver/ze_test.h), with its parameters validated. What kernels compute is
 * a matter for the conformance programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backends/level_zero/ops.h"
#include "tests/support/ze_driver/ze_test.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB        ((size_t)1 << 20)
#define MEMORY_MIB 64
#define MOST_MIB   16
#define LOST       "0x70000001"
#define DEVICE_OOM "0x70000003"
#define HOST_OOM   "0x70000002"

static char driver_path[PATH_MAX];
static ze_test_counts_fn *get_counts;
static ze_test_fail_fn *set_fail;
static struct sl_err err;

static struct ze_test_counts counts(void) {
    struct ze_test_counts c;
    get_counts(&c);
    return c;
}

static int reset(void **state) {
    (void)state;
    unsetenv("ZE_TEST_KIND");
    unsetenv("ZE_TEST_NO_IMPORT");
    unsetenv("ZE_TEST_COPY_ENGINES");
    unsetenv("ZE_TEST_PLAIN");
    set_fail("");
    memset(&err, 0, sizeof err);
    return 0;
}

static enum sl_status open_level_zero(uint32_t number, struct sl_device **out) {
    *out = NULL;
    return sl_level_zero_open(
        &(struct sl_level_zero_config){.number = number, .staging_bytes = MIB}, out, &err);
}

static struct sl_device *opened(uint32_t number) {
    struct sl_device *d;
    if (open_level_zero(number, &d) != SL_OK)
        fail_msg("%s", err.text);
    return d;
}

static void *filled(size_t bytes, uint32_t seed) {
    uint32_t *p = malloc(bytes);
    assert_non_null(p);
    for (size_t i = 0; i < bytes / sizeof *p; i++)
        p[i] = seed = seed * 1664525u + 1013904223u;
    return p;
}

static struct sl_buffer *allocated(struct sl_device *d, size_t bytes) {
    struct sl_buffer *b = NULL;
    assert_int_equal(sl_device_alloc(d, bytes, &b), SL_OK);
    return b;
}

/* Nothing of the driver's is left. */
static void all_is_freed(void) {
    struct ze_test_counts c = counts();
    for (uint32_t i = 0; i < ZE_TEST_MAX_DEVICES; i++)
        assert_int_equal(c.device_bytes[i], 0);
    assert_int_equal(c.host_bytes + c.imported_bytes, 0);
    assert_int_equal(c.n_lists + c.n_event_pools + c.n_modules + c.n_kernels + c.n_contexts, 0);
}

/* ---- what there is ---- */

static void what_a_card_is(void **state) {
    (void)state;
    struct sl_device_found found[4];
    uint32_t n = 0;
    assert_int_equal(sl_level_zero_backend.enumerate(found, 4, &n, &err), SL_OK);
    assert_int_equal(n, 2);
    assert_string_equal(found[1].id, "level_zero:1");
    assert_string_equal(found[1].model, "Test GPU 1, driver 7, dp4a");
    assert_string_equal(found[1].why_not.text, "");
    assert_int_equal(found[1].memory_bytes, MEMORY_MIB * MIB);
    struct sl_device *d = opened(1);
    assert_string_equal(d->caps.id, "level_zero:1");
    assert_int_equal(d->caps.kind, SL_DEVICE_DISCRETE);
    assert_int_equal(d->caps.memory_bytes, MEMORY_MIB * MIB);
    assert_int_equal(d->caps.max_alloc_bytes, MOST_MIB * MIB);
    assert_int_equal(d->caps.subgroup_width, 16);
    assert_true(d->caps.mapped_host && d->caps.graphs);
    assert_true(d->caps.weight_dtype[SL_DTYPE_IQ1_S] && !d->caps.weight_dtype[SL_DTYPE_I32]);
    assert_true(sl_device_has_op(d, SL_OP_moe) && !sl_device_has_op(d, SL_OP_block_choose));
    sl_device_close(&d);
    assert_true(sl_level_zero_backend.named_only);
    all_is_freed();
}

static void refused(uint32_t number, const char *says) {
    struct sl_device *d;
    assert_int_equal(open_level_zero(number, &d), SL_ERR_UNSUPPORTED);
    if (!strstr(err.text, says))
        fail_msg("not \"%s\", but \"%s\"", says, err.text);
}

/* Which kernels a product has, by what the card can. */
static void kernels_by_card(void **state) {
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        setenv("ZE_TEST_PLAIN", plain ? "1" : "0", 1);
        struct sl_device *d = opened(0);
        const struct sl_level_zero *z = (struct sl_level_zero *)d;
        struct sl_lz_product one =
            sl_lz_product(z, SL_DTYPE_Q4_K, 1, SL_LZ_matmul_float, SL_LZ_matmul_quant,
                          SL_LZ_matmul_quant_one, SL_LZ_matmul_quant_few);
        struct sl_lz_product few =
            sl_lz_product(z, SL_DTYPE_Q4_K, 2, SL_LZ_matmul_float, SL_LZ_matmul_quant,
                          SL_LZ_matmul_quant_one, SL_LZ_matmul_quant_few);
        struct sl_lz_product f16 =
            sl_lz_product(z, SL_DTYPE_F16, 1, SL_LZ_matmul_float, SL_LZ_matmul_quant,
                          SL_LZ_matmul_quant_one, SL_LZ_matmul_quant_few);
        assert_int_equal(one.kernel, plain ? SL_LZ_matmul_quant : SL_LZ_matmul_quant_one);
        assert_int_equal(few.kernel, plain ? SL_LZ_matmul_quant : SL_LZ_matmul_quant_few);
        assert_int_equal(f16.kernel, SL_LZ_matmul_float);
        assert_non_null(strstr(d->caps.model, plain ? ", plain" : ", dp4a"));
        struct sl_lz_product table =
            sl_lz_product(z, SL_DTYPE_IQ4_K, 1, SL_LZ_matmul_float, SL_LZ_matmul_quant,
                          SL_LZ_matmul_quant_one, SL_LZ_matmul_quant_few);
        assert_int_equal(table.kernel, SL_LZ_matmul_quant);
        for (uint32_t i = 0; i < SL_DTYPE_COUNT; i++) { /* none lacks what another has */
            enum sl_dtype t = (enum sl_dtype)i;
            bool by_table = sl_dtype_is_iqk(t) || t == SL_DTYPE_TQ1_0 || t == SL_DTYPE_TQ2_0;
            assert_int_equal(sl_lz_has_kernel(SL_LZ_matmul_quant, t),
                             sl_lz_has_kernel(SL_LZ_moe_quant, t));
            assert_int_equal(sl_lz_has_kernel(SL_LZ_matmul_quant, t) && !by_table,
                             sl_lz_has_kernel(SL_LZ_moe_quant_one, t));
        }
        sl_device_close(&d);
    }
    all_is_freed();
}

static void what_is_not_used(void **state) {
    (void)state;
    refused(2, "there are 2 devices");
    setenv("ZE_TEST_KIND", "integrated", 1);
    refused(0, "integrated GPUs are not supported yet");
    setenv("ZE_TEST_KIND", "cpu", 1);
    refused(0, "it is no GPU");
    unsetenv("ZE_TEST_KIND");
    setenv("ZE_TEST_NO_IMPORT", "1", 1);
    refused(0, "zexDriverImportExternalPointer");
    struct sl_device_found found[4];
    uint32_t n = 0;
    assert_int_equal(sl_level_zero_backend.enumerate(found, 4, &n, &err), SL_OK);
    assert_true(strstr(found[0].why_not.text, "zexDriverImportExternalPointer"));
    all_is_freed();
}

static void loaders_that_are_none(void **state) {
    (void)state;
    const struct sl_lz_loader *loader;
    assert_int_equal(sl_lz_loader_open("libnowhere.so.1", &loader, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "level_zero: no loader here"));
    assert_int_equal(sl_lz_loader_open(driver_path, &loader, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no zeInit: it is too old"));
    memset(&err, 0, sizeof err); /* said again, though not tried again */
    assert_int_equal(sl_lz_loader_open(driver_path, &loader, &err), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "has no zeInit"));
}

/* ---- memory and copies ---- */

static void copies(void **state) {
    (void)state;
    size_t bytes = 5 * MIB + 64; /* several times the staging buffer */
    struct sl_device *d = opened(0);
    char *there = filled(bytes, 1), *back = calloc(1, bytes);
    struct sl_buffer *a = allocated(d, bytes), *b = allocated(d, bytes);
    assert_int_equal(sl_device_upload(d, sl_span_all(a), there), SL_OK);
    memset(there, 0, bytes); /* it may be used again */
    char *same = filled(bytes, 1);
    assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span_all(b), sl_span_all(a)), SL_OK);
    assert_int_equal(sl_device_download(d, back, sl_span_all(b)), SL_OK);
    assert_memory_equal(back, same, bytes);
    assert_int_equal(counts().device_bytes[0], 2 * bytes);
    assert_int_equal(d->own_bytes, 2 * bytes);
    uint64_t left, total;
    assert_int_equal(sl_device_memory(d, &left, &total), SL_OK);
    assert_int_equal(left, MEMORY_MIB * MIB - 2 * bytes);
    sl_device_free(d, &a);
    sl_device_free(d, &b);
    sl_device_close(&d);
    free(there);
    free(back);
    free(same);
    all_is_freed();
}

/* Each copy reads what the one before it wrote: without barriers the driver takes the last first.
 */
static void order_in_a_queue(void **state) {
    (void)state;
    enum { N = 40, UNIT = 256 };
    struct sl_device *d = opened(0);
    char *first = filled(UNIT, 9), back[UNIT];
    struct sl_buffer *b = allocated(d, (size_t)N * UNIT);
    assert_int_equal(sl_device_upload(d, sl_span(b, 0, UNIT), first), SL_OK);
    for (size_t i = 1; i < N; i++)
        assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span(b, i * UNIT, UNIT),
                                        sl_span(b, (i - 1) * UNIT, UNIT)),
                         SL_OK);
    assert_int_equal(sl_device_download(d, back, sl_span(b, (size_t)(N - 1) * UNIT, UNIT)), SL_OK);
    assert_memory_equal(back, first, UNIT);
    free(first);
    sl_device_free(d, &b);
    sl_device_close(&d);
}

/* Up on one queue, over on another, down on a third, with and without copy engines; events are used
 * again many times over, and no more of them come. */
static void order_between_queues(void **state) {
    (void)state;
    enum { N = 700, PAGE = 4096 };
    for (int engines = 0; engines < 2; engines++) {
        setenv("ZE_TEST_COPY_ENGINES", engines ? "1" : "0", 1);
        struct sl_device *d = opened(0);
        char *host = aligned_alloc(PAGE, 2 * PAGE), *now;
        struct sl_buffer *mapped = NULL, *b = allocated(d, 2 * PAGE);
        assert_non_null(host);
        assert_int_equal(sl_device_map_host(d, host, 2 * PAGE, &mapped), SL_OK);
        assert_int_equal(counts().imported_bytes, 2 * PAGE);
        sl_point up = 0, over = 0, down = 0;
        for (uint32_t i = 0; i < N; i++) {
            now = filled(PAGE, i);
            memcpy(host, now, PAGE);
            assert_int_equal(
                sl_device_copy(d, SL_QUEUE_UP, sl_span(b, 0, PAGE), sl_span(mapped, 0, PAGE)),
                SL_OK);
            assert_int_equal(sl_device_mark(d, SL_QUEUE_UP, &up), SL_OK);
            assert_int_equal(sl_device_after(d, SL_QUEUE_OPS, SL_QUEUE_UP, up), SL_OK);
            assert_int_equal(
                sl_device_copy(d, SL_QUEUE_OPS, sl_span(b, PAGE, PAGE), sl_span(b, 0, PAGE)),
                SL_OK);
            assert_int_equal(sl_device_mark(d, SL_QUEUE_OPS, &over), SL_OK);
            assert_int_equal(sl_device_after(d, SL_QUEUE_DOWN, SL_QUEUE_OPS, over), SL_OK);
            assert_int_equal(sl_device_copy(d, SL_QUEUE_DOWN, sl_span(mapped, PAGE, PAGE),
                                            sl_span(b, PAGE, PAGE)),
                             SL_OK);
            assert_int_equal(sl_device_mark(d, SL_QUEUE_DOWN, &down), SL_OK);
            if (i % 3 == 0) {
                while (sl_device_passed(d, SL_QUEUE_DOWN, down) == SL_AGAIN)
                    ;
            } else {
                assert_int_equal(sl_device_await(d, SL_QUEUE_DOWN, down), SL_OK);
            }
            assert_memory_equal(host + PAGE, now, PAGE);
            assert_int_equal(sl_device_passed(d, SL_QUEUE_UP, up), SL_OK);
            free(now);
        }
        assert_true(over >= N);
        assert_int_equal(counts().n_event_pools, 1);
        sl_device_unmap_host(d, &mapped);
        sl_device_free(d, &b);
        sl_device_close(&d);
        free(host);
        all_is_freed();
    }
}

/* Points without anybody who waits: the ring of events goes round by itself, and no event is used
 * again while the other queue has still to see it. */
static void many_points(void **state) {
    (void)state;
    static const enum sl_queue ways[][2] = {{SL_QUEUE_UP, SL_QUEUE_OPS},
                                            {SL_QUEUE_OPS, SL_QUEUE_UP}};
    for (size_t way = 0; way < 2; way++) {
        enum sl_queue from = ways[way][0], to = ways[way][1];
        struct sl_device *d = opened(0);
        struct sl_buffer *b = allocated(d, 256);
        sl_point at = 0, last = 0, first = 0;
        for (uint32_t i = 0; i < 3 * SL_QUEUE_POINTS; i++) {
            assert_int_equal(sl_device_copy(d, from, sl_span(b, 0, 64), sl_span(b, 64, 64)), SL_OK);
            assert_int_equal(sl_device_mark(d, from, &at), SL_OK);
            if (i % 100 == 0) /* now and then, so that the other queue's ring lags behind */
                assert_int_equal(sl_device_after(d, to, from, at), SL_OK);
            assert_int_equal(sl_device_copy(d, to, sl_span(b, 128, 64), sl_span(b, 0, 64)), SL_OK);
            first = first ? first : at;
        }
        assert_int_equal(sl_device_mark(d, to, &last), SL_OK);
        assert_int_equal(sl_device_passed(d, from, first), SL_OK);
        assert_int_equal(sl_device_passed(d, from, 0), SL_OK);
        assert_int_equal(sl_device_sync(d), SL_OK);
        assert_int_equal(sl_device_passed(d, to, last), SL_OK);
        assert_int_equal(sl_lz_passed(d, from, at + 1000), SL_ERR_INVALID);
        sl_device_free(d, &b);
        sl_device_close(&d);
        all_is_freed();
    }
}

/* ---- graphs ---- */

enum { CELLS = 12, CELL = 128 };

/* Copies cell `from` to those after it, one by one, up to `to`. */
static struct sl_graph *chain(struct sl_device *d, struct sl_buffer *b, size_t from, size_t to) {
    struct sl_graph *g = NULL;
    assert_int_equal(sl_device_record(d), SL_OK);
    for (size_t i = from; i < to; i++)
        assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span(b, (i + 1) * CELL, CELL),
                                        sl_span(b, i * CELL, CELL)),
                         SL_OK);
    assert_int_equal(sl_device_recorded(d, &g), SL_OK);
    return g;
}

/* Two graphs in turn, many replays of them with nobody waiting, and copies on OPS and on another
 * queue before and behind each: the driver runs its queues independently and what has no barrier
 * between backwards, so that every event that is missing or early shows. */
static void replays_in_order(void **state) {
    (void)state;
    enum { N = 400 };
    struct sl_device *d = opened(0);
    struct sl_buffer *b = allocated(d, (size_t)CELLS * CELL), *in = allocated(d, (size_t)N * CELL);
    struct sl_buffer *out = allocated(d, (size_t)N * CELL);
    char *data = filled((size_t)N * CELL, 5), *back = calloc(N, CELL);
    uint64_t n_replays = counts().n_replays;
    assert_int_equal(sl_device_upload(d, sl_span_all(in), data), SL_OK);
    assert_int_equal(sl_device_sync(d), SL_OK);
    struct sl_graph *first = chain(d, b, 0, 6), *second = chain(d, b, 6, CELLS - 1);
    for (size_t i = 0; i < N; i++) {
        sl_point at = 0;
        assert_int_equal(
            sl_device_copy(d, SL_QUEUE_OPS, sl_span(b, 0, CELL), sl_span(in, i * CELL, CELL)),
            SL_OK);
        assert_int_equal(sl_device_replay(d, first), SL_OK);
        assert_int_equal(sl_device_replay(d, second), SL_OK);
        if (i % 7 == 0) { /* on another queue, which waits for the replay */
            assert_int_equal(sl_device_mark(d, SL_QUEUE_OPS, &at), SL_OK);
            assert_int_equal(sl_device_after(d, SL_QUEUE_DOWN, SL_QUEUE_OPS, at), SL_OK);
        }
        enum sl_queue by = i % 7 ? SL_QUEUE_OPS : SL_QUEUE_DOWN;
        assert_int_equal(sl_device_copy(d, by, sl_span(out, i * CELL, CELL),
                                        sl_span(b, (CELLS - 1) * CELL, CELL)),
                         SL_OK);
        if (by == SL_QUEUE_DOWN) {
            assert_int_equal(sl_device_mark(d, SL_QUEUE_DOWN, &at), SL_OK);
            assert_int_equal(sl_device_after(d, SL_QUEUE_OPS, SL_QUEUE_DOWN, at), SL_OK);
        }
    }
    assert_int_equal(sl_device_download(d, back, sl_span_all(out)), SL_OK);
    assert_int_equal(sl_device_sync(d), SL_OK);
    assert_memory_equal(back, data, (size_t)N * CELL);
    assert_int_equal(counts().n_replays - n_replays, 2 * N);
    assert_int_equal(counts().n_event_pools, 1); /* all replays share two events of it */
    assert_int_equal(sl_device_replay(d, first), SL_OK);
    sl_graph_free(d, &first); /* waits for its replay */
    assert_null(first);
    sl_graph_free(d, &second);
    sl_device_free(d, &b);
    sl_device_free(d, &in);
    sl_device_free(d, &out);
    sl_device_close(&d);
    free(data);
    free(back);
    all_is_freed();
}

/* Each call of recording fails in turn: nothing is left behind, and the device goes on; a replay
 * that fails halfway gives it up. */
static void graphs_that_fail(void **state) {
    (void)state;
    static const char *const names[] = {"zeEventCreate:1",
                                        "zeEventCreate:2",
                                        "zeCommandQueueCreate:1",
                                        "zeCommandListCreate:1",
                                        "zeCommandListAppendBarrier:1",
                                        "zeCommandListAppendEventReset:1",
                                        "zeCommandListAppendMemoryCopy:2",
                                        "zeCommandListAppendBarrier:2",
                                        "zeCommandListClose:1"};
    static const char *const replays[] = {
        "zeCommandListAppendBarrier:1", "zeCommandQueueExecuteCommandLists:1",
        "zeCommandListAppendBarrier:2", "zeCommandListAppendEventReset:1"};
    char fault[96];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sl_device *d = opened(0);
        struct sl_buffer *b = allocated(d, (size_t)CELLS * CELL);
        struct sl_graph *g = NULL;
        snprintf(fault, sizeof fault, "%s:" DEVICE_OOM, names[i]);
        set_fail(fault);
        assert_int_equal(sl_device_record(d), SL_OK);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(sl_device_copy(d, SL_QUEUE_OPS, sl_span(b, (k + 1) * CELL, CELL),
                                            sl_span(b, k * CELL, CELL)),
                             SL_OK);
        assert_int_equal(sl_device_recorded(d, &g), SL_ERR_DEVICE_OOM);
        assert_null(g);
        set_fail("");
        g = chain(d, b, 0, 3);
        assert_int_equal(sl_device_replay(d, g), SL_OK);
        sl_graph_free(d, &g);
        sl_device_free(d, &b);
        sl_device_close(&d);
        all_is_freed();
    }
    for (size_t i = 0; i < sizeof replays / sizeof *replays; i++) {
        struct sl_device *d = opened(0);
        struct sl_buffer *b = allocated(d, (size_t)CELLS * CELL);
        struct sl_graph *g = chain(d, b, 0, 3);
        snprintf(fault, sizeof fault, "%s:" DEVICE_OOM, replays[i]);
        set_fail(fault);
        assert_int_equal(sl_device_replay(d, g), SL_ERR_DEVICE_LOST);
        set_fail("");
        assert_int_equal(sl_device_sync(d), SL_ERR_DEVICE_LOST);
        sl_graph_free(d, &g);
        sl_device_free(d, &b);
        sl_device_close(&d);
        all_is_freed();
    }
}

/* ---- what fails ---- */

static void memory_that_runs_out(void **state) {
    (void)state;
    struct sl_device *d = opened(0);
    struct sl_buffer *b[16] = {0}, *more = NULL;
    uint32_t n = 0;
    assert_int_equal(sl_device_alloc(d, (MOST_MIB + 1) * MIB, &more), SL_ERR_UNSUPPORTED);
    enum sl_status status = SL_OK;
    while (!status && n < 16)
        if (!(status = sl_device_alloc(d, MOST_MIB * MIB, &b[n])))
            n++;
    assert_int_equal(status, SL_ERR_DEVICE_OOM);
    assert_int_equal(n, MEMORY_MIB / MOST_MIB);
    assert_int_equal(counts().host_bytes, MIB); /* staging alone: nothing went elsewhere */
    sl_device_free(d, &b[--n]);
    b[n++] = allocated(d, MIB); /* the device stays in use */
    while (n)
        sl_device_free(d, &b[--n]);
    void *host = aligned_alloc(4096, 4096);
    set_fail("zexDriverImportExternalPointer:1:" HOST_OOM);
    assert_int_equal(sl_device_map_host(d, host, 4096, &more), SL_ERR_NOMEM);
    free(host);
    sl_device_close(&d);
    all_is_freed();
}

/* Each call of opening fails in turn: there is an error, and nothing is left behind. */
static void opening_that_fails(void **state) {
    (void)state;
    static const char *const names[] = {"zeDriverGet",
                                        "zeDriverGetProperties",
                                        "zeDeviceGet",
                                        "zeDeviceGetProperties",
                                        "zeDeviceGetComputeProperties",
                                        "zeDeviceGetModuleProperties",
                                        "zeDeviceGetMemoryProperties",
                                        "zeDeviceGetCommandQueueGroupProperties",
                                        "zeContextCreate",
                                        "zeEventPoolCreate",
                                        "zeCommandListCreateImmediate",
                                        "zeMemAllocHost"};
    static const char *const results[] = {LOST, HOST_OOM, DEVICE_OOM, "0x7ffffffe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof results / sizeof *results; k++) {
            char fault[96];
            struct sl_device *d;
            snprintf(fault, sizeof fault, "%s:1:%s", names[i], results[k]);
            set_fail(fault);
            if (open_level_zero(0, &d) == SL_OK)
                fail_msg("%s: it opened", fault);
            assert_null(d);
            assert_int_equal(strncmp(err.text, "level_zero", 10), 0);
            all_is_freed();
        }
}

static void a_device_that_is_lost(void **state) {
    (void)state;
    static const char *const when[] = {
        "zeCommandListAppendMemoryCopy:2:" LOST, "zeCommandListAppendBarrier:2:" LOST,
        "zeEventHostSynchronize:1:" LOST, "zeMemAllocDevice:1:" LOST};
    for (size_t i = 0; i < sizeof when / sizeof *when; i++) {
        set_fail("");
        struct sl_device *d = opened(0), *other = opened(1);
        struct sl_buffer *b = allocated(d, 4096), *c = allocated(other, 4096), *more = NULL;
        char *data = filled(4096, 3), back[4096];
        assert_int_equal(sl_device_upload(d, sl_span_all(b), data), SL_OK);
        assert_int_equal(sl_device_upload(other, sl_span_all(c), data), SL_OK);
        set_fail(when[i]);
        enum sl_status status = sl_device_alloc(d, 4096, &more);
        if (!status)
            status = sl_device_upload(d, sl_span_all(b), data);
        if (!status)
            status = sl_device_upload(d, sl_span_all(b), data);
        if (!status)
            status = sl_device_sync(d);
        assert_int_equal(status, SL_ERR_DEVICE_LOST);
        sl_point p;
        assert_int_equal(sl_device_sync(d), SL_ERR_DEVICE_LOST);
        assert_int_equal(sl_device_mark(d, SL_QUEUE_OPS, &p), SL_ERR_DEVICE_LOST);
        assert_int_equal(sl_device_download(d, back, sl_span_all(b)), SL_ERR_DEVICE_LOST);
        assert_int_equal(sl_device_alloc(d, 64, &(struct sl_buffer *){NULL}), SL_ERR_DEVICE_LOST);
        assert_int_equal(sl_device_download(other, back, sl_span_all(c)), SL_OK);
        assert_memory_equal(back, data, sizeof back); /* the other goes on */
        sl_device_free(d, &more);
        sl_device_free(d, &b);
        sl_device_free(other, &c);
        sl_device_close(&d);
        sl_device_close(&other);
        free(data);
        all_is_freed();
    }
}

/* Of the host's memory a device takes its staging, whatever is allocated on it. */
static void host_memory_stays_flat(void **state) {
    (void)state;
    struct sl_device *d[2] = {opened(0), opened(1)};
    struct sl_buffer *b[2][3];
    assert_int_equal(counts().host_bytes, 2 * MIB);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++)
            b[i][k] = allocated(d[i], MOST_MIB * MIB);
    assert_int_equal(counts().host_bytes, 2 * MIB);
    assert_int_equal(counts().device_bytes[0], 3 * MOST_MIB * MIB);
    assert_int_equal(counts().device_bytes[1], 3 * MOST_MIB * MIB);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 3; k++)
            sl_device_free(d[i], &b[i][k]);
        sl_device_close(&d[i]);
    }
    all_is_freed();
}

static void a_planned_one(void **state) {
    (void)state;
    struct sl_device *d = NULL;
    const struct sl_device_offer offer = {.memory_bytes = (uint64_t)16 << 30,
                                          .max_alloc_bytes = (uint64_t)4 << 30};
    assert_int_equal(sl_level_zero_backend.planned(&offer, 3, &d, &err), SL_OK);
    assert_string_equal(d->caps.id, "level_zero:3");
    assert_true(d->caps.weight_dtype[SL_DTYPE_Q8_0] && sl_device_has_op(d, SL_OP_attention));
    assert_true(d->caps.graphs && d->caps.mapped_host);
    const struct sl_device_limits limits = {.max_tok = 8, .max_n_in = 512};
    assert_true(sl_device_scratch_bytes(d, &limits) >= 2 * 8 * 2 * SL_LZ_QX_BYTES);
    sl_device_close(&d);
}

int main(int argc, char **argv) {
    (void)argc;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(what_a_card_is, reset),
        cmocka_unit_test_setup(kernels_by_card, reset),
        cmocka_unit_test_setup(what_is_not_used, reset),
        cmocka_unit_test_setup(loaders_that_are_none, reset),
        cmocka_unit_test_setup(copies, reset),
        cmocka_unit_test_setup(order_in_a_queue, reset),
        cmocka_unit_test_setup(order_between_queues, reset),
        cmocka_unit_test_setup(many_points, reset),
        cmocka_unit_test_setup(replays_in_order, reset),
        cmocka_unit_test_setup(graphs_that_fail, reset),
        cmocka_unit_test_setup(memory_that_runs_out, reset),
        cmocka_unit_test_setup(opening_that_fails, reset),
        cmocka_unit_test_setup(a_device_that_is_lost, reset),
        cmocka_unit_test_setup(host_memory_stays_flat, reset),
        cmocka_unit_test_setup(a_planned_one, reset),
    };
    char program[PATH_MAX - 64];
    if (!realpath(argv[0], program))
        return 1;
    *strstr(program, "/tests/unit/") = 0;
    snprintf(driver_path, sizeof driver_path, "%s/tests/support/ze_driver.so", program);
    void *driver = dlopen(driver_path, RTLD_NOW | RTLD_LOCAL), *found;
    if (!driver || !dlopen("libze_loader.so.1", RTLD_NOW | RTLD_LOCAL)) {
        printf("1..0 # SKIP no driver for tests, or no loader: %s\n", dlerror());
        return 77;
    }
    found = dlsym(driver, "ze_test_counts");
    memcpy(&get_counts, &found, sizeof found);
    found = dlsym(driver, "ze_test_fail");
    memcpy(&set_fail, &found, sizeof found);
    char number[16];
    setenv("ZE_ENABLE_ALT_DRIVERS", driver_path, 1);
    setenv("ZE_ENABLE_VALIDATION_LAYER", "1", 1);
    setenv("ZE_ENABLE_PARAMETER_VALIDATION", "1", 1);
    setenv("ZE_TEST_DEVICES", "2", 1);
    snprintf(number, sizeof number, "%d", MEMORY_MIB);
    setenv("ZE_TEST_MEMORY_MIB", number, 1);
    snprintf(number, sizeof number, "%d", MOST_MIB);
    setenv("ZE_TEST_MAX_ALLOC_MIB", number, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
