#include "engine/stage/pipeline.h"

#include "common/clock.h"
#include "common/cpus.h"
#include "engine/stage/stage.h"

#include <pthread.h>
#include <stdlib.h>

/* A step that comes meanwhile waits at most so long while experts are read in the background. */
#define BACKGROUND_NS 5000000
/* Threads look so long for what comes next before they sleep: longer than the other stages take for
 * a generated row, since waking up costs as much as the hand-over itself. */
#define LOOK_OUT_NS 10000000u
#define LOOKS       64u

/* What waits for one stage, the first sent first. */
struct worker {
    struct sl_pipeline *p;
    struct sl_stage *stage;
    struct sl_passage *first, *last;
    struct sl_activity_sums background;
    pthread_cond_t wake;
    pthread_t thread;
    bool started;
    bool passed_on; /* what it is at has gone on already: the thread's own */
    atomic_uint n_pushed;
    uint32_t n_taken; /* the thread's own */
};

struct sl_pipeline {
    struct sl_stage *stages;
    uint32_t n;
    bool looks_out; /* there are CPUs to spare */
    void (*arrived)(void *ctx);
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t done;
    /* Under lock, with all that is in workers. */
    uint32_t n_under_way;
    bool quit;
    struct worker workers[SL_MAX_STAGES];
};

/* ---- the stages' threads ---- */

static void push(struct worker *w, struct sl_passage *passage) {
    passage->next = NULL;
    if (w->first)
        w->last->next = passage;
    else
        w->first = passage;
    w->last = passage;
    atomic_fetch_add_explicit(&w->n_pushed, 1, memory_order_release);
    pthread_cond_signal(&w->wake);
}

/* Returns when ready says so, or after a while. */
static void look_out(const struct sl_pipeline *p, bool (*ready)(const void *what),
                     const void *what) {
    uint64_t start = p->looks_out ? sl_now_ns() : 0;
    while (start && sl_now_ns() - start < LOOK_OUT_NS)
        for (uint32_t i = 0; i < LOOKS; i++) {
            if (ready(what))
                return;
            sl_cpu_relax();
        }
}

static bool has_more(const void *worker) {
    const struct worker *w = worker;
    return atomic_load_explicit(&w->n_pushed, memory_order_acquire) != w->n_taken;
}

static bool has_passed(const void *passage) {
    const struct sl_passage *passing = passage;
    return !atomic_load_explicit(&passing->under_way, memory_order_acquire);
}

/* Under the lock, which is open meanwhile. */
static void read_in_background(struct worker *w) {
    struct sl_activity_sums found = {0};
    pthread_mutex_unlock(&w->p->lock);
    sl_stage_idle(w->stage, BACKGROUND_NS, &found);
    pthread_mutex_lock(&w->p->lock);
    sl_activity_add(&w->background, &found);
    pthread_mutex_unlock(&w->p->lock);
    w->p->arrived(w->p->ctx);
    pthread_mutex_lock(&w->p->lock);
}

/* The next passage, NULL at the end. */
static struct sl_passage *next_passage(struct worker *w) {
    struct sl_pipeline *p = w->p;
    struct sl_fetch *fetch = sl_stage_fetch(w->stage);
    look_out(p, has_more, w);
    pthread_mutex_lock(&p->lock);
    while (!w->first && !p->quit) {
        if (!p->n_under_way && fetch && sl_fetch_has_background(fetch))
            read_in_background(w);
        else
            pthread_cond_wait(&w->wake, &p->lock);
    }
    struct sl_passage *passage = w->first;
    if (passage) {
        w->first = passage->next;
        w->n_taken++;
    }
    pthread_mutex_unlock(&p->lock);
    return passage;
}

/* The stage has done with it: on to the next one, or done. */
static void leave(struct worker *w, struct sl_passage *passage) {
    struct sl_pipeline *p = w->p;
    pthread_mutex_lock(&p->lock);
    if (!w->passed_on && !sl_stage_is_last(w->stage))
        push(w + 1, passage);
    w->passed_on = false;
    bool done = !--passage->n_left;
    if (done) {
        atomic_store_explicit(&passage->under_way, false, memory_order_release);
        p->n_under_way--;
        pthread_cond_signal(&p->done);
        for (uint32_t i = 0; i < p->n && !p->n_under_way; i++)
            pthread_cond_signal(&p->workers[i].wake); /* there is time for reading */
    }
    pthread_mutex_unlock(&p->lock);
    if (done)
        p->arrived(p->ctx);
}

void sl_pipeline_pass_on(struct sl_passage *passage, const struct sl_stage *stage) {
    struct worker *w = &passage->pipeline->workers[stage->index];
    pthread_mutex_lock(&w->p->lock);
    push(w + 1, passage);
    pthread_mutex_unlock(&w->p->lock);
    w->passed_on = true;
}

static void *stage_main(void *arg) {
    struct worker *w = arg;
    if (w->stage->timeline)
        sl_timeline_stage(w->stage->timeline, w->stage->index);
    for (struct sl_passage *passage; (passage = next_passage(w));) {
        passage->at_stage(passage, w->stage);
        leave(w, passage);
    }
    sl_stage_quit(w->stage);
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

enum sl_status sl_pipeline_open(struct sl_stage *stages, uint32_t n, void (*arrived)(void *ctx),
                                void *ctx, struct sl_pipeline **out_pipeline, struct sl_err *err) {
    struct sl_pipeline *p = calloc(1, sizeof *p);
    if (!p)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for the stages' queues");
    p->stages = stages;
    p->n = n;
    p->looks_out = sl_cpus_allowed() > 2 * n + 1;
    p->arrived = arrived;
    p->ctx = ctx;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->done, NULL);
    for (uint32_t i = 0; i < n; i++) {
        p->workers[i].p = p;
        p->workers[i].stage = &stages[i];
        pthread_cond_init(&p->workers[i].wake, NULL);
    }
    enum sl_status st = n > 1 ? start_threads(p, err) : SL_OK;
    if (st != SL_OK) {
        sl_pipeline_close(&p);
        return st;
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
            sl_stage_quit(&p->stages[i]);
        pthread_cond_destroy(&p->workers[i].wake);
    }
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p);
    *pp = NULL;
}

/* ---- passages ---- */

void sl_pipeline_send(struct sl_pipeline *p, struct sl_passage *passage) {
    if (p->n == 1) {
        passage->at_stage(passage, p->stages);
        return;
    }
    passage->pipeline = p;
    passage->n_left = p->n;
    pthread_mutex_lock(&p->lock);
    atomic_store(&passage->under_way, true);
    p->n_under_way++;
    push(&p->workers[0], passage);
    pthread_mutex_unlock(&p->lock);
}

bool sl_pipeline_done(struct sl_pipeline *p, const struct sl_passage *passage) {
    (void)p;
    return has_passed(passage);
}

void sl_pipeline_look_out(struct sl_pipeline *p, const struct sl_passage *passage) {
    look_out(p, has_passed, passage);
}

void sl_pipeline_wait(struct sl_pipeline *p, const struct sl_passage *passage) {
    sl_pipeline_look_out(p, passage);
    pthread_mutex_lock(&p->lock);
    while (!sl_pipeline_done(p, passage))
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
