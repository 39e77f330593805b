/* Checks of a table of states (common/states.h): that it is what is listed, and what becomes of a
 * change that is not. */
#ifndef TESTS_SUPPORT_STATE_TABLE_H
#define TESTS_SUPPORT_STATE_TABLE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/states.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* The table a second time: what is not listed must be refused. */
struct state_change {
    unsigned from, to;
};

static bool is_listed(const struct state_change *list, size_t n, unsigned from, unsigned to) {
    for (size_t i = 0; i < n; i++)
        if (list[i].from == from && list[i].to == to)
            return true;
    return false;
}

static inline void check_states(const struct sl_states *t, const struct state_change *list,
                                size_t n) {
    for (unsigned from = 0; from <= t->n; from++)
        for (unsigned to = 0; to <= t->n; to++)
            if (sl_states_may(t, from, to) != is_listed(list, n, from, to))
                fail_msg("%s to %s", sl_states_name(t, from), sl_states_name(t, to));
    assert_string_equal(sl_states_name(t, t->n), "unknown");
    for (unsigned a = 0; a < t->n; a++)
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(sl_states_name(t, a), sl_states_name(t, b));
}

/* change(from, to) makes the change and returns the state that there is then. What is not listed
 * aborts in test builds; a release logs an error and makes the change. */
static inline void check_changes(const struct sl_states *t, const struct state_change *list,
                                 size_t n, unsigned (*change)(unsigned from, unsigned to)) {
    for (unsigned from = 0; from < t->n; from++)
        for (unsigned to = 0; to < t->n; to++) {
#ifdef SL_STRICT
            if (!is_listed(list, n, from, to)) {
                pid_t child = fork();
                assert_true(child >= 0);
                if (child == 0) {
                    signal(SIGABRT, SIG_DFL);
                    assert_non_null(freopen("/dev/null", "w", stderr));
                    (void)change(from, to);
                    _exit(0);
                }
                int status;
                assert_int_equal(waitpid(child, &status, 0), child);
                assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
                continue;
            }
#else
            (void)list;
            (void)n;
#endif
            assert_int_equal(change(from, to), to);
        }
}

#endif
