/* What a session is doing or waiting for, and which state may follow which.
 *
 *     WAITING --> READY <--> FOLLOWING | LOADING | PARKED
 *        ^                                           |
 *        +--------------- SWAPPED <------------------+
 *
 * If a machine with some of the layers is lost (away.c), READY, FOLLOWING and LOADING sessions are
 * WAITING again; PARKED ones are SWAPPED.
 *
 * A session may end in any state; it is then freed. No step that has rows of a session is under way
 * while it is FOLLOWING or LOADING: it stands at a page end and all that was fed is written. So
 * only a READY session samples a token; a PARKED or SWAPPED one has its pending token offered
 * again. */
#ifndef SL_ENGINE_SESSION_STATE_H
#define SL_ENGINE_SESSION_STATE_H

#include "common/states.h"

enum sl_session_state {
    SL_SESSION_WAITING,   /* queued for a session slot */
    SL_SESSION_READY,     /* in a slot; its rows are in steps, or may be in the next one */
    SL_SESSION_FOLLOWING, /* in a slot; another session is computing the page it needs next */
    SL_SESSION_LOADING,   /* in a slot; its next pages are being read from disk */
    SL_SESSION_PARKED,    /* in a slot; its sink has no room for the pending token */
    SL_SESSION_SWAPPED,   /* parked, and its slot has gone to another session */
    SL_SESSION_STATES,
};

extern const struct sl_states sl_session_states;

#endif
