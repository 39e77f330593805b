#include "engine/schedule/schedule.h"

/* Steps with at least this many prompt rows show what a row of a larger slice costs. */
#define TELLING_ROWS 16u
/* Before anything is known. */
#define FIRST_SHARED_ROWS 64u
/* Of the costs of earlier steps, with each step. */
#define COST_KEPT 0.75
/* A slice is aimed a little below the bound: steps differ. */
#define AIM 0.85

void sl_pace_learn(struct sl_pace *p, uint32_t n_prompt, uint32_t n_decode, uint64_t ns,
                   uint64_t cost_ns) {
    if (n_prompt >= TELLING_ROWS) {
        double row = (double)ns / n_prompt;
        p->prompt_row_ns = p->prompt_row_ns > 0 ? 0.5 * (p->prompt_row_ns + row) : row;
        /* Sums, since the costs of single steps mean little: two steps may be seen to end at once.
         */
        p->cost_ns = COST_KEPT * p->cost_ns + (double)cost_ns;
        p->cost_rows = COST_KEPT * p->cost_rows + n_prompt;
    }
    if (!n_prompt || !n_decode || !ns)
        return;
    double fits = AIM * p->stall_ns / (double)ns;
    if ((double)ns > p->stall_ns)
        p->shared_rows = n_prompt * fits;
    else if (fits > 1 && n_prompt * (fits < 2 ? fits : 2) > p->shared_rows)
        p->shared_rows = n_prompt * (fits < 2 ? fits : 2);
    if (p->shared_rows < SL_MIN_SHARED_ROWS)
        p->shared_rows = SL_MIN_SHARED_ROWS;
}

double sl_pace_row_cost_ns(const struct sl_pace *p) {
    return p->cost_rows > 0 ? p->cost_ns / p->cost_rows : 0;
}

uint32_t sl_pace_rows(const struct sl_pace *p, uint32_t room, uint32_t n_decode,
                      uint32_t n_hungry) {
    if (!n_decode)
        return room;
    double rows = p->shared_rows > 0     ? p->shared_rows
                  : p->prompt_row_ns > 0 ? AIM * p->stall_ns / p->prompt_row_ns
                                         : FIRST_SHARED_ROWS;
    uint32_t least = SL_MIN_SHARED_ROWS > n_hungry ? SL_MIN_SHARED_ROWS : n_hungry;
    uint32_t n = rows < room ? (uint32_t)rows : room;
    n = n < least ? least : n;
    return n < room ? n : room;
}

/* Rows that a session wants besides its one generated row: the rest of its prompt, or after it lost
 * its slot of its answer. */
static uint32_t rows_wanted(const struct sl_session *s) {
    return sl_session_decodes(s) ? sl_session_todo(s) : s->n_prompt - s->n_fed;
}

/* Gives every session that generates its row; returns how many, and how many others want rows. */
static uint32_t share_generated(struct sl_engine *e, uint32_t *out_hungry) {
    uint32_t n_decode = 0;
    *out_hungry = 0;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        struct sl_session *s = e->slots[i];
        if (!s)
            continue;
        s->step_rows = 0;
        if (!s->chosen)
            continue;
        if (sl_session_todo(s) == 1) {
            s->step_rows = 1;
            n_decode++;
        } else {
            ++*out_hungry;
        }
    }
    return n_decode;
}

/* Room for prompt rows alongside n_decode generated ones. Where fewer sessions run than steps may
 * be under way, a prompt is cut so that all stages have some of it. */
static uint32_t room_for_prompts(struct sl_engine *e, uint32_t n_decode, uint32_t n_elsewhere,
                                 bool overlaps) {
    uint32_t room = e->plan.config.batch_tokens - n_decode, n_running = 0, n_left = 0, n_chosen = 0;
    if (n_decode + n_elsewhere || !overlaps)
        return room;
    for (uint32_t i = 0; i < e->plan.config.parallel; i++) {
        const struct sl_session *s = e->slots[i];
        n_running += sl_session_runs(s);
        if (s && s->chosen) {
            n_chosen++;
            n_left += rows_wanted(s);
        }
    }
    if (n_running >= e->n_stages)
        return room;
    uint32_t slice = sl_prompt_slices_rows(&e->slices, n_left);
    slice = slice < n_chosen ? n_chosen : slice;
    return slice < room ? slice : room;
}

void sl_share_rows(struct sl_engine *e, uint32_t n_elsewhere, bool overlaps) {
    uint32_t parallel = e->plan.config.parallel, n_hungry;
    uint32_t n_decode = share_generated(e, &n_hungry);
    if (!n_hungry)
        return;
    /* The batch has room for a row of every session, so there is at least one for each. */
    uint32_t left = sl_pace_rows(&e->pace, room_for_prompts(e, n_decode, n_elsewhere, overlaps),
                                 n_decode + n_elsewhere, n_hungry);
    bool gave = true;
    while (n_hungry && gave) {
        gave = false;
        uint32_t share = left / n_hungry;
        for (uint32_t i = 0; i < parallel; i++) {
            struct sl_session *s = e->slots[i];
            if (!s || !s->chosen || s->step_rows || rows_wanted(s) > share)
                continue;
            s->step_rows = rows_wanted(s);
            left -= s->step_rows;
            n_hungry--;
            gave = true;
        }
    }
    for (uint32_t i = 0; i < parallel && n_hungry; i++) {
        struct sl_session *s = e->slots[i];
        if (!s || !s->chosen || s->step_rows)
            continue;
        s->step_rows = left / n_hungry;
        left -= s->step_rows;
        n_hungry--;
    }
}
