/* The workers: what takes time that grows with the request (parsing, templates, tokenizing) runs
 * here, so that the connections' threads only move bytes and nobody's stream waits for somebody
 * else's prompt. */
#include "common/log.h"
#include "server/gen.h"
#include "server/internal.h"

#include <stdlib.h>

#define SMALL_REPLY_BYTES (64u << 10) /* always sent */

static void run_job(struct sl_exchange *ex) {
    if (!sl_exchange_gone(ex))
        ex->route->handle(ex);
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
    ex->working = false;
    if (ex->conn)
        sl_exchange_wake_locked(ex);
    pthread_mutex_unlock(&ex->lock);
    sl_exchange_unref(ex);
}

static void *worker(void *arg) {
    struct sl_server *s = arg;
    pthread_mutex_lock(&s->jobs_lock);
    for (;;) {
        struct sl_exchange *ex = s->jobs_head;
        if (ex) {
            s->jobs_head = ex->next_job;
            if (!s->jobs_head)
                s->jobs_tail = &s->jobs_head;
            pthread_mutex_unlock(&s->jobs_lock);
            run_job(ex);
            pthread_mutex_lock(&s->jobs_lock);
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
    s->jobs_tail = &s->jobs_head;
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
    ex->next_job = NULL;
    pthread_mutex_lock(&s->jobs_lock);
    *s->jobs_tail = ex;
    s->jobs_tail = &ex->next_job;
    pthread_cond_signal(&s->jobs_cond);
    pthread_mutex_unlock(&s->jobs_lock);
}
