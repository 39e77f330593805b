/* Are steps faster with the CPU lane (cpu_lane.h)? This is tried now and then: some steps run
 * without it, or with it while it is off, and the faster way is kept. What the lane costs besides
 * its own computing (threads that are awake, rows that come down, results that go up, later
 * launches) need not be known for that.
 *
 * Steps of different numbers of rows are different work, so each number has a trial of its own.
 * What a trial costs is bounded: it ends as soon as it is clear, the more it lost the longer it is
 * until the next, and there is none while the split's own figures say that the lane saves a large
 * part.
 *
 * Times come in as numbers. One thread; nothing is allocated. */
#ifndef SL_ENGINE_LANE_TRIAL_H
#define SL_ENGINE_LANE_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

/* Generated rows of a step at most. */
#define SL_LANE_TRIAL_ROWS 16u

/* Written by lane_trial.c alone. */
struct sl_lane_trial {
    struct sl_lane_trial_rows {
        bool off;         /* what holds */
        bool trying;      /* the other */
        bool fresh;       /* nothing has run yet since it changed */
        uint32_t left;    /* steps until the next trial */
        uint32_t n_held;  /* steps that held_ns is of, up to a limit */
        uint32_t n_tried; /* the same of tried_ns */
        double held_ns, tried_ns;
        double saved_ns; /* by what the split says, a step, while the lane is on */
    } rows[SL_LANE_TRIAL_ROWS];
};

void sl_lane_trial_init(struct sl_lane_trial *t);
/* Does the lane take part in the next step of n rows, 1 to SL_LANE_TRIAL_ROWS? */
bool sl_lane_trial_on(struct sl_lane_trial *t, uint32_t n_rows);
/* It has, or not, as was last answered, and the step took so long; what the split says that the
 * lane saved. */
void sl_lane_trial_took(struct sl_lane_trial *t, uint32_t n_rows, double ns, double saved_ns);

#endif
