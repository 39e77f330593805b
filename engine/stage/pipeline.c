#include "engine/stage/pipeline.h"

#include "common/clock.h"
#include "common/cpus.h"
#include "engine/trace/timeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A step that comes meanwhile waits at most so long while experts are read in the background. */
#define BACKGROUND_NS 5000000
#define LOOKS         64u

/* What waits for one stage, the first sent first. */
struct worker {
    struct sl_stage_owner owner; /* first */
    struct sl_pipeline *p;
    struct sl_stage *stage;
    uint32_t index;
    struct sl_stage_metrics *shown;
    struct sl_pipeline_item *first, *last;
    struct sl_activity_sums background;
    pthread_cond_t wake;
    pthread_t thread;
    bool started;
    atomic_uint n_pushed;
    uint32_t n_taken; /* the thread's own */
    uint64_t n_begun; /* items that were pushed here: under the lock */
    bool busy;        /* somebody has it at an item, its thread or another: under the lock */
    bool at_sender;   /* ... which is the item's sender: under the lock, and whoever is busy's */
    /* What it said with its last answer, from whatever thread that came: under the lock. */
    bool has_background, heat_unsaved;
    struct sl_stage_call call;   /* what it is asked between items: the thread's own too */
    struct sl_stage_hello hello; /* as it was opened */
};

struct sl_pipeline {
    uint32_t n;
    bool looks_out; /* there are CPUs to spare */
    struct sl_pipeline_hooks hooks;
    struct sl_timeline *timeline; /* NULL: no trace */
    pthread_mutex_t lock;
    pthread_cond_t done;
    pthread_cond_t went; /* an item that goes ahead has been sent */
    /* Under lock, with all that is in workers. */
    uint32_t n_under_way;
    uint64_t n_sent;
    struct sl_stage *attended; /* NULL: none is */
    bool nudged;               /* who attends next returns at once */
    bool quit;
    struct worker workers[SL_MAX_STAGES];
};

/* ---- what a stage says with every answer ---- */

/* Steps and the time they take are counted here. */
static void take_counts(const struct sl_stage_counts *c, struct sl_stage_metrics *shown) {
#define SL_STAGE_METRIC(kind, field, name, help)                                                   \
    if (&shown->field != &shown->steps_total && &shown->field != &shown->busy_ns_total)            \
        sl_stage_gauge(shown, field, c->field);
#include "common/stage_metrics.def"
#undef SL_STAGE_METRIC
}

static void take_note(struct worker *w, const struct sl_stage_answer *a) {
    pthread_mutex_lock(&w->p->lock);
    w->has_background = a->has_background;
    w->heat_unsaved = a->heat_unsaved;
    pthread_mutex_unlock(&w->p->lock);
    take_counts(&a->counts, w->shown);
}

/* Asks something between items. */
static enum sl_status ask_now(struct worker *w, const struct sl_stage_ask *ask,
                              struct sl_err *err) {
    w->call = (struct sl_stage_call){.ask = *ask};
    enum sl_status status = sl_stage_ask(w->stage, &w->call, err);
    take_note(w, &w->call.answer);
    return status;
}

static void have_it_idle(struct worker *w, uint64_t most_ns) {
    (void)!ask_now(w, &(struct sl_stage_ask){.what = SL_STAGE_IDLE, .idle = {most_ns}}, NULL);
}

/* ---- the stages' threads ---- */

/* How far an item is that goes to a stage before the one before has done with it. */
enum ahead {
    AHEAD_NOT,
    AHEAD_QUEUED, /* in the stage's queue */
    AHEAD_LEAVES, /* being sent */
    AHEAD_GONE,   /* sent: the stage waits for its rows */
    AHEAD_OVER    /* answered before they came: the stage has broken down */
};

/* Under the lock, as the next. */
static void push(struct worker *w, struct sl_pipeline_item *item) {
    item->next = NULL;
    w->n_begun++;
    if (w->first)
        w->last->next = item;
    else
        w->first = item;
    w->last = item;
    atomic_fetch_add_explicit(&w->n_pushed, 1, memory_order_release);
    pthread_cond_signal(&w->wake);
}

static bool has_more(const void *worker) {
    const struct worker *w = worker;
    return atomic_load_explicit(&w->n_pushed, memory_order_acquire) != w->n_taken;
}

static bool has_passed(const void *item) {
    const struct sl_pipeline_item *passing = item;
    return !atomic_load_explicit(&passing->under_way, memory_order_acquire);
}

/* Under the lock, which is open meanwhile. */
static void read_in_background(struct worker *w) {
    w->busy = true;
    pthread_mutex_unlock(&w->p->lock);
    have_it_idle(w, BACKGROUND_NS);
    pthread_mutex_lock(&w->p->lock);
    w->busy = false;
    sl_activity_add(&w->background, &w->call.answer.found);
    pthread_mutex_unlock(&w->p->lock);
    w->p->hooks.arrived(w->p->hooks.ctx);
    pthread_mutex_lock(&w->p->lock);
}

/* The stage begins with it: the next one may prepare for it, if it has begun with all that come
 * before. */
static void announce(struct worker *w, struct sl_pipeline_item *item) {
    struct worker *after = w + 1;
    const struct sl_stage_ops *ops = w->stage->ops;
    if (w->index + 1 == w->p->n || !item->ask_ahead || !ops->loses_none ||
        !ops->loses_none(w->stage) || !after->stage->ops->begins_ahead ||
        !after->stage->ops->begins_ahead(after->stage) || after->n_begun != item->number ||
        !item->ask_ahead(item, after->index, &item->calls[after->index]))
        return;
    item->ahead[after->index] = AHEAD_QUEUED;
    push(after, item);
}

static void visit(struct worker *w, struct sl_pipeline_item *item);

/* Whoever had the stage at an item has done with it: what has come since is its thread's. */
static void release(struct worker *w) {
    w->busy = w->at_sender = false;
    if (w->first)
        pthread_cond_signal(&w->wake);
}

/* The next item, NULL at the end. out_ahead: without what the stage before makes of it. */
static struct sl_pipeline_item *next_item(struct worker *w, bool *out_ahead) {
    struct sl_pipeline *p = w->p;
    if (p->looks_out)
        sl_look_out(has_more, w);
    pthread_mutex_lock(&p->lock);
    while ((!w->first || w->busy) && !p->quit) {
        if (!p->n_under_way && w->has_background)
            read_in_background(w);
        else
            pthread_cond_wait(&w->wake, &p->lock);
    }
    struct sl_pipeline_item *item = w->first;
    if (item) {
        w->first = item->next;
        w->n_taken++;
        w->busy = true;
        *out_ahead = item->ahead[w->index] == AHEAD_QUEUED;
        if (*out_ahead)
            item->ahead[w->index] = AHEAD_LEAVES;
        else
            announce(w, item);
    }
    pthread_mutex_unlock(&p->lock);
    return item;
}

/* What an item that has gone ahead to the stage waits for. */
static void bring_rows(struct worker *w, struct sl_pipeline_item *item) {
    struct sl_stage_call *c = &item->calls[w->index];
    const float *rows = item->rows(item, w->index);
    c->sent_ns = sl_timeline_now(w->p->timeline);
    w->stage->ops->rows(w->stage, c, rows);
    pthread_mutex_lock(&w->p->lock);
    announce(w, item);
    pthread_mutex_unlock(&w->p->lock);
}

/* The stage has done with it, which may have gone ahead to the next. True: that waits for its rows.
 * Under the lock, which is open for a moment: sending does not block. */
static bool went_ahead(struct worker *w, struct sl_pipeline_item *item) {
    uint8_t *ahead = &item->ahead[w->index + 1];
    while (*ahead == AHEAD_LEAVES)
        pthread_cond_wait(&w->p->went, &w->p->lock);
    return *ahead == AHEAD_GONE;
}

/* Has another thread than the stage's own take the item there, as if it were that. Under the lock,
 * which is open meanwhile: the stage is not busy, and nothing waits for it. */
static void visit_here(struct worker *w, struct sl_pipeline_item *item, bool at_sender) {
    w->busy = true;
    w->at_sender = at_sender;
    w->n_begun++;
    announce(w, item);
    pthread_mutex_unlock(&w->p->lock);
    visit(w, item);
    pthread_mutex_lock(&w->p->lock);
    release(w);
}

static bool is_free(const struct worker *w) {
    return !w->busy && !w->first;
}

/* On to the next stage. Under the lock, which is open meanwhile. */
static void pass(struct worker *w, struct sl_pipeline_item *item) {
    uint8_t *ahead = &item->ahead[w->index + 1];
    if (went_ahead(w, item)) {
        pthread_mutex_unlock(&w->p->lock);
        bring_rows(w + 1, item);
        pthread_mutex_lock(&w->p->lock);
    } else if (*ahead == AHEAD_NOT && item->is_brief && w[1].stage->ops->posts && is_free(w + 1)) {
        visit_here(w + 1, item, false);
    } else if (*ahead == AHEAD_NOT) {
        push(w + 1, item);
    } else if (*ahead == AHEAD_QUEUED) {
        *ahead = AHEAD_NOT; /* it is there already, and goes with its rows */
    }
}

/* The stage has done with it: on to the next one, or done. */
static void leave(struct worker *w, struct sl_pipeline_item *item, bool passed_on) {
    struct sl_pipeline *p = w->p;
    /* A thread that is not ours may be here; once the lock is open, ours may close the pipeline. */
    const struct sl_pipeline_hooks hooks = p->hooks;
    pthread_mutex_lock(&p->lock);
    if (item->ahead[w->index] == AHEAD_LEAVES || item->ahead[w->index] == AHEAD_GONE) {
        item->ahead[w->index] = AHEAD_OVER;
        pthread_cond_broadcast(&p->went);
    }
    if (!passed_on && w->index + 1 < p->n)
        pass(w, item);
    bool done = !--item->n_left;
    if (done) {
        atomic_store_explicit(&item->under_way, false, memory_order_release);
        p->n_under_way--;
        pthread_cond_signal(&p->done);
        for (uint32_t i = 0; i < p->n && !p->n_under_way; i++)
            if (p->workers[i].has_background) /* there is time for it */
                pthread_cond_signal(&p->workers[i].wake);
    }
    pthread_mutex_unlock(&p->lock);
    if (done)
        hooks.arrived(hooks.ctx);
}

/* The one that follows begins now, while this one does the rest. The item is done when
 * both are. */
static void was_passed(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct worker *w = (struct worker *)(void *)o;
    c->passed_on = true;
    pthread_mutex_lock(&w->p->lock);
    push(w + 1, c->user);
    pthread_mutex_unlock(&w->p->lock);
}

/* A step of a stage whose clock is another: when it was computed, by ours. */
static void draw_elsewhere(struct worker *w, const struct sl_stage_call *c) {
    const struct sl_answer_step *a = &c->answer.step;
    uint64_t stall_ns = 0;
    int64_t offset_ns;
    if (c->ask.what != SL_STAGE_STEP || !a->ended_ns || !w->stage->ops->clock_offset ||
        !w->stage->ops->clock_offset(w->stage, &offset_ns))
        return;
    for (uint32_t i = 0; i < SL_STALL_CAUSES; i++)
        stall_ns += c->answer.found.stall_ns[i];
    uint64_t began_ns = a->began_ns - (uint64_t)offset_ns;
    sl_timeline_elsewhere(
        w->p->timeline, w->index, "step", began_ns, a->ended_ns - (uint64_t)offset_ns,
        (const struct sl_timeline_arg[SL_TIMELINE_ARGS]){
            {"rows", c->ask.step.n_rows},
            {"generated", c->ask.step.n_decode},
            {"waits for experts, us", (int64_t)(stall_ns / 1000)},
            {"read, bytes", (int64_t)c->answer.found.use.read_bytes},
            {"to there, us", (int64_t)(began_ns - c->sent_ns) / 1000},
            {"back, us", (int64_t)(sl_now_ns() - (a->ended_ns - (uint64_t)offset_ns)) / 1000}});
}

static void was_answered(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct worker *w = (struct worker *)(void *)o;
    struct sl_pipeline_item *item = c->user;
    if (w->p->timeline)
        draw_elsewhere(w, c);
    take_note(w, &c->answer);
    if (item->answered)
        item->answered(item, w->index, w->shown);
    if (w->p->n > 1)
        leave(w, item, c->passed_on);
}

static void meanwhile(struct sl_stage_owner *o, struct sl_stage_call *c) {
    struct worker *w = (struct worker *)(void *)o;
    const struct sl_pipeline_hooks *h = &w->p->hooks;
    struct sl_pipeline_item *item = c->user;
    if (item->may_be_canceled && h->stopping(h->ctx))
        sl_pipeline_cancel(w->p, item);
    else if (w->p->n == 1 || w->at_sender)
        h->meanwhile(h->ctx);
}

static struct sl_stage_call *begin_call(struct worker *w, struct sl_pipeline_item *item) {
    struct sl_stage_call *c = &item->calls[w->index];
    c->owner = &w->owner;
    c->canceled = &item->canceled;
    c->user = item;
    c->passed_on = false;
    c->sent_ns = sl_timeline_now(w->p->timeline);
    return c;
}

/* Without its rows. From when they may be brought on, the item is whoever's that has it. */
static void visit_ahead(struct worker *w, struct sl_pipeline_item *item) {
    struct sl_stage_call *c = begin_call(w, item);
    uint8_t *ahead = &item->ahead[w->index];
    w->stage->ops->send(w->stage, c);
    pthread_mutex_lock(&w->p->lock);
    if (*ahead == AHEAD_LEAVES) { /* else it has been answered, and may be another by now */
        *ahead = AHEAD_GONE;
        pthread_cond_broadcast(&w->p->went);
    }
    pthread_mutex_unlock(&w->p->lock);
}

static void visit(struct worker *w, struct sl_pipeline_item *item) {
    struct sl_stage_call *c = begin_call(w, item);
    if (item->ask(item, w->index, c))
        w->stage->ops->send(w->stage, c);
    else if (w->p->n > 1)
        leave(w, item, false);
}

static void *stage_main(void *arg) {
    struct worker *w = arg;
    if (w->p->timeline)
        sl_timeline_stage(w->p->timeline, w->index);
    bool ahead = false;
    for (struct sl_pipeline_item *item; (item = next_item(w, &ahead));) {
        if (ahead)
            visit_ahead(w, item);
        else
            visit(w, item);
        pthread_mutex_lock(&w->p->lock);
        w->busy = false;
        pthread_mutex_unlock(&w->p->lock);
    }
    (void)!ask_now(w, &(struct sl_stage_ask){.what = SL_STAGE_QUIT}, NULL);
    return NULL;
}

/* ---- open, close ---- */

static enum sl_status start_threads(struct sl_pipeline *p, struct sl_err *err) {
    for (uint32_t i = 0; i < p->n; i++) {
        struct worker *w = &p->workers[i];
        if (pthread_create(&w->thread, NULL, stage_main, w) != 0)
            return sl_fail(err, SL_ERR_NOMEM, "the thread of stage %u could not be started", i + 1);
        char name[16] = "sl-stage-1";
        name[9] = (char)('1' + i);
        pthread_setname_np(w->thread, name);
        w->started = true;
    }
    return SL_OK;
}

enum sl_status sl_pipeline_open(struct sl_stage *const *stages, uint32_t n, bool looks_out,
                                const struct sl_pipeline_hooks *hooks, struct sl_timeline *timeline,
                                struct sl_stage_metrics *shown, struct sl_pipeline **out_pipeline,
                                struct sl_err *err) {
    struct sl_pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the stages' queues");
    p->n = n;
    p->looks_out = looks_out;
    p->hooks = *hooks;
    p->timeline = timeline;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->done, NULL);
    pthread_cond_init(&p->went, NULL);
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < n; i++) {
        struct worker *w = &p->workers[i];
        w->owner = (struct sl_stage_owner){was_passed, was_answered, meanwhile};
        w->p = p;
        w->stage = stages[i];
        w->index = i;
        w->shown = &shown[i];
        pthread_cond_init(&w->wake, NULL);
        if (status == SL_OK)
            status = ask_now(w, &(struct sl_stage_ask){.what = SL_STAGE_HELLO}, err);
        w->hello = w->call.answer.hello;
    }
    if (status == SL_OK && n > 1)
        status = start_threads(p, err);
    if (status != SL_OK) {
        sl_pipeline_close(&p);
        return status;
    }
    *out_pipeline = p;
    return SL_OK;
}

void sl_pipeline_close(struct sl_pipeline **pp) {
    struct sl_pipeline *p = *pp;
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    while (p->n_under_way)
        pthread_cond_wait(&p->done, &p->lock);
    p->quit = true;
    for (uint32_t i = 0; i < p->n; i++)
        pthread_cond_signal(&p->workers[i].wake);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->workers[i].started)
            pthread_join(p->workers[i].thread, NULL);
        else
            (void)!ask_now(&p->workers[i], &(struct sl_stage_ask){.what = SL_STAGE_QUIT}, NULL);
        pthread_cond_destroy(&p->workers[i].wake);
    }
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->went);
    pthread_mutex_destroy(&p->lock);
    free(p);
    *pp = NULL;
}

/* ---- items ---- */

void sl_pipeline_send(struct sl_pipeline *p, struct sl_pipeline_item *item) {
    item->pipeline = p;
    atomic_store_explicit(&item->canceled, false, memory_order_relaxed);
    if (p->n == 1) {
        visit(p->workers, item);
        return;
    }
    item->n_left = p->n;
    pthread_mutex_lock(&p->lock);
    atomic_store(&item->under_way, true);
    p->n_under_way++;
    item->number = p->n_sent++;
    memset(item->ahead, AHEAD_NOT, sizeof item->ahead);
    struct worker *first = &p->workers[0];
    const struct sl_stage *stage = first->stage;
    if (item->is_brief && p->n_under_way == 1 && is_free(first) && stage->ops->on_any_thread &&
        stage->ops->on_any_thread(stage)) {
        sl_timeline_as_stage(0);
        visit_here(first, item, true);
        sl_timeline_as_steps();
    } else {
        push(first, item);
    }
    pthread_mutex_unlock(&p->lock);
}

void sl_pipeline_cancel(struct sl_pipeline *p, struct sl_pipeline_item *item) {
    if (atomic_exchange(&item->canceled, true))
        return;
    for (uint32_t i = 0; i < p->n; i++) {
        struct sl_stage *s = p->workers[i].stage;
        if (s->ops->cancel)
            s->ops->cancel(s, &item->calls[i]);
    }
}

bool sl_pipeline_done(struct sl_pipeline *p, const struct sl_pipeline_item *item) {
    (void)p;
    return has_passed(item);
}

bool sl_pipeline_attend(struct sl_pipeline *p, const struct sl_pipeline_item *item,
                        uint64_t until_ns) {
    pthread_mutex_lock(&p->lock);
    bool could = p->nudged || !item->n_left;
    struct sl_stage *s = could ? NULL : p->workers[p->n - item->n_left].stage;
    if (s && s->ops->attend) {
        p->attended = s;
        pthread_mutex_unlock(&p->lock);
        could = s->ops->attend(s, until_ns);
        pthread_mutex_lock(&p->lock);
        p->attended = NULL;
    }
    p->nudged = false;
    pthread_mutex_unlock(&p->lock);
    return could;
}

void sl_pipeline_nudge(struct sl_pipeline *p) {
    pthread_mutex_lock(&p->lock);
    struct sl_stage *s = p->attended;
    p->nudged = true;
    pthread_mutex_unlock(&p->lock);
    if (s)
        s->ops->nudge(s);
}

void sl_pipeline_look_out(struct sl_pipeline *p, const struct sl_pipeline_item *item) {
    if (p->looks_out)
        sl_look_out(has_passed, item);
}

void sl_pipeline_wait(struct sl_pipeline *p, const struct sl_pipeline_item *item) {
    sl_pipeline_look_out(p, item);
    pthread_mutex_lock(&p->lock);
    while (!sl_pipeline_done(p, item))
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void sl_pipeline_background(struct sl_pipeline *p, struct sl_activity_sums *found) {
    pthread_mutex_lock(&p->lock);
    for (uint32_t i = 0; i < p->n; i++) {
        sl_activity_add(found, &p->workers[i].background);
        p->workers[i].background = (struct sl_activity_sums){0};
    }
    pthread_mutex_unlock(&p->lock);
}

/* ---- between items ---- */

const struct sl_stage_hello *sl_pipeline_hello(const struct sl_pipeline *p, uint32_t stage) {
    return &p->workers[stage].hello;
}

bool sl_pipeline_may_idle(const struct sl_pipeline *p) {
    return p->n == 1 && p->workers->has_background;
}

void sl_pipeline_idle(struct sl_pipeline *p, uint64_t most_ns) {
    have_it_idle(p->workers, most_ns);
    sl_activity_add(&p->workers->background, &p->workers->call.answer.found);
}

bool sl_pipeline_heat_unsaved(const struct sl_pipeline *p) {
    return p->n == 1 && p->workers->heat_unsaved;
}

void sl_pipeline_save_heat(struct sl_pipeline *p) {
    (void)!ask_now(p->workers, &(struct sl_stage_ask){.what = SL_STAGE_SAVE_HEAT}, NULL);
}
