#include "server/wire/status_pages.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_CONNECTIONS         32u
#define TIMEOUT_S               5u
#define CONNECTION_MEMORY_BYTES 8192u
#define BACKLOG                 64

struct sl_status_pages {
    const struct sl_status_page *pages;
    size_t n_pages;
    void *ctx;
    struct MHD_Daemon *daemon;
    uint16_t port;
    /* Open connections, the oldest first. The daemon's thread's. */
    int fds[MAX_CONNECTIONS];
    uint32_t n_fds;
};

static enum MHD_Result queue(struct MHD_Connection *conn, unsigned status, const char *type,
                             char *text, size_t n) {
    struct MHD_Response *r = MHD_create_response_from_buffer(n, text, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(text);
        return MHD_NO;
    }
    MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "Server", "sluice");
    enum MHD_Result queued = MHD_queue_response(conn, status, r);
    MHD_destroy_response(r);
    return queued;
}

static enum MHD_Result refuse(struct MHD_Connection *conn, unsigned status, const char *why) {
    char *text = strdup(why);
    return text ? queue(conn, status, "text/plain; charset=utf-8", text, strlen(text)) : MHD_NO;
}

static enum MHD_Result answer(const struct sl_status_pages *p, struct MHD_Connection *conn,
                              const char *path, const char *method) {
    const struct sl_status_page *page = NULL;
    for (size_t i = 0; i < p->n_pages && !page; i++)
        if (strcmp(p->pages[i].path, path) == 0)
            page = &p->pages[i];
    if (!page)
        return refuse(conn, 404, "there is no such page: /health, /metrics\n");
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return refuse(conn, 405, "pages can only be read: GET or HEAD\n");
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    if (!f)
        return MHD_NO;
    unsigned status = page->write(p->ctx, f);
    if (fclose(f) != 0 || !text) {
        free(text);
        return MHD_NO;
    }
    return queue(conn, status, page->content_type, text, n);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **con_cls) {
    static char begun;
    (void)version;
    (void)data;
    if (!*con_cls) {
        *con_cls = &begun; /* an answer now would end the connection */
        return MHD_YES;
    }
    return *size ? MHD_NO /* nobody has a body to send */ : answer(cls, conn, path, method);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_cls,
                          enum MHD_ConnectionNotificationCode what) {
    struct sl_status_pages *p = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    uint32_t i = 0;
    (void)socket_cls;
    if (!info)
        return;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        /* One place stays free, so that the next connection is accepted and gets here. */
        if (p->n_fds == MAX_CONNECTIONS - 1)
            shutdown(p->fds[0], SHUT_RDWR);
        if (p->n_fds < MAX_CONNECTIONS)
            p->fds[p->n_fds++] = info->connect_fd;
        return;
    }
    while (i < p->n_fds && p->fds[i] != info->connect_fd)
        i++;
    if (i < p->n_fds) {
        p->n_fds--;
        memmove(&p->fds[i], &p->fds[i + 1], (p->n_fds - i) * sizeof p->fds[0]);
    }
}

static int listen_on(const struct sockaddr *at, socklen_t n_at) {
    int on = 1, fd = socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, at, n_at) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static uint16_t port_of(int fd) {
    struct sockaddr_storage a = {0};
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        return 0;
    memcpy(&v4, &a, sizeof v4);
    memcpy(&v6, &a, sizeof v6);
    return ntohs(a.ss_family == AF_INET6 ? v6.sin6_port : v4.sin_port);
}

enum sl_status sl_status_pages_start(const struct sockaddr *at, socklen_t n_at,
                                     const struct sl_status_page *pages, size_t n_pages, void *ctx,
                                     struct sl_status_pages **out_pages, struct sl_err *err) {
    int fd = listen_on(at, n_at);
    if (fd < 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot listen there: %s", strerror(errno));
    struct sl_status_pages *p = calloc(1, sizeof *p);
    if (!p) {
        close(fd);
        return sl_fail(err, SL_ERR_NOMEM, "no memory for pages");
    }
    p->pages = pages;
    p->n_pages = n_pages;
    p->ctx = ctx;
    p->port = port_of(fd);
    /* The socket is the daemon's from here on, and closed with it. */
    p->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC, 0, NULL, NULL, on_request, p,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)MAX_CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, p, MHD_OPTION_END);
    if (!p->daemon) { /* it may have closed the socket, or not */
        free(p);
        return sl_fail(err, SL_ERR_NOMEM, "libmicrohttpd cannot be started");
    }
    *out_pages = p;
    return SL_OK;
}

uint16_t sl_status_pages_port(const struct sl_status_pages *p) {
    return p->port;
}

void sl_status_pages_stop(struct sl_status_pages **pp) {
    struct sl_status_pages *p = *pp;
    if (!p)
        return;
    MHD_stop_daemon(p->daemon);
    free(p);
    *pp = NULL;
}
