/* How fast the disk gives experts to where they go, asked of a stage between two runs. */
#include "engine/engine.h"
#include "engine/schedule/schedule.h"

struct measuring {
    struct sl_job job; /* first */
    double seconds, bytes_per_s;
};

/* On its way through the stages: the first that can measures, since the disk is one for all. */
struct measurement {
    struct sl_pipeline_item item; /* first */
    struct sl_stage_call calls[SL_MAX_STAGES];
    double seconds;
    uint32_t asked; /* the stage that was last */
};

static bool ask_speed(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    struct measurement *m = (struct measurement *)(void *)p;
    const struct sl_stage_hello *h = sl_pipeline_hello(p->pipeline, stage);
    if (stage && (m->calls[m->asked].answer.status != SL_ERR_UNSUPPORTED || !h->heat_bytes))
        return false;
    m->asked = stage;
    c->ask.what = SL_STAGE_DISK_SPEED;
    c->ask.disk_speed.seconds = m->seconds;
    return true;
}

static enum sl_status measure(struct sl_engine *e, struct sl_job *job) {
    struct measuring *asked = (struct measuring *)job;
    struct measurement m = {.item = {.ask = ask_speed, .may_be_canceled = true},
                            .seconds = asked->seconds};
    struct sl_activity_sums found = {0};
    m.item.calls = m.calls;
    sl_pipeline_send(e->pipeline, &m.item);
    sl_pipeline_wait(e->pipeline, &m.item);
    for (uint32_t i = 0; i < e->n_stages; i++)
        sl_activity_add(&found, &m.calls[i].answer.found);
    sl_activity_take(&e->activity, 0, 0, 0, &found);
    const struct sl_stage_answer *a = &m.calls[m.asked].answer;
    asked->bytes_per_s = a->disk_speed.bytes_per_s;
    if (a->status != SL_OK)
        *job->err = a->err;
    return a->status;
}

enum sl_status sl_engine_disk_speed(struct sl_engine *e, double seconds, double *out_bytes_per_s,
                                    struct sl_err *err) {
    if (!(seconds > 0 && seconds <= SL_STAGE_MAX_SECONDS))
        return sl_fail(err, SL_ERR_INVALID,
                       "measuring the disk for %g seconds: above 0 up to %d are possible", seconds,
                       SL_STAGE_MAX_SECONDS);
    struct measuring m = {.job = {.run = measure, .what = "measure the disk", .err = err},
                          .seconds = seconds};
    enum sl_status status = sl_job_do(e, &m.job);
    if (status == SL_OK)
        *out_bytes_per_s = m.bytes_per_s;
    return status;
}
