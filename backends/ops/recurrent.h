/* States that go from row to row of a sequence: convolutions, delta rules and state spaces. Who
 * owns the arguments, and until when: backend.h. */
#ifndef SL_BACKENDS_OPS_RECURRENT_H
#define SL_BACKENDS_OPS_RECURRENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A state that every row of a sequence reads and replaces, kept by pages: page p at pages +
 * p*page_bytes holds the state behind the last of its positions that was computed. Row t has
 * position row_len[t] - 1 and writes page slot[t] / SL_KV_PAGE_TOKENS. The state before it is what
 * the row before it in the call left, if that has the position before it in its sequence, whichever
 * page that wrote; else it is in page page_table[row_seq[t] * max_pages + (row_len[t] - 2) /
 * SL_KV_PAGE_TOKENS], which may be the same as row t's, and is zero before the first position. Rows
 * of one sequence are adjacent, in the order of their positions and without gaps; those that write
 * the same page are too, and each page that is written holds the state behind the last of them.
 * Each op defines the layout of a page. */
struct sl_state_view {
    void *pages;
    size_t page_bytes;
    const uint32_t *page_table, *slot, *row_seq, *row_len;
    uint32_t max_pages;
};

/* Convolution of each channel over the last n_taps positions of its sequence, then SiLU:
 *   y[t,c] = silu(sum_k w[c,k] * x[t - n_taps + 1 + k, c]), k ascending, one fused multiply-add
 *            each, from bias[c] (bias NULL: from 0); x is 0 before the sequence's first position
 * x, y [n_tok, n]; w [n, n_taps], bias [n] f32, n_taps 2 to SL_CONV_MAX_TAPS
 * state: x of the last n_taps - 1 positions, [n_taps - 1, n] f32, the oldest first */
#define SL_CONV_MAX_TAPS 8u
struct sl_op_conv_silu {
    const float *x, *w, *bias;
    float *y;
    struct sl_state_view state;
    uint32_t n_tok, n, n_taps;
};

/* A short convolution between two gates. A row of x has three parts of n elements: b, c and v.
 *   y[t,i] = c[t,i] * sum_k w[i,k] * p[t - n_taps + 1 + k, i], p[t,i] = b[t,i] * v[t,i] rounded; k
 *            ascending, one fused multiply-add each, from 0; p is 0 before the sequence's first
 *            position
 * x [n_tok, 3, n]; y [n_tok, n]; w [n, n_taps] f32, n_taps 2 to SL_CONV_MAX_TAPS
 * state: p of the last n_taps - 1 positions, [n_taps - 1, n] f32, the oldest first
 * Source: Liquid AI 2025, "LFM2 Technical Report", section 2. */
struct sl_op_short_conv {
    const float *x, *w;
    float *y;
    struct sl_state_view state;
    uint32_t n_tok, n, n_taps;
};

/* The gated delta rule, a recurrence over the rows of each sequence, head by head, with a matrix S
 * [head_dim_k, head_dim_v] as its state. Of a row, in a head h of n_heads:
 *   g    = exp(a[h] * softplus(alpha + dt[h])), b = sigmoid(beta)
 *   d[j] = b * (v[j] - g * sum_i S[i,j] k[i])
 *   S[i,j] = g * S[i,j] + k[i] d[j]
 *   y[j] = scale * sum_i S[i,j] q[i]
 * Order of operations: rows one by one, so that the result does not depend on how a sequence is
 * divided into steps. Sums over i ascend, one fused multiply-add each, from 0; S[i,j] = fma(k[i],
 * d[j], g * S[i,j]), the product in brackets rounded; v - g * sum rounds twice. Columns j do not
 * depend on one another. softplus(x) = log(1 + exp(x)), x itself above 20. q, k [n_tok, n_heads_k,
 * head_dim_k], v [n_tok, n_heads, head_dim_v]: token t at t*stride elements of each; n_heads_k
 * divides n_heads. q and k of head h are those of head h / (n_heads / n_heads_k) if grouped, else h
 * % n_heads_k. alpha and beta of head h of token t at t*stride_gate + h / gate_group *
 * gate_group_stride + h % gate_group. a, dt [n_heads] f32. y [n_tok, n_heads, head_dim_v]
 * contiguous; state: S of all heads, [n_heads, head_dim_k, head_dim_v] f32. Source: Yang et al.,
 * "Gated Delta Networks", 2024, equation 10. */
struct sl_op_delta_rule {
    const float *q, *k, *v, *alpha, *beta, *a, *dt;
    float *y;
    struct sl_state_view state;
    uint32_t n_tok, n_heads, n_heads_k, head_dim_k, head_dim_v, stride;
    uint32_t stride_gate, gate_group, gate_group_stride;
    bool grouped;
    float scale;
};

/* The delta rule with a decay of each element of the key (Kimi Delta Attention), over the rows of
 * each sequence, head by head, with a matrix S [head_dim_k, head_dim_v] as its state. Of a row, in
 * a head h of n_heads:
 *   g[i] = exp(a[h] * softplus(alpha[i] + dt[h,i])), or with a bound below 0
 *          exp(bound * sigmoid(|a[h]| * (alpha[i] + dt[h,i]))), which is not below exp(bound)
 *   d[j] = sigmoid(beta) * (v[j] - sum_i g[i] S[i,j] k[i])
 *   S[i,j] = g[i] * S[i,j] + k[i] d[j]
 *   y[j] = scale * sum_i S[i,j] q[i]
 * Order of operations: as of sl_op_delta_rule, but that g[i] S[i,j] is rounded before it is
 * multiplied by k[i].
 * q, k, alpha [n_tok, n_heads, head_dim_k], v, y [n_tok, n_heads, head_dim_v], beta [n_tok,
 * n_heads], all contiguous; a [n_heads], dt [n_heads, head_dim_k] f32; head_dim_k at most
 * SL_CHANNEL_DELTA_MAX. state: S of all heads, [n_heads, head_dim_k, head_dim_v] f32.
 * Source: Kimi Team 2025, "Kimi Linear", section 3. */
#define SL_CHANNEL_DELTA_MAX 1024u
struct sl_op_channel_delta {
    const float *q, *k, *v, *alpha, *beta, *a, *dt;
    float *y;
    struct sl_state_view state;
    uint32_t n_tok, n_heads, head_dim_k, head_dim_v;
    float scale;
    float bound; /* 0: none */
};

/* A state space's recurrence with one decay a head (Mamba-2) over the rows of each sequence, head
 * by head, with a matrix S [n_state, head_dim] as its state. Of a row, in a head h of n_heads:
 *   d = softplus(dt + dt_bias[h]), g = exp(a[h] * d)
 *   S[i,j] = g * S[i,j] + b[i] * (d * x[j])
 *   y[j] = skip[h] * x[j] + sum_i S[i,j] c[i]
 * Order of operations: rows one by one, so that the result does not depend on how a sequence is
 * divided into steps. S[i,j] = fma(b[i], d * x[j], g * S[i,j]), both products rounded; the sum over
 * i ascends, one fused multiply-add each, from 0; y[j] = fma(skip[h], x[j], sum). Columns j do not
 * depend on one another. softplus as in sl_op_delta_rule.
 * x [n_tok, n_heads, head_dim], b, c [n_tok, n_groups, n_state]: token t at t*stride elements of
 * each; n_groups divides n_heads, and head h reads group h / (n_heads / n_groups). dt [n_tok,
 * n_heads], a, dt_bias, skip [n_heads] f32. y [n_tok, n_heads, head_dim] contiguous; state: S of
 * all heads, [n_heads, n_state, head_dim] f32.
 * Source: Dao and Gu 2024, "Transformers are SSMs", section 7. */
struct sl_op_state_scan {
    const float *x, *b, *c, *dt, *a, *dt_bias, *skip;
    float *y;
    struct sl_state_view state;
    uint32_t n_tok, n_heads, n_groups, head_dim, n_state, stride;
};

/* A state space's recurrence with a decay of each element (Mamba-1) over the rows of each sequence,
 * channel by channel, with a vector S [n_state] as its state. Of a row, in a channel j of n:
 *   d    = softplus(dt[j])
 *   S[i,j] = exp(a[j,i] * d) * S[i,j] + b[i] * (d * x[j])
 *   y[j] = skip[j] * x[j] + sum_i S[i,j] c[i]
 * Order of operations: as in sl_op_state_scan, a[j,i] * d rounded.
 * x, dt, y [n_tok, n], b, c [n_tok, n_state], a [n, n_state], skip [n] f32; n_state at most
 * SL_SCAN_MAX_STATE. state: [n_state, n] f32. Source: Gu and Dao 2023, "Mamba", section 3. */
#define SL_SCAN_MAX_STATE 64u
struct sl_op_channel_scan {
    const float *x, *b, *c, *dt, *a, *skip;
    float *y;
    struct sl_state_view state;
    uint32_t n_tok, n, n_state;
};

#endif
