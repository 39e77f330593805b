/* The row cache beside a plain list that is searched from its newest entry. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/rng.h"
#include "streaming/row_cache.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROW_BYTES 24u

/* Rows by use, the newest first. */
struct list {
    uint64_t row[64];
    uint32_t n;
};

static bool list_find(struct list *l, uint64_t row) {
    for (uint32_t i = 0; i < l->n; i++) {
        if (l->row[i] != row)
            continue;
        memmove(l->row + 1, l->row, i * sizeof *l->row);
        l->row[0] = row;
        return true;
    }
    return false;
}

static void list_add(struct list *l, uint64_t row, uint32_t most) {
    l->n += l->n < most;
    memmove(l->row + 1, l->row, (l->n - 1) * sizeof *l->row);
    l->row[0] = row;
}

static void fill_row(uint8_t *to, uint64_t row) {
    for (uint32_t i = 0; i < ROW_BYTES; i++)
        to[i] = (uint8_t)(row * 31 + i);
}

static void oldest_goes_first(void **state) {
    (void)state;
    const uint32_t sizes[] = {1, 2, 3, 8, 33, 64};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        uint32_t n = sizes[k];
        uint8_t *rows = malloc((size_t)n * ROW_BYTES), want[ROW_BYTES];
        struct sl_row_cache c;
        struct list l = {.n = 0};
        struct sl_rng rng = {.state = k};
        assert_int_equal(sl_row_cache_init(&c, rows, n, ROW_BYTES), SL_OK);
        for (uint32_t i = 0; i < 5000; i++) {
            uint64_t row = sl_rng_u64(&rng) % (2 * n) << (i % 2 ? 40 : 0);
            const uint8_t *found = sl_row_cache_find(&c, row);
            assert_int_equal(found != NULL, list_find(&l, row));
            fill_row(want, row);
            if (found) {
                assert_memory_equal(found, want, ROW_BYTES);
                continue;
            }
            uint8_t *to = sl_row_cache_add(&c, row);
            assert_non_null(to);
            assert_true(to >= rows && to + ROW_BYTES <= rows + (size_t)n * ROW_BYTES);
            fill_row(to, row);
            list_add(&l, row, n);
        }
        sl_row_cache_forget(&c);
        for (uint32_t i = 0; i < l.n; i++)
            assert_null(sl_row_cache_find(&c, l.row[i]));
        assert_non_null(sl_row_cache_add(&c, l.row[0]));
        sl_row_cache_release(&c);
        free(rows);
    }
}

static void none_keeps_none(void **state) {
    (void)state;
    struct sl_row_cache c;
    assert_int_equal(sl_row_cache_init(&c, NULL, 0, ROW_BYTES), SL_OK);
    assert_null(sl_row_cache_find(&c, 0));
    assert_null(sl_row_cache_add(&c, 0));
    assert_null(sl_row_cache_find(&c, 0));
    sl_row_cache_forget(&c);
    sl_row_cache_release(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_goes_first),
        cmocka_unit_test(none_keeps_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
