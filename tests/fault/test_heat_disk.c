/* The disk under --heat-file crawls, errs and hangs: the file is whole or the old one, and start
 * and end wait for it a few seconds at most. */
#include "tests/fault/faulty.h"
#include "tests/support/folder.h"

#include "common/clock.h"
#include "engine/heat/heat_store.h"

#include <errno.h>
#include <stdatomic.h>

ssize_t __real_write(int fd, const void *bytes, size_t n);
ssize_t __wrap_write(int fd, const void *bytes, size_t n);
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_stat(const char *name, struct stat *about);
int __wrap_stat(const char *name, struct stat *about);
ssize_t __real_read(int fd, void *bytes, size_t n);
ssize_t __wrap_read(int fd, void *bytes, size_t n);

static struct folder folder;
static char path[128];

/* Only the folder's files are disturbed, whoever writes them. */
static bool is_ours(int fd) {
    char link[64], to[512];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, to, sizeof to - 1);
    to[n > 0 ? n : 0] = '\0';
    return folder.path[0] && strncmp(to, folder.path, strlen(folder.path)) == 0;
}

static atomic_bool hold_syncs; /* until the test lets go */
static atomic_bool hold_reads; /* likewise */
static atomic_bool hold_stats; /* likewise, of the file that ends in this */
#define STATS_OF "-plan"
static atomic_uint n_held;     /* calls that wait, or have waited */
static atomic_int write_errno; /* 0: all is well */

ssize_t __wrap_write(int fd, const void *bytes, size_t n) {
    if (!is_ours(fd))
        return __real_write(fd, bytes, n);
    if (atomic_load(&write_errno)) {
        errno = atomic_load(&write_errno);
        return -1;
    }
    return __real_write(fd, bytes, n < 100 ? n : 100); /* in pieces, as a disk may */
}

static void wait_while(atomic_bool *held) {
    if (atomic_load(held))
        atomic_fetch_add(&n_held, 1);
    while (atomic_load(held))
        usleep(1000);
}

int __wrap_fsync(int fd) {
    if (is_ours(fd))
        wait_while(&hold_syncs);
    return __real_fsync(fd);
}

int __wrap_stat(const char *name, struct stat *about) {
    size_t n = strlen(name), tail = sizeof STATS_OF - 1;
    if (n > tail && strcmp(name + n - tail, STATS_OF) == 0)
        wait_while(&hold_stats);
    return __real_stat(name, about);
}

ssize_t __wrap_read(int fd, void *bytes, size_t n) {
    if (is_ours(fd))
        wait_while(&hold_reads);
    return __real_read(fd, bytes, n);
}

static int setup(void **state) {
    (void)state;
    atomic_store(&hold_syncs, false);
    atomic_store(&hold_stats, false);
    atomic_store(&hold_reads, false);
    atomic_store(&n_held, 0);
    atomic_store(&write_errno, 0);
    open_folder(&folder);
    snprintf(path, sizeof path, "%s/heat", folder.path);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    close_folder(&folder);
    return 0;
}

static struct sl_engine *start(const char *heat_file) {
    struct sl_engine_config c = streamed_config(50);
    c.heat_file = heat_file;
    return new_engine(&model, &c);
}

static void answer(struct sl_engine *e) {
    struct run *r = make_run(0);
    submit(e, r);
    wait_run(r);
    assert_clean(r, 0);
    free_run(r);
}

static bool is_there(const char *file) {
    struct stat about;
    return stat(file, &about) == 0;
}

static void wait_for_file(const char *file) {
    for (uint32_t i = 0; i < 4000 && !is_there(file); i++)
        usleep(5000);
    assert_true(is_there(file));
}

static void *destroy(void *engine) {
    sl_engine_destroy(engine);
    return NULL;
}

/* Whether a file's heat is taken over: whether it tells experts of the first layer apart. */
static bool holds_heat(const char *file) {
    struct sl_heat_config shape = {4, 8, 2, NULL, sl_model_fingerprint(model.model)};
    struct sl_heat *heat;
    struct sl_err why;
    if (sl_heat_create(&shape, &heat, &why) != SL_OK)
        return false;
    sl_heat_store_peek(file, heat);
    const float *of = sl_heat_layer(heat, 0);
    bool differs = false;
    for (uint32_t x = 1; x < 8; x++)
        differs |= memcmp(&of[x], &of[0], sizeof *of) != 0;
    sl_heat_destroy(&heat);
    return differs;
}

/* The end waits for a disk that answers in time, and what it has then is what the engine knew. */
static void a_slow_disk(void **state) {
    (void)state;
    atomic_store(&hold_syncs, true);
    struct sl_engine *e = start(path);
    answer(e);
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, destroy, &e), 0);
    for (uint32_t i = 0; i < 4000 && !atomic_load(&n_held); i++)
        usleep(5000);
    assert_int_equal(atomic_load(&n_held), 1);
    assert_false(is_there(path));
    usleep(300000);
    atomic_store(&hold_syncs, false);
    pthread_join(closer, NULL);
    assert_true(is_there(path));
    assert_true(holds_heat(path));
}

/* A save that fails leaves the old file. */
static void a_full_disk(void **state) {
    (void)state;
    static char names[8][256];
    struct sl_engine *e = start(path);
    answer(e);
    sl_engine_destroy(&e);
    struct stat was, is;
    assert_int_equal(stat(path, &was), 0);
    atomic_store(&write_errno, ENOSPC);
    e = start(path);
    answer(e);
    sl_engine_destroy(&e);
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_ino, was.st_ino);
    assert_int_equal(list_folder(&folder, "", names, 8), 3); /* with . and .. */
}

/* What never answers delays the end by a few seconds and no more, whether it hung before the end
 * began or hangs at the last save; what it does later harms nobody. */
static void a_disk_that_hangs(void **state) {
    (void)state;
    static char paths[2][140];
    struct sl_engine *e[2];
    pthread_t closer[2];
    atomic_store(&hold_syncs, true);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/heat%u", folder.path, i);
        e[i] = start(paths[i]);
        answer(e[i]);
        for (uint32_t t = 0; i == 0 && t < 4000 && !atomic_load(&n_held); t++)
            usleep(5000); /* the heat is saved when nothing runs */
    }
    uint64_t began = sl_now_ns();
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&closer[i], NULL, destroy, &e[i]), 0);
    for (uint32_t i = 0; i < 2; i++)
        pthread_join(closer[i], NULL);
    assert_in_range(sl_now_ns() - began, 4900000000u, 15000000000u);
    assert_int_equal(atomic_load(&n_held), 2);
    assert_false(is_there(paths[0]) || is_there(paths[1]));
    atomic_store(&hold_syncs, false);
    for (uint32_t i = 0; i < 2; i++)
        wait_for_file(paths[i]);
    usleep(50000); /* the threads end, and release what they have */
}

struct begun {
    struct sl_engine *engine;
    bool planned_with_heat;
};

static void *start_on_a_thread(void *arg) {
    struct begun *b = arg;
    struct sl_engine_config c = streamed_config(50);
    c.heat_file = path;
    struct sl_err why;
    if (sl_engine_create(model.model, &c, NULL, &b->engine, &why) != SL_OK)
        b->engine = NULL;
    return NULL;
}

static void *plan_on_a_thread(void *arg) {
    struct begun *b = arg;
    char other[160];
    snprintf(other, sizeof other, "%s" STATS_OF, path);
    b->planned_with_heat = holds_heat(other);
    return NULL;
}

/* A disk that never answers delays the start by a few seconds and no more: the engine starts cold,
 * answers and ends, and what is there stays as it was. So does a plan, which only reads. The one
 * hangs in a read here, the other before the file is open. */
static void a_start_on_a_disk_that_hangs(void **state) {
    (void)state;
    struct sl_engine *e = start(path);
    answer(e);
    sl_engine_destroy(&e);
    char other[160];
    struct stat was, is;
    snprintf(other, sizeof other, "%s" STATS_OF, path);
    assert_int_equal(link(path, other), 0);
    assert_int_equal(stat(path, &was), 0);
    assert_true(holds_heat(path) && holds_heat(other));
    pthread_t starter, planner;
    struct begun b = {.engine = NULL, .planned_with_heat = true};
    atomic_store(&hold_reads, true);
    atomic_store(&hold_stats, true);
    uint64_t began = sl_now_ns();
    assert_int_equal(pthread_create(&starter, NULL, start_on_a_thread, &b), 0);
    assert_int_equal(pthread_create(&planner, NULL, plan_on_a_thread, &b), 0);
    pthread_join(planner, NULL);
    pthread_join(starter, NULL);
    assert_in_range(sl_now_ns() - began, 4900000000u, 15000000000u);
    assert_int_equal(atomic_load(&n_held), 2);
    assert_false(b.planned_with_heat);
    assert_non_null(b.engine);
    answer(b.engine);
    began = sl_now_ns();
    sl_engine_destroy(&b.engine); /* nothing is saved, and nobody waited for */
    assert_in_range(sl_now_ns() - began, 0, 4000000000u);
    atomic_store(&hold_reads, false);
    atomic_store(&hold_stats, false);
    usleep(50000); /* the threads end, and release what they have */
    assert_int_equal(stat(path, &is), 0);
    assert_int_equal(is.st_ino, was.st_ino);
    assert_true(holds_heat(path));
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_slow_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_disk_that_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_start_on_a_disk_that_hangs, setup, teardown),
    };
    return cmocka_run_group_tests(tests, setup_model, teardown_model);
}
