/* The op table: what the engine asks of a device, and what a backend must implement.
 *
 * A device executes ops in submission order on one queue, SL_QUEUE_OPS; copies may run alongside
 * them on two more. Calls enqueue; results are valid after sl_device_sync(), or once a point marked
 * afterwards has passed (the CPU executes at once). All calls on one device come from one thread at
 * a time, its owner.
 *
 * Submission: a backend may hold back what was enqueued on a queue until sl_device_mark() is called
 * on it, a signal is raised, or somebody waits (sync, download, await, free); then it must submit
 * it. passed() submits nothing. So before polling a point, or making another device follow, it is
 * enough to place the mark.
 *
 * Memory is allocated in buffers. Copies, uploads and downloads name it by spans; the direction of
 * a copy follows from the kinds of its buffers. Pointers in op arguments are device addresses,
 * which sl_span_addr() gives. The host may follow them only if caps.host_visible is set; they may
 * or may not equal the host's addresses of the same bytes. What they point to is borrowed until the
 * op has executed; the argument struct itself, and host arrays in it, until the call returns.
 *
 * Determinism: a row's result depends only on that row's own inputs and the weights, not on how
 * many rows the call has, nor on the number of threads. Rows [0, n_decode) are generated rows, the
 * others prompt rows: a backend whose decode and prefill kernels round differently chooses by this,
 * never by n_tok. On the CPU both give the same bits.
 *
 * The front end (sl_op_*) checks arguments once (shapes, alignment to blocks, types the device
 * lacks, limits given to sl_device_configure), and returns SL_ERR_INVALID or SL_ERR_UNSUPPORTED;
 * backends trust what they get. */
#ifndef SL_BACKENDS_BACKEND_H
#define SL_BACKENDS_BACKEND_H

#include "backends/activation.h"
#include "common/dtype.h"
#include "common/limits.h"
#include "common/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Positions per KV page. */
#define SL_KV_PAGE_TOKENS 64u
#define SL_MATMUL_MAX_W   4u

struct sl_device;

enum sl_buffer_kind {
    SL_BUFFER_DEVICE, /* allocated on the device: sl_device_alloc() */
    SL_BUFFER_MAPPED, /* host memory, pinned for the device: sl_device_map_host() */
};

/* Memory of one device, or host memory as one device sees it. Written only by the front end and the
 * backend; anybody may read it. */
struct sl_buffer {
    struct sl_device *device; /* the device whose calls accept it */
    enum sl_buffer_kind kind;
    size_t bytes;
    void *addr; /* device address of the first byte, for ops */
    void *host; /* the host's address of the first byte; NULL: the host cannot access it */
    void *own;  /* the backend's */
};

/* `bytes` bytes of a buffer, from offset on. */
struct sl_span {
    const struct sl_buffer *buffer;
    size_t offset, bytes;
};

static inline struct sl_span sl_span(const struct sl_buffer *buffer, size_t offset, size_t bytes) {
    return (struct sl_span){buffer, offset, bytes};
}
static inline struct sl_span sl_span_all(const struct sl_buffer *buffer) {
    return (struct sl_span){buffer, 0, buffer->bytes};
}
/* A part of a span, from offset within it on. */
static inline struct sl_span sl_span_part(struct sl_span s, size_t offset, size_t bytes) {
    return (struct sl_span){s.buffer, s.offset + offset, bytes};
}
/* The bytes of this buffer that begin at a device address (as ops use it) or at a host address. An
 * address outside the buffer makes a span that every call rejects. */
static inline struct sl_span sl_span_at(const struct sl_buffer *buffer, const void *addr,
                                        size_t bytes) {
    return (struct sl_span){buffer, (uintptr_t)addr - (uintptr_t)buffer->addr, bytes};
}
static inline struct sl_span sl_span_at_host(const struct sl_buffer *buffer, const void *host,
                                             size_t bytes) {
    return (struct sl_span){buffer, (uintptr_t)host - (uintptr_t)buffer->host, bytes};
}
/* Device address of its first byte. */
static inline void *sl_span_addr(struct sl_span s) {
    return (void *)((uintptr_t)s.buffer->addr + s.offset);
}
/* The host's address of it; only if buffer->host is set. */
static inline void *sl_span_host(struct sl_span s) {
    return (char *)s.buffer->host + s.offset;
}

/* A weight matrix, row-major: n_out rows of n_in elements, n_in a multiple of the type's block. */
struct sl_weight {
    enum sl_dtype dtype;
    uint32_t n_in, n_out;
    const void *data;
};

/* y[t,:] = w[ids[t],:] * scale             ids [n_tok] < w.n_out; y [n_tok, w.n_in] */
struct sl_op_embed {
    struct sl_weight w;
    const uint32_t *ids;
    float *y;
    uint32_t n_tok;
    float scale;
};

/* y[r,i] = x[r,i] / sqrt(mean_i x[r,i]^2 + eps) * w[i]
 * x, y: n_rows rows of n elements, stride elements apart; y may be x. w [n] f32, NULL = ones.
 * Also the per-head q/k norm: rows are then heads. */
struct sl_op_rms_norm {
    const float *x, *w;
    float *y;
    uint32_t n_rows, n, stride_x, stride_y;
    float eps;
};

/* For each of n_w matrices that share the input:
 *   y[t,o] = (add ? y[t,o] : 0) + sum_i w[o,i] * x[t,i] + bias[o]
 * x [n_tok, n_in] f32 contiguous, y [n_tok, n_out] f32 contiguous, bias [n_out] f32 or NULL. */
struct sl_matmul_out {
    struct sl_weight w;
    const float *bias;
    float *y;
    bool add;
};
struct sl_op_matmul {
    const float *x;
    uint32_t n_tok, n_decode, n_w;
    struct sl_matmul_out out[SL_MATMUL_MAX_W];
};

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

/* One layer's paged KV. Page p: K at k + p*k_page_bytes as [n_kv_heads, SL_KV_PAGE_TOKENS,
 * head_dim_k] of dtype (F16 or Q8_0), V alike. head_dim_* are multiples of the type's block. */
struct sl_kv_view {
    void *k, *v;
    enum sl_dtype dtype;
    uint32_t n_kv_heads, head_dim_k, head_dim_v;
    size_t k_page_bytes, v_page_bytes;
};

/* Writes row t's k and v to position slot[t] = page * SL_KV_PAGE_TOKENS + index in the page.
 * k [n_tok, n_kv_heads, head_dim_k], v [n_tok, n_kv_heads, head_dim_v] f32, token t at
 * t*stride_k and t*stride_v elements. */
struct sl_op_kv_write {
    struct sl_kv_view kv;
    const float *k, *v;
    const uint32_t *slot;
    uint32_t n_tok, stride_k, stride_v;
};

/* Causal attention of n_tok query rows over paged KV, heads grouped (n_heads / n_kv_heads share
 * one KV head): y[t,h,:] = softmax_j(scale * q[t,h,:].k[j,:]) v[j,:] over the positions
 * j in [max(0, len - window), len), len = row_len[t], window 0 = all.
 * q [n_tok, n_heads, head_dim_k], token t at t*stride_q elements; y [n_tok, n_heads, head_dim_v]
 * contiguous. Position j of row t is in page page_table[row_seq[t] * max_pages + j / PAGE_TOKENS].
 * sinks [n_heads] f32 or NULL: an extra logit that takes part in the softmax's sum only.
 * softcap above 0: the score s = scale * q.k becomes softcap * tanh(s / softcap).
 * chunk above 0: positions are divided into chunks of this size, and a row sees only those of its
 * own chunk: j >= (len - 1) / chunk * chunk; window must be 0. softcap, chunk: caps.extra_args.
 * Source: FlashAttention's online softmax (Dao et al. 2022); gpt-oss model card for sinks. */
struct sl_op_attention {
    struct sl_kv_view kv;
    const float *q, *sinks;
    float *y;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, stride_q, max_pages, window;
    float scale;
    float softcap;
    uint32_t chunk;
};

enum sl_router_score { SL_ROUTER_SOFTMAX, SL_ROUTER_SIGMOID };
/* Chooses k experts per row. logits [n_tok, n_expert] f32.
 *   score = softmax over all experts, or sigmoid; with softmax_topk the softmax runs over the k
 *           chosen logits instead (Mixtral, gpt-oss: the same weights as renormalised softmax);
 *           with softmax_topk and sigmoid the largest logits are chosen and then passed through the
 *           sigmoid, so that experts whose sigmoid rounds to 1 keep their order (Llama 4;
 *           caps.sigmoid_topk; no bias)
 *
 *   order:  the k largest score (+ bias when not NULL), largest first, ties to the lower index
 *
 *   groups: with n_group > 1 the experts are n_group runs of equal length, and only those of the
 *           n_group_used best groups may be chosen; a group is as good as the sum of its two
 * largest scores (+ bias), added largest first, ties to the lower group (DeepSeek-V3, 2024,
 *           section 2.1.2). 0 or 1: no groups
 *
 *   weight: the score without bias, divided by the k scores' sum if normalize, times scale, times
 *           expert_scale[id] when not NULL (caps.extra_args)
 *
 *   share:  above 1, each run of so many experts shares one id: an id is that of the chosen expert
 *           divided by share, so that one may come several times, and its score is that at this
 *           smaller number, whose expert need not be among the chosen (GroveMoE's adjugate experts,
 *           as llama.cpp computes them; caps.router_share; no softmax_topk, no expert_scale)
 * ids [n_tok, k], weights [n_tok, k], expert_scale [n_expert] f32. */
struct sl_op_router {
    const float *logits, *bias;
    uint32_t *ids;
    float *weights;
    uint32_t n_tok, n_expert, k;
    enum sl_router_score score;
    bool softmax_topk, normalize;
    float scale;
    uint32_t n_group, n_group_used; /* caps.router_groups */
    const float *expert_scale;
    uint32_t share; /* 0 and 1: none */
};

/* Where one expert's matrices are: gate and up [n_ff, n_embd], down [n_embd, n_ff]. Of experts
 * without a gate (SL_RELU_SQUARED) gate, its type and its bias are not looked at. */
struct sl_expert_ref {
    const void *gate, *up, *down;
};

/* A pair, and where its expert is. */
struct sl_placed_pair {
    struct sl_expert_ref ref;
    uint32_t pair;
};
#define SL_MOE_MAX_PLACED 16u

#define SL_SWIGLU_CLAMPED_ALPHA 1.702f
#define SL_SWIGLU_CLAMPED_LIMIT 7.0f

/* For each listed pair p = t*k + r, with e = ids[p]:
 *   pair_y[p,:] = down_e activation(gate_e x[t] + gate_bias[e], up_e x[t] + up_bias[e]) +
 *                 down_bias[e]
 * x [n_tok, n_embd]; ids [n_tok, k] < n_expert; pair_y [n_tok*k, n_embd]; gate_bias, up_bias
 * [n_expert, n_ff] and down_bias [n_expert, n_embd] f32, wherever the experts are: NULL = none.
 * pairs [n_pairs] lists the pairs to compute, ascending; NULL = all, n_pairs = n_tok*k. Experts of
 * listed pairs must be resident in refs. Weighted sums happen in sl_op_moe_combine, in router
 * order, so that the result does not depend on the order in which experts become resident. */
struct sl_op_moe {
    const float *x;
    const uint32_t *ids;
    const uint32_t *pairs;
    float *pair_y;
    const struct sl_expert_ref *refs; /* [n_expert] in host memory, or NULL and */
    const struct sl_expert_ref
        *device_refs; /* [n_expert] in device memory, read when the op runs */
    /* [n_pairs] in host memory, instead of pairs and refs: so few that they travel with the launch
     * (caps.moe_placed). Generated rows alone, at most SL_MOE_MAX_PLACED pairs. */
    const struct sl_placed_pair *placed;
    enum sl_dtype gate_dtype, up_dtype, down_dtype;
    uint32_t n_tok, n_decode, k, n_pairs, n_expert, n_embd, n_ff;
    const float *gate_bias, *up_bias, *down_bias; /* caps.moe_bias */
    /* caps.swiglu_clamped, .geglu, .swiglu_limited, .reglu, .swiglu_cut, .relu_squared */
    enum sl_activation activation;
    float limit; /* of SL_SWIGLU_LIMITED and SL_SWIGLU_CUT, above 0 */
    /* Called once on the caller's thread before the op returns, if there are pairs; NULL: nothing.
     * A device that can compute meanwhile does (caps.overlap); otherwise this runs afterwards. May
     * block; must call no op. */
    void (*overlap)(void *ctx);
    void *overlap_ctx;
    uint64_t *out_end_ns; /* when the computation alongside it had ended (sl_now_ns); NULL, or where
                             the device does not know: not set */
};

/* y[t,:] += sum_r weights[t,r] * pair_y[t*k+r,:], r ascending, one fused multiply-add each; set
 * (caps.extra_args): from 0 instead of y. */
struct sl_op_moe_combine {
    const float *pair_y, *weights;
    float *y;
    uint32_t n_tok, k, n;
    bool set;
};

/* y[i] = silu(gate[i]) * up[i]; y may be gate. */
struct sl_op_silu_mul {
    const float *gate, *up;
    float *y;
    size_t n;
};

/* y[t,i] += x[t,i] * (gate ? sigmoid(gate[t]) : 1) */
struct sl_op_add_gated {
    const float *x, *gate;
    float *y;
    uint32_t n_tok, n;
};

/* y[j,:] = x[rows[j],:]; rows of n f32, j < n_out */
struct sl_op_gather_rows {
    const float *x;
    const uint32_t *rows;
    float *y;
    uint32_t n_out, n;
};

/* max[t,b] = the largest of x[t,i] over block b of the row, i in [b*B, min(b*B + B, n)), B =
 * SL_BLOCK_MAX_ELEMS: NaN where one of them is NaN, and +0 above -0 (IEEE 754-2019's maximum)
 * at[t,b] = the first i - b*B whose x[t,i] == max[t,b], zeros being equal; 0 beside NaN
 * sum[t,b] = the sum over the block of sl_exp_neg((x[t,i] - max[t,b]) * inv_t[t]): 16 sums of every
 * 16th in order, then of the two halves until one is left; 0 where max[t,b] is not finite or
 * inv_t[t] is not above 0. This gives a sampler the mass of a block without reading it.
 * x [n_tok, n]; max [n_tok, ceil(n / B)]; at and sum likewise, or NULL if not wanted; inv_t
 * [n_tok], needed only with sum */
#define SL_BLOCK_MAX_ELEMS 64u
struct sl_op_block_max {
    const float *x;
    float *max;
    uint32_t *at;
    float *sum;
    const float *inv_t;
    uint32_t n_tok, n;
};

/* y[r,i] *= sigmoid(gate[r * stride_gate + i])
 * y [n_rows, n] contiguous; rows are heads where the gate lies beside the head's query. */
struct sl_op_mul_sigmoid {
    const float *gate;
    float *y;
    uint32_t n_rows, n, stride_gate;
};

/* x[t,h,i] /= sqrt(sum_i x[t,h,i]^2 + eps), in place
 * head h of token t at x + t*stride + h*head_dim */
struct sl_op_l2_norm {
    float *x;
    uint32_t n_tok, n_heads, head_dim, stride;
    float eps;
};

/* A state that every row of a sequence reads and replaces, kept by pages: page p at pages +
 * p*page_bytes holds the state behind the last of its positions that was computed. Row t has
 * position row_len[t] - 1 and writes page slot[t] / SL_KV_PAGE_TOKENS; the state before it is in
 * page page_table[row_seq[t] * max_pages + (row_len[t] - 2) / SL_KV_PAGE_TOKENS], which may be the
 * same, and is zero before the first position. Rows of one sequence are adjacent, in the
 * order of their positions and without gaps. Each op defines the layout of a page. */
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
 *          exp(bound * sigmoid(a[h] * (alpha[i] + dt[h,i]))), which is not below exp(bound)
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

/* One matrix for each head, all of one shape. For head h of token t:
 *   y[o] = sum_i w[h][o,i] * x[i], o < n_out       rows of n_in weights, sums as in sl_op_matmul
 *   y[o] = fma(w[h][i,o], x[i], y[o]) for i = 0 to n_in - 1, from 0      transposed: n_in rows of
 *                                                                       n_out weights
 *   y[n_out + i] = x[n_in + i], i < n_keep         the rest of x is copied to y unchanged
 * x: head h of token t at x + (t*n_heads + h)*stride_x, y alike; stride_x >= n_in + n_keep,
 * stride_y >= n_out + n_keep, and they do not overlap. w: head h's matrix at w + h*head_bytes. */
struct sl_op_head_matmul {
    const float *x;
    float *y;
    const void *w;
    enum sl_dtype dtype;
    size_t head_bytes;
    uint32_t n_tok, n_decode, n_heads, n_in, n_out, n_keep, stride_x, stride_y;
    bool transposed;
};

/* One layer's paged latents. Page p: at rows + p*page_bytes as [SL_KV_PAGE_TOKENS, n_latent +
 * n_rot] of dtype (F16 or Q8_0): one row per position, shared by all heads. The whole row is
 * the key; its first n_latent elements are also the value. Both widths are multiples of the type's
 * block. */
struct sl_latent_view {
    void *rows;
    enum sl_dtype dtype;
    uint32_t n_latent, n_rot;
    size_t page_bytes;
};

/* Writes row t of x, n_latent + n_rot elements at t*stride, to position slot[t] = page *
 * SL_KV_PAGE_TOKENS + index in the page. */
struct sl_op_latent_write {
    struct sl_latent_view kv;
    const float *x;
    const uint32_t *slot;
    uint32_t n_tok, stride;
};

/* Causal attention of n_tok query rows over paged latents c:
 *   y[t,h,:] = softmax_j(scale * q[t,h,:].c[j,:]) c[j,0..n_latent) over the positions j <
 * row_len[t] q [n_tok, n_heads, n_latent + n_rot], y [n_tok, n_heads, n_latent], both contiguous.
 * page_table, row_seq and row_len as in sl_op_attention, whose order of operations it has too.
 * Source: DeepSeek-AI 2024, "DeepSeek-V2", section 2.1, with the projections of keys and values
 * taken into query and output. */
struct sl_op_latent_attention {
    struct sl_latent_view kv;
    const float *q;
    float *y;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages;
    float scale;
    uint32_t window; /* as in sl_op_attention; caps.latent_window */
};

/* x[t,:] = H x[t,:] / sqrt(n) in place, H the n x n Hadamard matrix in Sylvester's order: for steps
 * s = 1, 2, 4, ... below n the pairs i, i + s become their sum and their difference, then all are
 * multiplied by 1/sqrt(n), rounded once. Two vectors that both go through it keep their dot
 * product, and large elements are spread over all. x [n_rows, n] contiguous; n a power of two. */
struct sl_op_hadamard {
    float *x;
    uint32_t n_rows, n;
};

/* Which positions a row attends to: of the positions j < row_len[t] of its sequence the n_top of
 * the highest scores s[t,j] = sum_h w[t,h] * max(q[t,h,:].k[j,:], 0) or all of them where there are
 * no more. Of equal scores the lower position goes first; -0 equals 0, and what is not a number is
 * below all numbers. chosen[t, 0 .. min(n_top, row_len[t])) are the positions in ascending order;
 * what is behind them is not written. Dot products are as in sl_op_attention, with a scale of 1 (a
 * positive one would change no order); the sum is a chain of fused multiply-adds from 0 on, h
 * ascending. So a row's choice depends on nothing but its own sequence. keys: n_rot 0, one row of
 * n_latent elements per position; q [n_tok, n_heads, n_latent], w [n_tok, n_heads], chosen [n_tok,
 * n_top]; page_table, row_seq and row_len as in sl_op_attention. Source: DeepSeek-AI 2025,
 * "DeepSeek-V3.2", section 2.1 (lightning indexer). */
struct sl_op_index_choose {
    struct sl_latent_view keys;
    const float *q, *w;
    uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top;
};

/* sl_op_latent_attention over chosen positions alone: row t over chosen[t, 0 .. n), n = min(n_top,
 * row_len[t]), ascending, in the order of operations that it would have if these were positions 0
 * to n of a sequence. So rows that have no more than n_top get the same bits as there. */
struct sl_op_chosen_attention {
    struct sl_latent_view kv;
    const float *q;
    float *y;
    const uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top;
    float scale;
};

/* Which blocks of positions each head of a row attends to. Positions are in blocks of `block`, of
 * which a row sees those that begin before row_len[t]; of these each head chooses n_top, or all
 * where there are no more: first the last n_local, then those of the highest scores
 * s[t,h,b] = max_j q[t,h,:].k[j,:] over the positions j < row_len[t] of block b. Of equal scores
 * the lower block goes first; -0 equals 0; products that are not numbers are left out, and minus
 * infinity is the score where none is left. chosen[t, h, 0 .. min(n_top, blocks)) are the blocks in
 * ascending order; what is behind them is not written. Dot products are as in sl_op_attention, with
 * a scale of 1 (a positive one would change no order). So a row's choice depends on nothing but its
 * own sequence. keys: n_rot 0, one row of n_latent elements per position for all heads; q [n_tok,
 * n_heads, n_latent], chosen [n_tok, n_heads, n_top]; n_local 1 to n_top; page_table, row_seq and
 * row_len as in sl_op_attention. Source: MiniMax 2026, "MiniMax-M3", its sparse attention. */
struct sl_op_block_choose {
    struct sl_latent_view keys;
    const float *q;
    uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top, n_local, block;
};

/* sl_op_attention over the positions of chosen blocks alone: the heads of row t that share KV head
 * g over those of blocks chosen[t, g, 0 .. n_top), ascending, of which the last is the row's own,
 * in the order of operations that they would have if these were the first positions of a sequence.
 * Of rows that see no more than n_top blocks chosen is not read: they get the same bits as there.
 * chosen [n_tok, n_kv_heads, n_top]; the rest as in sl_op_attention. */
struct sl_op_block_attention {
    struct sl_kv_view kv;
    const float *q;
    float *y;
    const uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, stride_q, max_pages, n_top, block;
    float scale;
};

/* y[i] = silu(min(gate[i], limit)) * min(max(up[i], -limit), limit); y may be gate. limit above 0.
 * What SL_SWIGLU_CUT is to experts. */
struct sl_op_cut_glu {
    const float *gate, *up;
    float *y;
    size_t n;
    float limit;
};

/* A router whose scores are sqrt(softplus(logit)), softplus as in sl_op_delta_rule. Chooses the k
 * experts of the largest score (+ bias when not NULL) as sl_op_router does; or, with a table, those
 * that the row's token has there, in that order: ids[t,:] = table[tokens[rows ? rows[t] : t],:].
 * weight: the score without bias, with normalize divided by the k scores' sum, or by 2^-14 where
 * that is less; times scale.
 * logits [n_tok, n_expert], ids, weights [n_tok, k], table [tokens' number, k] of ids below
 * n_expert, tokens, rows: of the step. Source: DeepSeek-AI 2026, "DeepSeek-V4", its first layers'
 * hash routing. */
struct sl_op_softplus_router {
    const float *logits, *bias;
    const int32_t *table;
    const uint32_t *tokens, *rows;
    uint32_t *ids;
    float *weights;
    uint32_t n_tok, n_expert, k;
    bool normalize;
    float scale;
};

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

/* Of compressed keys: positions are in blocks of `ratio`, which divides SL_KV_PAGE_TOKENS or is a
 * multiple of it. A block has one row, in the page of its last position: so many to a page, of
 * which a longer block's is the first. */
static inline uint32_t sl_block_rows(uint32_t ratio) {
    return ratio < SL_KV_PAGE_TOKENS ? SL_KV_PAGE_TOKENS / ratio : 1;
}
/* Which page of its sequence block b is in. Its row there: b % sl_block_rows(ratio). */
static inline uint32_t sl_block_page(uint32_t b, uint32_t ratio) {
    return (uint32_t)(((uint64_t)b + 1) * ratio - 1) / SL_KV_PAGE_TOKENS;
}

/* Compresses blocks of positions to one row each, as their last rows come. Of each row of the step
 * kv and gate [n_tok, width] are kept, gate + ape[position % ratio], for blocks that are not
 * complete; width = n, or with overlap 2 n. Of a row at position p with (p + 1) % ratio == 0
 *   c[i] = sum_j e_j kv_j[i] / sum_j e_j,  e_j = exp(gate_j[i] - max_j gate_j[i])
 * over the ratio positions j up to p, ascending, one fused multiply-add each from 0; with overlap
 * over the ratio positions before these too, of which the first n elements are taken, and the
 * second n of the others; there are none before the sequence's first. Then c becomes what
 * sl_op_rms_norm makes of it with norm and eps, its last 2 * n_freq elements are rotated (pairs 2i,
 * 2i + 1) as a row at position p + 1 - ratio is, by angles as sl_op_rope_table makes them, each
 * `spread` elements go through sl_op_hadamard, and the row goes to its place in out. kept: page q
 * at kept + q * kept_bytes as [SL_KV_PAGE_TOKENS, 2, width] f32, kv before gate; row t is at
 * slot[t], those before it where kept_table says, and out's where out_table does, both [.,
 * max_pages] as page_table in sl_op_attention. Rows of one sequence are adjacent, in the order of
 * their positions and without gaps. out: n_latent = n, n_rot 0. ape [ratio, width], norm [n],
 * inv_freq [n_freq]. Source: DeepSeek-AI 2026, "DeepSeek-V4", compressed sparse and heavily
 * compressed attention. */
struct sl_op_compress {
    const float *kv, *gate, *ape, *norm, *inv_freq;
    void *kept;
    size_t kept_bytes;
    struct sl_latent_view out;
    const uint32_t *slot, *kept_table, *out_table, *row_seq, *row_len;
    uint32_t n_tok, n, ratio, max_pages, n_freq;
    uint32_t spread; /* 0: not */
    bool overlap;
    float eps, mscale;
};

/* sl_op_index_choose among complete blocks of positions: b < row_len[t] / ratio, whose keys have
 * one row a block, as sl_op_compress leaves them. chosen [n_tok, n_top], blocks. */
struct sl_op_compressed_choose {
    struct sl_latent_view keys;
    const float *q, *w;
    uint32_t *chosen;
    const uint32_t *page_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, n_top, ratio;
};

/* Attention over the rows of complete blocks, then those of a window of positions: row t over
 * blocks chosen[t, 0 .. min(n_top, row_len[t] / ratio)), ascending, or, where chosen is NULL, all b
 * < row_len[t] / ratio, and after these over the positions [max(0, row_len[t] - window),
 * row_len[t]), in the order of operations that sl_op_attention would have if these rows were the
 * first positions of a sequence. A row is key and value of all heads.
 * kv: of positions, n_rot 0; blocks: of the same shape, one row a block as sl_op_compress leaves
 * them; ratio 0: there are none. page_table is of kv, block_table of blocks; sinks, q, y, row_seq
 * and row_len as in sl_op_attention. window at least 1. */
struct sl_op_compressed_attention {
    struct sl_latent_view kv, blocks;
    const float *q, *sinks;
    float *y;
    const uint32_t *chosen;
    const uint32_t *page_table, *block_table, *row_seq, *row_len;
    uint32_t n_tok, n_decode, n_heads, max_pages, window, ratio, n_top;
    float scale;
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

/* y[t,i] = x[t,i] - mean_i x[t,i], the mean summed as in sl_op_rms_norm; y may be x. With
 * sl_op_rms_norm behind it this is layer normalisation (Ba et al. 2016) without a bias.
 * x, y [n_tok, n] contiguous. */
struct sl_op_center {
    const float *x;
    float *y;
    uint32_t n_tok, n;
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

/* Sends rows to another device (sl_device_reaches()) without the host. The receiver's memory has a
 * buffer and a word for each of several channels. The word holds the sequence number of the last
 * transfer that has arrived. Sequence numbers ascend; they are compared by difference and may wrap.
 *
 * to[channel * stride + i] = x[i], i < n; then, visible to the other device, raised[channel] =
 * seqno. channel and seqno are in device memory, so that both may differ from one replay to the
 * next. */
struct sl_op_send {
    const float *x; /* [n] */
    float *to;      /* [channels, stride] the other device's, as raised [channels] */
    uint32_t *raised;
    const uint32_t *channel, *seqno;
    uint32_t n, stride;
};

/* Waits until raised[channel], or released[channel] in host memory, has reached seqno; then
 * x[i] = from[channel * stride + i], i < n. The whole queue waits, so the sender must not depend on
 * it. When released, x is whatever the buffer holds. */
struct sl_op_receive {
    const float *from; /* [channels, stride] */
    float *x;          /* [n] */
    const uint32_t *raised;
    const uint32_t *released; /* [channels] mapped, as sl_device_map_host() gave it */
    const uint32_t *channel, *seqno;
    uint32_t n, stride;
    bool alone; /* nothing else has to run on the device meanwhile: the next op may occupy all of
                   it while it waits */
};

/* The ops, and what each is called: "rms_norm". */
enum sl_op {
#define SL_OP(name) SL_OP_##name,
#include "backends/ops.def"
    SL_OP_COUNT
};
const char *sl_op_name(enum sl_op op);

/* Fused forms (recorded.h), and the bits of caps.fused_ops. */
enum sl_fused {
#define SL_FUSED(name) SL_FUSED_##name,
#include "backends/fused.def"
    SL_FUSED_COUNT
};

/* What arguments an op will come with, as far as a device may lack it for them. */
struct sl_op_need {
    enum sl_op op;
    enum sl_dtype dtype;             /* embed, matmul, head_matmul, moe: of weights; kv_write,
                                        attention, latent_*, index_choose, chosen_attention, block_*,
                                        compress*: of KV;
                                        else             SL_DTYPE_COUNT */
    uint32_t head_dim_k, head_dim_v; /* kv_write, attention, block_attention, delta_rule,
                                        channel_delta; latent_*, index_choose, block_choose,
                                        chosen_attention, compress*: n_latent + n_rot and n_latent;
                                        state_scan: n_state and head_dim; else 0 */
    bool biases;                     /* moe: of gate, up and down */
    enum sl_activation activation;   /* moe */
    bool groups;                     /* router */
    bool sigmoid_topk;               /* router: caps.sigmoid_topk */
    bool share;                      /* router: caps.router_share */
    bool window;                     /* latent_attention: caps.latent_window */
    const char *extra;               /* with arguments for which caps.extra_args is needed: what
                                        they are, as in " with a soft cap"; NULL: without */
};

/* The largest calls that will be made, so that scratch is allocated once. */
struct sl_device_limits {
    uint32_t max_tok;      /* rows per call */
    uint32_t max_n_in;     /* widest matmul input, elements */
    uint32_t max_pairs;    /* n_tok*k of sl_op_moe */
    uint32_t max_n_embd;   /* of sl_op_moe */
    uint32_t max_n_ff;     /* of sl_op_moe */
    uint32_t max_expert;   /* n_expert of sl_op_moe and sl_op_router */
    uint32_t max_heads;    /* of sl_op_attention, and of sl_op_latent_attention, */
    uint32_t max_head_dim; /* with n_latent + n_rot */
    uint32_t max_head_n;   /* n_in and n_out of sl_op_head_matmul */
    uint32_t max_scores;   /* positions of a row of sl_op_index_choose, sl_op_block_choose and
                              sl_op_compressed_choose; 0: they are not called */
};

enum sl_device_kind {
    SL_DEVICE_DISCRETE = 1, /* memory of its own, which the host reaches over a link */
    SL_DEVICE_INTEGRATED,   /* a device of its own that shares the host's memory */
    SL_DEVICE_HOST,         /* the host's CPU */
};

#define SL_DEVICE_ID_BYTES   16u
#define SL_DEVICE_NAME_BYTES 64u

/* What a device is and can do; 0, false or an empty text where it has none of it or does not say.
 */
struct sl_device_caps {
    enum sl_device_kind kind;
    char id[SL_DEVICE_ID_BYTES];      /* "cuda:0": opens it (registry.h) */
    char model[SL_DEVICE_NAME_BYTES]; /* "NVIDIA H200, sm_90": what it is, not which one */
    char name[SL_DEVICE_NAME_BYTES];  /* "cuda:0: NVIDIA H200, sm_90": both, for people */
    bool host_visible;                /* the host may follow device addresses */
    bool overlap;                     /* sl_op_moe computes while overlap() runs */
    bool mapped_host;                 /* kernels can read host memory: sl_device_map_host() */
    bool graphs;                      /* sl_device_record() */
    bool moe_placed;                  /* sl_op_moe takes placed */
    bool moe_bias;                    /* ... and biases */
    bool moe_as_host;                 /* ... and, where all three types are quantised, gives the
                                      bits of the host's CPU */
    bool swiglu_clamped;              /* ... and computes SL_SWIGLU_CLAMPED too */
    bool router_groups;               /* sl_op_router chooses by groups */
    bool geglu;                       /* ... and SL_GEGLU */
    bool swiglu_limited;              /* ... and SL_SWIGLU_LIMITED */
    bool reglu;                       /* ... and SL_REGLU */
    bool swiglu_cut;                  /* ... and SL_SWIGLU_CUT */
    bool relu_squared;                /* ... and SL_RELU_SQUARED */
    bool sigmoid_topk;                /* sl_op_router takes softmax_topk with sigmoids */
    bool router_share;                /* ... and share */
    bool latent_window;               /* sl_op_latent_attention takes windows */
    bool extra_args;                  /* takes the arguments of ops that say they need it */
    bool mailbox;                     /* what copies on OPS of at most SL_MAILBOX_MAX_BYTES, whole
                                      words, write to mapped memory the host sees word by word,
                                      while the queue runs on */
    bool rows_alike;                  /* generated and prompt rows give the same bits */
    /* What decides the bits: two devices whose id and version are the same give the same ones. The
     * version is raised whenever any op's result changes in a bit, so that what an older program
     * kept on disk is not used; 0 = not followed: only the very same program's may be. */
    char arithmetic_id[SL_DEVICE_NAME_BYTES];
    uint32_t arithmetic;
    uint32_t subgroup_width;  /* threads that run in step */
    uint32_t shared_bytes;    /* on-chip memory of a workgroup at most */
    uint32_t fused_ops;       /* a bit for each enum sl_fused that it has */
    uint64_t lacks_ops;       /* a bit for each enum sl_op whose entry is there in vain */
    uint64_t max_alloc_bytes; /* largest buffer; 0: no limit but the memory */
    uint64_t memory_bytes;
    uint64_t held_bytes;               /* of memory_bytes, taken by opening it: staging */
    uint64_t memory_bytes_per_s;       /* by its data sheet */
    bool weight_dtype[SL_DTYPE_COUNT]; /* what matmul, moe and embed take */
    bool kv_dtype[SL_DTYPE_COUNT];
};

/* Queues of a device. Ops, uploads and downloads are on OPS; copies may run alongside them. Within
 * one queue all goes in order; between queues only sl_device_after() orders. */
enum sl_queue { SL_QUEUE_OPS, SL_QUEUE_UP, SL_QUEUE_DOWN, SL_QUEUES };
/* A place on a queue: all that was enqueued on it before. 0 has passed on every queue. */
typedef uint64_t sl_point;
/* Recorded ops, the backend's own. */
struct sl_graph;
/* What one device tells others: the backend's own. */
struct sl_signal;

/* recorded.h */
struct sl_recorded_op;
struct sl_recording;
#define SL_FUSED(name) struct sl_fused_##name;
#include "backends/fused.def"

/* The table that a backend fills. Every entry is required unless its comment says what NULL means;
 * backends/immediate.h has those of a device that executes at once. The device struct is the
 * backend's own with struct sl_device first. */
struct sl_backend_ops {
    const char *name;
    void (*close)(struct sl_device *d);
    enum sl_status (*configure)(struct sl_device *d, const struct sl_device_limits *limits);
    /* Bytes that configure() will take for these limits. */
    uint64_t (*scratch_bytes)(const struct sl_device *d, const struct sl_device_limits *limits);
    /* Fills in addr, and host where the host can reach it; the rest is set, and no larger than
     * caps.max_alloc_bytes. free: what a buffer stands for, not the struct, which is the front's.
     * Spans lie within their buffers and are not empty. */
    enum sl_status (*alloc)(struct sl_device *d, struct sl_buffer *buffer);
    void (*free)(struct sl_device *d, struct sl_buffer *buffer);
    enum sl_status (*upload)(struct sl_device *d, struct sl_span dst, const void *src_host);
    enum sl_status (*download)(struct sl_device *d, void *dst_host, struct sl_span src);
    enum sl_status (*sync)(struct sl_device *d);
    /* NULL: nothing of it sleeps. */
    void (*wake)(struct sl_device *d);
    enum sl_status (*memory)(struct sl_device *d, uint64_t *out_free, uint64_t *out_total);

    /* Fills in addr; host is set. */
    enum sl_status (*map_host)(struct sl_device *d, struct sl_buffer *buffer);
    void (*unmap_host)(struct sl_device *d, struct sl_buffer *buffer);
    /* Both of one length, and one of them at least of kind DEVICE. */
    enum sl_status (*copy)(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                           struct sl_span src);
    /* Rows within their spans. NULL, or SL_ERR_UNSUPPORTED for these arguments: one copy for each
     * run of rows. */
    enum sl_status (*copy_rows)(struct sl_device *d, struct sl_span dst, struct sl_span src,
                                size_t row_bytes, const uint32_t *rows, uint32_t n);
    enum sl_status (*mark)(struct sl_device *d, enum sl_queue q, sl_point *out_point);
    enum sl_status (*passed)(struct sl_device *d, enum sl_queue q, sl_point point);
    enum sl_status (*await)(struct sl_device *d, enum sl_queue q, sl_point point);
    enum sl_status (*after)(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                            sl_point point);
    /* Of a device without caps.graphs these three are not called. The ops are the front's and are
     * borrowed for the call: sl_recorded_submit() gives them to the entries below. */
    enum sl_status (*graph_create)(struct sl_device *d, const struct sl_recorded_op *ops,
                                   uint32_t n_ops, struct sl_graph **out_graph);
    enum sl_status (*replay)(struct sl_device *d, struct sl_graph *graph);
    void (*graph_free)(struct sl_device *d, struct sl_graph *graph);

    /* NULL, as signal_create then is: devices of this kind do not read one another's memory, and of
     * what follows nothing is called. */
    enum sl_status (*peer_open)(struct sl_device *d, struct sl_device *other);
    enum sl_status (*copy_from)(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                struct sl_span src);
    enum sl_status (*signal_create)(struct sl_device *d, struct sl_signal **out_signal);
    void (*signal_free)(struct sl_device *d, struct sl_signal *signal);
    enum sl_status (*signal_raise)(struct sl_device *d, struct sl_signal *signal);
    enum sl_status (*signal_follow)(struct sl_device *d, struct sl_signal *signal);
    void (*signal_release)(struct sl_signal *signal);
    /* NULL: its queues cannot wait for the host. */
    enum sl_status (*signal_hold)(struct sl_device *d, struct sl_signal *signal);
    /* NULL, all four: none can. */
    enum sl_status (*relay_open)(struct sl_device *d, struct sl_device *other,
                                 const atomic_bool *busy);
    void (*relay_end)(struct sl_device *d);
    void (*relay_close)(struct sl_device *d);
    bool (*relay_lost)(const struct sl_device *d);
    /* NULL, as hand and take: no op writes to another device's memory. */
    bool (*reaches)(const struct sl_device *d, const struct sl_device *other);
    /* NULL: each is a piece of hardware of its own. */
    bool (*same)(const struct sl_device *d, const struct sl_device *other);

    /* NULL: takes whatever caps allow. Else whether it has the op for such arguments. */
    bool (*supports)(const struct sl_device *d, const struct sl_op_need *need);

    /* NULL, as with a bit in caps.fused_ops that is not set: has no such form. Its bits are those
     * of the ops one by one, and every buffer that one of them writes is written. */
#define SL_FUSED(name)                                                                             \
    enum sl_status (*fused_##name)(struct sl_device * d, const struct sl_fused_##name *a);
#include "backends/fused.def"
    /* Whether it does such arguments in one, and faster than one by one. NULL: all of them. */
#define SL_FUSED(name)                                                                             \
    bool (*takes_##name)(const struct sl_device *d, const struct sl_fused_##name *a);
#include "backends/fused.def"

    /* The ops, last. NULL, as with a bit in caps.lacks_ops: the device lacks it. */
#define SL_OP(name) enum sl_status (*name)(struct sl_device * d, const struct sl_op_##name *a);
#include "backends/ops.def"
};

struct sl_device {
    const struct sl_backend_ops *ops;
    struct sl_device_caps caps;
    struct sl_device_limits limits; /* zero until configured */
    bool recording;                 /* the front's: between record and recorded */
    struct sl_recording *recorded;  /* the front's; NULL: nothing was recorded yet */
    uint64_t n_kernels;             /* the backend's: launched so far, into graphs too; 0: it does
                                       not count them */
    _Atomic uint64_t own_bytes;     /* the backend's: allocated in the device's own memory; for any
                                       thread to read */
};

/* Does it have its own memory, which the host reaches over a link? */
static inline bool sl_device_is_discrete(const struct sl_device *d) {
    return d->caps.kind == SL_DEVICE_DISCRETE;
}

/* Closes and nulls *d; NULL is allowed. */
void sl_device_close(struct sl_device **d);
enum sl_status sl_device_configure(struct sl_device *d, const struct sl_device_limits *limits,
                                   struct sl_err *err) SL_MUST_CHECK;
uint64_t sl_device_scratch_bytes(const struct sl_device *d, const struct sl_device_limits *limits);
/* 64-byte aligned; large blocks are backed by huge pages if the backend can. Contents undefined.
 * SL_ERR_UNSUPPORTED: more than caps.max_alloc_bytes; buffer_pool.h has pools of several buffers.
 */
enum sl_status sl_device_alloc(struct sl_device *d, size_t bytes,
                               struct sl_buffer **out_buffer) SL_MUST_CHECK;
/* Waits for what uses it; frees and nulls *buffer; NULL is allowed. */
void sl_device_free(struct sl_device *d, struct sl_buffer **buffer);
/* To and from host memory that is not mapped; src_host may be reused when upload returns. This and
 * every other call that takes spans return SL_ERR_INVALID if a span is not within its buffer, or
 * the buffer is another device's. An empty span is done at once. */
enum sl_status sl_device_upload(struct sl_device *d, struct sl_span dst,
                                const void *src_host) SL_MUST_CHECK;
enum sl_status sl_device_download(struct sl_device *d, void *dst_host,
                                  struct sl_span src) SL_MUST_CHECK;
/* Waits for all queues. */
enum sl_status sl_device_sync(struct sl_device *d) SL_MUST_CHECK;
/* An op comes soon: what sleeps is woken. Returns at once. */
void sl_device_wake(struct sl_device *d);
/* The device's memory now, counting what other programs use; 0 = unknown. */
enum sl_status sl_device_memory(struct sl_device *d, uint64_t *out_free_bytes,
                                uint64_t *out_total_bytes) SL_MUST_CHECK;

/* Pins [host, host + bytes), both multiples of the page size, for sl_device_copy() and for kernels:
 * a buffer of kind MAPPED. The memory stays the caller's. SL_ERR_UNSUPPORTED: the device cannot
 * (caps.mapped_host), or it is more than caps.max_alloc_bytes; SL_ERR_NOMEM: the system refuses to
 * lock so much memory. */
enum sl_status sl_device_map_host(struct sl_device *d, void *host, size_t bytes,
                                  struct sl_buffer **out_buffer) SL_MUST_CHECK;
/* Waits for what is enqueued; nulls *buffer; NULL is allowed. */
void sl_device_unmap_host(struct sl_device *d, struct sl_buffer **buffer);
/* Enqueues a copy; both spans have the same length. From a MAPPED buffer up, down to one, or within
 * the device, but not from host memory to host memory. Both sides are borrowed until the copy has
 * run. */
enum sl_status sl_device_copy(struct sl_device *d, enum sl_queue q, struct sl_span dst,
                              struct sl_span src) SL_MUST_CHECK;

#define SL_MAILBOX_MAX_BYTES 2048u

#define SL_COPY_ROWS_MAX 128u
/* Enqueues on OPS copies of n rows, at most SL_COPY_ROWS_MAX, of row_bytes each, from a MAPPED
 * buffer: row rows[i] of src becomes row rows[i] of dst. rows: read at once. */
enum sl_status sl_device_copy_rows(struct sl_device *d, struct sl_span dst, struct sl_span src,
                                   size_t row_bytes, const uint32_t *rows,
                                   uint32_t n) SL_MUST_CHECK;

/* Points are kept in a ring: with SL_QUEUE_POINTS open, marking waits for the oldest one. */
#define SL_QUEUE_POINTS 256u
enum sl_status sl_device_mark(struct sl_device *d, enum sl_queue q,
                              sl_point *out_point) SL_MUST_CHECK;
/* SL_AGAIN: not yet. Never blocks. */
enum sl_status sl_device_passed(struct sl_device *d, enum sl_queue q, sl_point point) SL_MUST_CHECK;
enum sl_status sl_device_await(struct sl_device *d, enum sl_queue q, sl_point point) SL_MUST_CHECK;
/* Whatever is enqueued on q from now on runs after that point of the other queue. */
enum sl_status sl_device_after(struct sl_device *d, enum sl_queue q, enum sl_queue other,
                               sl_point point) SL_MUST_CHECK;

/* Graphs (caps.graphs): ops, and copies on OPS, that are submitted between record and recorded are
 * kept and not run; replay enqueues them on OPS again. Several ops in a row may be done by fewer
 * calls (caps.fused_ops). Argument structs are kept as they were; what their pointers point to is
 * read anew by every replay, so sl_op_moe needs device_refs. In between, nothing else may be called
 * on OPS, and nothing allocated. out_graph NULL drops what was recorded. A configure() invalidates
 * graphs. The bits are those of the same ops submitted one by one. */
enum sl_status sl_device_record(struct sl_device *d) SL_MUST_CHECK;
enum sl_status sl_device_recorded(struct sl_device *d, struct sl_graph **out_graph) SL_MUST_CHECK;
enum sl_status sl_device_replay(struct sl_device *d, struct sl_graph *graph) SL_MUST_CHECK;
/* Waits for its replays; frees and nulls *graph; NULL is allowed. */
void sl_graph_free(struct sl_device *d, struct sl_graph **graph);

/* Counts what recorded ops became, by kind of section, such as a kind of layer: for -v, which shows
 * when a fused form is no longer found. What is recorded after the call belongs to that kind, until
 * the next call. begins: a new section of that kind, not the rest of one. Does nothing while
 * nothing is recorded. */
#define SL_TALLY_KIND_BYTES 64u
struct sl_tally {
    char kind[SL_TALLY_KIND_BYTES];
    uint32_t n; /* sections */
    uint32_t n_ops, n_calls;
    uint64_t n_kernels; /* 0: the backend does not count them */
};
#define SL_MAX_TALLIES 8u
void sl_device_section(struct sl_device *d, const char *kind, bool begins);
/* The counts since the last log, by kind; valid until the next call on the device. */
const struct sl_tally *sl_device_tallies(const struct sl_device *d, uint32_t *out_n);
/* Logs the counts at debug level, one line per kind, after `what`, and resets them. */
void sl_device_log_recorded(struct sl_device *d, const char *what);

/* ---- several devices ----
 *
 * Each device has its own owner, a thread; these calls let one device take what another has
 * computed without either thread waiting for the other's queue. Each call first takes the device
 * whose owner makes it, and touches nothing of the other device that its owner's calls change, so
 * both may be working. Devices must be of one backend: otherwise SL_ERR_UNSUPPORTED, without
 * effect. Not while ops are recorded. */

/* Before the first copy: lets d read other's memory, directly if the hardware can, otherwise
 * through the driver's own buffers. Neither device is in use meanwhile. SL_ERR_UNSUPPORTED: there
 * is no way, as between devices of different backends; go through host memory. */
enum sl_status sl_device_peer_open(struct sl_device *d, struct sl_device *other) SL_MUST_CHECK;
/* Enqueues on d's OPS a copy out of a buffer of other's, of kind DEVICE, into one of d's own. It
 * does not wait by itself: d must have followed what computes src. Both sides are borrowed until it
 * has run. */
enum sl_status sl_device_copy_from(struct sl_device *d, struct sl_span dst, struct sl_device *other,
                                   struct sl_span src) SL_MUST_CHECK;
/* After peer_open: whether d's ops write to other's memory themselves, so that sl_op_send on d and
 * sl_op_receive on other work. Never if both are one GPU: what waits there could block what it
 * waits for. */
bool sl_device_reaches(const struct sl_device *d, const struct sl_device *other);
/* Are both one piece of hardware, opened twice? Any thread. */
bool sl_device_is_same(const struct sl_device *d, const struct sl_device *other);

/* A signal is raised by the device that created it, once everything on its OPS by then has run; it
 * may be raised any number of times. What other devices enqueue on OPS after they follow it runs
 * after the latest raise that happened before the call (a signal never raised delays nobody).
 * Whoever raises must synchronise with whoever follows, by a lock or an atomic, and must not raise
 * again before the other has followed. Only create allocates. SL_ERR_UNSUPPORTED: the driver
 * cannot; SL_ERR_NOMEM: also if a device has 64 of them. */
enum sl_status sl_signal_create(struct sl_device *d, struct sl_signal **out_signal) SL_MUST_CHECK;
/* Frees and nulls *signal; NULL is allowed. d: the device that created it. Nobody may wait for it
 * any more: what was enqueued behind it has run, or its device is lost. */
void sl_signal_free(struct sl_device *d, struct sl_signal **signal);
enum sl_status sl_signal_raise(struct sl_device *d, struct sl_signal *signal) SL_MUST_CHECK;
/* maker: the device that created it. */
enum sl_status sl_signal_follow(struct sl_device *d, struct sl_device *maker,
                                struct sl_signal *signal) SL_MUST_CHECK;
/* The latest raise will not come, since its device failed: those who follow go on, with whatever
 * data is there. Called by the owner that raised it; touches no device. maker: the device that
 * created it. */
void sl_signal_release(const struct sl_device *maker, struct sl_signal *signal);
/* What d, which created the signal, enqueues on OPS from now on waits until sl_signal_release(),
 * from any thread that synchronises with this one: for data that the host has not got yet. Nobody
 * raises or follows such a signal, and it is held again only after it was released. Until then
 * nothing that waits for d's queue may be called, unless another thread is sure to release it.
 * SL_ERR_UNSUPPORTED: its queues cannot; then nothing waits. */
enum sl_status sl_signal_hold(struct sl_device *d, struct sl_signal *signal) SL_MUST_CHECK;

/* A relay: large copies of SL_QUEUE_UP from mapped memory may reach d partly over the host's link
 * to `other`, and from there over a faster one between the two, while *busy, other's own work, is
 * false: borrowed until close, read at each copy. Takes SL_RELAY_BYTES of other's memory. Neither
 * device is in use meanwhile; one relay per device. SL_ERR_UNSUPPORTED: there is no faster link, or
 * there are no signals.
 *
 * A failure of `other` blocks nobody: whoever waits for d goes on with what has arrived, and gets
 * SL_ERR_DEVICE_LOST. From then on d accepts no work, as if lost; it still waits and frees. */
#define SL_RELAY_BYTES ((size_t)2 << 20)
enum sl_status sl_device_relay_open(struct sl_device *d, struct sl_device *other,
                                    const atomic_bool *busy) SL_MUST_CHECK;
/* Ends the relay: nothing is in flight when it returns, whichever device has failed. Allowed
 * without a relay. */
void sl_device_relay_end(struct sl_device *d);
/* Frees what the relay took, before either device is closed; allowed without one. If there are
 * several relays, end all of them first: freeing waits for whatever is enqueued on a device,
 * including the work of another relay, which may be waiting for a device that failed. */
void sl_device_relay_close(struct sl_device *d);
/* Is a SL_ERR_DEVICE_LOST of d the other device's? Any thread. */
bool sl_device_relay_lost(const struct sl_device *d);

/* Does it have the op at all? */
bool sl_device_has_op(const struct sl_device *d, enum sl_op op);
/* Before anything is loaded: whether it has the op for such arguments. SL_ERR_UNSUPPORTED, with a
 * text that says which device lacks which op for what. */
enum sl_status sl_device_need(const struct sl_device *d, const struct sl_op_need *need,
                              struct sl_err *err) SL_MUST_CHECK;

/* sl_op_embed() and so on. SL_ERR_UNSUPPORTED: the device lacks it, or lacks it for such
 * arguments. */
#define SL_OP(name)                                                                                \
    enum sl_status sl_op_##name(struct sl_device *d, const struct sl_op_##name *a) SL_MUST_CHECK;
#include "backends/ops.def"

#endif
