/* The table of a choice's states. The changes themselves are made in tests/http. */
#include "server/exchange/choice_state.h"

#include "tests/support/state_table.h"

#define N (sizeof allowed / sizeof *allowed)

static const struct state_change allowed[] = {
    {SL_CHOICE_NEW, SL_CHOICE_SUBMITTING},      {SL_CHOICE_SUBMITTING, SL_CHOICE_RUNNING},
    {SL_CHOICE_SUBMITTING, SL_CHOICE_FINISHED}, {SL_CHOICE_SUBMITTING, SL_CHOICE_NEW},
    {SL_CHOICE_RUNNING, SL_CHOICE_FINISHED},
};

static void the_table(void **state) {
    (void)state;
    check_states(&sl_choice_states, allowed, N);
}

static unsigned change(unsigned from, unsigned to) {
    enum sl_choice_state now = (enum sl_choice_state)from;
    sl_choice_state_become(&now, (enum sl_choice_state)to);
    return now;
}

static void what_cannot_be(void **state) {
    (void)state;
    check_changes(&sl_choice_states, allowed, N, change);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(what_cannot_be),
    };
    return cmocka_run_group_tests_name("choice_states", tests, NULL, NULL);
}
