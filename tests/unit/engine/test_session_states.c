/* The table of a session's states. The changes themselves are tested where they are made:
 * test_scheduler (slots, parking), test_prefix (following), test_prefix_disk (loading). */
#include "engine/session/session.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define N SL_SESSION_STATES

/* The table a second time: what is not listed here must be refused. */
static const struct {
    enum sl_session_state from, to;
} allowed[] = {
    {SL_SESSION_WAITING, SL_SESSION_READY},
    {SL_SESSION_READY, SL_SESSION_FOLLOWING},
    {SL_SESSION_READY, SL_SESSION_LOADING},
    {SL_SESSION_READY, SL_SESSION_PARKED},
    {SL_SESSION_FOLLOWING, SL_SESSION_READY},
    {SL_SESSION_LOADING, SL_SESSION_READY},
    {SL_SESSION_PARKED, SL_SESSION_READY},
    {SL_SESSION_PARKED, SL_SESSION_SWAPPED},
    {SL_SESSION_SWAPPED, SL_SESSION_WAITING},
    /* A machine with some of the layers is lost: tests/cluster. */
    {SL_SESSION_READY, SL_SESSION_WAITING},
    {SL_SESSION_FOLLOWING, SL_SESSION_WAITING},
    {SL_SESSION_LOADING, SL_SESSION_WAITING},
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
            if (sl_session_may((enum sl_session_state)from, (enum sl_session_state)to) !=
                is_allowed(from, to))
                fail_msg("%s to %s", sl_session_state_name((enum sl_session_state)from),
                         sl_session_state_name((enum sl_session_state)to));
    for (unsigned a = 0; a < N; a++) {
        assert_string_not_equal(sl_session_state_name((enum sl_session_state)a), "unknown");
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(sl_session_state_name((enum sl_session_state)a),
                                    sl_session_state_name((enum sl_session_state)b));
    }
}

/* Every state can be reached from every other: none is a trap. */
static void test_no_trap(void **state) {
    (void)state;
    for (unsigned from = 0; from < N; from++) {
        unsigned reached = 1u << from;
        for (unsigned round = 0; round < N; round++)
            for (size_t i = 0; i < N_ALLOWED; i++)
                if (reached >> allowed[i].from & 1)
                    reached |= 1u << allowed[i].to;
        assert_int_equal(reached, (1u << N) - 1);
    }
}

/* Changes that cannot be: test builds abort, a release logs an error and makes the change. */
static void test_what_cannot_be(void **state) {
    (void)state;
    struct sl_session *s = calloc(1, sizeof *s);
    assert_non_null(s);
    for (unsigned from = 0; from < N; from++)
        for (unsigned to = 0; to < N; to++) {
            if (is_allowed(from, to))
                continue;
            s->state = (enum sl_session_state)from;
#ifdef SL_STRICT
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                signal(SIGABRT, SIG_DFL);
                assert_non_null(freopen("/dev/null", "w", stderr));
                sl_session_become(s, (enum sl_session_state)to);
                _exit(0);
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
            sl_session_become(s, (enum sl_session_state)to);
            assert_int_equal(s->state, to);
#endif
        }
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_no_trap),
        cmocka_unit_test(test_what_cannot_be),
    };
    return cmocka_run_group_tests_name("session_states", tests, NULL, NULL);
}
