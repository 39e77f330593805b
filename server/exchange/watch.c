/* The watcher: libmicrohttpd does not look at a suspended connection's socket, so a client that
 * leaves while it waits would not be noticed. One thread looks at all of them five times a second,
 * asks silent streams for a keep-alive comment, ends headers and uploads that crawl or whose client
 * left, and answers what has waited for a worker for too long.
 *
 * A client that shuts down only its sending side counts as gone too, as with other servers: the two
 * cannot be told apart. */
#include "common/clock.h"
#include "common/cond.h"
#include "common/log.h"
#include "server/exchange/exchange.h"
#include "server/exchange/gen.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define TICK_NS          200000000u
#define UPLOAD_MIN_BYTES 1024u /* per second, in every stretch of timeout_s */
#define UPLOAD_MAX_TIMES 10u   /* of timeout_s, for a whole body */

/* What is looked at: an exchange that waits for its answer, or a connection whose request is not
 * all here. */
struct watched {
    struct sl_exchange *ex;
    struct sl_link *link;
};

struct watch_set {
    struct pollfd *fds;
    struct watched *who;
    uint32_t n, cap;
};

static bool reserve(struct watch_set *w, uint32_t n) {
    if (n <= w->cap)
        return true;
    uint32_t cap = n * 2;
    struct pollfd *fds = realloc(w->fds, cap * sizeof *fds);
    if (fds)
        w->fds = fds;
    struct watched *who = realloc(w->who, cap * sizeof *who);
    if (who)
        w->who = who;
    if (!fds || !who)
        return false;
    w->cap = cap;
    return true;
}

static void add(struct watch_set *w, int fd, struct sl_exchange *ex, struct sl_link *link) {
    if (fd < 0 || !reserve(w, w->n + 1))
        return;
    w->fds[w->n] = (struct pollfd){.fd = fd, .events = POLLRDHUP};
    w->who[w->n++] = (struct watched){ex, link};
}

/* The client has closed its side before its request was all here. libmicrohttpd misses that when
 * the end comes together with data. Twice in a row and nothing left to read: nobody is at it. */
static void check_hang_up(struct sl_link *l, bool hung_up) {
    int unread = 0;
    if (hung_up && l->hung_up && ioctl(l->fd, FIONREAD, &unread) == 0 && unread == 0)
        shutdown(l->fd, SHUT_RDWR);
    l->hung_up = hung_up;
}

/* A body that was fast at first and then trickles holds its share of the server's limit from
 * others: each stretch counts for itself, and all of them have an end. */
static void check_upload(const struct sl_server *s, struct sl_exchange *ex, uint64_t now) {
    uint64_t timeout_s = s->config.timeout_s;
    if (!ex->stretch_ns)
        ex->stretch_ns = ex->started_ns;
    uint64_t elapsed_s = (now - ex->stretch_ns) / 1000000000u;
    if (elapsed_s <= timeout_s)
        return;
    uint64_t received = atomic_load(&ex->received_bytes);
    if (received - ex->stretch_bytes < elapsed_s * UPLOAD_MIN_BYTES ||
        (now - ex->started_ns) / 1000000000u > UPLOAD_MAX_TIMES * timeout_s)
        shutdown(ex->fd, SHUT_RDWR); /* the connection's thread sees its end */
    ex->stretch_ns = now;
    ex->stretch_bytes = received;
}

static void check_keepalive(const struct sl_server *s, struct sl_exchange *ex, uint64_t now) {
    pthread_mutex_lock(&ex->lock);
    if (ex->sleep == SL_SLEEP_SUSPENDED && ex->last_out_ns &&
        now - ex->last_out_ns >= (uint64_t)s->config.keepalive_s * 1000000000u) {
        ex->keepalive = true;
        sl_exchange_wake_locked(ex);
    }
    pthread_mutex_unlock(&ex->lock);
}

/* libmicrohttpd's time-out begins anew with each byte: headers that trickle would hold a connection
 * for ever. Idle for one time-out, and as long again for the headers. */
static void check_heads(const struct sl_server *s, struct watch_set *w, uint64_t now) {
    uint64_t most_ns = 2 * (uint64_t)s->config.timeout_s * 1000000000u;
    for (struct sl_link *l = s->links; l; l = l->next) {
        if (l->busy)
            continue;
        if (now > l->since_ns + most_ns)
            shutdown(l->fd, SHUT_RDWR);
        else
            add(w, l->fd, NULL, l);
    }
}

static void tick(struct sl_server *s, struct watch_set *w) {
    uint64_t now = sl_now_ns();
    sl_jobs_expire(s, now);
    /* The lock is held to the end: it keeps the exchanges alive and their sockets open. */
    pthread_mutex_lock(&s->list_lock);
    w->n = 0;
    check_heads(s, w, now);
    for (struct sl_exchange *ex = s->exchanges; ex; ex = ex->next) {
        if (sl_exchange_state(ex) == SL_EXCHANGE_RECEIVING) {
            check_upload(s, ex, now);
            if (ex->link)
                add(w, ex->fd, NULL, ex->link);
            continue;
        }
        check_keepalive(s, ex, now);
        add(w, ex->fd, ex, NULL);
    }
    if (!w->n || poll(w->fds, w->n, 0) < 0)
        w->n = 0;
    for (uint32_t i = 0; i < w->n; i++) {
        bool hung_up = w->fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
        if (w->who[i].link) {
            check_hang_up(w->who[i].link, hung_up);
        } else if (hung_up) {
            sl_debug("http: the client of a request has hung up (0x%x)",
                     (unsigned)w->fds[i].revents);
            sl_exchange_abandon(w->who[i].ex);
        }
    }
    pthread_mutex_unlock(&s->list_lock);
}

static void *watcher(void *arg) {
    struct sl_server *s = arg;
    struct watch_set w = {0};
    pthread_mutex_lock(&s->watch_lock);
    while (!s->watch_stop) {
        sl_cond_wait_until(&s->watch_cond, &s->watch_lock, sl_now_ns() + TICK_NS);
        if (s->watch_stop)
            break;
        pthread_mutex_unlock(&s->watch_lock);
        tick(s, &w);
        pthread_mutex_lock(&s->watch_lock);
    }
    pthread_mutex_unlock(&s->watch_lock);
    free(w.fds);
    free(w.who);
    return NULL;
}

enum sl_status sl_watch_start(struct sl_server *s, struct sl_err *err) {
    if (pthread_create(&s->watcher, NULL, watcher, s) != 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot start a server thread");
    s->watcher_started = true;
    return SL_OK;
}

void sl_watch_stop(struct sl_server *s) {
    if (!s->watcher_started)
        return;
    pthread_mutex_lock(&s->watch_lock);
    s->watch_stop = true;
    pthread_cond_signal(&s->watch_cond);
    pthread_mutex_unlock(&s->watch_lock);
    pthread_join(s->watcher, NULL);
    s->watcher_started = false;
}
