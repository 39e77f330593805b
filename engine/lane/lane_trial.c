#include "engine/lane/lane_trial.h"

#include <string.h>

/* Steps before the first trial, in which the split learns and slots fill. */
#define FIRST 24u
/* Steps of a trial; the first is not counted: threads wake, graphs are recorded. */
#define TRY 8u
/* ... and after how many it ends if it is clearly slower. */
#define CLEAR_TRY 2u
#define CLEAR     1.15
/* What is tried is adopted if it takes less than this share of the other's time. */
#define BETTER 0.985
/* Steps between two trials at least, and at most; in between so many that a trial costs one part in
 * COST. */
#define REST_LEAST 256u
#define REST_MOST  16384u
#define COST       400.0
/* No trial while the split says that without the lane a step would take this much longer; asked
 * again after a while. */
#define SAVES_MUCH 0.5
#define ASK_AGAIN  64u
/* Steps that the mean of what holds is of. */
#define MEAN 32u
/* A step that takes this many times the mean was delayed by something else. */
#define HELD_UP 3.0

void sl_lane_trial_init(struct sl_lane_trial *t) {
    memset(t, 0, sizeof *t);
    for (uint32_t i = 0; i < SL_LANE_TRIAL_ROWS; i++)
        t->rows[i] = (struct sl_lane_trial_rows){.left = FIRST, .fresh = true};
}

static void begin(struct sl_lane_trial_rows *r) {
    r->trying = r->fresh = true;
    r->n_tried = 0;
    r->tried_ns = 0;
}

bool sl_lane_trial_on(struct sl_lane_trial *t, uint32_t n_rows) {
    struct sl_lane_trial_rows *r = &t->rows[n_rows - 1];
    if (!r->left && !r->trying) {
        if (!r->off && r->saved_ns > SAVES_MUCH * r->held_ns)
            r->left = ASK_AGAIN;
        else
            begin(r);
    }
    return r->off == r->trying;
}

static void hold(struct sl_lane_trial_rows *r, double ns, double saved_ns) {
    if (r->n_held >= 4 && ns > HELD_UP * r->held_ns)
        ns = HELD_UP * r->held_ns;
    r->n_held += r->n_held < MEAN;
    r->held_ns += (ns - r->held_ns) / r->n_held;
    if (!r->off)
        r->saved_ns += (saved_ns - r->saved_ns) / r->n_held;
    r->left -= r->left > 0;
}

static void judge(struct sl_lane_trial_rows *r) {
    double tried = r->tried_ns, held = r->held_ns;
    double lost = (tried > held ? tried / held - 1 : 0) * (r->n_tried + 1) * COST;
    r->trying = false;
    r->fresh = true;
    r->left = lost < REST_LEAST ? REST_LEAST : lost > REST_MOST ? REST_MOST : (uint32_t)lost;
    if (tried < BETTER * held) {
        r->off = !r->off;
        r->held_ns = tried;
        r->n_held = r->n_tried;
        r->left = REST_LEAST;
    }
}

void sl_lane_trial_took(struct sl_lane_trial *t, uint32_t n_rows, double ns, double saved_ns) {
    struct sl_lane_trial_rows *r = &t->rows[n_rows - 1];
    if (!(ns > 0))
        return;
    if (r->fresh) {
        r->fresh = false;
        r->left -= !r->trying && r->left > 0;
        return;
    }
    if (!r->trying) {
        hold(r, ns, saved_ns);
        return;
    }
    r->n_tried++;
    r->tried_ns += (ns - r->tried_ns) / r->n_tried;
    bool clear = r->n_tried >= CLEAR_TRY && r->tried_ns > CLEAR * r->held_ns;
    if (clear || r->n_tried == TRY)
        judge(r);
}
