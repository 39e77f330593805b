/* How many rows each session has in a step, and how many prompt rows may stand alongside generated
 * ones so that these come in time. */
#ifndef SL_ENGINE_STEP_SHARE_H
#define SL_ENGINE_STEP_SHARE_H

#include <stdbool.h>
#include <stdint.h>

struct sl_engine;

/* The fewest prompt rows of a step that also generates: with fewer, reading the weights is wasted
 * and prompts hardly advance. */
#define SL_MIN_SHARED_ROWS 8u

/* What steps have taken so far. */
struct sl_pace {
    double stall_ns;      /* the most that a step with generated and prompt rows should take */
    double shared_rows;   /* prompt rows of such a step; 0 = not known yet */
    double prompt_row_ns; /* what a prompt row takes, in larger slices; 0 = not known yet */
    /* Sums over the latest such steps, of which the older count less: sl_pace_row_cost_ns. */
    double cost_ns, cost_rows;
};

/* A step of n_prompt prompt rows and n_decode generated rows took ns, cost_ns of them after the
 * step before it ended. Its time decides the next slice: more than the bound, and the slice
 * shrinks by as much at once; less, and it grows, to the double at most. */
void sl_pace_learn(struct sl_pace *p, uint32_t n_prompt, uint32_t n_decode, uint64_t ns,
                   uint64_t cost_ns);
/* What a prompt row costs: by so much all that there is to compute takes longer. Less than what it
 * takes where several steps are under way: each of them takes as long as all of them together. 0 =
 * not known yet. */
double sl_pace_row_cost_ns(const struct sl_pace *p);
/* Prompt rows for the next step of which at most `room` have space, alongside n_decode generated
 * ones; n_hungry sessions want some. */
uint32_t sl_pace_rows(const struct sl_pace *p, uint32_t room, uint32_t n_decode, uint32_t n_hungry);

/* Sets step_rows of every session that is chosen for the step, and 0 of the others; n_elsewhere
 * others generate in other steps meanwhile. Generated rows first, one each; what is left of the
 * batch, or of the pace, goes to prompts in equal shares, and what a short one does not need to the
 * others. overlaps: other steps may be under way alongside this one. */
void sl_share_rows(struct sl_engine *e, uint32_t n_elsewhere, bool overlaps);

#endif
