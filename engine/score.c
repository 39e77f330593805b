/* Logits of every position of one text, for perplexity and comparisons. */
#include "engine/engine_internal.h"

#include "common/clock.h"

struct score_abort {
    struct sl_abort base;
    struct sl_engine *e;
};

static bool stopping(const struct sl_abort *a) {
    return atomic_load_explicit(&((const struct score_abort *)a)->e->stop, memory_order_relaxed);
}

struct scoring {
    struct sl_job job; /* first */
    const uint32_t *ids;
    uint32_t n_ids;
    bool (*on_logits)(void *ctx, uint32_t pos, const float *logits);
    void *ctx;
};

/* Logits of some rows of the step, asked of the last stage. */
struct rows_logits {
    struct sl_passage passage; /* first */
    uint32_t first, n;
    float *logits;
    struct sl_err *err;
    enum sl_status status;
};

static void logits_at_stage(struct sl_passage *p, struct sl_stage *stage) {
    struct rows_logits *r = (struct rows_logits *)(void *)p;
    if (sl_stage_is_last(stage))
        r->status = sl_forward_logits(stage->forward, r->first, r->n, &r->logits, r->err);
}

/* Hands over the logits of the step's rows, which start at position first. */
static enum sl_status hand_over(struct sl_engine *e, const struct scoring *s, uint32_t first,
                                uint32_t n) {
    uint32_t most = e->stages[e->n_stages - 1].plan->n_logit_rows;
    for (uint32_t i = 0; i < n;) {
        uint32_t m = n - i < most ? n - i : most;
        struct rows_logits r = {
            .passage = {.at_stage = logits_at_stage}, .first = i, .n = m, .err = s->job.err};
        sl_pipeline_send(e->pipeline, &r.passage);
        sl_pipeline_wait(e->pipeline, &r.passage);
        if (r.status != SL_OK)
            return r.status;
        for (uint32_t j = 0; j < m; j++)
            if (!s->on_logits(s->ctx, first + i + j, r.logits + (size_t)j * e->space.n_vocab))
                return sl_fail(s->job.err, SL_ERR_CANCELED, "scoring was canceled");
        i += m;
    }
    return SL_OK;
}

static enum sl_status score(struct sl_engine *e, struct sl_job *job) {
    const struct scoring *s = (const struct scoring *)job;
    struct score_abort give_up = {{stopping}, e};
    uint32_t n_pages = 0, batch = e->plan.config.batch_tokens;
    enum sl_status st = sl_slot_reserve(e, 0, &n_pages, s->n_ids);
    if (st != SL_OK)
        st = sl_fail(job->err, st, "no KV pages to score %u tokens", s->n_ids);
    for (uint32_t pos = 0; pos < s->n_ids && st == SL_OK;) {
        uint32_t n = s->n_ids - pos < batch ? s->n_ids - pos : batch;
        struct sl_lane *l = e->lanes;
        sl_lane_begin(l);
        l->step.keep_all = true;
        for (uint32_t i = 0; i < n; i++)
            sl_step_add_row(e, &l->step, 0, pos + i, s->ids[pos + i]);
        uint64_t start = sl_now_ns();
        sl_step_send(e, l, &give_up.base);
        sl_pipeline_wait(e->pipeline, &l->passage);
        sl_lane_end(l);
        sl_activity_take(&e->activity, n, 0, sl_now_ns() - start, &l->found);
        st = l->status == SL_OK && l->step.n_failed ? SL_ERR_IO : l->status;
        if (st != SL_OK)
            *job->err = l->err;
        if (st == SL_OK)
            st = hand_over(e, s, pos, n);
        pos += n;
    }
    sl_slot_release(e, 0, &n_pages);
    return st;
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
