#include "cluster/worker_phase.h"

#define TO(p) (1u << SL_WORKER_PHASE_##p)

static const unsigned char to[SL_WORKER_PHASES] = {
    [SL_WORKER_PHASE_WAITING] = TO(GREETING),
    [SL_WORKER_PHASE_GREETING] = TO(GREETED) | TO(PARTING),
    [SL_WORKER_PHASE_GREETED] = TO(OFFERING) | TO(LOADING) | TO(PARTING),
    [SL_WORKER_PHASE_OFFERING] = TO(GREETED) | TO(PARTING),
    [SL_WORKER_PHASE_LOADING] = TO(SERVING) | TO(GREETED) | TO(PARTING),
    [SL_WORKER_PHASE_SERVING] = TO(PARTING),
    [SL_WORKER_PHASE_PARTING] = TO(WAITING),
};
static const char *const names[SL_WORKER_PHASES] = {"waiting", "greeting", "greeted", "offering",
                                                    "loading", "serving",  "parting"};
const struct sl_states sl_worker_phases = {"a worker", SL_WORKER_PHASES, names, to};

void sl_worker_phase_become(enum sl_worker_phase *phase, enum sl_worker_phase next) {
    sl_states_check(&sl_worker_phases, *phase, next, 0);
    *phase = next;
}
