/* Architecture descriptors, inside model/. A new architecture is one struct sl_arch in its family's
 * arch_<family>.c, listed in model.c; a tensor that none had before is a new row in arch_tensors.c,
 * a hyperparameter one in arch_hparams.c, or in arch_layers.c when it is a layer's. */
#ifndef SL_MODEL_ARCH_H
#define SL_MODEL_ARCH_H

#include "model/arch/model.h"

#include <stddef.h>

/* A set of layer roles, a bit each. */
__extension__ typedef unsigned __int128 sl_roles;
#define SL_ROLE(role) ((sl_roles)1 << (role))

#define SL_ROLES_ATTN_BIAS                                                                         \
    (SL_ROLE(SL_L_ATTN_Q_BIAS) | SL_ROLE(SL_L_ATTN_K_BIAS) | SL_ROLE(SL_L_ATTN_V_BIAS))
#define SL_ROLES_EXPERT_BIAS                                                                       \
    (SL_ROLE(SL_L_EXPERTS_GATE_BIAS) | SL_ROLE(SL_L_EXPERTS_UP_BIAS) |                             \
     SL_ROLE(SL_L_EXPERTS_DOWN_BIAS))
#define SL_ROLES_QK_NORM (SL_ROLE(SL_L_ATTN_Q_NORM) | SL_ROLE(SL_L_ATTN_K_NORM))

enum sl_arch_experts { SL_ARCH_DENSE, SL_ARCH_MOE, SL_ARCH_EITHER };
/* The shared expert: none; where the file gives its width; always, with the width of
 * feed_forward_length where the file gives none; always, expert_shared_count times as wide as a
 * routed expert. */
enum sl_arch_shared { SL_ARCH_NOT_SHARED, SL_ARCH_MAY_SHARE, SL_ARCH_SHARED, SL_ARCH_SHARED_COUNT };

struct sl_keys;

/* Norms of rows: RMS; with the mean taken out; that, unless the file has an epsilon for RMS. */
enum sl_arch_norm { SL_ARCH_NORM_RMS, SL_ARCH_NORM_LAYER, SL_ARCH_NORM_EITHER };
/* Another name of a tensor; also: next to the usual one. */
struct sl_arch_name {
    enum sl_layer_role role;
    const char *name;
    bool also;
};

/* The gate on attention's output: none; of each element, or each head; either, by its shape. */
enum sl_arch_gate { SL_ARCH_NO_GATE, SL_ARCH_GATE_ELEMENT, SL_ARCH_GATE_HEAD, SL_ARCH_GATE_EITHER };

struct sl_arch {
    const char *name; /* general.architecture, and the prefix of its keys */
    enum sl_arch_experts experts;
    enum sl_rope_kind rope_kind;
    enum sl_qk_norm qk_norm; /* of layers that have SL_ROLES_QK_NORM */
    bool norm_after_rope;
    uint32_t window_period; /* without a pattern in the file: every so many-th layer has no window;
                               0 = all have it */
    bool rope_freqs;        /* rope_freqs.weight may be there */
    bool rope_factors;      /* rope_factors_long.weight and _short.weight may */
    bool output_biases;     /* of output_norm and output */
    enum sl_arch_shared shared;
    bool dense_lead; /* reads leading_dense_block_count and interleave_moe_layer_step */
    bool split_ff;   /* without expert_feed_forward_length an expert has n_ff / k, not n_ff */
    bool router_normalize, router_softmax_topk; /* unless the file says otherwise */
    enum sl_expert_activation activation;
    bool delta;           /* layers with a gated delta net among those with attention */
    bool delta_grouped;   /* sl_delta_spec.grouped */
    bool latent;          /* all layers have latent attention, but those that are keyless */
    bool latent_unscaled; /* whose scores YaRN leaves as they are */
    /* Of layers whose attention.head_count_kv is 0; attention itself: there are no such layers. */
    enum sl_mixer_kind keyless;
    bool gated;            /* sl_attention_spec.gated */
    bool sections;         /* rope.dimension_sections: multi-section RoPE */
    bool nextn;            /* the last nextn_predict_layers layers draft tokens */
    bool drafts;           /* ... each as a layer of its own kind behind SL_L_DRAFT_JOIN */
    bool draft_plain;      /* sl_hparams.draft_plain */
    bool gelu;             /* in dense and shared parts */
    bool with_dense;       /* experts.with_dense */
    bool v_norm, v_of_k;   /* v_of_k: in layers without attn_v.weight */
    float attention_scale; /* unless the file says otherwise; 0: 1/sqrt(head_dim_k) */
    bool embd_sqrt;        /* the embedding's rows are multiplied by sqrt(n_embd) */
    bool window_freqs;     /* rope_freqs.weight is of layers with a window too */
    /* NULL, or names after "<arch>.", the last NULL: keys that it reads and others refuse. */
    const char *const *keys;
    const char *ffn_norm;    /* the name of that tensor; NULL: "ffn_norm.weight" */
    const char *output_norm; /* of that one; NULL: "output_norm.weight" */
    bool window_last;        /* window_period counts from the first layer, which has none */
    float window_rope_base; /* of layers with a window, unless the file says otherwise; 0: as of the
                               others */
    bool window_rope_plain; /* layers with a window rotate without YaRN or scaled positions */
    bool router_sigmoid;    /* unless the file says otherwise */
    bool router_softplus;   /* the file may say so; of others it is refused */
    enum sl_arch_gate gate;
    bool gate_softplus;
    enum sl_arch_norm norm;
    bool parallel;          /* spec.parallel, of all layers; there is no norm before the FFN */
    bool experts_by_tensor; /* layers with a router have experts */
    /* A layer is one part: a feed-forward one where feed_forward_length is not 0, else a mixer. */
    bool one_part;
    bool relu_squared;   /* in dense and shared parts */
    bool clamped;        /* SL_EXPERT_SWIGLU_CLAMPED in them */
    bool latent_windows; /* some layers of latent attention have a window, and shapes of their own:
                            read_own reads these */
    const char *latent_experts; /* NULL, or the key that experts_spec.n_latent has */
    bool any_epsilon;           /* layer_norm_epsilon stands for the missing one of RMS norms */
    const struct sl_arch_name *names; /* NULL, or up to one whose name is NULL */
    /* NULL, or what is the family's own, when all else has been read: its keys are in keys. */
    enum sl_status (*read_own)(struct sl_keys *k, struct sl_hparams *hp, struct sl_layer *layers);
    /* Layer roles by SL_ROLE(), besides those without which a layer of its kind cannot be: required
     * where the layer's kinds know them; allowed there. What is in none is refused. */
    sl_roles needs, optional;
};

#define SL_ARCH(name) extern const struct sl_arch sl_arch_##name;
#include "model/arch/arches.def"

/* Is it one of arch->keys? */
bool sl_arch_reads(const struct sl_arch *arch, const char *key, size_t len);

/* Reads and checks every key under "<arch>."; one that is not known is refused by name. Leaves
 * n_vocab to sl_arch_bind. out_layers [n_layer]: the caller frees them. drafts: with the first
 * draft layer, which the file has. */
enum sl_status sl_arch_read_hparams(const struct sl_gguf *g, const struct sl_arch *arch,
                                    bool drafts, struct sl_hparams *out_hp,
                                    struct sl_layer **out_layers, struct sl_err *err) SL_MUST_CHECK;

/* Gives every tensor its place (m->global, m->layers[].t) by what the layers' specs ask for, checks
 * shapes and types, sets hp.n_vocab and what specs say of optional tensors. */
enum sl_status sl_arch_bind(struct sl_model *m, struct sl_err *err) SL_MUST_CHECK;

#endif
