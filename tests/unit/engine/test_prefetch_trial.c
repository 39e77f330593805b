/* Whether running routers early pays: by its waits alone, without reads, slots or a cache. */
#include "engine/predict/prefetch_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define LAYERS 4u
#define COLD   (16 * LAYERS)
#define WINDOW (6 * LAYERS)
#define REST   (256 * LAYERS)

static uint64_t stall_ns;

/* n layers of one row, each of which waits so long without and with early routers. */
static void run(struct sl_prefetch_trial *t, uint32_t n, uint64_t without, uint64_t with) {
    for (uint32_t i = 0; i < n; i++) {
        sl_prefetch_trial_layer(t, stall_ns, 1);
        sl_prefetch_trial_decide(t);
        stall_ns += t->on ? with : without;
    }
}

static struct sl_prefetch_trial begun(void) {
    struct sl_prefetch_trial t;
    sl_prefetch_trial_init(&t, LAYERS);
    stall_ns = 0;
    return t;
}

/* Nothing before the cache is warm; then on, off, off, on. */
static void windows(void **state) {
    (void)state;
    struct sl_prefetch_trial t = begun();
    run(&t, COLD - 1, 100, 100);
    assert_false(t.on);
    run(&t, 1, 100, 100);
    const bool on[] = {true, false, false, true};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(t.on, on[i]);
        run(&t, WINDOW - 1, 100, 100);
        assert_int_equal(t.on, on[i]);
        run(&t, 1, 100, 100);
    }
    assert_false(t.on); /* equal waits do not pay */
}

static void after_trial(uint64_t with, bool expected) {
    struct sl_prefetch_trial t = begun();
    run(&t, COLD + 4 * WINDOW, 1000, with);
    assert_int_equal(t.on, expected);
    run(&t, REST - 1, 1000, with);
    assert_int_equal(t.on, expected);
    run(&t, 1, 1000, with); /* the next trial begins with early routers */
    assert_true(t.on);
    run(&t, WINDOW, 1000, with);
    assert_false(t.on);
}

/* It must save three parts in a hundred, and what was found holds until the next trial. */
static void the_better_holds(void **state) {
    (void)state;
    after_trial(900, true);
    after_trial(980, false);
    after_trial(1100, false);
}

/* Half of the reads wanted is enough to try on; less is not. */
static void hopeless_ends_at_once(void **state) {
    (void)state;
    for (uint32_t used = 31; used <= 32; used++) {
        struct sl_prefetch_trial t = begun();
        run(&t, COLD, 100, 0);
        sl_prefetch_trial_count(&t, 63, 0);
        sl_prefetch_trial_decide(&t);
        assert_true(t.on); /* too few to tell */
        sl_prefetch_trial_count(&t, 1, used);
        sl_prefetch_trial_decide(&t);
        assert_int_equal(t.on, used == 32);
    }
}

/* Waits of layers that cannot prefetch are nobody's. */
static void other_layers_do_not_count(void **state) {
    (void)state;
    struct sl_prefetch_trial t = begun();
    run(&t, COLD, 100, 100);
    uint64_t before = t.stall_ns[0] + t.stall_ns[1];
    sl_prefetch_trial_layer(&t, stall_ns, 0);
    uint64_t own = t.stall_ns[0] + t.stall_ns[1];
    assert_int_equal(own - before, 100);
    sl_prefetch_trial_layer(&t, stall_ns + 1000000, 1);
    assert_int_equal(t.stall_ns[0] + t.stall_ns[1], own);
}

/* Four tokens without a read, and routers are not run early until there is one. */
static void quiet(void **state) {
    (void)state;
    struct sl_prefetch_trial t = begun();
    run(&t, COLD, 100, 100);
    assert_true(t.on);
    assert_false(sl_prefetch_trial_wants(&t));
    sl_prefetch_trial_read(&t);
    assert_true(sl_prefetch_trial_wants(&t));
    run(&t, 4 * LAYERS - 1, 100, 100);
    assert_true(sl_prefetch_trial_wants(&t));
    run(&t, 1, 100, 100);
    assert_true(t.on);
    assert_false(sl_prefetch_trial_wants(&t));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(the_better_holds),
        cmocka_unit_test(hopeless_ends_at_once),
        cmocka_unit_test(other_layers_do_not_count),
        cmocka_unit_test(quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
