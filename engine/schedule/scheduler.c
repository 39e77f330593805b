/* The scheduler thread: joins the rows of all running sessions into steps.
 *
 * A session's rows are the positions of its history that have no KV yet: prompt slices, then one
 * generated row per step. Every running session that generates has its row in every step; what is
 * left of the batch goes to prompts in equal shares. Neither shows in the output. */
#include "engine/schedule/schedule.h"

#include "common/clock.h"
#include "common/cond.h"
#include "common/histograms.h"
#include "common/log.h"
#include "common/metrics.h"

#include <stdlib.h>
#include <string.h>

/* The longest that background reading of experts may delay a new request. */
#define BACKGROUND_NS 5000000
/* Heat is written to its file when nothing has run for this long, but no more often than this. */
#define HEAT_IDLE_NS 1000000000u
#define HEAT_GAP_NS  10000000000u
/* At shutdown, new prefixes are written for no longer than this. */
#define FLUSH_NS 3000000000u

/* ---- what happens between steps ---- */

/* Offers again where the sink has room; a swapped-out session that goes on takes the first place in
 * the queue, since its turn had come long ago. */
static void offer_resumed(struct sl_engine *e) {
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (sl_session_is(s, SL_SESSION_PARKED) && atomic_load(&s->resume))
            sl_session_offer(e, s);
    }
    for (struct sl_session *s = e->swapped.head, *next; s; s = next) {
        next = s->next;
        if (!atomic_load(&s->resume))
            continue;
        if (!sl_session_offer(e, s) || s->state == SL_SESSION_SWAPPED)
            continue;
        sl_session_unlink(s);
        sl_session_wait_first(e, s);
    }
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

/* Is there a slot for a waiting session? */
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
        sl_sessions_set_waiting(e, -1);
        sl_session_become(s, SL_SESSION_READY);
        s->slot = i;
        e->slots[i] = s;
        if (!s->start_ns) {
            s->start_ns = sl_now_ns();
            sl_observe(queue_wait, s->start_ns - s->submit_ns);
        }
    }
}

/* A session whose pages can no longer be trusted ends; the others end with it only if the device is
 * lost. */
static enum sl_status check_pages(struct sl_engine *e, struct sl_session *s,
                                  enum sl_status status) {
    const struct sl_err lost = {"a page could not be copied"};
    if (sl_is_fatal(status))
        return status;
    if (sl_engine_is_away(e, status, &lost) || sl_engine_is_away(e, s->page_status, &lost)) {
        s->page_status = SL_OK; /* its pages are given up with all others */
        return SL_OK;
    }
    if (s->page_status != SL_OK)
        status = s->page_status;
    if (status != SL_OK) {
        struct sl_err err;
        sl_fail(&err, status, "the page table: %s", sl_status_text(status));
        sl_session_finish(e, s, SL_FINISH_ERROR, status, err.text);
    }
    return SL_OK;
}

/* Before a step: each session takes what is known of its text, and one whose next page another
 * session is about to compute waits for it. Who leads is runnable, or follows one that is. A
 * failure is the device's loss. */
static enum sl_status settle(struct sl_engine *e) {
    uint32_t parallel = e->plan.config.parallel;
    enum sl_status status = e->disk ? sl_prefix_disk_poll(e->disk) : SL_OK;
    for (uint32_t i = 0; i < parallel && status == SL_OK; i++) {
        struct sl_session *s = e->slots[i];
        if (!s)
            continue;
        bool waits = s->state == SL_SESSION_PARKED || s->state == SL_SESSION_LOADING;
        if (s->page_status == SL_OK && !waits) {
            sl_session_adopt(e, s);
            if (e->ram)
                status = sl_prefix_ram_adopt(e->ram, s);
        }
        status = check_pages(e, s, status);
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
    if (status == SL_OK && e->disk)
        status = sl_prefix_disk_poll(e->disk); /* asks for what was found */
    return status;
}

/* ---- the thread ---- */

/* Starts writing the heat if that is due. Returns when it will next be due, UINT64_MAX for never.
 */
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
    /* No save starts while an earlier one is still being written. */
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
    } else if (sl_engine_attend(e, due)) {
        return;
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
    sl_sessions_finish_all(e, SL_FINISH_CANCELED, SL_ERR_CANCELED, "the engine is shutting down");
    sl_steps_drain(e);
    sl_steps_end(e);
    sl_slots_update_gauges(e);
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

/* Everything between steps: ending, admitting and resuming sessions. */
static void tend(struct sl_engine *e, struct sl_job *job, enum sl_status dead) {
    if (dead != SL_OK) {
        if (job)
            sl_job_end(e, job, sl_fail(job->err, dead, "%s", e->dead_err.text));
        sl_sessions_finish_all(e, SL_FINISH_ERROR, dead, e->dead_err.text);
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
    enum sl_status status = settle(e);
    if (status != SL_OK) { /* no page is certain now: no further step */
        sl_pages_fail(e, &err, status, "the page table");
        sl_engine_break_down(e, status, &err);
        sl_sessions_finish_all(e, SL_FINISH_ERROR, status, err.text);
    }
}

/* The end of a step may be seen before its stage reports it; going to sleep here would then take
 * another wake-up. */
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
        sl_slots_update_gauges(e);
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
        uint32_t n_running = sl_slots_update_gauges(e);
        wanted = e->dead == SL_OK && !e->away && sl_steps_wanted(e);
        sl_slots_publish(e);
        if (e->timeline)
            sl_timeline_pause(e->timeline, !n_running);
    }
    finish_everything(e);
    return NULL;
}
