/* Jobs: work that a caller has the scheduler's thread do while nothing runs, and waits for. */
#include "engine/schedule/schedule.h"

enum sl_status sl_job_do(struct sl_engine *e, struct sl_job *job) {
    enum sl_status status = SL_OK;
    pthread_mutex_lock(&e->lock);
    if (e->job)
        status = sl_fail(job->err, SL_AGAIN, "cannot %s: the engine is doing such work for another",
                         job->what);
    else if (e->dead != SL_OK)
        status = sl_fail(job->err, e->dead, "%s", e->dead_err.text);
    else if (atomic_load(&e->stop))
        status = sl_fail(job->err, SL_ERR_CANCELED, "the engine is shutting down");
    if (status == SL_OK) {
        e->job = job;
        sl_engine_poke(e);
        while (!job->done)
            pthread_cond_wait(&e->job_done, &e->lock);
        status = job->status;
    }
    pthread_mutex_unlock(&e->lock);
    return status;
}

void sl_job_end(struct sl_engine *e, struct sl_job *job, enum sl_status status) {
    pthread_mutex_lock(&e->lock);
    job->status = status;
    job->done = true;
    e->job = NULL;
    pthread_cond_broadcast(&e->job_done);
    pthread_mutex_unlock(&e->lock);
}

void sl_job_run(struct sl_engine *e, struct sl_job *job) {
    bool busy = e->waiting.n || e->swapped.n;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        busy = busy || e->slots[i];
    if (!busy) { /* what is left of canceled ones */
        sl_steps_drain(e);
        sl_steps_end(e);
    }
    enum sl_status status =
        busy ? sl_fail(job->err, SL_AGAIN, "cannot %s while requests run", job->what)
             : job->run(e, job);
    if (sl_is_fatal(status))
        sl_engine_break_down(e, status, job->err);
    sl_job_end(e, job, status);
}
