/* When to read and how long to wait, from times alone: without a reader, a device or a clock. */
#include "engine/reads/read_pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB 1048576u

static void near(double x, double expected) {
    if (!(x > expected * (1 - 1e-9) && x < expected * (1 + 1e-9)))
        fail_msg("%.12g where %.12g is expected", x, expected);
}

/* Requests of a MiB that take request_ns each, experts that take expert_ns to compute. */
static struct sl_read_pace measured(uint64_t request_ns, uint64_t expert_ns) {
    struct sl_read_pace p = {0};
    sl_read_pace_size(&p, 4 * MIB, 4);
    sl_read_pace_begun(&p, 10, 1000);
    sl_read_pace_left(&p, 0, 1000 + 10 * request_ns);
    sl_read_pace_computed(&p, 3 * expert_ns, 3);
    sl_read_pace_begun(&p, 10, 1000);
    return p;
}

static void unknown_at_first(void **state) {
    (void)state;
    struct sl_read_pace p = {0};
    assert_false(sl_read_pace_known(&p));
    assert_true(sl_read_pace_requests_ns(&p, 3) == 0);
    assert_int_equal(sl_read_pace_to_leave(&p, 8), 0);
    assert_int_equal(sl_read_pace_look_ns(&p, 0), 0);
    assert_int_equal(sl_read_pace_ahead(&p, MIB, 8), 8);
    sl_read_pace_computed(&p, 100, 1);
    assert_false(sl_read_pace_known(&p));
    p = measured(5000, 200);
    assert_true(sl_read_pace_known(&p));
    near(sl_read_pace_requests_ns(&p, 3), 15000);
    near(p.mean_expert_ns, 200);
}

/* The first measurement is the mean; then each weighs an eighth, as twice the mean at most. */
static void means(void **state) {
    (void)state;
    struct sl_read_pace p = {0};
    sl_read_pace_computed(&p, 800, 1);
    near(p.mean_expert_ns, 800);
    sl_read_pace_computed(&p, 2 * 1600, 2);
    near(p.mean_expert_ns, 900);
    sl_read_pace_computed(&p, 1000000, 1); /* as 1800 */
    near(p.mean_expert_ns, 900 + 900 / 8.0);
    sl_read_pace_computed(&p, 0, 1);
    near(p.mean_expert_ns, (900 + 900 / 8.0) * 7 / 8);
}

/* Once a layer, of what has ended, from when the drive had it. */
static void speed_of_the_drive(void **state) {
    (void)state;
    struct sl_read_pace p = {0};
    sl_read_pace_size(&p, 3 * MIB, 3);
    sl_read_pace_begun(&p, 6, 1000);
    sl_read_pace_submitted(&p, 5000); /* they had been held */
    sl_read_pace_left(&p, 6, 7000);   /* nothing yet */
    assert_false(p.byte_ns > 0);
    sl_read_pace_left(&p, 2, 5000 + 4 * MIB);
    near(p.byte_ns, 1);
    sl_read_pace_left(&p, 0, 5000 + 600 * (uint64_t)MIB); /* measured already */
    near(p.byte_ns, 1);
    sl_read_pace_begun(&p, 2, 9000);
    sl_read_pace_left(&p, 0, 9000 + 3 * MIB);
    near(p.byte_ns, 1 + 0.5 / 8);
}

/* Reads of 10 requests of 100 us; computing may take three quarters of that, work before a
 * hundredth. */
static void when_to_hold(void **state) {
    (void)state;
    struct sl_read_pace p = measured(100000, 100000);
    sl_read_pace_run(&p, false, true, 1000);
    assert_false(sl_read_pace_holds(&p, 0, 3, 0)); /* nothing to hold */
    assert_true(sl_read_pace_holds(&p, 10, 5, 2)); /* six behind the last: 660 of 750 */
    assert_false(sl_read_pace_holds(&p, 10, 6, 2));
    assert_false(sl_read_pace_holds(&p, 8, 5, 2)); /* less to hide it behind */
    sl_read_pace_run(&p, true, true, 1000);        /* hits are computed during the wait */
    assert_true(sl_read_pace_holds(&p, 10, 3, 7));
    assert_false(sl_read_pace_holds(&p, 10, 4, 7)); /* twice 400 */
    assert_false(sl_read_pace_holds(&p, 10, 1, 8)); /* seven behind the last: 770 */
}

static void work_before_run(void **state) {
    (void)state;
    struct sl_read_pace p = measured(100000, 100);
    sl_read_pace_run(&p, false, true, 1000 + 9900);
    assert_true(sl_read_pace_holds(&p, 10, 1, 1));
    assert_false(sl_read_pace_holds(&p, 9, 1, 1));
    sl_read_pace_run(&p, true, false, 0); /* of other layers nothing is measured but the device */
    assert_true(p.overlap);
    near(p.between_ns, 9900);
}

/* Computing is taken for a tenth longer than measured. */
static void requests_to_leave(void **state) {
    (void)state;
    struct sl_read_pace p = measured(100000, 200000);
    assert_int_equal(sl_read_pace_to_leave(&p, 0), 0);
    assert_int_equal(sl_read_pace_to_leave(&p, 1), 0);
    assert_int_equal(sl_read_pace_to_leave(&p, 2), 3);  /* 2.2, and one */
    assert_int_equal(sl_read_pace_to_leave(&p, 5), 10); /* 8.8, and one */
    p = measured(1, 1000000000);
    assert_int_equal(sl_read_pace_to_leave(&p, 1000), 1000000);
}

/* Twice as long as expected and 50 us, a millisecond at most, and not for what takes longer. */
static void how_long_to_look(void **state) {
    (void)state;
    struct sl_read_pace p = {0};
    assert_int_equal(sl_read_pace_look_ns(&p, 100000), 250000);
    assert_int_equal(sl_read_pace_look_ns(&p, 1), 50002);
    assert_int_equal(sl_read_pace_look_ns(&p, 1000000), 1000000);
    assert_int_equal(sl_read_pace_look_ns(&p, 1000001), 0);
    assert_int_equal(sl_read_pace_look_ns(&p, -1), 0);
}

/* Waits that do without a look until the next one. */
static uint32_t waits_without(struct sl_read_pace *p) {
    uint32_t n = 0;
    while (!sl_read_pace_look_ns(p, 1000))
        n++;
    return n;
}

static void looks_in_vain_rest(void **state) {
    (void)state;
    struct sl_read_pace p = {0};
    const uint32_t rests[] = {1, 2, 4, 8, 16, 32, 64, 64};
    for (uint32_t i = 0; i < sizeof rests / sizeof *rests; i++) {
        sl_read_pace_looked(&p, false);
        assert_int_equal(waits_without(&p), rests[i]);
    }
    sl_read_pace_looked(&p, false);
    assert_int_equal(sl_read_pace_look_ns(&p, 0), 0); /* would not have looked: does not count */
    assert_int_equal(waits_without(&p), 64);
    sl_read_pace_looked(&p, true);
    assert_int_equal(waits_without(&p), 0);
    sl_read_pace_looked(&p, false);
    assert_int_equal(waits_without(&p), 1);
}

/* From layer to layer of one token, less the waits; of generated rows alone. */
static void time_of_a_layer(void **state) {
    (void)state;
    struct sl_read_pace p = {0};
    sl_read_pace_layer(&p, 1000, 500, true, true);
    assert_false(p.layer_ns > 0);
    sl_read_pace_layer(&p, 3000, 1000, false, true);
    near(p.layer_ns, 1500);
    sl_read_pace_layer(&p, 5000, 3000, false, true);   /* waited all the time */
    sl_read_pace_layer(&p, 9000, 3000, true, true);    /* the output, sampling */
    sl_read_pace_layer(&p, 19000, 3000, false, false); /* prompt rows */
    near(p.layer_ns, 1500);
    sl_read_pace_layer(&p, 21300, 3000, false, true); /* 2300 */
    near(p.layer_ns, 1600);
}

/* What the drive does while a layer is computed, and what covers its latency; k at most. */
static void how_much_ahead(void **state) {
    (void)state;
    struct sl_read_pace p = measured(100000, 1); /* a MiB in 100 us */
    sl_read_pace_layer(&p, 1000, 0, true, true);
    sl_read_pace_layer(&p, 1000 + 350000, 0, false, true);
    assert_int_equal(sl_read_pace_ahead(&p, MIB, 100), 6);      /* 3.5 + 2, rounded up */
    assert_int_equal(sl_read_pace_ahead(&p, MIB / 2, 100), 12); /* 7 + 4, and one */
    assert_int_equal(sl_read_pace_ahead(&p, 4 * MIB, 100), 3);  /* 0.875 + 2 */
    assert_int_equal(sl_read_pace_ahead(&p, MIB, 4), 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_at_first),   cmocka_unit_test(means),
        cmocka_unit_test(speed_of_the_drive), cmocka_unit_test(when_to_hold),
        cmocka_unit_test(work_before_run),    cmocka_unit_test(requests_to_leave),
        cmocka_unit_test(how_long_to_look),   cmocka_unit_test(looks_in_vain_rest),
        cmocka_unit_test(time_of_a_layer),    cmocka_unit_test(how_much_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
