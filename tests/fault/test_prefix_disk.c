/* The disk under --cache-dir fills up, errs and crawls: answers are right and nobody waits for it.
 */
#include "tests/fault/faulty.h"
#include "tests/support/folder.h"

#include "common/clock.h"
#include "engine/engine.h"
#include "engine/schedule/schedule.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/file.h>

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
ssize_t __real_read(int fd, void *bytes, size_t n);
ssize_t __wrap_read(int fd, void *bytes, size_t n);

/* Only the store's thread is disturbed. */
static _Thread_local int is_store = -1;
static atomic_long room_bytes;              /* what can still be written; then write_errno */
static atomic_int write_errno;              /* 0: all is well */
static atomic_int read_errno;               /* 0: all is well */
static atomic_bool hold_reads, hold_writes; /* until the test lets go */

static atomic_bool is_held; /* somebody waits */

static void wait_while(atomic_bool *held) {
    while (atomic_load(held)) {
        atomic_store(&is_held, true);
        usleep(1000);
    }
    atomic_store(&is_held, false);
}

static bool on_store_thread(void) {
    if (is_store < 0) {
        char name[32] = "";
        pthread_getname_np(pthread_self(), name, sizeof name);
        is_store = strcmp(name, "sl-blocks") == 0;
    }
    return is_store == 1;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t n) {
    if (!on_store_thread())
        return __real_write(fd, bytes, n);
    wait_while(&hold_writes);
    if (!atomic_load(&write_errno))
        return __real_write(fd, bytes, n);
    long room = atomic_load(&room_bytes);
    if (room <= 0) {
        errno = atomic_load(&write_errno);
        return -1;
    }
    /* A disk that fills up takes what it can first. */
    size_t part = n < (size_t)room ? n : (size_t)room;
    atomic_fetch_sub(&room_bytes, (long)part);
    return __real_write(fd, bytes, part);
}

ssize_t __wrap_read(int fd, void *bytes, size_t n) {
    if (!on_store_thread())
        return __real_read(fd, bytes, n);
    wait_while(&hold_reads);
    if (atomic_load(&read_errno)) {
        errno = atomic_load(&read_errno);
        return -1;
    }
    return __real_read(fd, bytes, n < 5000 ? n : 5000); /* in pieces, as a disk may */
}

static struct folder folder;

static int setup(void **state) {
    (void)state;
    atomic_store(&write_errno, 0);
    atomic_store(&read_errno, 0);
    atomic_store(&hold_reads, false);
    atomic_store(&hold_writes, false);
    open_folder(&folder);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_folder(&folder);
    return 0;
}

static struct sl_engine *start_with(uint32_t parallel) {
    struct sl_engine_config c = {.n_threads = 1,
                                 .ctx_tokens = 400,
                                 .parallel = parallel,
                                 .batch_tokens = 64,
                                 .cache_dir = folder.path,
                                 .cache_read_always = true,
                                 .experts = SL_EXPERTS_RESIDENT,
                                 .ram_bytes = AMPLE_BYTES};
    return new_engine(&model, &c);
}

static struct sl_engine *start(void) {
    return start_with(6);
}

static struct run *ask(struct sl_engine *e, uint32_t seed, bool plain) {
    struct run *r = new_run(seed, 330, model.model->hp.n_vocab, 20);
    r->req.logprobs = r->req.ignore_eog = true;
    r->req.no_cache = plain;
    submit(e, r);
    wait_run(r);
    assert_int_equal(r->result.status, SL_OK);
    return r;
}

static void expect(struct sl_engine *e, uint32_t seed, uint32_t n_cached) {
    struct run *plain = ask(e, seed, true), *r = ask(e, seed, false);
    assert_same_tokens(plain, r);
    assert_int_equal(r->result.n_cached, n_cached);
    free_run(plain);
    free_run(r);
}

/* Of the five pages of a prompt some are written, one in part, then there is no space. */
static void a_full_disk(void **state) {
    (void)state;
    static char names[64][256];
    struct sl_engine *e = start();
    uint64_t page = e->plan.page_bytes;
    atomic_store(&room_bytes, (long)(2 * (page + 512) + page / 2));
    atomic_store(&write_errno, ENOSPC);
    int64_t errors = sl_metric(prefix_disk_errors_total);
    expect(e, 1, 0);
    for (uint32_t i = 0; i < 4000 && sl_metric(prefix_disk_errors_total) == errors; i++)
        usleep(5000);
    expect(e, 2, 0); /* and nothing more is tried for a while; two were under way */
    expect(e, 1, 320);
    assert_in_range(sl_metric(prefix_disk_errors_total) - errors, 1, 2);
    assert_int_equal(list_folder(&folder, ".tmp", names, 64), 0);
    assert_int_equal(list_folder(&folder, ".kv", names, 64), 2);
    sl_engine_destroy(&e);
    atomic_store(&write_errno, 0);
    e = start(); /* what was written is whole */
    expect(e, 1, 128);
    sl_engine_destroy(&e);
}

static void a_disk_that_cannot_be_read(void **state) {
    (void)state;
    static char names[64][256];
    struct stat was[64], is;
    char path[512];
    struct sl_engine *e = start();
    expect(e, 3, 0);
    sl_engine_destroy(&e);
    uint32_t n = list_folder(&folder, ".kv", names, 64);
    assert_int_equal(n, 5);
    for (uint32_t i = 0; i < n; i++) {
        path_in(&folder, names[i], path);
        assert_int_equal(stat(path, &was[i]), 0);
    }
    static const int errors[] = {EIO, EMFILE, ENOMEM};
    for (uint32_t k = 0; k < 3; k++) {
        int64_t bad = sl_metric(prefix_disk_bad_total);
        atomic_store(&read_errno, errors[k]);
        e = start();
        expect(e, 3, 0);
        atomic_store(&read_errno, 0);
        sl_engine_destroy(&e);
        assert_int_equal(sl_metric(prefix_disk_bad_total), bad);
        for (uint32_t i = 0; i < n; i++) { /* the very files */
            path_in(&folder, names[i], path);
            assert_int_equal(stat(path, &is), 0);
            assert_int_equal(is.st_ino, was[i].st_ino);
        }
    }
    e = start();
    expect(e, 3, 320);
    sl_engine_destroy(&e);
}

/* While one waits for a slow disk others generate, and a cancel is answered at once. */
static void a_crawling_disk(void **state) {
    (void)state;
    struct sl_engine *e = start();
    expect(e, 4, 0);
    sl_engine_destroy(&e);
    atomic_store(&hold_reads, true);
    e = start();
    struct run *waits = new_run(4, 330, model.model->hp.n_vocab, 20);
    submit(e, waits);
    expect(e, 5, 0);
    assert_int_equal(waits->n_finish, 0);
    sl_engine_cancel(e, &waits->req);
    wait_run(waits); /* the disk still has not answered */
    assert_int_equal(waits->result.reason, SL_FINISH_CANCELED);
    free_run(waits);
    atomic_store(&hold_reads, false);
    expect(e, 4, 320); /* from the disk or from what was read for nobody */
    sl_engine_destroy(&e);
}

/* Pages whose memory is wanted before the disk had them are lost to it, and that is all. */
static void a_disk_that_cannot_keep_up(void **state) {
    (void)state;
    atomic_store(&hold_writes, true);
    struct sl_engine *e = start_with(2);
    int64_t dropped = sl_metric(prefix_disk_dropped_total);
    for (uint32_t i = 0; i < 12; i++)
        free_run(ask(e, 100 + i, false));
    assert_true(sl_metric(prefix_disk_dropped_total) > dropped);
    struct run *plain = ask(e, 100, true), *r = ask(e, 100, false);
    assert_same_tokens(plain, r);
    free_run(plain);
    free_run(r);
    atomic_store(&hold_writes, false);
    sl_engine_destroy(&e);
}

static bool is_unlocked(void) {
    char path[128];
    snprintf(path, sizeof path, "%s/lock", folder.path);
    int fd = open(path, O_RDWR);
    bool free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return free;
}

/* What never answers delays the end by a few seconds and no more; what it does later harms nobody.
 */
static void a_disk_that_hangs(void **state) {
    (void)state;
    for (uint32_t writes = 0; writes < 2; writes++) {
        struct sl_engine *e = start();
        if (!writes) { /* there is something to read */
            expect(e, 6, 0);
            sl_engine_destroy(&e);
            atomic_store(&hold_reads, true);
            e = start();
        } else {
            atomic_store(&hold_writes, true);
        }
        struct run *r = new_run(6 + writes, 330, model.model->hp.n_vocab, 20);
        submit(e, r);
        if (writes)
            wait_run(r);
        for (uint32_t i = 0; i < 4000 && !atomic_load(&is_held); i++)
            usleep(5000);
        assert_true(atomic_load(&is_held)); /* the disk has been asked */
        uint64_t began = sl_now_ns();
        sl_engine_destroy(&e);
        assert_in_range(sl_now_ns() - began, 1900000000u, 15000000000u);
        assert_int_equal(r->n_finish, 1);
        free_run(r);
        atomic_store(&hold_reads, false);
        atomic_store(&hold_writes, false);
        for (uint32_t i = 0; i < 4000 && !is_unlocked(); i++)
            usleep(5000); /* it wakes, finds that it was given up, and lets go of all it has */
        assert_true(is_unlocked());
    }
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_cannot_be_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_crawling_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_cannot_keep_up, setup, teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_hangs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, setup_model, teardown_model);
}
