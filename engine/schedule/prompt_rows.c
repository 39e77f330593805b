/* Requests that want something of every row of their prompt: the log-probability of its next token,
 * or its hidden state. Steps of such rows keep all of them; the last stage is then asked for a few
 * rows at a time, before any other step is sent. */
#include "engine/schedule/schedule.h"

struct kept_rows {
    struct sl_pipeline_item item; /* first */
    struct sl_stage_call calls[SL_MAX_STAGES];
    enum sl_stage_request what;
    struct sl_ask_logits ask;
    uint32_t last; /* stage */
};

static bool ask_rows(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    const struct kept_rows *k = (const struct kept_rows *)(const void *)p;
    c->ask.what = k->what;
    c->ask.logits = k->ask;
    return stage == k->last;
}

uint32_t sl_kept_rows_most(const struct sl_engine *e) {
    return sl_pipeline_hello(e->pipeline, e->n_stages - 1)->n_logit_rows;
}

/* Asks the last stage, and waits. */
static enum sl_status get_rows(struct sl_engine *e, const struct sl_micro_batch *l,
                               enum sl_stage_request what, uint32_t first, uint32_t n,
                               struct sl_stage_arrays *out_with, struct sl_err *err) {
    struct kept_rows k = {.item = {.ask = ask_rows}, .what = what, .last = e->n_stages - 1};
    k.ask = (struct sl_ask_logits){l->step.micro_batch, first, n};
    k.item.calls = k.calls;
    sl_pipeline_send(e->pipeline, &k.item);
    sl_pipeline_wait(e->pipeline, &k.item);
    const struct sl_stage_call *last = &k.calls[k.last];
    *out_with = last->with;
    if (last->answer.status != SL_OK && err)
        *err = last->answer.err;
    return last->answer.status;
}

enum sl_status sl_kept_logits(struct sl_engine *e, const struct sl_micro_batch *l, uint32_t first,
                              uint32_t n, float **out_logits, struct sl_err *err) {
    struct sl_stage_arrays with;
    enum sl_status status = get_rows(e, l, SL_STAGE_LOGITS, first, n, &with, err);
    *out_logits = status == SL_OK ? with.out_logits.rows : NULL;
    return status;
}

/* The row of position pos gives the log-probability of the token after it. */
static void tell_logprob(struct sl_engine *e, struct sl_session *s, uint32_t pos,
                         const float *logits) {
    struct sl_token t = {.id = s->history[pos + 1]};
    double lse = sl_log_sum_exp(logits, NULL, e->space.n_vocab);
    sl_top_logprobs(&e->space, logits, NULL, lse, s->req->n_top_logprobs, &t);
    t.logprob = (float)((double)logits[t.id] - lse);
    s->req->scored(s->req->sink, pos + 1, &t);
}

static enum sl_status tell_some(struct sl_engine *e, const struct sl_micro_batch *l,
                                struct sl_session *s, uint32_t row, uint32_t pos, uint32_t n,
                                struct sl_err *err) {
    struct sl_stage_arrays with;
    uint32_t n_embd = e->model->hp.n_embd, n_vocab = e->space.n_vocab;
    if (s->req->scored) {
        SL_TRY(get_rows(e, l, SL_STAGE_LOGITS, row, n, &with, err));
        for (uint32_t i = 0; i < n && pos + i + 1 < s->n_prompt; i++)
            tell_logprob(e, s, pos + i, with.out_logits.rows + (size_t)i * n_vocab);
    }
    if (s->req->hidden) {
        SL_TRY(get_rows(e, l, SL_STAGE_HIDDEN, row, n, &with, err));
        for (uint32_t i = 0; i < n; i++)
            s->req->hidden(s->req->sink, pos + i, with.out_rows + (size_t)i * n_embd);
    }
    return SL_OK;
}

enum sl_status sl_session_tell(struct sl_engine *e, const struct sl_micro_batch *l, uint32_t slot,
                               struct sl_err *err) {
    const struct sl_micro_batch_share *a = &l->shares[slot];
    struct sl_session *s = a->s;
    uint32_t most = sl_kept_rows_most(e), start = s->n_kv, end = start + a->rows;
    while (s->n_told < end && s->n_told < s->n_prompt) {
        if (atomic_load(&s->cancel))
            return SL_OK; /* the next sweep ends it */
        /* After the loss of a machine some rows are computed a second time. */
        uint32_t pos = s->n_told, n = end - pos < most ? end - pos : most;
        SL_TRY(tell_some(e, l, s, a->first + (pos - start), pos, n, err));
        s->n_told += n;
    }
    return SL_OK;
}
