/* Inside the layer loop: bound weights and the activation buffers. */
#ifndef SL_ENGINE_FORWARD_INTERNAL_H
#define SL_ENGINE_FORWARD_INTERNAL_H

#include "engine/expert_fetch.h"
#include "engine/forward.h"
#include "engine/route_recorder.h"

/* One layer's weights as device addresses; data == NULL / pointer NULL = the layer has none. */
struct sl_layer_weights {
    const float *attn_norm, *ffn_norm;
    struct sl_weight q, k, v, out;
    const float *q_bias, *k_bias, *v_bias, *out_bias;
    const float *q_norm, *k_norm;
    bool q_norm_row, k_norm_row;     /* over the whole row, not per head */
    struct sl_weight gate, up, down; /* dense FFN */
    struct sl_weight router;
    const float *router_bias;
    enum sl_dtype expert_gate, expert_up, expert_down;
    const struct sl_expert_ref *experts; /* [n_expert], host memory; NULL: they are streamed */
    uint32_t routed_layer;               /* SL_NO_ROUTED_LAYER: a dense FFN */
    uint64_t expert_bytes;
    struct sl_weight shared_gate, shared_up, shared_down, shared_router;
};

/* Device buffers, f32 unless said otherwise. B = batch rows, L = logit rows. */
struct sl_activations {
    float *x;             /* [B, n_embd] residual stream */
    float *h;             /* [B, n_embd] normed input of a block */
    float *q, *k, *v;     /* [B, heads * head_dim] */
    float *attn;          /* [B, n_head * head_dim_v] */
    float *gate, *up;     /* [B, max(n_ff, n_ff_shared)] */
    float *shared_y;      /* [B, n_embd] */
    float *shared_weight; /* [B] */
    float *router;        /* [B, n_expert] */
    float *weights;       /* [B, k] */
    float *next_h;        /* [A, n_embd] input of the next layer's router, run early, of A rows */
    float *next_router;   /* [A, n_expert] */
    float *next_weights;  /* [A, k] */
    float *pair_y;        /* [B * k, n_embd] */
    float *out_x;         /* [L, n_embd] the rows that go on to the logits */
    float *out_attn;      /* [L, n_head * head_dim_v] */
    float *logits;        /* [L, n_vocab] */
    float *rope_table;    /* [B, n_rot/2, 2] */
    float *inv_freq;      /* [n_rot/2] */
    uint32_t *expert_ids; /* [B, k] */
    uint32_t *next_ids;   /* [A, k] */
    uint32_t *tables;     /* ids, pos, slot, row_seq, row_len [B each], out_rows [L] */
    uint32_t *page_table; /* [parallel, session_pages] */
};

struct sl_forward {
    const struct sl_hparams *hp;
    const struct sl_memory_plan *plan;
    struct sl_device *dev;
    const struct sl_kv_pool *kv;
    struct sl_layer_weights *layers; /* [n_layer] */
    struct sl_timeline *timeline;    /* NULL: no trace */
    struct sl_fetch *fetch;          /* NULL: all experts are resident */
    struct sl_expert_ref *refs;      /* all layers' resident experts */
    struct sl_weight embd, output;
    const float *output_norm;
    struct sl_route_recorder *routes; /* NULL = none */
    void *arena;
    size_t arena_bytes;
    struct sl_activations a;
    float rope_mscale;
    struct sl_step step;      /* its arrays are in host_tables */
    struct sl_step on_device; /* its arrays alone: their copies in a.tables */
    uint32_t *host_tables;
    uint32_t *host_pages; /* [parallel, session_pages] */
    uint8_t *row_failed;  /* [B] of the step: its expert could not be read */
    uint8_t *out_failed;  /* [L] the same of the rows that go on to the logits */
    float *host_logits;   /* where the host cannot follow a.logits; otherwise NULL */
};

/* bind.c: fills layers, refs, embd, output, output_norm. */
enum sl_status sl_forward_bind(struct sl_forward *f, const struct sl_model *model,
                               const struct sl_weights *weights, struct sl_err *err) SL_MUST_CHECK;

#endif
