/* The HTTP server: OpenAI's chat and text completions, whole and streamed, and what operators need
 * beside them, over one engine.
 *
 * Life: create binds the port and answers at once (/health says "loading"); attach or fail follows
 * when the model's load ends; drain stops accepting; destroy ends everything.
 * Threads: libmicrohttpd's pool moves bytes and never waits; a few workers parse, render templates
 * and tokenize; one watcher sees clients that vanished; the engine's scheduler calls the sinks. */
#ifndef SL_SERVER_SERVER_H
#define SL_SERVER_SERVER_H

#include "engine/engine.h"
#include "model/tokenizer/tokenizer.h"

struct sl_server;

#define SL_SERVER_MAX_HOSTS 3u

/* Strings and arrays of them are borrowed until sl_server_destroy. */
struct sl_server_config {
    const char *const *hosts; /* [n_hosts] names or addresses to bind */
    uint32_t n_hosts;         /* at most SL_SERVER_MAX_HOSTS; 0 = 127.0.0.1, or with unix_socket
                                 none */
    uint16_t port;            /* of all of them; 0 = one that is free, see sl_server_port */
    const char *unix_socket;  /* a path to listen on as well, without TLS; NULL = none */
    uint32_t unix_mode;       /* of that file; 0 = 0600 */
    const char *tls_cert;     /* PEM files; NULL = no TLS. Both or none. */
    const char *tls_key;
    const char *const *cors_origins; /* [n_cors_origins] whose web pages may ask; "*" = all */
    uint32_t n_cors_origins;
    const char *const *allowed_hosts; /* [n_allowed_hosts] names that clients may call this server
                                         by, besides its own (server/hosts.h); "*" = any */
    uint32_t n_allowed_hosts;
    uint32_t n_http_threads;    /* 0 = 2 */
    uint32_t n_workers;         /* 0 = 2 */
    uint64_t max_body_bytes;    /* of one request; 0 = 64 MiB */
    uint64_t max_bodies_bytes;  /* of all requests together; 0 = 4 times max_body_bytes */
    uint64_t max_replies_bytes; /* of all answers, not sent yet; 0 = 256 MiB */
    uint64_t worker_bytes;      /* what a worker may take for one request; 0 = 2 GiB
                                   (server/memory.h) */
    uint32_t max_connections;   /* 0 = 1024 */
    uint32_t timeout_s;         /* a connection without traffic between requests; 0 = 60 */
    uint32_t stall_s;           /* a stream whose client reads nothing; 0 = 600 */
    uint32_t request_timeout_s; /* a request, waiting included, takes at most; 0 = no limit */
    uint64_t template_steps; /* a conversation through the model's chat template; 0 = 20 million */
    uint32_t template_timeout_s; /* and each rendering of it; 0 = 30 */
    uint32_t keepalive_s;        /* comment on a silent stream; 0 = 5 */
    uint32_t buffer_tokens;      /* an answer's tokens its client has not read, before its session
                                    parks; 0 = 1024 (a sixteenth with log-probabilities) */
    const char *const *api_keys; /* accepted keys; none = open */
    uint32_t n_api_keys;
};

/* Binds and listens. A port in use, a bad certificate: SL_ERR_CONFIG with a text that says so. */
enum sl_status sl_server_create(const struct sl_server_config *config,
                                struct sl_server **out_server, struct sl_err *err) SL_MUST_CHECK;
/* The bound port; 0 = none. */
uint16_t sl_server_port(const struct sl_server *s);
/* Reads tls_cert and tls_key again, for the next handshakes; on an error the old ones stay. One
 * thread at a time. */
enum sl_status sl_server_reload_tls(struct sl_server *s, struct sl_err *err) SL_MUST_CHECK;

/* For /health while the model loads. Any thread. */
void sl_server_progress(struct sl_server *s, uint64_t done_bytes, uint64_t total_bytes);

struct sl_server_model {
    struct sl_engine *engine;             /* borrowed until sl_server_destroy */
    const struct sl_tokenizer *tokenizer; /* borrowed until sl_server_destroy */
    const char *id;                       /* what clients call it; copied, as all strings here */
    const char *path, *arch;
    const char *chat_template; /* NULL = the file has none: ChatML, with a warning */
    size_t chat_template_bytes;
    uint32_t n_ctx_train;
    uint64_t size_bytes, fingerprint;
};
/* Opens the doors. Once, and not after sl_server_fail. A template that does not compile is logged
 * and refused at each chat request; the other endpoints work. SL_ERR_CANCELED: sl_server_drain was
 * called meanwhile. */
enum sl_status sl_server_attach(struct sl_server *s, const struct sl_server_model *model,
                                struct sl_err *err) SL_MUST_CHECK;
/* The model did not load: /health and every request say why. */
void sl_server_fail(struct sl_server *s, const struct sl_err *err);

/* Closes the port; requests on connections still open get 503. Answers under way go on. */
void sl_server_drain(struct sl_server *s);
/* Requests not answered yet. */
uint32_t sl_server_active(struct sl_server *s);
/* Cancels every generation and rendering; the clients get an error. */
void sl_server_cancel(struct sl_server *s);
/* Drains, cancels, waits for the last answer, frees. The engine must still be there. */
void sl_server_destroy(struct sl_server **s);

#endif
