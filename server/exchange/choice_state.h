/* How far the engine is with a choice, and which state may follow which.
 *
 *     NEW <--> SUBMITTING --> RUNNING --> FINISHED
 *                  |                         ^
 *                  +-------------------------+
 *
 * A choice may finish before the engine's submit has returned. One whose request the engine refuses
 * is NEW again. That it is canceled, or parked, is no state of its own: the engine has it until it
 * has finished. */
#ifndef SL_SERVER_CHOICE_STATE_H
#define SL_SERVER_CHOICE_STATE_H

#include "common/states.h"

#include <stdbool.h>

enum sl_choice_state {
    SL_CHOICE_NEW,        /* the engine does not have it */
    SL_CHOICE_SUBMITTING, /* submit has not returned: the engine may not know it yet */
    SL_CHOICE_RUNNING,    /* submit returned SL_OK */
    SL_CHOICE_FINISHED,   /* its result is there; the engine has forgotten it */
    SL_CHOICE_STATES,
};

extern const struct sl_states sl_choice_states;
/* Changes *state; sl_states_check() first. */
void sl_choice_state_become(enum sl_choice_state *state, enum sl_choice_state next);

/* Its result is still to come. */
static inline bool sl_choice_state_runs(enum sl_choice_state state) {
    return state == SL_CHOICE_SUBMITTING || state == SL_CHOICE_RUNNING;
}

#endif
