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
 *     client left:      QUEUED, WORKING -> DROPPED (still in the queue or with a worker)
 *                       GENERATING, STREAMING -> LEFT;  DROPPED -> LEFT once its job is done
 *     connection over:  -> CLOSED, but from QUEUED, WORKING, DROPPED -> ORPHANED,
 *                       which is CLOSED once its job is done
 *
 * Only in ANSWERING does the connection's thread decide what comes next. A client that leaves in
 * RECEIVING, ANSWERING or SENDING changes nothing: libmicrohttpd then watches the socket and ends
 * the connection itself.
 *
 * A deadline is not an event: a queued job is then done (with 504), and a worker or the engine ends
 * its work, which is then done or answered. Nor is shutdown: new requests are refused in ANSWERING,
 * and what still runs when the drain time is over is canceled and answered like failed work. */
#ifndef SL_SERVER_EXCHANGE_STATE_H
#define SL_SERVER_EXCHANGE_STATE_H

#include <stdbool.h>

enum sl_exchange_state {
    SL_EXCHANGE_RECEIVING,  /* headers or body are arriving */
    SL_EXCHANGE_ANSWERING,  /* a request or a worker's result is ready: connection's thread */
    SL_EXCHANGE_QUEUED,     /* waits for a worker */
    SL_EXCHANGE_WORKING,    /* a worker has it */
    SL_EXCHANGE_GENERATING, /* the engine has its choices; no byte of the answer is sent */
    SL_EXCHANGE_STREAMING,  /* the answer is written as tokens come */
    SL_EXCHANGE_SENDING,    /* libmicrohttpd has the whole answer */
    SL_EXCHANGE_DROPPED,    /* the client left; the queue or a worker has it */
    SL_EXCHANGE_LEFT,       /* the client left; its connection is about to end */
    SL_EXCHANGE_ORPHANED,   /* the connection is over; the queue or a worker has it */
    SL_EXCHANGE_CLOSED,     /* the connection is over; freed with the last reference */
    SL_EXCHANGE_STATES,
};

enum sl_exchange_event {
    SL_EVENT_RECEIVED,        /* the request has arrived, or no more of it is read */
    SL_EVENT_QUEUED,          /* it is about to enter the queue of jobs */
    SL_EVENT_TAKEN,           /* a worker took it off the queue */
    SL_EVENT_DONE,            /* its job is over, with a reply or an error; or never ran */
    SL_EVENT_GENERATES,       /* its job is over, and the engine has its choices */
    SL_EVENT_STREAM_BEGUN,    /* from now on libmicrohttpd asks for the stream */
    SL_EVENT_ANSWERED,        /* libmicrohttpd has the answer */
    SL_EVENT_CLIENT_LEFT,     /* the watcher saw the socket close */
    SL_EVENT_CONNECTION_OVER, /* the answer is sent, or the connection broke */
    SL_EXCHANGE_EVENTS,
};

/* The next state. False: the event is not valid in that state, and out_next is not set. */
bool sl_exchange_next(enum sl_exchange_state state, enum sl_exchange_event event,
                      enum sl_exchange_state *out_next);

const char *sl_exchange_state_name(enum sl_exchange_state state);
const char *sl_exchange_event_name(enum sl_exchange_event event);

/* The queue or a worker has it: what a worker writes must not be read, and no answer is sent before
 * the job is done. */
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
