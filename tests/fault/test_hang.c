/* A disk that does not answer: the pool of readers over real files, whose pread waits until the
 * test lets it go. Who cancels meanwhile is answered at once, whoever shares the step; who does not
 * gets its tokens when the disk comes back. */
#include "tests/fault/faulty.h"

#include <stdatomic.h>

#define SOON_NS                                                                                    \
    5000000000u /* a loaded machine's idea of at once; a hang lasts until it is ended              \
                 */

ssize_t __real_pread(int fd, void *buf, size_t n, off_t offset);
ssize_t __wrap_pread(int fd, void *buf, size_t n, off_t offset);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hang;          /* under lock */
static uint32_t n_hanging; /* likewise */

ssize_t __wrap_pread(int fd, void *buf, size_t n, off_t offset) {
    pthread_mutex_lock(&lock);
    n_hanging++;
    pthread_cond_broadcast(&changed);
    while (hang)
        pthread_cond_wait(&changed, &lock);
    n_hanging--;
    pthread_mutex_unlock(&lock);
    return __real_pread(fd, buf, n, offset);
}

static void set_hang(bool on) {
    pthread_mutex_lock(&lock);
    hang = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for_hang(void) {
    pthread_mutex_lock(&lock);
    while (!n_hanging)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

static bool finished(struct run *r) {
    pthread_mutex_lock(&r->lock);
    bool yes = r->n_finish > 0;
    pthread_mutex_unlock(&r->lock);
    return yes;
}

static struct sl_engine *engine_on_pread(uint32_t percent) {
    struct sl_engine_config c = streamed_config(percent);
    c.io = SL_EXPERTS_IO_PREAD;
    c.parallel = 2;
    set_budget(model.model, &c, percent);
    return new_engine(&model, &c);
}

/* On the scheduler's thread: the disk hangs from the next read on. */
static void hang_at_4(struct run *r) {
    if (r->n == 4)
        set_hang(true);
}

static void expect_canceled_soon(struct sl_engine *e, struct run *r, uint32_t i) {
    uint64_t start = sl_now_ns();
    sl_engine_cancel(e, &r->req);
    wait_run(r);
    assert_true(sl_now_ns() - start < SOON_NS);
    assert_int_equal(r->result.reason, SL_FINISH_CANCELED);
    assert_no_wrong_token(r, i);
}

/* One of two is canceled while their step hangs, then one that waits for a slot; the other goes on
 * when the disk does, and has the right tokens. */
static void cancel_among_others(void **state) {
    (void)state;
    struct sl_engine *e = engine_on_pread(0);
    for (uint32_t turn = 0; turn < 4; turn++) {
        struct run *stays = make_run(turn % 2), *goes = make_run(2), *waits = make_run(3);
        stays->on_token = hang_at_4;
        submit(e, stays);
        submit(e, goes);
        submit(e, waits);
        wait_for_hang();
        if (turn < 2) { /* the one that has no slot goes first, or last */
            expect_canceled_soon(e, waits, 3);
            assert_false(finished(stays));
            assert_false(finished(goes));
            expect_canceled_soon(e, goes, 2);
        } else {
            expect_canceled_soon(e, goes, 2);
            expect_canceled_soon(e, waits, 3);
        }
        struct run *late = make_run(3); /* submitted and canceled while the step hangs */
        submit(e, late);
        expect_canceled_soon(e, late, 3);
        assert_false(finished(stays));
        set_hang(false);
        wait_run(stays);
        assert_clean(stays, turn % 2);
        free_run(stays);
        free_run(goes);
        free_run(waits);
        free_run(late);
    }
    sl_engine_destroy(&e);
}

/* All are canceled; the next request, which needs what hangs, gets it in the end. */
static void cancel_all_then_go_on(void **state) {
    (void)state;
    struct sl_engine *e = engine_on_pread(0);
    struct run *r[2], *next[2];
    for (uint32_t i = 0; i < 2; i++) {
        r[i] = make_run(i);
        r[i]->on_token = hang_at_4;
        submit(e, r[i]);
    }
    wait_for_hang();
    for (uint32_t i = 0; i < 2; i++)
        expect_canceled_soon(e, r[i], i);
    for (uint32_t i = 0; i < 2; i++) {
        next[i] = make_run(i);
        submit(e, next[i]);
    }
    usleep(100000);
    for (uint32_t i = 0; i < 2; i++)
        assert_false(finished(next[i]));
    set_hang(false);
    for (uint32_t i = 0; i < 2; i++) {
        wait_run(next[i]);
        assert_clean(next[i], i);
        free_run(next[i]);
        free_run(r[i]);
    }
    sl_engine_destroy(&e);
}

static void *let_go(void *arg) {
    (void)arg;
    usleep(200000);
    set_hang(false);
    return NULL;
}

/* The engine ends while the disk hangs: the requests are told at once, the memory that the disk may
 * still write is given back when it has let go. */
static void destroy_waits_for_the_disk(void **state) {
    (void)state;
    struct sl_engine *e = engine_on_pread(50);
    struct run *r = make_run(0);
    r->on_token = hang_at_4;
    submit(e, r);
    wait_for_hang();
    pthread_t later;
    assert_int_equal(pthread_create(&later, NULL, let_go, NULL), 0);
    sl_engine_destroy(&e);
    pthread_join(later, NULL);
    assert_int_equal(r->n_finish, 1);
    assert_int_equal(r->result.status, SL_ERR_CANCELED);
    assert_no_wrong_token(r, 0);
    free_run(r);
}

int main(void) {
    sl_log_set_level(SL_LOG_ERROR);
    alarm(300);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancel_among_others),
        cmocka_unit_test(cancel_all_then_go_on),
        cmocka_unit_test(destroy_waits_for_the_disk),
    };
    return cmocka_run_group_tests(tests, setup_model, teardown_model);
}
