/* What layers work on and with: bound weights and the activation buffers; the ops that all kinds of
 * layer use; what goes between the host and the device meanwhile. */
#ifndef SL_ENGINE_PASS_INTERNAL_H
#define SL_ENGINE_PASS_INTERNAL_H

#include "backends/ops/moe.h"
#include "backends/ops/recurrent.h"
#include "backends/ops/streams.h"
#include "backends/ops/weight.h"
#include "engine/experts/expert_fetch.h"
#include "engine/pass/pass.h"
#include "engine/seq/kv_data.h"
#include "engine/step/step.h"
#include "engine/tables/table_store.h"
#include "engine/trace/timeline.h"
#include "engine/trace/route_recorder.h"
#include "engine/types/plan.h"
#include "engine/weights/weights.h"
#include "streaming/slab.h"

#include <stdatomic.h>

struct sl_mixer;
struct sl_ffn;

/* One layer's weights as device addresses; data == NULL / pointer NULL = the layer has none. */
struct sl_layer_weights {
    const struct sl_layer_spec *spec;
    const struct sl_mixer *mixer;
    const struct sl_ffn *ffn;
    const float *attn_norm, *ffn_norm, *attn_norm_bias, *ffn_norm_bias;
    struct sl_weight q, k, v, out;
    struct sl_weight joint, z, alpha, beta; /* delta net: q, k and v in one; the output's gate */
    const float *conv, *conv_bias, *decay, *dt, *z_norm, *skip;
    struct sl_weight gamma, dt_out; /* Mamba-1: c; from the low rank to time steps */
    const float *dt_norm, *b_norm, *c_norm;
    /* Kimi Delta Attention: decays by way of a low rank, as the output's gate (z_low, z) */
    struct sl_weight decay_low, decay_up, z_low;
    const float *conv_k, *conv_v;          /* conv: of q */
    struct sl_weight out_group;            /* compressed attention; and of blocks: */
    struct sl_weight block_kv, block_gate; /* (index_k and index_gate: of their keys) */
    const float *block_place, *block_norm, *index_place;
    struct sl_weight index_gate;
    struct sl_streams {
        struct sl_weight fn;
        const float *base, *scale;
        /* Residual attention: what scores streams, and how many it has kept by then; which stream
         * keeps the residual one when the part is added, 0: none. */
        const float *score;
        uint32_t n_kept, keep_in;
        const float *norm; /* by way of a low rank; fn is then what is written by */
        struct sl_weight down, up;
    } streams[2]; /* hyper-connections, residual attention: of the mixer, the feed-forward part */
    struct sl_weight ngram_key, ngram_value; /* embeddings of n-grams */
    const float *ngram_key_norm, *ngram_query_norm, *ngram_conv_norm, *ngram_conv;
    const int32_t *router_table;
    struct sl_weight q_a, kv_a, k_b, v_b; /* latent attention */
    const float *q_a_norm, *kv_a_norm;
    struct sl_weight index_q, index_k, index_w; /* its indexer */
    const float *index_norm, *index_bias, *index_q_norm;
    const float *q_bias, *k_bias, *v_bias, *out_bias;
    const float *q_norm, *k_norm, *sinks;
    struct sl_weight gate, up, down; /* dense FFN */
    struct sl_weight router;
    const float *router_bias, *router_logit_bias;
    const float *gate_bias, *up_bias, *down_bias; /* of all experts */
    enum sl_dtype expert_gate, expert_up, expert_down;
    const struct sl_expert_ref *experts; /* [n_expert], host memory; NULL: they are streamed */
    uint32_t routed_layer;               /* SL_NO_ROUTED_LAYER: a dense FFN */
    uint64_t expert_bytes;
    bool lane;                                  /* the CPU lane may compute its experts */
    const float *lane_bias[SL_EXPERT_MATRICES]; /* in host memory; NULL: none */
    struct sl_weight shared_gate, shared_up, shared_down, shared_router;
    struct sl_weight latent_down, latent_up; /* experts' rows */
    const struct sl_expert_ref *adjugate;    /* [n], host memory; NULL: none */
    enum sl_dtype adjugate_gate, adjugate_up, adjugate_down;
    const float *attn_post_norm, *ffn_post_norm, *shared_post_norm, *experts_post_norm;
    const float *experts_norm, *router_norm; /* of their inputs, where not ffn_norm */
    const float *expert_scale;               /* [n_expert] */
    const float *scale;                      /* [1] of what the layer gives */
    struct sl_weight attn_gate;              /* of what attention gives */
    struct sl_weight embd_gate, embd_proj;   /* where layers have embeddings */
    const float *embd_norm;
    /* Of a draft layer: its embedding and output matrix, or the model's. */
    struct sl_weight draft_join, draft_embd, draft_output;
    const float *draft_embd_norm, *draft_state_norm, *draft_norm;
};

/* Device buffers, f32 unless said otherwise. B = batch rows, L = logit rows. */
struct sl_activations {
    float *x;         /* [B, row] residual stream, sl_row_elems() a row */
    float *sent;      /* [micro-batches, B, row] what a slice without output gave, step by step */
    float *received;  /* [micro-batches, SL_FORWARD_MAX_SENT, row] what the slice before sends */
    uint32_t *raised; /* [micro-batches] the last sequence number received: sl_op_receive */
    float *h;         /* [B, n_embd] normed input of a block */
    /* Of hyper-connections; nothing where there are none: rows normed as a whole; the weights of
     * their streams, of rows that go on to the logits too. */
    float *streams_h, *stream_w, *out_stream_w;
    float *stream_x; /* what a part reads of a row that has streams; nothing where none has */
    /* The same of a low rank: [B, stream_rank], and the gates of all elements [B, row]. */
    float *stream_low, *stream_gate;
    /* What compressed attention adds to gates by place, and convolutions of n-grams, of all layers
     * that have it in a type of weights: as floats. */
    float *places;
    uint8_t *table_rows[SL_TABLES]; /* [B, a token's bytes] of streamed tables, the step's */
    uint32_t *table_ids;            /* [B, most rows of a token] which of them: 0, 1, ... */
    uint32_t *ngram_rows; /* [B, ngram.n_head] rows of n-grams; nothing where they are streamed */
    float *layer_embd;    /* [B, struct sl_forward's embd_layers, n_embd_layer] */
    float *layer_made;    /* the same, while they are made */
    float *early_h;       /* the same of experts.early; nothing where no layer has it */
    float *latent;        /* [B, experts.n_latent] what experts read, then their sum */
    /* [B, widths that suit every layer: struct sl_layer_needs] */
    float *joint; /* products that belong together: heads' queries and gates; what a delta net's
                     convolution reads; queries of latents */
    float *q, *k, *v;
    float *mixed; /* what a mixer gives before its output matrix */
    float *gate, *up;
    float *shared_y;         /* [B, n_embd] */
    float *shared_weight;    /* [B] */
    float *router;           /* [B, n_expert] */
    float *weights;          /* [B, k] */
    float *adjugate_weights; /* [B, k], where a layer has such experts; and */
    uint32_t *adjugate_ids;
    float *next_h;       /* [A, n_embd] input of the next layer's router, run early, of A rows */
    float *next_router;  /* [A, n_expert] */
    float *next_weights; /* [A, k] */
    float *pair_y;       /* [B * k, n_embd] */
    float *out_x;        /* [L, row] the rows that go on to the logits */
    float *out_mixed;    /* [L, as mixed] */
    /* Of draft layers; nothing where there are none. */
    float *draft_states;  /* [B + 1, n_embd] normed states of rows; the last is 0 */
    float *draft_in;      /* [B, 2 n_embd] a token's embedding, then the state before it, normed */
    uint32_t *draft_from; /* [B] which state */
    float *blocks; /* 3 x [L, blocks of n_vocab], where logits are read back: of n rows, right
                      before these, the blocks' maxima, before them where they are, and before
                      that their sums, so that one copy brings what is needed */
    float *logits; /* [L, n_vocab]; where the host can read them [micro-batches, L, n_vocab] */
    float *rope_table[SL_MAX_ROPES]; /* [B, n_rot/2, 2] */
    float *inv_freq[SL_MAX_ROPES];   /* [n_rot/2] */
    /* [B, k]; where results are read back [n_layer, rows of the step, k]. */
    uint32_t *expert_ids;
    uint32_t *chosen; /* [B, positions] what the last indexer chose, of the largest of them */
    struct sl_expert_ref *refs; /* [n_layer, n_expert], only where results are read back; and */
    struct sl_expert_ref *adjugate_refs; /* those of struct sl_forward */
    uint32_t *next_ids;                  /* [SL_FETCH_PREDICTIONS] x [rows, k] */
    uint32_t *step_arrays;               /* of a step: sl_forward_step_rows(), L */
    uint32_t *page_table;                /* [parallel, session_pages] */
    uint32_t *tail_table;                /* the same, of tail pages; nothing where there are none */
};

/* Blocks of n rows of logits. */
static inline size_t sl_forward_blocks(const struct sl_hparams *hp, uint32_t n) {
    return (size_t)n * SL_VOCAB_BLOCKS(hp->n_vocab);
}

/* Generated rows of a step at most that is kept as a graph. */
#define SL_FORWARD_GRAPHS 64u
/* ... and whose rows are handed on by ops. */
#define SL_FORWARD_MAX_SENT 16u

/* Rows that the device's tables have room for in a step of n: as many in all that are graphs, which
 * have the tables' addresses. */
static inline uint32_t sl_forward_step_rows(uint32_t n) {
    return (n + SL_FORWARD_GRAPHS - 1) / SL_FORWARD_GRAPHS * SL_FORWARD_GRAPHS;
}

struct sl_forward {
    const struct sl_hparams *hp;
    const struct sl_memory_plan *plan;
    struct sl_device *dev;
    const struct sl_kv_data *kv;
    struct sl_layer_weights *layers;     /* [n_layer] */
    struct sl_timeline *timeline;        /* NULL: no trace */
    struct sl_fetch *fetch;              /* NULL: all experts are resident */
    struct sl_expert_ref *refs;          /* all layers' resident experts */
    struct sl_expert_ref *adjugate_refs; /* all layers' adjugate ones; NULL: none */
    struct sl_weight embd, output;       /* without data in a slice that lacks them */
    /* Where layers have embeddings: which layers' it keeps, of the whole model's; what they are
     * made of; the tokens' embeddings, in a slice whose rows do not begin with them. */
    struct sl_kept_layers embd_layers;
    struct sl_weight layer_embd, layer_proj, layer_tokens;
    const float *layer_proj_norm;
    const float *output_norm, *output_norm_bias, *output_bias;
    struct sl_streams output_streams;
    struct sl_weight ngrams;
    uint32_t *ngram_rows; /* [B, ngram.n_head] of the step; NULL: no layer has n-grams */
    struct sl_table_store *table_store; /* NULL: none is streamed */
    /* Where their rows arrive, [B, row's bytes]: a.table_rows where the host reaches that. */
    uint8_t *arriving[SL_TABLES];
    uint8_t *arriving_own;            /* memory of these, where it does not */
    struct sl_route_recorder *routes; /* NULL = none */
    struct sl_buffer *arena;          /* all that is in a */
    size_t arena_bytes;
    struct sl_activations a;
    float rope_mscale[SL_MAX_ROPES];
    struct sl_step step;      /* the one that is being run; its arrays are the caller's */
    struct sl_step on_device; /* its arrays alone: their copies in a.step_arrays */
    uint32_t *step_arrays;    /* as they go there */
    uint64_t n_experts;       /* routed experts that it computes, each once a layer */
    float *logits;            /* its, where they are computed; NULL: none */
    /* As on the device, but for what is still to be written; tails: empty where there are none. */
    struct sl_page_table pages, tails;
    uint8_t *row_failed; /* [B] of the step: its expert could not be read */
    uint8_t *out_failed; /* [L] the same of the rows that go on to the logits */
    /* Where the host cannot follow device addresses: pinned, what is read back. NULL otherwise. */
    struct sl_slab pinned;
    struct sl_buffer *mapped; /* the same as the device knows it */
    float *host_logits;       /* [micro-batches] x blocks and logits, each rounded up to 64 bytes */
    uint32_t *host_ids;       /* [n_layer, B, k], as expert_ids */
    uint32_t *host_prediction; /* [n_layer, SL_FETCH_PREDICTIONS, A, k] what early routers chose in
                                  each */
    /* For experts that the host computes alongside the device (engine/lane/cpu_lane.h); NULL: it
     * computes none. */
    float *host_x;      /* [SL_LANE_ROWS, n_embd] a layer's rows as its experts read them */
    void *lane_biases;  /* of all layers */
    float *host_pair_y; /* [SL_LANE_ROWS * k, n_embd] */
    float *host_sent;   /* as sent, if the next slice reads it from host memory; else NULL */
    float *host_come;   /* likewise, what the slice before sends from another process; else NULL */
    _Atomic uint32_t *host_released; /* [micro-batches] sequence numbers that will not arrive */
    const uint32_t *released;        /* the same as the device sees it */
    struct sl_forward *next;         /* the slice that it hands rows to by ops; NULL: it does not */
    uint32_t seqno[SL_MAX_STAGES];   /* by micro-batch: the last that it sent */
    /* All experts are where the device computes, so that no layer waits for what routers chose:
     * decided anew for each step. */
    bool resident;
    uint32_t refs_version; /* of the tiers, when a.refs was written; 0: never */
    /* Of steps of [i + 1] generated rows: [n_layer + 1] parts, each up to where the host must know
     * what a router chose; where all experts are resident, one whole. NULL: none yet. */
    struct sl_graph **graphs[2][SL_FORWARD_GRAPHS];   /* [1]: whose rows come to the CPU lane */
    bool graphs_whole;                                /* of which kind they are */
    uint32_t graphs_prediction[2][SL_FORWARD_GRAPHS]; /* ... and, by rows, with how many early
                                                         routers */
    uint32_t prediction;  /* routers that each of the step's parts runs early */
    uint32_t predicted;   /* the layer whose predictions have been followed */
    bool no_graphs;       /* the device has no room for them */
    bool lane_rests;      /* the step is one that the CPU lane takes no part in */
    uint32_t *draft_from; /* [B] as it goes to the device; NULL: no draft layer */
    uint32_t n_states;    /* rows of the last run that are in a.x */
};

/* Where in the step an op failed. */
struct sl_place {
    struct sl_err *err;
    uint32_t layer;       /* UINT32_MAX outside the layers */
    uint32_t first_layer; /* of the slice */
    const struct sl_abort *give_up;
};

/* The rows that a block works on: all of the step's, or in the last layer those that go on. */
struct sl_rows {
    float *x;
    uint32_t n, n_decode;
    const uint32_t *of_step; /* [n] which of the step's rows they are; NULL = all */
    uint8_t *failed;         /* [n] */
};

/* Of activations, from the host's memory. */
static inline enum sl_status sl_forward_upload(struct sl_forward *f, void *dst, const void *src,
                                               size_t bytes) {
    return sl_device_upload(f->dev, sl_span_at(f->arena, dst, bytes), src);
}
/* Enqueues a copy of activations on OPS to pinned memory. */
static inline enum sl_status sl_forward_copy_back(struct sl_forward *f, void *host, const void *src,
                                                  size_t bytes) {
    return sl_device_copy(f->dev, SL_QUEUE_OPS, sl_span_at_host(f->mapped, host, bytes),
                          sl_span_at(f->arena, src, bytes));
}

/* Of one micro-batch of what comes from the slice before. */
static inline uint32_t sl_forward_received_elems(const struct sl_hparams *hp) {
    return SL_FORWARD_MAX_SENT * sl_row_elems(hp);
}

/* Where the experts of a layer find their rows. */
static inline const float *sl_forward_expert_rows(const struct sl_forward *f, uint32_t layer) {
    const struct sl_experts_spec *x = &f->layers[layer].spec->experts;
    return x->n_latent ? f->a.latent : x->early ? f->a.early_h : f->a.h;
}

/* Is this a step of few generated rows, as many at most, and nothing else? */
static inline bool sl_forward_is_few(const struct sl_step *s, uint32_t most) {
    return !s->keep_all && s->n_rows <= most && s->n_decode == s->n_rows && s->n_out == s->n_rows;
}

/* In the last layer of the model only the rows that go on to the logits pass the attention output
 * and the FFN; unless it has a draft layer, which reads all of them. Is this layer cut
 * so? */
static inline bool sl_forward_cuts(const struct sl_forward *f, uint32_t layer) {
    const struct sl_step *s = &f->step;
    return f->output.data && layer + 1 == f->hp->n_layer && !f->hp->n_draft && !s->keep_all &&
           s->n_out < s->n_rows;
}

enum sl_status sl_forward_at(const struct sl_place *where, const char *op, enum sl_status status);
/* In a function with `where`: returns the op's failure, with its place. */
#define SL_FORWARD_TRY(op, call) SL_TRY(sl_forward_at(where, op, call))

/* pass_ops.c: what the ops read of f->step. */
enum sl_status sl_forward_upload_step(struct sl_forward *f) SL_MUST_CHECK;
/* Which rows of a table the step's tokens have. */
static inline const uint32_t *sl_forward_rows_of(const struct sl_forward *f, enum sl_table_id id) {
    if (f->plan->streamed_tables >> id & 1)
        return f->a.table_ids;
    return id == SL_TABLE_NGRAMS ? f->a.ngram_rows : f->on_device.ids;
}
/* Weights of a row's streams (struct sl_activations). */
static inline uint32_t sl_forward_stream_weights(const struct sl_hparams *hp) {
    return hp->stream_rank ? hp->n_stream : SL_STREAM_WEIGHTS(hp->n_stream);
}

/* A part of a store that each row replaces, as ops take it. */
struct sl_state_view sl_forward_state(const struct sl_forward *f, const struct sl_kv_part *part);
enum sl_status sl_forward_norm(struct sl_forward *f, const float *x, const float *w, float *y,
                               uint32_t n_rows, uint32_t n) SL_MUST_CHECK;
/* The same of whole rows of n_embd, which may be layer norms; bias NULL: none. */
enum sl_status sl_forward_row_norm(struct sl_forward *f, const float *x, const float *w,
                                   const float *bias, float *y, uint32_t n_rows) SL_MUST_CHECK;
/* Adds y [r->n, n_embd], normed by w in place (w NULL: as it is), to r->x, which has one stream. */
enum sl_status sl_forward_add_normed(struct sl_forward *f, const struct sl_rows *r, float *y,
                                     const float *w, const struct sl_place *where) SL_MUST_CHECK;
/* The end of a layer, when the feed-forward part has been added. */
enum sl_status sl_forward_end_layer(struct sl_forward *f, const struct sl_rows *r,
                                    const struct sl_place *where) SL_MUST_CHECK;
/* Does the feed-forward part go to h and through a norm before it is added? */
static inline bool sl_forward_is_separate(const struct sl_layer_weights *w) {
    return w->ffn_post_norm || w->shared_post_norm || w->experts_post_norm || w->adjugate ||
           w->spec->experts.sum_scale > 0 || w->streams[1].fn.data || w->streams[1].score;
}
/* act(gate) * up of n elements, into gate, as dense and shared parts of the layer do it; of those
 * without a gate up's product is in gate. */
enum sl_status sl_forward_glu(struct sl_forward *f, const struct sl_layer_spec *spec,
                              size_t n) SL_MUST_CHECK;
static inline enum sl_op sl_glu_op(const struct sl_layer_spec *spec) {
    return spec->relu_squared             ? SL_OP_relu_squared
           : spec->situ                   ? SL_OP_situ_glu
           : spec->clamped                ? SL_OP_clamped_glu
           : spec->gelu                   ? SL_OP_gelu_mul
           : spec->cut && spec->limit > 0 ? SL_OP_cut_glu
           : spec->limit > 0              ? SL_OP_limited_glu
                                          : SL_OP_silu_mul;
}
/* Within a mixer, in a layer that is cut: r becomes the rows that go on, and *mixed [r->n, n], what
 * the mixer has computed for all of the step's, theirs; NULL: there is no mixer. */
enum sl_status sl_forward_cut(struct sl_forward *f, struct sl_rows *r, const float **mixed,
                              uint32_t n, const struct sl_place *where) SL_MUST_CHECK;

/* How many of `most` predictions (sl_fetch_prediction_ahead) a layer can make (sl_forward_predict):
 * up to the first layer that has no router. */
uint32_t sl_forward_can_predict(const struct sl_forward *f, uint32_t layer, uint32_t most);
/* Ids a row that the first n predictions of a layer choose. */
uint32_t sl_forward_predicted_ids(const struct sl_forward *f, uint32_t layer, uint32_t n);

/* pass_device.c: decides f->resident, and sees to it that a.refs says where experts are. */
enum sl_status sl_forward_place(struct sl_forward *f) SL_MUST_CHECK;
/* Can the step be kept as a graph and be replayed? */
bool sl_forward_wants_graph(const struct sl_forward *f);

/* pass_device.c: where the router of a layer puts what it chooses in this step. */
uint32_t *sl_forward_ids(const struct sl_forward *f, uint32_t layer);
/* Waits for the ids of a layer's n rows and gives them in host memory. */
enum sl_status sl_forward_read_ids(struct sl_forward *f, uint32_t layer, uint32_t n,
                                   const uint32_t **out_ids) SL_MUST_CHECK;
/* The parts of it: before the copy is enqueued, be it in a graph; enqueues it; waits, and looks
 * whether the ids are sound. */
void sl_forward_expect_ids(struct sl_forward *f, uint32_t layer, uint32_t n);
enum sl_status sl_forward_send_ids(struct sl_forward *f, uint32_t layer, uint32_t n) SL_MUST_CHECK;
enum sl_status sl_forward_await_ids(struct sl_forward *f, uint32_t layer, uint32_t n,
                                    const uint32_t **out_ids) SL_MUST_CHECK;
/* pass_lane.c: copies biases from the device; nothing to do without a lane. */
enum sl_status sl_forward_lane_init(struct sl_forward *f, const struct sl_model *model,
                                    const struct sl_weights *weights,
                                    struct sl_err *err) SL_MUST_CHECK;
/* Are the experts' rows of the layer wanted by the host? Enqueues the copy if they are; after the
 * router, before its ids are sent. Then gives the lane what it needs of the layer, which has begun.
 */
enum sl_status sl_forward_send_rows(struct sl_forward *f, uint32_t layer,
                                    const struct sl_rows *r) SL_MUST_CHECK;
void sl_forward_feed_lane(struct sl_forward *f, uint32_t layer, const struct sl_rows *r);
/* The same for what early routers chose in a layer: before they are enqueued; enqueues the copy;
 * reads what has come, if it has soon, and has it fetched, once a layer. */
void sl_forward_expect_prediction(struct sl_forward *f, uint32_t layer, uint32_t n);
enum sl_status sl_forward_send_prediction(struct sl_forward *f, uint32_t layer,
                                          uint32_t n) SL_MUST_CHECK;
void sl_forward_follow_prediction(struct sl_forward *f, uint32_t layer, uint32_t n);
/* Counts, and records if that was asked for, which experts the n rows of a layer chose; of_step
 * [n]: which of the step's rows they are, NULL = all; ids [n, k] in host memory. */
void sl_forward_count_routes(struct sl_forward *f, uint32_t layer, uint32_t n,
                             const uint32_t *of_step, const uint32_t *ids);
/* Are the blocks of the step's logits looked at where the logits are? Not for scoring, which needs
 * all of them, nor where the host computes. */
static inline bool sl_forward_has_blocks(const struct sl_forward *f) {
    return f->plan->reads_back && !f->step.keep_all;
}
/* The end of a step: waits, and gives the n rows of logits (NULL = none are wanted) where the host
 * can read and write them. routes: also what the routers chose, unless it has been counted. */
enum sl_status sl_forward_read_back(struct sl_forward *f, bool routes, float *logits, uint32_t n,
                                    struct sl_logits *out_logits) SL_MUST_CHECK;
/* Rows of the width of a hidden state, of the stage's step; waits. */
enum sl_status sl_forward_read_hidden(struct sl_forward *f, const float *h, uint32_t n,
                                      const float **out_rows) SL_MUST_CHECK;
/* Allocates the pinned block. send_by_host: with room for the rows that are sent. */
enum sl_status sl_forward_map_host(struct sl_forward *f, bool send_by_host,
                                   struct sl_err *err) SL_MUST_CHECK;
void sl_forward_unmap_host(struct sl_forward *f);
/* bind.c, for the kinds: where a tensor lies; a matrix, a vector that ops take as plain floats (t
 * NULL: the layer has none). What the device lacks or is misplaced sets b->status, and is named. */
struct sl_binder {
    const struct sl_weights *weights;
    const struct sl_device *dev;
    struct sl_err *err;
    enum sl_status status;          /* of the first thing that failed */
    struct sl_expert_ref *refs;     /* [n_expert] of the layer; NULL: they are streamed */
    struct sl_expert_ref *adjugate; /* of the layer, room for its adjugate experts */
};
const void *sl_bind_address(struct sl_binder *b, const struct sl_gguf_tensor *t);
const float *sl_bind_vector(struct sl_binder *b, const struct sl_gguf_tensor *t);
struct sl_weight sl_bind_matrix(struct sl_binder *b, const struct sl_gguf_tensor *t);
/* n rows of a matrix, from the first-th on. */
struct sl_weight sl_bind_rows(struct sl_binder *b, const struct sl_gguf_tensor *t, uint32_t first,
                              uint32_t n);
bool sl_bind_type(struct sl_binder *b, const struct sl_gguf_tensor *t);

#endif
