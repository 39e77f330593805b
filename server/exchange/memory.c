/* What the server may take, and how its limits follow from a sum. */
#include "server/exchange/memory.h"

#include "server/request/fields.h"

#include <stdlib.h>

/* A connection: libmicrohttpd's pool (64 KiB), a response's buffer and ours, the exchange. */
#define CONNECTION_BYTES ((uint64_t)112 << 10)
/* With TLS: GnuTLS' session, its records in and out (16 KiB each), and the handshake's parts. */
#define TLS_BYTES ((uint64_t)80 << 10)
/* A thread: its stack as far as parsers and templates nest, and the kernel's part. */
#define THREAD_BYTES  ((uint64_t)288 << 10)
#define OTHER_THREADS 3u /* who accepts, the watcher, the model's loader */

/* What one worker may take, W, and what of it each part gets. A body is there four times at most
 * while it is parsed and its parts are joined; a token of an echo or of /tokenize with pieces costs
 * some 56 bytes for a byte of text, a byte of a prompt some 10. */
#define WORKER_BODIES    32u /* body at most W / 32 */
#define WORKER_JSON      8u  /* parsed values W / 8 */
#define WORKER_TEMPLATE  4u  /* a template's values W / 4 */
#define WORKER_TEXT      32u /* its text W / 32 */
#define WORKER_TOKENIZE  96u /* text for /tokenize W / 96 */
#define JSON_UNIT_BYTES  52u /* see SL_JSON_MAX_UNITS */
#define MAX_WORKER_BYTES ((uint64_t)2 << 30)
#define MAX_BODY_BYTES   ((uint64_t)64 << 20)
#define MAX_BODIES_BYTES ((uint64_t)256 << 20)
#define MAX_CONNECTIONS  1024u
#define MAX_RESPONSES    ((uint64_t)64 << 20)
#define MIN_CONNECTIONS  16u

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static uint64_t threads_bytes(const struct sl_server_config *c) {
    /* TLS alongside a UNIX socket, which has none: two pools. */
    uint32_t pools = c->tls_cert && c->unix_socket ? 2 : 1;
    return (pools * c->n_http_threads + c->n_workers + OTHER_THREADS) * THREAD_BYTES;
}

static uint64_t connection_bytes(const struct sl_server_config *c) {
    return CONNECTION_BYTES + (c->tls_cert ? TLS_BYTES : 0);
}

static uint64_t responses_bytes(const struct sl_server_config *c) {
    return c->response_store_bytes == SL_NO_RESPONSE_STORE ? 0 : c->response_store_bytes;
}

void sl_server_defaults(struct sl_server_config *c) {
    static const char *const loopback[] = {"127.0.0.1"};
    if (!c->n_hosts && !c->unix_socket) {
        c->hosts = loopback;
        c->n_hosts = 1;
    }
    if (!c->unix_mode)
        c->unix_mode = 0600;
    if (c->n_http_threads < 2) /* one is not a pool to libmicrohttpd */
        c->n_http_threads = 2;
    if (!c->n_workers)
        c->n_workers = 2;
    if (!c->max_body_bytes)
        c->max_body_bytes = MAX_BODY_BYTES;
    if (!c->max_bodies_bytes)
        c->max_bodies_bytes = 4 * c->max_body_bytes;
    if (!c->max_replies_bytes)
        c->max_replies_bytes = (uint64_t)256 << 20;
    if (!c->worker_bytes)
        c->worker_bytes = MAX_WORKER_BYTES;
    if (!c->response_store_bytes)
        c->response_store_bytes = MAX_RESPONSES;
    if (!c->max_connections)
        c->max_connections = MAX_CONNECTIONS;
    if (!c->timeout_s)
        c->timeout_s = 60;
    if (!c->stall_s)
        c->stall_s = 600;
    if (!c->keepalive_s)
        c->keepalive_s = 5;
    if (!c->buffer_tokens)
        c->buffer_tokens = 1024;
}

void sl_server_fit(struct sl_server_config *c, uint64_t bytes) {
    struct sl_server_config d = *c;
    sl_server_defaults(&d);
    uint64_t all = bytes > threads_bytes(&d) ? bytes - threads_bytes(&d) : 0;
    if (!c->response_store_bytes)
        c->response_store_bytes = larger(smaller(all / 16, MAX_RESPONSES), 1);
    all -= smaller(all, responses_bytes(c));
    if (!c->worker_bytes) {
        c->worker_bytes = smaller(all * 5 / 8 / d.n_workers, MAX_WORKER_BYTES);
        c->worker_bytes = larger(c->worker_bytes, c->max_body_bytes * WORKER_BODIES);
    }
    if (!c->max_body_bytes)
        c->max_body_bytes = smaller(c->worker_bytes / WORKER_BODIES, MAX_BODY_BYTES);
    if (!c->max_bodies_bytes)
        c->max_bodies_bytes = larger(smaller(all / 8, MAX_BODIES_BYTES), c->max_body_bytes);
    if (!c->max_replies_bytes)
        c->max_replies_bytes = smaller(all / 8, MAX_BODIES_BYTES);
    if (!c->max_connections)
        c->max_connections = (uint32_t)larger(
            smaller(all / 8 / connection_bytes(&d), MAX_CONNECTIONS), MIN_CONNECTIONS);
    sl_server_defaults(c);
}

uint64_t sl_server_memory_bytes(const struct sl_server_config *config) {
    struct sl_server_config c = *config;
    sl_server_defaults(&c);
    return responses_bytes(&c) + c.max_bodies_bytes + c.max_replies_bytes +
           c.n_workers * c.worker_bytes + c.max_connections * connection_bytes(&c) +
           threads_bytes(&c);
}

uint32_t sl_server_json_units(const struct sl_server_config *c) {
    return (uint32_t)smaller(c->worker_bytes / WORKER_JSON / JSON_UNIT_BYTES, SL_JSON_MAX_UNITS);
}

uint64_t sl_server_tokenize_bytes(const struct sl_server_config *c) {
    return smaller(c->worker_bytes / WORKER_TOKENIZE, (uint64_t)8 << 20);
}

struct sl_template_limits sl_server_template_limits(const struct sl_server_config *c) {
    struct sl_template_limits l = sl_template_default_limits;
    l.max_memory_bytes = smaller(c->worker_bytes / WORKER_TEMPLATE, l.max_memory_bytes);
    l.max_output_bytes = smaller(c->worker_bytes / WORKER_TEXT, l.max_output_bytes);
    if (c->template_steps)
        l.max_steps = c->template_steps;
    if (c->template_timeout_s)
        l.max_time_ns = (uint64_t)c->template_timeout_s * 1000000000u;
    return l;
}
