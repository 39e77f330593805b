#include "engine/schedule/prompt_slices.h"

/* Below this the throughput of kernels falls on every device. */
#define LEAST_ROWS 32u
/* Shorter runs say little. */
#define TELLING_ROWS 256u
/* A size that is not known is tried if it would take less than this of the best one's time, were
 * its rows as cheap as they may be: those of smaller slices as the next larger ones', of larger
 * ones half of the next smaller ones'. */
#define WORTH_TRYING    0.85
#define CHEAPEST_LARGER 0.5
/* A known one that comes close is tried again after so many runs: what rows take changes. */
#define RUNS_TO_LOOK_AGAIN 16u
#define COMES_CLOSE        1.3

void sl_prompt_slices_init(struct sl_prompt_slices *p, uint32_t batch, uint32_t n_stages) {
    *p = (struct sl_prompt_slices){.n_stages = n_stages, .n_sizes = 1, .rows = {batch}};
    while (n_stages > 1 && p->n_sizes < SL_SLICE_SIZES && batch >> p->n_sizes >= LEAST_ROWS) {
        p->rows[p->n_sizes] = batch >> p->n_sizes;
        p->n_sizes++;
    }
}

/* The time of n rows in slices of a size, if each row costs as much as in the middle of a long
 * prompt. */
static double time_of(const struct sl_prompt_slices *p, uint32_t size, double row_ns, uint32_t n) {
    double slice = n < p->rows[size] ? n : p->rows[size];
    uint32_t n_slices = (n + p->rows[size] - 1) / p->rows[size];
    return row_ns * (n + slice * (p->n_stages - 1) * (n_slices > 0));
}

/* The best that a row may take at a size that was not measured, judged by the sizes that were. */
static double cheapest(const struct sl_prompt_slices *p, uint32_t size) {
    for (uint32_t i = size; i-- > 0;)
        if (p->row_ns[i] > 0)
            return p->row_ns[i];
    double factor = 1;
    for (uint32_t i = size + 1; i < p->n_sizes; i++) {
        factor *= CHEAPEST_LARGER;
        if (p->row_ns[i] > 0)
            return p->row_ns[i] * factor;
    }
    return 0;
}

static uint32_t choose(const struct sl_prompt_slices *p, uint32_t n_left) {
    uint32_t best = p->n_sizes;
    for (uint32_t i = 0; i < p->n_sizes; i++)
        if (p->row_ns[i] > 0 &&
            (best == p->n_sizes ||
             time_of(p, i, p->row_ns[i], n_left) < time_of(p, best, p->row_ns[best], n_left)))
            best = i;
    if (best == p->n_sizes)
        return p->n_sizes - 1;
    if (n_left < TELLING_ROWS)
        return best;
    double least = time_of(p, best, p->row_ns[best], n_left);
    for (uint32_t i = 0; i < p->n_sizes; i++) {
        bool known = p->row_ns[i] > 0;
        double time = time_of(p, i, known ? p->row_ns[i] : cheapest(p, i), n_left);
        if (known ? (p->n_runs - p->last_run[i]) * least >= RUNS_TO_LOOK_AGAIN * time
                  : time < WORTH_TRYING * least)
            return i;
    }
    return best;
}

uint32_t sl_prompt_slices_rows(struct sl_prompt_slices *p, uint32_t n_left) {
    if (p->n_sizes == 1)
        return p->rows[0];
    if (!p->running) {
        p->running = true;
        p->at = choose(p, n_left);
        p->run_rows = 0;
        p->run_ns = 0;
    }
    return p->rows[p->at];
}

void sl_prompt_slices_learn(struct sl_prompt_slices *p, uint32_t n_rows, uint64_t ns) {
    if (!p->running)
        return;
    p->run_rows += n_rows;
    p->run_ns += ns;
}

void sl_prompt_slices_end(struct sl_prompt_slices *p) {
    if (!p->running)
        return;
    p->running = false;
    if (p->run_rows < TELLING_ROWS)
        return;
    /* The first run is not counted: nothing is warm yet, and its size would look worse than it is.
     */
    if (p->n_runs++ == 0)
        return;
    double row_ns = (double)p->run_ns / time_of(p, p->at, 1, p->run_rows),
           *known = &p->row_ns[p->at];
    *known = *known > 0 ? 0.5 * (*known + row_ns) : row_ns;
    p->last_run[p->at] = p->n_runs;
}
