/* The device that does nothing: what the engine reads back from it is sound all the same. */
#include "backends/null/null.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

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
    assert_int_equal(sl_device_alloc(d, 100, &addr), SL_OK);
    assert_int_equal((uintptr_t)addr % 64, 0);
    assert_int_equal(((char *)addr)[99], 0);
    assert_int_equal(sl_device_upload(d, addr, in, 100), SL_OK);
    assert_int_equal(sl_device_download(d, out, addr, 100), SL_OK);
    assert_memory_equal(in, out, 100);
    sl_device_free(d, addr, 100);
    assert_int_equal(sl_device_alloc(d, SIZE_MAX - 8, &huge), SL_ERR_NOMEM);

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_and_router)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
