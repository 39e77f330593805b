#include "server/server.h"

#include "common/cond.h"
#include "common/log.h"
#include "server/exchange/gen.h"
#include "server/exchange/memory.h"
#include "server/http.h"
#include "server/wire/tls.h"

#include <stdlib.h>
#include <time.h>

enum sl_status sl_server_create(const struct sl_server_config *config,
                                struct sl_server **out_server, struct sl_err *err) {
    struct sl_server *s = calloc(1, sizeof *s);
    if (!s)
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    s->config = *config;
    sl_server_defaults(&s->config);
    s->routes = sl_routes(&s->n_routes);
    s->listen.wake_fd = -1;
    s->started_s = (int64_t)time(NULL);
    atomic_init(&s->state, SL_SERVER_LOADING);
    pthread_mutex_init(&s->list_lock, NULL);
    pthread_mutex_init(&s->jobs_lock, NULL);
    pthread_cond_init(&s->jobs_cond, NULL);
    pthread_mutex_init(&s->watch_lock, NULL);
    sl_cond_init(&s->watch_cond);
    json_object_seed(0); /* before threads: it is not safe to be first in two */

    uint64_t kept_bytes = s->config.response_store_bytes;
    if (kept_bytes != SL_NO_RESPONSE_STORE)
        s->responses = sl_response_store_create(kept_bytes);
    enum sl_status status = SL_OK;
    if (kept_bytes != SL_NO_RESPONSE_STORE && !s->responses)
        status = sl_fail(err, SL_ERR_NOMEM, "out of memory");
    if (status == SL_OK)
        status = sl_jobs_start(s, err);
    if (status == SL_OK)
        status = sl_watch_start(s, err);
    if (status == SL_OK)
        status = sl_http_start(s, err);
    if (status != SL_OK) {
        sl_server_destroy(&s);
        return status;
    }
    *out_server = s;
    return SL_OK;
}

uint16_t sl_server_port(const struct sl_server *s) {
    return s->listen.port;
}

enum sl_status sl_server_reload_tls(struct sl_server *s, struct sl_err *err) {
    return sl_tls_load(s->config.tls_cert, s->config.tls_key, err);
}

void sl_server_progress(struct sl_server *s, uint64_t done_bytes, uint64_t total_bytes) {
    atomic_store(&s->total_bytes, total_bytes);
    atomic_store(&s->done_bytes, done_bytes);
}

/* While the model is being loaded no request needs it: the load ends as soon as the server does. */
static enum sl_status poll_attach(void *ctx, struct sl_err *err) {
    struct sl_server *s = ctx;
    return atomic_load(&s->draining)
               ? sl_fail(err, SL_ERR_CANCELED, "the server is stopping: the model was not loaded")
               : SL_OK;
}

enum sl_status sl_server_attach(struct sl_server *s, const struct sl_server_model *model,
                                struct sl_err *err) {
    const struct sl_template_watch watch = {poll_attach, s};
    enum sl_status status = sl_served_create(model, &watch, &s->served, err);
    if (status == SL_OK)
        atomic_store(&s->state, SL_SERVER_READY);
    return status;
}

void sl_server_fail(struct sl_server *s, const struct sl_err *err) {
    s->fail_err = *err;
    atomic_store(&s->state, SL_SERVER_FAILED);
}

void sl_server_drain(struct sl_server *s) {
    if (!atomic_exchange(&s->draining, true))
        sl_http_quiesce(s);
}

uint32_t sl_server_active(struct sl_server *s) {
    return atomic_load(&s->n_active);
}

void sl_server_cancel(struct sl_server *s) {
    pthread_mutex_lock(&s->list_lock);
    for (struct sl_exchange *ex = s->exchanges; ex; ex = ex->next) {
        pthread_mutex_lock(&ex->lock);
        atomic_store(&ex->canceled, true);
        if (ex->gen)
            sl_gen_cancel_locked(ex->gen);
        pthread_mutex_unlock(&ex->lock);
    }
    pthread_mutex_unlock(&s->list_lock);
}

static void sleep_ms(long ms) {
    struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&ts, NULL);
}

/* Work, not answers: an answer that its client does not read must not hold up the end. */
static bool any_work(struct sl_server *s) {
    bool any = false;
    pthread_mutex_lock(&s->list_lock);
    for (struct sl_exchange *ex = s->exchanges; ex && !any; ex = ex->next) {
        pthread_mutex_lock(&ex->lock);
        any = sl_exchange_has_job(ex->state) || ex->sleep == SL_SLEEP_SUSPENDED;
        for (uint32_t i = 0; ex->gen && i < ex->gen->n_choices; i++)
            any = any || sl_choice_state_runs(ex->gen->choices[i].state);
        pthread_mutex_unlock(&ex->lock);
    }
    pthread_mutex_unlock(&s->list_lock);
    return any;
}

void sl_server_destroy(struct sl_server **p) {
    struct sl_server *s = *p;
    if (!s)
        return;
    sl_server_drain(s);
    /* A connection must not be suspended when the daemon stops. Canceled again and again: a worker
     * may be about to submit. Then a moment for the last bytes to clients that read. */
    int idle_ms = 0;
    while ((s->daemons[0] || s->daemons[1]) &&
           (any_work(s) || (sl_server_active(s) > 0 && idle_ms < 1000))) {
        idle_ms = any_work(s) ? 0 : idle_ms + 10;
        sl_server_cancel(s);
        sleep_ms(10);
    }
    sl_http_stop(s);
    while (sl_server_active(s) > 0) /* canceled by their connection's end, finished by the engine */
        sleep_ms(1);
    sl_watch_stop(s);
    sl_jobs_stop(s);
    sl_served_destroy(&s->served);
    sl_response_store_destroy(&s->responses);
    pthread_cond_destroy(&s->watch_cond);
    pthread_mutex_destroy(&s->watch_lock);
    pthread_cond_destroy(&s->jobs_cond);
    pthread_mutex_destroy(&s->jobs_lock);
    pthread_mutex_destroy(&s->list_lock);
    free(s);
    *p = NULL;
}
