#include "common/dtype.h"
#include "common/metrics.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static void table(void **state) {
    (void)state;
    uint32_t n = 0;
    for (uint32_t i = 0; i < 2 * SL_DTYPE_COUNT; i++) {
        const struct sl_dtype_info *info = sl_dtype_info(i);
        if (!info) {
            bool table = i == SL_DTYPE_I32; /* which no weight is of */
            assert_string_equal(sl_dtype_name(i), table ? "I32" : "unknown");
            assert_int_equal(sl_dtype_stored(i) != NULL, table);
            continue;
        }
        n++;
        assert_ptr_equal(sl_dtype_stored(i), info);
        assert_int_equal(sl_dtype_from_name(info->name), i);
        assert_int_equal(sl_dtype_row_bytes((enum sl_dtype)i, 512),
                         512u / info->block_elems * info->block_bytes);
    }
    assert_int_equal(n, 30);
    assert_int_equal(sl_dtype_from_name("q4_k"), SL_DTYPE_Q4_K);
    assert_int_equal(sl_dtype_from_name("Q4_K_M"), SL_DTYPE_COUNT);
    assert_int_equal(sl_dtype_from_name("I32"), SL_DTYPE_COUNT);
    assert_int_equal(sl_dtype_row_bytes(SL_DTYPE_I32, 6), 24);
}

/* Each binary16 value, by the formula. */
static void f16_to_f32(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint32_t exp = h >> 10 & 31, mant = h & 1023;
        double v = exp ? ldexp(1024 + mant, (int)exp - 25) : ldexp(mant, -24);
        float got = sl_f16_to_f32((uint16_t)h);
        if (exp == 31) {
            assert_true(mant ? isnan(got) : isinf(got));
        } else {
            assert_true((double)got == (h & 0x8000 ? -v : v));
        }
        assert_int_equal(!!signbit(got), h >> 15);
        if (!isnan(got))
            assert_int_equal(sl_f32_to_f16(got), h);
    }
}

static void f32_to_f16_rounds_to_nearest_even(void **state) {
    (void)state;
    assert_int_equal(sl_f32_to_f16(1.0f + 0x1p-11f), 0x3c00);     /* tie to even, down */
    assert_int_equal(sl_f32_to_f16(1.0f + 3 * 0x1p-11f), 0x3c02); /* tie to even, up */
    assert_int_equal(sl_f32_to_f16(nextafterf(1 + 0x1p-11f, 2)), 0x3c01);
    assert_int_equal(sl_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(sl_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(sl_f32_to_f16(0x1p-25f), 0); /* half of the smallest: to even */
    assert_int_equal(sl_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
    assert_int_equal(sl_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(sl_f32_to_f16(NAN) & 0x7c00, 0x7c00);
    assert_int_not_equal(sl_f32_to_f16(NAN) & 0x3ff, 0);
}

static void bf16(void **state) {
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = sl_bf16_to_f32((uint16_t)h);
        if (!isnan(f))
            assert_int_equal(sl_f32_to_bf16(f), h);
    }
    assert_int_equal(sl_f32_to_bf16(1.0f + 0x1p-8f), 0x3f80);
    assert_int_equal(sl_f32_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
    assert_true(isnan(sl_bf16_to_f32(sl_f32_to_bf16(NAN))));
}

static void metrics_are_written_once_each(void **state) {
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    assert_non_null(f);
    sl_count(steps_total, 41);
    sl_count(steps_total, 1);
    sl_metrics_write(f);
    fclose(f);
    assert_non_null(strstr(text, "\n# TYPE sluice_steps_total counter\nsluice_steps_total 42\n"));
    for (char *p = text; (p = strstr(p, "# TYPE ")); p++) {
        size_t len = strcspn(p, "\n");
        char *again = strstr(p + len, "# TYPE ");
        for (; again; again = strstr(again + 1, "# TYPE "))
            assert_int_not_equal(strncmp(p, again, len), 0);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(table), cmocka_unit_test(f16_to_f32),
                                       cmocka_unit_test(f32_to_f16_rounds_to_nearest_even),
                                       cmocka_unit_test(bf16),
                                       cmocka_unit_test(metrics_are_written_once_each)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
