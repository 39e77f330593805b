/* Logits of every position of one text, for perplexity and comparisons. */
#include "engine/engine.h"
#include "engine/schedule/schedule.h"

#include "common/clock.h"

struct scoring {
    struct sl_job job; /* first */
    const uint32_t *ids;
    uint32_t n_ids;
    bool (*on_logits)(void *ctx, uint32_t pos, const float *logits);
    void *ctx;
};

/* Hands over the logits of the step's rows, which start at position first. */
static enum sl_status hand_over(struct sl_engine *e, const struct scoring *s, uint32_t first,
                                uint32_t n) {
    uint32_t most = sl_kept_rows_most(e);
    for (uint32_t i = 0; i < n;) {
        uint32_t m = n - i < most ? n - i : most;
        float *logits;
        SL_TRY(sl_kept_logits(e, e->micro_batches, i, m, &logits, s->job.err));
        for (uint32_t j = 0; j < m; j++)
            if (!s->on_logits(s->ctx, first + i + j, logits + (size_t)j * e->space.n_vocab))
                return sl_fail(s->job.err, SL_ERR_CANCELED, "scoring was canceled");
        i += m;
    }
    return SL_OK;
}

static enum sl_status score(struct sl_engine *e, struct sl_job *job) {
    const struct scoring *s = (const struct scoring *)job;
    struct sl_held_pages held = {0};
    uint32_t batch = e->plan.config.batch_tokens;
    enum sl_status status = SL_OK;
    for (uint32_t pos = 0; pos < s->n_ids && status == SL_OK;) {
        uint32_t n = s->n_ids - pos < batch ? s->n_ids - pos : batch;
        sl_slot_pass(e, 0, &held, pos);
        status = sl_slot_reserve(e, 0, &held, pos + n, pos + n);
        if (status != SL_OK) {
            status = sl_fail(job->err, status, "no KV pages to score %u tokens", s->n_ids);
            break;
        }
        struct sl_micro_batch *l = e->micro_batches;
        sl_micro_batch_begin(l);
        l->step.keep_all = true;
        for (uint32_t i = 0; i < n; i++) {
            sl_step_add_row(e, &l->step, 0, pos + i, s->ids[pos + i]);
            sl_step_add_before(&l->step, s->ids, pos + i);
        }
        uint64_t start = sl_now_ns();
        sl_step_send(e, l);
        sl_pipeline_wait(e->pipeline, &l->item);
        sl_micro_batch_end(l, e->n_stages);
        sl_activity_take(&e->activity, n, 0, sl_now_ns() - start, &l->found);
        status = l->status == SL_OK && l->step.n_failed ? SL_ERR_IO : l->status;
        if (status != SL_OK)
            *job->err = l->err;
        if (status == SL_OK)
            status = hand_over(e, s, pos, n);
        pos += n;
    }
    sl_slot_release(e, 0, &held);
    return status;
}

enum sl_status sl_engine_score(struct sl_engine *e, const uint32_t *ids, uint32_t n_ids,
                               bool (*on_logits)(void *ctx, uint32_t pos, const float *logits),
                               void *ctx, struct sl_err *err) {
    if (!n_ids || n_ids > e->plan.config.ctx_tokens)
        return sl_fail(err, n_ids ? SL_ERR_CONTEXT_FULL : SL_ERR_INVALID,
                       "%u tokens to score: the context takes 1 to %u", n_ids,
                       e->plan.config.ctx_tokens);
    for (uint32_t i = 0; i < n_ids; i++)
        if (ids[i] >= e->model->hp.n_vocab)
            return sl_fail(err, SL_ERR_INVALID, "token %u is %u, outside the vocabulary of %u", i,
                           ids[i], e->model->hp.n_vocab);
    struct scoring s = {.job = {.run = score, .what = "score", .err = err},
                        .ids = ids,
                        .n_ids = n_ids,
                        .on_logits = on_logits,
                        .ctx = ctx};
    return sl_job_do(e, &s.job);
}
