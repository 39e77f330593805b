/* The thread pool: every chunk once, barriers that hold, results that are seen, sleep and wake. */
#include "backends/cpu/host/pool.h"

#include "common/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <time.h>

#define MAX_CHUNKS 1000u

struct job {
    struct sl_pool *pool;
    uint32_t n_chunks, n_phases;
    uint32_t plain[MAX_CHUNKS]; /* not atomic: the pool's own ordering must do */
    uint32_t sum[8];
    _Atomic uint32_t seen_threads;
    uint32_t n_overlap;
};

static struct sl_pool *create(uint32_t n) {
    struct sl_pool *p;
    assert_int_equal(sl_pool_create(n, &p), SL_OK);
    assert_int_equal(sl_pool_n_threads(p), n);
    return p;
}

static void mark(void *ctx, uint32_t thread, uint32_t n_threads) {
    struct job *j = ctx;
    assert_true(thread < n_threads);
    atomic_fetch_or(&j->seen_threads, 1u << thread);
    for (uint32_t c; (c = sl_pool_next(j->pool, j->n_chunks)) != UINT32_MAX;)
        j->plain[c]++;
}

static void every_chunk_once(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 5; n++) {
        struct job j = {.pool = create(n)};
        for (uint32_t run = 1; run <= 300; run++) {
            j.n_chunks = run * 7 % MAX_CHUNKS;
            memset(j.plain, 0, sizeof j.plain);
            atomic_store(&j.seen_threads, 0);
            sl_pool_run(j.pool, mark, &j);
            assert_int_equal(atomic_load(&j.seen_threads), (1u << n) - 1);
            for (uint32_t c = 0; c < MAX_CHUNKS; c++)
                assert_int_equal(j.plain[c], c < j.n_chunks);
        }
        sl_pool_destroy(&j.pool);
        assert_null(j.pool);
    }
}

/* Every phase reads what all others wrote in the one before: plain memory, so TSan watches too. */
static void relay(void *ctx, uint32_t thread, uint32_t n_threads) {
    struct job *j = ctx;
    for (uint32_t phase = 0; phase < j->n_phases; phase++) {
        for (uint32_t c; (c = sl_pool_next(j->pool, j->n_chunks)) != UINT32_MAX;)
            j->plain[c] += c + phase;
        sl_pool_barrier(j->pool);
        if (thread == phase % n_threads) {
            uint32_t sum = 0;
            for (uint32_t c = 0; c < j->n_chunks; c++)
                sum += j->plain[c];
            j->sum[phase % 8] = sum;
        }
        sl_pool_barrier(j->pool);
    }
}

static void barriers(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct job j = {.pool = create(n), .n_phases = 2000};
        for (uint32_t run = 0; run < 3; run++) {
            j.n_chunks = 1 + run * 5;
            memset(j.plain, 0, sizeof j.plain);
            sl_pool_run(j.pool, relay, &j);
            uint32_t sum = 0;
            for (uint32_t c = 0; c < j.n_chunks; c++) {
                uint32_t expected = 0;
                for (uint32_t p = 0; p < j.n_phases; p++)
                    expected += c + p;
                assert_int_equal(j.plain[c], expected);
                sum += expected;
            }
            assert_int_equal(j.sum[(j.n_phases - 1) % 8], sum);
        }
        sl_pool_destroy(&j.pool);
    }
}

static uint64_t cpu_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The caller does something else meanwhile, once; the barriers count those that are left. */
static void overlap(void *ctx) {
    struct job *j = ctx;
    j->n_overlap++;
}

static void chunks_and_barriers(void *ctx, uint32_t thread, uint32_t n_threads) {
    struct job *j = ctx;
    (void)n_threads;
    atomic_fetch_or(&j->seen_threads, 1u << thread);
    for (uint32_t phase = 0; phase < j->n_phases; phase++) {
        for (uint32_t c; (c = sl_pool_next(j->pool, j->n_chunks)) != UINT32_MAX;)
            j->plain[c] += c + phase;
        sl_pool_barrier(j->pool);
    }
}

static void runs_overlapped(void **state) {
    (void)state;
    for (uint32_t n = 1; n <= 4; n++) {
        struct job j = {.pool = create(n), .n_chunks = 23, .n_phases = 5};
        for (uint32_t run = 1; run <= 300; run++) {
            memset(j.plain, 0, sizeof j.plain);
            atomic_store(&j.seen_threads, 0);
            if (run % 3) {
                uint64_t before = sl_now_ns(), end = 0;
                sl_pool_run_overlap(j.pool, chunks_and_barriers, &j, overlap, &j,
                                    run % 3 == 1 ? &end : NULL);
                if (run % 3 == 1 && n > 1)
                    assert_in_range(end, before, sl_now_ns());
                assert_int_equal(atomic_load(&j.seen_threads), n == 1 ? 1 : (1u << n) - 2);
            } else {
                sl_pool_run(j.pool, chunks_and_barriers, &j);
                assert_int_equal(atomic_load(&j.seen_threads), (1u << n) - 1);
            }
            for (uint32_t c = 0; c < j.n_chunks; c++)
                assert_int_equal(j.plain[c], 5 * c + 10);
        }
        assert_int_equal(j.n_overlap, 200);
        sl_pool_destroy(&j.pool);
    }
}

static void sleep_ns(long ns) {
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

static void wakes_from_sleep(void **state) {
    (void)state;
    struct job j = {.pool = create(3), .n_chunks = 50};
    for (int i = 0; i < 20; i++) {
        sleep_ns(3000000); /* long past the spinning */
        memset(j.plain, 0, sizeof j.plain);
        sl_pool_run(j.pool, mark, &j);
        for (uint32_t c = 0; c < j.n_chunks; c++)
            assert_int_equal(j.plain[c], 1);
    }
    sl_pool_destroy(&j.pool);
}

static void idle_costs_nothing(void **state) {
    (void)state;
    struct sl_pool *p = create(4);
    struct job j = {.pool = p, .n_chunks = 4};
    sl_pool_run(p, mark, &j);
    sleep_ns(20000000); /* let them fall asleep */
    uint64_t before = cpu_ns();
    sleep_ns(200000000);
    uint64_t spent = cpu_ns() - before;
    assert_true(spent < 20000000); /* a tenth of one CPU is already far too much */
    sl_pool_destroy(&p);
}

/* Helpers that stay awake longer sleep in the end; they run whether woken early or not. */
static void stays_awake(void **state) {
    (void)state;
    struct sl_pool *p = create(2);
    struct job j = {.pool = p, .n_chunks = 4};
    sl_pool_stay_awake(p, 2000000);
    for (int i = 0; i < 20; i++) {
        sleep_ns(6000000);
        if (i % 2)
            sl_pool_wake(p);
        if (i % 4 == 3)
            sleep_ns(300000);
        memset(j.plain, 0, sizeof j.plain);
        sl_pool_run(p, mark, &j);
        for (uint32_t c = 0; c < j.n_chunks; c++)
            assert_int_equal(j.plain[c], 1);
    }
    sleep_ns(20000000);
    uint64_t before = cpu_ns();
    sleep_ns(200000000);
    assert_true(cpu_ns() - before < 20000000);
    sl_pool_destroy(&p);
}

/* One helper arrives late at the barrier: the others sleep and must be woken. */
static void late(void *ctx, uint32_t thread, uint32_t n_threads) {
    struct job *j = ctx;
    for (uint32_t i = 0; i < 6; i++) {
        if (thread == i % n_threads) {
            sleep_ns(4000000);
            j->plain[i] = i + 1;
        }
        sl_pool_barrier(j->pool);
        assert_int_equal(j->plain[i], i + 1);
    }
}

static void barrier_sleepers(void **state) {
    (void)state;
    struct job j = {.pool = create(3)};
    sl_pool_run(j.pool, late, &j);
    sl_pool_destroy(&j.pool);
}

static void create_and_destroy(void **state) {
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct sl_pool *p = create(1 + (uint32_t)i % 6);
        sl_pool_destroy(&p);
        sl_pool_destroy(&p); /* NULL by now */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_chunk_once),   cmocka_unit_test(barriers),
        cmocka_unit_test(runs_overlapped),    cmocka_unit_test(wakes_from_sleep),
        cmocka_unit_test(idle_costs_nothing), cmocka_unit_test(barrier_sleepers),
        cmocka_unit_test(create_and_destroy), cmocka_unit_test(stays_awake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
