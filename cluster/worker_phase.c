#include "cluster/worker_phase.h"

#include "common/log.h"

#include <stdlib.h>

#define TO(p) (1u << SL_WORKER_PHASE_##p)

static const unsigned char table[SL_WORKER_PHASES] = {
    [SL_WORKER_PHASE_WAITING] = TO(GREETING),
    [SL_WORKER_PHASE_GREETING] = TO(GREETED) | TO(PARTING),
    [SL_WORKER_PHASE_GREETED] = TO(OFFERING) | TO(LOADING) | TO(PARTING),
    [SL_WORKER_PHASE_OFFERING] = TO(GREETED) | TO(PARTING),
    [SL_WORKER_PHASE_LOADING] = TO(SERVING) | TO(GREETED) | TO(PARTING),
    [SL_WORKER_PHASE_SERVING] = TO(PARTING),
    [SL_WORKER_PHASE_PARTING] = TO(WAITING),
};

bool sl_worker_phase_may(enum sl_worker_phase from, enum sl_worker_phase to) {
    return (unsigned)from < SL_WORKER_PHASES && (unsigned)to < SL_WORKER_PHASES &&
           table[from] >> to & 1;
}

const char *sl_worker_phase_name(enum sl_worker_phase phase) {
    static const char *const names[SL_WORKER_PHASES] = {
        "waiting", "greeting", "greeted", "offering", "loading", "serving", "parting"};
    return (unsigned)phase < SL_WORKER_PHASES ? names[phase] : "unknown";
}

void sl_worker_phase_become(enum sl_worker_phase *phase, enum sl_worker_phase to) {
    if (!sl_worker_phase_may(*phase, to)) {
        sl_error("a worker that is %s cannot become %s (a bug in the program)",
                 sl_worker_phase_name(*phase), sl_worker_phase_name(to));
#ifdef SL_STRICT
        abort();
#endif
    }
    *phase = to;
}
