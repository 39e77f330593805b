/* Synthetic models: GGUF files of any supported architecture, size and type mix from a seed, with
 * weights scaled so that activations stay sound and with routing as real models have it.
 *
 * How routing gets its statistics. Every token's embedding is
 *     [a, sqrt(rho) * centre(cluster of token) + sqrt(1 - rho) * own]
 * and the router's weights are random but for the column that reads the constant a, which holds
 * each expert's popularity: so `skew` sets how uneven the experts are, and rho how much tokens of
 * one cluster share experts. The output matrix makes each token's likeliest successor the next one
 * of a fixed cycle through the vocabulary that stays in a cluster for some tokens, then moves:
 * generated text has token-to-token locality, greedy or sampled. */
#ifndef SL_MODEL_SYNTH_H
#define SL_MODEL_SYNTH_H

#include "common/dtype.h"
#include "common/status.h"

#include <stdbool.h>
#include <stdint.h>

#define SL_SYNTH_MAX_TYPES 16u
#define SL_SYNTH_MAX_EACH  16u

/* Types of one group of tensors; layer i takes entry i % n. */
struct sl_synth_types {
    enum sl_dtype dtype[SL_SYNTH_MAX_TYPES];
    uint32_t n;
};

struct sl_synth_config {
    const char *arch; /* "qwen3moe", ... as sl_model_arch_at() lists */
    uint64_t seed;
    uint32_t n_layer, n_embd, n_head, n_head_kv, head_dim;
    uint32_t n_head_kv_odd; /* of layers 1, 3, 5, ...; 0 = as the others */
    uint32_t n_ff;          /* dense FFN */
    uint32_t n_ff_expert;   /* routed experts */
    uint32_t n_ff_shared;   /* the shared expert, of architectures that have one */
    uint32_t n_expert, n_expert_used;
    uint32_t n_expert_used_odd; /* of layers 1, 3, 5, ...; 0 = as the others */
    /* Experts of layer i: n_expert_each[i % n_each], 0 = it is dense; n_expert is the most of them.
     * n_each 0: n_expert in all layers. */
    uint32_t n_expert_each[SL_SYNTH_MAX_EACH], n_each;
    uint32_t n_group, n_group_used; /* groups of experts that routers choose first; 0 = none */
    uint32_t n_layer_dense; /* first layers without experts, of architectures that have such */
    uint32_t n_vocab, n_ctx;
    bool tied;         /* no output matrix of its own */
    bool rope_freqs;   /* llama: per-dimension divisors as Llama 3 has them */
    float yarn_factor; /* 0 = none */
    float rope_base;
    float rope_base_window; /* of layers with a window; 0 = as the others */
    uint32_t window;        /* of architectures whose layers have one */
    uint32_t n_rot;         /* elements of a head that are rotated; 0 = all */
    /* Gated delta net, of architectures that have one: every attn_every-th layer has attention, the
     * others heads of values, fewer of keys, elements of each, taps of the convolution. */
    uint32_t attn_every, n_delta_head, n_delta_head_k, delta_dim, n_taps;
    uint32_t n_state; /* Mamba: rows of a head's state; its groups are n_delta_head_k */
    bool no_rope;     /* granitehybrid: attention is not rotated */
    /* nemotron_h, nemotron_h_moe: of each layer its one part, M Mamba-2, * attention or E a
     * feed-forward part, from the start again where it ends; NULL: ME*E. */
    const char *pattern;
    uint32_t n_ff_adjugate, n_per_adjugate; /* grovemoe: of adjugate experts the width, and how many
                                               experts share one */
    uint32_t n_expert_latent; /* nemotron_h_moe, kimi-k3: elements of experts' rows; 0 = the layer's
                               */
    uint32_t keep_every; /* kimi-k3: layers of a block of residual attention; 0 = there is none */
    /* Latent attention, of architectures that have it: head_dim elements of a head's key, of which
     * n_rot are rotated (0 = half), head_dim_v of its value, from latents of n_latent. */
    uint32_t n_lora_q; /* rank of q's projection; 0 = one matrix */
    uint32_t n_latent, head_dim_v;
    /* Of architectures with an indexer: its heads, their elements, the positions that it chooses;
     * glm-dsa: every so many-th layer has one, from the first on; 0 = as the program assumes. */
    uint32_t n_index_head, index_dim, n_index_top, index_every;
    /* minimax-m3: positions of a block, of which it then chooses n_index_top, and how many of a
     * row's last ones are always among them. Its indexer has a head for each of the keys'. */
    uint32_t index_block, n_index_local;
    /* qwen4exp: of each n-gram of two and of three tokens so many heads, with so many rows of a
     * table each. Its hyper-connections have a rank of n_lora_out, and blocks of index_block
     * positions of which n_index_top positions' worth are chosen. */
    uint32_t n_ngram_head, n_ngram_rows;
    /* deepseek4: groups of heads with an output matrix of a rank each; the first so many layers
     * have a table of each token's experts. */
    uint32_t n_group_out, n_lora_out, n_layer_table;
    uint32_t n_latent_window, head_dim_v_window; /* dots3note: of layers with a window; 0 = as the
                                                    others */
    bool joined_kv;         /* one matrix for keys and values, as in older files */
    float yarn_log_mul;     /* 0 = none stated */
    bool router_sigmoid;    /* with a bias for the choice; the weights are divided by their sum */
    float router_scale;     /* of the experts' weights; 0 = none stated */
    uint32_t n_nextn;       /* layers behind the last that draft tokens */
    uint32_t nextn_right;   /* of 100 tokens they know the successor of so many, by an output matrix
                               of their own; 0: they are random, and draft nothing right */
    uint32_t window_period; /* gemma4: every so many-th layer has no window; 0 = 6 */
    uint32_t n_embd_layer;  /* gemma4: of each token and layer an embedding of its own; 0 = none */
    uint32_t n_shared_kv;   /* gemma4: the last so many layers read another's keys and values */
    uint32_t head_dim_window, n_head_kv_window; /* gemma4: of layers with one; 0 = as the others */
    float logit_softcap;                        /* gemma4; 0 = none */
    bool no_qk_norm;   /* where the architecture leaves open whether q and k are normed */
    bool qkv_bias;     /* q, k and v have biases, where the architecture leaves that open */
    bool sections;     /* multi-section RoPE, where the architecture leaves that open */
    uint32_t temper;   /* latent attention: queries grow with every so many positions; 0 = not */
    uint32_t chunk;    /* llama4: positions in a chunk; 0 = none stated */
    uint32_t moe_step; /* llama4: every so many-th layer has experts; 0 = all */
    uint32_t n_head_window; /* query heads of layers with a window; 0 = as the others */
    uint32_t n_rot_window;  /* laguna: elements of a head that they rotate; 0 = as the others */
    bool with_dense;        /* grok: a dense part next to the experts */
    bool gate_heads;        /* a gate of each head, where the architecture leaves that open */
    bool fused_qkv;         /* q, k and v are one matrix */
    bool fused_experts;     /* gate and up of experts are one tensor, of gate's type */
    struct sl_synth_types attn, ffn, gate, up, down;
    enum sl_dtype embd, output; /* F32, F16, BF16 and Q8_0 carry the structure described above;
                                   other types are plain random */
    float skew; /* standard deviation of an expert's popularity logit over that of a token's own */
    float locality;    /* rho, 0..1 */
    float stay;        /* chance that the successor is of the same cluster */
    uint32_t n_split;  /* files, 1 = one */
    bool headers_only; /* tensors are holes in the files: they take no space and read as zeros */
};

/* Defaults: qwen3moe, 4 layers, 256 wide, 8 experts top-2, Q8_0, routing calibrated to
 * Qwen3-30B-A3B (an LRU of 19 % of the experts hits 74 %, of 38 % hits 89 %, 45 % of a token's
 * experts were used by the token before). */
extern const struct sl_synth_config sl_synth_default;
/* The i-th architecture that can be written; NULL beyond the last. */
const char *sl_synth_arch_at(uint32_t i);

/* Writes PATH (with n_split > 1: PATH is the prefix of -0000i-of-0000N.gguf). The same config gives
 * the same bytes. report: done and total bytes, may be NULL; returning false cancels. A failed or
 * canceled write leaves no file. */
enum sl_status sl_synth_write(const struct sl_synth_config *config, const char *path,
                              bool (*report)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                              void *ctx, struct sl_err *err) SL_MUST_CHECK;

/* synth_blocks.c. Fills a row with random blocks whose values have mean 0 and standard deviation
 * std. */
struct sl_rng;
void sl_synth_random_row(enum sl_dtype dtype, struct sl_rng *rng, float std, void *row,
                         uint64_t n_elems);
/* Writes given values; false when the type is not one of F32, F16, BF16, Q8_0. */
bool sl_synth_encode_row(enum sl_dtype dtype, const float *values, void *row, uint64_t n_elems);
/* The type itself, or one with 32- or 1-element blocks that a row of n_elems fits. */
enum sl_dtype sl_synth_fit_dtype(enum sl_dtype dtype, uint64_t n_elems);

/* synth_vocab.c. A byte-level BPE vocabulary of exactly n tokens (at least 300) with control tokens
 * and a ChatML template. */
struct sl_gguf_writer;
void sl_synth_write_vocab(struct sl_gguf_writer *w, uint32_t n_vocab);

#endif
