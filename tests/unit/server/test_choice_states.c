/* The table of a choice's states. The changes themselves are made in tests/http. */
#include "server/exchange/choice_state.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define N SL_CHOICE_STATES

/* The table a second time: what is not listed here must be refused. */
static const struct {
    enum sl_choice_state from, to;
} allowed[] = {
    {SL_CHOICE_NEW, SL_CHOICE_SUBMITTING},      {SL_CHOICE_SUBMITTING, SL_CHOICE_RUNNING},
    {SL_CHOICE_SUBMITTING, SL_CHOICE_FINISHED}, {SL_CHOICE_SUBMITTING, SL_CHOICE_NEW},
    {SL_CHOICE_RUNNING, SL_CHOICE_FINISHED},
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
            if (sl_choice_state_may((enum sl_choice_state)from, (enum sl_choice_state)to) !=
                is_allowed(from, to))
                fail_msg("%s to %s", sl_choice_state_name((enum sl_choice_state)from),
                         sl_choice_state_name((enum sl_choice_state)to));
    for (unsigned a = 0; a < N; a++) {
        assert_string_not_equal(sl_choice_state_name((enum sl_choice_state)a), "unknown");
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(sl_choice_state_name((enum sl_choice_state)a),
                                    sl_choice_state_name((enum sl_choice_state)b));
    }
}

/* Changes that cannot be: test builds abort, a release logs an error and makes the change. */
static void test_what_cannot_be(void **state) {
    (void)state;
    for (unsigned from = 0; from < N; from++)
        for (unsigned to = 0; to < N; to++) {
            enum sl_choice_state now = (enum sl_choice_state)from;
            if (is_allowed(from, to)) {
                sl_choice_state_become(&now, (enum sl_choice_state)to);
                assert_int_equal(now, to);
                continue;
            }
#ifdef SL_STRICT
            pid_t child = fork();
            assert_true(child >= 0);
            if (child == 0) {
                signal(SIGABRT, SIG_DFL);
                assert_non_null(freopen("/dev/null", "w", stderr));
                sl_choice_state_become(&now, (enum sl_choice_state)to);
                _exit(0);
            }
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#else
            sl_choice_state_become(&now, (enum sl_choice_state)to);
            assert_int_equal(now, to);
#endif
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_what_cannot_be),
    };
    return cmocka_run_group_tests_name("choice_states", tests, NULL, NULL);
}
