/* libmicrohttpd's side: listening, bodies within limits, suspended connections, answers. */
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "server/anthropic.h"
#include "server/gen.h"
#include "server/internal.h"
#include "server/renderer.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECTION_MEMORY_BYTES 65536u /* request line, headers and write buffer: else 431 */
#define SEND_BUFFER_BYTES       131072 /* of a socket: what a client that does not read can pile up */
#define SWALLOW_FACTOR          4u /* an oversized body is read on this far, to answer politely */

/* -------------------------------------------------------------------------------------- answers */

static enum MHD_Result queue_response(struct sl_exchange *ex, unsigned status,
                                      struct MHD_Response *response) {
    if (!response)
        return MHD_NO;
    char number[16];
    MHD_add_response_header(response, "Content-Type", ex->content_type);
    MHD_add_response_header(response, "Server", "sluice");
    if (ex->error.retry_after_s) {
        snprintf(number, sizeof number, "%u", ex->error.retry_after_s);
        MHD_add_response_header(response, "Retry-After", number);
    }
    if (ex->allow)
        MHD_add_response_header(response, "Allow", ex->allow);
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    if (atomic_load(&ex->server->draining))
        MHD_add_response_header(response, "Connection", "close");
    ex->http_status = status;
    sl_count(http_requests_total, 1);
    if (status >= 500)
        sl_count(http_errors_5xx_total, 1);
    else if (status >= 400)
        sl_count(http_errors_4xx_total, 1);
    enum MHD_Result r = MHD_queue_response(ex->conn, status, response);
    MHD_destroy_response(response);
    ex->replied = r == MHD_YES;
    return r;
}

/* ex->error or ex->reply */
static enum MHD_Result send_reply(struct sl_exchange *ex) {
    unsigned status = ex->reply_status ? ex->reply_status : 200;
    if (ex->reply.failed && !ex->error.http_status)
        sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
    if (ex->error.http_status) {
        status = ex->error.http_status;
        ex->content_type = "application/json";
        sl_buf_clear(&ex->reply);
        if (sl_anthropic_path(ex->path))
            status = sl_anthropic_error(&ex->reply, &ex->error);
        else
            sl_http_error_json(&ex->reply, &ex->error);
    } else if (ex->allow) {
        status = 204; /* OPTIONS */
    }
    char *ptr = ex->reply.ptr;
    size_t len = ex->reply.failed ? 0 : ex->reply.len;
    ex->reply = (struct sl_buf){0};
    struct MHD_Response *response = MHD_create_response_from_buffer(
        len, ptr ? ptr : "", ptr ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response)
        free(ptr);
    return queue_response(ex, status, response);
}

/* libmicrohttpd asks for more of a stream. */
static ssize_t read_stream(void *cls, uint64_t pos, char *buf, size_t max) {
    (void)pos;
    struct sl_exchange *ex = cls;
    struct sl_gen *g = ex->gen;
    for (;;) {
        if (g->out_sent < g->out.len) {
            size_t n = g->out.len - g->out_sent;
            if (n > max)
                n = max;
            memcpy(buf, g->out.ptr + g->out_sent, n);
            g->out_sent += n;
            pthread_mutex_lock(&ex->lock);
            ex->last_out_ns = sl_now_ns();
            pthread_mutex_unlock(&ex->lock);
            return (ssize_t)n;
        }
        if (g->ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        sl_buf_clear(&g->out);
        g->out_sent = 0;
        pthread_mutex_lock(&ex->lock);
        bool gone = ex->gone, keepalive = ex->keepalive;
        ex->keepalive = false;
        pthread_mutex_unlock(&ex->lock);
        if (gone)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        bool more = sl_gen_stream(g);
        if (g->out.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (!more && keepalive)
            sl_gen_keepalive(g);
        if (!more && !keepalive && sl_exchange_wait(ex))
            return 0;
    }
}

static enum MHD_Result send_stream(struct sl_exchange *ex) {
    ex->content_type = "text/event-stream";
    pthread_mutex_lock(&ex->lock);
    ex->last_out_ns = sl_now_ns();
    pthread_mutex_unlock(&ex->lock);
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, ex, NULL);
    if (response) {
        MHD_add_response_header(response, "Cache-Control", "no-cache");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    MHD_set_connection_option(ex->conn, MHD_CONNECTION_OPTION_TIMEOUT, ex->server->config.stall_s);
    return queue_response(ex, 200, response);
}

/* Goes as far as it can: queues an answer, or suspends the connection until there is news. */
static enum MHD_Result advance(struct sl_exchange *ex) {
    for (;;) {
        pthread_mutex_lock(&ex->lock);
        bool working = ex->working, gone = ex->gone;
        pthread_mutex_unlock(&ex->lock);
        if (!working) {
            if (gone)
                return MHD_NO;
            if (ex->error.http_status || !ex->gen)
                return send_reply(ex);
            if (ex->gen->params.stream)
                return send_stream(ex);
            if (sl_gen_collect(ex->gen)) {
                if (ex->gen->failure.http_status)
                    ex->error = ex->gen->failure;
                else
                    ex->gen->renderer->whole(&ex->reply, ex->gen);
                return send_reply(ex);
            }
        }
        if (sl_exchange_wait(ex))
            return MHD_YES;
    }
}

/* ------------------------------------------------------------------------------------- requests */

/* Looks at every byte of every key, whatever the first difference. */
static bool key_accepted(const struct sl_server_config *c, const char *given) {
    size_t n = strlen(given);
    while (n && (given[n - 1] == ' ' || given[n - 1] == '\t'))
        n--; /* white space around a header's value is not part of it; libmicrohttpd leaves it */
    unsigned found = 0;
    for (uint32_t k = 0; k < c->n_api_keys; k++) {
        const char *key = c->api_keys[k];
        size_t len = strlen(key);
        unsigned diff = len != n;
        for (size_t i = 0; i < len; i++)
            diff |= (unsigned char)key[i] ^ (unsigned char)(n ? given[i % n] : 0);
        found |= diff == 0;
    }
    return found != 0;
}

static bool authorized(struct sl_exchange *ex) {
    const struct sl_server_config *c = &ex->server->config;
    if (c->n_api_keys == 0 || (ex->route && ex->route->is_public))
        return true;
    const char *h = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Authorization");
    if (h && strncasecmp(h, "Bearer ", 7) == 0 && key_accepted(c, h + 7))
        return true;
    h = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "x-api-key");
    return h && key_accepted(c, h);
}

static bool too_large(struct sl_exchange *ex) {
    return sl_http_fail(&ex->error, 413, "request_too_large", NULL,
                        "the request body is larger than %llu bytes, the limit of this server "
                        "(--max-body-mib)",
                        (unsigned long long)ex->server->config.max_body_bytes);
}

/* Headers are in. Errors found here wait for the body's end, so that the client, who is still
 * sending, gets to read them. */
static enum MHD_Result begin(struct sl_exchange *ex) {
    struct sl_server *s = ex->server;
    ex->route = sl_route_find(ex->method, ex->path, &ex->allow, &ex->error);
    if (!authorized(ex)) {
        ex->allow = NULL;
        sl_http_fail(&ex->error, 401, "invalid_api_key", NULL,
                     "a valid API key is required: send it as 'Authorization: Bearer KEY'");
    }
    MHD_set_connection_option(ex->conn, MHD_CONNECTION_OPTION_TIMEOUT, s->config.timeout_s);
    const char *h = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Content-Length");
    unsigned long long length = h ? strtoull(h, NULL, 10) : 0;
    if (length > s->config.max_body_bytes && !ex->error.http_status)
        too_large(ex);
    bool expects = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Expect") != NULL;
    if (ex->error.http_status &&
        ((expects && length) || length / SWALLOW_FACTOR > s->config.max_body_bytes)) {
        atomic_store(&ex->collecting, false);
        return send_reply(ex);
    }
    return MHD_YES;
}

static enum MHD_Result take_body(struct sl_exchange *ex, const char *data, size_t size) {
    struct sl_server *s = ex->server;
    atomic_fetch_add(&ex->received_bytes, size);
    bool wanted = ex->route && ex->route->kind == SL_ROUTE_JOB && !ex->error.http_status;
    if (wanted && size > s->config.max_body_bytes - ex->body.len)
        wanted = too_large(ex);
    if (wanted) {
        sl_buf_put(&ex->body, data, size);
        if (sl_exchange_hold_body(ex, ex->body.len) > s->config.max_bodies_bytes)
            sl_http_fail(&ex->error, 503, "overloaded", NULL,
                         "the request bodies being received fill the server's limit of %llu bytes; "
                         "try again later",
                         (unsigned long long)s->config.max_bodies_bytes);
        else if (ex->body.failed)
            sl_http_from_status(&ex->error, SL_ERR_NOMEM, NULL);
        else
            return MHD_YES;
    }
    sl_buf_release(&ex->body);
    sl_exchange_hold_body(ex, 0);
    ex->swallowed_bytes += size;
    return ex->swallowed_bytes / SWALLOW_FACTOR > s->config.max_body_bytes ? MHD_NO : MHD_YES;
}

static bool model_ready(struct sl_exchange *ex) {
    struct sl_server *s = ex->server;
    switch ((enum sl_server_state)atomic_load(&s->state)) {
    case SL_SERVER_READY:
        return true;
    case SL_SERVER_FAILED:
        return sl_http_fail(&ex->error, 503, "model_failed", NULL, "the model did not load: %.400s",
                            s->fail_err.text);
    case SL_SERVER_LOADING:
        break;
    }
    return sl_http_fail(&ex->error, 503, "model_loading", NULL,
                        "the model is still loading; GET /health tells when it is ready");
}

/* The whole request is in. */
static enum MHD_Result dispatch(struct sl_exchange *ex) {
    struct sl_server *s = ex->server;
    atomic_store(&ex->collecting, false);
    atomic_fetch_add(&s->n_active, 1);
    ex->dispatched = true;
    if (ex->error.http_status || !ex->route)
        return send_reply(ex);
    if (atomic_load(&s->draining) && !ex->route->is_public) {
        sl_http_fail(&ex->error, 503, "shutting_down", NULL, "the server is shutting down");
        return send_reply(ex);
    }
    if (ex->route->needs_model && !model_ready(ex))
        return send_reply(ex);
    if (ex->route->kind == SL_ROUTE_INLINE) {
        ex->route->handle(ex);
        return send_reply(ex);
    }
    pthread_mutex_lock(&ex->lock);
    ex->working = true;
    sl_exchange_ref_locked(ex);
    pthread_mutex_unlock(&ex->lock);
    sl_jobs_push(s, ex);
    return advance(ex);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **con_cls) {
    (void)version;
    struct sl_exchange *ex = *con_cls;
    if (!ex) {
        ex = sl_exchange_create(cls, conn, path, method);
        if (!ex)
            return MHD_NO;
        *con_cls = ex;
        return begin(ex);
    }
    if (*size) {
        enum MHD_Result r = take_body(ex, data, *size);
        *size = 0;
        return r;
    }
    return ex->dispatched ? advance(ex) : dispatch(ex);
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode why) {
    (void)cls;
    (void)conn;
    (void)why;
    struct sl_exchange *ex = *con_cls;
    *con_cls = NULL;
    if (ex)
        sl_exchange_complete(ex);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_cls,
                          enum MHD_ConnectionNotificationCode what) {
    (void)cls;
    (void)conn;
    (void)socket_cls;
    sl_count(http_connections, what == MHD_CONNECTION_NOTIFY_STARTED ? 1 : -1);
}

static void on_log(void *cls, const char *fmt, va_list ap) {
    (void)cls;
    char text[512];
    if (!sl_log_enabled(SL_LOG_DEBUG))
        return;
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\r\n")] = '\0';
    sl_debug("http: %s", text);
}

/* ------------------------------------------------------------------------------------ listening */

static enum sl_status listen_on(struct sl_server *s, struct sl_err *err) {
    const char *host = s->config.host;
    char port[8];
    snprintf(port, sizeof port, "%u", s->config.port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    int rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot find the address of host %s: %s", host,
                       gai_strerror(rc));
    int saved = 0, fd = -1;
    for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            saved = errno;
            continue;
        }
        int on = 1, off = 0, send_bytes = SEND_BUFFER_BYTES, idle_s = 15, every_s = 5, probes = 3;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        /* Accepted sockets inherit these. Keep-alive probes find clients whose machine is gone. */
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
        if (a->ai_family == AF_INET6)
            setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
        if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, 1024) != 0) {
            saved = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(list);
    if (fd < 0 && saved == EADDRINUSE)
        return sl_fail(err, SL_ERR_CONFIG,
                       "port %u on %s is in use by another program; choose another with --port",
                       s->config.port, host);
    if (fd < 0)
        return sl_fail(err, SL_ERR_CONFIG, "cannot listen on %s port %u: %s", host, s->config.port,
                       strerror(saved));
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    getsockname(fd, (struct sockaddr *)&bound, &len);
    s->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                : ((struct sockaddr_in *)&bound)->sin_port);
    s->listen_fd = fd;
    return SL_OK;
}

enum sl_status sl_http_start(struct sl_server *s, struct sl_err *err) {
    enum sl_status st = listen_on(s, err);
    if (st != SL_OK)
        return st;
    const struct sl_server_config *c = &s->config;
    s->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_THREAD_POOL_SIZE,
        (unsigned)c->n_http_threads, MHD_OPTION_CONNECTION_LIMIT, (unsigned)c->max_connections,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)c->timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY_BYTES, MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)8192,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, NULL, MHD_OPTION_END);
    if (!s->daemon) {
        close(s->listen_fd);
        s->listen_fd = -1;
        return sl_fail(err, SL_ERR_CONFIG,
                       "cannot start the HTTP server on %s port %u (libmicrohttpd refused)",
                       c->host, s->port);
    }
    return SL_OK;
}

void sl_http_quiesce(struct sl_server *s) {
    /* The socket may be closed only after the daemon has stopped; shut down, it refuses already. */
    if (MHD_quiesce_daemon(s->daemon) != MHD_INVALID_SOCKET)
        shutdown(s->listen_fd, SHUT_RDWR);
}

void sl_http_stop(struct sl_server *s) {
    if (!s->daemon)
        return;
    MHD_stop_daemon(s->daemon);
    s->daemon = NULL;
    close(s->listen_fd);
}
