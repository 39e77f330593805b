/* What one layer computes: a mixer, which reads other positions of the sequence, then a
 * feed-forward part, each of a kind and with shapes of its own. A model is a list of these; they
 * are worked out once, when it is opened. */
#ifndef SL_MODEL_LAYER_SPEC_H
#define SL_MODEL_LAYER_SPEC_H

#include <stdbool.h>
#include <stdint.h>

enum sl_mixer_kind {
    SL_MIXER_ATTENTION,  /* grouped-query attention over keys and values of all positions */
    SL_MIXER_DELTA,      /* gated delta net: a state of fixed size in place of keys and values */
    SL_MIXER_LATENT,     /* latent attention: one low-rank row a position, shared by all heads */
    SL_MIXER_CONV,       /* a short convolution between gates: a few rows in place of keys */
    SL_MIXER_MAMBA,      /* Mamba-2: a state space with one decay a head */
    SL_MIXER_MAMBA1,     /* Mamba-1: a decay of each element */
    SL_MIXER_COMPRESSED, /* compressed attention: a window, and of what is before it a row for each
                            block of positions */
    SL_MIXER_KDA,        /* Kimi Delta Attention: a delta net with a decay of each key element */
    SL_MIXER_NONE,       /* none: the layer is its feed-forward part */
    SL_MIXER_KINDS
};
enum sl_ffn_kind {
    SL_FFN_DENSE,   /* SwiGLU */
    SL_FFN_EXPERTS, /* a router, routed experts, perhaps a shared one */
    SL_FFN_NONE,    /* none: the layer is its mixer */
    SL_FFN_KINDS
};

enum sl_qk_norm {
    SL_QK_NORM_NONE,
    SL_QK_NORM_HEAD, /* each head by itself */
    SL_QK_NORM_ROW,  /* over all heads of a row (OLMoE) */
};

/* Gates on attention's output that have a matrix of their own. */
enum sl_attention_gate { SL_GATE_NONE, SL_GATE_ELEMENT, SL_GATE_HEAD };

/* Zero = absent, unless it says otherwise. */
struct sl_attention_spec {
    uint32_t n_head, n_head_kv, head_dim_k, head_dim_v;
    uint32_t window; /* positions it reads, its own included; 0 = all */
    uint32_t rope;   /* which of hp.rope[] */
    float scale;     /* of q.k: 1/sqrt(head_dim_k) unless the file says otherwise */
    enum sl_qk_norm qk_norm;
    bool norm_after_rope; /* q and k are normed after the rotation, not before */
    bool sinks;           /* each head has a logit that takes part in its softmax's sum alone */
    bool v_norm;          /* values are normed by heads, without weights */
    bool v_of_k;          /* no matrix for values: they are what the keys' gives, before its norm */
    float softcap;        /* of the scores: c * tanh(score / c) */
    bool gated;           /* q's matrix gives each head's query, then its gate: the head's output is
                             multiplied by the gate's sigmoid */
    bool no_rope;         /* q and k are not rotated */
    bool qk_norm_plain;   /* q and k are normed by heads, without weights, after the rotation */
    uint32_t chunk; /* positions in chunks of so many, each seen from within alone; no window */
    uint32_t temper_span; /* queries grow by temper_scale * ln of the spans before them and 1 */
    float temper_scale;
    bool temper_ahead; /* ... counted from one position further on */
    enum sl_attention_gate gate;
    bool gate_softplus; /* it goes through a softplus, not a sigmoid */
    float clamp;        /* q, k and v are cut to -clamp .. clamp */
    float value_scale;  /* of what the heads give; 1 and 0 = none */
    float out_scale;    /* of what is added to the residual stream; 0 = none */
    uint32_t kv_back; /* it reads the keys and values of the layer so many before it; 0: its own */
    /* Sparse attention: positions are in blocks of index_block. The heads that share a KV head
     * attend to n_index_top blocks alone: the last n_index_local, and those for which an indexer,
     * with a head of index_dim elements for each KV head, has the highest scores. 0: to all. */
    uint32_t index_dim, index_block, n_index_top, n_index_local;
    /* Or: all heads attend to the n_pool_top complete blocks of `pool` positions for whose mean key
     * an indexer of n_pool_head heads of index_dim elements has the highest scores, and to the
     * positions behind the last complete block. 0: to all. */
    uint32_t pool, n_pool_head, n_pool_top;
};

struct sl_delta_spec {
    uint32_t n_head;   /* of values, each with a state [head_dim, head_dim] */
    uint32_t n_head_k; /* of queries and keys */
    uint32_t head_dim; /* of all of them */
    uint32_t n_taps;   /* positions that the convolution reads, its own included */
    bool grouped;      /* value head h reads key head h / (n_head / n_head_k), else h % n_head_k */
    bool gate_sigmoid; /* the output's gate goes through a sigmoid, not SiLU */
};

struct sl_conv_spec {
    uint32_t n;      /* channels: n_embd */
    uint32_t n_taps; /* positions that it reads, its own included */
};

struct sl_mamba_spec {
    uint32_t n_head, head_dim; /* each with a state [n_state, head_dim] */
    uint32_t n_group, n_state; /* what goes into states and comes out of them is shared by groups */
    uint32_t n_taps;           /* positions that the convolution reads, its own included */
    float out_scale;           /* of what is added to the residual stream; 0 = none */
};

struct sl_mamba1_spec {
    uint32_t n_inner;         /* channels, each with a state [n_state] */
    uint32_t n_state, n_rank; /* time steps come by way of so many elements */
    uint32_t n_taps;
};

struct sl_kda_spec {
    uint32_t n_head, head_dim; /* each with a state [head_dim, head_dim] */
    uint32_t n_taps;           /* positions that the convolutions read, each its own included */
    bool full;                 /* decays are one matrix, not two by way of head_dim elements */
    bool full_gate;            /* and so is the output's gate */
    bool flat;   /* by how much states decay is a vector in the file, not a matrix of one row */
    float bound; /* below 0: a decay's logarithm is a sigmoid's value times it; 0: a softplus's */
};

/* Of each position a row of n_latent elements is kept, from which every head's key and value are
 * projected, and n_rot elements of key that all heads share and RoPE turns. */
struct sl_latent_spec {
    uint32_t n_head;
    uint32_t n_lora_q; /* rank of q's projection; 0 = one matrix */
    uint32_t n_latent;
    uint32_t n_nope, n_rot; /* elements of a head's query, and so of its key */
    uint32_t head_dim_v;
    uint32_t rope; /* which of hp.rope[] */
    float scale;   /* of q.k */
    bool joined;   /* keys' and values' projections are one matrix, as in older files */
    bool no_rope;  /* the n_rot elements are not rotated */
    enum sl_attention_gate gate; /* on the heads' output, of which a sigmoid is taken */
    uint32_t temper_span;        /* as in sl_attention_spec */
    float temper_scale;
    uint32_t window; /* positions it reads, its own included; 0 = all */
    bool k_norm;     /* the elements of key that heads share are normed before they are rotated */
    /* Sparse attention: a row attends to the n_index_top positions for which an indexer of
     * n_index_head heads of index_dim elements has the highest scores. 0: to all of them. */
    uint32_t n_index_head, index_dim, n_index_top;
    bool index_neox;      /* the indexer's heads are rotated in pairs half of n_rot apart */
    uint32_t choice_back; /* it has no indexer, and attends to what the layer so many before it has
                             chosen; 0: its own choice */
};
/* Has it an indexer of its own? */
static inline bool sl_latent_chooses(const struct sl_latent_spec *c) {
    return c->n_index_top && !c->choice_back;
}

/* Of each position one row of head_dim elements is kept, which is key and value of all heads, for
 * as long as it is within the window; of each block of `ratio` positions one row that sums it up.
 */
struct sl_compressed_spec {
    uint32_t n_head, head_dim;
    uint32_t n_rot;    /* the last elements of a head, which are rotated, and back on the output */
    uint32_t n_lora_q; /* rank of q's projection */
    uint32_t n_group, n_lora_out; /* groups of heads, each with an output matrix of this rank */
    uint32_t window;              /* positions it reads, its own included */
    uint32_t rope, rope_back;     /* which of hp.rope[] */
    float scale;                  /* of q.k */
    uint32_t ratio; /* 0: no blocks are kept. Divides SL_KV_PAGE_TOKENS or is a multiple of it */
    bool overlap;   /* a block's row sums up the block before it too */
    /* A row attends to the n_index_top blocks for which an indexer of n_index_head heads of
     * index_dim elements has the highest scores. 0: to all. */
    uint32_t n_index_head, index_dim, n_index_top;
};
/* Elements that are kept of a position until its block is complete: values, and as many gates. */
static inline uint32_t sl_compressed_width(const struct sl_compressed_spec *c) {
    return !c->ratio ? 0 : c->overlap ? 2 * c->head_dim : c->head_dim;
}
/* The same for the indexer's keys. */
static inline uint32_t sl_compressed_index_width(const struct sl_compressed_spec *c) {
    return !c->n_index_top ? 0 : c->overlap ? 2 * c->index_dim : c->index_dim;
}

/* Before the layer, embeddings of n-grams (sl_ngram_spec) are added to its streams, by way of a
 * convolution over n_taps positions, `step` apart. n_taps 0: none are. */
struct sl_ngram_layer_spec {
    uint32_t n_taps, step;
    uint32_t n; /* channels: elements of all streams */
};

enum sl_router_kind {
    SL_ROUTER_KIND_SOFTMAX,
    SL_ROUTER_KIND_SIGMOID,
    SL_ROUTER_KIND_SQRT_SOFTPLUS, /* sl_op_softplus_router */
};

enum sl_expert_activation {
    SL_EXPERT_SWIGLU,
    SL_EXPERT_SWIGLU_CLAMPED, /* gpt-oss: gate at most 7, up -7 to 7 and plus 1, sigmoid(1.702 g) */
    SL_EXPERT_GEGLU,
    SL_EXPERT_SWIGLU_LIMITED, /* silu(gate) at most limit, up -limit to limit */
    SL_EXPERT_REGLU,
    SL_EXPERT_SWIGLU_CUT,   /* silu of gate at most limit; up -limit to limit */
    SL_EXPERT_RELU_SQUARED, /* of up: there is no gate */
    SL_EXPERT_SITU,         /* limit tanh(gate / limit) sigmoid(gate) times the same of up, by
                               limit_up, without a sigmoid; limit_up 0: times up */
};

struct sl_experts_spec {
    uint32_t n_expert;    /* routed experts */
    uint32_t n_used;      /* of these, how many the router chooses for each row */
    uint32_t n_ff;        /* width of a routed expert */
    uint32_t n_ff_shared; /* of the shared expert */
    uint32_t n_latent;    /* elements of the rows that routed experts read and give, which a matrix
                             makes of the layer's and another turns back; 0: the layer's own */
    enum sl_router_kind router_kind;
    bool router_softmax_topk; /* softmax over the chosen logits; or sigmoids of these */
    bool by_token;            /* a table says which experts a token has: SL_L_ROUTER_TABLE */
    bool router_normalize;    /* divide the k weights by their sum */
    float router_scale;       /* 1 = none */
    uint32_t n_group,
        n_group_used; /* the router chooses among that many of the groups; 0: no groups */
    enum sl_expert_activation activation;
    float limit;       /* of SL_EXPERT_SWIGLU_LIMITED, SL_EXPERT_SWIGLU_CUT and SL_EXPERT_SITU */
    float limit_up;    /* of SL_EXPERT_SITU */
    bool biases;       /* of gate, up and down of each expert */
    bool with_dense;   /* the shared expert is the layer's dense feed-forward part, under its names,
                          with norms of its own before and behind it, as the routed experts
                          have theirs */
    bool router_norm;  /* the router reads x normed by weights of its own */
    bool router_first; /* the router reads the layer's input, before attention, as it is */
    float router_logit_scale; /* of the router's logits */
    bool early;               /* router and routed experts read x as the layer began, normed by
                                 SL_L_EXPERTS_NORM; the dense part what attention gave */
    float sum_scale; /* of the routed and shared experts' sum, before it is added; 0 = none */
    /* Adjugate experts: a second set, of which each n_per_adjugate routed ones in a row share one.
     * They read the routed experts' sum, to which theirs is added, adjugate_scale times. n_ff:
     * their width; 0: there are none. */
    uint32_t n_ff_adjugate, n_per_adjugate;
    float adjugate_scale;
    bool weights_in; /* the weight is of the expert's input, not of its output; one expert a row */
};
/* How many adjugate experts there are. */
static inline uint32_t sl_experts_adjugate(const struct sl_experts_spec *x) {
    return x->n_ff_adjugate ? x->n_expert / x->n_per_adjugate : 0;
}
/* ... and how many of them a row uses. */
static inline uint32_t sl_experts_adjugate_used(const struct sl_experts_spec *x) {
    uint32_t n = sl_experts_adjugate(x);
    return x->n_used < n ? x->n_used : n;
}
/* Have routed experts a gate, so three matrices and not two? */
static inline bool sl_experts_gated(const struct sl_experts_spec *x) {
    return x->activation != SL_EXPERT_RELU_SQUARED;
}

struct sl_layer_spec {
    enum sl_mixer_kind mixer;
    enum sl_ffn_kind ffn;
    struct sl_attention_spec attention;   /* of SL_MIXER_ATTENTION */
    struct sl_delta_spec delta;           /* of SL_MIXER_DELTA */
    struct sl_latent_spec latent;         /* of SL_MIXER_LATENT */
    struct sl_conv_spec conv;             /* of SL_MIXER_CONV */
    struct sl_mamba_spec mamba;           /* of SL_MIXER_MAMBA */
    struct sl_mamba1_spec mamba1;         /* of SL_MIXER_MAMBA1 */
    struct sl_kda_spec kda;               /* of SL_MIXER_KDA */
    struct sl_compressed_spec compressed; /* of SL_MIXER_COMPRESSED */
    uint32_t n_ff;                        /* of SL_FFN_DENSE, and of experts.with_dense */
    bool gelu;                            /* GEGLU in dense and shared parts, not SwiGLU */
    bool relu_squared;                    /* ... squared ReLU, without a gate */
    bool clamped;                         /* ... SL_EXPERT_SWIGLU_CLAMPED */
    float limit; /* of SwiGLU in dense and shared parts, as in SL_EXPERT_SWIGLU_LIMITED; 0 = none */
    bool cut;    /* ... as in SL_EXPERT_SWIGLU_CUT */
    bool situ;   /* SL_EXPERT_SITU in their place, of limit and */
    float limit_up;
    bool parallel; /* the feed-forward part reads what attention read, not what it gave */
    struct sl_experts_spec experts;   /* of SL_FFN_EXPERTS */
    struct sl_ngram_layer_spec ngram; /* of any */
    bool draft; /* it drafts tokens: its input is made of a token and of the state before it */
};

#endif
