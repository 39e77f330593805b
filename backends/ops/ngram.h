/* What the embeddings of n-grams give to the streams of a row. Who owns the arguments, and until
 * when: backend.h. */
#ifndef SL_BACKENDS_OPS_NGRAM_H
#define SL_BACKENDS_OPS_NGRAM_H

#include "backends/ops/recurrent.h"

/* A value goes to each stream by a gate, which key and stream decide:
 *   s = (key[t,s,:] . query[t,s,:]) / sqrt(n)
 *   y[t,s,i] = value[t,i] * sigmoid(sign(s) * sqrt(max(|s|, 1e-6))), sign(0) = 0
 * Dot products are as in sl_op_attention, before their scale. key, query, y [n_tok, n_stream, n],
 * value [n_tok, n]. Source: Qwen Team 2026, "Qwen3.8-Flash-Next", its n-gram layer. */
struct sl_op_ngram_gate {
    const float *key, *query, *value;
    float *y;
    uint32_t n_tok, n_stream, n;
};

/* A convolution of each channel over n_taps positions of its sequence, `step` apart, then SiLU,
 * both added to what is there:
 *   y[t,c] += x[t,c] + silu(sum_k w[c,k] * h[t - (n_taps - 1 - k) * step, c]), k ascending, one
 *             fused multiply-add each, from 0; h is 0 before the sequence's first position; x and
 *             silu's value are added first
 * x, h, y [n_tok, n]; w [n, n_taps] f32, n_taps 2 to SL_CONV_MAX_TAPS, step 1 to SL_NGRAM_MAX_STEP
 * state: h of the last (n_taps - 1) * step positions, [., n] f32, the oldest first */
#define SL_NGRAM_MAX_STEP 4u
struct sl_op_ngram_conv {
    const float *x, *h, *w;
    float *y;
    struct sl_state_view state;
    uint32_t n_tok, n, n_taps, step;
};

#endif
