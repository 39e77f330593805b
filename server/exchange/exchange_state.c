#include "server/exchange/exchange_state.h"

/* next + 1, so that what is not listed is 0: impossible. */
#define TO(s) ((unsigned char)(SL_EXCHANGE_##s + 1))

static const unsigned char table[SL_EXCHANGE_STATES][SL_EXCHANGE_EVENTS] = {
    [SL_EXCHANGE_RECEIVING] =
        {
            [SL_EVENT_RECEIVED] = TO(ANSWERING),
            [SL_EVENT_CLIENT_LEFT] = TO(RECEIVING),
            [SL_EVENT_CONNECTION_OVER] = TO(CLOSED),
        },
    [SL_EXCHANGE_ANSWERING] =
        {
            [SL_EVENT_QUEUED] = TO(QUEUED),
            [SL_EVENT_ANSWERED] = TO(SENDING),
            [SL_EVENT_CLIENT_LEFT] = TO(ANSWERING),
            [SL_EVENT_CONNECTION_OVER] = TO(CLOSED),
        },
    [SL_EXCHANGE_QUEUED] =
        {
            [SL_EVENT_TAKEN] = TO(WORKING),
            [SL_EVENT_DONE] = TO(ANSWERING), /* its time was over */
            [SL_EVENT_CLIENT_LEFT] = TO(DROPPED),
            [SL_EVENT_CONNECTION_OVER] = TO(ORPHANED),
        },
    [SL_EXCHANGE_WORKING] =
        {
            [SL_EVENT_DONE] = TO(ANSWERING),
            [SL_EVENT_GENERATES] = TO(GENERATING),
            [SL_EVENT_CLIENT_LEFT] = TO(DROPPED),
            [SL_EVENT_CONNECTION_OVER] = TO(ORPHANED),
        },
    [SL_EXCHANGE_GENERATING] =
        {
            [SL_EVENT_STREAM_BEGUN] = TO(STREAMING),
            [SL_EVENT_ANSWERED] = TO(SENDING),
            [SL_EVENT_CLIENT_LEFT] = TO(LEFT),
            [SL_EVENT_CONNECTION_OVER] = TO(CLOSED),
        },
    [SL_EXCHANGE_STREAMING] =
        {
            [SL_EVENT_CLIENT_LEFT] = TO(LEFT),
            [SL_EVENT_CONNECTION_OVER] = TO(CLOSED),
        },
    [SL_EXCHANGE_SENDING] =
        {
            [SL_EVENT_CLIENT_LEFT] = TO(SENDING),
            [SL_EVENT_CONNECTION_OVER] = TO(CLOSED),
        },
    [SL_EXCHANGE_DROPPED] =
        {
            [SL_EVENT_TAKEN] = TO(DROPPED), /* before the watcher took it off the queue */
            [SL_EVENT_DONE] = TO(LEFT),
            [SL_EVENT_GENERATES] = TO(LEFT), /* the client left while it was handed over */
            [SL_EVENT_CLIENT_LEFT] = TO(DROPPED),
            [SL_EVENT_CONNECTION_OVER] = TO(ORPHANED),
        },
    [SL_EXCHANGE_LEFT] =
        {
            /* The watcher was faster than the connection's thread. */
            [SL_EVENT_STREAM_BEGUN] = TO(LEFT),
            [SL_EVENT_ANSWERED] = TO(LEFT),
            [SL_EVENT_CLIENT_LEFT] = TO(LEFT),
            [SL_EVENT_CONNECTION_OVER] = TO(CLOSED),
        },
    [SL_EXCHANGE_ORPHANED] =
        {
            [SL_EVENT_TAKEN] = TO(ORPHANED),
            [SL_EVENT_DONE] = TO(CLOSED),
            [SL_EVENT_GENERATES] = TO(CLOSED),
        },
};

bool sl_exchange_next(enum sl_exchange_state state, enum sl_exchange_event event,
                      enum sl_exchange_state *out_next) {
    if ((unsigned)state >= SL_EXCHANGE_STATES || (unsigned)event >= SL_EXCHANGE_EVENTS ||
        !table[state][event])
        return false;
    *out_next = (enum sl_exchange_state)(table[state][event] - 1);
    return true;
}

const char *sl_exchange_state_name(enum sl_exchange_state state) {
    static const char *const names[SL_EXCHANGE_STATES] = {
        "receiving", "answering", "queued", "working",  "generating", "streaming",
        "sending",   "dropped",   "left",   "orphaned", "closed"};
    return (unsigned)state < SL_EXCHANGE_STATES ? names[state] : "unknown";
}

const char *sl_exchange_event_name(enum sl_exchange_event event) {
    static const char *const names[SL_EXCHANGE_EVENTS] = {
        "received",     "queued",   "taken",       "done",           "generates",
        "stream begun", "answered", "client left", "connection over"};
    return (unsigned)event < SL_EXCHANGE_EVENTS ? names[event] : "unknown";
}
