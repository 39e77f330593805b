/* A model as its file describes it: architecture, hyperparameters, and where each tensor is.
 *
 * One descriptor (struct sl_arch, a short file arch_<family>.c each) says how to read an
 * architecture's hyperparameters and which tensors it has. What the engine sees of it is a list of
 * layers, each with its spec (layer_spec.h) and its tensors; it knows no architecture by name. */
#ifndef SL_MODEL_MODEL_H
#define SL_MODEL_MODEL_H

#include "common/limits.h"
#include "model/arch/layer_spec.h"
#include "model/gguf/gguf.h"

#define SL_MAX_LAYERS 512u
#define SL_MAX_VOCAB  (1u << 24)

/* Rotations of q and k by position: one table a step, for all layers that name it. */
enum sl_rope_kind { SL_ROPE_KIND_NORM, SL_ROPE_KIND_NEOX };
struct sl_rope_spec {
    enum sl_rope_kind kind;
    uint32_t n_rot; /* elements of a head that are rotated */
    float base;
    float scale;       /* positions are multiplied by it: 1 / the file's linear factor; 1 = none */
    float yarn_factor; /* context extension, above 1; 0 = no YaRN (the other yarn_ are then moot) */
    float yarn_ext;    /* weight of the extrapolated frequencies, 1 usually */
    float yarn_attn; /* cos and sin are multiplied by it, and with YaRN by 1 + 0.1 ln yarn_factor */
    float yarn_beta_fast, yarn_beta_slow;
    uint32_t yarn_ctx_orig; /* context before the extension */
    bool undivided;         /* rope_freqs.weight is not of this table */
    bool back;              /* it turns the other way */
};
#define SL_MAX_ROPES 4u

/* Embeddings of n-grams: a table whose rows a token chooses together with those before it. Of n = 2
 * to n_gram tokens, t[0] the last, the hash is the xor of t[j] * mul[j] for j < n, and per_gram
 * heads of each n have a row each, offset[head] + hash % size[head]. A token eos, and what is
 * before it or before the text, count as eos. Rows of all heads, one after another, are a row's
 * n_embd elements. */
#define SL_MAX_NGRAM       3u
#define SL_MAX_NGRAM_HEADS 64u
struct sl_ngram_spec {
    uint32_t n_gram, per_gram;
    uint32_t n_head; /* per_gram of each n; 0: no layer has them */
    uint32_t dim;    /* elements of a row of the table */
    uint32_t n_rows; /* of the table */
    uint32_t eos;
    uint64_t mul[SL_MAX_NGRAM];
    uint32_t offset[SL_MAX_NGRAM_HEADS], size[SL_MAX_NGRAM_HEADS];
};

/* What all layers share. Units: elements and counts unless named otherwise. Zero = absent. */
struct sl_hparams {
    uint32_t n_layer, n_ctx_train, n_embd, n_vocab;
    uint32_t n_expert, n_expert_used; /* the most of any layer; each layer's own: its spec */
    uint32_t first_layer;             /* of a slice (model_slice.h), in the whole model; else 0 */
    uint32_t n_layer_nextn;           /* behind the last layer, for drafting tokens: left on disk */
    uint32_t n_draft;                 /* of n_layer, the last so many draft tokens: no part of what
                                         gives the answer (sl_model_add_drafts) */
    bool draft_plain; /* they read states as layers leave them, not behind the norm of the output */
    /* Hyper-connections: the residual stream is n_stream streams of n_embd elements. 0: one, which
     * every part is added to. Else how many Sinkhorn iterations their mixture goes through, and
     * what is added to sums; or the rank of the gates through which parts read them, which then
     * norm them too: layers and output have no norms besides. */
    uint32_t n_stream, stream_iters, stream_rank;
    float stream_eps;
    /* Not 0: residual attention in place of hyper-connections. Parts are added to the first of the
     * streams; every keep_every-th layer, the first too, puts what it is there into the next of the
     * others and starts it again with what its mixer gives. Parts read a weighted sum of those that
     * are in use. */
    uint32_t keep_every;
    struct sl_ngram_spec ngram;
    uint32_t n_embd_layer; /* of each token and layer an embedding of its own; 0 = none */
    float norm_eps;
    float embd_scale;      /* of the embedding's rows; 1 = none */
    float logit_softcap;   /* of the logits: c * tanh(logit / c) */
    float logit_scale;     /* of the logits, before that; 1 = none */
    bool layer_norm;       /* norms of rows take the mean out too */
    uint32_t n_rope_freqs; /* elements of rope_freqs.weight, of which a table takes the first it
                              needs; 0: as many as the first table has frequencies */
    uint32_t n_rope;
    struct sl_rope_spec rope[SL_MAX_ROPES]; /* [n_rope] */
};

/* Elements of a row between layers. */
static inline uint32_t sl_row_elems(const struct sl_hparams *hp) {
    return hp->n_embd * (hp->n_stream ? hp->n_stream : 1);
}

static inline bool sl_has_hyper_connections(const struct sl_hparams *hp) {
    return hp->n_stream && !hp->keep_every;
}
/* Residual attention: streams that are kept when a layer of the whole model begins. */
static inline uint32_t sl_kept_streams(const struct sl_hparams *hp, uint32_t layer) {
    return hp->keep_every ? (layer + hp->keep_every - 1) / hp->keep_every : 0;
}

/* Roles that a tensor's name gives; those behind them are other uses of the same tensors. */
#define SL_G_NAMED ((unsigned)SL_G_LAYER_TOKENS)

/* Shapes are [n_in, n_out] in GGUF order (innermost first). */
enum sl_global_role {
    SL_G_TOKEN_EMBD,       /* token_embd.weight   [n_embd, n_vocab] */
    SL_G_OUTPUT_NORM,      /* output_norm.weight  [n_embd] f32 */
    SL_G_OUTPUT,           /* output.weight       [n_embd, n_vocab]; tied: the embedding */
    SL_G_ROPE_FREQS,       /* rope_freqs.weight   [n_rot/2] f32 divisors, optional */
    SL_G_OUTPUT_NORM_BIAS, /* output_norm.bias [n_embd] f32 */
    SL_G_OUTPUT_BIAS,      /* output.bias      [n_vocab] f32 */
    /* rope_factors_long.weight, rope_factors_short.weight: as rope_freqs. Which of them it is comes
     * out when the model is opened; then it is SL_G_ROPE_FREQS, and these are NULL. */
    SL_G_ROPE_LONG,
    SL_G_ROPE_SHORT,
    /* Embeddings of layers: each token's, n_embd_layer elements for one layer after another; a
     * matrix that makes as many of its usual embedding; the norm of the latter, layer by layer. */
    SL_G_LAYER_EMBD,      /* per_layer_token_embd.weight [n_layer * n_embd_layer, n_vocab] */
    SL_G_LAYER_PROJ,      /* per_layer_model_proj.weight [n_embd, n_layer * n_embd_layer] */
    SL_G_LAYER_PROJ_NORM, /* per_layer_proj_norm.weight  [n_embd_layer] f32 */
    /* Of hyper-connections, what the output reads of the streams. */
    SL_G_STREAMS,       /* output_hc_fn.weight    [n_stream * n_embd, n_stream] */
    SL_G_STREAMS_BASE,  /* output_hc_base.weight  [n_stream] f32 */
    SL_G_STREAMS_SCALE, /* output_hc_scale.weight [1] f32 */
    SL_G_STREAMS_SCORE, /* residual attention: output_res_score.weight [n_embd] f32 */
    /* The same by way of a low rank: norms of all streams, to the rank, and back to gates. */
    SL_G_STREAMS_NORM, /* output_hc_norm.weight  [n_stream * n_embd] f32 */
    SL_G_STREAMS_DOWN, /* output_hc_down.weight  [n_stream * n_embd, stream_rank] */
    SL_G_STREAMS_UP,   /* output_hc_up.weight    [stream_rank, n_stream * n_embd] */
    SL_G_NGRAMS,       /* per_layer_token_embd.weight [ngram.dim, ngram.n_rows] */
    /* The tokens' embeddings once more, as what layers' embeddings are made of: any layer needs
     * them, so that a slice may have them without being where ids become rows. */
    SL_G_LAYER_TOKENS,
    SL_G_COUNT
};
enum sl_layer_role {
    SL_L_ATTN_NORM,
    SL_L_ATTN_Q,
    SL_L_ATTN_K,
    SL_L_ATTN_V,
    SL_L_ATTN_OUT,
    SL_L_ATTN_Q_BIAS,
    SL_L_ATTN_K_BIAS,
    SL_L_ATTN_V_BIAS,
    SL_L_ATTN_OUT_BIAS,
    SL_L_ATTN_SINKS,  /* [n_head] */
    SL_L_ATTN_Q_NORM, /* [head_dim] per head, or [n_head*head_dim] over the whole row (OLMoE) */
    SL_L_ATTN_K_NORM,
    SL_L_FFN_NORM,
    SL_L_FFN_GATE, /* dense FFN */
    SL_L_FFN_UP,
    SL_L_FFN_DOWN,
    SL_L_ROUTER,            /* ffn_gate_inp.weight [n_embd, n_expert]; n_expert: the layer's */
    SL_L_ROUTER_BIAS,       /* exp_probs_b.bias: of the scores, for the choice alone */
    SL_L_ROUTER_LOGIT_BIAS, /* ffn_gate_inp.bias */
    SL_L_ROUTER_TABLE, /* ffn_gate_tid2eid.weight [n_used, n_vocab] i32: each token's experts */
    SL_L_EXPERTS_GATE, /* [n_embd, n_ff_expert, n_expert] */
    SL_L_EXPERTS_UP,
    SL_L_EXPERTS_DOWN,      /* [n_ff_expert, n_embd, n_expert] */
    SL_L_EXPERTS_GATE_BIAS, /* [n_ff_expert, n_expert] */
    SL_L_EXPERTS_UP_BIAS,
    SL_L_EXPERTS_DOWN_BIAS, /* [n_embd, n_expert] */
    SL_L_SHARED_GATE,
    SL_L_SHARED_UP,
    SL_L_SHARED_DOWN,
    SL_L_SHARED_ROUTER, /* ffn_gate_inp_shexp.weight [n_embd]: sigmoid gate of the shared expert */
    /* Gated delta net: of all heads q, k, v [n_embd, q + k + v]; output gate [n_embd, v] */
    SL_L_DELTA_QKV,
    SL_L_DELTA_Z,
    SL_L_DELTA_CONV, /* [n_taps, q + k + v] */
    SL_L_DELTA_DT,   /* [n_head] added to alpha */
    SL_L_DELTA_A,    /* [n_head] by how much a state decays, not above 0 */
    SL_L_DELTA_NORM, /* [head_dim] */
    SL_L_DELTA_OUT,  /* [v, n_embd] */
    SL_L_DELTA_BETA, /* [n_embd, n_head]; and alpha */
    SL_L_DELTA_ALPHA,
    SL_L_DELTA_BA, /* in place of these [n_embd, 2 n_head]: of each key head the betas, the alphas
                    */
    /* Latent attention: q by way of a low rank, [n_embd, n_lora_q], then [n_lora_q, q] */
    SL_L_LATENT_Q_A,
    SL_L_LATENT_Q_A_NORM, /* [n_lora_q] */
    SL_L_LATENT_Q_B,
    SL_L_LATENT_KV_A, /* [n_embd, n_latent + n_rot]; compressed attention: [n_embd, head_dim] */
    SL_L_LATENT_KV_A_NORM, /* [n_latent] */
    SL_L_LATENT_K_B,       /* [n_nope, n_latent, n_head] */
    SL_L_LATENT_V_B,       /* [n_latent, head_dim_v, n_head] */
    SL_L_LATENT_KV_B, /* in place of these [n_latent, n_head * (n_nope + head_dim_v)]: of each head
                         the rows that give its key, then those of its value */
    /* Of an indexer: its queries [n_lora_q, n_index_head * index_dim], its key [n_embd, index_dim],
     * a layer norm of that [index_dim], the weights of its heads [n_embd, n_index_head]. */
    SL_L_INDEX_Q,
    SL_L_INDEX_K,
    SL_L_INDEX_K_NORM,
    SL_L_INDEX_K_BIAS,
    SL_L_INDEX_WEIGHTS,
    /* Of compressed attention, where it has blocks; width as sl_compressed_width(): what is kept of
     * positions [n_embd, width], their gates, what is added to these [width, ratio], the norm of a
     * block's row [head_dim]. Its indexer has INDEX_Q and INDEX_WEIGHTS, and the same for a block's
     * key: INDEX_K, two of its own, and INDEX_K_NORM. */
    SL_L_BLOCK_KV,
    SL_L_BLOCK_GATE,
    SL_L_BLOCK_PLACE,
    SL_L_BLOCK_NORM,
    SL_L_INDEX_GATE,
    SL_L_INDEX_PLACE,
    SL_L_ATTN_OUT_GROUP, /* [n_head * head_dim / n_group, n_group * n_lora_out]; then ATTN_OUT */
    /* Hyper-connections of the mixer and of the feed-forward part: [n_stream * n_embd,
     * SL_STREAM_WEIGHTS], base as many, scale [3] of what is read, written and mixed. Of residual
     * attention base alone, [n_embd]: what scores each stream. */
    SL_L_STREAMS_MIX,
    SL_L_STREAMS_MIX_BASE,
    SL_L_STREAMS_MIX_SCALE,
    SL_L_STREAMS_FFN,
    SL_L_STREAMS_FFN_BASE,
    SL_L_STREAMS_FFN_SCALE,
    /* Beside queries [n_embd, n_head_kv * index_dim], key and its norm, of one that chooses blocks:
     * the norm of a query's head [index_dim]. */
    SL_L_INDEX_Q_NORM,
    /* Norms [n_embd] of what a part of the layer gives, before it is added. */
    SL_L_ATTN_POST_NORM,    /* post_attention_norm.weight */
    SL_L_FFN_POST_NORM,     /* post_ffw_norm.weight */
    SL_L_SHARED_POST_NORM,  /* post_ffw_norm_1.weight: of the dense part beside experts */
    SL_L_EXPERTS_POST_NORM, /* post_ffw_norm_2.weight; of rows of their own, before these are
                               turned back: [n_latent] */
    SL_L_EXPERTS_NORM,      /* pre_ffw_norm_2.weight: before the routed experts */
    SL_L_ROUTER_NORM,       /* ffn_gate_inp.scale [n_embd] */
    SL_L_EXPERTS_SCALE,     /* ffn_down_exps.scale [n_expert] */
    SL_L_LAYER_SCALE,       /* layer_output_scale.weight [1]: of what the layer gives */
    /* Where experts read rows of their own: into these, [n_embd, n_latent], and back. */
    SL_L_EXPERTS_LATENT_DOWN, /* ffn_latent_down.weight */
    SL_L_EXPERTS_LATENT_UP,   /* ffn_latent_up.weight */
    /* Of all adjugate experts: [n_embd, n_ff_adjugate, n], down [n_ff_adjugate, n_embd, n]. Not
     * streamed: a row needs most of them, and they are small (7 % of GroveMoE's file). */
    SL_L_ADJUGATE_GATE, /* ffn_gate_chexps.weight */
    SL_L_ADJUGATE_UP,
    SL_L_ADJUGATE_DOWN,
    SL_L_EXPERTS_GATE_UP, /* in place of gate and up [n_embd, 2 * n_ff_expert, n_expert]: of each
                             expert the rows of gate, then those of up */
    SL_L_ATTN_QKV,  /* in place of q, k and v [n_embd, q + k + v]: their rows, one after another */
    SL_L_ATTN_GATE, /* attn_gate.weight [n_embd, n_head * head_dim_v or n_head] */
    SL_L_ATTN_NORM_BIAS, /* [n_embd], added behind the norm */
    SL_L_FFN_NORM_BIAS,
    /* Where layers have embeddings: from what the layer gives to a gate on its embedding; from that
     * back; its norm, before it is added. */
    SL_L_EMBD_GATE, /* inp_gate.weight  [n_embd, n_embd_layer] */
    SL_L_EMBD_PROJ, /* proj.weight      [n_embd_layer, n_embd] */
    SL_L_EMBD_NORM, /* post_norm.weight [n_embd] */
    /* Short convolution: in [n_embd, 3 n_embd], of each row b, c and v; [n_taps, n_embd]; out. */
    SL_L_CONV_IN,
    SL_L_CONV,
    SL_L_CONV_OUT,
    /* Mamba-2: [n_embd, inner + (inner + 2 n_group * n_state) + n_head], inner = n_head * head_dim:
     * the gate's rows, then those that the convolution reads, then the time steps'. */
    SL_L_MAMBA_IN,
    SL_L_MAMBA_CONV, /* [n_taps, inner + 2 n_group * n_state]; and as many */
    SL_L_MAMBA_CONV_BIAS,
    SL_L_MAMBA_DT,   /* [n_head] added to time steps */
    SL_L_MAMBA_A,    /* [1, n_head] by how much a state decays, below 0 */
    SL_L_MAMBA_SKIP, /* [1, n_head] of the input that is added */
    SL_L_MAMBA_NORM, /* [inner / n_group, n_group] */
    SL_L_MAMBA_OUT,  /* [inner, n_embd] */
    /* Mamba-1: [n_embd, 2 n_inner], what the convolution reads, then the gate; [n_taps, n_inner].
     */
    SL_L_MAMBA1_IN,
    SL_L_MAMBA1_CONV,
    SL_L_MAMBA1_CONV_BIAS,
    SL_L_MAMBA1_X,       /* [n_inner, n_rank + 2 n_state]: time steps, b, c */
    SL_L_MAMBA1_DT_NORM, /* [n_rank], and of b and c [n_state] */
    SL_L_MAMBA1_B_NORM,
    SL_L_MAMBA1_C_NORM,
    SL_L_MAMBA1_DT, /* [n_rank, n_inner] */
    SL_L_MAMBA1_DT_BIAS,
    SL_L_MAMBA1_A,    /* [n_state, n_inner] by how much an element decays, below 0 */
    SL_L_MAMBA1_SKIP, /* [n_inner] */
    SL_L_MAMBA1_OUT,  /* [n_inner, n_embd] */
    /* Kimi Delta Attention, inner = n_head * head_dim; q, k, v and the output are the attention's.
     * [n_taps, 1, inner] each; decays and the output's gate by way of head_dim elements. */
    SL_L_KDA_CONV_Q,
    SL_L_KDA_CONV_K,
    SL_L_KDA_CONV_V,
    SL_L_KDA_DECAY_A, /* ssm_f_a.weight [n_embd, head_dim]; alone, where full, [n_embd, inner] */
    SL_L_KDA_DECAY_B, /* ssm_f_b.weight [head_dim, inner] */
    SL_L_KDA_BETA,    /* [n_embd, n_head] */
    SL_L_KDA_A,       /* [1, n_head] by how much a state decays, below 0; with a bound of either
                         sign, which says nothing. Where flat [n_head] */
    SL_L_KDA_DT,      /* [inner] added to decays */
    SL_L_KDA_GATE_A,  /* ssm_g_a.weight, as the decays' */
    SL_L_KDA_GATE_B,  /* ssm_g_b.weight [head_dim, inner] */
    SL_L_KDA_NORM,    /* [head_dim] */
    /* Of a draft layer: norms of a token's embedding and of the last layer's
     * state at the token before it; a matrix that makes its input of the two. The norm of what it
     * gives, an embedding and an output matrix are its own, or the model's. */
    SL_L_DRAFT_EMBD_NORM,  /* nextn.enorm.weight */
    SL_L_DRAFT_STATE_NORM, /* nextn.hnorm.weight */
    SL_L_DRAFT_JOIN,       /* nextn.eh_proj.weight [2 n_embd, n_embd]: the embedding comes first */
    SL_L_DRAFT_NORM,       /* nextn.shared_head_norm.weight */
    SL_L_DRAFT_EMBD,       /* nextn.embed_tokens.weight     [n_embd, n_vocab] */
    SL_L_DRAFT_OUTPUT,     /* nextn.shared_head_head.weight [n_embd, n_vocab] */
    /* Hyper-connections by way of a low rank, of the mixer and of the feed-forward part: norms of
     * all streams [n_stream * n_embd], to the rank and back [., stream_rank], and from the normed
     * streams to how much of the part's output goes to each [n_stream * n_embd, n_stream]. */
    SL_L_LOW_MIX_NORM,
    SL_L_LOW_MIX_DOWN,
    SL_L_LOW_MIX_UP,
    SL_L_LOW_MIX_INJECT,
    SL_L_LOW_FFN_NORM,
    SL_L_LOW_FFN_DOWN,
    SL_L_LOW_FFN_UP,
    SL_L_LOW_FFN_INJECT,
    /* Embeddings of n-grams: to keys of all streams [n_embd, n_stream * n_embd], to a value
     * [n_embd, n_embd]; norms [n_stream * n_embd] of keys, of the streams, of what the convolution
     * reads; the latter [n_taps, n_stream * n_embd]. */
    SL_L_NGRAM_KEY,
    SL_L_NGRAM_VALUE,
    SL_L_NGRAM_KEY_NORM,
    SL_L_NGRAM_QUERY_NORM,
    SL_L_NGRAM_CONV_NORM,
    SL_L_NGRAM_CONV,
    SL_L_COUNT
};
/* Roles of which an architecture may ask; a layer has the others by its spec alone. */
#define SL_L_ASKED ((unsigned)SL_L_LOW_MIX_NORM)

struct sl_layer {
    struct sl_layer_spec spec;
    const struct sl_gguf_tensor *t[SL_L_COUNT]; /* NULL = absent */
};

struct sl_model {
    struct sl_gguf *gguf; /* owned */
    const struct sl_arch *arch;
    struct sl_hparams hp;
    const struct sl_gguf_tensor *global[SL_G_COUNT];
    struct sl_layer *layers; /* [hp.n_layer] */
};

/* Opens the file(s), finds the architecture, reads and checks every hyperparameter and tensor
 * shape. Unknown architecture, missing or misshapen tensor, unexpected tensor: SL_ERR_UNSUPPORTED
 * or SL_ERR_CORRUPT with the name in the text. Reads no tensor data. */
enum sl_status sl_model_open(const char *path, struct sl_model **out_model,
                             struct sl_err *err) SL_MUST_CHECK;
/* Takes gguf over, also when it fails. */
enum sl_status sl_model_from_gguf(struct sl_gguf *gguf, struct sl_model **out_model,
                                  struct sl_err *err) SL_MUST_CHECK;
void sl_model_close(struct sl_model **m);
/* Takes the first of the draft layers to the model's layers, as the last of them.
 * Before anything else has seen the model. SL_ERR_UNSUPPORTED: the file has none, or it is not
 * known how those of its architecture work; the model is as it was. Other errors are those of
 * opening. */
enum sl_status sl_model_add_drafts(struct sl_model *m, struct sl_err *err) SL_MUST_CHECK;
/* Can sl_model_add_drafts take one? */
bool sl_model_has_drafts(const struct sl_model *m);
/* Layers that give the answer. */
static inline uint32_t sl_answer_layers(const struct sl_hparams *hp) {
    return hp->n_layer - hp->n_draft;
}

/* "qwen3moe" */
const char *sl_model_arch_name(const struct sl_model *m);
/* Whether a tensor of this name is part of what reads pictures or sound, which nothing here does:
 * it may be in any file, and stays on disk. */
bool sl_model_is_media(struct sl_str name);
/* The i-th known architecture name, NULL past the end: for help texts. */
const char *sl_model_arch_at(uint32_t i);
static inline bool sl_model_layer_is_moe(const struct sl_model *m, uint32_t layer) {
    return m->layers[layer].spec.ffn == SL_FFN_EXPERTS;
}
/* Bytes of one routed expert of a layer (gate, if it has one, up and down), 0 in a dense layer. */
uint64_t sl_model_expert_bytes(const struct sl_model *m, uint32_t layer);

/* One of an expert's three matrices: part i of expert e is part_bytes long, at first_bytes + e *
 * stride_bytes in the tensor. */
#define SL_EXPERT_MATRICES 3u
struct sl_expert_matrix {
    const struct sl_gguf_tensor *t;
    uint64_t first_bytes, stride_bytes, part_bytes;
};
/* which: 0 gate, 1 up, 2 down, of a layer with experts. Gate and up may be halves of one tensor. Of
 * experts without a gate (sl_experts_gated) up stands for it. */
struct sl_expert_matrix sl_layer_expert_matrix(const struct sl_layer *layer, uint32_t which);
static inline bool sl_role_is_expert(enum sl_layer_role role) {
    return role == SL_L_EXPERTS_GATE || role == SL_L_EXPERTS_UP || role == SL_L_EXPERTS_DOWN ||
           role == SL_L_EXPERTS_GATE_UP;
}
/* A stable 64-bit identity of the model: metadata, tensor table and file sizes. */
uint64_t sl_model_fingerprint(const struct sl_model *m);

#endif
