#include "engine/session/session_state.h"

#define TO(s) (1u << SL_SESSION_##s)

static const unsigned char to[SL_SESSION_STATES] = {
    [SL_SESSION_WAITING] = TO(READY),
    [SL_SESSION_READY] = TO(FOLLOWING) | TO(LOADING) | TO(PARKED) | TO(WAITING),
    [SL_SESSION_FOLLOWING] = TO(READY) | TO(WAITING),
    [SL_SESSION_LOADING] = TO(READY) | TO(WAITING),
    [SL_SESSION_PARKED] = TO(READY) | TO(SWAPPED),
    [SL_SESSION_SWAPPED] = TO(WAITING),
};
static const char *const names[SL_SESSION_STATES] = {"waiting", "ready",  "following",
                                                     "loading", "parked", "swapped"};
const struct sl_states sl_session_states = {"a session", SL_SESSION_STATES, names, to};
