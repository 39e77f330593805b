/* The table of a session's states. The changes themselves are tested where they are made:
 * test_scheduler (slots, parking), test_prefix (following), test_prefix_disk (loading). */
#include "engine/session/session.h"

#include "tests/support/state_table.h"

#include <stdlib.h>

#define N (sizeof allowed / sizeof *allowed)

static const struct state_change allowed[] = {
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

static void the_table(void **state) {
    (void)state;
    check_states(&sl_session_states, allowed, N);
}

/* Every state can be reached from every other: none is a trap. */
static void no_trap(void **state) {
    (void)state;
    for (unsigned from = 0; from < SL_SESSION_STATES; from++) {
        unsigned reached = 1u << from;
        for (unsigned round = 0; round < SL_SESSION_STATES; round++)
            for (size_t i = 0; i < N; i++)
                if (reached >> allowed[i].from & 1)
                    reached |= 1u << allowed[i].to;
        assert_int_equal(reached, (1u << SL_SESSION_STATES) - 1);
    }
}

static unsigned change(unsigned from, unsigned to) {
    struct sl_session *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->state = (enum sl_session_state)from;
    sl_session_become(s, (enum sl_session_state)to);
    unsigned now = s->state;
    free(s);
    return now;
}

static void what_cannot_be(void **state) {
    (void)state;
    check_changes(&sl_session_states, allowed, N, change);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(no_trap),
        cmocka_unit_test(what_cannot_be),
    };
    return cmocka_run_group_tests_name("session_states", tests, NULL, NULL);
}
