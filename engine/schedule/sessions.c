/* What happens to a session whatever the scheduler does next: it leaves its slot, ends, gets a
 * token, is canceled, runs out of time. */
#include "engine/schedule/schedule.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"

#include <stdlib.h>

/* ---- its place ---- */

void sl_session_leave_slot(struct sl_engine *e, struct sl_session *s) {
    if (s->slot == SL_NO_SLOT)
        return;
    sl_steps_forget(e, s);
    sl_session_leave_pages(e, s);
    e->slots[s->slot] = NULL;
    s->slot = SL_NO_SLOT;
}

void sl_sessions_set_waiting(struct sl_engine *e, int change) {
    pthread_mutex_lock(&e->lock);
    e->n_waiting += (uint32_t)change;
    pthread_mutex_unlock(&e->lock);
}

void sl_session_wait_first(struct sl_engine *e, struct sl_session *s) {
    sl_session_push_front(&e->waiting, s);
    sl_sessions_set_waiting(e, 1);
}

struct sl_session *sl_slots_last_come(const struct sl_engine *e) {
    struct sl_session *last = NULL;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i] && (!last || e->slots[i]->task > last->task))
            last = e->slots[i];
    return last;
}

/* ---- its end ---- */

/* Takes the session out of wherever it is, tells the sink, frees it. */
void sl_session_finish(struct sl_engine *e, struct sl_session *s, enum sl_finish_reason reason,
                       enum sl_status status, const char *text) {
    uint64_t now = sl_now_ns();
    struct sl_gen_result result = {.reason = reason,
                                   .status = status,
                                   .n_prompt = s->n_prompt,
                                   .n_predicted = sl_session_predicted(s),
                                   .n_cached = s->n_cached,
                                   .n_draft = s->n_drafted,
                                   .n_draft_accepted = s->n_draft_accepted,
                                   .experts = s->use};
    if (text)
        sl_fail(&result.err, status, "%s", text);
    uint64_t started = s->start_ns ? s->start_ns : now;
    uint64_t prompted = s->prompt_ns ? s->prompt_ns : now;
    result.queue_ns = started - s->submit_ns;
    result.prefill_ns = prompted - started;
    result.decode_ns = now - prompted;
    if (e->timeline)
        sl_timeline_request(e->timeline, s->submit_ns, now,
                            (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){
                                {"prompt tokens", s->n_prompt},
                                {"generated tokens", result.n_predicted},
                                {"queue_ns", (int64_t)result.queue_ns},
                                {"prefill_ns", (int64_t)result.prefill_ns},
                                {"decode_ns", (int64_t)result.decode_ns},
                                {"status", status}});

    sl_session_leave_slot(e, s);
    pthread_mutex_lock(&e->lock);
    if (s->in == &e->waiting)
        e->n_waiting--;
    e->n_alive--;
    sl_session_unlink(s);
    s->req->engine_private = NULL; /* a cancel that comes now finds nothing to do */
    pthread_mutex_unlock(&e->lock);

    if (reason == SL_FINISH_CANCELED)
        sl_count(requests_canceled_total, 1);
    if (reason == SL_FINISH_ERROR) {
        sl_count(requests_failed_total, 1);
        sl_error("a request failed: %s", result.err.text);
    }
    struct sl_token_sink *sink = s->req->sink;
    free(s);
    /* A client that has its answer must no longer find its request among the slots. */
    sl_slots_update_gauges(e);
    sl_slots_publish(e);
    sink->finish(sink, &result);
}

static void finish_list(struct sl_engine *e, struct sl_session_list *l,
                        enum sl_finish_reason reason, enum sl_status status, const char *text) {
    while (l->head)
        sl_session_finish(e, l->head, reason, status, text);
}

void sl_sessions_finish_all(struct sl_engine *e, enum sl_finish_reason reason,
                            enum sl_status status, const char *text) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i])
            sl_session_finish(e, e->slots[i], reason, status, text);
    finish_list(e, &e->swapped, reason, status, text);
    finish_list(e, &e->waiting, reason, status, text);
}

static void sweep_one(struct sl_engine *e, struct sl_session *s, uint64_t now) {
    uint64_t deadline = s->req->deadline_ns;
    if (atomic_load(&s->cancel)) {
        sl_session_finish(e, s, SL_FINISH_CANCELED, SL_ERR_CANCELED, "canceled");
    } else if (deadline && now >= deadline) {
        sl_count(requests_timed_out_total, 1);
        sl_session_finish(e, s, SL_FINISH_ERROR, SL_ERR_TIMEOUT,
                          s->start_ns
                              ? "the request's time is over: it was still running"
                              : "the request's time is over: it was still waiting for its turn");
    } else if (deadline && deadline < e->next_deadline_ns) {
        e->next_deadline_ns = deadline;
    }
}

static void sweep_list(struct sl_engine *e, struct sl_session_list *l, uint64_t now) {
    for (struct sl_session *s = l->head, *next; s; s = next) {
        next = s->next;
        sweep_one(e, s, now);
    }
}

/* Ends sessions that were canceled or have run out of time, wherever they are. */
void sl_sessions_sweep(struct sl_engine *e) {
    uint64_t now = sl_now_ns();
    e->next_deadline_ns = UINT64_MAX;
    sweep_list(e, &e->waiting, now);
    sweep_list(e, &e->swapped, now);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i])
            sweep_one(e, e->slots[i], now);
}

/* The device is lost, or the model's files have changed: nothing runs any more. The first error is
 * the one that is reported, since the steps behind it fail as its consequence. */
void sl_engine_break_down(struct sl_engine *e, enum sl_status status, const struct sl_err *err) {
    pthread_mutex_lock(&e->lock);
    if (e->dead == SL_OK) {
        e->dead = status;
        e->dead_err = *err;
    }
    e->poked = true; /* those that wait or are parked must hear of it */
    pthread_mutex_unlock(&e->lock);
}

/* ---- its tokens ---- */

/* Offers the pending token. False: the session has ended and is gone. */
bool sl_session_offer(struct sl_engine *e, struct sl_session *s) {
    struct sl_token_sink *sink = s->req->sink;
    /* Cleared before the push: a resume that overtakes the parking below is not lost. */
    atomic_store(&s->resume, false);
    enum sl_status status = sink->push(sink, &s->pending);
    if (status == SL_AGAIN) {
        if (s->state != SL_SESSION_PARKED && s->state != SL_SESSION_SWAPPED) {
            s->parked_ns = sl_now_ns();
            sl_session_become(s, SL_SESSION_PARKED);
        }
        return true;
    }
    if (s->state == SL_SESSION_PARKED)
        sl_session_become(s, SL_SESSION_READY);
    else if (s->state == SL_SESSION_SWAPPED)
        sl_session_become(s, SL_SESSION_WAITING);
    if (status != SL_OK) {
        bool canceled = status == SL_ERR_CANCELED;
        sl_session_finish(e, s, canceled ? SL_FINISH_CANCELED : SL_FINISH_ERROR, status,
                          canceled ? "the receiver of the tokens asked to stop"
                                   : "the receiver of the tokens failed");
        return false;
    }
    s->history[s->n_history++] = s->pending.id;
    sl_count(predicted_tokens_total, 1);
    if (!s->pending.eog && s->n_history < s->n_max)
        return true;
    sl_session_finish(e, s, s->pending.eog ? SL_FINISH_STOP : SL_FINISH_LENGTH, SL_OK, NULL);
    return false;
}

static enum sl_status choose(struct sl_engine *e, struct sl_session *s, const struct sl_logits *row,
                             uint32_t *out_id, float *out_logit) {
    if (!row->rows)
        return sl_sampler_largest(&e->space, &row->blocks, out_id);
    return sl_sampler_pick(&s->sampler, &e->space, row->rows, &row->blocks, s->history,
                           s->n_history, out_id, s->req->logprobs ? out_logit : NULL);
}

/* The token that was said beforehand. One is chosen all the same, so that it takes as long as any
 * other; whatever comes of that does not matter. */
static void choose_forced(struct sl_engine *e, struct sl_session *s, const struct sl_logits *row,
                          uint32_t *out_id, float *out_logit) {
    uint32_t id = s->req->forced[sl_session_predicted(s)], other;
    float logit = row->rows ? row->rows[id] : 0, unused;
    if (!s->req->sampling.constraint)
        (void)!choose(e, s, row, &other, &unused);
    *out_id = id;
    *out_logit = logit;
}

/* Picks the next token from a row of logits and offers it. */
bool sl_session_sample(struct sl_engine *e, struct sl_session *s, const struct sl_logits *row) {
    struct sl_token *t = &s->pending;
    double lse = 0;
    if (s->req->prompt_only) {
        sl_session_finish(e, s, SL_FINISH_LENGTH, SL_OK, NULL);
        return false;
    }
    t->n_top = 0;
    t->logprob = 0;
    t->use = &s->use;
    t->n_cached = s->n_cached;
    if (s->req->logprobs) {
        lse = sl_log_sum_exp(row->rows, &row->blocks, e->space.n_vocab);
        sl_top_logprobs(&e->space, row->rows, &row->blocks, lse, s->req->n_top_logprobs, t);
    }
    uint32_t id = 0;
    float logit = 0;
    enum sl_status status = SL_OK;
    if (s->req->forced)
        choose_forced(e, s, row, &id, &logit);
    else
        status = choose(e, s, row, &id, &logit);
    if (status != SL_OK) {
        const struct sl_constraint *bound = s->req->sampling.constraint;
        sl_session_finish(e, s, SL_FINISH_ERROR, status,
                          bound && bound->err.text[0]
                              ? bound->err.text
                              : "no token can be chosen: the model's logits are not "
                                "finite (damaged weights?), or "
                                "logit_bias forbids every token");
        return false;
    }
    t->id = id;
    if (s->req->logprobs)
        t->logprob = (float)((double)logit - lse);
    t->eog = sl_session_is_eog(s, id);
    return sl_session_offer(e, s);
}
