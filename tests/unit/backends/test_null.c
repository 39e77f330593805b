/* The device that does nothing: what the engine reads back from it is sound all the same. */
#include "backends/null/null.h"
#include "backends/ops/elementwise.h"
#include "backends/ops/router.h"
#include "tests/support/device_memory.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void memory_and_router(void **state) {
    (void)state;
    struct sl_err err;
    struct sl_device *d = NULL;
    assert_int_equal(sl_null_open(&d, &err), SL_OK);
    const struct sl_device_limits limits = {
        .max_tok = 4, .max_n_in = 256, .max_expert = 16, .max_pairs = 12};
    assert_int_equal(sl_device_configure(d, &limits, &err), SL_OK);
    assert_int_equal(sl_device_scratch_bytes(d, &limits), 0);
    void *addr = NULL, *huge = NULL;
    char in[100] = "abc", out[100];
    assert_int_equal(mem_alloc(d, 100, &addr), SL_OK);
    assert_int_equal((uintptr_t)addr % 64, 0);
    assert_int_equal(((char *)addr)[99], 0);
    assert_int_equal(mem_upload(d, addr, in, 100), SL_OK);
    assert_int_equal(mem_download(d, out, addr, 100), SL_OK);
    assert_memory_equal(in, out, 100);
    mem_free(d, addr);
    assert_int_equal(mem_alloc(d, SIZE_MAX - 8, &huge), SL_ERR_NOMEM);

    float logits[4 * 16] = {0}, weights[4 * 3];
    uint32_t ids[4 * 3];
    const struct sl_op_router router = {.logits = logits,
                                        .ids = ids,
                                        .weights = weights,
                                        .n_tok = 4,
                                        .n_expert = 16,
                                        .k = 3,
                                        .scale = 1};
    assert_int_equal(sl_op_router(d, &router), SL_OK);
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(ids[i], i % 3);
        assert_true(weights[i] == 1.0f / 3);
    }
    /* Arguments are checked as for any device. */
    struct sl_op_router bad = router;
    bad.k = 17;
    assert_int_equal(sl_op_router(d, &bad), SL_ERR_INVALID);
    float y[16] = {5};
    assert_int_equal(
        sl_op_silu_mul(d, &(struct sl_op_silu_mul){.gate = logits, .up = logits, .y = y, .n = 16}),
        SL_OK);
    assert_true(y[0] == 5);
    sl_device_close(&d);
    assert_null(d);
}

/* A device that executes at once: copies are done, all has passed, graphs it says it has not. */
static void queues(void **state) {
    (void)state;
    struct sl_err err;
    struct sl_device *d = NULL;
    assert_int_equal(sl_null_open(&d, &err), SL_OK);
    char *host = aligned_alloc(4096, 4096);
    void *seen = NULL, *dev = NULL;
    memcpy(host, "up", 3);
    assert_int_equal(mem_map_host(d, host, 4096, &seen), SL_OK);
    assert_ptr_equal(seen, host);
    assert_int_equal(mem_map_host(d, host, 4095, &seen), SL_ERR_INVALID);
    sl_point point = 5;
    assert_int_equal(mem_alloc(d, 8, &dev), SL_OK);
    assert_int_equal(mem_copy(d, SL_QUEUE_UP, dev, host, 3), SL_OK);
    assert_string_equal(dev, "up");
    assert_int_equal(sl_device_mark(d, SL_QUEUE_UP, &point), SL_OK);
    assert_int_equal(sl_device_passed(d, SL_QUEUE_UP, point), SL_OK);
    assert_int_equal(sl_device_after(d, SL_QUEUE_OPS, SL_QUEUE_UP, point), SL_OK);
    assert_int_equal(sl_device_await(d, SL_QUEUE_UP, point), SL_OK);
    assert_int_equal(sl_device_await(d, SL_QUEUE_UP, point + 1), SL_ERR_INVALID);
    assert_int_equal(sl_device_mark(d, SL_QUEUES, &point), SL_ERR_INVALID);
    assert_int_equal(sl_device_record(d), SL_ERR_UNSUPPORTED);
    uint64_t free_bytes = 1, total_bytes = 1;
    assert_int_equal(sl_device_memory(d, &free_bytes, &total_bytes), SL_OK);
    assert_int_equal(free_bytes + total_bytes, 0); /* unknown */
    mem_free(d, dev);
    mem_unmap_host(d, host);
    free(host);
    sl_device_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_and_router),
                                       cmocka_unit_test(queues)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
