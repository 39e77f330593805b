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

/* Hands over the logits of the step's rows, which start at position first. */
static enum sl_status hand_over(struct sl_engine *e, struct sl_score_job *job, uint32_t first,
                                uint32_t n) {
    for (uint32_t i = 0; i < n;) {
        uint32_t m = n - i < e->plan.n_logit_rows ? n - i : e->plan.n_logit_rows;
        float *logits;
        enum sl_status st = sl_forward_logits(e->forward, i, m, &logits, job->err);
        if (st != SL_OK)
            return st;
        for (uint32_t j = 0; j < m; j++)
            if (!job->on_logits(job->ctx, first + i + j, logits + (size_t)j * e->space.n_vocab))
                return sl_fail(job->err, SL_ERR_CANCELED, "scoring was canceled");
        i += m;
    }
    return SL_OK;
}

enum sl_status sl_score_run(struct sl_engine *e, struct sl_score_job *job) {
    struct score_abort give_up = {{stopping}, e};
    uint32_t n_pages = 0, batch = e->plan.config.batch_tokens;
    enum sl_status st = sl_slot_reserve(e, 0, &n_pages, job->n_ids);
    if (st != SL_OK)
        st = sl_fail(job->err, st, "no KV pages to score %u tokens", job->n_ids);
    for (uint32_t pos = 0; pos < job->n_ids && st == SL_OK;) {
        uint32_t n = job->n_ids - pos < batch ? job->n_ids - pos : batch;
        struct sl_step *step = sl_forward_begin(e->forward);
        step->keep_all = true;
        for (uint32_t i = 0; i < n; i++)
            sl_step_add_row(e, step, 0, pos + i, job->ids[pos + i]);
        float *none;
        uint64_t start = sl_now_ns();
        st = sl_step_run(e, step, &give_up.base, &none, job->err);
        struct sl_expert_use use;
        sl_activity_take(&e->activity, n, 0, step->n_experts, sl_now_ns() - start, &use);
        if (st == SL_OK && step->n_failed)
            st = SL_ERR_IO; /* the run has said why */
        if (st == SL_OK)
            st = hand_over(e, job, pos, n);
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
    struct sl_score_job job = {
        .ids = ids, .n_ids = n_ids, .on_logits = on_logits, .ctx = ctx, .err = err};
    pthread_mutex_lock(&e->lock);
    if (e->job || e->dead != SL_OK || atomic_load(&e->stop)) {
        enum sl_status st = e->job ? sl_fail(err, SL_AGAIN, "another text is being scored")
                            : e->dead != SL_OK
                                ? sl_fail(err, e->dead, "%s", e->dead_err.text)
                                : sl_fail(err, SL_ERR_CANCELED, "the engine is shutting down");
        pthread_mutex_unlock(&e->lock);
        return st;
    }
    e->job = &job;
    e->poked = true;
    pthread_cond_signal(&e->wake);
    while (!job.done)
        pthread_cond_wait(&e->job_done, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return job.status;
}
