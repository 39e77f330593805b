/* The scheduler thread: joins the rows of all running sessions into steps.
 *
 * A session's rows are the positions of its history that have no KV yet: prompt slices, then one
 * generated row per step. Every running session that generates has its row in every step; what is
 * left of the batch goes to prompts in equal shares. Neither shows in the output. */
#include "engine/engine_internal.h"
#include "engine/expert_tiers.h"

#include "common/clock.h"
#include "common/histograms.h"
#include "common/log.h"
#include "common/metrics.h"

#include <assert.h>
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

/* ---- rows ---- */

void sl_step_add_row(struct sl_engine *e, struct sl_step *step, uint32_t slot, uint32_t pos,
                     uint32_t id) {
    uint32_t i = step->n_rows++;
    uint32_t page = sl_forward_page(e->forward, slot, pos / SL_KV_PAGE_TOKENS);
    step->ids[i] = id;
    step->pos[i] = (int32_t)pos;
    step->slot[i] = page * SL_KV_PAGE_TOKENS + pos % SL_KV_PAGE_TOKENS;
    step->row_seq[i] = slot;
    step->row_len[i] = pos + 1;
}

/* ---- the end of a session ---- */

static void leave_slot(struct sl_engine *e, struct sl_session *s) {
    if (s->slot == SL_NO_SLOT)
        return;
    sl_session_leave_pages(e, s);
    e->slots[s->slot] = NULL;
    s->slot = SL_NO_SLOT;
    s->follows = false;
}

/* Takes the session out of wherever it is, tells the sink, frees it. */
static void finish(struct sl_engine *e, struct sl_session *s, enum sl_finish_reason reason,
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

    leave_slot(e, s);
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
        if (!s->parked)
            s->parked_ns = sl_now_ns();
        s->parked = true;
        return true;
    }
    s->parked = false;
    if (st != SL_OK) {
        bool canceled = st == SL_ERR_CANCELED;
        finish(e, s, canceled ? SL_FINISH_CANCELED : SL_FINISH_ERROR, st,
               canceled ? "the receiver of the tokens asked to stop"
                        : "the receiver of the tokens failed");
        return false;
    }
    s->history[s->n_history++] = s->pending.id;
    sl_count(predicted_tokens_total, 1);
    if (!s->pending.eog && s->n_history < s->n_max)
        return true;
    finish(e, s, s->pending.eog ? SL_FINISH_STOP : SL_FINISH_LENGTH, SL_OK, NULL);
    return false;
}

/* Picks the next token from a row of logits and offers it. */
static void sample(struct sl_engine *e, struct sl_session *s, float *logits) {
    struct sl_token *t = &s->pending;
    double lse = 0;
    t->n_top = 0;
    t->logprob = 0;
    t->use = &s->use;
    t->n_cached = s->n_cached;
    if (s->req->logprobs) {
        lse = sl_log_sum_exp(logits, e->space.n_vocab);
        sl_top_logprobs(logits, lse, &e->space, s->req->n_top_logprobs, t);
        memcpy(e->space.raw, logits, e->space.n_vocab * sizeof *logits);
    }
    uint32_t id = 0;
    enum sl_status st = SL_OK;
    if (s->req->forced)
        id = s->req->forced[sl_session_predicted(s)];
    else
        st = sl_sampler_pick(&s->sampler, &e->space, logits, s->history, s->n_history, &id);
    if (st != SL_OK) {
        const struct sl_constraint *bound = s->req->sampling.constraint;
        finish(e, s, SL_FINISH_ERROR, st,
               bound && bound->err.text[0] ? bound->err.text
                                           : "no token can be chosen: the model's logits are not "
                                             "finite (damaged weights?), or "
                                             "logit_bias forbids every token");
        return;
    }
    t->id = id;
    if (s->req->logprobs)
        t->logprob = (float)((double)e->space.raw[id] - lse);
    t->eog = sl_session_is_eog(s, id);
    offer(e, s);
}

/* ---- what happens between steps ---- */

static void sweep_one(struct sl_engine *e, struct sl_session *s, uint64_t now) {
    uint64_t deadline = s->req->deadline_ns;
    if (atomic_load(&s->cancel)) {
        finish(e, s, SL_FINISH_CANCELED, SL_ERR_CANCELED, "canceled");
    } else if (deadline && now >= deadline) {
        sl_count(requests_timed_out_total, 1);
        finish(e, s, SL_FINISH_ERROR, SL_ERR_TIMEOUT,
               s->start_ns ? "the request's time is over: it was still running"
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
static void sweep(struct sl_engine *e) {
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
        if (s && s->parked && atomic_load(&s->resume))
            offer(e, s);
    }
    for (struct sl_session *s = e->swapped.head, *next; s; s = next) {
        next = s->next;
        if (!atomic_load(&s->resume))
            continue;
        if (!offer(e, s) || s->parked)
            continue;
        sl_session_unlink(s);
        sl_session_push_front(&e->waiting, s);
        set_waiting(e, 1);
    }
}

/* The session that has been parked longest, so that its slot can serve somebody who reads. */
static struct sl_session *longest_parked(struct sl_engine *e) {
    struct sl_session *best = NULL;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (s && s->parked && (!best || s->parked_ns < best->parked_ns))
            best = s;
    }
    return best;
}

/* Is there a slot for one that waits? */
static bool can_admit(const struct sl_engine *e) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (!e->slots[i] || e->slots[i]->parked)
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
            leave_slot(e, out);
            sl_session_push_back(&e->swapped, out);
        }
        struct sl_session *s = e->waiting.head;
        sl_session_unlink(s);
        set_waiting(e, -1);
        s->slot = i;
        e->slots[i] = s;
        if (!s->start_ns) {
            s->start_ns = sl_now_ns();
            sl_observe(queue_wait, s->start_ns - s->submit_ns);
        }
    }
}

static uint32_t update_gauges(struct sl_engine *e) {
    uint32_t running = 0, parked = e->swapped.n;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        running += sl_session_runs(e->slots[i]);
        parked += e->slots[i] && e->slots[i]->parked;
    }
    sl_gauge(sessions_running, running);
    sl_gauge(sessions_parked, parked);
    sl_gauge(sessions_waiting, e->waiting.n);
    return running;
}

/* A session whose pages are not certain any more ends; it takes the others along only where the
 * device is lost. */
static enum sl_status check_pages(struct sl_engine *e, struct sl_session *s, enum sl_status st) {
    if (sl_is_fatal(st))
        return st;
    if (s->page_status != SL_OK)
        st = s->page_status;
    if (st != SL_OK) {
        struct sl_err err;
        sl_fail(&err, st, "the page table: %s", sl_status_text(st));
        finish(e, s, SL_FINISH_ERROR, st, err.text);
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
        if (s->page_status == SL_OK && !s->parked && !s->loads) {
            st = sl_session_adopt(e, s);
            if (st == SL_OK && e->ram)
                st = sl_prefix_ram_adopt(e->ram, s);
        }
        st = check_pages(e, s, st);
    }
    for (uint32_t i = 0; i < parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (!s)
            continue;
        s->follows = false;
        if (s->parked || s->loads || !sl_session_before_page(e, s))
            continue;
        for (uint32_t j = 0; j < parallel && !s->follows; j++)
            s->follows = j != i && e->slots[j] && !e->slots[j]->parked &&
                         sl_session_follows(e, s, e->slots[j]);
        if (e->disk && !s->follows)
            sl_prefix_disk_seek(e->disk, s);
    }
    if (st == SL_OK && e->disk)
        st = sl_prefix_disk_poll(e->disk); /* asks for what was found */
    return st;
}

/* ---- a step ---- */

/* Adds the rows of the sessions that generate, or of those that do not. */
static enum sl_status add_rows(struct sl_engine *e, struct sl_step *step, bool decode) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (!s || !s->step_rows || sl_session_decodes(s) != decode)
            continue;
        uint32_t end = s->n_kv + s->step_rows;
        enum sl_status st = sl_slot_reserve(e, s->slot, &s->n_pages, end);
        if (st != SL_OK)
            return st;
        s->step_first = step->n_rows;
        for (uint32_t pos = s->n_kv; pos < end; pos++)
            sl_step_add_row(e, step, s->slot, pos, s->history[pos]);
        if (end == s->n_history) {
            s->step_out = step->n_out;
            step->out_rows[step->n_out++] = step->n_rows - 1;
        }
    }
    return SL_OK;
}

struct step_abort {
    struct sl_abort base;
    struct sl_engine *e;
};

/* Asked between layers and while a step waits for the disk. Who has canceled is answered at once,
 * whatever else the step still does: its rows go on, but nobody looks at them, and its KV pages are
 * given to no other session before the step ends. The step is given up when none of its rows is
 * wanted any more. */
static bool all_canceled(const struct sl_abort *a) {
    struct sl_engine *e = ((const struct step_abort *)a)->e;
    if (atomic_load_explicit(&e->stop, memory_order_relaxed))
        return true;
    if (!atomic_exchange(&e->cancel_asked, false) && sl_now_ns() < e->next_deadline_ns)
        return false;
    pthread_mutex_lock(&e->lock);
    sl_session_splice(&e->waiting, &e->inbox);
    pthread_mutex_unlock(&e->lock);
    sweep(e);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i] && e->slots[i]->step_rows)
            return false;
    return true;
}

static void count_step(struct sl_engine *e, const struct sl_step *step, uint64_t ns) {
    uint32_t n_prompt = step->n_rows - step->n_decode;
    uint64_t prompt_ns = ns * n_prompt / step->n_rows;
    sl_count(steps_total, 1);
    sl_count(step_rows_total, step->n_rows);
    sl_count(prompt_tokens_total, n_prompt);
    sl_count(prefill_ns_total, prompt_ns);
    sl_count(decode_ns_total, ns - prompt_ns);
    sl_pace_learn(&e->pace, n_prompt, step->n_decode, ns);
}

/* Counts what the step took and gives each session its share. */
static void account(struct sl_engine *e, const struct sl_step *step, uint64_t ns) {
    struct sl_expert_use use;
    sl_activity_take(&e->activity, step->n_rows, step->n_decode, step->n_experts, ns, &use);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (s && s->step_rows)
            sl_expert_use_share(&use, s->step_first, s->step_rows, step->n_rows, &s->use);
    }
}

/* The device is lost, or the model's files are not what they were: nothing runs any more. */
static void break_down(struct sl_engine *e, enum sl_status st, const struct sl_err *err) {
    pthread_mutex_lock(&e->lock);
    e->dead = st;
    e->dead_err = *err;
    e->poked = true; /* those that wait or are parked must hear of it */
    pthread_mutex_unlock(&e->lock);
}

bool sl_is_fatal(enum sl_status st) {
    return st == SL_ERR_DEVICE_LOST || st == SL_ERR_CORRUPT;
}

enum sl_status sl_step_run(struct sl_engine *e, struct sl_step *step,
                           const struct sl_abort *give_up, float **out_logits, struct sl_err *err) {
    enum sl_status st;
    do {
        step->n_failed = 0;
        st = sl_forward_run(e->forward, give_up, out_logits, err);
        if (st == SL_OK && e->store)
            st = sl_store_verify(e->store, err);
    } while (st == SL_AGAIN);
    return st;
}

static void step_failed(struct sl_engine *e, enum sl_status st, const struct sl_err *err) {
    if (sl_is_fatal(st))
        break_down(e, st, err);
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i] && e->slots[i]->step_rows)
            finish(e, e->slots[i], SL_FINISH_ERROR, st, err->text);
}

/* Ends the sessions of which a row was lost. */
static void finish_failed(struct sl_engine *e, const struct sl_step *step,
                          const struct sl_err *err) {
    for (uint32_t i = 0; i < e->plan.config.parallel && step->n_failed; i++) {
        struct sl_session *s = e->slots[i];
        if (s && s->step_rows && memchr(step->failed + s->step_first, 1, s->step_rows))
            finish(e, s, SL_FINISH_ERROR, SL_ERR_IO, err->text);
    }
}

/* After a step, before anything is sampled: what has become full is shared. */
static enum sl_status publish(struct sl_engine *e) {
    enum sl_status st = SL_OK;
    for (uint32_t i = 0; i < e->plan.config.parallel && st == SL_OK; i++) {
        struct sl_session *s = e->slots[i];
        if (!s || !s->step_rows)
            continue;
        s->n_kv += s->step_rows;
        st = sl_session_publish(e, s);
    }
    return st;
}

static void step_done(struct sl_engine *e, float *logits) {
    uint64_t now = sl_now_ns();
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (!s || !s->step_rows)
            continue;
        s->step_rows = 0;
        struct sl_token_sink *sink = s->req->sink;
        if (!s->first_done) {
            if (sink->progress)
                sink->progress(sink, s->n_kv, s->n_prompt);
            if (s->n_kv >= s->n_prompt) {
                s->first_done = true;
                s->prompt_ns = now;
            }
        }
        if (s->step_out != UINT32_MAX && !atomic_load(&s->cancel))
            sample(e, s, logits + (size_t)s->step_out * e->space.n_vocab);
    }
}

static void run_step(struct sl_engine *e) {
    uint64_t start = sl_now_ns();
    sl_share_rows(e);
    struct sl_step *step = sl_forward_begin(e->forward);
    struct sl_err err = {{0}};
    enum sl_status st = add_rows(e, step, true);
    step->n_decode = step->n_rows;
    if (st == SL_OK)
        st = add_rows(e, step, false);
    if (st != SL_OK)
        sl_fail(&err, st, "no KV page for a running session: %s", sl_status_text(st));
    struct step_abort give_up = {{all_canceled}, e};
    float *logits = NULL;
    if (st == SL_OK) {
        st = sl_step_run(e, step, &give_up.base, &logits, &err);
        account(e, step, sl_now_ns() - start);
        sl_timeline_since(e->timeline, "step", start, {"rows", step->n_rows},
                          {"generated", step->n_decode});
    }
    if (st == SL_ERR_CANCELED)
        return; /* the next sweep finishes them */
    if (st != SL_OK) {
        step_failed(e, st, &err);
        return;
    }
    count_step(e, step, sl_now_ns() - start);
    finish_failed(e, step, &err);
    st = publish(e);
    if (st != SL_OK) {
        sl_fail(&err, st, "the page table: %s", sl_status_text(st));
        step_failed(e, st, &err);
        return;
    }
    start = sl_timeline_now(e->timeline);
    step_done(e, logits);
    sl_timeline_since(e->timeline, "sample", start, {"rows", step->n_out});
}

/* ---- the thread ---- */

static void finish_list(struct sl_engine *e, struct sl_session_list *l,
                        enum sl_finish_reason reason, enum sl_status st, const char *text) {
    while (l->head)
        finish(e, l->head, reason, st, text);
}

static void finish_all(struct sl_engine *e, enum sl_finish_reason reason, enum sl_status st,
                       const char *text) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        if (e->slots[i])
            finish(e, e->slots[i], reason, st, text);
    finish_list(e, &e->swapped, reason, st, text);
    finish_list(e, &e->waiting, reason, st, text);
}

static void end_job(struct sl_engine *e, struct sl_score_job *job, enum sl_status st) {
    pthread_mutex_lock(&e->lock);
    job->status = st;
    job->done = true;
    e->job = NULL;
    pthread_cond_broadcast(&e->job_done);
    pthread_mutex_unlock(&e->lock);
}

static void run_job(struct sl_engine *e, struct sl_score_job *job) {
    bool busy = e->waiting.n || e->swapped.n;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++)
        busy = busy || e->slots[i];
    enum sl_status st = busy ? sl_fail(job->err, SL_AGAIN, "cannot score while requests run")
                             : sl_score_run(e, job);
    if (sl_is_fatal(st))
        break_down(e, st, job->err);
    end_job(e, job, st);
}

/* Has the heat written when that is due. Returns when it will be, UINT64_MAX for never. */
static uint64_t keep_heat(struct sl_engine *e, uint64_t now, uint64_t due) {
    if (!e->store || !sl_store_heat_unsaved(e->store))
        return UINT64_MAX;
    if (now < due)
        return due;
    sl_store_save_heat(e->store);
    e->heat_saved_ns = now;
    /* While an earlier save is still being written there is none. */
    return sl_store_heat_unsaved(e->store) ? now + HEAT_IDLE_NS : UINT64_MAX;
}

/* Nothing runs. Under the lock, which is open while this waits or reads in the background. */
static void wait_for_work(struct sl_engine *e) {
    struct sl_fetch *fetch = e->store ? sl_store_fetch(e->store) : NULL;
    uint64_t now = sl_now_ns(), due = e->idle_ns + HEAT_IDLE_NS;
    if (e->heat_saved_ns && e->heat_saved_ns + HEAT_GAP_NS > due)
        due = e->heat_saved_ns + HEAT_GAP_NS;
    due = keep_heat(e, now, due);
    if (e->next_deadline_ns < due)
        due = e->next_deadline_ns;
    if (fetch && sl_fetch_has_background(fetch)) {
        pthread_mutex_unlock(&e->lock);
        sl_fetch_idle(fetch, BACKGROUND_NS);
        struct sl_expert_use use;
        sl_activity_take(&e->activity, 0, 0, 0, 0, &use);
        if (e->timeline)
            sl_timeline_pause(e->timeline, false);
        pthread_mutex_lock(&e->lock);
    } else if (due == UINT64_MAX) {
        pthread_cond_wait(&e->wake, &e->lock);
    } else {
        struct timespec until = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
        pthread_cond_timedwait(&e->wake, &e->lock, &until);
    }
}

/* Shows where the experts are to those who have asked since the last time. */
static void show_experts(struct sl_engine *e) {
    if (!sl_expert_map_asked(e->map))
        return;
    struct sl_fetch *fetch = e->store ? sl_store_fetch(e->store) : NULL;
    if (!fetch) {
        sl_expert_map_publish(e->map, NULL, NULL, 0, sl_now_ns());
        return;
    }
    const struct sl_tiers *tiers = sl_fetch_tiers(fetch);
    const struct sl_cache *device = tiers ? sl_tiers_cache(tiers) : NULL;
    struct sl_expert_map_tier slots[] = {{SL_TIER_HOST, sl_fetch_cache(fetch)},
                                         {SL_TIER_DEVICE, device}};
    sl_expert_map_publish(e->map, sl_fetch_heat(fetch), slots, device ? 2 : 1, sl_now_ns());
}

void *sl_scheduler_main(void *arg) {
    struct sl_engine *e = arg;
    uint32_t n_running = 0;
    bool stepped = false; /* who follows is looked at again: who led may have ended or parked */
    uint64_t started_ns = sl_now_ns();
    show_experts(e);
    for (;;) {
        pthread_mutex_lock(&e->lock);
        e->idle_ns = sl_now_ns();
        while (!e->poked && !n_running && !stepped && !(e->waiting.n && can_admit(e)) &&
               sl_now_ns() < e->next_deadline_ns)
            wait_for_work(e);
        e->poked = false;
        sl_session_splice(&e->waiting, &e->inbox);
        struct sl_score_job *job = e->job;
        bool stop = atomic_load(&e->stop);
        enum sl_status dead = e->dead;
        pthread_mutex_unlock(&e->lock);

        sweep(e);
        if (dead != SL_OK) {
            if (job)
                end_job(e, job, sl_fail(job->err, dead, "%s", e->dead_err.text));
            finish_all(e, SL_FINISH_ERROR, dead, e->dead_err.text);
        } else if (!stop) {
            if (job)
                run_job(e, job);
            offer_resumed(e);
            admit(e);
            struct sl_err err;
            enum sl_status st = settle(e);
            if (st != SL_OK) { /* no page is certain now: no further step */
                sl_fail(&err, st, "the page table: %s", sl_status_text(st));
                break_down(e, st, &err);
                finish_all(e, SL_FINISH_ERROR, st, err.text);
            }
        }
        n_running = update_gauges(e);
        show_experts(e);
        if (stop)
            break;
        stepped = n_running > 0;
        if (stepped) {
            run_step(e);
            uint64_t last = e->heat_saved_ns ? e->heat_saved_ns : started_ns;
            keep_heat(e, sl_now_ns(), last + e->heat_busy_ns);
        }
        n_running = update_gauges(e);
        sl_slots_publish(e);
        if (e->timeline)
            sl_timeline_pause(e->timeline, !n_running);
    }
    finish_all(e, SL_FINISH_CANCELED, SL_ERR_CANCELED, "the engine is shutting down");
    update_gauges(e);
    if (e->disk && e->dead == SL_OK)
        sl_prefix_disk_flush(e->disk, FLUSH_NS);
    if (e->store)
        sl_store_quit(e->store);
    sl_activity_close(&e->activity);
    pthread_mutex_lock(&e->lock);
    if (e->job) {
        e->job->status = sl_fail(e->job->err, SL_ERR_CANCELED, "the engine is shutting down");
        e->job->done = true;
        e->job = NULL;
        pthread_cond_broadcast(&e->job_done);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}
