/* How far a worker is with its coordinator, and which phase may follow which.
 *
 *     WAITING --> GREETING --> GREETED <--> OFFERING
 *        ^                        ^
 *        |                        +-------> LOADING --> SERVING
 *        |
 *        +-- PARTING <-- any but WAITING
 *
 * That the coordinator is gone, or is to go, is no phase: that may come at any time, and what is
 * being done ends first. LOADING becomes GREETED again if it fails; then the coordinator has to go.
 * PARTING lasts until the link is closed: until then the place is taken. */
#ifndef SL_CLUSTER_WORKER_PHASE_H
#define SL_CLUSTER_WORKER_PHASE_H

#include "common/states.h"

enum sl_worker_phase {
    SL_WORKER_PHASE_WAITING,  /* there is no coordinator, and no link */
    SL_WORKER_PHASE_GREETING, /* one is connected; its hello has not come */
    SL_WORKER_PHASE_GREETED,  /* it says next what it wants */
    SL_WORKER_PHASE_OFFERING, /* it has named a model, for which an offer is to be made */
    SL_WORKER_PHASE_LOADING,  /* it has asked for layers, which are to be loaded */
    SL_WORKER_PHASE_SERVING,  /* it can use them */
    SL_WORKER_PHASE_PARTING,  /* its link is being closed: nobody else may use it */
    SL_WORKER_PHASES,
};

extern const struct sl_states sl_worker_phases;
/* Changes *phase; sl_states_check() first. */
void sl_worker_phase_become(enum sl_worker_phase *phase, enum sl_worker_phase next);

#endif
