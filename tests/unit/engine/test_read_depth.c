/* How much may be on its way: from counts of reads alone. */
#include "engine/reads/read_depth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB (1u << 20)

/* Fills it up, then somebody looks while so many reads are left. */
static void fill_and_look(struct sl_read_depth *d, uint64_t read_bytes, uint32_t n_left) {
    uint32_t n = sl_read_depth_room(d, 0, read_bytes);
    assert_int_equal(sl_read_depth_room(d, n, read_bytes), 0);
    sl_read_depth_look(d, n_left);
}

static void room_in_reads(void **state) {
    (void)state;
    struct sl_read_depth d;
    sl_read_depth_init(&d);
    assert_int_equal(sl_read_depth_room(&d, 0, MIB / 4), 5);
    assert_int_equal(sl_read_depth_room(&d, 3, MIB / 4), 2);
    assert_int_equal(sl_read_depth_room(&d, 9, MIB / 4), 0);
    assert_int_equal(sl_read_depth_room(&d, 0, 100 * (uint64_t)MIB), 1); /* one always */
}

static void grows_when_dry(void **state) {
    (void)state;
    struct sl_read_depth d;
    sl_read_depth_init(&d);
    for (uint32_t mib = 2; mib <= 64; mib *= 2) {
        fill_and_look(&d, MIB / 4, 0);
        assert_int_equal(d.depth_bytes, mib * MIB);
    }
    fill_and_look(&d, MIB / 4, 0);
    assert_int_equal(d.depth_bytes, 64 * MIB);
}

static void shrinks_when_hardly_touched(void **state) {
    (void)state;
    struct sl_read_depth d;
    sl_read_depth_init(&d);
    fill_and_look(&d, MIB, 2); /* all of two are left: but no less than a MiB */
    assert_int_equal(d.depth_bytes, MIB);
    fill_and_look(&d, MIB, 0);
    fill_and_look(&d, MIB, 0);
    assert_int_equal(d.depth_bytes, 4 * MIB);
    fill_and_look(&d, MIB / 2, 4); /* of nine: as much as half has been done */
    assert_int_equal(d.depth_bytes, 4 * MIB);
    fill_and_look(&d, 4 * MIB / 3, 2); /* of four: half */
    assert_int_equal(d.depth_bytes, 4 * MIB);
    fill_and_look(&d, MIB / 2, 5);
    assert_int_equal(d.depth_bytes, 4 * MIB - MIB / 2);
}

/* It changes only where there was no more room, and no wait and no new plan since. */
static void only_when_it_was_reached(void **state) {
    (void)state;
    struct sl_read_depth d;
    sl_read_depth_init(&d);
    assert_int_not_equal(sl_read_depth_room(&d, 1, MIB), 0);
    sl_read_depth_look(&d, 0);
    assert_int_equal(d.depth_bytes, MIB);
    assert_int_equal(sl_read_depth_room(&d, 2, MIB), 0);
    sl_read_depth_restart(&d);
    sl_read_depth_look(&d, 0);
    assert_int_equal(d.depth_bytes, MIB);
    fill_and_look(&d, MIB, 0);
    sl_read_depth_look(&d, 0); /* counted once */
    assert_int_equal(d.depth_bytes, 2 * MIB);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_in_reads),
        cmocka_unit_test(grows_when_dry),
        cmocka_unit_test(shrinks_when_hardly_touched),
        cmocka_unit_test(only_when_it_was_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
