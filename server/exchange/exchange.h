/* One exchange per HTTP request: what it holds, who touches it when, and the server that it is of.
 *
 * An exchange is born in libmicrohttpd's first call for a request and is counted: one reference is
 * the connection's (dropped in its completed callback), one a worker's while it has the job, and
 * one per choice that the engine runs. The last one frees it, on whatever thread that is.
 *
 * Its state says who has it and what may happen next (exchange_state.h). It changes under the lock,
 * by sl_exchange_step_locked() alone.
 *
 * While a worker or the engine is at it, the connection is suspended. The lock orders that: a
 * producer wakes it under the lock; the connection's thread, finding nothing to do, suspends under
 * it. So a wake-up is never lost, and a connection never resumed twice.
 *
 * Lock order: server.list_lock or jobs_lock, then exchange.lock, then whatever engine and
 * libmicrohttpd take. */
#ifndef SL_SERVER_EXCHANGE_H
#define SL_SERVER_EXCHANGE_H

#include "common/buf.h"
#include "engine/engine.h"
#include "server/exchange/exchange_state.h"
#include "server/types/config.h"
#include "server/types/errors.h"
#include "server/wire/listen.h"
#include "server/wire/wire.h"

#include "model/chat/answer_format.h"
#include "model/chat/chat.h"
#include "model/grammar/vocab_trie.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

struct sl_gen;
struct sl_web_file;
struct sl_exchange;

/* What attach made of the model: immutable. */
struct sl_served {
    struct sl_engine *engine;
    const struct sl_tokenizer *tok;
    char *id, *path, *arch, *chat_template_text;
    struct sl_chat chat;
    struct sl_vocab_trie *vocab;           /* for constrained answers */
    const struct sl_answer_format *format; /* of reasoning and tool calls */
    bool thinks;
    struct sl_ids markers; /* control tokens of the format, whose text the splitter reads */
    uint32_t max_piece_bytes;
    uint32_t n_ctx_train;
    uint64_t size_bytes;
    int64_t created_s;
    char fingerprint[16]; /* "fp_0123456789" */
    struct sl_engine_info info;
};

enum sl_server_state { SL_SERVER_LOADING, SL_SERVER_READY, SL_SERVER_FAILED };

enum sl_route_kind {
    SL_ROUTE_INLINE, /* answered on the connection's thread: no work that grows with the input */
    SL_ROUTE_JOB,    /* answered by a worker */
};

struct sl_route {
    const char *method; /* "GET" routes answer HEAD as well */
    const char *path;
    bool prefix; /* path is the start; the rest is an argument */
    enum sl_route_kind kind;
    bool needs_model;
    bool is_public; /* no API key needed */
    bool quiet;     /* not logged at info: probes and scrapes */
    /* Fills ex->reply (200) or ex->error, or, in a job, starts ex->gen. */
    void (*handle)(struct sl_exchange *ex);
};

#define SL_MAX_ROUTES 40u

/* By what a job may cost: the size of its body tells. */
enum sl_job_class { SL_JOB_SMALL, SL_JOB_LARGE, SL_JOB_CLASSES };
struct sl_job_queue {
    struct sl_exchange *head, *last;
};

struct sl_exchange {
    struct sl_server *server;
    const struct sl_route *route;
    char *path;
    const char *method;   /* libmicrohttpd's, for the connection's life */
    uint64_t started_ns;  /* when the headers were in */
    uint64_t deadline_ns; /* of the monotonic clock; 0 = none. A worker's, once it has the job */
    int fd;
    struct sl_link *link; /* the connection's; NULL without memory for one. Connection's thread */
    uint32_t number;      /* of the connection's requests, from 1 */

    /* connection's thread */
    bool close_after;   /* the connection ends with the answer */
    bool counted;       /* in server.n_active */
    struct sl_buf body; /* handed to the worker with the job */
    uint64_t swallowed_bytes;
    const char *allow; /* for 405 */
    unsigned http_status;

    /* worker or route handler, before it sets `ready` */
    struct sl_buf reply;
    unsigned reply_status; /* 0 = 200 */
    const char *content_type;
    const struct sl_web_file *file; /* the reply instead, when there is no error */
    struct sl_http_error error;     /* http_status 0: none */
    struct sl_gen *gen;

    pthread_mutex_t lock;
    struct MHD_Connection *conn; /* NULL: the connection is done with it */
    uint32_t refs;
    enum sl_exchange_state state;
    enum sl_exchange_sleep sleep; /* of the connection's thread */
    _Atomic bool
        canceled;   /* nobody waits for the answer, or the server is stopping: a worker that
                       is at it gives up. Set under the lock, read by the worker without it */
    bool keepalive; /* the watcher asks for a comment on the stream */
    uint64_t last_out_ns;

    struct sl_exchange *prev, *next; /* server.exchanges, under list_lock */
    struct sl_exchange *next_job;    /* in server.jobs, under jobs_lock */
    enum sl_job_class job_class;
    _Atomic uint64_t received_bytes;  /* of the body, kept or not */
    _Atomic uint64_t body_held_bytes; /* its part of server.bodies_bytes */
    _Atomic uint64_t reply_held_bytes;
    uint64_t stretch_ns, stretch_bytes; /* the watcher's: the upload since when, from where */
};

/* An open connection, for the time between requests, when there is no exchange. */
struct sl_link {
    int fd;
    bool busy;                   /* there is an exchange */
    uint64_t since_ns;           /* that there is none */
    bool hung_up;                /* at the watcher's last look */
    struct sl_link *prev, *next; /* server.links; all of these under list_lock */

    /* the connection's thread */
    bool is_unix;
    uint32_t n_requests;
    struct sl_wire wire;
};

struct sl_server {
    struct sl_server_config config;
    const struct sl_route *routes; /* [n_routes], of the program's life */
    uint32_t n_routes;             /* at most SL_MAX_ROUTES */
    struct sl_listen listen;
    bool only_loopback;  /* TCP addresses */
    char host_name[256]; /* the machine's, where it listens on others */
    /* One for what comes in the clear, one for TLS, each NULL where it is not needed. */
    struct MHD_Daemon *daemons[2];

    _Atomic int state; /* enum sl_server_state; served and fail_err are valid after their state */
    struct sl_served *served;
    struct sl_err fail_err;
    _Atomic uint64_t done_bytes, total_bytes;
    _Atomic bool draining;
    int64_t started_s; /* Unix time */

    pthread_mutex_t list_lock;
    struct sl_exchange *exchanges;
    struct sl_link *links;
    _Atomic uint32_t n_active; /* dispatched exchanges that are not freed */
    _Atomic uint64_t bodies_bytes;
    _Atomic uint64_t replies_bytes; /* of workers, until they are sent */

    pthread_mutex_t jobs_lock;
    pthread_cond_t jobs_cond;
    struct sl_job_queue jobs[SL_JOB_CLASSES];
    uint32_t n_large; /* workers at a large job */
    bool large_next;  /* whose turn it is where there is one worker */
    bool jobs_stop;
    pthread_t *workers;
    uint32_t n_workers;

    pthread_t watcher;
    bool watcher_started;
    pthread_mutex_t watch_lock;
    pthread_cond_t watch_cond;
    bool watch_stop;
};

/* exchange.c */
struct sl_exchange *sl_exchange_create(struct sl_server *s, struct MHD_Connection *conn,
                                       const char *path, const char *method);
/* The connection has ended or the answer is sent; drops the connection's reference. */
void sl_exchange_complete(struct sl_exchange *ex);
void sl_exchange_ref_locked(struct sl_exchange *ex);
/* Takes the lock itself; may free. */
void sl_exchange_unref(struct sl_exchange *ex);
/* What it holds of the server's bodies, or of its replies, is now so much; gives their sum. */
uint64_t sl_exchange_hold_body(struct sl_exchange *ex, uint64_t bytes);
uint64_t sl_exchange_hold_reply(struct sl_exchange *ex, uint64_t bytes);
/* It holds so much more of the server's replies; false: there is no room, and it does not. */
bool sl_exchange_hold_more(struct sl_exchange *ex, uint64_t more);
/* The state changes as the table says. An event that cannot happen in that state is our mistake: it
 * aborts where SL_STRICT is defined (all modes but release); else it is logged, the state stays,
 * what runs is canceled, and false says so. */
bool sl_exchange_step_locked(struct sl_exchange *ex, enum sl_exchange_event event);
/* Takes the lock itself. */
bool sl_exchange_step(struct sl_exchange *ex, enum sl_exchange_event event);
enum sl_exchange_state sl_exchange_state(struct sl_exchange *ex);
/* There is something to do for the connection's thread. */
void sl_exchange_wake_locked(struct sl_exchange *ex);
/* Connection's thread: suspends and returns true, or returns false when there is something to do.
 */
bool sl_exchange_wait(struct sl_exchange *ex);
/* What a worker asks in the midst of long work: SL_ERR_TIMEOUT when its time is over,
 * SL_ERR_CANCELED when its client has left or the server stops. ctx is the exchange; err may be
 * NULL. */
enum sl_status sl_exchange_poll(void *ctx, struct sl_err *err);
/* The request's own limit, from the headers on; the server's holds if it is shorter. 0 = none. */
void sl_exchange_limit(struct sl_exchange *ex, double seconds);
/* Its client left: cancels what runs for it. Any thread. */
void sl_exchange_abandon(struct sl_exchange *ex);

/* jobs.c */
enum sl_status sl_jobs_start(struct sl_server *s, struct sl_err *err) SL_MUST_CHECK;
void sl_jobs_stop(struct sl_server *s);
void sl_jobs_push(struct sl_server *s, struct sl_exchange *ex);
/* Answers those that wait and whose time is over, and drops those whose clients have left. */
void sl_jobs_expire(struct sl_server *s, uint64_t now);

/* watch.c */
enum sl_status sl_watch_start(struct sl_server *s, struct sl_err *err) SL_MUST_CHECK;
void sl_watch_stop(struct sl_server *s);

/* served.c */
/* watch can end it early, with what it says; NULL: nobody. */
enum sl_status sl_served_create(const struct sl_server_model *m,
                                const struct sl_template_watch *watch, struct sl_served **out,
                                struct sl_err *err) SL_MUST_CHECK;
void sl_served_destroy(struct sl_served **v);
/* Nothing can be answered until the server is started anew: the model could not be loaded, its
 * files were changed, or a device is lost. out_why is written then. Any thread. */
bool sl_server_failed(const struct sl_server *s, struct sl_err *out_why);

#endif
