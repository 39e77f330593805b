/* Passes over a whole vocabulary of logits: the sampler's hot loops.
 *
 * One plain-C source, vocab_pass_impl.h, is compiled for several instruction sets; every build does
 * the same operations in the same order (sums in sixteen partial sums), so all give the same bits.
 */
#ifndef SL_ENGINE_VOCAB_PASS_H
#define SL_ENGINE_VOCAB_PASS_H

#include "backends/backend.h"
#include "backends/ops/rows.h"

/* A block: the elements with a common maximum, whose sum is formed in float before it is added to a
 * double. */
#define SL_VOCAB_BLOCK     SL_BLOCK_MAX_ELEMS
#define SL_VOCAB_BLOCKS(n) (((n) + SL_VOCAB_BLOCK - 1) / SL_VOCAB_BLOCK)

struct sl_vocab_pass {
    /* The largest of x[0..n), NaN when any is NaN; out_block_max [ceil(n / SL_VOCAB_BLOCK)]. */
    float (*max)(const float *x, uint32_t n, float *out_block_max);
    /* y[i] = exp((x[i] - max) * inv_t); no x may be above max. */
    void (*exp)(const float *x, float max, float inv_t, float *y, uint32_t n);
    /* The same, and returns the sum of y. */
    double (*exp_sum)(const float *x, float max, float inv_t, float *y, uint32_t n);
    /* For each block the sum of exp((x[i] - its maximum) * inv_t), as in sl_op_block_max:
     * block_max, out_sum [ceil(n / SL_VOCAB_BLOCK)]. */
    void (*block_sums)(const float *x, const float *block_max, float inv_t, float *out_sum,
                       uint32_t n);
    /* out_mass[b] = sum[b] * exp((block_max[b] - max) * inv_t) for n blocks; returns their sum. */
    double (*weigh)(const float *sum, const float *block_max, float max, float inv_t,
                    float *out_mass, uint32_t n);
};

/* A device's summary of a row's blocks (sl_op_block_max), each [SL_VOCAB_BLOCKS(n_vocab)] and
 * borrowed. */
struct sl_vocab_blocks {
    const float *max;   /* NULL: nothing is known */
    const uint32_t *at; /* where the maxima are, within their blocks; NULL: not known */
    const float *sum;   /* of exponentials at inv_t; NULL: not known */
    float inv_t;        /* the inverse temperature of sum; not above 0: sum is not known */
};

extern const struct sl_vocab_pass sl_vocab_pass_c, sl_vocab_pass_avx2, sl_vocab_pass_avx512;

/* The best for this machine. */
const struct sl_vocab_pass *sl_vocab_pass_best(void);

#endif
