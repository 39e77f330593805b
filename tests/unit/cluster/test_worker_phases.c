/* The table of a worker's phases. The changes themselves are made in tests/cluster. */
#include "cluster/worker_phase.h"

#include "tests/support/state_table.h"

#define N (sizeof allowed / sizeof *allowed)

static const struct state_change allowed[] = {
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

static void the_table(void **state) {
    (void)state;
    check_states(&sl_worker_phases, allowed, N);
}

static unsigned change(unsigned from, unsigned to) {
    enum sl_worker_phase phase = (enum sl_worker_phase)from;
    sl_worker_phase_become(&phase, (enum sl_worker_phase)to);
    return phase;
}

static void what_cannot_be(void **state) {
    (void)state;
    check_changes(&sl_worker_phases, allowed, N, change);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table),
        cmocka_unit_test(what_cannot_be),
    };
    return cmocka_run_group_tests_name("worker_phases", tests, NULL, NULL);
}
