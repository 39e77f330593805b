/* The table of a worker's phases. The changes themselves are made in tests/cluster. */
#include "cluster/worker_phase.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define N SL_WORKER_PHASES

/* The table a second time: what is not listed here must be refused. */
static const struct {
    enum sl_worker_phase from, to;
} allowed[] = {
    {SL_WORKER_PHASE_WAITING, SL_WORKER_PHASE_GREETING},
    {SL_WORKER_PHASE_GREETING, SL_WORKER_PHASE_GREETED},
    {SL_WORKER_PHASE_GREETED, SL_WORKER_PHASE_OFFERING},
    {SL_WORKER_PHASE_OFFERING, SL_WORKER_PHASE_GREETED},
    {SL_WORKER_PHASE_GREETED, SL_WORKER_PHASE_LOADING},
    {SL_WORKER_PHASE_LOADING, SL_WORKER_PHASE_SERVING},
    {SL_WORKER_PHASE_LOADING, SL_WORKER_PHASE_GREETED}, /* they cannot be loaded */
    {SL_WORKER_PHASE_PARTING, SL_WORKER_PHASE_WAITING},
    /* The coordinator is gone, or the worker ends. */
    {SL_WORKER_PHASE_GREETING, SL_WORKER_PHASE_PARTING},
    {SL_WORKER_PHASE_GREETED, SL_WORKER_PHASE_PARTING},
    {SL_WORKER_PHASE_OFFERING, SL_WORKER_PHASE_PARTING},
    {SL_WORKER_PHASE_LOADING, SL_WORKER_PHASE_PARTING},
    {SL_WORKER_PHASE_SERVING, SL_WORKER_PHASE_PARTING},
};
#define N_ALLOWED (sizeof allowed / sizeof *allowed)

static bool is_allowed(unsigned from, unsigned to) {
    for (size_t i = 0; i < N_ALLOWED; i++)
        if (allowed[i].from == from && allowed[i].to == to)
            return true;
    return false;
}

static void test_table(void **state) {
    (void)state;
    for (unsigned from = 0; from <= N; from++)
        for (unsigned to = 0; to <= N; to++)
            if (sl_worker_phase_may((enum sl_worker_phase)from, (enum sl_worker_phase)to) !=
                is_allowed(from, to))
                fail_msg("%s to %s", sl_worker_phase_name((enum sl_worker_phase)from),
                         sl_worker_phase_name((enum sl_worker_phase)to));
    for (unsigned a = 0; a < N; a++) {
        assert_string_not_equal(sl_worker_phase_name((enum sl_worker_phase)a), "unknown");
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(sl_worker_phase_name((enum sl_worker_phase)a),
                                    sl_worker_phase_name((enum sl_worker_phase)b));
    }
}

/* Changes that cannot be: test builds abort, a release logs an error and makes the change. */
static void test_what_cannot_be(void **state) {
    (void)state;
    for (unsigned from = 0; from < N; from++)
        for (unsigned to = 0; to < N; to++) {
            enum sl_worker_phase phase = (enum sl_worker_phase)from;
            if (is_allowed(from, to)) {
                sl_worker_phase_become(&phase, (enum sl_worker_phase)to);
                assert_int_equal(phase, to);
                continue;
            }
#ifdef SL_STRICT
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                signal(SIGABRT, SIG_DFL);
                assert_non_null(freopen("/dev/null", "w", stderr));
                sl_worker_phase_become(&phase, (enum sl_worker_phase)to);
                _exit(0);
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
            sl_worker_phase_become(&phase, (enum sl_worker_phase)to);
            assert_int_equal(phase, to);
#endif
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_what_cannot_be),
    };
    return cmocka_run_group_tests_name("worker_phases", tests, NULL, NULL);
}
