/* Inside synth: the list of tensors of one synthetic model. */
#ifndef SL_MODEL_SYNTH_PLAN_H
#define SL_MODEL_SYNTH_PLAN_H

#include "model/synth/synth.h"

#include <string.h>

/* What an architecture has besides the common frame. */
enum {
    SL_SYNTH_MOE = 1 << 0,
    SL_SYNTH_MAY_MOE = 1 << 1, /* with experts, where some are asked for */
    SL_SYNTH_SHARED = 1 << 2,
    SL_SYNTH_SHARED_GATE = 1 << 3,
    SL_SYNTH_QKV_BIAS = 1 << 4,
    SL_SYNTH_QK_NORM_HEAD = 1 << 5,
    SL_SYNTH_QK_NORM_ROW = 1 << 6,
    SL_SYNTH_ROUTER_BIAS = 1 << 7, /* added to the scores for the choice alone */
    SL_SYNTH_DENSE_LEAD = 1 << 8,
    SL_SYNTH_EXPERT_FF = 1 << 9, /* an expert's width has a key of its own */
    SL_SYNTH_OUT_BIAS = 1 << 10,
    SL_SYNTH_SINKS = 1 << 11,
    SL_SYNTH_WINDOW = 1 << 12,
    SL_SYNTH_EXPERT_BIAS = 1 << 13, /* of experts, and of the router's logits */
    SL_SYNTH_CLAMPED = 1 << 14,     /* experts' SwiGLU is clamped */
    SL_SYNTH_POST_NORM = 1 << 15,   /* the norm before the experts is called the attention's */
    SL_SYNTH_DELTA = 1 << 16,       /* gated delta nets, and gates on attention */
    SL_SYNTH_DELTA_BA = 1 << 17,    /* whose gates come from one matrix */
    SL_SYNTH_SECTIONS = 1 << 18,    /* multi-section RoPE */
    SL_SYNTH_ONE_PART = 1 << 19,    /* each layer is one part, by pattern; squared ReLU, no gate */
    SL_SYNTH_KDA = 1 << 20,         /* Kimi Delta Attention, but for some latent attention */
    SL_SYNTH_ADJUGATE = 1 << 21,    /* a second set of experts, for runs of the first */
    SL_SYNTH_INDEX = 1 << 22,       /* whose positions an indexer chooses */
    SL_SYNTH_INDEX_SOME = 1 << 23,  /* that not all layers need have */
    SL_SYNTH_LATENT = 1 << 24,      /* latent attention, and DeepSeek's experts */
    SL_SYNTH_LING3 = 1 << 25,       /* a bound of KDA's decays, a gate on attention, limits */
    SL_SYNTH_BLOCKS = 1 << 26,      /* an indexer that chooses blocks, in layers with experts */
    SL_SYNTH_NOTE = 1 << 27,        /* an indexer in layers without a window; another shape of those
                                       with one, gates of heads */
    SL_SYNTH_GEMMA4 = 1 << 28,      /* what only it has: synth_plan.c */
    SL_SYNTH_V4 = 1 << 29, /* compressed attention, hyper-connections, first layers by a table */
    SL_SYNTH_K3 = 1 << 30, /* KDA with gates of one matrix and a bound; gates on attention; SiTU;
                              residual attention */
    /* hyper-connections of low rank, an indexer, n-grams: qwen4exp */
    SL_SYNTH_FLASH = 1u << 31,
};
/* The same of grouped-query families with parts of their own: sl_synth_parts. */
enum {
    SL_SYNTH_GATE = 1 << 0,       /* a gate on attention's output, of each element; of each head
                                     where the config says so */
    SL_SYNTH_SANDWICH = 1 << 1,   /* norms behind attention and feed-forward parts */
    SL_SYNTH_SIGMOID = 1 << 2,    /* the router takes sigmoids, with a bias for the choice */
    SL_SYNTH_COUNTED = 1 << 3,    /* the shared expert's width is a number of experts */
    SL_SYNTH_LLAMA4 = 1 << 4,     /* its width is an expert's; layers with experts by a step */
    SL_SYNTH_PATTERN = 1 << 5,    /* windows by a pattern, 4 */
    SL_SYNTH_FULL_FIRST = 1 << 6, /* whose layers without a window come first */
    SL_SYNTH_LAYER_NORM = 1 << 7,
    SL_SYNTH_PARALLEL = 1 << 8, /* no norm before the feed-forward part; cohere2moe */
    SL_SYNTH_DBRX = 1 << 9,
    SL_SYNTH_GROK = 1 << 10,
    SL_SYNTH_MIMO = 1 << 11,
    SL_SYNTH_CONV = 1 << 15,    /* short convolutions, but for every attn_every-th layer */
    SL_SYNTH_MAMBA = 1 << 30,   /* Mamba-2 in their place */
    SL_SYNTH_MAMBA1 = 1u << 31, /* Mamba-1 */
    SL_SYNTH_KEYLESS = SL_SYNTH_CONV | SL_SYNTH_MAMBA | SL_SYNTH_MAMBA1,
    SL_SYNTH_NEXTN = 1 << 16,        /* draft layers, where some are asked for */
    SL_SYNTH_MAY_NORM = 1 << 17,     /* q and k are normed, unless the config says otherwise */
    SL_SYNTH_MAY_SECTIONS = 1 << 18, /* multi-section RoPE, where it is asked for */
    SL_SYNTH_NEXTN_OUT = 1 << 23,    /* such layers have a norm of their output */
    SL_SYNTH_SHARED_EACH = 1 << 21,  /* besides their number the file has each one's width */
    SL_SYNTH_WEIGHTS_NORM = 1 << 22, /* experts' weights are divided by their sum */
    SL_SYNTH_BOTH_FF = 1 << 20,      /* an expert's width has two keys, feed_forward_length too */
    SL_SYNTH_NEXTN_DENSE = 1 << 24,  /* such layers have no experts */
    SL_SYNTH_HY3 = 1 << 25,      /* tensors say which layers are dense; another name of the bias */
    SL_SYNTH_GRANITE = 1 << 26,  /* scales; a shared expert where its width is not 0 */
    SL_SYNTH_MAY_BIAS = 1 << 19, /* q, k and v have biases, where they are asked for */
    SL_SYNTH_ARCTIC = 1 << 12,
    SL_SYNTH_TEMPER = 1 << 14, /* queries grow with the context before its extension */
    SL_SYNTH_STEP = 1 << 13,   /* with MIMO's layers told by their router, and limits of SwiGLU */
    SL_SYNTH_SMALLTHINKER = 1 << 27, /* sigmoids without a bias */
    SL_SYNTH_MAPLE = 1 << 28,        /* limits of experts' SwiGLU; the file has the pattern */
    SL_SYNTH_PHI = 1 << 29,          /* biases of norms and of the output; factors of frequencies */
};
struct sl_synth_family {
    const char *arch;
    uint32_t traits; /* SL_SYNTH_ */
};
/* NULL: not known. */
const struct sl_synth_family *sl_synth_family_find(const char *arch);
uint32_t sl_synth_parts(const char *arch);
/* Experts of a layer; 0: it is dense. */
static inline uint32_t sl_synth_experts(const struct sl_synth_config *c, uint32_t layer) {
    bool may = layer >= c->n_layer_dense && (!c->moe_step || (layer + 1) % c->moe_step == 0);
    return !may ? 0 : c->n_each ? c->n_expert_each[layer % c->n_each] : c->n_expert;
}
/* Of families whose files say which layers have a window. */
static inline bool sl_synth_has_window(const struct sl_synth_config *c, uint32_t layer) {
    uint32_t parts = sl_synth_parts(c->arch);
    bool note = sl_synth_family_find(c->arch)->traits & SL_SYNTH_NOTE;
    uint32_t period = c->window_period           ? c->window_period
                      : parts & SL_SYNTH_PATTERN ? 4
                      : note                     ? 2
                                                 : 6;
    return parts & SL_SYNTH_FULL_FIRST ? layer % period != 0 : layer % period < period - 1;
}
/* ... of latent attention: draft layers have one. */
static inline bool sl_synth_note_window(const struct sl_synth_config *c, uint32_t layer) {
    return layer >= c->n_layer || sl_synth_has_window(c, layer);
}
static inline uint32_t sl_synth_heads(const struct sl_synth_config *c, uint32_t layer) {
    return c->n_head_window && sl_synth_has_window(c, layer) ? c->n_head_window : c->n_head;
}
static inline uint32_t sl_synth_head_dim(const struct sl_synth_config *c, uint32_t layer) {
    bool own = sl_synth_family_find(c->arch)->traits & SL_SYNTH_GEMMA4 && c->head_dim_window;
    return own && sl_synth_has_window(c, layer) ? c->head_dim_window : c->head_dim;
}
static inline uint32_t sl_synth_kv_heads(const struct sl_synth_config *c, uint32_t layer) {
    if (sl_synth_family_find(c->arch)->traits & SL_SYNTH_V4)
        return 1;
    bool own = (sl_synth_family_find(c->arch)->traits & SL_SYNTH_GEMMA4 ||
                sl_synth_parts(c->arch) & SL_SYNTH_MIMO) &&
               c->n_head_kv_window;
    if (own && sl_synth_has_window(c, layer))
        return c->n_head_kv_window;
    return layer % 2 && c->n_head_kv_odd ? c->n_head_kv_odd : c->n_head_kv;
}

/* Experts that a row uses. */
static inline uint32_t sl_synth_used(const struct sl_synth_config *c, uint32_t layer) {
    return layer % 2 && c->n_expert_used_odd ? c->n_expert_used_odd : c->n_expert_used;
}

/* Elements of a head's value. */
static inline uint32_t sl_synth_value_dim(const struct sl_synth_config *c, uint32_t layer) {
    return sl_synth_parts(c->arch) & SL_SYNTH_MIMO ? c->head_dim_v : sl_synth_head_dim(c, layer);
}

static inline uint32_t sl_synth_rot(const struct sl_synth_config *c) {
    return c->n_rot ? c->n_rot : c->head_dim;
}
static inline uint32_t sl_synth_latent_rot(const struct sl_synth_config *c) {
    return c->n_rot ? c->n_rot : c->head_dim / 4 * 2;
}
/* Rank of q's projection, which an indexer cannot be without; 0 = one matrix. */
static inline uint32_t sl_synth_lora_q(const struct sl_synth_config *c) {
    bool index = sl_synth_family_find(c->arch)->traits & (SL_SYNTH_INDEX | SL_SYNTH_V4);
    return c->n_lora_q || !index ? c->n_lora_q : 64;
}
/* Compressed attention: positions of a block. Few layers have all kinds; many go by turns, behind
 * two without blocks. */
static inline uint32_t sl_synth_ratio(const struct sl_synth_config *c, uint32_t layer) {
    static const uint32_t few[] = {4, 128, 0};
    return c->n_layer < 8 ? few[layer % 3] : layer < 2 ? 0 : layer % 2 ? 128 : 4;
}
#define SL_SYNTH_STREAMS 4u
/* qwen4exp: the layer with n-grams is the second, or the first with a delta net; none: n_layer. */
static inline uint32_t sl_synth_ngram_layer(const struct sl_synth_config *c) {
    return c->attn_every < 2 ? c->n_layer : c->attn_every == 2 || c->n_layer < 2 ? 0 : 1;
}
#define SL_SYNTH_NGRAM 3u
static inline uint32_t sl_synth_ngram_heads(const struct sl_synth_config *c) {
    return (SL_SYNTH_NGRAM - 1) * c->n_ngram_head;
}

/* Has the layer an indexer? GLM-5.2's have one where index_every is 0 and the file does not say. */
static inline bool sl_synth_has_indexer(const struct sl_synth_config *c, uint32_t traits,
                                        uint32_t layer) {
    if (traits & SL_SYNTH_NOTE)
        return !sl_synth_note_window(c, layer);
    if (!(traits & SL_SYNTH_INDEX_SOME) || layer >= c->n_layer)
        return traits & SL_SYNTH_INDEX;
    if (!c->index_every)
        return c->n_ctx < 1u << 20 || layer < 2 || (layer - 2) % 4 == 0;
    return layer % c->index_every == 0;
}
/* Of families whose layers are one part: which, as in the config's pattern. Draft layers are
 * attention and experts, of which nothing here reads a byte. */
static inline char sl_synth_part(const struct sl_synth_config *c, uint32_t layer) {
    const char *pattern = c->pattern ? c->pattern : "ME*E";
    return layer < c->n_layer ? pattern[layer % strlen(pattern)] : 'E';
}
/* Has the layer attention? Draft layers have. */
static inline bool sl_synth_attends(const struct sl_synth_config *c, uint32_t traits,
                                    uint32_t layer) {
    if (traits & SL_SYNTH_ONE_PART && layer < c->n_layer)
        return sl_synth_part(c, layer) == '*';
    bool all = !(traits & SL_SYNTH_DELTA) && !(sl_synth_parts(c->arch) & SL_SYNTH_KEYLESS);
    return all || layer >= c->n_layer || (layer + 1) % c->attn_every == 0;
}

/* Has the layer Kimi Delta Attention? The last has not. */
static inline bool sl_synth_has_kda(const struct sl_synth_config *c, uint32_t traits,
                                    uint32_t layer) {
    return traits & SL_SYNTH_KDA && (layer + 1) % c->attn_every != 0 && layer + 1 < c->n_layer;
}
/* Does the router take sigmoids? */
static inline bool sl_synth_sigmoid(const struct sl_synth_config *c) {
    return c->router_sigmoid ||
           sl_synth_family_find(c->arch)->traits & (SL_SYNTH_KDA | SL_SYNTH_NOTE);
}

enum sl_synth_fill {
    SL_FILL_RANDOM,     /* standard deviation std */
    SL_FILL_NORM,       /* 1 + 0.1 * random */
    SL_FILL_EMBEDDING,  /* see synth.h */
    SL_FILL_SUCCESSOR,  /* the output matrix */
    SL_FILL_SOME,       /* ... that knows the successors of nextn_right tokens in 100 */
    SL_FILL_FIRST_HALF, /* the first half of the input as it is */
    SL_FILL_ROUTER,     /* popularity in column 0 */
    SL_FILL_ROPE_FREQS, /* Llama 3.1's frequency divisors */
    SL_FILL_DECAY,      /* below 0: between the smallest and the largest that models have */
    SL_FILL_GROWTH,     /* the same above 0 */
    SL_FILL_TABLE,      /* of each token n different experts */
};

struct sl_synth_tensor {
    char name[64];
    enum sl_dtype dtype;
    uint32_t n_dims;
    uint64_t ne[3];
    enum sl_synth_fill fill;
    float std;
    uint32_t file;         /* of the split */
    uint64_t offset_bytes; /* in that file's data section, then in the file */
};

struct sl_synth_plan {
    struct sl_synth_tensor *tensors;
    uint32_t n, cap;
};

static inline uint64_t sl_synth_rows(const struct sl_synth_tensor *t) {
    return t->ne[1] * t->ne[2];
}

/* Checks the config and lists its tensors; the caller frees plan->tensors, also after failure. */
enum sl_status sl_synth_plan(const struct sl_synth_config *c, struct sl_synth_plan *plan,
                             struct sl_err *err) SL_MUST_CHECK;

#endif
