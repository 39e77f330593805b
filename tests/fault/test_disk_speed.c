/* How fast the disk is, measured by reading experts again into their slots between two runs:
 * nothing of it may show in answers, counts or places, whatever the disk does meanwhile. */
#include "tests/fault/faulty_disk.h"

#include "engine/engine.h"
#include "engine/schedule/schedule.h"

#include <math.h>
#include <unistd.h>

#define SECONDS 0.02
/* Ends by itself, when the read that fails is drawn. */
#define LONG_SECONDS 30.0

/* Where each expert is. */
struct places {
    bool ready[64];
    float heat[64];
    uint32_t n;
};

static const struct sl_fetch *fetch_of(const struct sl_engine *e) {
    return sl_stage_fetch(e->stages);
}

struct asked {
    struct sl_job job; /* first */
    bool has_background;
};

static enum sl_status ask_background(struct sl_engine *e, struct sl_job *job) {
    ((struct asked *)(void *)job)->has_background = sl_fetch_has_background(fetch_of(e));
    return SL_OK;
}

/* When nothing is read in the background any more: what was read ahead of a run's last step may
 * still be on its way when the run has ended. Asked on the scheduler's thread, since any other one
 * may see the moment between two of those reads, or before the first. */
static struct places look(struct sl_engine *e) {
    struct places p = {.n = 0};
    struct asked a = {.has_background = true};
    while (a.has_background) {
        a.job = (struct sl_job){.run = ask_background, .what = "ask", .err = &test_err};
        enum sl_status status = sl_job_do(e, &a.job);
        assert_true(status == SL_OK || status == SL_AGAIN); /* the run has not left its slot yet */
        usleep(200);
    }
    struct sl_heat *heat = sl_fetch_heat(sl_stage_fetch(e->stages));
    assert_true(layout.n_layer * layout.n_expert <= 64);
    for (uint32_t i = 0; i < layout.n_layer * layout.n_expert; i++) {
        struct sl_expert_id id = {(uint16_t)(i / layout.n_expert), (uint16_t)(i % layout.n_expert)};
        p.ready[i] = sl_cache_is_ready(sl_fetch_cache(fetch_of(e)), id);
        p.heat[i] = sl_heat_probability(heat, id);
        p.n += p.ready[i];
    }
    sl_cache_check(sl_fetch_cache(fetch_of(e)));
    return p;
}

/* With a fault: what a read that fails has written of its expert is not the expert. */
static void spoil_gate(uint32_t layer, uint32_t expert) {
    uint32_t n = layout.layers[layer].extent[0].size_bytes;
    uint8_t *at = model_bytes + layout.layers[layer].extent[0].offset_bytes + (uint64_t)expert * n;
    for (uint32_t i = 0; i < n; i++)
        at[i] ^= 0x55;
}

static void measured_between_runs(void **state) {
    (void)state;
    for (uint32_t turn = 0; turn < 4; turn++) {
        struct disk d = new_disk();
        d.n_copies = 1 + turn / 2;
        d.reorder_seed = turn;
        struct sl_engine *e = engine_on(&d, turn % 2 ? 60 : 100);
        expect_clean(e);
        struct places before = look(e);
        struct sl_cache_stats cache = *sl_fetch_cache_stats(fetch_of(e));
        struct sl_fetch_stats fetch = *sl_fetch_stats(fetch_of(e));
        uint64_t idle = (uint64_t)sl_metric(disk_idle_bytes_total), steps = e->activity.all.steps;
        uint64_t decode = (uint64_t)sl_metric(disk_decode_bytes_total);
        struct sl_reader_stats a, b;
        sl_reader_get_stats(d.reader, &a);
        double rate = 0;
        assert_ok(sl_engine_disk_speed(e, SECONDS, &rate, &test_err));
        assert_true(rate > 0);
        sl_reader_get_stats(d.reader, &b);
        assert_true(b.reads > a.reads + before.n);
        assert_int_equal(b.waiting_reads, 0);
        struct places after = look(e);
        assert_memory_equal(&after, &before, sizeof before);
        assert_memory_equal(sl_fetch_cache_stats(fetch_of(e)), &cache, sizeof cache);
        assert_memory_equal(sl_fetch_stats(fetch_of(e)), &fetch, sizeof fetch);
        /* Counted as nobody's, at once. */
        assert_int_equal((uint64_t)sl_metric(disk_idle_bytes_total) - idle,
                         b.read_bytes - a.read_bytes);
        assert_int_equal(e->activity.all.steps, steps);
        struct run *r = run_one(e, 3);
        assert_clean(r, 3);
        sl_reader_get_stats(d.reader, &a);
        assert_int_equal(r->result.experts.read_bytes, a.read_bytes - b.read_bytes);
        assert_true((uint64_t)sl_metric(disk_decode_bytes_total) - decode <=
                    a.read_bytes - b.read_bytes);
        free_run(r);
        expect_clean(e);
        sl_engine_destroy(&e);
    }
}

/* An expert that cannot be read again is in no slot any more, and no other is lost. It fails who
 * needs it, as ever, until the disk is sound. */
static void what_fails_is_forgotten(void **state) {
    (void)state;
    uint32_t n_lost = 0, n_failed = 0;
    for (uint32_t turn = 0; turn < layout.n_layer; turn++) {
        struct disk d = new_disk();
        struct sl_engine *e = engine_on(&d, 100);
        expect_clean(e);
        struct run *last = make_run(0);
        last->user = &d;
        last->on_finish = inject;
        uint32_t layer = turn, expert = 0;
        while (!look(e).ready[layer * layout.n_expert + expert])
            expert++;
        d.faults[0] = at_expert(layer, expert, 2);
        d.faults[0].error = EIO;
        d.n_faults = 1;
        submit(e, last);
        wait_run(last);
        assert_clean(last, 0);
        free_run(last);

        struct places before = look(e);
        double rate = -1;
        spoil_gate(layer, expert);
        assert_int_equal(sl_engine_disk_speed(e, LONG_SECONDS, &rate, &test_err), SL_ERR_IO);
        spoil_gate(layer, expert);
        assert_non_null(strstr(test_err.text, "check the drive"));
        assert_true(rate < 0);
        struct places after = look(e);
        assert_true(before.ready[layer * layout.n_expert + expert]);
        assert_false(after.ready[layer * layout.n_expert + expert]);
        assert_int_equal(after.n, before.n - 1);
        n_lost++;
        struct sl_err why;
        assert_false(sl_engine_failed(e, &why));

        for (uint32_t i = 0; i < N_RUNS; i++) {
            struct run *r = make_run(i);
            r->user = &d;
            r->on_finish = i + 1 == N_RUNS ? heal : NULL;
            submit(e, r);
            wait_run(r);
            assert_no_wrong_token(r, i);
            if (r->result.status != SL_OK) {
                assert_failed(r, i, SL_ERR_IO, "Input/output error");
                n_failed++;
            }
            free_run(r);
        }
        expect_clean(e);
        assert_ok(sl_engine_disk_speed(e, SECONDS, &rate, &test_err));
        expect_clean(e);
        sl_engine_destroy(&e);
    }
    assert_true(n_lost && n_failed);
}

/* A copy that fails is dropped, and the other one serves the measurement. */
static void the_other_copy_is_measured(void **state) {
    (void)state;
    struct disk d = new_disk();
    d.n_copies = 2;
    d.faults[0] = everywhere();
    d.faults[0].copy = 1;
    d.faults[0].error = EIO;
    struct sl_engine *e = engine_on(&d, 100);
    expect_clean(e);
    struct run *last = make_run(1);
    last->user = &d;
    last->on_finish = inject;
    d.n_faults = 1;
    submit(e, last);
    wait_run(last);
    free_run(last);
    struct places before = look(e);
    uint64_t dropped = (uint64_t)sl_metric(disk_dropped_copies_total);
    double rate = 0;
    assert_ok(sl_engine_disk_speed(e, SECONDS, &rate, &test_err));
    assert_int_equal((uint64_t)sl_metric(disk_dropped_copies_total), dropped + 1);
    assert_int_equal(look(e).n, before.n);
    expect_clean(e);
    sl_engine_destroy(&e);
}

static void expect_refused(struct sl_engine *e, double seconds, enum sl_status status,
                           const char *says) {
    double rate = -1;
    assert_int_equal(sl_engine_disk_speed(e, seconds, &rate, &test_err), status);
    if (!strstr(test_err.text, says))
        fail_msg("'%s' does not say '%s'", test_err.text, says);
    assert_true(rate < 0);
}

static void what_cannot_be_measured(void **state) {
    (void)state;
    struct disk d = new_disk();
    struct sl_engine *e = engine_on(&d, 100);
    expect_refused(e, SECONDS, SL_ERR_UNSUPPORTED, "0 experts are in slots");
    expect_refused(e, 0, SL_ERR_INVALID, "0 seconds");
    expect_refused(e, -1, SL_ERR_INVALID, "-1 seconds");
    expect_refused(e, (double)NAN, SL_ERR_INVALID, "seconds");
    expect_refused(e, 1e9, SL_ERR_INVALID, "up to 60");
    /* Not while a request is there, not even one that waits for its client. */
    struct run *parked = make_run(0);
    parked->hold_at = 3;
    submit(e, parked);
    wait_parked(parked);
    expect_refused(e, SECONDS, SL_AGAIN, "cannot measure the disk while requests run");
    parked->hold_at = 0;
    wait_run(parked);
    assert_clean(parked, 0);
    free_run(parked);
    expect_clean(e);
    double rate = 0;
    assert_ok(sl_engine_disk_speed(e, SECONDS, &rate, &test_err));
    sl_engine_destroy(&e);

    struct disk small = new_disk(); /* the least slots */
    e = engine_on(&small, 0);
    expect_clean(e);
    expect_refused(e, SECONDS, SL_ERR_UNSUPPORTED, "the disk's queue is not full");
    expect_clean(e);
    sl_engine_destroy(&e);

    struct sl_engine_config c = streamed_config(0);
    c.experts = SL_EXPERTS_RESIDENT;
    c.ram_bytes = AMPLE_BYTES;
    e = new_engine(&model, &c);
    expect_refused(e, SECONDS, SL_ERR_UNSUPPORTED, "all are resident");
    expect_clean(e);
    sl_engine_destroy(&e);
}

/* Two at once: one of them is told to come again, or both are served in turn. */
static void *measure_too(void *arg) {
    struct sl_err err;
    double rate;
    return (void *)(uintptr_t)sl_engine_disk_speed(arg, SECONDS, &rate, &err);
}

static void two_at_once(void **state) {
    (void)state;
    struct disk d = new_disk();
    struct sl_engine *e = engine_on(&d, 100);
    expect_clean(e);
    for (uint32_t turn = 0; turn < 5; turn++) {
        pthread_t other;
        void *st;
        double rate;
        assert_int_equal(pthread_create(&other, NULL, measure_too, e), 0);
        enum sl_status own = sl_engine_disk_speed(e, SECONDS, &rate, &test_err);
        pthread_join(other, &st);
        enum sl_status others = (enum sl_status)(uintptr_t)st;
        assert_true(own == SL_OK || others == SL_OK);
        assert_true((own == SL_OK || own == SL_AGAIN) && (others == SL_OK || others == SL_AGAIN));
        expect_clean(e); /* what comes meanwhile waits */
    }
    sl_engine_destroy(&e);
}

static void the_trace_shows_it(void **state) {
    (void)state;
    char path[] = "/tmp/sluice-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct disk d = new_disk();
    struct sl_engine_config c = streamed_config(100);
    c.reader_source = &d.base;
    c.trace_file = path;
    struct sl_engine *e = new_engine(&model, &c);
    expect_clean(e);
    double rate;
    assert_ok(sl_engine_disk_speed(e, SECONDS, &rate, &test_err));
    expect_clean(e);
    sl_engine_destroy(&e);
    FILE *f = fdopen(fd, "r");
    assert_non_null(f);
    uint32_t n = 0;
    static char line[1 << 16];
    while (fgets(line, sizeof line, f))
        for (const char *at = line; (at = strstr(at, "\"measuring the disk\"")) != NULL; at++)
            n++;
    assert_int_equal(n, 1);
    fclose(f);
    unlink(path);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    alarm(300); /* a hang is a failure */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_between_runs),
        cmocka_unit_test(what_fails_is_forgotten),
        cmocka_unit_test(the_other_copy_is_measured),
        cmocka_unit_test(what_cannot_be_measured),
        cmocka_unit_test(two_at_once),
        cmocka_unit_test(the_trace_shows_it),
    };
    return cmocka_run_group_tests(tests, setup_model, teardown_model);
}
