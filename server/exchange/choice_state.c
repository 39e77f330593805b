#include "server/exchange/choice_state.h"

#include "common/log.h"

#include <stdlib.h>

#define TO(s) (1u << SL_CHOICE_##s)

static const unsigned char table[SL_CHOICE_STATES] = {
    [SL_CHOICE_NEW] = TO(SUBMITTING),
    [SL_CHOICE_SUBMITTING] = TO(RUNNING) | TO(FINISHED) | TO(NEW),
    [SL_CHOICE_RUNNING] = TO(FINISHED),
};

bool sl_choice_state_may(enum sl_choice_state from, enum sl_choice_state to) {
    return (unsigned)from < SL_CHOICE_STATES && (unsigned)to < SL_CHOICE_STATES &&
           table[from] >> to & 1;
}

const char *sl_choice_state_name(enum sl_choice_state state) {
    static const char *const names[SL_CHOICE_STATES] = {"new", "submitting", "running", "finished"};
    return (unsigned)state < SL_CHOICE_STATES ? names[state] : "unknown";
}

void sl_choice_state_become(enum sl_choice_state *state, enum sl_choice_state to) {
    if (!sl_choice_state_may(*state, to)) {
        sl_error("a choice that is %s cannot become %s (a bug in the program)",
                 sl_choice_state_name(*state), sl_choice_state_name(to));
#ifdef SL_STRICT
        abort();
#endif
    }
    *state = to;
}
