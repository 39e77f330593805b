/* Architecture descriptors, inside model/. A new architecture is one struct sl_arch in its family's
 * arch_<family>.c, listed in model.c; a tensor or hyperparameter that none had before is a new row
 * in arch_tensors.c or arch_hparams.c. */
#ifndef SL_MODEL_ARCH_H
#define SL_MODEL_ARCH_H

#include "model/arch/model.h"

#define SL_ROLE(role) (UINT64_C(1) << (role))

/* What every architecture so far has: RMS-normed attention with an output projection, and a
 * normed FFN. */
#define SL_ROLES_ATTENTION                                                                         \
    (SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_ATTN_Q) | SL_ROLE(SL_L_ATTN_K) |                       \
     SL_ROLE(SL_L_ATTN_V) | SL_ROLE(SL_L_ATTN_OUT) | SL_ROLE(SL_L_FFN_NORM))
#define SL_ROLES_ATTN_BIAS                                                                         \
    (SL_ROLE(SL_L_ATTN_Q_BIAS) | SL_ROLE(SL_L_ATTN_K_BIAS) | SL_ROLE(SL_L_ATTN_V_BIAS))
#define SL_ROLES_QK_NORM (SL_ROLE(SL_L_ATTN_Q_NORM) | SL_ROLE(SL_L_ATTN_K_NORM))
#define SL_ROLES_FFN     (SL_ROLE(SL_L_FFN_GATE) | SL_ROLE(SL_L_FFN_UP) | SL_ROLE(SL_L_FFN_DOWN))
#define SL_ROLES_EXPERTS                                                                           \
    (SL_ROLE(SL_L_ROUTER) | SL_ROLE(SL_L_EXPERTS_GATE) | SL_ROLE(SL_L_EXPERTS_UP) |                \
     SL_ROLE(SL_L_EXPERTS_DOWN))
#define SL_ROLES_SHARED                                                                            \
    (SL_ROLE(SL_L_SHARED_GATE) | SL_ROLE(SL_L_SHARED_UP) | SL_ROLE(SL_L_SHARED_DOWN))

enum sl_arch_experts { SL_ARCH_DENSE, SL_ARCH_MOE, SL_ARCH_EITHER };

struct sl_arch {
    const char *name; /* general.architecture, and the prefix of its keys */
    enum sl_arch_experts experts;
    enum sl_rope_kind rope_kind;
    bool qk_norm_row;   /* q/k norm weights span the whole row, not one head */
    bool shared_expert; /* reads expert_shared_feed_forward_length */
    bool split_ff;      /* without expert_feed_forward_length an expert has n_ff / k, not n_ff */
    bool rope_freqs;    /* rope_freqs.weight may be there */
    bool router_normalize;
    /* Layer roles by SL_ROLE(): of every layer; of layers with a dense FFN; of layers with experts;
     * allowed but not required. What is in none is refused. */
    uint64_t always, dense, moe, optional;
};

extern const struct sl_arch sl_arch_llama, sl_arch_olmoe, sl_arch_qwen2, sl_arch_qwen2moe,
    sl_arch_qwen3, sl_arch_qwen3moe;

/* Reads and checks every key under "<arch>."; one that is not known is refused by name. Leaves
 * n_vocab to sl_arch_bind. */
enum sl_status sl_arch_read_hparams(const struct sl_gguf *g, const struct sl_arch *arch,
                                    struct sl_hparams *out_hp, struct sl_err *err) SL_MUST_CHECK;

/* Gives every tensor its place (m->global, m->layers[hp.n_layer], allocated by the caller), checks
 * shapes and types, sets hp.n_vocab. */
enum sl_status sl_arch_bind(struct sl_model *m, struct sl_err *err) SL_MUST_CHECK;

#endif
