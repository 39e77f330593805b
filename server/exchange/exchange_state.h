/* The states of an exchange, and what may happen in each.
 *
 *                 received          queued         taken
 *     RECEIVING ----------> ANSWERING ------> QUEUED ------> WORKING
 *                             |   ^             |              |  |
 *                    answered |   | done        |         done |  | generates
 *                             |   +-------------+--------------+  |
 *                             v                                   v
 *                          SENDING <--------------------- GENERATING ------> STREAMING
 *                                         answered                 stream begun
 *
 *     client left:      QUEUED, WORKING -> DROPPED (the queue or a worker still has it)
 *                       GENERATING, STREAMING -> LEFT;  DROPPED -> LEFT once its job is done
 *     connection over:  -> CLOSED, but from QUEUED, WORKING, DROPPED -> ORPHANED,
 *                       which is CLOSED once its job is done
 *
 * In ANSWERING, and only there, the connection's thread decides what comes next. A client that
 * leaves in RECEIVING, ANSWERING or SENDING changes nothing: libmicrohttpd looks at the socket then
 * and ends the connection itself.
 *
 * A deadline is no event of its own: in the queue it is a job that is done (with 504), in a worker
 * and in the engine it ends the work, which is then done or answered. Nor is the server's end: new
 * requests are refused in ANSWERING, and what runs when the time to finish is over is canceled and
 * answered like work that failed. */
#ifndef SL_SERVER_EXCHANGE_STATE_H
#define SL_SERVER_EXCHANGE_STATE_H

#include <stdbool.h>

enum sl_exchange_state {
    SL_EXCHANGE_RECEIVING,  /* headers or body are on their way */
    SL_EXCHANGE_ANSWERING,  /* the request or a worker's result is there: connection's thread */
    SL_EXCHANGE_QUEUED,     /* waits for a worker */
    SL_EXCHANGE_WORKING,    /* a worker has it */
    SL_EXCHANGE_GENERATING, /* the engine has its choices; no byte of the answer is out */
    SL_EXCHANGE_STREAMING,  /* the answer is written as tokens come */
    SL_EXCHANGE_SENDING,    /* the whole answer is libmicrohttpd's */
    SL_EXCHANGE_DROPPED,    /* the client left; the queue or a worker has it */
    SL_EXCHANGE_LEFT,       /* the client left; its connection is about to end */
    SL_EXCHANGE_ORPHANED,   /* the connection is over; the queue or a worker has it */
    SL_EXCHANGE_CLOSED,     /* the connection is over; freed with the last reference */
    SL_EXCHANGE_STATES,
};

enum sl_exchange_event {
    SL_EVENT_RECEIVED,        /* the request is all in, or no more of it is read */
    SL_EVENT_QUEUED,          /* it is about to enter the queue of jobs */
    SL_EVENT_TAKEN,           /* a worker took it off the queue */
    SL_EVENT_DONE,            /* its job is over, with a reply or an error; or never ran */
    SL_EVENT_GENERATES,       /* its job is over, and the engine has its choices */
    SL_EVENT_STREAM_BEGUN,    /* libmicrohttpd asks for the stream from now on */
    SL_EVENT_ANSWERED,        /* libmicrohttpd has the answer */
    SL_EVENT_CLIENT_LEFT,     /* the watcher saw the socket's end */
    SL_EVENT_CONNECTION_OVER, /* the answer is sent, or the connection broke */
    SL_EXCHANGE_EVENTS,
};

/* The state that follows. False: this cannot happen in that state, and out_next is not set. */
bool sl_exchange_next(enum sl_exchange_state state, enum sl_exchange_event event,
                      enum sl_exchange_state *out_next);

const char *sl_exchange_state_name(enum sl_exchange_state state);
const char *sl_exchange_event_name(enum sl_exchange_event event);

/* The queue or a worker has it: what a worker writes must not be looked at, and no answer comes
 * before the job is done. */
static inline bool sl_exchange_has_job(enum sl_exchange_state state) {
    return state == SL_EXCHANGE_QUEUED || state == SL_EXCHANGE_WORKING ||
           state == SL_EXCHANGE_DROPPED || state == SL_EXCHANGE_ORPHANED;
}

/* Nobody waits for its answer. */
static inline bool sl_exchange_is_gone(enum sl_exchange_state state) {
    return state == SL_EXCHANGE_DROPPED || state == SL_EXCHANGE_LEFT ||
           state == SL_EXCHANGE_ORPHANED || state == SL_EXCHANGE_CLOSED;
}

/* How the connection's thread sleeps while others work for it: suspended by sl_exchange_wait(),
 * woken by sl_exchange_wake_locked(). A wake-up that comes while it is awake is kept. */
enum sl_exchange_sleep { SL_SLEEP_AWAKE, SL_SLEEP_WOKEN, SL_SLEEP_SUSPENDED };

#endif
