/* Ops on each element by itself, or on few that lie side by side: gated activations, gates, scales,
 * biases. Who owns the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_ELEMENTWISE_H
#define SL_BACKENDS_OPS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y[i] = silu(gate[i]) * up[i]; y may be gate. */
struct sl_op_silu_mul {
    const float *gate, *up;
    float *y;
    size_t n;
};

/* x[i] = silu(scale * x[i]), the product rounded, in place. */
struct sl_op_silu {
    float *x;
    size_t n;
    float scale;
};

/* y[t,i] += x[t,i] * (gate ? sigmoid(gate[t]) : 1) */
struct sl_op_add_gated {
    const float *x, *gate;
    float *y;
    uint32_t n_tok, n;
};

/* y[r,i] *= sigmoid(gate[r * stride_gate + i])
 * y [n_rows, n] contiguous; rows are heads where the gate lies beside the head's query. */
struct sl_op_mul_sigmoid {
    const float *gate;
    float *y;
    uint32_t n_rows, n, stride_gate;
};

/* x[t,:] = H x[t,:] / sqrt(n) in place, H the n x n Hadamard matrix in Sylvester's order: for steps
 * s = 1, 2, 4, ... below n the pairs i, i + s become their sum and their difference, then all are
 * multiplied by 1/sqrt(n), rounded once. Two vectors that both go through it keep their dot
 * product, and large elements are spread over all. x [n_rows, n] contiguous; n a power of two. */
struct sl_op_hadamard {
    float *x;
    uint32_t n_rows, n;
};

/* y[i] = silu(min(gate[i], limit)) * min(max(up[i], -limit), limit); y may be gate. limit above 0.
 * What SL_SWIGLU_CUT is to experts. */
struct sl_op_cut_glu {
    const float *gate, *up;
    float *y;
    size_t n;
    float limit;
};

/* y[i] = gelu(gate[i]) * up[i]; y may be gate. gelu(x) = x / (1 + exp(-2 c)), c = sqrt(2/pi) * (x +
 * 0.044715 x^3): the tanh form (Hendrycks and Gimpel 2016), of which x (1 + tanh c) / 2 is another
 * way to write it. */
struct sl_op_gelu_mul {
    const float *gate, *up;
    float *y;
    size_t n;
};

/* x[t,i] = v, in place, where v = x[t,i] * scale, then * by[0] (by NULL: not), then * rows[t] (rows
 * NULL: not); or cap * tanh(v / cap) where cap is above 0.
 * by [1], rows [n_tok] f32 in device memory. y [n_tok, n] receives it instead where not NULL. */
struct sl_op_scale {
    float *x;
    const float *by, *rows;
    float *y;
    uint32_t n_tok, n;
    float scale, cap;
};

/* y[t,h,i] *= g(gate[t,h,i]), or with one gate per head g(gate[t,h]); g(x) = sigmoid(x), or
 * log(1 + exp(x)) with softplus.
 * y [n_tok, n_heads, n], gate [n_tok, n_heads, n] or [n_tok, n_heads], both contiguous. */
struct sl_op_gate_heads {
    const float *gate;
    float *y;
    uint32_t n_tok, n_heads, n;
    bool per_head, softplus;
};

/* x[t,i] *= 1 + scale * log(floor((pos[t] + offset) / span) + 1), in place; the factor is computed
 * in double precision and rounded once. x [n_tok, n]; span at least 1, offset 0 or 1. Source: Meta
 * AI 2025, "The Llama 4 herd": attention temperature of layers without rotation. */
struct sl_op_temper {
    float *x;
    const int32_t *pos;
    uint32_t n_tok, n, span, offset;
    float scale;
};

/* x[i] = (x[i] < 0 ? 0 : x[i])^2, in place; NaN stays. */
struct sl_op_relu_squared {
    float *x;
    size_t n;
};

/* x[i] = min(max(x[i], -limit), limit), in place; NaN stays. limit above 0. */
struct sl_op_clamp {
    float *x;
    size_t n;
    float limit;
};

/* y[i] = min(silu(gate[i]), limit) * min(max(up[i], -limit), limit); y may be gate. limit above 0.
 */
struct sl_op_limited_glu {
    const float *gate, *up;
    float *y;
    size_t n;
    float limit;
};

/* y[i] = SiTU (activation.h) of gate[i] and up[i], the product of its first two factors rounded
 * first; y may be gate. limit above 0, limit_up not below. */
struct sl_op_situ_glu {
    const float *gate, *up;
    float *y;
    size_t n;
    float limit, limit_up;
};

/* y[i] = SwiGLU clamped (activation.h) of gate[i] and up[i]; y may be gate. */
struct sl_op_clamped_glu {
    const float *gate, *up;
    float *y;
    size_t n;
};

/* x[t,i] += b[i]. x [n_tok, n], b [n]. With sl_op_rms_norm before it: a norm with a bias. */
struct sl_op_bias {
    float *x;
    const float *b;
    uint32_t n_tok, n;
};

/* y[t,i] = gelu(gate[t,i]) * up[r * stride_up + i], r = rows ? rows[t] : t, gelu as in
 * sl_op_gelu_mul; y may be gate. gate, y [n_tok, n]; rows [n_tok]; stride_up at least n. */
struct sl_op_gelu_rows {
    const float *gate, *up;
    const uint32_t *rows;
    float *y;
    uint32_t n_tok, n, stride_up;
};

#endif
