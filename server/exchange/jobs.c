/* The workers: what takes time that grows with the request (parsing, templates, tokenizing) runs
 * here, so that the connections' threads only move bytes and nobody's stream waits for somebody
 * else's prompt. */
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "server/exchange/exchange.h"
#include "server/exchange/gen.h"

#include <stdlib.h>

#define SMALL_REPLY_BYTES (64u << 10) /* always sent */
#define LARGE_BODY_BYTES                                                                           \
    (256u << 10) /* from here on, a tenth of a second and more of tokenizing                       \
                  */

/* The answer is there, or nobody waits for it. */
static void end_job(struct sl_exchange *ex, enum sl_exchange_event how) {
    sl_buf_release(&ex->body);
    sl_exchange_hold_body(ex, 0);
    /* An answer can be many times its request, and waits here for a client that may not read. */
    if (ex->reply.len > SMALL_REPLY_BYTES &&
        sl_exchange_hold_reply(ex, ex->reply.len) > ex->server->config.max_replies_bytes) {
        sl_buf_release(&ex->reply);
        sl_exchange_hold_reply(ex, 0);
        sl_http_fail(&ex->error, 503, "overloaded", NULL,
                     "the answer does not fit beside those that wait for their clients to read; "
                     "try again later, or ask for less at once");
    }
    pthread_mutex_lock(&ex->lock);
    (void)sl_exchange_step_locked(ex, how);
    if (ex->conn)
        sl_exchange_wake_locked(ex);
    pthread_mutex_unlock(&ex->lock);
    sl_exchange_unref(ex);
}

static void time_is_over(struct sl_exchange *ex, const char *what) {
    sl_count(requests_timed_out_total, 1);
    sl_http_fail(&ex->error, 504, "deadline_exceeded", NULL, "the request timed out: %s", what);
}

static void run_job(struct sl_exchange *ex) {
    struct sl_err err;
    (void)sl_exchange_step(ex, SL_EVENT_TAKEN);
    enum sl_status status = sl_exchange_poll(ex, &err);
    if (status == SL_ERR_TIMEOUT)
        time_is_over(ex, "it was still waiting for a worker");
    else if (status == SL_OK)
        ex->route->handle(ex);
    else
        (void)sl_http_from_status(&ex->error, status, &err);
    /* What has come too late is late, also where nothing looked at the time in between. */
    if (status == SL_OK && !ex->gen && !ex->error.http_status &&
        sl_exchange_poll(ex, &err) == SL_ERR_TIMEOUT) {
        sl_buf_release(&ex->reply);
        time_is_over(ex, "its answer was still being written");
    }
    end_job(ex, ex->gen && !ex->error.http_status ? SL_EVENT_GENERATES : SL_EVENT_DONE);
}

/* ---------------------------------------------------------------------------------- the queues */

static void put_last(struct sl_job_queue *q, struct sl_exchange *ex) {
    ex->next_job = NULL;
    if (q->head)
        q->last->next_job = ex;
    else
        q->head = ex;
    q->last = ex;
}

/* Dear requests leave one worker at least to the cheap ones, which thus never wait for more than
 * their like; and one worker at a time goes to the dear ones first, which wait for no more than
 * theirs. With one worker alone the two take turns. */
static struct sl_exchange *take_next(struct sl_server *s) {
    struct sl_job_queue *small = &s->jobs[SL_JOB_SMALL], *large = &s->jobs[SL_JOB_LARGE];
    bool alone = s->config.n_workers == 1;
    bool may = large->head &&
               (alone ? !small->head || s->large_next : s->n_large < s->config.n_workers - 1);
    struct sl_job_queue *q = may ? large : small;
    struct sl_exchange *ex = q->head;
    if (!ex)
        return NULL;
    s->large_next = !may;
    s->n_large += may;
    q->head = ex->next_job;
    return ex;
}

static void *worker(void *arg) {
    struct sl_server *s = arg;
    pthread_mutex_lock(&s->jobs_lock);
    for (;;) {
        struct sl_exchange *ex = take_next(s);
        if (ex) {
            bool large = ex->job_class == SL_JOB_LARGE;
            pthread_mutex_unlock(&s->jobs_lock);
            run_job(ex);
            pthread_mutex_lock(&s->jobs_lock);
            s->n_large -= large; /* and it looks itself for the next one */
        } else if (s->jobs_stop) {
            break;
        } else {
            pthread_cond_wait(&s->jobs_cond, &s->jobs_lock);
        }
    }
    pthread_mutex_unlock(&s->jobs_lock);
    return NULL;
}

enum sl_status sl_jobs_start(struct sl_server *s, struct sl_err *err) {
    s->workers = calloc(s->config.n_workers, sizeof *s->workers);
    if (!s->workers)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    for (; s->n_workers < s->config.n_workers; s->n_workers++)
        if (pthread_create(&s->workers[s->n_workers], NULL, worker, s) != 0)
            return sl_fail(err, SL_ERR_CONFIG, "cannot start a server thread");
    return SL_OK;
}

void sl_jobs_stop(struct sl_server *s) {
    pthread_mutex_lock(&s->jobs_lock);
    s->jobs_stop = true;
    pthread_cond_broadcast(&s->jobs_cond);
    pthread_mutex_unlock(&s->jobs_lock);
    for (uint32_t i = 0; i < s->n_workers; i++)
        pthread_join(s->workers[i], NULL);
    free(s->workers);
    s->workers = NULL;
    s->n_workers = 0;
}

void sl_jobs_push(struct sl_server *s, struct sl_exchange *ex) {
    ex->job_class = ex->body.len > LARGE_BODY_BYTES ? SL_JOB_LARGE : SL_JOB_SMALL;
    pthread_mutex_lock(&s->jobs_lock);
    put_last(&s->jobs[ex->job_class], ex);
    pthread_cond_signal(&s->jobs_cond);
    pthread_mutex_unlock(&s->jobs_lock);
}

void sl_jobs_expire(struct sl_server *s, uint64_t now) {
    struct sl_job_queue over = {0};
    pthread_mutex_lock(&s->jobs_lock);
    for (int c = 0; c < SL_JOB_CLASSES; c++) {
        struct sl_job_queue all = s->jobs[c];
        s->jobs[c] = (struct sl_job_queue){0};
        for (struct sl_exchange *ex = all.head, *next; ex; ex = next) {
            next = ex->next_job;
            bool ends = (ex->deadline_ns && now >= ex->deadline_ns) ||
                        sl_exchange_is_gone(sl_exchange_state(ex));
            put_last(ends ? &over : &s->jobs[c], ex);
        }
    }
    pthread_mutex_unlock(&s->jobs_lock);
    for (struct sl_exchange *ex = over.head, *next; ex; ex = next) {
        next = ex->next_job; /* before the last reference may go */
        if (!sl_exchange_is_gone(sl_exchange_state(ex)))
            time_is_over(ex, "it was still waiting for a worker");
        end_job(ex, SL_EVENT_DONE);
    }
}
