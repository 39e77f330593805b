/* What causal convolutions by channels share: their weights, tap by tap, and the inputs of rows,
 * some of which come from a state. */
#ifndef SL_BACKENDS_CPU_CONV_H
#define SL_BACKENDS_CPU_CONV_H

#include "backends/cpu/state.h"

#include <string.h>

#define SL_CONV_COLS 256u /* channels at a time */

/* w [channels, n_taps] of channels [c, c + n_cols) to out [n_taps, SL_CONV_COLS]. */
static inline void sl_conv_weights(const float *w, uint32_t n_taps, uint32_t c, uint32_t n_cols,
                                   float *out) {
    for (uint32_t i = 0; i < n_cols; i++)
        for (uint32_t k = 0; k < n_taps; k++)
            out[k * SL_CONV_COLS + i] = w[(size_t)(c + i) * n_taps + k];
}

/* Channels [c, c + n_cols) of n: those of the call's rows in x, those of the n_old positions before
 * them in `old`, copied, since their page may be written before the last row that needs it has been
 * computed. */
struct sl_conv_inputs {
    const struct sl_state_view *state;
    const float *x;
    float *old; /* [n_old, SL_CONV_COLS] */
    uint32_t n, c, n_cols, n_old;
    uint32_t first; /* row of the call that the positions in `old` come before */
};

/* Before the inputs of row t; rows in their order. */
static inline void sl_conv_go_to(struct sl_conv_inputs *in, uint32_t t) {
    if (sl_cpu_follows(in->state, t))
        return;
    const float *from = sl_cpu_state_before(in->state, t);
    in->first = t;
    for (uint32_t k = 0; k < in->n_old; k++) {
        float *to = in->old + k * SL_CONV_COLS;
        if (from)
            memcpy(to, from + (size_t)k * in->n + in->c, in->n_cols * sizeof *to);
        else
            memset(to, 0, in->n_cols * sizeof *to);
    }
}

/* Of the position `back` before row t. */
static inline const float *sl_conv_input(const struct sl_conv_inputs *in, uint32_t t,
                                         uint32_t back) {
    return t - in->first >= back
               ? in->x + (size_t)(t - back) * in->n + in->c
               : in->old + (size_t)(in->n_old + t - in->first - back) * SL_CONV_COLS;
}

/* The state behind row t, if it is kept. */
static inline void sl_conv_keep(const struct sl_conv_inputs *in, uint32_t t, uint32_t n_tok) {
    if (!sl_cpu_is_kept(in->state, t, n_tok))
        return;
    float *to = sl_cpu_state_behind(in->state, t);
    for (uint32_t k = 0; k < in->n_old; k++)
        memcpy(to + (size_t)k * in->n + in->c, sl_conv_input(in, t, in->n_old - 1 - k),
               in->n_cols * sizeof *to);
}

#endif
