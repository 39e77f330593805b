/* libmicrohttpd's side: bodies within limits, suspended connections, answers. */
#include "server/http.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/metrics.h"
#include "server/api/anthropic.h"
#include "server/api/ollama.h"
#include "server/exchange/gen.h"
#include "server/exchange/renderer.h"
#include "server/guard.h"
#include "server/observe/about.h"
#include "server/observe/dashboard.h"
#include "server/wire/tls.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTION_MEMORY_BYTES 65536u /* request line, headers and write buffer: else 431 */
#define SWALLOW_FACTOR          4u /* an oversized body is read on this far, to answer politely */

/* -------------------------------------------------------------------------------------- answers */

/* So that the browser lets a page of an allowed origin read the answer. */
static void add_cors(const struct sl_exchange *ex, struct MHD_Response *response) {
    const char *origin = sl_guard_origin(ex);
    if (ex->server->config.n_cors_origins)
        MHD_add_response_header(response, "Vary", "Origin");
    if (!origin)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "Retry-After");
    if (!ex->allow || !sl_guard_preflight(ex))
        return;
    const char *headers =
        MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Access-Control-Request-Headers");
    MHD_add_response_header(response, "Access-Control-Allow-Methods", ex->allow);
    if (headers)
        MHD_add_response_header(response, "Access-Control-Allow-Headers", headers);
    MHD_add_response_header(response, "Access-Control-Max-Age", "600");
}

/* The event is that libmicrohttpd has it. */
static enum MHD_Result queue_response(struct sl_exchange *ex, enum sl_exchange_event event,
                                      unsigned status, struct MHD_Response *response) {
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
    if (atomic_load(&ex->server->draining) || ex->close_after)
        MHD_add_response_header(response, "Connection", "close");
    add_cors(ex, response);
    ex->http_status = status;
    sl_answers_count(ex->server, ex->route, status);
    if (status >= 500)
        sl_count(http_errors_5xx_total, 1);
    else if (status >= 400)
        sl_count(http_errors_4xx_total, 1);
    enum MHD_Result r = MHD_queue_response(ex->conn, status, response);
    MHD_destroy_response(response);
    return r == MHD_YES && sl_exchange_step(ex, event) ? MHD_YES : MHD_NO;
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
        if (sl_anthropic_client(ex))
            status = sl_anthropic_error(&ex->reply, &ex->error);
        else if (sl_ollama_client(ex))
            sl_ollama_error(&ex->reply, &ex->error);
        else
            sl_http_error_json(&ex->reply, &ex->error);
    } else if (ex->allow) {
        status = 204; /* OPTIONS */
    }
    if (ex->file && status == 200) {
        struct MHD_Response *page = sl_dashboard_response(ex, &status);
        return queue_response(ex, SL_EVENT_ANSWERED, status, page);
    }
    char *ptr = ex->reply.ptr;
    size_t len = ex->reply.failed ? 0 : ex->reply.len;
    ex->reply = (struct sl_buf){0};
    struct MHD_Response *response = MHD_create_response_from_buffer(
        len, ptr ? ptr : "", ptr ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (!response)
        free(ptr);
    return queue_response(ex, SL_EVENT_ANSWERED, status, response);
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
        bool gone = sl_exchange_is_gone(ex->state), keepalive = ex->keepalive;
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
    ex->content_type = ex->gen->renderer->lines ? "application/x-ndjson" : "text/event-stream";
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
    return queue_response(ex, SL_EVENT_STREAM_BEGUN, 200, response);
}

/* Goes as far as it can: queues an answer, or suspends the connection until there is news. */
static enum MHD_Result advance(struct sl_exchange *ex) {
    for (;;) {
        enum sl_exchange_state state = sl_exchange_state(ex);
        if (state == SL_EXCHANGE_ANSWERING)
            return send_reply(ex);
        if (state == SL_EXCHANGE_GENERATING) {
            if (ex->gen->params.stream)
                return send_stream(ex);
            if (sl_gen_collect(ex->gen)) {
                if (ex->gen->failure.http_status)
                    ex->error = ex->gen->failure;
                else
                    ex->gen->renderer->whole(&ex->reply, ex->gen);
                return send_reply(ex);
            }
        } else if (!sl_exchange_has_job(state)) {
            return MHD_NO; /* the client left */
        }
        if (sl_exchange_wait(ex))
            return MHD_YES;
    }
}

/* ------------------------------------------------------------------------------------- requests */

static bool too_large(struct sl_exchange *ex) {
    return sl_http_fail(&ex->error, 413, "request_too_large", NULL,
                        "the request body is larger than %llu bytes, the limit of this server "
                        "(--max-body-mib)",
                        (unsigned long long)ex->server->config.max_body_bytes);
}

/* With the connection's end: nobody can say where the next request begins. */
static enum MHD_Result send_last(struct sl_exchange *ex) {
    ex->close_after = true;
    return send_reply(ex);
}

/* Before the body is in: no more of it is read. */
static enum MHD_Result send_early(struct sl_exchange *ex) {
    return sl_exchange_step(ex, SL_EVENT_RECEIVED) ? send_last(ex) : MHD_NO;
}

/* Headers are in. Errors found here wait for the body's end, so that the client, who is still
 * sending, gets to read them. */
static enum MHD_Result begin(struct sl_exchange *ex, const char *version) {
    struct sl_server *s = ex->server;
    if (!sl_guard_framing(ex, version))
        return send_early(ex);
    ex->route = sl_route_find(ex->method, ex->path, &ex->allow, &ex->error);
    if (!sl_guard_host(ex)) {
        ex->allow = NULL;
    } else if (!sl_guard_key(ex) && !sl_guard_preflight(ex)) {
        ex->allow = NULL;
        sl_http_fail(&ex->error, 401, "invalid_api_key", NULL,
                     "a valid API key is required: send it as 'Authorization: Bearer KEY'");
    } else if (!sl_guard_page(ex)) {
        ex->allow = NULL;
    }
    ex->owner = sl_guard_owner(ex);
    const char *order = MHD_lookup_connection_value(ex->conn, MHD_GET_ARGUMENT_KIND, "order");
    ex->ascending = order && strcmp(order, "asc") == 0;
    MHD_set_connection_option(ex->conn, MHD_CONNECTION_OPTION_TIMEOUT, s->config.timeout_s);
    const char *h = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Content-Length");
    unsigned long long length = h ? strtoull(h, NULL, 10) : 0;
    if (length > s->config.max_body_bytes && !ex->error.http_status)
        too_large(ex);
    bool expects = MHD_lookup_connection_value(ex->conn, MHD_HEADER_KIND, "Expect") != NULL;
    if (ex->error.http_status &&
        ((expects && length) || length / SWALLOW_FACTOR > s->config.max_body_bytes))
        return send_early(ex);
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
    if (!sl_exchange_step(ex, SL_EVENT_RECEIVED))
        return MHD_NO;
    atomic_fetch_add(&s->n_active, 1);
    ex->counted = true;
    if (!sl_guard_wire(ex))
        return send_last(ex);
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
    bool queued = sl_exchange_step_locked(ex, SL_EVENT_QUEUED);
    if (queued)
        sl_exchange_ref_locked(ex); /* the job's */
    pthread_mutex_unlock(&ex->lock);
    if (!queued)
        return MHD_NO;
    sl_jobs_push(s, ex);
    return advance(ex);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *path,
                                  const char *method, const char *version, const char *data,
                                  size_t *size, void **con_cls) {
    struct sl_exchange *ex = *con_cls;
    if (!ex) {
        char *name = sl_route_path(path);
        ex = name ? sl_exchange_create(cls, conn, name, method) : NULL;
        free(name);
        if (!ex)
            return MHD_NO;
        *con_cls = ex;
        return begin(ex, version);
    }
    if (*size) {
        enum MHD_Result r = take_body(ex, data, *size);
        *size = 0;
        return r;
    }
    return sl_exchange_state(ex) == SL_EXCHANGE_RECEIVING ? dispatch(ex) : advance(ex);
}

/* Of a request that did not end with its answer's last byte. */
static const char *ended_by(enum MHD_RequestTerminationCode why) {
    switch (why) {
    case MHD_REQUEST_TERMINATED_TIMEOUT_REACHED:
        return "a time-out";
    case MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN:
        return "the server's end";
    case MHD_REQUEST_TERMINATED_READ_ERROR:
        return "a failed read";
    case MHD_REQUEST_TERMINATED_CLIENT_ABORT:
        return "its client";
    default:
        return "the server";
    }
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **con_cls,
                         enum MHD_RequestTerminationCode why) {
    (void)cls;
    (void)conn;
    struct sl_exchange *ex = *con_cls;
    *con_cls = NULL;
    if (ex && why != MHD_REQUEST_TERMINATED_COMPLETED_OK)
        sl_debug("http: a request that was %s is ended by %s",
                 sl_exchange_state_name(sl_exchange_state(ex)), ended_by(why));
    if (ex)
        sl_exchange_complete(ex);
}

static void link_begin(struct sl_server *s, struct MHD_Connection *conn, void **socket_cls) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sl_link *l = info ? calloc(1, sizeof *l) : NULL;
    *socket_cls = l;
    if (!l)
        return;
    l->fd = info->connect_fd;
    l->since_ns = sl_now_ns();
    info = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    l->wire.is_tls = info && info->tls_session;
    int domain = 0;
    socklen_t len = sizeof domain;
    l->is_unix = getsockopt(l->fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
    if (!sl_wire_attach(l->fd, &l->wire)) {
        free(l);
        *socket_cls = NULL;
        return;
    }
    pthread_mutex_lock(&s->list_lock);
    l->next = s->links;
    if (l->next)
        l->next->prev = l;
    s->links = l;
    pthread_mutex_unlock(&s->list_lock);
}

/* Before the socket is closed: the watcher may use it while it finds it on the list. */
static void link_end(struct sl_server *s, void **socket_cls) {
    struct sl_link *l = *socket_cls;
    *socket_cls = NULL;
    if (!l)
        return;
    pthread_mutex_lock(&s->list_lock);
    if (l->prev)
        l->prev->next = l->next;
    else
        s->links = l->next;
    if (l->next)
        l->next->prev = l->prev;
    pthread_mutex_unlock(&s->list_lock);
    sl_wire_detach(l->fd);
    free(l);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **socket_cls,
                          enum MHD_ConnectionNotificationCode what) {
    struct sl_server *s = cls;
    bool begins = what == MHD_CONNECTION_NOTIFY_STARTED;
    sl_count(http_connections, begins ? 1 : -1);
    if (begins) {
        sl_listen_begun(&s->listen);
        link_begin(s, conn, socket_cls);
    } else {
        link_end(s, socket_cls);
        sl_listen_ended(&s->listen);
    }
}

static unsigned hex_value(char c) {
    return isdigit((unsigned char)c)    ? (unsigned)(c - '0')
           : isxdigit((unsigned char)c) ? (unsigned)(tolower((unsigned char)c) - 'a' + 10)
                                        : 16;
}

/* In place, as libmicrohttpd does it by itself, but for %00: it would end the text. */
static size_t unescape(void *cls, struct MHD_Connection *conn, char *text) {
    (void)cls;
    (void)conn;
    char *out = text;
    for (const char *p = text; *p; p++) {
        unsigned high = *p == '%' ? hex_value(p[1]) : 16;
        unsigned byte = high < 16 && hex_value(p[2]) < 16 ? high * 16 + hex_value(p[2]) : 0;
        *out++ = byte ? (char)byte : *p;
        p += byte ? 2 : 0;
    }
    *out = '\0';
    return (size_t)(out - text);
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

/* ------------------------------------------------------------------------------------- daemons */

static struct MHD_Daemon *start_daemon(struct sl_server *s, bool tls) {
    const struct sl_server_config *c = &s->config;
    const struct MHD_OptionItem tls_options[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(uintptr_t)sl_tls_retrieve},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, SL_TLS_PRIORITIES},
        {MHD_OPTION_END, 0, NULL},
    };
    /* How many connections there may be is kept by sl_listen: a thread's share of the pool must not
     * be what refuses one. */
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC | MHD_USE_ERROR_LOG |
            MHD_USE_NO_LISTEN_SOCKET | (tls ? MHD_USE_TLS : 0),
        0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_THREAD_POOL_SIZE, (unsigned)c->n_http_threads, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(c->max_connections * c->n_http_threads), MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)c->timeout_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY_BYTES,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)8192, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        NULL, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_ARRAY,
        tls ? tls_options : &tls_options[2], MHD_OPTION_END);
}

static bool is_loopback(int fd) {
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return false;
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a;
    return a.ss_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)
                                   : ntohl(v4->sin_addr.s_addr) >> 24 == 127;
}

/* Which names of this machine are this server's. */
static void find_names(struct sl_server *s) {
    s->only_loopback = true;
    for (uint32_t i = 0; i < s->listen.n; i++)
        if (s->listen.listeners[i].is_tcp && !is_loopback(s->listen.listeners[i].fd))
            s->only_loopback = false;
    if (gethostname(s->host_name, sizeof s->host_name - 1) != 0)
        s->host_name[0] = '\0';
}

enum sl_status sl_http_start(struct sl_server *s, struct sl_err *err) {
    const struct sl_server_config *c = &s->config;
    bool tls = c->tls_cert != NULL, plain = !tls || c->unix_socket;
    if (tls)
        SL_TRY(sl_tls_load(c->tls_cert, c->tls_key, err));
    SL_TRY(sl_listen_open(&s->listen, c, err));
    find_names(s);
    if ((plain && !(s->daemons[0] = start_daemon(s, false))) ||
        (tls && !(s->daemons[1] = start_daemon(s, true))))
        return sl_fail(err, SL_ERR_CONFIG, "cannot start the HTTP server: libmicrohttpd refused%s",
                       tls ? "; was it built with TLS?" : "");
    s->listen.tcp_daemon = s->daemons[tls];
    s->listen.unix_daemon = s->daemons[0];
    return sl_listen_start(&s->listen, err);
}

void sl_http_quiesce(struct sl_server *s) {
    sl_listen_close(&s->listen);
}

void sl_http_stop(struct sl_server *s) {
    sl_listen_close(&s->listen);
    for (uint32_t i = 0; i < 2; i++) {
        if (s->daemons[i])
            MHD_stop_daemon(s->daemons[i]);
        s->daemons[i] = NULL;
    }
    sl_listen_release(&s->listen);
    if (s->config.tls_cert)
        sl_tls_release();
}
