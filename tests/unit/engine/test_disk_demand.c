/* Whether enough comes from disk: from counts alone. */
#include "engine/predict/disk_demand.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define TOKENS 32u
#define LAYERS 3u

static uint64_t n_reads;

/* A whole count, from its first layer to the one that judges it. */
static void count(struct sl_disk_demand *d, uint32_t reads, bool expected) {
    for (uint32_t t = 0; t < TOKENS; t++)
        for (uint32_t l = 0; l < LAYERS; l++) {
            n_reads += t == 7 && l == 2 ? reads : 0;
            bool judged = sl_disk_demand_layer(d, n_reads, true, l + 1 == LAYERS);
            assert_int_equal(judged, t + 1 == TOKENS && l + 1 == LAYERS);
        }
    assert_int_equal(d->enough, expected);
}

static struct sl_disk_demand fresh(void) {
    struct sl_disk_demand d;
    sl_disk_demand_init(&d);
    n_reads = 0;
    return d;
}

static void enough_until_known(void **state) {
    (void)state;
    struct sl_disk_demand d = fresh();
    assert_true(d.enough);
    for (uint32_t i = 1; i < TOKENS; i++)
        assert_false(sl_disk_demand_layer(&d, 0, true, true));
    assert_true(d.enough);
    assert_true(sl_disk_demand_layer(&d, 0, true, true));
    assert_false(d.enough);
}

/* On with one a token, off below half of one. */
static void two_thresholds(void **state) {
    (void)state;
    struct sl_disk_demand d = fresh();
    count(&d, TOKENS / 2, true);
    count(&d, TOKENS / 2 - 1, false);
    count(&d, TOKENS - 1, false);
    count(&d, TOKENS, true);
    count(&d, TOKENS - 1, true);
}

/* Counts begin anew: what one has left does not show in the next. */
static void each_count_alone(void **state) {
    (void)state;
    struct sl_disk_demand d = fresh();
    count(&d, 1000, true);
    count(&d, 0, false);
}

/* What prompts read is nobody's, and their layers are no token's. */
static void prompts_do_not_count(void **state) {
    (void)state;
    struct sl_disk_demand d = fresh();
    count(&d, 0, false);
    for (uint32_t i = 0; i < 10 * TOKENS; i++)
        assert_false(sl_disk_demand_layer(&d, n_reads += 5, false, true));
    count(&d, TOKENS - 1, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enough_until_known),
        cmocka_unit_test(two_thresholds),
        cmocka_unit_test(each_count_alone),
        cmocka_unit_test(prompts_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
