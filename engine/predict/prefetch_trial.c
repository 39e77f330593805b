#include "engine/predict/prefetch_trial.h"

/* Running routers early is judged by the time that steps then wait for the disk: with, without,
 * without, with, so many tokens each; the better of the two holds for REST_TOKENS. The share of
 * right predictions alone does not tell: where the disk is the bottleneck, one wrong read in five
 * costs more than the four right ones save. */
#define TRIAL_TOKENS    6u
#define TRIAL_STRETCHES 4u
#define REST_TOKENS     256u
/* ... if it waits no longer than this part of the other: what it reads in vain pushes out experts
 * that the stretches without it then lack. */
#define PAYS        0.97
#define COLD_TOKENS 16u /* before the first trial */
/* Hopeless at once: of so many reads less than half were wanted. */
#define HOPELESS_READS 64u
/* After so many tokens for which nothing was read, routers are not run early any more. */
#define QUIET_TOKENS 4u

static void rest(struct sl_prefetch_trial *t, bool on) {
    t->on = on;
    t->stretch = TRIAL_STRETCHES;
    t->stretch_end = t->layers + REST_TOKENS * t->n_layer;
}

static void next_stretch(struct sl_prefetch_trial *t) {
    if (t->stretch + 1 == TRIAL_STRETCHES) {
        double without = (double)t->stall_ns[0] / (double)t->rows[0];
        double with = (double)t->stall_ns[1] / (double)t->rows[1];
        rest(t, with < PAYS * without);
        return;
    }
    if (++t->stretch >= TRIAL_STRETCHES) {
        t->stretch = 0;
        t->stall_ns[0] = t->stall_ns[1] = t->rows[0] = t->rows[1] = 0;
        t->read = t->used = 0;
    }
    t->on = t->stretch == 0 || t->stretch == 3;
    t->stretch_end = t->layers + TRIAL_TOKENS * t->n_layer;
}

void sl_prefetch_trial_init(struct sl_prefetch_trial *t, uint32_t n_layer) {
    *t = (struct sl_prefetch_trial){.n_layer = n_layer,
                                    .stretch = TRIAL_STRETCHES,
                                    .stretch_end = (uint64_t)COLD_TOKENS * n_layer};
}

void sl_prefetch_trial_layer(struct sl_prefetch_trial *t, uint64_t stall_ns, uint32_t n_rows) {
    if (t->prev_rows) {
        t->stall_ns[t->on] += stall_ns - t->seen_stall_ns;
        t->rows[t->on] += t->prev_rows;
    }
    t->seen_stall_ns = stall_ns;
    t->prev_rows = n_rows;
}

void sl_prefetch_trial_count(struct sl_prefetch_trial *t, uint32_t n_read, uint32_t n_used) {
    t->read += n_read;
    t->used += n_used;
}

void sl_prefetch_trial_decide(struct sl_prefetch_trial *t) {
    t->layers++;
    bool tried = t->stretch < TRIAL_STRETCHES && t->on;
    if (tried && t->read >= HOPELESS_READS && 2 * t->used < t->read)
        rest(t, false);
    else if (t->layers >= t->stretch_end)
        next_stretch(t);
}

void sl_prefetch_trial_read(struct sl_prefetch_trial *t) {
    t->quiet_layer = t->layers + QUIET_TOKENS * t->n_layer;
}

bool sl_prefetch_trial_wants(const struct sl_prefetch_trial *t) {
    return t->on && t->layers < t->quiet_layer;
}
