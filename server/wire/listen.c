#include "server/wire/listen.h"

#include "common/log.h"
#include "server/wire/start_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SEND_BUFFER_BYTES 131072 /* of a socket: what a client that does not read can pile up */
#define BACKLOG           1024
#define ACCEPTS_IN_TURN   64u  /* of one listener, before the others have theirs */
#define LOST_AFTER_MS     1000 /* a connection begins in far less: its thread never waits for work */

/* ------------------------------------------------------------------------------------------ TCP */

static void set_tcp_options(int fd, int family) {
    int on = 1, off = 0, send_bytes = SEND_BUFFER_BYTES, idle_s = 15, every_s = 5, probes = 3;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    /* Accepted sockets inherit these. Keep-alive probes find clients whose machine is gone. */
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
}

static uint16_t bound_port(int fd) {
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    getsockname(fd, (struct sockaddr *)&a, &len);
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

/* A resolver that does not answer takes half a minute. Nothing is to be cleaned up yet, so SIGINT
 * and SIGTERM end the process meanwhile as they end any other. */
static int find_address(const char *host, const char *service, struct addrinfo **out_list) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    pthread_sigmask(SIG_UNBLOCK, &stop, &before);
    int rc = getaddrinfo(host, service, &hints, out_list);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static enum sl_status open_tcp(struct sl_listen *l, const char *given, uint16_t port,
                               struct sl_err *err) {
    char host[256], service[8];
    size_t n = strlen(given);
    bool bracketed = n > 2 && given[0] == '[' && given[n - 1] == ']'; /* as in a URL */
    snprintf(host, sizeof host, "%.*s", (int)(bracketed ? n - 2 : n), given + bracketed);
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo *list;
    int rc = find_address(host, service, &list);
    if (rc != 0)
        return sl_fail(err, SL_ERR_CONFIG, "--host %s: cannot find its address: %s", host,
                       gai_strerror(rc));
    int saved = 0, fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            saved = errno;
            continue;
        }
        set_tcp_options(fd, a->ai_family);
        if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
            saved = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0 && saved == EADDRINUSE)
        return sl_fail(err, SL_ERR_CONFIG,
                       "port %u on %s is in use by another program; choose another with --port",
                       port, host);
    if (fd < 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot listen on --host %s --port %u: %s", host, port,
                       strerror(saved));
    l->port = bound_port(fd);
    l->listeners[l->n++] = (struct sl_listener){fd, true};
    return SL_OK;
}

/* ----------------------------------------------------------------------------------------- UNIX */

/* What a server that was killed left behind is removed; a living server's socket, or a file that is
 * none, is not. */
static enum sl_status clear_path(const struct sockaddr_un *a, struct sl_err *err) {
    struct stat sb;
    if (lstat(a->sun_path, &sb) != 0)
        return SL_OK; /* there is nothing; or bind says what is wrong */
    if (!S_ISSOCK(sb.st_mode))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--unix-socket %s: there is a file of that name, which is not a socket",
                       a->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot make a socket: %s", strerror(errno));
    int rc = connect(fd, (const struct sockaddr *)a, sizeof *a), saved = errno;
    close(fd);
    if (rc != 0 && saved == ECONNREFUSED && unlink(a->sun_path) == 0)
        return SL_OK;
    if (rc == 0 || saved == EAGAIN)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--unix-socket %s is in use by another program; choose another path",
                       a->sun_path);
    return sl_fail(err, SL_ERR_CONFIG, "--unix-socket %s cannot be replaced: %s", a->sun_path,
                   strerror(saved == ECONNREFUSED ? errno : saved));
}

/* Binds with the mode that the file is to have, so that nothing has to be changed by name later,
 * when another file may be there. The umask is the process's: no thread that could make a file is
 * running yet. */
static int bind_with_mode(int fd, const struct sockaddr_un *a, mode_t mode) {
    mode_t before = umask(~mode & 0777);
    int rc = bind(fd, (const struct sockaddr *)a, sizeof *a), saved = errno;
    umask(before);
    errno = saved;
    return rc;
}

static enum sl_status bind_unix(struct sl_listen *l, int fd, const struct sockaddr_un *a,
                                mode_t mode, struct sl_err *err) {
    SL_TRY(clear_path(a, err));
    struct stat sb;
    if (bind_with_mode(fd, a, mode) != 0 || listen(fd, BACKLOG) != 0 ||
        lstat(a->sun_path, &sb) != 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot listen on --unix-socket %s: %s", a->sun_path,
                       strerror(errno));
    if (!S_ISSOCK(sb.st_mode) || (sb.st_mode & 0777 & ~mode))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--unix-socket %s: another program has replaced it; choose a folder in "
                       "which only this user can make files",
                       a->sun_path);
    l->unix_path = strdup(a->sun_path);
    if (!l->unix_path) {
        unlink(a->sun_path);
        return sl_fail(err, SL_ERR_NOMEM, "out of memory");
    }
    l->unix_dev = sb.st_dev;
    l->unix_ino = sb.st_ino;
    return SL_OK;
}

static enum sl_status open_unix(struct sl_listen *l, const char *path, mode_t mode,
                                struct sl_err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof a.sun_path)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--unix-socket: the path must have 1 to %zu bytes; it has %zu",
                       sizeof a.sun_path - 1, strlen(path));
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot make a UNIX socket: %s", strerror(errno));
    int send_bytes = SEND_BUFFER_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    /* Two servers that start at once must not take each other's socket for a dead one's. */
    struct sl_start_lock lock;
    enum sl_status status = sl_start_lock_take(&lock, path, err);
    if (status == SL_OK)
        status = bind_unix(l, fd, &a, mode, err);
    sl_start_lock_release(&lock);
    if (status == SL_OK)
        l->listeners[l->n++] = (struct sl_listener){fd, false};
    else
        close(fd);
    return status;
}

static void remove_unix(struct sl_listen *l) {
    struct stat sb;
    if (l->unix_path && lstat(l->unix_path, &sb) == 0 && sb.st_dev == l->unix_dev &&
        sb.st_ino == l->unix_ino)
        unlink(l->unix_path);
    free(l->unix_path);
    l->unix_path = NULL;
}

enum sl_status sl_listen_open(struct sl_listen *l, const struct sl_server_config *c,
                              struct sl_err *err) {
    *l = (struct sl_listen){.wake_fd = -1, .max_connections = c->max_connections};
    enum sl_status status = SL_OK;
    for (uint32_t i = 0; i < c->n_hosts && status == SL_OK; i++)
        status = open_tcp(l, c->hosts[i], l->port ? l->port : c->port, err);
    if (status == SL_OK && c->unix_socket)
        status = open_unix(l, c->unix_socket, c->unix_mode, err);
    if (status == SL_OK) {
        l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (l->wake_fd < 0)
            status = sl_fail(err, SL_ERR_CONFIG, "cannot make an eventfd: %s", strerror(errno));
    }
    if (status != SL_OK)
        sl_listen_close(l);
    return status;
}

void sl_listen_release(struct sl_listen *l) {
    if (l->wake_fd >= 0)
        close(l->wake_fd);
    l->wake_fd = -1;
}

/* ------------------------------------------------------------------------------------ accepting */

static void wake(struct sl_listen *l) {
    uint64_t one = 1;
    ssize_t n = write(l->wake_fd, &one, sizeof one);
    (void)n; /* full: it is awake */
}

/* The order of the two: at no time is a connection counted by none. */
void sl_listen_begun(struct sl_listen *l) {
    atomic_fetch_add(&l->n_open, 1);
    atomic_fetch_sub(&l->n_handed, 1);
}

static bool is_full(struct sl_listen *l) {
    int32_t handed = atomic_load(&l->n_handed);
    return atomic_load(&l->n_open) + (uint32_t)(handed > 0 ? handed : 0) >= l->max_connections;
}

void sl_listen_ended(struct sl_listen *l) {
    bool full = is_full(l);
    atomic_fetch_sub(&l->n_open, 1);
    if (full)
        wake(l);
}

/* libmicrohttpd drops a connection without a word when it has no memory for it. While all are taken
 * nothing is handed over: what has not begun by the second look is lost, and counted no more. Had
 * it been late and not lost, n_handed stays one below 0, which counts as 0. */
static void forget_lost(struct sl_listen *l, int32_t *seen) {
    int32_t handed = atomic_load(&l->n_handed);
    if (handed > 0 && handed == *seen) {
        atomic_fetch_sub(&l->n_handed, handed);
        sl_warn("%d connections were dropped for lack of memory", handed);
        handed = 0;
    }
    *seen = handed;
}

/* False: no more file descriptors or memory; better ask again in a while. */
static bool accept_some(struct sl_listen *l, const struct sl_listener *from) {
    for (uint32_t i = 0; i < ACCEPTS_IN_TURN && !is_full(l); i++) {
        struct sockaddr_storage a = {0};
        socklen_t len = sizeof a;
        int fd = accept4(from->fd, (struct sockaddr *)&a, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
        if (!from->is_tcp) { /* a client's end has no name: libmicrohttpd wants a family */
            a.ss_family = AF_UNIX;
            len = sizeof(sa_family_t);
        }
        /* Counted from here on, so that no more are taken than there may be; closed there on a
         * failure. */
        atomic_fetch_add(&l->n_handed, 1);
        if (MHD_add_connection(from->is_tcp ? l->tcp_daemon : l->unix_daemon, fd,
                               (struct sockaddr *)&a, len) != MHD_YES)
            atomic_fetch_sub(&l->n_handed, 1);
    }
    return true;
}

static void *acceptor(void *arg) {
    struct sl_listen *l = arg;
    bool starved = false, told = false;
    int32_t unbegun = 0;
    while (!atomic_load(&l->stop)) {
        struct pollfd fds[SL_SERVER_MAX_HOSTS + 2] = {{.fd = l->wake_fd, .events = POLLIN}};
        uint32_t n = 0;
        for (uint32_t i = 0; i < l->n && !starved && !is_full(l); i++)
            fds[++n] = (struct pollfd){.fd = l->listeners[i].fd, .events = POLLIN};
        bool full = is_full(l);
        int ready = poll(fds, n + 1, starved ? 100 : full ? LOST_AFTER_MS / 2 : -1);
        if (ready < 0 && errno != EINTR) {
            sl_error("cannot wait for connections: %s", strerror(errno));
            break;
        }
        if (full && ready == 0)
            forget_lost(l, &unbegun);
        else
            unbegun = 0;
        uint64_t count;
        if (fds[0].revents && read(l->wake_fd, &count, sizeof count) < 0)
            continue; /* somebody else's wake-up was taken with an earlier one */
        starved = false;
        for (uint32_t i = 0; i < n; i++)
            if (fds[i + 1].revents && !accept_some(l, &l->listeners[i]))
                starved = true;
        if (starved && !told)
            sl_warn("connections have to wait: %s", strerror(errno));
        told = told || starved;
    }
    return NULL;
}

enum sl_status sl_listen_start(struct sl_listen *l, struct sl_err *err) {
    int rc = pthread_create(&l->thread, NULL, acceptor, l);
    if (rc != 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot start the thread that accepts connections: %s",
                       strerror(rc));
    l->started = true;
    return SL_OK;
}

void sl_listen_close(struct sl_listen *l) {
    if (l->started) {
        atomic_store(&l->stop, true);
        wake(l);
        pthread_join(l->thread, NULL);
        l->started = false;
    }
    while (l->n)
        close(l->listeners[--l->n].fd);
    remove_unix(l);
}
