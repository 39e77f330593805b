/* Rotary positions: the table of a step, and rotating heads by it. Who owns the arguments, and
 * until when: backend.h. */
#ifndef SL_BACKENDS_OPS_ROPE_H
#define SL_BACKENDS_OPS_ROPE_H

#include <stdint.h>

/* table[t, i] = (cos, sin)(pos[t] * inv_freq[i]) * mscale     table [n_tok, n_freq, 2] f32
 * Once per step; shared by all layers and heads. inv_freq [n_freq] f32 carries the base, per-
 * dimension factors and YaRN's ramp; mscale is YaRN's amplitude (1 otherwise). */
struct sl_op_rope_table {
    const int32_t *pos;
    const float *inv_freq;
    float *table;
    uint32_t n_tok, n_freq;
    float mscale;
};

enum sl_rope_style {
    SL_ROPE_NORM, /* rotates (2i, 2i+1) */
    SL_ROPE_NEOX, /* rotates (i, i + n_freq) */
};
/* Rotates the first 2*n_freq elements of every head in place.
 * x: head h of token t at x + t*stride + h*head_dim; table as above. Source: RoFormer, 2021. */
struct sl_op_rope {
    float *x;
    const float *table;
    uint32_t n_tok, n_heads, head_dim, stride, n_freq;
    enum sl_rope_style style;
};

#endif
