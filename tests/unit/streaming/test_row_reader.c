/* Rows of tables: the bytes of the file in every place, whatever the cache holds, whatever the disk
 * does, and one clear end for a row that cannot be read. */
#include "tests/unit/streaming/fixture.h"

#include "streaming/row_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#define DATA_BYTES ((size_t)8 << 20)
#define MAX_WANTS  300u

static uint8_t *data;
static struct sl_fake_clock vclock;

/* Two tables with rows of odd sizes: the first with something behind each row, the second up to the
 * file's last byte. */
#define ROWS_0   400u
#define BYTES_0  7350u
#define STRIDE_0 8203u
#define ROWS_1   1000u
#define BYTES_1  1091u

struct rows {
    struct sl_row_reader *r;
    struct sl_reader *reader; /* it belongs to r */
    uint32_t depth;
};

static struct sl_row_reader_config config_of(uint32_t depth, uint64_t cache_bytes) {
    return (struct sl_row_reader_config){
        .table = {{.offset_bytes = 4096 * 5 + 37,
                   .n_rows = ROWS_0,
                   .row_bytes = BYTES_0,
                   .stride_bytes = STRIDE_0},
                  {.offset_bytes = DATA_BYTES - (uint64_t)ROWS_1 * BYTES_1,
                   .n_rows = ROWS_1,
                   .row_bytes = BYTES_1,
                   .stride_bytes = BYTES_1}},
        .n_tables = 2,
        .cache_bytes = cache_bytes,
        .max_wants = MAX_WANTS,
        .depth = depth,
    };
}

static void open_rows(struct rows *t, uint32_t depth, uint64_t cache_bytes, uint64_t reorder) {
    struct sl_row_reader_config c = config_of(depth, cache_bytes);
    struct sl_fake_config fake = {
        .clock = &vclock,
        .drive[0] = {.bytes_per_s = 1000000000, .latency_ns = 80000, .drive_depth = 16},
        .reorder_seed = reorder,
        .reorder_ns = 400000};
    vclock.now_ns = 1;
    *t = (struct rows){.depth = depth};
    assert_ok(sl_row_reader_create(&c, &t->r, &test_err));
    sl_row_reader_queue(&c, &fake.reader);
    fake.reader.slab = sl_row_reader_slab(t->r);
    assert_ok(sl_fake_open(&fake, &t->reader, &test_err));
    assert_ok(sl_fake_add_file(t->reader, SL_READER_FILES, data, DATA_BYTES, NULL, &test_err));
    assert_ok(sl_row_reader_start(t->r, t->reader, &test_err));
}

static void open_real(struct rows *t, enum sl_io_kind kind, const char *path) {
    struct sl_row_reader_config c = config_of(0, 50000);
    struct sl_reader_config rc = {.kind = kind};
    uint32_t file;
    *t = (struct rows){.depth = 0};
    assert_ok(sl_row_reader_create(&c, &t->r, &test_err));
    sl_row_reader_queue(&c, &rc);
    rc.slab = sl_row_reader_slab(t->r);
    assert_ok(sl_reader_open(&rc, &t->reader, &test_err));
    assert_ok(sl_reader_add_file(t->reader, path, &file, &test_err));
    assert_ok(sl_row_reader_start(t->r, t->reader, &test_err));
}

static const uint8_t *row_at(const struct sl_row_want *w) {
    struct sl_row_reader_config c = config_of(0, 0);
    return data + c.table[w->table].offset_bytes + w->row * c.table[w->table].stride_bytes;
}

static uint32_t bytes_of(const struct sl_row_want *w) {
    return w->table ? BYTES_1 : BYTES_0;
}

static uint8_t places[MAX_WANTS][BYTES_0 + 8];
static uint8_t untouched[sizeof places]; /* all 0xee; whole, since TSan makes single bytes dear */

static void want(struct sl_row_want *w, uint32_t i, uint32_t table, uint64_t row) {
    memset(places[i], 0xee, sizeof places[i]);
    *w = (struct sl_row_want){.to = places[i], .table = table, .row = row, .status = SL_AGAIN};
}

/* Half of them among few rows, so that many are wanted twice or have been cached. */
static void want_some(struct sl_row_want *w, uint32_t n, struct sl_rng *rng) {
    for (uint32_t i = 0; i < n; i++) {
        uint64_t x = sl_rng_u64(rng);
        uint32_t table = x & 1, rows = table ? ROWS_1 : ROWS_0;
        want(&w[i], i, table, (x >> 8) % (x & 2 ? 20 : rows));
    }
    if (n > 2) { /* the ends of both tables */
        want(&w[0], 0, 1, ROWS_1 - 1);
        want(&w[1], 1, 0, 0);
    }
}

static void check_row(const struct sl_row_want *w, uint32_t i) {
    assert_int_equal(w->status, SL_OK);
    assert_memory_equal(w->to, row_at(w), bytes_of(w));
    size_t n = bytes_of(w);
    assert_int_equal(memcmp(w->to + n, untouched, sizeof places[i] - n), 0);
}

static void get(struct rows *t, struct sl_row_want *w, uint32_t n) {
    uint32_t n_failed = 99;
    assert_ok(sl_row_reader_ask(t->r, w, n, &test_err));
    assert_ok(sl_row_reader_wait(t->r, NULL, &n_failed, &test_err));
    assert_int_equal(n_failed, 0);
    for (uint32_t i = 0; i < n; i++)
        check_row(&w[i], i);
}

static struct sl_row_reader_stats stats_of(const struct rows *t) {
    struct sl_row_reader_stats s;
    sl_row_reader_get_stats(t->r, &s);
    return s;
}

static void rows_arrive_whole(void **state) {
    (void)state;
    const uint32_t depths[] = {1, 3, 64, 512};
    const uint64_t caches[] = {0, 8441, 100000, (uint64_t)1 << 30};
    for (size_t d = 0; d < 4; d++)
        for (size_t k = 0; k < 4; k++) {
            struct rows t;
            struct sl_row_want w[MAX_WANTS];
            struct sl_rng rng = {.state = d * 4 + k};
            open_rows(&t, depths[d], caches[k], k);
            for (uint32_t i = 0; i < 12; i++) {
                uint32_t n = i ? (uint32_t)(sl_rng_u64(&rng) % (MAX_WANTS + 1)) : MAX_WANTS;
                want_some(w, n, &rng);
                get(&t, w, n);
            }
            struct sl_row_reader_stats s = stats_of(&t);
            struct sl_reader_stats disk;
            sl_reader_get_stats(t.reader, &disk);
            assert_int_equal(s.wants, s.hits + s.reads);
            assert_int_equal(disk.reads, s.reads);
            assert_int_equal(disk.read_bytes, s.disk_bytes);
            assert_true(disk.max_flying <= depths[d]);
            if (depths[d] == 64)
                assert_int_equal(disk.max_flying, 64); /* the queue is filled */
            if (k == 3)                                /* every row once */
                assert_true(s.reads <= ROWS_0 + ROWS_1);
            sl_row_reader_destroy(&t.r);
        }
}

static void a_row_is_read_once_an_ask(void **state) {
    (void)state;
    struct rows t;
    struct sl_row_want w[MAX_WANTS];
    open_rows(&t, 4, 0, 0);
    for (uint32_t i = 0; i < MAX_WANTS; i++)
        want(&w[i], i, i & 1, i / 2 % 3);
    get(&t, w, MAX_WANTS);
    assert_int_equal(stats_of(&t).reads, 6);
    assert_int_equal(stats_of(&t).hits, MAX_WANTS - 6);
    get(&t, w, 2); /* nothing was kept */
    assert_int_equal(stats_of(&t).reads, 8);
    sl_row_reader_destroy(&t.r);
}

static void cached_rows_are_not_read(void **state) {
    (void)state;
    struct rows t;
    struct sl_row_want w[8];
    open_rows(&t, 8, 4 * (BYTES_0 + BYTES_1), 0); /* four of each table */
    for (uint32_t again = 0; again < 3; again++) {
        for (uint32_t i = 0; i < 8; i++)
            want(&w[i], i, i & 1, 100 + i / 2);
        get(&t, w, 8);
        assert_int_equal(stats_of(&t).reads, 8);
    }
    sl_row_reader_forget(t.r);
    for (uint32_t i = 0; i < 8; i++)
        want(&w[i], i, i & 1, 100 + i / 2);
    get(&t, w, 8);
    assert_int_equal(stats_of(&t).reads, 16);
    sl_row_reader_destroy(&t.r);
}

static void short_reads_go_on(void **state) {
    (void)state;
    struct rows t;
    struct sl_row_want w[MAX_WANTS];
    struct sl_rng rng = {.state = 5};
    struct sl_fake_fault f = {
        .last_byte = UINT64_MAX, .times = 50, .cut_short = true, .short_bytes = 4096};
    open_rows(&t, 16, 100000, 3);
    sl_fake_set_faults(t.reader, &f, 1);
    want_some(w, MAX_WANTS, &rng);
    get(&t, w, MAX_WANTS);
    sl_row_reader_destroy(&t.r);
}

/* Rows of a stretch that cannot be read fail, all who want them, and no others; nothing of them is
 * kept. */
static void unreadable_rows_fail_alone(void **state) {
    (void)state;
    const bool shorts[] = {false, true};
    for (size_t k = 0; k < 2; k++) {
        struct rows t;
        struct sl_row_want w[MAX_WANTS];
        uint64_t at = 4096 * 5 + 37 + 7 * (uint64_t)STRIDE_0;
        struct sl_fake_fault f = {.first_byte = at + 4096,
                                  .last_byte = at + 4096,
                                  .error = shorts[k] ? 0 : EIO,
                                  .cut_short = shorts[k]};
        open_rows(&t, 8, (uint64_t)1 << 20, k);
        sl_fake_set_faults(t.reader, &f, 1);
        for (uint32_t i = 0; i < MAX_WANTS; i++)
            want(&w[i], i, 0, i % 30 + (i % 30 == 6 || i % 30 == 8 ? 30 : 0)); /* no neighbours */
        uint32_t n_failed = 0;
        struct sl_err err = {{0}};
        assert_ok(sl_row_reader_ask(t.r, w, MAX_WANTS, &test_err));
        assert_int_equal(sl_row_reader_wait(t.r, NULL, &n_failed, &err), SL_OK);
        assert_int_equal(n_failed, MAX_WANTS / 30);
        assert_non_null(strstr(err.text, "cannot read"));
        for (uint32_t i = 0; i < MAX_WANTS; i++) {
            if (w[i].row != 7) {
                check_row(&w[i], i);
                continue;
            }
            assert_int_equal(w[i].status, SL_ERR_IO);
            assert_int_equal(w[i].to[0], 0xee);
        }
        assert_int_equal(stats_of(&t).failed, 1);
        sl_fake_set_faults(t.reader, NULL, 0);
        want(&w[0], 0, 0, 7);
        get(&t, w, 1); /* it is tried again */
        sl_row_reader_destroy(&t.r);
    }
}

static uint32_t looks;
static bool after_some_looks(void *ctx) {
    return ++looks > *(uint32_t *)ctx;
}

/* Given up at any point, the rows that are asked for next are right, and nothing is written to the
 * places of the last ones. */
static void canceled_asks_leave_nothing(void **state) {
    (void)state;
    for (uint32_t most = 0; most < 6; most++) {
        struct rows t;
        struct sl_row_want w[MAX_WANTS];
        struct sl_rng rng = {.state = most};
        uint32_t n_failed;
        open_rows(&t, 8, 100000, most);
        for (uint32_t again = 0; again < 20; again++) {
            want_some(w, MAX_WANTS, &rng);
            looks = 0;
            assert_ok(sl_row_reader_ask(t.r, w, MAX_WANTS, &test_err));
            enum sl_status status = sl_row_reader_wait(
                t.r, &(struct sl_row_abort){after_some_looks, &most}, &n_failed, &test_err);
            assert_int_equal(status, SL_ERR_CANCELED);
            memset(places, 0xee, sizeof places);
            struct sl_row_want other[4];
            static uint8_t elsewhere[4][BYTES_0];
            for (uint32_t i = 0; i < 4; i++)
                other[i] = (struct sl_row_want){
                    .to = elsewhere[i], .table = i & 1, .row = sl_rng_u64(&rng) % ROWS_0};
            assert_ok(sl_row_reader_ask(t.r, other, 4, &test_err));
            assert_ok(sl_row_reader_wait(t.r, NULL, &n_failed, &test_err));
            for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(other[i].status, SL_OK);
                assert_memory_equal(elsewhere[i], row_at(&other[i]), bytes_of(&other[i]));
            }
            assert_int_equal(memcmp(places, untouched, sizeof places), 0);
        }
        sl_row_reader_destroy(&t.r);
    }
}

/* The next ask ends one that nobody waits for. */
static void an_ask_may_be_left(void **state) {
    (void)state;
    struct rows t;
    static struct sl_row_want w[MAX_WANTS], other[MAX_WANTS];
    struct sl_rng rng = {.state = 9};
    open_rows(&t, 8, 100000, 2);
    for (uint32_t i = 0; i < 10; i++) {
        want_some(other, MAX_WANTS, &rng);
        assert_ok(sl_row_reader_ask(t.r, other, MAX_WANTS, &test_err));
        want_some(w, MAX_WANTS, &rng);
        get(&t, w, MAX_WANTS);
    }
    sl_row_reader_destroy(&t.r);
}

/* With an ask under way, too. */
static void destroy_ends_what_is_asked(void **state) {
    (void)state;
    struct rows t;
    struct sl_row_want w[MAX_WANTS];
    struct sl_rng rng = {.state = 77};
    open_rows(&t, 8, 100000, 1);
    want_some(w, MAX_WANTS, &rng);
    assert_ok(sl_row_reader_ask(t.r, w, MAX_WANTS, &test_err));
    sl_row_reader_destroy(&t.r);
    assert_null(t.r);
}

/* A canceled step leaves reads under way, and the thread that reads may end before them: it waits,
 * so that any thread may close the ring, which takes no calls of others. */
static void *ask_cancel_and_quit(void *rows) {
    struct rows *t = rows;
    static struct sl_row_want w[MAX_WANTS];
    struct sl_rng rng = {.state = 5};
    struct sl_reader_stats stats;
    uint32_t n_failed, most = 0;
    want_some(w, MAX_WANTS, &rng);
    looks = 0;
    assert_ok(sl_row_reader_ask(t->r, w, MAX_WANTS, &test_err));
    assert_int_equal(sl_row_reader_wait(t->r, &(struct sl_row_abort){after_some_looks, &most},
                                        &n_failed, &test_err),
                     SL_ERR_CANCELED);
    sl_row_reader_quit(t->r);
    sl_reader_get_stats(t->reader, &stats);
    assert_int_equal(stats.waiting_reads, 0);
    return NULL;
}

static const char *real_path;
static void *open_and_quit(void *rows) {
    open_real(rows, SL_IO_AUTO, real_path);
    return ask_cancel_and_quit(rows);
}

static void quit_waits_for_what_was_left(void **state) {
    (void)state;
    struct rows t;
    open_rows(&t, 8, 100000, 1);
    (void)ask_cancel_and_quit(&t);
    sl_row_reader_destroy(&t.r);
    for (uint32_t i = 0; i < 20; i++) {
        pthread_t thread;
        char path[] = "rows-XXXXXX";
        int fd = mkstemp(path);
        assert_int_equal(write(fd, data, DATA_BYTES), DATA_BYTES);
        real_path = path;
        assert_int_equal(pthread_create(&thread, NULL, open_and_quit, &t), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        sl_row_reader_destroy(&t.r);
        close(fd);
        unlink(path);
    }
}

static void what_is_not_there_is_refused(void **state) {
    (void)state;
    struct rows t;
    struct sl_row_want w[2];
    uint32_t n_failed = 9;
    open_rows(&t, 8, 0, 0);
    want(&w[0], 0, 0, 3);
    want(&w[1], 1, 0, ROWS_0);
    assert_int_equal(sl_row_reader_ask(t.r, w, 2, &test_err), SL_ERR_INVALID);
    want(&w[1], 1, 2, 0);
    assert_int_equal(sl_row_reader_ask(t.r, w, 2, &test_err), SL_ERR_INVALID);
    assert_ok(sl_row_reader_wait(t.r, NULL, &n_failed, &test_err));
    assert_int_equal(n_failed, 0);
    get(&t, w, 1);
    sl_row_reader_destroy(&t.r);

    struct sl_row_reader_config c = config_of(8, 0);
    c.table[1].n_rows++;
    struct sl_fake_config fake = {.clock = &vclock};
    struct sl_reader *reader;
    assert_ok(sl_row_reader_create(&c, &t.r, &test_err));
    assert_ok(sl_fake_open(&fake, &reader, &test_err));
    assert_ok(sl_fake_add_file(reader, SL_READER_FILES, data, DATA_BYTES, NULL, &test_err));
    assert_int_equal(sl_row_reader_start(t.r, reader, &test_err), SL_ERR_CORRUPT);
    sl_row_reader_destroy(&t.r);
    sl_reader_close(&reader);
    /* With something between the rows, of which there is none behind the last. */
    c.table[1].n_rows--;
    c.table[1].stride_bytes = BYTES_1 + 1;
    for (uint32_t fewer = 0; fewer < 3; fewer++) {
        c.table[1].offset_bytes = DATA_BYTES - (ROWS_1 - 1) * (BYTES_1 + 1) - BYTES_1 + 1 - fewer;
        assert_ok(sl_row_reader_create(&c, &t.r, &test_err));
        assert_ok(sl_fake_open(&fake, &reader, &test_err));
        assert_ok(sl_fake_add_file(reader, SL_READER_FILES, data, DATA_BYTES, NULL, &test_err));
        assert_int_equal(sl_row_reader_start(t.r, reader, &test_err),
                         fewer ? SL_OK : SL_ERR_CORRUPT);
        sl_row_reader_destroy(&t.r);
        if (!fewer)
            sl_reader_close(&reader);
    }
    c.table[1].n_rows = 1; /* in a file that has less than one */
    c.table[1].offset_bytes = DATA_BYTES - BYTES_1 + 1;
    assert_ok(sl_row_reader_create(&c, &t.r, &test_err));
    assert_ok(sl_fake_open(&fake, &reader, &test_err));
    assert_ok(sl_fake_add_file(reader, SL_READER_FILES, data, DATA_BYTES, NULL, &test_err));
    assert_int_equal(sl_row_reader_start(t.r, reader, &test_err), SL_ERR_CORRUPT);
    sl_row_reader_destroy(&t.r);
    sl_reader_close(&reader);
    c.table[1].stride_bytes = BYTES_1 - 1;
    assert_int_equal(sl_row_reader_create(&c, &t.r, &test_err), SL_ERR_INVALID);
    c.table[1].row_bytes = SL_ROW_BYTES + 1;
    assert_int_equal(sl_row_reader_create(&c, &t.r, &test_err), SL_ERR_INVALID);
    c.table[1].row_bytes = 0;
    assert_int_equal(sl_row_reader_create(&c, &t.r, &test_err), SL_ERR_INVALID);
    c.n_tables = 0;
    assert_int_equal(sl_row_reader_create(&c, &t.r, &test_err), SL_ERR_INVALID);
}

/* The real engines on a real file, which is then cut: rows behind the cut fail, with what to do. */
static void from_a_file_that_is_cut(void **state) {
    (void)state;
    const enum sl_io_kind kinds[] = {SL_IO_AUTO, SL_IO_PREAD};
    for (size_t k = 0; k < 2; k++) {
        char path[] = "rows-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, data, DATA_BYTES), DATA_BYTES);
        struct sl_row_reader_config c = config_of(0, 50000);
        struct rows t;
        open_real(&t, kinds[k], path);
        struct sl_row_want w[MAX_WANTS];
        struct sl_rng rng = {.state = k};
        for (uint32_t i = 0; i < 20; i++) {
            want_some(w, MAX_WANTS, &rng);
            get(&t, w, MAX_WANTS);
        }
        assert_int_equal(ftruncate(fd, (off_t)c.table[1].offset_bytes), 0);
        sl_row_reader_forget(t.r);
        for (uint32_t i = 0; i < 10; i++)
            want(&w[i], i, i & 1, i * 40 + 30);
        uint32_t n_failed = 0;
        struct sl_err err = {{0}};
        assert_ok(sl_row_reader_ask(t.r, w, 10, &test_err));
        assert_ok(sl_row_reader_wait(t.r, NULL, &n_failed, &err));
        assert_int_equal(n_failed, 5);
        assert_non_null(strstr(err.text, "was cut"));
        for (uint32_t i = 0; i < 10; i++) {
            assert_int_equal(w[i].status, i & 1 ? SL_ERR_IO : SL_OK);
            if (!(i & 1))
                check_row(&w[i], i);
        }
        sl_row_reader_destroy(&t.r);
        close(fd);
        unlink(path);
    }
}

int main(void) {
    memset(untouched, 0xee, sizeof untouched);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_arrive_whole),
        cmocka_unit_test(a_row_is_read_once_an_ask),
        cmocka_unit_test(cached_rows_are_not_read),
        cmocka_unit_test(short_reads_go_on),
        cmocka_unit_test(unreadable_rows_fail_alone),
        cmocka_unit_test(canceled_asks_leave_nothing),
        cmocka_unit_test(an_ask_may_be_left),
        cmocka_unit_test(destroy_ends_what_is_asked),
        cmocka_unit_test(quit_waits_for_what_was_left),
        cmocka_unit_test(what_is_not_there_is_refused),
        cmocka_unit_test(from_a_file_that_is_cut),
    };
    data = make_data(DATA_BYTES, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(data);
    return failed;
}
