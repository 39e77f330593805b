/* How a layer's experts are shared out between CPU and link, on machines of given rates. */
#include "engine/lane/lane_split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MIB UINT64_C(1048576)

struct machine {
    double cpu_start_ns, cpu_byte_ns, link_start_ns, link_byte_ns;
};

static double cpu_ns(const struct machine *m, uint64_t bytes) {
    return bytes ? m->cpu_start_ns + m->cpu_byte_ns * (double)bytes : 0;
}
static double link_ns(const struct machine *m, uint64_t bytes) {
    return bytes ? m->link_start_ns + m->link_byte_ns * (double)bytes : 0;
}

/* A layer on that machine; what it takes. */
static double layer(struct sl_lane_split *s, const struct machine *m, uint32_t n, uint64_t bytes,
                    uint32_t *out_cpu) {
    uint32_t on_cpu = sl_lane_split_choose(s, n, bytes, 0);
    assert_true(on_cpu <= n);
    uint64_t copied = (n - on_cpu) * bytes;
    double cpu = cpu_ns(m, on_cpu * bytes), link = link_ns(m, copied);
    if (on_cpu)
        sl_lane_split_computed(s, on_cpu * bytes, (uint64_t)cpu);
    if (on_cpu && link <= cpu)
        sl_lane_split_had_linked(s, copied, (uint64_t)cpu);
    else if (sl_lane_split_wants_time(s))
        sl_lane_split_linked(s, copied, (uint64_t)link);
    *out_cpu = on_cpu;
    return cpu > link ? cpu : link;
}

static double best(const struct machine *m, uint32_t n, uint64_t bytes) {
    double least = link_ns(m, n * bytes);
    for (uint32_t i = 1; i <= n; i++) {
        double cpu = cpu_ns(m, i * bytes), link = link_ns(m, (n - i) * bytes);
        double both = cpu > link ? cpu : link;
        least = both < least ? both : least;
    }
    return least;
}

/* From rates that are far off, on fast and slow links and CPUs. */
static void near_the_best(void **state) {
    (void)state;
    static const struct machine machines[] = {
        {8000, 0.02, 8000, 0.02},   {20000, 0.03, 5000, 0.08}, {5000, 0.01, 10000, 0.04},
        {30000, 0.2, 10000, 0.018}, {10000, 0.1, 8000, 0.5},
    };
    for (uint32_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        struct sl_lane_split s;
        sl_lane_split_init(&s, 0, 0);
        double took = 0, least = 0;
        for (uint32_t k = 0; k < 4000; k++) {
            uint32_t n = 1 + k * 7 % 8, on_cpu;
            uint64_t bytes = k % 3 ? 5 * MIB / 2 : MIB;
            double ns = layer(&s, &machines[i], n, bytes, &on_cpu);
            if (k < 1000)
                continue;
            took += ns;
            least += best(&machines[i], n, bytes);
        }
        if (!(took < least * 1.06))
            fail_msg("machine %u: %.3f of the best", i, took / least);
    }
}

static void never_where_it_loses(void **state) {
    (void)state;
    const struct machine slow = {200000, 2, 5000, 0.02};
    struct sl_lane_split s;
    sl_lane_split_init(&s, 0, 0);
    uint32_t used = 0, on_cpu;
    for (uint32_t k = 0; k < 8192; k++) {
        (void)layer(&s, &slow, 6, 2 * MIB, &on_cpu);
        used += k >= 100 ? on_cpu : 0;
    }
    assert_in_range(used, 8, 16); /* tried now and then, an expert each time */
    const struct machine fast = {5000, 0.01, 5000, 0.02};
    used = 0;
    for (uint32_t k = 0; k < 8192; k++) { /* and is used again when the machine is free */
        (void)layer(&s, &fast, 6, 2 * MIB, &on_cpu);
        used += k >= 6000 ? on_cpu : 0;
    }
    assert_true(used > 2192 * 3);
}

/* Threads that slept make the first measurement, and one after each rest, a bad one: the lane is
 * used all the same before long. Before each try somebody is told to wake them. */
static void cold_threads(void **state) {
    (void)state;
    const struct machine m = {15000, 0.012, 8000, 0.05};
    struct sl_lane_split s;
    sl_lane_split_init(&s, 0, 0);
    sl_lane_split_computed(&s, 2 * MIB, 3000000);
    uint32_t used = 0, told = 0, tries = 0;
    for (uint32_t k = 0; k < 2000; k++) {
        uint32_t on_cpu;
        (void)layer(&s, &m, 6, 2 * MIB, &on_cpu);
        used += k >= 1000 ? on_cpu : 0;
        told += sl_lane_split_tries_soon(&s);
        tries += on_cpu == 1;
    }
    assert_true(used > 3000);
    /* Never again while it loses, but for the tries, each of which is told of. */
    const struct machine slow = {200000, 2, 5000, 0.02};
    for (uint32_t k = 0; k < 400; k++) {
        uint32_t on_cpu;
        (void)layer(&s, &slow, 6, 2 * MIB, &on_cpu);
    }
    told = tries = 0;
    for (uint32_t k = 0; k < 5120; k++) {
        uint32_t on_cpu;
        (void)layer(&s, &slow, 6, 2 * MIB, &on_cpu);
        told += sl_lane_split_tries_soon(&s);
        tries += on_cpu > 0;
    }
    assert_in_range(tries, 9, 11);
    assert_in_range(told, tries - 1, tries + 1);
}

/* Where copies want to be timed the link is kept clear now and then, not always. */
static void clear_link(void **state) {
    (void)state;
    struct sl_lane_split s;
    sl_lane_split_init(&s, 0, 0);
    uint32_t clear = 0;
    for (uint32_t k = 0; k < 800; k++) {
        (void)sl_lane_split_choose(&s, 2, 2 * MIB, 0);
        assert_true(sl_lane_split_wants_time(&s) || !sl_lane_split_clears_link(&s));
        clear += sl_lane_split_clears_link(&s);
    }
    assert_in_range(clear, 50, 150);
}

static void what_is_copied_counts(void **state) {
    (void)state;
    const struct machine m = {1000, 0.02, 1000, 0.02};
    struct sl_lane_split s;
    sl_lane_split_init(&s, 0, 0);
    uint32_t on_cpu;
    for (uint32_t k = 0; k < 500; k++)
        (void)layer(&s, &m, 4, 2 * MIB, &on_cpu);
    assert_int_equal(on_cpu, 2);
    assert_int_equal(sl_lane_split_choose(&s, 4, 2 * MIB, 8 * MIB), 4);
    assert_int_equal(sl_lane_split_ahead(&s, 4, 2 * MIB), 2);
    assert_int_equal(sl_lane_split_ahead(&s, 0, 2 * MIB), 0);
    assert_int_equal(sl_lane_split_choose(&s, 0, 2 * MIB, 8 * MIB), 0);
}

static void forced(void **state) {
    (void)state;
    static const uint32_t percents[] = {0, 25, 50, 100};
    for (uint32_t i = 0; i < 4; i++) {
        struct sl_lane_split s;
        sl_lane_split_init(&s, 0, 0);
        sl_lane_split_force(&s, percents[i]);
        uint32_t sum = 0;
        for (uint32_t k = 0; k < 400; k++)
            sum += sl_lane_split_choose(&s, k % 5, MIB, 0);
        assert_int_equal(sum, 800 * percents[i] / 100);
        assert_int_equal(sl_lane_split_ahead(&s, 4, MIB), 4 - 4 * percents[i] / 100);
    }
}

/* Whatever comes in, the rates stay numbers. */
static void odd_figures(void **state) {
    (void)state;
    struct sl_lane_split s;
    sl_lane_split_init(&s, 1e-3, 1e30);
    for (uint32_t k = 0; k < 2000; k++) {
        sl_lane_split_computed(&s, k % 2 ? 0 : UINT64_MAX / 2, k % 3 ? 0 : UINT64_MAX / 2);
        sl_lane_split_linked(&s, k % 2 ? 1 : UINT64_MAX, k % 5 ? 0 : UINT64_MAX);
        sl_lane_split_had_linked(&s, k % 2 ? UINT64_MAX : 1, k % 7 ? 0 : UINT64_MAX);
        assert_true(sl_lane_split_choose(&s, 8, MIB, 0) <= 8);
        assert_true(sl_lane_split_cpu_ns(&s, MIB) >= 0);
        assert_true(sl_lane_split_link_ns(&s, MIB) > 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_the_best),
        cmocka_unit_test(never_where_it_loses),
        cmocka_unit_test(what_is_copied_counts),
        cmocka_unit_test(forced),
        cmocka_unit_test(odd_figures),
        cmocka_unit_test(cold_threads),
        cmocka_unit_test(clear_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
