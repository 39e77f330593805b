/* One exchange per HTTP request: what it holds, who accesses it when, and the server it belongs to.
 *
 * An exchange is created in libmicrohttpd's first call for a request and is reference-counted: one
 * reference belongs to the connection (dropped in its completed callback), one to a worker while it
 * has the job, and one to each choice that the engine runs. The last one frees it, on any thread.
 *
 * Its state says who owns it and what may happen next (exchange_state.h). It changes under the
 * lock, only by sl_exchange_step_locked().
 *
 * While a worker or the engine works on it, the connection is suspended. The lock orders that: a
 * producer wakes it under the lock; the connection's thread, finding nothing to do, suspends under
 * it. So no wake-up is lost, and no connection is resumed twice.
 *
 * Lock order: server.list_lock or jobs_lock, then exchange.lock, then the locks of the engine and
 * of libmicrohttpd. */
#ifndef SL_SERVER_EXCHANGE_H
#define SL_SERVER_EXCHANGE_H

#include "common/buf.h"
#include "engine/engine.h"
#include "server/exchange/exchange_state.h"
#include "server/exchange/response_store.h"
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

/* What attach derives from the model: immutable. */
struct sl_served {
    struct sl_engine *engine;
    const struct sl_tokenizer *tok;
    char *names[1 + SL_SERVER_MAX_ALIASES]; /* [n_names] of the model; the first is its id */
    uint32_t n_names;
    bool any_name; /* and every other */
    bool pools_last;
    char *path, *arch, *chat_template_text;
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
    const char *method; /* "GET" routes answer HEAD as well; "POST", "DELETE" */
    const char *path;
    bool prefix; /* path is the start; the rest is an argument */
    enum sl_route_kind kind;
    bool needs_model;
    bool is_public; /* no API key needed */
    bool quiet;     /* not logged at info: probes and scrapes */
    /* Fills ex->reply (200) or ex->error, or, in a job, starts ex->gen. */
    void (*handle)(struct sl_exchange *ex);
};

#define SL_MAX_ROUTES 48u

/* Jobs are classed by what they may cost, which the size of the body tells. */
enum sl_job_class { SL_JOB_SMALL, SL_JOB_LARGE, SL_JOB_CLASSES };
struct sl_job_queue {
    struct sl_exchange *head, *last;
};

struct sl_exchange {
    struct sl_server *server;
    const struct sl_route *route;
    char *path;
    const char *method;   /* libmicrohttpd's, valid for the life of the connection */
    uint64_t started_ns;  /* when the headers were in */
    uint64_t deadline_ns; /* monotonic clock; 0 = none. The worker's, once it has the job */
    int fd;
    struct sl_link *link; /* the connection's; NULL if out of memory. Connection's thread */
    uint32_t number;      /* of the connection's requests, from 1 */

    /* connection's thread */
    bool close_after;   /* the connection ends with the answer */
    bool counted;       /* in server.n_active */
    struct sl_buf body; /* passed to the worker with the job */
    uint64_t swallowed_bytes;
    const char *allow; /* for 405 */
    uint32_t owner;    /* of what is kept of it: sl_guard_owner */
    bool ascending;    /* its query has order=asc */
    unsigned http_status;

    /* worker or route handler, before it sets `ready` */
    struct sl_buf reply;
    unsigned reply_status; /* 0 = 200 */
    const char *content_type;
    const struct sl_web_file *file; /* the reply instead, when there is no error */
    struct sl_http_error error;     /* http_status 0: none */
    struct sl_gen *gen;
    char *model_name; /* that the request has for the model; owned. NULL: the model's id */

    pthread_mutex_t lock;
    struct MHD_Connection *conn; /* NULL: the connection no longer uses it */
    uint32_t refs;
    enum sl_exchange_state state;
    enum sl_exchange_sleep sleep; /* of the connection's thread */
    _Atomic bool
        canceled;   /* nobody waits for the answer, or the server is stopping: a worker that
                       works on it stops. Set under the lock, read by the worker without it */
    bool keepalive; /* the watcher asks for a comment on the stream */
    uint64_t last_out_ns;

    struct sl_exchange *prev, *next; /* server.exchanges, under list_lock */
    struct sl_exchange *next_job;    /* in server.jobs, under jobs_lock */
    enum sl_job_class job_class;
    _Atomic uint64_t received_bytes;  /* of the body, kept or not */
    _Atomic uint64_t body_held_bytes; /* its part of server.bodies_bytes */
    _Atomic uint64_t reply_held_bytes;
    uint64_t stretch_ns,
        stretch_bytes; /* the watcher's: when the current stretch began, and where */
};

/* An open connection, for the time between requests, when it has no exchange. */
struct sl_link {
    int fd;
    bool busy;                   /* there is an exchange */
    uint64_t since_ns;           /* since when there is none */
    bool hung_up;                /* when the watcher last looked */
    struct sl_link *prev, *next; /* server.links; all of these under list_lock */

    /* the connection's thread */
    bool is_unix;
    uint32_t n_requests;
    struct sl_wire wire;
};

struct sl_server {
    struct sl_server_config config;
    const struct sl_route *routes; /* [n_routes], static */
    uint32_t n_routes;             /* at most SL_MAX_ROUTES */
    struct sl_listen listen;
    bool only_loopback;  /* TCP addresses */
    char host_name[256]; /* the machine's, if it listens on other addresses */
    /* One for plain connections, one for TLS; NULL if not needed. */
    struct MHD_Daemon *daemons[2];

    _Atomic int state; /* enum sl_server_state; served and fail_err are valid after their state */
    struct sl_served *served;
    struct sl_response_store *responses; /* NULL: nothing is kept */
    struct sl_err fail_err;
    _Atomic uint64_t done_bytes, total_bytes;
    _Atomic bool draining;
    int64_t started_s; /* Unix time */

    pthread_mutex_t list_lock;
    struct sl_exchange *exchanges;
    struct sl_link *links;
    _Atomic uint32_t n_active; /* dispatched exchanges not freed yet */
    _Atomic uint64_t bodies_bytes;
    _Atomic uint64_t replies_bytes; /* of workers, until they are sent */

    pthread_mutex_t jobs_lock;
    pthread_cond_t jobs_cond;
    struct sl_job_queue jobs[SL_JOB_CLASSES];
    uint32_t n_large; /* workers at a large job */
    bool large_next;  /* with one worker: a large job comes next */
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
/* Sets how much of the server's bodies, or of its replies, the exchange holds; returns the server's
 * sum. */
uint64_t sl_exchange_hold_body(struct sl_exchange *ex, uint64_t bytes);
uint64_t sl_exchange_hold_reply(struct sl_exchange *ex, uint64_t bytes);
/* Holds so much more of the server's replies. False: there is no room, and nothing changes. */
bool sl_exchange_hold_more(struct sl_exchange *ex, uint64_t more);
/* Changes the state as the table says. An event that is not valid in the state is a bug: it aborts
 * where SL_STRICT is defined (all modes but release); otherwise it is logged, the state stays, what
 * runs is canceled, and false is returned. */
bool sl_exchange_step_locked(struct sl_exchange *ex, enum sl_exchange_event event);
/* Takes the lock itself. */
bool sl_exchange_step(struct sl_exchange *ex, enum sl_exchange_event event);
enum sl_exchange_state sl_exchange_state(struct sl_exchange *ex);
/* Tells the connection's thread that there is something to do. */
void sl_exchange_wake_locked(struct sl_exchange *ex);
/* Connection's thread: suspends and returns true, or returns false if there is something to do. */
bool sl_exchange_wait(struct sl_exchange *ex);
/* A worker calls this during long work: SL_ERR_TIMEOUT when the time is over, SL_ERR_CANCELED when
 * the client has left or the server is stopping. ctx is the exchange; err may be NULL. */
enum sl_status sl_exchange_poll(void *ctx, struct sl_err *err);
/* Sets the request's own time limit, from the headers on; the server's applies if it is shorter.
 * 0 = none. */
void sl_exchange_limit(struct sl_exchange *ex, double seconds);
/* The client left: cancels what runs for it. Any thread. */
void sl_exchange_abandon(struct sl_exchange *ex);

/* jobs.c */
enum sl_status sl_jobs_start(struct sl_server *s, struct sl_err *err) SL_MUST_CHECK;
void sl_jobs_stop(struct sl_server *s);
void sl_jobs_push(struct sl_server *s, struct sl_exchange *ex);
/* Answers waiting jobs whose time is over, and drops those whose clients have left. */
void sl_jobs_expire(struct sl_server *s, uint64_t now);

/* watch.c */
enum sl_status sl_watch_start(struct sl_server *s, struct sl_err *err) SL_MUST_CHECK;
void sl_watch_stop(struct sl_server *s);

/* served.c */
/* watch can end it early, with its status; NULL: no watch. */
enum sl_status sl_served_create(const struct sl_server_model *m,
                                const struct sl_template_watch *watch, struct sl_served **out,
                                struct sl_err *err) SL_MUST_CHECK;
void sl_served_destroy(struct sl_served **v);
/* Whether clients may call the model so. */
bool sl_served_has_name(const struct sl_served *v, const char *name);
/* Nothing can be answered until the server is restarted: the model could not be loaded, its files
 * were changed, or a device is lost. Then out_why is written. Any thread. */
bool sl_server_failed(const struct sl_server *s, struct sl_err *out_why);

#endif
