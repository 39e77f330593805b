#include "engine/session/session_state.h"

#define TO(s) (1u << SL_SESSION_##s)

static const unsigned char table[SL_SESSION_STATES] = {
    [SL_SESSION_WAITING] = TO(READY),
    [SL_SESSION_READY] = TO(FOLLOWING) | TO(LOADING) | TO(PARKED) | TO(WAITING),
    [SL_SESSION_FOLLOWING] = TO(READY) | TO(WAITING),
    [SL_SESSION_LOADING] = TO(READY) | TO(WAITING),
    [SL_SESSION_PARKED] = TO(READY) | TO(SWAPPED),
    [SL_SESSION_SWAPPED] = TO(WAITING),
};

bool sl_session_may(enum sl_session_state from, enum sl_session_state to) {
    return (unsigned)from < SL_SESSION_STATES && (unsigned)to < SL_SESSION_STATES &&
           table[from] >> to & 1;
}

const char *sl_session_state_name(enum sl_session_state state) {
    static const char *const names[SL_SESSION_STATES] = {"waiting", "ready",  "following",
                                                         "loading", "parked", "swapped"};
    return (unsigned)state < SL_SESSION_STATES ? names[state] : "unknown";
}
