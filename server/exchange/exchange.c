#include "server/exchange/exchange.h"
#include "common/clock.h"
#include "common/histograms.h"
#include "common/log.h"
#include "server/exchange/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sl_exchange *sl_exchange_create(struct sl_server *s, struct MHD_Connection *conn,
                                       const char *path, const char *method) {
    struct sl_exchange *ex = calloc(1, sizeof *ex);
    if (!ex)
        return NULL;
    ex->path = strdup(path);
    if (!ex->path) {
        free(ex);
        return NULL;
    }
    ex->server = s;
    ex->conn = conn;
    ex->method = method;
    ex->started_ns = sl_now_ns();
    sl_exchange_limit(ex, s->config.request_timeout_s);
    ex->refs = 1;
    ex->content_type = "application/json";
    ex->state = SL_EXCHANGE_RECEIVING;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    ex->fd = info ? info->connect_fd : -1;
    info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    ex->link = info ? info->socket_context : NULL;
    if (ex->link)
        ex->number = ++ex->link->n_requests;
    pthread_mutex_init(&ex->lock, NULL);

    pthread_mutex_lock(&s->list_lock);
    ex->next = s->exchanges;
    if (ex->next)
        ex->next->prev = ex;
    s->exchanges = ex;
    if (ex->link)
        ex->link->busy = true;
    pthread_mutex_unlock(&s->list_lock);
    return ex;
}

void sl_exchange_limit(struct sl_exchange *ex, double seconds) {
    uint64_t at =
        seconds > 0 ? ex->started_ns + (uint64_t)((seconds < 1e9 ? seconds : 1e9) * 1e9) : 0;
    if (at && (!ex->deadline_ns || at < ex->deadline_ns))
        ex->deadline_ns = at;
}

enum sl_status sl_exchange_poll(void *ctx, struct sl_err *err) {
    struct sl_exchange *ex = ctx;
    if (atomic_load_explicit(&ex->canceled, memory_order_relaxed))
        return sl_fail(err, SL_ERR_CANCELED, "the client has left, or the server is stopping");
    if (ex->deadline_ns && sl_now_ns() >= ex->deadline_ns)
        return sl_fail(err, SL_ERR_TIMEOUT,
                       "the request timed out: its prompt was still being read; give it a "
                       "longer 'timeout_s', or shorten it");
    return SL_OK;
}

static uint64_t hold(_Atomic uint64_t *all, _Atomic uint64_t *own, uint64_t bytes) {
    uint64_t change = bytes - atomic_exchange(own, bytes); /* modulo 2^64 */
    return atomic_fetch_add(all, change) + change;
}

uint64_t sl_exchange_hold_body(struct sl_exchange *ex, uint64_t bytes) {
    return hold(&ex->server->bodies_bytes, &ex->body_held_bytes, bytes);
}

uint64_t sl_exchange_hold_reply(struct sl_exchange *ex, uint64_t bytes) {
    return hold(&ex->server->replies_bytes, &ex->reply_held_bytes, bytes);
}

bool sl_exchange_hold_more(struct sl_exchange *ex, uint64_t more) {
    struct sl_server *s = ex->server;
    atomic_fetch_add(&ex->reply_held_bytes, more);
    if (atomic_fetch_add(&s->replies_bytes, more) + more <= s->config.max_replies_bytes)
        return true;
    atomic_fetch_sub(&s->replies_bytes, more);
    atomic_fetch_sub(&ex->reply_held_bytes, more);
    return false;
}

static void exchange_free(struct sl_exchange *ex) {
    struct sl_server *s = ex->server;
    bool counted = ex->counted;
    sl_exchange_hold_body(ex, 0);
    sl_exchange_hold_reply(ex, 0);
    sl_gen_destroy(ex->gen);
    sl_buf_release(&ex->body);
    sl_buf_release(&ex->reply);
    pthread_mutex_destroy(&ex->lock);
    free(ex->path);
    free(ex->model_name);
    free(ex);
    if (counted) /* last: sl_server_destroy waits for it */
        atomic_fetch_sub(&s->n_active, 1);
}

void sl_exchange_ref_locked(struct sl_exchange *ex) {
    ex->refs++;
}

void sl_exchange_unref(struct sl_exchange *ex) {
    pthread_mutex_lock(&ex->lock);
    bool last = --ex->refs == 0;
    pthread_mutex_unlock(&ex->lock);
    if (last)
        exchange_free(ex);
}

static void cancel_locked(struct sl_exchange *ex) {
    atomic_store(&ex->canceled, true);
    if (ex->gen)
        sl_gen_cancel_locked(ex->gen);
}

bool sl_exchange_step_locked(struct sl_exchange *ex, enum sl_exchange_event event) {
    if (sl_exchange_next(ex->state, event, &ex->state))
        return true;
#ifdef SL_STRICT
    fprintf(stderr, "exchange: '%s' while %s\n", sl_exchange_event_name(event),
            sl_exchange_state_name(ex->state));
    abort();
#else
    sl_error("an exchange was %s when '%s' came, which must not happen: it is canceled",
             sl_exchange_state_name(ex->state), sl_exchange_event_name(event));
    cancel_locked(ex);
    return false;
#endif
}

bool sl_exchange_step(struct sl_exchange *ex, enum sl_exchange_event event) {
    pthread_mutex_lock(&ex->lock);
    bool ok = sl_exchange_step_locked(ex, event);
    pthread_mutex_unlock(&ex->lock);
    return ok;
}

enum sl_exchange_state sl_exchange_state(struct sl_exchange *ex) {
    pthread_mutex_lock(&ex->lock);
    enum sl_exchange_state state = ex->state;
    pthread_mutex_unlock(&ex->lock);
    return state;
}

void sl_exchange_wake_locked(struct sl_exchange *ex) {
    bool suspended = ex->sleep == SL_SLEEP_SUSPENDED;
    ex->sleep = SL_SLEEP_WOKEN;
    if (suspended)
        MHD_resume_connection(ex->conn);
}

bool sl_exchange_wait(struct sl_exchange *ex) {
    pthread_mutex_lock(&ex->lock);
    bool wait = ex->sleep != SL_SLEEP_WOKEN;
    ex->sleep = wait ? SL_SLEEP_SUSPENDED : SL_SLEEP_AWAKE;
    if (wait)
        MHD_suspend_connection(ex->conn);
    pthread_mutex_unlock(&ex->lock);
    return wait;
}

void sl_exchange_abandon(struct sl_exchange *ex) {
    pthread_mutex_lock(&ex->lock);
    bool was_gone = sl_exchange_is_gone(ex->state);
    (void)sl_exchange_step_locked(ex, SL_EVENT_CLIENT_LEFT);
    if (!was_gone && sl_exchange_is_gone(ex->state)) {
        cancel_locked(ex);
        sl_exchange_wake_locked(ex);
    }
    pthread_mutex_unlock(&ex->lock);
}

/* was: its state when the connection ended. */
static void log_exchange(const struct sl_exchange *ex, enum sl_exchange_state was) {
    bool working = sl_exchange_has_job(was);
    bool gone = was != SL_EXCHANGE_SENDING && was != SL_EXCHANGE_STREAMING;
    enum sl_log_level level = ex->route && ex->route->quiet ? SL_LOG_DEBUG : SL_LOG_INFO;
    if (!sl_log_enabled(level))
        return;
    /* The path is a stranger's: shown cut and with printable characters only. */
    char path[80];
    size_t n = 0;
    for (; ex->path[n] && n < sizeof path - 1; n++)
        path[n] = ex->path[n] > ' ' && ex->path[n] < 0x7f ? ex->path[n] : '?';
    path[n] = '\0';
    char what[320] = "";
    if (!working && ex->gen) {
        uint64_t n_prompt = 0, n_predicted = 0;
        for (uint32_t i = 0; i < ex->gen->n_choices; i++)
            n_predicted += ex->gen->choices[i].n_predicted;
        for (uint32_t i = 0; i < ex->gen->n_prompts; i++)
            n_prompt += ex->gen->prompts[i].n;
        snprintf(what, sizeof what, ", %llu + %llu tokens", (unsigned long long)n_prompt,
                 (unsigned long long)n_predicted);
    } else if (!working && ex->error.http_status) {
        snprintf(what, sizeof what, ": %.300s", ex->error.err.text);
    }
    for (char *p = what; *p; p++)
        if ((unsigned char)*p < ' ')
            *p = ' ';
    sl_log(level, "%s %s %u, %.1f ms%s%s", ex->method, path, ex->http_status,
           (double)(sl_now_ns() - ex->started_ns) * 1e-6, what, gone ? ", client left" : "");
}

void sl_exchange_complete(struct sl_exchange *ex) {
    struct sl_server *s = ex->server;
    /* Off the list first: the watcher may use the socket only while it holds list_lock and finds
     * the exchange there. */
    pthread_mutex_lock(&s->list_lock);
    if (ex->prev)
        ex->prev->next = ex->next;
    else
        s->exchanges = ex->next;
    if (ex->next)
        ex->next->prev = ex->prev;
    if (ex->link) {
        ex->link->busy = false;
        ex->link->since_ns = sl_now_ns();
    }
    pthread_mutex_unlock(&s->list_lock);

    pthread_mutex_lock(&ex->lock);
    enum sl_exchange_state was = ex->state;
    (void)sl_exchange_step_locked(ex, SL_EVENT_CONNECTION_OVER);
    ex->conn = NULL;
    cancel_locked(ex);
    pthread_mutex_unlock(&ex->lock);
    if (!sl_exchange_has_job(was) && ex->gen)
        sl_observe(answered, sl_now_ns() - ex->started_ns);
    if (was != SL_EXCHANGE_RECEIVING)
        log_exchange(ex, was);
    sl_exchange_unref(ex);
}
