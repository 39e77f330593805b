/* Reading experts again into their slots, in virtual time: the rate is the drive's, its queue is
 * full, and slots that are in use are left alone. */
#include "tests/unit/engine/fetch_rig.h"

#define SECONDS 0.25

static const struct rig_config many = {.shape = {6, 32, 8, {150, 0}}, .depth = 64};

static bool never(void *ctx) {
    (void)ctx;
    return false;
}

/* True from the question on that stop_at names. */
static bool at_last(void *ctx) {
    struct rig *g = ctx;
    return ++g->asked >= g->stop_at;
}

static enum sl_status measure(struct rig *g, double *out_rate) {
    struct sl_fetch_abort give_up = {g->stop_at ? at_last : never, g};
    g->asked = 0;
    test_err.text[0] = 0;
    *out_rate = -1;
    enum sl_status status = sl_fetch_disk_speed(g->fetch, SECONDS, &give_up, out_rate, &test_err);
    sl_cache_check(sl_fetch_cache(g->fetch));
    assert_true((status == SL_OK) == (*out_rate > 0));
    return status;
}

/* Runs steps over all layers, which fills slots and compares what is in them. */
static void run_steps(struct rig *g, uint32_t n) {
    struct sl_rng rng = {.state = 5};
    uint32_t n_failed;
    memset(g->failed, 0, sizeof g->failed);
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t l = 0; l < g->layout.n_layer; l++) {
            choose(g, &rng, 4);
            assert_ok(rig_step(g, l, 4, 4, &n_failed));
            assert_int_equal(n_failed, 0);
        }
}

static uint32_t n_ready(const struct rig *g) {
    struct sl_cache_usage u;
    sl_cache_usage(sl_fetch_cache(g->fetch), &u);
    assert_int_equal(u.loading, 0);
    return u.ready;
}

/* With classes of unlike experts the queue holds requests of both. */
static void the_drive_s_rate(void **state) {
    (void)state;
    static const struct shape shapes[] = {{6, 32, 8, {150, 0}}, {6, 32, 8, {90, 60}}};
    for (uint32_t i = 0; i < 2; i++) {
        struct rig *g =
            rig_open(&(struct rig_config){.shape = shapes[i], .depth = 64, .latency_ns = 20000});
        run_steps(g, 6);
        struct sl_cache_stats cache = *sl_fetch_cache_stats(g->fetch);
        struct sl_fetch_stats fetch = *sl_fetch_stats(g->fetch);
        struct sl_reader_stats a, b;
        uint32_t ready = n_ready(g);
        sl_reader_get_stats(g->reader, &a);
        uint64_t start = g->clock.now_ns;
        double rate, took_s;
        assert_ok(measure(g, &rate));
        took_s = (double)(g->clock.now_ns - start) * 1e-9;
        sl_reader_get_stats(g->reader, &b);
        /* 1 GB/s of whole blocks, of which the payload is a part. */
        double whole =
            (double)(b.read_bytes - a.read_bytes) / (double)(b.needed_bytes - a.needed_bytes);
        if (rate * whole < 0.97e9 || rate * whole > 1.03e9)
            fail_msg("%.3f GB/s", rate * whole * 1e-9);
        assert_true(took_s >= SECONDS && took_s < SECONDS + 0.05);
        double depth = (double)(b.flight_ns - a.flight_ns) / (double)(b.busy_ns - a.busy_ns);
        if (depth < 0.8 * 64)
            fail_msg("%.1f requests in flight", depth);
        assert_int_equal(n_ready(g), ready);
        assert_memory_equal(sl_fetch_cache_stats(g->fetch), &cache, sizeof cache);
        assert_memory_equal(sl_fetch_stats(g->fetch), &fetch, sizeof fetch);
        run_steps(g, 3);
        rig_close(g);
    }
}

/* Not the same few: a disk has caches too. */
static void any_of_them(void **state) {
    (void)state;
    struct rig *g = rig_open(&many);
    run_steps(g, 6);
    uint32_t n = g->slots.first_slot[g->slots.n_class], n_written = 0;
    for (uint32_t i = 0; i < n; i++)
        sl_slots_at(&g->slots, i)[4000] = 0xee; /* its first block comes with each read */
    double rate;
    assert_ok(measure(g, &rate));
    for (uint32_t i = 0; i < n; i++)
        n_written += sl_slots_at(&g->slots, i)[4000] != 0xee;
    assert_true(n_written > n_ready(g) * 9 / 10);
    rig_close(g);
}

static void too_few(void **state) {
    (void)state;
    double rate;
    uint32_t n_failed;
    struct rig *g = rig_open(&many);
    assert_int_equal(measure(g, &rate), SL_ERR_UNSUPPORTED); /* nothing has been read yet */
    assert_non_null(strstr(test_err.text, "0 experts are in slots"));
    choose_in_turn(g, 1);
    assert_ok(rig_step(g, 0, 1, 1, &n_failed));
    assert_int_equal(measure(g, &rate), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(test_err.text, "8 experts are in slots"));
    assert_int_equal(n_ready(g), 8);
    choose_in_turn(g, 2);
    assert_ok(rig_step(g, 0, 2, 2, &n_failed));
    assert_ok(measure(g, &rate)); /* sixteen, although they do not fill the queue */
    rig_close(g);

    /* Few that are large for their queue keep it full. */
    g = rig_open(&(struct rig_config){.shape = {4, 12, 3, {12, 0}}, .depth = 8});
    run_steps(g, 2);
    struct sl_reader_stats a, b;
    sl_reader_get_stats(g->reader, &a);
    assert_ok(measure(g, &rate));
    sl_reader_get_stats(g->reader, &b);
    assert_true(b.flight_ns - a.flight_ns > 6 * (b.busy_ns - a.busy_ns));
    rig_close(g);
}

/* The expert whose extent errs is forgotten, and it alone; then all is as ever. */
static void a_read_fails(void **state) {
    (void)state;
    struct rig *g = rig_open(&many);
    run_steps(g, 6);
    uint32_t ready = n_ready(g), n = 0;
    struct sl_expert_id bad = {2, 0};
    while (!sl_cache_is_ready(sl_fetch_cache(g->fetch), bad))
        bad.expert++;
    g->faults[n++] = fault_on(g, bad.layer, bad.expert, 0);
    sl_fake_set_faults(g->reader, g->faults, n);
    double rate;
    assert_int_equal(measure(g, &rate), SL_ERR_IO);
    assert_non_null(strstr(test_err.text, "check the drive"));
    assert_false(sl_cache_has(sl_fetch_cache(g->fetch), bad));
    assert_int_equal(n_ready(g), ready - 1);
    sl_fake_set_faults(g->reader, NULL, 0);
    assert_ok(measure(g, &rate));
    run_steps(g, 4);
    rig_close(g);
}

/* Given up, at whatever question: what is with the drive has ended, and nothing is lost. */
static void given_up(void **state) {
    (void)state;
    struct rig *g = rig_open(&many);
    run_steps(g, 6);
    uint32_t ready = n_ready(g);
    for (uint32_t i = 1; i < 60; i += 7) {
        double rate;
        struct sl_reader_stats s;
        g->stop_at = i;
        assert_int_equal(measure(g, &rate), SL_ERR_CANCELED);
        sl_reader_get_stats(g->reader, &s);
        assert_int_equal(s.waiting_reads, 0);
        assert_int_equal(n_ready(g), ready);
    }
    g->stop_at = 0;
    run_steps(g, 3);
    rig_close(g);
}

/* Reads in the background end first, and what they bring can be read again. */
static void background_ends_first(void **state) {
    (void)state;
    struct rig *g = rig_open(&many);
    run_steps(g, 1);
    sl_fetch_forget(g->fetch);
    assert_int_equal(n_ready(g), 0);
    sl_fetch_warm_up(g->fetch);
    double rate;
    for (uint32_t i = 0; i < 4; i++)
        sl_fetch_idle(g->fetch, 0);
    struct sl_reader_stats s;
    sl_reader_get_stats(g->reader, &s);
    assert_true(s.waiting_reads > 0);
    (void)!measure(g, &rate);
    sl_reader_get_stats(g->reader, &s);
    assert_int_equal(s.waiting_reads, 0);
    assert_true(n_ready(g) > 0);
    while (sl_fetch_has_background(g->fetch))
        sl_fetch_idle(g->fetch, 1000000);
    assert_ok(measure(g, &rate));
    run_steps(g, 2);
    rig_close(g);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drive_s_rate), cmocka_unit_test(any_of_them),
        cmocka_unit_test(too_few),          cmocka_unit_test(a_read_fails),
        cmocka_unit_test(given_up),         cmocka_unit_test(background_ends_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
