/* The scheduler thread: joins the rows of all running sessions into steps.
 *
 * A session's rows are the positions of its history that have no KV yet: prompt slices, then one
 * generated row per step. Every running session that generates has its row in every step; what is
 * left of the batch goes to prompts in equal shares. Neither shows in the output. */
#include "engine/engine_internal.h"

#include "common/clock.h"
#include "common/cond.h"
#include "common/histograms.h"
#include "common/log.h"
#include "common/metrics.h"

#include <stdlib.h>
#include <string.h>

/* A new request waits at most so long while experts are read in the background. */
#define BACKGROUND_NS 5000000
/* What is known of the experts' heat goes to its file when nothing has run for so long, but at most
 * so often. */
#define HEAT_IDLE_NS 1000000000u
#define HEAT_GAP_NS  10000000000u
/* At the end, new prefixes are written for so long at most. */
#define FLUSH_NS 3000000000u

/* ---- what is shown ---- */

static uint32_t update_gauges(struct sl_engine *e) {
    uint32_t running = 0, parked = e->swapped.n;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        running += sl_session_runs(e->slots[i]);
        parked += sl_session_is(e->slots[i], SL_SESSION_PARKED);
    }
    sl_gauge(sessions_running, running);
    sl_gauge(sessions_parked, parked);
    sl_gauge(sessions_waiting, e->waiting.n);
    return running;
}

/* ---- the end of a session ---- */

void sl_session_leave_slot(struct sl_engine *e, struct sl_session *s) {
    if (s->slot == SL_NO_SLOT)
        return;
    sl_steps_forget(e, s);
    sl_session_leave_pages(e, s);
    e->slots[s->slot] = NULL;
    s->slot = SL_NO_SLOT;
}

/* Takes the session out of wherever it is, tells the sink, frees it. */
void sl_session_finish(struct sl_engine *e, struct sl_session *s, enum sl_finish_reason reason,
                       enum sl_status status, const char *text) {
    uint64_t now = sl_now_ns();
    struct sl_gen_result result = {.reason = reason,
                                   .status = status,
                                   .n_prompt = s->n_prompt,
                                   .n_predicted = sl_session_predicted(s),
                                   .n_cached = s->n_cached,
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
    /* Whoever has the answer must not find its request shown any more. */
    update_gauges(e);
    sl_slots_publish(e);
    sink->finish(sink, &result);
}

/* ---- tokens ---- */

/* Offers the pending token. False: the session has ended and is gone. */
static bool offer(struct sl_engine *e, struct sl_session *s) {
    struct sl_token_sink *sink = s->req->sink;
    /* Cleared before the push: a resume that overtakes the parking below is not lost. */
    atomic_store(&s->resume, false);
    enum sl_status st = sink->push(sink, &s->pending);
    if (st == SL_AGAIN) {
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
    if (st != SL_OK) {
        bool canceled = st == SL_ERR_CANCELED;
        sl_session_finish(e, s, canceled ? SL_FINISH_CANCELED : SL_FINISH_ERROR, st,
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
void sl_session_sample(struct sl_engine *e, struct sl_session *s, const struct sl_logits *row) {
    struct sl_token *t = &s->pending;
    double lse = 0;
    if (s->req->prompt_only) {
        sl_session_finish(e, s, SL_FINISH_LENGTH, SL_OK, NULL);
        return;
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
    enum sl_status st = SL_OK;
    if (s->req->forced)
        choose_forced(e, s, row, &id, &logit);
    else
        st = choose(e, s, row, &id, &logit);
    if (st != SL_OK) {
        const struct sl_constraint *bound = s->req->sampling.constraint;
        sl_session_finish(e, s, SL_FINISH_ERROR, st,
                          bound && bound->err.text[0]
                              ? bound->err.text
                              : "no token can be chosen: the model's logits are not "
                                "finite (damaged weights?), or "
                                "logit_bias forbids every token");
        return;
    }
    t->id = id;
    if (s->req->logprobs)
        t->logprob = (float)((double)logit - lse);
    t->eog = sl_session_is_eog(s, id);
    offer(e, s);
}

/* ---- what happens between steps ---- */

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

/* Ends what was canceled and what is out of time, wherever it is. */
void sl_sessions_sweep(struct sl_engine *e) {
    uint64_t now = sl_now_ns();
    e->next_deadline_ns = UINT64_MAX;
    sweep_list(e, &e->waiting, now);
    sweep_list(e, &e->swapped, now);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i])
            sweep_one(e, e->slots[i], now);
}

static void set_waiting(struct sl_engine *e, int change) {
    pthread_mutex_lock(&e->lock);
    e->n_waiting += (uint32_t)change;
    pthread_mutex_unlock(&e->lock);
}

/* Offers again where the sink has room; a swapped-out session that goes on takes the first place in
 * the queue, since its turn had come long ago. */
static void offer_resumed(struct sl_engine *e) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (sl_session_is(s, SL_SESSION_PARKED) && atomic_load(&s->resume))
            offer(e, s);
    }
    for (struct sl_session *s = e->swapped.head, *next; s; s = next) {
        next = s->next;
        if (!atomic_load(&s->resume))
            continue;
        if (!offer(e, s) || s->state == SL_SESSION_SWAPPED)
            continue;
        sl_session_unlink(s);
        sl_session_wait_first(e, s);
    }
}

void sl_session_wait_first(struct sl_engine *e, struct sl_session *s) {
    sl_session_push_front(&e->waiting, s);
    set_waiting(e, 1);
}

struct sl_session *sl_slots_last_come(const struct sl_engine *e) {
    struct sl_session *last = NULL;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i] && (!last || e->slots[i]->task > last->task))
            last = e->slots[i];
    return last;
}

/* The session that has been parked longest, so that its slot can serve somebody who reads. */
static struct sl_session *longest_parked(struct sl_engine *e) {
    struct sl_session *best = NULL;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (sl_session_is(s, SL_SESSION_PARKED) && (!best || s->parked_ns < best->parked_ns))
            best = s;
    }
    return best;
}

/* Is there a slot for one that waits? */
static bool can_admit(const struct sl_engine *e) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (!e->slots[i] || sl_session_is(e->slots[i], SL_SESSION_PARKED))
            return true;
    return false;
}

/* Gives free slots to waiting sessions, in order. A parked session loses its slot and its KV to one
 * that waits; when it is resumed its history is processed again, generated rows as generated rows,
 * so that the outcome is the same. */
static void admit(struct sl_engine *e) {
    for (uint32_t i = 0; e->waiting.head;) {
        while (i < e->plan.config.parallel && e->slots[i])
            i++;
        if (i == e->plan.config.parallel) {
            struct sl_session *out = longest_parked(e);
            if (!out)
                return;
            i = out->slot;
            sl_session_leave_slot(e, out);
            sl_session_become(out, SL_SESSION_SWAPPED);
            sl_session_push_back(&e->swapped, out);
        }
        struct sl_session *s = e->waiting.head;
        sl_session_unlink(s);
        set_waiting(e, -1);
        sl_session_become(s, SL_SESSION_READY);
        s->slot = i;
        e->slots[i] = s;
        if (!s->start_ns) {
            s->start_ns = sl_now_ns();
            sl_observe(queue_wait, s->start_ns - s->submit_ns);
        }
    }
}

/* A session whose pages are not certain any more ends; it takes the others along only where the
 * device is lost. */
static enum sl_status check_pages(struct sl_engine *e, struct sl_session *s, enum sl_status st) {
    const struct sl_err lost = {"a page could not be copied"};
    if (sl_is_fatal(st))
        return st;
    if (sl_engine_is_away(e, st, &lost) || sl_engine_is_away(e, s->page_status, &lost)) {
        s->page_status = SL_OK; /* its pages are given up with all others */
        return SL_OK;
    }
    if (s->page_status != SL_OK)
        st = s->page_status;
    if (st != SL_OK) {
        struct sl_err err;
        sl_fail(&err, st, "the page table: %s", sl_status_text(st));
        sl_session_finish(e, s, SL_FINISH_ERROR, st, err.text);
    }
    return SL_OK;
}

/* Before a step: each session takes what is known of its text, and one whose next page another
 * session is about to compute waits for it. Who leads is runnable, or follows one that is. A
 * failure is the device's loss. */
static enum sl_status settle(struct sl_engine *e) {
    uint32_t parallel = e->plan.config.parallel;
    enum sl_status st = e->disk ? sl_prefix_disk_poll(e->disk) : SL_OK;
    for (uint32_t i = 0; i < parallel && st == SL_OK; i++) {
        struct sl_session *s = e->slots[i];
        if (!s)
            continue;
        bool waits = s->state == SL_SESSION_PARKED || s->state == SL_SESSION_LOADING;
        if (s->page_status == SL_OK && !waits) {
            sl_session_adopt(e, s);
            if (e->ram)
                st = sl_prefix_ram_adopt(e->ram, s);
        }
        st = check_pages(e, s, st);
    }
    for (uint32_t i = 0; i < parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (!s)
            continue;
        if (s->state == SL_SESSION_FOLLOWING)
            sl_session_become(s, SL_SESSION_READY);
        if (s->state != SL_SESSION_READY || !sl_session_before_page(e, s))
            continue;
        bool follows = false;
        for (uint32_t j = 0; j < parallel && !follows; j++)
            follows = j != i && e->slots[j] && e->slots[j]->state != SL_SESSION_PARKED &&
                      sl_session_follows(e, s, e->slots[j]);
        if (follows)
            sl_session_become(s, SL_SESSION_FOLLOWING);
        else if (e->disk)
            sl_prefix_disk_seek(e->disk, s);
    }
    if (st == SL_OK && e->disk)
        st = sl_prefix_disk_poll(e->disk); /* asks for what was found */
    return st;
}

/* The device is lost, or the model's files are not what they were: nothing runs any more. What
 * came first is what is said: steps that were behind it fail of it. */
void sl_engine_break_down(struct sl_engine *e, enum sl_status st, const struct sl_err *err) {
    pthread_mutex_lock(&e->lock);
    if (e->dead == SL_OK) {
        e->dead = st;
        e->dead_err = *err;
    }
    e->poked = true; /* those that wait or are parked must hear of it */
    pthread_mutex_unlock(&e->lock);
}

bool sl_is_fatal(enum sl_status st) {
    return st == SL_ERR_DEVICE_LOST || st == SL_ERR_CORRUPT;
}

/* ---- the thread ---- */

static void finish_list(struct sl_engine *e, struct sl_session_list *l,
                        enum sl_finish_reason reason, enum sl_status st, const char *text) {
    while (l->head)
        sl_session_finish(e, l->head, reason, st, text);
}

static void finish_all(struct sl_engine *e, enum sl_finish_reason reason, enum sl_status st,
                       const char *text) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i])
            sl_session_finish(e, e->slots[i], reason, st, text);
    finish_list(e, &e->swapped, reason, st, text);
    finish_list(e, &e->waiting, reason, st, text);
}

void sl_sessions_fail(struct sl_engine *e, enum sl_status st, const char *text) {
    finish_all(e, SL_FINISH_ERROR, st, text);
}

/* Has the heat written when that is due. Returns when it will be, UINT64_MAX for never. */
static uint64_t keep_heat(struct sl_engine *e, uint64_t now, uint64_t due) {
    if (e->heat && e->n_ended > e->n_gathered) {
        if (now < due)
            return due;
        e->n_gathered = e->n_ended;
        e->heat_saved_ns = now;
        sl_joint_heat_save(e->heat, e->pipeline, false);
        return UINT64_MAX;
    }
    if (!sl_pipeline_heat_unsaved(e->pipeline))
        return UINT64_MAX;
    if (now < due)
        return due;
    sl_pipeline_save_heat(e->pipeline);
    e->heat_saved_ns = now;
    /* While an earlier save is still being written there is none. */
    return sl_pipeline_heat_unsaved(e->pipeline) ? now + HEAT_IDLE_NS : UINT64_MAX;
}

/* What stages have read meanwhile. */
static void count_background(struct sl_engine *e) {
    struct sl_activity_sums found = {0};
    sl_pipeline_background(e->pipeline, &found);
    sl_activity_take(&e->activity, 0, 0, 0, &found);
}

/* With one stage the scheduler's thread is that stage's. */
static void read_in_background(struct sl_engine *e) {
    sl_pipeline_idle(e->pipeline, BACKGROUND_NS);
    count_background(e);
    if (e->timeline)
        sl_timeline_pause(e->timeline, false);
}

/* There is nothing to send. Under the lock, which is open while this waits, saves or reads in the
 * background. */
static void wait_for_work(struct sl_engine *e) {
    uint64_t now = sl_now_ns(), due = UINT64_MAX;
    if (!e->n_flying) {
        due = e->idle_ns + HEAT_IDLE_NS;
        if (e->heat_saved_ns && e->heat_saved_ns + HEAT_GAP_NS > due)
            due = e->heat_saved_ns + HEAT_GAP_NS;
        /* The lock is open, since a stage that has something to say takes it before it does its
         * part of saving. */
        pthread_mutex_unlock(&e->lock);
        due = keep_heat(e, now, due);
        pthread_mutex_lock(&e->lock);
        if (e->poked)
            return;
    }
    if (e->next_deadline_ns < due)
        due = e->next_deadline_ns;
    if (!e->n_flying && sl_pipeline_may_idle(e->pipeline)) {
        pthread_mutex_unlock(&e->lock);
        read_in_background(e);
        pthread_mutex_lock(&e->lock);
    } else if (due == UINT64_MAX) {
        pthread_cond_wait(&e->wake, &e->lock);
    } else {
        sl_cond_wait_until(&e->wake, &e->lock, due);
    }
}

/* A look at the experts, on its way through the stages; nobody waits for it. */
struct sl_expert_show {
    struct sl_pipeline_item item; /* first */
    struct sl_stage_call calls[SL_MAX_STAGES];
    struct sl_expert_map *map;
    struct sl_expert_map_part parts[SL_MAX_STAGES];
    uint64_t asked_ns[SL_MAX_STAGES];
};

static bool ask_experts(struct sl_pipeline_item *p, uint32_t stage, struct sl_stage_call *c) {
    struct sl_expert_show *s = (struct sl_expert_show *)(void *)p;
    const struct sl_stage_hello *h = sl_pipeline_hello(p->pipeline, stage);
    if (!sl_expert_map_asked(s->map, stage))
        return false;
    s->asked_ns[stage] = sl_now_ns();
    c->ask.what = SL_STAGE_EXPERTS;
    c->with.bytes = sl_expert_map_ask(s->map, &s->parts[stage]);
    c->with.n_bytes = (size_t)s->parts[stage].n * h->n_expert;
    return true;
}

static void take_experts(struct sl_pipeline_item *p, uint32_t stage,
                         struct sl_stage_metrics *shown) {
    struct sl_expert_show *s = (struct sl_expert_show *)(void *)p;
    (void)shown;
    if (s->calls[stage].answer.status == SL_OK)
        sl_expert_map_publish(s->map, &s->parts[stage], s->asked_ns[stage]);
}

enum sl_status sl_show_create(struct sl_engine *e, struct sl_err *err) {
    struct sl_expert_show *s = e->show = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for looking at experts");
    s->item =
        (struct sl_pipeline_item){.ask = ask_experts, .answered = take_experts, .calls = s->calls};
    s->map = e->map;
    for (uint32_t i = 0, first = 0; i < e->n_stages; i++) {
        uint32_t n = sl_pipeline_hello(e->pipeline, i)->n_routed;
        s->parts[i] = (struct sl_expert_map_part){i, first, n};
        first += n;
    }
    return SL_OK;
}

static void show_experts(struct sl_engine *e) {
    bool asked = false;
    for (uint32_t i = 0; i < e->n_stages; i++)
        asked = asked || sl_expert_map_asked(e->map, i);
    if (asked && sl_pipeline_done(e->pipeline, &e->show->item))
        sl_pipeline_send(e->pipeline, &e->show->item);
}

static void finish_everything(struct sl_engine *e) {
    finish_all(e, SL_FINISH_CANCELED, SL_ERR_CANCELED, "the engine is shutting down");
    sl_steps_drain(e);
    sl_steps_end(e);
    update_gauges(e);
    if (e->disk && e->dead == SL_OK)
        sl_prefix_disk_flush(e->disk, FLUSH_NS);
    if (e->heat && e->dead == SL_OK)
        sl_joint_heat_save(e->heat, e->pipeline, true);
    sl_pipeline_close(&e->pipeline);
    sl_activity_close(&e->activity);
    pthread_mutex_lock(&e->lock);
    struct sl_job *job = e->job;
    pthread_mutex_unlock(&e->lock);
    if (job)
        sl_job_end(e, job, sl_fail(job->err, SL_ERR_CANCELED, "the engine is shutting down"));
}

/* Everything but steps: who is done, who comes, who goes on. */
static void tend(struct sl_engine *e, struct sl_job *job, enum sl_status dead) {
    if (dead != SL_OK) {
        if (job)
            sl_job_end(e, job, sl_fail(job->err, dead, "%s", e->dead_err.text));
        finish_all(e, SL_FINISH_ERROR, dead, e->dead_err.text);
        return;
    }
    if (job)
        sl_job_run(e, job);
    offer_resumed(e);
    sl_engine_tend_away(e);
    if (e->away)
        return;
    admit(e);
    struct sl_err err;
    enum sl_status st = settle(e);
    if (st != SL_OK) { /* no page is certain now: no further step */
        sl_pages_fail(e, &err, st, "the page table");
        sl_engine_break_down(e, st, &err);
        finish_all(e, SL_FINISH_ERROR, st, err.text);
    }
}

/* Seen before the stage that ended it says so: who went to sleep then would have to be woken. */
static bool step_has_ended(const struct sl_engine *e) {
    return e->n_flying && sl_pipeline_done(e->pipeline, &e->flying[0]->item);
}

void *sl_scheduler_main(void *arg) {
    struct sl_engine *e = arg;
    bool wanted = false;  /* a step could be made */
    bool stepped = false; /* who follows is looked at again: who led may have ended or parked */
    uint64_t started_ns = sl_now_ns();
    show_experts(e);
    for (;;) {
        if (!wanted && !stepped && e->n_flying)
            sl_pipeline_look_out(e->pipeline, &e->flying[0]->item);
        pthread_mutex_lock(&e->lock);
        e->idle_ns = sl_now_ns();
        while (!e->poked && !wanted && !stepped && !step_has_ended(e) &&
               !(e->waiting.n && !e->away && can_admit(e)) && sl_now_ns() < e->next_deadline_ns)
            wait_for_work(e);
        e->poked = false;
        sl_session_splice(&e->waiting, &e->inbox);
        struct sl_job *job = e->job;
        bool stop = atomic_load(&e->stop);
        enum sl_status dead = e->dead;
        pthread_mutex_unlock(&e->lock);

        stepped = sl_steps_end(e);
        sl_sessions_sweep(e);
        if (dead != SL_OK || !stop)
            tend(e, job, dead);
        update_gauges(e);
        count_background(e);
        show_experts(e);
        if (stop)
            break;
        while (e->dead == SL_OK && !e->away && sl_steps_start(e))
            ;
        stepped = sl_steps_end(e) || stepped;
        if (stepped) {
            uint64_t last = e->heat_saved_ns ? e->heat_saved_ns : started_ns;
            keep_heat(e, sl_now_ns(), last + e->heat_busy_ns);
        }
        uint32_t n_running = update_gauges(e);
        wanted = e->dead == SL_OK && !e->away && sl_steps_wanted(e);
        sl_slots_publish(e);
        if (e->timeline)
            sl_timeline_pause(e->timeline, !n_running);
    }
    finish_everything(e);
    return NULL;
}
