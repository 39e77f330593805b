/* Whether drafts pay: steps with and without are compared as they come, a few at a time in turn. A
 * step with drafts takes longer, by what the draft layer takes and by the experts that the
 * additional rows touch, and gives more tokens. While they do not pay the layer sees nothing
 * either, and is tried again with texts that it has seen from their start on, each time after a
 * longer rest.
 *
 * No thread, no clock, no memory of its own: for simulations as for the scheduler. */
#ifndef SL_ENGINE_DRAFT_TRIAL_H
#define SL_ENGINE_DRAFT_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

enum sl_draft_phase {
    SL_DRAFT_ALWAYS, /* nothing is measured */
    SL_DRAFT_WAITS,  /* for a step whose texts the layer has seen */
    SL_DRAFT_TRIED,  /* stretches with and without, in turn */
    SL_DRAFT_PAYS,
    SL_DRAFT_RESTS,
};

struct sl_draft_trial {
    enum sl_draft_phase phase;
    uint32_t n_left; /* steps until the stretch's or phase's end */
    uint32_t
        n_stretches; /* that have ended in this trial: with drafts every second, from the first */
    uint32_t n_sessions; /* of the stretch's steps */
    uint32_t rest;       /* steps, the next time that they do not pay */
    /* Of pairs of stretches, and of the pair that is under way: [1] with drafts. */
    uint64_t tokens[2], ns[2], pair_tokens[2], pair_ns[2];
};

/* automatic: false, they are always made. */
void sl_draft_trial_init(struct sl_draft_trial *t, bool automatic);
/* Are drafts to be verified in the next step? */
bool sl_draft_trial_verifies(const struct sl_draft_trial *t);
/* Is the layer to see the texts, and to draft? */
bool sl_draft_trial_drafts(const struct sl_draft_trial *t);
/* A step of generated rows of so many sessions has given so many tokens. layer_ns: of the layer,
 * step_ns: of the rest. seen: the layer has seen all of its texts. */
struct sl_draft_step {
    uint32_t n_sessions, n_tokens;
    uint64_t step_ns, layer_ns;
    bool seen;
};
void sl_draft_trial_step(struct sl_draft_trial *t, const struct sl_draft_step *step);

#endif
