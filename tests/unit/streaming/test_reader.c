/* The reader's queues on the fake disk: cutting, priorities, cancellation, copies, the model of
 * time. */
#include "tests/unit/streaming/fixture.h"

#define MIB (1u << 20)

static const uint32_t sizes[3] = {700001, 1 * MIB, 333};
static uint8_t *data;
#define DATA_BYTES ((size_t)24 * MIB + 1234)

static struct sl_fake_clock vclock;

static void open_fake(struct rig *g, uint32_t n, const struct sl_fake_config *config) {
    rig_init(g, n, sizes);
    struct sl_fake_config c = *config;
    vclock.now_ns = 1000;
    c.clock = &vclock;
    assert_ok(sl_fake_open(&c, &g->reader, &test_err));
}

static void add_data(struct rig *g) {
    uint32_t f = 99;
    assert_ok(sl_fake_add_file(g->reader, SL_READER_FILES, data, DATA_BYTES, &f, &test_err));
    assert_int_equal(f, 0);
}

static const struct sl_fake_config plain = {
    .drive[0] = {.bytes_per_s = 1000000000, .latency_ns = 100000}};

static struct sl_reader_stats stats_of(const struct rig *g) {
    struct sl_reader_stats s;
    sl_reader_get_stats(g->reader, &s);
    return s;
}

static void reads_arrive_whole(void **state) {
    (void)state;
    const struct {
        uint32_t depth, request_bytes;
    } shapes[] = {{0, 0}, {1, 64 << 10}, {3, 68 << 10}, {512, 4 << 20}, {7, 256 << 10}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        struct rig g;
        struct sl_fake_config c = plain;
        c.reader.depth = shapes[k].depth;
        c.reader.request_bytes = shapes[k].request_bytes;
        c.reorder_seed = k; /* 0: in order */
        c.reorder_ns = 5000000;
        open_fake(&g, 40, &c);
        add_data(&g);
        struct sl_rng rng = {.state = 3 + k};
        for (uint32_t i = 0; i < 40; i++)
            rig_scatter(&g, i, 0, DATA_BYTES, &rng);
        /* The file's first and last byte. */
        g.read[5].extent[0].offset_bytes = 0;
        g.read[6].extent[1].offset_bytes = DATA_BYTES - sizes[1];
        rig_submit(&g, 0, 40);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 40, data);
        struct sl_reader_stats s = stats_of(&g);
        assert_int_equal(s.reads, 40);
        assert_int_equal(s.needed_bytes, 40ull * (sizes[0] + sizes[1] + sizes[2]));
        assert_true((double)s.read_bytes / (double)s.needed_bytes < 1.02);
        assert_true(s.max_flying <= (shapes[k].depth ? shapes[k].depth : 128));
        assert_int_equal(s.retries, 0);
        rig_release(&g);
    }
}

/* What lies around a place is not written. */
static void nothing_beyond_the_places(void **state) {
    (void)state;
    struct rig g;
    open_fake(&g, 3, &plain);
    add_data(&g);
    struct sl_rng rng = {.state = 11};
    for (uint32_t i = 0; i < 3; i++)
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
    rig_submit(&g, 1, 1);
    rig_wait_all(&g);
    rig_check_ok(&g, 1, 1, data);
    for (size_t i = 0; i < g.layout.slot_bytes; i++) {
        assert_int_equal(g.read[0].slot[i], 0xee);
        assert_int_equal(g.read[2].slot[i], 0xee);
    }
    rig_release(&g);
}

static void malformed_reads_are_refused(void **state) {
    (void)state;
    struct rig g;
    open_fake(&g, 2, &plain);
    add_data(&g);
    struct sl_rng rng = {.state = 1};
    rig_scatter(&g, 0, 0, DATA_BYTES, &rng);
    rig_scatter(&g, 1, 0, DATA_BYTES, &rng);
    g.read[0].next = &g.read[1];
    struct sl_read good = g.read[1];
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        g.read[1] = good;                                                                          \
        change;                                                                                    \
        assert_int_equal(sl_reader_submit(g.reader, &g.read[0], &test_err), SL_ERR_INVALID);       \
        assert_int_equal(stats_of(&g).waiting_reads, 0);                                           \
    } while (0)
    REFUSED(g.read[1].n_extents = 0);
    REFUSED(g.read[1].n_extents = SL_SLOT_EXTENTS + 1);
    REFUSED(g.read[1].done = NULL);
    REFUSED(g.read[1].slot += 32);
    REFUSED(g.read[1].priority = SL_READ_PRIORITIES);
    REFUSED(g.read[1].extent[2].place_bytes += 1);
    REFUSED(g.read[1].extent[2].size_bytes = 0);
    REFUSED(g.read[1].extent[1].file = 1);
    REFUSED(g.read[1].extent[1].offset_bytes = DATA_BYTES - sizes[1] + 1);
    REFUSED(g.read[1].extent[1].offset_bytes = UINT64_MAX - 5);
    assert_non_null(strstr(test_err.text, "fake0"));
    g.read[1] = good;
    rig_submit(&g, 0, 2);
    uint32_t f;
    assert_int_equal(sl_fake_add_file(g.reader, SL_READER_FILES, data, 5, &f, &test_err),
                     SL_ERR_INVALID); /* too late */
    rig_wait_all(&g);
    rig_check_ok(&g, 0, 2, data);
    rig_release(&g);

    struct sl_reader_config bad[] = {{.depth = 513},
                                     {.request_bytes = 4096},
                                     {.request_bytes = 100000},
                                     {.request_bytes = 8 * MIB},
                                     {.depth = 4, .background_depth = 5},
                                     {.n_threads = 1000},
                                     {.kind = SL_IO_FAKE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sl_reader_open(&bad[i], &g.reader, &test_err), SL_ERR_INVALID);
}

static uint32_t place_of(const struct rig *g, uint32_t i) {
    for (uint32_t k = 0; k < g->n_order; k++)
        if (g->order[k] == i)
            return k;
    fail_msg("read %u has not ended", i);
    return 0;
}

static void urgent_reads_go_first(void **state) {
    (void)state;
    struct rig g;
    struct sl_fake_config c = plain;
    c.reader.depth = 8;
    c.reader.background_depth = 4;
    open_fake(&g, 30, &c);
    add_data(&g);
    struct sl_rng rng = {.state = 2};
    for (uint32_t i = 0; i < 30; i++) {
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
        g.read[i].priority = i < 10 ? SL_READ_WARMUP : i < 20 ? SL_READ_PREFETCH : SL_READ_DEMAND;
    }
    rig_submit(&g, 0, 10);
    assert_int_equal(stats_of(&g).flying_requests, 4); /* warm-up keeps to the background's share */
    rig_submit(&g, 10, 10);
    assert_int_equal(stats_of(&g).flying_requests, 4);
    rig_submit(&g, 20, 9);
    assert_int_equal(stats_of(&g).flying_requests, 8);
    /* A prefetch that has become urgent goes behind the demands, before the rest. */
    sl_reader_raise(g.reader, &g.read[19], SL_READ_DEMAND);
    sl_reader_raise(g.reader, &g.read[19], SL_READ_WARMUP); /* never down */
    assert_int_equal(g.read[19].priority, SL_READ_DEMAND);
    rig_submit(&g, 29, 1);
    rig_wait_all(&g);
    rig_check_ok(&g, 0, 30, data);
    /* The two warm-up reads that were under way may end among the demands. */
    for (uint32_t i = 20; i < 29; i++)
        assert_true(place_of(&g, i) < 9 + 2);
    assert_true(place_of(&g, 19) > place_of(&g, 28) && place_of(&g, 19) < place_of(&g, 29));
    for (uint32_t i = 10; i < 19; i++)
        assert_true(place_of(&g, i) < place_of(&g, 9) && place_of(&g, i) > place_of(&g, 29));
    rig_release(&g);
}

/* Behind as much background work as there may be, a demand waits for background_depth requests. */
static void demand_waits_for_the_backgrounds_share_only(void **state) {
    (void)state;
    struct rig g;
    open_fake(&g, 30, &plain);
    add_data(&g);
    struct sl_rng rng = {.state = 4};
    for (uint32_t i = 0; i < 30; i++) {
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
        g.read[i].priority = i < 29 ? SL_READ_PREFETCH : SL_READ_DEMAND;
    }
    rig_submit(&g, 0, 29);
    uint64_t t = vclock.now_ns;
    rig_submit(&g, 29, 1);
    while (!g.n_done[29])
        sl_reader_wait(g.reader, 1, -1);
    uint64_t own = sizes[0] + sizes[1] + sizes[2] + 3 * 4096, bytes = 16ull * (768u << 10);
    assert_true(vclock.now_ns - t < own + bytes + 300000); /* at a byte per nanosecond */
    rig_wait_all(&g);
    rig_release(&g);
}

/* Of predictions few bytes are in flight, however little else is; a demand starts at once and
 * overlaps them. */
static void predicted_reads_are_few(void **state) {
    (void)state;
    struct rig g;
    struct sl_fake_config c = plain;
    c.reader.depth = 512;
    c.reader.request_bytes = 64u << 10;
    c.reader.prediction_bytes = 150u << 10;
    open_fake(&g, 30, &c);
    add_data(&g);
    struct sl_rng rng = {.state = 14};
    for (uint32_t i = 0; i < 30; i++) {
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
        g.read[i].priority = i < 20 ? SL_READ_PREDICTION : i < 25 ? SL_READ_WARMUP : SL_READ_DEMAND;
    }
    rig_submit(&g, 0, 20);
    uint32_t predictions = stats_of(&g).flying_requests;
    assert_true(predictions >= 2 && predictions <= 6);
    rig_submit(&g, 20, 5); /* warm-up stays behind predictions that wait */
    assert_int_equal(stats_of(&g).flying_requests, predictions);
    rig_submit(&g, 25, 5);
    assert_true(stats_of(&g).flying_requests > predictions + 5);
    /* Somebody wants one: it needs no room among the predictions. */
    uint32_t flying = stats_of(&g).flying_requests;
    sl_reader_raise(g.reader, &g.read[19], SL_READ_DEMAND);
    assert_true(stats_of(&g).flying_requests > flying);
    for (uint32_t i = 10; i < 15; i++)
        sl_reader_cancel(g.reader, &g.read[i]);
    rig_wait_all(&g);
    rig_check_ok(&g, 0, 10, data);
    rig_check_ok(&g, 15, 15, data);
    for (uint32_t i = 25; i < 30; i++)
        assert_true(place_of(&g, i) < place_of(&g, 9));
    rig_release(&g);
}

static void cancel_ends_once_and_after_the_disk(void **state) {
    (void)state;
    struct rig g;
    struct sl_fake_config c = plain;
    c.reader.depth = 4;
    open_fake(&g, 20, &c);
    add_data(&g);
    struct sl_rng rng = {.state = 9};
    for (uint32_t i = 0; i < 20; i++)
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
    rig_submit(&g, 0, 20);
    sl_reader_cancel(g.reader, &g.read[0]);  /* in flight */
    sl_reader_cancel(g.reader, &g.read[15]); /* nothing of it was started */
    sl_reader_cancel(g.reader, &g.read[15]);
    assert_int_equal(g.n_order, 0); /* never inside cancel */
    assert_int_equal(sl_reader_poll(g.reader), 1);
    assert_int_equal(g.n_done[15], 1);
    assert_int_equal(g.status[15], SL_ERR_CANCELED);
    assert_int_equal(g.n_done[0], 0); /* the disk still writes into its slot */
    rig_wait_all(&g);
    sl_reader_cancel(g.reader, &g.read[3]); /* ended long ago */
    sl_reader_poll(g.reader);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(g.n_done[i], 1);
        assert_int_equal(g.status[i], i == 0 || i == 15 ? SL_ERR_CANCELED : SL_OK);
        if (g.status[i] == SL_OK)
            rig_check_bytes(&g, i, data);
    }
    assert_int_equal(stats_of(&g).canceled, 2);
    /* A read that was canceled can be submitted again. */
    rig_submit(&g, 15, 1);
    rig_wait_all(&g);
    assert_int_equal(g.n_done[15], 2);
    assert_int_equal(g.status[15], SL_OK);
    rig_check_bytes(&g, 15, data);
    rig_release(&g);
}

static void close_ends_everything(void **state) {
    (void)state;
    struct rig g;
    struct sl_fake_config c = plain;
    c.reader.depth = 4;
    open_fake(&g, 20, &c);
    add_data(&g);
    struct sl_rng rng = {.state = 9};
    for (uint32_t i = 0; i < 20; i++)
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
    rig_submit(&g, 0, 20);
    sl_reader_wait(g.reader, 3, -1);
    sl_reader_close(&g.reader);
    assert_null(g.reader);
    uint32_t ok = 0;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(g.n_done[i], 1);
        ok += g.status[i] == SL_OK;
        assert_true(g.status[i] == SL_OK || g.status[i] == SL_ERR_CANCELED);
    }
    assert_true(ok >= 3 && ok < 10);
    rig_release(&g);
}

/* done may submit, cancel, raise and poll. */
static void again(struct rig *g, uint32_t i, enum sl_status status) {
    assert_int_equal(sl_reader_poll(g->reader), 0);
    if (i == 0 && status == SL_OK)
        sl_reader_cancel(g->reader, &g->read[9]);
    if (g->n_done[i] < 3) {
        g->read[i].next = NULL;
        assert_ok(sl_reader_submit(g->reader, &g->read[i], &test_err));
    }
}

static void done_may_call_the_reader(void **state) {
    (void)state;
    struct rig g;
    struct sl_fake_config c = plain;
    c.reader.depth = 5;
    open_fake(&g, 10, &c);
    add_data(&g);
    g.then = again;
    struct sl_rng rng = {.state = 9};
    for (uint32_t i = 0; i < 10; i++)
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
    rig_submit(&g, 0, 10);
    rig_wait_all(&g);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(g.n_done[i], 3);
        rig_check_bytes(&g, i, data);
    }
    assert_int_equal(stats_of(&g).reads + stats_of(&g).canceled, 30);
    rig_release(&g);
}

static void wait_obeys_its_limits(void **state) {
    (void)state;
    struct rig g;
    struct sl_fake_config c = plain;
    c.drive[0].latency_ns = 50000000;
    open_fake(&g, 10, &c);
    add_data(&g);
    assert_int_equal(sl_reader_wait(g.reader, 1, -1), 0); /* nothing to wait for */
    struct sl_rng rng = {.state = 9};
    for (uint32_t i = 0; i < 10; i++)
        rig_scatter(&g, i, 0, DATA_BYTES, &rng);
    rig_submit(&g, 0, 10);
    uint64_t t = vclock.now_ns;
    assert_int_equal(sl_reader_wait(g.reader, 1, 10000000), 0);
    assert_int_equal(vclock.now_ns, t + 10000000);
    assert_int_equal(sl_reader_wait(g.reader, 1, 0), 0);
    assert_int_equal(vclock.now_ns, t + 10000000);
    assert_int_equal(sl_reader_wait(g.reader, 2, 1000000000), 2);
    assert_int_equal(sl_reader_poll(g.reader), 0);
    vclock.now_ns += 1000000000; /* computing meanwhile: they are there at the next look */
    assert_int_equal(sl_reader_poll(g.reader), 8);
    struct sl_reader_stats s = stats_of(&g);
    assert_true(s.busy_ns > 50000000 && s.wait_ns < s.busy_ns);
    rig_release(&g);
}

/* The disk is never idle while work waits: many reads through a shallow queue take what the drive's
 * bandwidth says, and one by one what its latency says. */
static void time_is_the_models(void **state) {
    (void)state;
    for (uint32_t deep = 0; deep < 2; deep++) {
        struct rig g;
        struct sl_fake_config c = plain;
        c.drive[0] = (struct sl_fake_drive){
            .bytes_per_s = 2000000000, .latency_ns = 200000, .drive_depth = 32};
        open_fake(&g, 60, &c);
        add_data(&g);
        struct sl_rng rng = {.state = 5};
        for (uint32_t i = 0; i < 60; i++)
            rig_scatter(&g, i, 0, DATA_BYTES, &rng);
        uint64_t t = vclock.now_ns;
        if (deep) {
            rig_submit(&g, 0, 60);
            rig_wait_all(&g);
        } else {
            for (uint32_t i = 0; i < 60; i++) {
                rig_submit(&g, i, 1);
                rig_wait_all(&g);
            }
        }
        struct sl_reader_stats s = stats_of(&g);
        double ns = (double)(vclock.now_ns - t);
        double least = (double)s.read_bytes / 2 + (deep ? 1 : 60) * 200000.0;
        assert_true(ns >= least - 1000 && ns <= least * 1.005);
        if (deep) { /* under load four experts or more per system call */
            assert_true((double)s.syscalls / (double)s.reads <= 0.25);
        }
        rig_release(&g);
    }
}

static void several_files(void **state) {
    (void)state;
    struct rig g;
    open_fake(&g, 20, &plain);
    uint8_t *other = make_data(4 * MIB, 77);
    uint32_t f;
    add_data(&g);
    assert_ok(sl_fake_add_file(g.reader, SL_READER_FILES, other, 4 * MIB, &f, &test_err));
    assert_int_equal(f, 1);
    assert_int_equal(sl_reader_file_bytes(g.reader, 1), 4 * MIB);
    assert_int_equal(sl_reader_file_bytes(g.reader, 2), 0);
    struct sl_rng rng = {.state = 5};
    for (uint32_t i = 0; i < 20; i++)
        rig_scatter(&g, i, i % 2, i % 2 ? 4 * MIB : DATA_BYTES, &rng);
    rig_submit(&g, 0, 20);
    rig_wait_all(&g);
    for (uint32_t i = 0; i < 20; i++)
        rig_check_ok(&g, i, 1, i % 2 ? other : data);
    rig_release(&g);
    free(other);
}

/* Two drives of different speed: both are full, and shared in proportion. */
static void copies_share_by_speed(void **state) {
    (void)state;
    const uint64_t fast = 3000000000, slow[] = {3000000000, 1000000000, 100000000};
    for (uint32_t k = 0; k < 3; k++) {
        struct rig g;
        struct sl_fake_config c = plain;
        c.drive[0] = (struct sl_fake_drive){.bytes_per_s = slow[k], .latency_ns = 200000};
        c.drive[1] = (struct sl_fake_drive){.bytes_per_s = fast, .latency_ns = 100000};
        open_fake(&g, N_TEST_READS, &c);
        add_data(&g);
        assert_ok(sl_fake_add_file(g.reader, 0, data, DATA_BYTES, NULL, &test_err));
        struct sl_rng rng = {.state = 5};
        uint64_t t = 0, before[2] = {0};
        for (uint32_t turn = 0; turn < 8; turn++) {
            for (uint32_t i = 0; i < N_TEST_READS; i++)
                rig_scatter(&g, i, 0, DATA_BYTES, &rng);
            memset(g.n_done, 0, sizeof g.n_done);
            g.n_order = 0;
            if (turn == 1) { /* the first turn measures */
                t = vclock.now_ns;
                for (uint32_t j = 0; j < 2; j++)
                    before[j] = sl_reader_copy_bytes(g.reader, 0, j);
            }
            rig_submit(&g, 0, N_TEST_READS);
            rig_wait_all(&g);
            rig_check_ok(&g, 0, N_TEST_READS, data);
        }
        double part[2];
        for (uint32_t j = 0; j < 2; j++)
            part[j] = (double)(sl_reader_copy_bytes(g.reader, 0, j) - before[j]);
        double best = (part[0] + part[1]) * 1e9 / (double)(fast + slow[k]);
        double ns = (double)(vclock.now_ns - t), share = part[1] / part[0];
        double want = (double)fast / (double)slow[k];
        /* Each of the seven turns may end with one request on the slow drive. */
        double most = best * 1.05 + 7 * (768 << 10) * 1e9 / (double)slow[k];
        /* Where the slow one has next to nothing to give, it may give less than that. */
        if (ns > most || share < want * 0.8 || share > want * (k < 2 ? 1.25 : 4))
            fail_msg("took %.2f of the best time, share %.2f for %.2f", ns / best, share, want);
        rig_release(&g);
    }
}

static int setup(void **state) {
    (void)state;
    data = make_data(DATA_BYTES, 42);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(data);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_arrive_whole),
        cmocka_unit_test(nothing_beyond_the_places),
        cmocka_unit_test(malformed_reads_are_refused),
        cmocka_unit_test(urgent_reads_go_first),
        cmocka_unit_test(demand_waits_for_the_backgrounds_share_only),
        cmocka_unit_test(predicted_reads_are_few),
        cmocka_unit_test(cancel_ends_once_and_after_the_disk),
        cmocka_unit_test(close_ends_everything),
        cmocka_unit_test(done_may_call_the_reader),
        cmocka_unit_test(wait_obeys_its_limits),
        cmocka_unit_test(time_is_the_models),
        cmocka_unit_test(several_files),
        cmocka_unit_test(copies_share_by_speed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
