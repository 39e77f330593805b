/* How large are the slices of a prompt that passes several stages alone? Small ones let all stages
 * work at once: n slices take n + stages - 1 times what one takes at a stage. But what each slice
 * costs besides its rows (weights that are read again, kernels with few rows) counts n times. So
 * the batch, its half and its quarter are compared by what their rows have taken: a size that is
 * not known yet is tried if it might be clearly better. Times and rows come in as numbers. One
 * thread; nothing is allocated. */
#ifndef SL_ENGINE_PROMPT_SLICES_H
#define SL_ENGINE_PROMPT_SLICES_H

#include <stdbool.h>
#include <stdint.h>

#define SL_SLICE_SIZES 3u

/* Written by prompt_slices.c alone. */
struct sl_prompt_slices {
    uint32_t n_stages, n_sizes;
    uint32_t rows[SL_SLICE_SIZES];     /* of a slice, the largest first */
    double row_ns[SL_SLICE_SIZES];     /* what a row takes with all stages at work; 0 = not known */
    uint32_t last_run[SL_SLICE_SIZES]; /* that was cut so */
    uint32_t n_runs;
    /* The run under way: steps of prompt rows alone, one after another. */
    bool running;
    uint32_t at, run_rows;
    uint64_t run_ns;
};

/* Of batches of `batch` rows; begins with the smallest slices. With one stage a prompt's slices are
 * batches. */
void sl_prompt_slices_init(struct sl_prompt_slices *p, uint32_t batch, uint32_t n_stages);
/* Rows of the next slice at most, of a prompt of which n_left rows are left. */
uint32_t sl_prompt_slices_rows(struct sl_prompt_slices *p, uint32_t n_left);
/* A step of n_rows prompt rows alone has ended, ns after the one before it or after its start. */
void sl_prompt_slices_learn(struct sl_prompt_slices *p, uint32_t n_rows, uint64_t ns);
/* No step is under way, or others share it: the next slice begins a new run. */
void sl_prompt_slices_end(struct sl_prompt_slices *p);

#endif
