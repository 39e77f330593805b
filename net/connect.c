/* Making links: to somebody, and for those who come. */
#include "net/link_internal.h"

#include "common/clock.h"
#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often a caller who waits looks whether it was canceled. */
#define LOOK_MS 50
/* Connections that have not proven themselves: so many at once, for so long each. */
#define MAX_UNPROVEN 64u
#define UNPROVEN_NS  5000000000u
#define BACKLOG      64
/* One line in the log for those that are refused, so often at most. */
#define TELL_NS 1000000000u

int sl_net_socket(const struct sl_net_address *a) {
    return socket(a->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

void sl_net_no_delay(int fd, const struct sl_net_address *a) {
    int on = 1;
    if (a->any.sa_family != AF_UNIX)
        (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static enum sl_status refuse_plain(const char *address, struct sl_err *err) {
    return sl_fail(err, SL_ERR_CONFIG,
                   "'%.200s' is not on this machine: without a key only loopback addresses and "
                   "UNIX sockets are allowed",
                   address);
}

/* ---- connecting ---- */

struct attempt {
    const char *address;
    const atomic_bool *cancel;
    uint64_t until_ns;
};

/* Until the socket can do what events say. */
static enum sl_status await(const struct attempt *a, int fd, short events, struct sl_err *err) {
    for (;;) {
        struct pollfd p = {fd, events, 0};
        if (a->cancel && *a->cancel)
            return sl_fail(err, SL_ERR_CANCELED, "interrupted");
        if (sl_now_ns() >= a->until_ns)
            return sl_fail(err, SL_ERR_PEER_LOST, "%s does not answer", a->address);
        if (poll(&p, 1, LOOK_MS) > 0)
            return SL_OK;
    }
}

static enum sl_status connect_one(const struct attempt *a, const struct sl_net_address *to,
                                  int *out_fd, struct sl_err *err) {
    int fd = sl_net_socket(to), failed = 0;
    if (fd < 0)
        return sl_fail(err, SL_ERR_PEER_LOST, "no socket for %s: %s", a->address, strerror(errno));
    sl_net_no_delay(fd, to);
    enum sl_status status = SL_OK;
    if (connect(fd, &to->any, to->n) != 0) {
        failed = errno;
        if (failed == EINPROGRESS) {
            socklen_t n = sizeof failed;
            status = await(a, fd, POLLOUT, err);
            if (status == SL_OK)
                (void)!getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &n);
        }
    }
    if (status == SL_OK && failed)
        status = sl_fail(err, SL_ERR_PEER_LOST, "%s: %s", a->address, strerror(failed));
    if (status != SL_OK)
        close(fd);
    else
        *out_fd = fd;
    return status;
}

static enum sl_status shake(const struct attempt *a, struct sl_transport *t, struct sl_err *err) {
    struct sl_err why;
    short events;
    enum sl_status status;
    while ((status = sl_transport_shake(t, &events, &why)) == SL_AGAIN)
        SL_TRY(await(a, sl_transport_fd(t), events, err));
    return status == SL_OK ? SL_OK : sl_fail(err, status, "%s: %s", a->address, why.text);
}

enum sl_status sl_link_connect(const char *address, const struct sl_link_config *config,
                               struct sl_link_owner *owner, const atomic_bool *cancel,
                               struct sl_link **out, struct sl_err *err) {
    const struct attempt a = {address, cancel, sl_now_ns() + config->connect_ns};
    struct sl_net_address to[SL_NET_ADDRESSES];
    struct sl_transport *t;
    size_t n = 0, i = 0;
    int fd = -1;
    SL_TRY(sl_net_resolve(address, false, to, &n, err));
    enum sl_status status = sl_fail(err, SL_ERR_PEER_LOST, "%s has no address", address);
    for (i = 0; i < n; i++) {
        if (!config->key && !sl_net_is_local(&to[i]))
            return refuse_plain(address, err);
        /* One that nobody answers at leaves as much time to each that follows. */
        uint64_t now = sl_now_ns(), left = a.until_ns > now ? a.until_ns - now : 0;
        const struct attempt one = {address, cancel, now + left / (n - i)};
        status = connect_one(&one, &to[i], &fd, err);
        if (status != SL_ERR_PEER_LOST)
            break;
    }
    if (status != SL_OK)
        return status;
    SL_TRY(sl_transport_create(fd, config->key, false, &t, err));
    status = shake(&a, t, err);
    if (status != SL_OK) {
        sl_transport_close(&t);
        return status;
    }
    SL_TRY(sl_link_create(t, &to[i], config, out, err));
    sl_link_own(*out, owner);
    return SL_OK;
}

/* ---- listening ---- */

struct unproven {
    struct sl_transport *transport; /* NULL: the place is free */
    struct sl_net_address peer;
    uint64_t since_ns;
    short events;
};

struct sl_listener {
    struct sl_link_config config;
    struct sl_listener_owner *owner;
    struct sl_net_address at;
    char address[128];
    int fd, wake;
    pthread_t thread;
    atomic_bool closing;
    /* The thread's. */
    bool pauses; /* nobody could be accepted just now, for want of descriptors or memory */
    struct unproven unproven[MAX_UNPROVEN];
    uint64_t told_ns, n_untold;
};

size_t sl_listener_bytes(bool keyed) {
    return sizeof(struct sl_listener) + MAX_UNPROVEN * sl_transport_bytes(keyed, false);
}

static void tell(struct sl_listener *l, const struct unproven *u, const char *why) {
    char peer[80];
    uint64_t now = sl_now_ns();
    if (l->told_ns && now - l->told_ns < TELL_NS) {
        l->n_untold++;
        return;
    }
    sl_net_address_text(&u->peer, peer, sizeof peer);
    if (l->n_untold)
        sl_warn("%s was refused: %s (and %llu others before)", peer, why,
                (unsigned long long)l->n_untold);
    else
        sl_warn("%s was refused: %s", peer, why);
    l->told_ns = now;
    l->n_untold = 0;
}

static void drop(struct sl_listener *l, struct unproven *u, const char *why) {
    tell(l, u, why);
    sl_transport_close(&u->transport);
}

/* A free place; if there is none, that of who has said nothing for longest, and only if all have
 * said something, of who has taken longest: on a busy machine a handshake takes as long as many
 * silent connections. */
static struct unproven *place(struct sl_listener *l) {
    struct unproven *last = NULL;
    bool last_heard = false;
    for (uint32_t i = 0; i < MAX_UNPROVEN; i++) {
        struct unproven *u = &l->unproven[i];
        if (!u->transport)
            return u;
        bool heard = sl_transport_heard(u->transport);
        if (last && (heard != last_heard ? heard : u->since_ns >= last->since_ns))
            continue;
        last = u;
        last_heard = heard;
    }
    drop(l, last,
         last_heard ? "it did not prove itself, and others wait"
                    : "it said nothing, and others wait");
    return last;
}

static void go_on(struct sl_listener *l, struct unproven *u) {
    struct sl_link *link;
    struct sl_err why;
    enum sl_status status = sl_transport_shake(u->transport, &u->events, &why);
    if (status == SL_AGAIN)
        return;
    if (status != SL_OK) {
        drop(l, u, why.text);
        return;
    }
    struct sl_transport *t = u->transport;
    u->transport = NULL;
    if (sl_link_create(t, &u->peer, &l->config, &link, &why) == SL_OK)
        l->owner->accepted(l->owner, link);
    else
        sl_error("%s", why.text);
}

static void accept_all(struct sl_listener *l) {
    for (uint32_t i = 0; i < MAX_UNPROVEN; i++) {
        struct sl_net_address from = {.n = sizeof from.storage};
        struct sl_err why;
        int fd = accept4(l->fd, &from.any, &from.n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        l->pauses = fd < 0 && errno != EAGAIN && errno != EWOULDBLOCK;
        if (fd < 0)
            return;
        sl_net_no_delay(fd, &l->at);
        struct unproven *u = place(l);
        u->peer = from;
        u->since_ns = sl_now_ns();
        if (sl_transport_create(fd, l->config.key, true, &u->transport, &why) == SL_OK)
            go_on(l, u);
        else
            sl_error("%s", why.text);
    }
}

static void drop_late(struct sl_listener *l) {
    uint64_t now = sl_now_ns();
    for (uint32_t i = 0; i < MAX_UNPROVEN; i++)
        if (l->unproven[i].transport && now - l->unproven[i].since_ns > UNPROVEN_NS)
            drop(l, &l->unproven[i], "it did not prove itself in time");
}

static void *listener_main(void *arg) {
    struct sl_listener *l = arg;
    struct pollfd fds[MAX_UNPROVEN + 2];
    while (!atomic_load(&l->closing)) {
        struct unproven *of[MAX_UNPROVEN + 2] = {0};
        nfds_t n = 0;
        fds[n++] = (struct pollfd){l->wake, POLLIN, 0};
        fds[n++] = (struct pollfd){l->pauses ? -1 : l->fd, POLLIN, 0};
        int most_ms = l->pauses ? LOOK_MS : -1; /* whoever waits there would be seen at once */
        l->pauses = false;
        for (uint32_t i = 0; i < MAX_UNPROVEN; i++)
            if (l->unproven[i].transport) {
                of[n] = &l->unproven[i];
                fds[n++] = (struct pollfd){sl_transport_fd(l->unproven[i].transport),
                                           l->unproven[i].events, 0};
            }
        if (poll(fds, n, n > 2 ? LOOK_MS : most_ms) > 0) {
            for (nfds_t i = 2; i < n; i++)
                if (fds[i].revents)
                    go_on(l, of[i]);
            if (fds[1].revents)
                accept_all(l);
        }
        drop_late(l);
    }
    return NULL;
}

/* A socket's file that nobody listens on any more is in the way. */
static void remove_stale(const struct sl_net_address *a) {
    struct stat about;
    if (a->any.sa_family != AF_UNIX || lstat(a->un.sun_path, &about) != 0 ||
        !S_ISSOCK(about.st_mode))
        return;
    int fd = sl_net_socket(a);
    if (fd >= 0 && connect(fd, &a->any, a->n) != 0 && errno == ECONNREFUSED)
        unlink(a->un.sun_path);
    if (fd >= 0)
        close(fd);
}

static enum sl_status bind_to(struct sl_listener *l, const char *address, struct sl_err *err) {
    struct sl_net_address at[SL_NET_ADDRESSES];
    size_t n = 0;
    int on = 1;
    SL_TRY(sl_net_resolve(address, true, at, &n, err));
    l->at = at[0];
    if (!n || (!l->config.key && !sl_net_is_local(&l->at)))
        return refuse_plain(address, err);
    remove_stale(&l->at);
    l->fd = sl_net_socket(&l->at);
    if (l->fd >= 0 && l->at.any.sa_family != AF_UNIX)
        (void)!setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    mode_t before = umask(0177); /* of a UNIX socket's file */
    int failed = l->fd < 0 || bind(l->fd, &l->at.any, l->at.n) != 0 || listen(l->fd, BACKLOG) != 0
                     ? errno
                     : 0;
    umask(before);
    if (failed)
        return sl_fail(err, SL_ERR_CONFIG, "cannot listen on %s: %s", address, strerror(failed));
    l->at.n = sizeof l->at.storage;
    if (l->at.any.sa_family != AF_UNIX)
        (void)!getsockname(l->fd, &l->at.any, &l->at.n);
    sl_net_address_text(&l->at, l->address, sizeof l->address);
    return SL_OK;
}

enum sl_status sl_listener_open(const char *address, const struct sl_link_config *config,
                                struct sl_listener_owner *owner, struct sl_listener **out,
                                struct sl_err *err) {
    struct sl_listener *l = calloc(1, sizeof *l);
    if (!l)
        return sl_fail(err, SL_ERR_NOMEM, "no memory for a listener");
    l->config = *config;
    l->owner = owner;
    l->fd = -1;
    atomic_init(&l->closing, false);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum sl_status status = l->wake < 0 ? sl_fail(err, SL_ERR_NOMEM, "no memory for a listener")
                                        : bind_to(l, address, err);
    if (status == SL_OK && pthread_create(&l->thread, NULL, listener_main, l) != 0)
        status = sl_fail(err, SL_ERR_NOMEM, "the listener's thread could not be started");
    if (status != SL_OK) {
        if (l->fd >= 0)
            close(l->fd);
        if (l->wake >= 0)
            close(l->wake);
        free(l);
        return status;
    }
    pthread_setname_np(l->thread, "sl-listener");
    *out = l;
    return SL_OK;
}

const char *sl_listener_address(const struct sl_listener *l) {
    return l->address;
}

void sl_listener_close(struct sl_listener *l) {
    uint64_t one = 1;
    if (!l)
        return;
    atomic_store(&l->closing, true);
    (void)!write(l->wake, &one, sizeof one);
    pthread_join(l->thread, NULL);
    for (uint32_t i = 0; i < MAX_UNPROVEN; i++)
        sl_transport_close(&l->unproven[i].transport);
    if (l->at.any.sa_family == AF_UNIX)
        unlink(l->at.un.sun_path);
    close(l->fd);
    close(l->wake);
    free(l);
}
