/* What goes wrong below the reader: scripted faults on the fake disk, and a loop device that really
 * errs. Each read ends exactly once, with the right bytes or a text that says what and where. */
#include "tests/unit/streaming/fixture.h"

#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define KIB        (1u << 10)
#define DATA_BYTES ((size_t)6 << 20)

static const uint32_t sizes[3] = {300 * KIB + 7, 500 * KIB, 40001};
static uint8_t *data;
static struct sl_fake_clock vclock;

static void open_fake(struct rig *g, uint32_t n, uint32_t copies, struct sl_rng *rng) {
    rig_init(g, n, sizes);
    struct sl_fake_config c = {.clock = &vclock, .reader = {.request_bytes = 128 * KIB}};
    for (uint32_t i = 0; i < SL_READER_COPIES; i++)
        c.drive[i] = (struct sl_fake_drive){.bytes_per_s = 1000000000, .latency_ns = 50000};
    vclock.now_ns = 1;
    assert_ok(sl_fake_open(&c, &g->reader, &test_err));
    assert_ok(sl_fake_add_file(g->reader, SL_READER_FILES, data, DATA_BYTES, NULL, &test_err));
    for (uint32_t i = 1; i < copies; i++)
        assert_ok(sl_fake_add_file(g->reader, 0, data, DATA_BYTES, NULL, &test_err));
    for (uint32_t i = 0; i < n; i++)
        rig_scatter(g, i, 0, DATA_BYTES, rng);
}

static struct sl_reader_stats stats_of(const struct rig *g) {
    struct sl_reader_stats s;
    sl_reader_get_stats(g->reader, &s);
    return s;
}

static bool touches(const struct sl_read *read, uint64_t first, uint64_t last) {
    for (uint32_t e = 0; e < read->n_extents; e++) {
        uint64_t a = read->extent[e].offset_bytes / 4096 * 4096;
        uint64_t b = read->extent[e].offset_bytes + read->extent[e].size_bytes;
        if (a <= last && (b + 4095) / 4096 * 4096 > first)
            return true;
    }
    return false;
}

static void short_reads_go_on(void **state) {
    (void)state;
    const uint32_t shorts[] = {0, 1, 4095, 4096, 5000, 65536, 70000};
    for (size_t k = 0; k < sizeof shorts / sizeof *shorts; k++) {
        struct rig g;
        struct sl_rng rng = {.state = k};
        open_fake(&g, 12, 1, &rng);
        struct sl_fake_fault f = {.last_byte = UINT64_MAX,
                                  .times = shorts[k] < 4096 ? 2 : 40,
                                  .cut_short = true,
                                  .short_bytes = shorts[k]};
        sl_fake_set_faults(g.reader, &f, 1);
        rig_submit(&g, 0, 12);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 12, data);
        struct sl_reader_stats s = stats_of(&g);
        assert_true(s.short_reads >= 2);
        assert_true(s.retries == s.short_reads && s.failed == 0);
        rig_release(&g);
    }
}

/* Progress of one block a time is still progress; none at all is not. */
static void endless_short_reads_end(void **state) {
    (void)state;
    for (uint32_t bytes = 4000; bytes <= 4096; bytes += 96) {
        struct rig g;
        struct sl_rng rng = {.state = 5};
        open_fake(&g, 2, 1, &rng);
        struct sl_fake_fault f = {.last_byte = UINT64_MAX, .cut_short = true, .short_bytes = bytes};
        sl_fake_set_faults(g.reader, &f, 1);
        rig_submit(&g, 0, 2);
        rig_wait_all(&g);
        if (bytes == 4096) {
            rig_check_ok(&g, 0, 2, data);
        } else {
            assert_int_equal(g.status[0], SL_ERR_IO);
            assert_int_equal(g.status[1], SL_ERR_IO);
            assert_true(stats_of(&g).requests < 100);
        }
        rig_release(&g);
    }
}

static void passing_errors_are_retried(void **state) {
    (void)state;
    const struct {
        int error;
        uint32_t times;
    } f[] = {{EIO, 1}, {EIO, 2}, {EINTR, 40}, {EAGAIN, 40}, {ENODATA, 2}};
    for (size_t k = 0; k < sizeof f / sizeof *f; k++) {
        struct rig g;
        struct sl_rng rng = {.state = 3 + k};
        open_fake(&g, 10, 1, &rng);
        struct sl_fake_fault fault = {
            .last_byte = UINT64_MAX, .error = f[k].error, .times = f[k].times};
        sl_fake_set_faults(g.reader, &fault, 1);
        rig_submit(&g, 0, 10);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 10, data);
        assert_int_equal(stats_of(&g).retries, f[k].times);
        assert_int_equal(stats_of(&g).errors, f[k].times);
        rig_release(&g);
    }
}

/* A bad place on the disk fails the experts that need it, and no other. */
static void a_bad_place_fails_its_own(void **state) {
    (void)state;
    const int errors[] = {EIO, EAGAIN, EINTR};
    for (size_t k = 0; k < 3; k++) {
        struct rig g;
        struct sl_rng rng = {.state = 5};
        open_fake(&g, 40, 1, &rng);
        struct sl_fake_fault f = {.first_byte = 3000000, .last_byte = 3000100, .error = errors[k]};
        sl_fake_set_faults(g.reader, &f, 1);
        rig_submit(&g, 0, 40);
        rig_wait_all(&g);
        uint32_t bad = 0;
        for (uint32_t i = 0; i < 40; i++) {
            assert_int_equal(g.n_done[i], 1);
            if (g.status[i] == SL_OK) {
                rig_check_bytes(&g, i, data);
                continue;
            }
            bad++;
            assert_int_equal(g.status[i], SL_ERR_IO);
            /* A request that covers the place serves the extent around it. */
            assert_true(touches(&g.read[i], 3000000 - 192 * KIB, 3000100 + 192 * KIB));
            assert_non_null(strstr(g.err[i].text, "fake0: cannot read "));
            assert_non_null(strstr(g.err[i].text, " at "));
        }
        for (uint32_t i = 0; i < 40; i++)
            assert_true(g.status[i] != SL_OK || !touches(&g.read[i], 3000000, 3000100));
        assert_true(bad > 0 && bad < 30);
        assert_int_equal(stats_of(&g).failed, bad);
        /* The disk is well again: the same reads work. */
        sl_fake_set_faults(g.reader, NULL, 0);
        memset(g.n_done, 0, sizeof g.n_done);
        rig_submit(&g, 0, 40);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 40, data);
        rig_release(&g);
    }
}

static void a_slow_place_delays_its_own(void **state) {
    (void)state;
    struct rig g;
    struct sl_rng rng = {.state = 8};
    open_fake(&g, 20, 1, &rng);
    g.read[4].extent[1].offset_bytes = 4096;
    struct sl_fake_fault f = {
        .first_byte = 4096, .last_byte = 4096, .delay_ns = 2000000000, .times = 1};
    sl_fake_set_faults(g.reader, &f, 1);
    rig_submit(&g, 0, 20);
    assert_int_equal(sl_reader_wait(g.reader, 20, 1000000000), 19);
    /* Canceled while the disk hangs: not before it lets go of the slot. */
    uint32_t slow = 0;
    while (g.n_done[slow])
        slow++;
    sl_reader_cancel(g.reader, &g.read[slow]);
    assert_int_equal(sl_reader_poll(g.reader), 0);
    rig_wait_all(&g);
    assert_int_equal(g.status[slow], SL_ERR_CANCELED);
    assert_true(vclock.now_ns > 2000000000);
    rig_release(&g);
}

static void a_failing_copy_is_dropped(void **state) {
    (void)state;
    for (uint32_t bad = 0; bad < 2; bad++) {
        struct rig g;
        struct sl_rng rng = {.state = 8};
        open_fake(&g, 40, 2, &rng);
        struct sl_fake_fault f = {.copy = bad, .last_byte = UINT64_MAX, .error = EIO};
        sl_fake_set_faults(g.reader, &f, 1);
        rig_submit(&g, 0, 40);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 40, data);
        struct sl_reader_stats s = stats_of(&g);
        assert_int_equal(s.dropped_copies, 1);
        assert_int_equal(sl_reader_copy_bytes(g.reader, 0, bad), 0);
        /* From then on nothing goes there. */
        uint64_t errors = s.errors;
        memset(g.n_done, 0, sizeof g.n_done);
        rig_submit(&g, 0, 40);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 40, data);
        assert_int_equal(stats_of(&g).errors, errors);
        rig_release(&g);
    }
    /* One bad place on each of two copies, not the same: no read fails. */
    struct rig g;
    struct sl_rng rng = {.state = 8};
    open_fake(&g, 40, 2, &rng);
    struct sl_fake_fault f[2] = {
        {.copy = 0, .first_byte = 1000000, .last_byte = 1000000, .error = EIO, .times = 2},
        {.copy = 1, .first_byte = 2000000, .last_byte = 2000000, .cut_short = true, .times = 2}};
    sl_fake_set_faults(g.reader, f, 2);
    rig_submit(&g, 0, 40);
    rig_wait_all(&g);
    rig_check_ok(&g, 0, 40, data);
    assert_int_equal(stats_of(&g).dropped_copies, 0);
    rig_release(&g);
}

/* Everything at once, with cancels and priorities thrown in, by seeds: each read ends exactly once;
 * SL_OK means the right bytes. */
static void storms(void **state) {
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct rig g;
        struct sl_rng rng = {.state = seed};
        rig_init(&g, 48, sizes);
        struct sl_fake_config c = {
            .clock = &vclock,
            .reorder_seed = seed,
            .reorder_ns = 3000000,
            .reader = {.depth = 1 + sl_rng_below(&rng, 40),
                       .background_depth = 1,
                       .request_bytes = 64 * KIB + 4096 * sl_rng_below(&rng, 64)}};
        uint32_t copies = 1 + sl_rng_below(&rng, 3);
        for (uint32_t i = 0; i < copies; i++)
            c.drive[i] = (struct sl_fake_drive){
                .bytes_per_s = 1000000000 + i * 500000000, .latency_ns = 80000, .drive_depth = 16};
        assert_ok(sl_fake_open(&c, &g.reader, &test_err));
        for (uint32_t i = 0; i < copies; i++)
            assert_ok(sl_fake_add_file(g.reader, i ? 0 : SL_READER_FILES, data, DATA_BYTES, NULL,
                                       &test_err));
        struct sl_fake_fault f[12];
        for (uint32_t i = 0; i < 12; i++) {
            uint64_t at = sl_rng_u64(&rng) % DATA_BYTES;
            f[i] = (struct sl_fake_fault){.copy = sl_rng_below(&rng, copies),
                                          .first_byte = at,
                                          .last_byte = at + sl_rng_below(&rng, 100000),
                                          .times = sl_rng_below(&rng, 6)};
            switch (sl_rng_below(&rng, 4)) {
            case 0:
                f[i].error = EIO;
                break;
            case 1:
                f[i].error = EAGAIN;
                break;
            case 2:
                f[i].cut_short = true;
                f[i].short_bytes = sl_rng_below(&rng, 100000);
                break;
            default:
                f[i].delay_ns = 20000000;
            }
        }
        sl_fake_set_faults(g.reader, f, 12);
        for (uint32_t i = 0; i < 48;) {
            uint32_t n = 1 + sl_rng_below(&rng, 8);
            if (n > 48 - i)
                n = 48 - i;
            for (uint32_t j = i; j < i + n; j++) {
                rig_scatter(&g, j, 0, DATA_BYTES, &rng);
                g.read[j].priority = sl_rng_below(&rng, SL_READ_PRIORITIES);
            }
            rig_submit(&g, i, n);
            i += n;
            vclock.now_ns += sl_rng_below(&rng, 2000000);
            if (sl_rng_below(&rng, 2))
                sl_reader_poll(g.reader);
            else
                sl_reader_wait(g.reader, 1 + sl_rng_below(&rng, 4), 1000000);
            uint32_t other = sl_rng_below(&rng, i);
            if (sl_rng_below(&rng, 3) == 0)
                sl_reader_cancel(g.reader, &g.read[other]);
            else
                sl_reader_raise(g.reader, &g.read[other], sl_rng_below(&rng, 2));
        }
        if (seed % 3)
            rig_wait_all(&g);
        sl_reader_close(&g.reader);
        for (uint32_t i = 0; i < 48; i++) {
            assert_int_equal(g.n_done[i], 1);
            if (g.status[i] == SL_OK)
                rig_check_bytes(&g, i, data);
            else if (g.status[i] == SL_ERR_IO)
                assert_non_null(strstr(g.err[i].text, "cannot read"));
            else
                assert_int_equal(g.status[i], SL_ERR_CANCELED);
        }
        rig_release(&g);
    }
}

/* ---- a block device that errs ---- */

/* A loop device with direct I/O over a file that is then cut: the kernel answers EIO behind the
 * end, as a drive with a bad half would. */
static void a_real_device_errs(void **state) {
    (void)state;
    char path[] = "/tmp/sluice-loop-XXXXXX", device[32];
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, data, DATA_BYTES), DATA_BYTES);
    fsync(file);
    int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), loop = -1;
    int number = control >= 0 ? ioctl(control, LOOP_CTL_GET_FREE) : -1;
    snprintf(device, sizeof device, "/dev/loop%d", number);
    if (number >= 0)
        loop = open(device, O_RDWR | O_CLOEXEC);
    if (loop < 0 || ioctl(loop, LOOP_SET_FD, file) != 0 ||
        ioctl(loop, LOOP_SET_DIRECT_IO, 1ul) != 0) {
        print_message("no loop device can be made here: %s\n", strerror(errno));
        if (loop >= 0) {
            ioctl(loop, LOOP_CLR_FD, 0);
            close(loop);
        }
        if (control >= 0)
            close(control);
        close(file);
        unlink(path);
        skip();
    }
    const enum sl_io_kind kinds[] = {SL_IO_AUTO, SL_IO_PREAD};
    for (uint32_t k = 0; k < 2; k++) {
        struct rig g;
        struct sl_rng rng = {.state = 21};
        uint32_t f;
        assert_int_equal(pwrite(file, data, DATA_BYTES, 0), DATA_BYTES);
        rig_init(&g, 30, sizes);
        struct sl_reader_config c = {.kind = kinds[k], .slab = &g.slab};
        assert_ok(sl_reader_open(&c, &g.reader, &test_err));
        assert_ok(sl_reader_add_file(g.reader, device, &f, &test_err));
        assert_int_equal(sl_reader_file_bytes(g.reader, f), DATA_BYTES);
        for (uint32_t i = 0; i < 30; i++)
            rig_scatter(&g, i, f, DATA_BYTES, &rng);
        rig_submit(&g, 0, 30);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 30, data);

        assert_int_equal(ftruncate(file, DATA_BYTES / 2), 0);
        memset(g.n_done, 0, sizeof g.n_done);
        rig_submit(&g, 0, 30);
        rig_wait_all(&g);
        uint32_t bad = 0;
        for (uint32_t i = 0; i < 30; i++) {
            assert_int_equal(g.n_done[i], 1);
            if (g.status[i] == SL_OK) {
                assert_false(touches(&g.read[i], DATA_BYTES / 2, DATA_BYTES));
                rig_check_bytes(&g, i, data);
                continue;
            }
            bad++;
            assert_int_equal(g.status[i], SL_ERR_IO);
            assert_non_null(strstr(g.err[i].text, device));
            assert_non_null(strstr(g.err[i].text, strerror(EIO)));
        }
        assert_true(bad > 0 && bad < 30);

        assert_int_equal(pwrite(file, data, DATA_BYTES, 0), DATA_BYTES);
        memset(g.n_done, 0, sizeof g.n_done);
        rig_submit(&g, 0, 30);
        rig_wait_all(&g);
        rig_check_ok(&g, 0, 30, data);
        rig_release(&g);
    }
    ioctl(loop, LOOP_CLR_FD, 0);
    close(loop);
    close(control);
    close(file);
    unlink(path);
}

static int setup(void **state) {
    (void)state;
    data = make_data(DATA_BYTES, 42);
    sl_log_set_level(SL_LOG_ERROR); /* dropped copies are meant here */
    return 0;
}

static int teardown(void **state) {
    (void)state;
    free(data);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_reads_go_on),
        cmocka_unit_test(endless_short_reads_end),
        cmocka_unit_test(passing_errors_are_retried),
        cmocka_unit_test(a_bad_place_fails_its_own),
        cmocka_unit_test(a_slow_place_delays_its_own),
        cmocka_unit_test(a_failing_copy_is_dropped),
        cmocka_unit_test(storms),
        cmocka_unit_test(a_real_device_errs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
