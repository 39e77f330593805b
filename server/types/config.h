/* The configuration of a server, and the model that it serves: plain data. */
#ifndef SL_SERVER_TYPES_CONFIG_H
#define SL_SERVER_TYPES_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sl_engine;
struct sl_tokenizer;

#define SL_NO_RESPONSE_STORE  UINT64_MAX
#define SL_SERVER_MAX_HOSTS   3u
#define SL_SERVER_MAX_ALIASES 31u

/* Strings and arrays of them are borrowed until sl_server_destroy. */
/* What a chat template is told of thinking by requests that do not say. */
enum sl_thinking_default { SL_THINKING_AS_TEMPLATE, SL_THINKING_ON, SL_THINKING_OFF };

struct sl_server_config {
    const char *const *hosts; /* [n_hosts] names or addresses to bind */
    uint32_t n_hosts;         /* at most SL_SERVER_MAX_HOSTS; 0 = 127.0.0.1, or none if unix_socket
                                 is set */
    uint16_t port;            /* of all of them; 0 = any free one, see sl_server_port */
    const char *unix_socket;  /* a path to listen on as well, without TLS; NULL = none */
    uint32_t unix_mode;       /* of that file; 0 = 0600 */
    const char *tls_cert;     /* PEM files; NULL = no TLS. Both or none. */
    const char *tls_key;
    const char *const *cors_origins; /* [n_cors_origins] allowed for web pages; "*" = all */
    uint32_t n_cors_origins;
    const char *const *allowed_hosts; /* [n_allowed_hosts] accepted in Host headers besides the
                                         server's own names (server/wire/hosts.h); "*" = any */
    uint32_t n_allowed_hosts;
    uint32_t n_http_threads;       /* 0 = 2 */
    uint32_t n_workers;            /* 0 = 2 */
    uint64_t max_body_bytes;       /* of one request; 0 = 64 MiB */
    uint64_t max_bodies_bytes;     /* of all requests together; 0 = 4 times max_body_bytes */
    uint64_t max_replies_bytes;    /* of all answers not sent yet; 0 = 256 MiB */
    uint64_t worker_bytes;         /* what a worker may take for one request; 0 = 2 GiB
                                      (server/exchange/memory.h) */
    uint64_t response_store_bytes; /* of finished responses kept for /v1/responses; 0 = 64 MiB,
                                      SL_NO_RESPONSE_STORE = none */
    uint32_t max_connections;      /* 0 = 1024 */
    uint32_t timeout_s;            /* a connection without traffic between requests; 0 = 60 */
    uint32_t stall_s;              /* a stream whose client does not read; 0 = 600 */
    uint32_t request_timeout_s;    /* of a request, waiting included; 0 = no limit */
    uint64_t template_steps; /* a conversation through the model's chat template; 0 = 20 million */
    uint32_t template_timeout_s; /* and each rendering of it; 0 = 30 */
    uint32_t keepalive_s;        /* interval of comments on a silent stream; 0 = 5 */
    uint32_t buffer_tokens;      /* unread tokens of an answer before its session parks; 0 = 1024 (a
                                    sixteenth with log-probabilities) */
    enum sl_thinking_default thinking;
    bool limits_reasoning;       /* of requests that set no limit, where the model's reasoning */
    uint32_t reasoning_budget;   /* can be closed: to so many tokens */
    const char *const *api_keys; /* accepted keys; none = open */
    uint32_t n_api_keys;
};

struct sl_server_model {
    struct sl_engine *engine;             /* borrowed until sl_server_destroy */
    const struct sl_tokenizer *tokenizer; /* borrowed until sl_server_destroy */
    /* The name that clients use, and others that they may use; copied, like all strings here. */
    const char *id;
    const char *const *aliases; /* [n_aliases] */
    uint32_t n_aliases;         /* at most SL_SERVER_MAX_ALIASES */
    bool any_name;              /* clients may call the model what they like */
    const char *path, *arch;
    const char *chat_template; /* NULL = the file has none: ChatML, with a warning */
    size_t chat_template_bytes;
    uint32_t n_ctx_train;
    uint64_t size_bytes, fingerprint;
    bool pools_last; /* embeddings are made of the last token's hidden state, if a request does not
                        say otherwise */
};

#endif
