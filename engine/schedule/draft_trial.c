#include "engine/schedule/draft_trial.h"

#include <string.h>

/* Steps of a stretch, and pairs of stretches of a trial. */
#define STRETCH 4u
#define PAIRS   6u
/* Steps before the first trial: they are slow while experts' slots fill, the first the slowest. */
#define COLD_STEPS 64u
/* With drafts it must be so much faster: what differs by less may be chance. */
#define MARGIN 1.03
/* So much slower after any pair: the rest of the trial would cost more than it tells. */
#define HOPELESS 0.85
/* Steps between two trials: while they pay; at first while they do not, and at most. */
#define PAYS_STEPS 2048u
#define REST_STEPS 1024u
#define REST_MOST  16384u

void sl_draft_trial_init(struct sl_draft_trial *t, bool automatic) {
    *t = (struct sl_draft_trial){.phase = automatic ? SL_DRAFT_WAITS : SL_DRAFT_ALWAYS,
                                 .n_left = COLD_STEPS,
                                 .rest = REST_STEPS};
}

bool sl_draft_trial_verifies(const struct sl_draft_trial *t) {
    return t->phase == SL_DRAFT_ALWAYS || t->phase == SL_DRAFT_PAYS ||
           (t->phase == SL_DRAFT_TRIED && t->n_stretches % 2 == 0);
}

bool sl_draft_trial_drafts(const struct sl_draft_trial *t) {
    return t->phase != SL_DRAFT_RESTS;
}

static void begin_pair(struct sl_draft_trial *t, uint32_t n_sessions) {
    t->n_stretches -= t->n_stretches % 2;
    t->n_left = STRETCH;
    t->n_sessions = n_sessions;
    memset(t->pair_tokens, 0, sizeof t->pair_tokens);
    memset(t->pair_ns, 0, sizeof t->pair_ns);
}

static void begin_trial(struct sl_draft_trial *t, uint32_t n_sessions) {
    t->phase = SL_DRAFT_TRIED;
    t->n_stretches = 0;
    memset(t->tokens, 0, sizeof t->tokens);
    memset(t->ns, 0, sizeof t->ns);
    begin_pair(t, n_sessions);
}

/* How much faster tokens come with drafts. */
static double gain(const struct sl_draft_trial *t) {
    if (!t->tokens[0] || !t->ns[1])
        return 0;
    return (double)t->tokens[1] / (double)t->ns[1] * ((double)t->ns[0] / (double)t->tokens[0]);
}

static void decide(struct sl_draft_trial *t, bool pays) {
    t->phase = pays ? SL_DRAFT_PAYS : SL_DRAFT_RESTS;
    t->n_left = pays ? PAYS_STEPS : t->rest;
    if (pays)
        t->rest = REST_STEPS;
    else if (t->rest < REST_MOST)
        t->rest *= 2;
}

static void end_stretch(struct sl_draft_trial *t) {
    t->n_left = STRETCH;
    if (++t->n_stretches % 2)
        return;
    for (uint32_t i = 0; i < 2; i++) {
        t->tokens[i] += t->pair_tokens[i];
        t->ns[i] += t->pair_ns[i];
    }
    begin_pair(t, t->n_sessions);
    if (gain(t) < HOPELESS)
        decide(t, false);
    else if (t->n_stretches == 2 * PAIRS)
        decide(t, gain(t) > MARGIN);
}

static void try_step(struct sl_draft_trial *t, const struct sl_draft_step *s) {
    bool with = sl_draft_trial_verifies(t);
    if (s->n_sessions != t->n_sessions) { /* steps that cannot be compared */
        begin_pair(t, s->n_sessions);
        return;
    }
    t->pair_tokens[with] += s->n_tokens;
    t->pair_ns[with] += s->step_ns + (with ? s->layer_ns : 0);
    if (!--t->n_left)
        end_stretch(t);
}

void sl_draft_trial_step(struct sl_draft_trial *t, const struct sl_draft_step *s) {
    switch (t->phase) {
    case SL_DRAFT_ALWAYS:
        return;
    case SL_DRAFT_WAITS:
        t->n_left -= t->n_left > 0;
        if (s->seen && !t->n_left)
            begin_trial(t, s->n_sessions);
        return;
    case SL_DRAFT_TRIED:
        if (s->seen)
            try_step(t, s);
        else
            *t = (struct sl_draft_trial){.phase = SL_DRAFT_WAITS, .rest = t->rest};
        return;
    case SL_DRAFT_PAYS:
    case SL_DRAFT_RESTS:
        if (!--t->n_left)
            t->phase = SL_DRAFT_WAITS;
        return;
    }
}
