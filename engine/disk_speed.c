/* How fast the disk gives experts to where they go, asked of a stage between two runs. */
#include "engine/engine_internal.h"

#define MAX_SECONDS 60

struct measuring {
    struct sl_job job; /* first */
    double seconds, bytes_per_s;
};

/* On its way through the stages: the first that can measures, since the disk is one for all. */
struct measurement {
    struct sl_passage passage; /* first */
    double seconds, bytes_per_s;
    struct sl_fetch_abort give_up;
    struct sl_activity_sums found;
    enum sl_status status;
    struct sl_err err;
};

static bool stopping(void *ctx) {
    const struct sl_engine *e = ctx;
    return atomic_load_explicit(&e->stop, memory_order_relaxed);
}

static void measure_at_stage(struct sl_passage *p, struct sl_stage *stage) {
    struct measurement *m = (struct measurement *)(void *)p;
    if (m->status != SL_ERR_UNSUPPORTED || (stage->index > 0 && !stage->store))
        return;
    m->status =
        sl_stage_disk_speed(stage, m->seconds, &m->give_up, &m->bytes_per_s, &m->found, &m->err);
}

static enum sl_status measure(struct sl_engine *e, struct sl_job *job) {
    struct measuring *asked = (struct measuring *)job;
    struct measurement m = {.passage = {.at_stage = measure_at_stage},
                            .seconds = asked->seconds,
                            .give_up = {stopping, e},
                            .status = SL_ERR_UNSUPPORTED};
    sl_pipeline_send(e->pipeline, &m.passage);
    sl_pipeline_wait(e->pipeline, &m.passage);
    sl_activity_take(&e->activity, 0, 0, 0, &m.found);
    asked->bytes_per_s = m.bytes_per_s;
    if (m.status != SL_OK)
        *job->err = m.err;
    return m.status;
}

enum sl_status sl_engine_disk_speed(struct sl_engine *e, double seconds, double *out_bytes_per_s,
                                    struct sl_err *err) {
    if (!(seconds > 0 && seconds <= MAX_SECONDS))
        return sl_fail(err, SL_ERR_INVALID,
                       "measuring the disk for %g seconds: above 0 up to %d are possible", seconds,
                       MAX_SECONDS);
    struct measuring m = {.job = {.run = measure, .what = "measure the disk", .err = err},
                          .seconds = seconds};
    enum sl_status st = sl_job_do(e, &m.job);
    if (st == SL_OK)
        *out_bytes_per_s = m.bytes_per_s;
    return st;
}
