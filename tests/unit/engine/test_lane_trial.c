/* Whether the CPU lane takes part, on machines where it helps, does not, or does for a while. */
#include "engine/lane/lane_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct machine {
    double on_ns, off_ns; /* a step */
    double saved_ns;      /* what the split says */
    double noise;
    uint32_t hold_up; /* one step in so many takes ten times as long; 0: none */
};

static uint32_t random_state = 1;

static double noisy(double ns, const struct machine *m, uint32_t step) {
    random_state = random_state * 1664525u + 1013904223u;
    double r = (double)(random_state >> 8) / 16777216.0 * 2 - 1;
    bool held_up = m->hold_up && step % m->hold_up == m->hold_up - 1;
    return ns * (1 + m->noise * r) * (held_up ? 10 : 1);
}

/* So many steps of n rows: what they took without noise, and how many were with the lane. */
static double run(struct sl_lane_trial *t, const struct machine *m, uint32_t n_rows, uint32_t steps,
                  uint32_t *out_on) {
    double sum = 0;
    *out_on = 0;
    for (uint32_t i = 0; i < steps; i++) {
        bool on = sl_lane_trial_on(t, n_rows);
        double ns = on ? m->on_ns : m->off_ns;
        *out_on += on;
        sum += ns;
        sl_lane_trial_took(t, n_rows, noisy(ns, m, i), on ? m->saved_ns : 0);
    }
    return sum;
}

/* Within a part of a hundred of the better one, once it has been tried. */
static void the_better_holds(void **state) {
    (void)state;
    static const struct machine machines[] = {
        {7e6, 6.5e6, 1e6, 0.05, 0},   {6e6, 6.5e6, 1e6, 0.05, 0}, {6e6, 6.5e6, 0, 0.02, 50},
        {30e6, 6.5e6, 1e6, 0.05, 0},  {11e6, 77e6, 5e6, 0.05, 0}, {11e6, 77e6, 60e6, 0.05, 40},
        {6.5e6, 6.5e6, 1e6, 0.05, 0},
    };
    for (uint32_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct machine *m = &machines[i];
        struct sl_lane_trial t;
        uint32_t on;
        sl_lane_trial_init(&t);
        run(&t, m, 1, 100, &on);
        double took = run(&t, m, 1, 20000, &on);
        double best = 20000 * (m->on_ns < m->off_ns ? m->on_ns : m->off_ns);
        if (!(took < 1.01 * best))
            fail_msg("machine %u: %.3f of the best", i, took / best);
    }
}

/* Where it helps much nothing is tried: not one step goes without. */
static void no_trial_where_it_helps_much(void **state) {
    (void)state;
    const struct machine m = {11e6, 77e6, 60e6, 0.1, 30};
    struct sl_lane_trial t;
    uint32_t on;
    sl_lane_trial_init(&t);
    run(&t, &m, 1, 5000, &on);
    assert_int_equal(on, 5000);
}

/* The machine becomes busy, and free again. */
static void follows(void **state) {
    (void)state;
    const struct machine free_ = {5e6, 6e6, 1e6, 0.03, 0}, busy = {9e6, 6e6, 0, 0.03, 0};
    struct sl_lane_trial t;
    uint32_t on;
    sl_lane_trial_init(&t);
    for (uint32_t i = 0; i < 3; i++) {
        run(&t, &free_, 1, 6000, &on);
        run(&t, &free_, 1, 1000, &on);
        assert_true(on > 950);
        run(&t, &busy, 1, 1000, &on);
        run(&t, &busy, 1, 1000, &on);
        assert_true(on < 50);
    }
}

/* Each number of rows for itself. */
static void rows(void **state) {
    (void)state;
    const struct machine helps = {5e6, 6e6, 1e6, 0.03, 0}, not = {9e6, 6e6, 0, 0.03, 0};
    struct sl_lane_trial t;
    uint32_t on;
    sl_lane_trial_init(&t);
    for (uint32_t i = 0; i < 300; i++) {
        run(&t, &helps, 1, 1, &on);
        run(&t, &not, SL_LANE_TRIAL_ROWS, 1, &on);
    }
    run(&t, &helps, 1, 100, &on);
    assert_true(on > 90);
    run(&t, &not, SL_LANE_TRIAL_ROWS, 100, &on);
    assert_true(on < 10);
}

/* Times that are none change nothing. */
static void odd_times(void **state) {
    (void)state;
    struct sl_lane_trial t;
    sl_lane_trial_init(&t);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(sl_lane_trial_on(&t, 2));
        sl_lane_trial_took(&t, 2, i % 2 ? 0 : -1, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_better_holds), cmocka_unit_test(no_trial_where_it_helps_much),
        cmocka_unit_test(follows),          cmocka_unit_test(rows),
        cmocka_unit_test(odd_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
