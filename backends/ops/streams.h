/* Residual streams: spreading, reading and mixing them. Who owns the arguments, and until when:
 * backend.h. */
#ifndef SL_BACKENDS_OPS_STREAMS_H
#define SL_BACKENDS_OPS_STREAMS_H

#include "common/limits.h"

#include <stdbool.h>
#include <stdint.h>

/* Hyper-connections: a row of the residual stream is n_stream streams of n elements, of which each
 * part of a layer reads a weighted sum, and which it then mixes with one another and with what it
 * gives. The weights come from the row itself. Source: Zhu et al. 2024, "Hyper-Connections"; Xie et
 * al. 2025, "mHC: Manifold-Constrained Hyper-Connections", for the mixture's Sinkhorn iterations.
 */
#define SL_MAX_STREAMS 8u
/* Weights of a row: for what is read, what is written, and of each stream (s) how much of it goes
 * to each (d), [s, d]. */
#define SL_STREAM_WEIGHTS(n_stream) ((n_stream) * (2 + (n_stream)))

/* y[t,s,:] = x[t,:]                            x [n_tok, n], y [n_tok, n_stream, n] */
struct sl_op_stream_spread {
    const float *x;
    float *y;
    uint32_t n_tok, n_stream, n;
};

/* From products to weights, in place. x [n_tok, SL_STREAM_WEIGHTS(n_stream)], of each row
 *   read[s]    = sigmoid(x * scale[0] + base) + eps
 *   write[s]   = 2 * sigmoid(x * scale[1] + base)
 *   mix[s,d]   = softmax over d of (x * scale[2] + base), + eps; then every d's sum over s becomes
 *                1 (divided by it + eps), and n_iter - 1 times every s's over d, then every d's.
 * Products and sums are rounded one by one; sums ascend from the first term.
 * only_read: rows are of n_stream products, for what is read alone, and scale has one element.
 * base as a row, scale [3] or [1] f32. n_stream 2 to SL_MAX_STREAMS, n_iter at least 1. */
struct sl_op_stream_weights {
    float *x;
    const float *scale, *base;
    uint32_t n_tok, n_stream, n_iter;
    float eps;
    bool only_read;
};

/* y[t,i] = sum_s w[t * stride_w + s] * x[t,s,i]: the first product, then one fused multiply-add
 * each. x [n_tok, n_stream, n], y [n_tok, n]. */
struct sl_op_stream_read {
    const float *x, *w;
    float *y;
    uint32_t n_tok, n_stream, n, stride_w;
};

/* x[t,d,i] = write[t,d] * y[t,i] + sum_s mix[t,s,d] * x[t,s,i], in place: the first product, then
 * one fused multiply-add each, s ascending. x [n_tok, n_stream, n], y [n_tok, n], w [n_tok,
 * SL_STREAM_WEIGHTS(n_stream)] as sl_op_stream_weights leaves them. */
struct sl_op_stream_write {
    float *x;
    const float *y, *w;
    uint32_t n_tok, n_stream, n;
};

/* Residual attention: of a row's streams the first is the residual one, and each part of a layer
 * reads a sum of it and of what some layers before have kept of it, weighted by how well each suits
 * what the part looks for. Source: Kimi Team 2026, "Attention Residuals", with blocks of layers. */

/* y[t,:] = sum_s p[s] * x[t,s,:], s from 0 to n_kept: from 0, one fused multiply-add each;
 *   p = softmax of score[s] = (sum_i x[t,s,i] * w[i]) / sqrt(mean of squares of x[t,s,:] + eps)
 * Order of operations: both sums of a score have 16 partial sums of fused multiply-adds and the
 * usual tree (cpu.h), as sl_op_rms_norm's; the softmax's sum ascends from the first term.
 * x [n_tok, n_stream, n], w [n], y [n_tok, n]; n_stream 2 to SL_MAX_ATTENDED. */
struct sl_op_stream_attend {
    const float *x, *w;
    float *y;
    uint32_t n_tok, n_stream, n_kept, n;
    float eps;
};

/* to 0: x[t,0,:] += y[t,:]. Else x[t,to,:] = x[t,0,:], then x[t,0,:] = y[t,:].
 * x [n_tok, n_stream, n], y [n_tok, n]. */
struct sl_op_stream_keep {
    float *x;
    const float *y;
    uint32_t n_tok, n_stream, to, n;
};

/* Hyper-connections by way of a low rank, whose streams are not mixed with one another: a part
 * reads their mean, each element of each stream through a gate of its own:
 *   y[t,i] = 1 / n_stream * sum_s x[t,s,i] * sigmoid(gate[t,s,i])
 * the first product, then one fused multiply-add each, s ascending.
 * x, gate [n_tok, n_stream, n], y [n_tok, n]. */
struct sl_op_stream_mean {
    const float *x, *gate;
    float *y;
    uint32_t n_tok, n_stream, n;
};

/* What a part gives goes to each stream by a weight around 1:
 *   x[t,s,i] = fma(2 * sigmoid(w[t,s] * (1 / n_stream)), y[t,i], x[t,s,i]), in place
 * x [n_tok, n_stream, n], y [n_tok, n], w [n_tok, n_stream]. */
struct sl_op_stream_inject {
    float *x;
    const float *y, *w;
    uint32_t n_tok, n_stream, n;
};

#endif
