#include "server/exchange/choice_state.h"

#define TO(s) (1u << SL_CHOICE_##s)

static const unsigned char to[SL_CHOICE_STATES] = {
    [SL_CHOICE_NEW] = TO(SUBMITTING),
    [SL_CHOICE_SUBMITTING] = TO(RUNNING) | TO(FINISHED) | TO(NEW),
    [SL_CHOICE_RUNNING] = TO(FINISHED),
};
static const char *const names[SL_CHOICE_STATES] = {"new", "submitting", "running", "finished"};
const struct sl_states sl_choice_states = {"a choice", SL_CHOICE_STATES, names, to};

void sl_choice_state_become(enum sl_choice_state *state, enum sl_choice_state next) {
    sl_states_check(&sl_choice_states, *state, next, 0);
    *state = next;
}
