/* Waking the scheduler, wherever it waits: at its condition, or at a link to another machine. */
#include "engine/schedule/schedule.h"

void sl_engine_poke(struct sl_engine *e) {
    e->poked = true;
    if (!e->attends)
        pthread_cond_signal(&e->wake);
    else if (!pthread_equal(e->attendant, pthread_self()))
        sl_pipeline_nudge(e->pipeline);
}

bool sl_engine_attend(struct sl_engine *e, uint64_t until_ns) {
    if (!e->n_flying)
        return false;
    e->attends = true;
    e->attendant = pthread_self();
    pthread_mutex_unlock(&e->lock);
    bool could = sl_pipeline_attend(e->pipeline, &e->flying[0]->item, until_ns);
    pthread_mutex_lock(&e->lock);
    e->attends = false;
    return could || e->poked;
}
