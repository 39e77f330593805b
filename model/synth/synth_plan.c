#include "model/synth/synth_plan.h"

#include "model/arch/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sl_synth_family families[] = {
    {"qwen3moe", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF},
    {"qwen2moe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_SHARED_GATE | SL_SYNTH_QKV_BIAS |
                     SL_SYNTH_EXPERT_FF},
    {"olmoe", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_ROW},
    {"llama", SL_SYNTH_MAY_MOE}, /* with experts: Mixtral */
    {"qwen3", SL_SYNTH_QK_NORM_HEAD},
    {"qwen2", SL_SYNTH_QKV_BIAS},
    {"ernie4_5-moe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_ROUTER_BIAS | SL_SYNTH_DENSE_LEAD |
                         SL_SYNTH_EXPERT_FF},
    {"hunyuan-moe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF},
    {"gpt-oss", SL_SYNTH_MOE | SL_SYNTH_QKV_BIAS | SL_SYNTH_OUT_BIAS | SL_SYNTH_SINKS |
                    SL_SYNTH_WINDOW | SL_SYNTH_EXPERT_BIAS | SL_SYNTH_CLAMPED | SL_SYNTH_POST_NORM |
                    SL_SYNTH_EXPERT_FF},
    {"qwen3next", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_SHARED_GATE | SL_SYNTH_QK_NORM_HEAD |
                      SL_SYNTH_POST_NORM | SL_SYNTH_EXPERT_FF | SL_SYNTH_DELTA | SL_SYNTH_DELTA_BA},
    {"qwen35moe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_SHARED_GATE | SL_SYNTH_QK_NORM_HEAD |
                      SL_SYNTH_POST_NORM | SL_SYNTH_EXPERT_FF | SL_SYNTH_DELTA | SL_SYNTH_SECTIONS},
    {"qwen4exp", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_SHARED_GATE | SL_SYNTH_QK_NORM_HEAD |
                     SL_SYNTH_EXPERT_FF | SL_SYNTH_DELTA | SL_SYNTH_SECTIONS | SL_SYNTH_FLASH},
    {"qwen35", SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_POST_NORM | SL_SYNTH_DELTA | SL_SYNTH_SECTIONS},
    {"deepseek2",
     SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF | SL_SYNTH_LATENT},
    {"qwen3vlmoe", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF | SL_SYNTH_SECTIONS},
    {"gemma4", SL_SYNTH_MAY_MOE | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_WINDOW | SL_SYNTH_EXPERT_FF |
                   SL_SYNTH_GEMMA4},
    {"smallthinker", SL_SYNTH_MOE | SL_SYNTH_EXPERT_FF | SL_SYNTH_WINDOW},
    {"maple", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF | SL_SYNTH_WINDOW},
    {"phimoe", SL_SYNTH_MOE | SL_SYNTH_QKV_BIAS | SL_SYNTH_OUT_BIAS},
    {"granitehybrid", SL_SYNTH_MOE | SL_SYNTH_SHARED},
    {"jamba", SL_SYNTH_MOE},
    {"nemotron_h", SL_SYNTH_ONE_PART},
    {"nemotron_h_moe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_EXPERT_FF | SL_SYNTH_ONE_PART},
    {"lfm2moe", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF | SL_SYNTH_DENSE_LEAD},
    {"hy_v3", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                  SL_SYNTH_DENSE_LEAD},
    {"mellum", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF | SL_SYNTH_WINDOW},
    {"granitemoe", SL_SYNTH_MOE | SL_SYNTH_SHARED},
    {"exaone-moe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                       SL_SYNTH_DENSE_LEAD | SL_SYNTH_WINDOW},
    {"dots1", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                  SL_SYNTH_DENSE_LEAD},
    {"deepseek", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_EXPERT_FF | SL_SYNTH_DENSE_LEAD},
    {"bailingmoe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_EXPERT_FF},
    {"bailingmoe2", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                        SL_SYNTH_DENSE_LEAD},
    {"minimax-m2", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_ROW},
    {"glm4moe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                    SL_SYNTH_DENSE_LEAD | SL_SYNTH_POST_NORM},
    {"llama4", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_EXPERT_FF},
    {"afmoe", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                  SL_SYNTH_DENSE_LEAD | SL_SYNTH_WINDOW},
    {"laguna", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                   SL_SYNTH_DENSE_LEAD | SL_SYNTH_WINDOW},
    {"cohere2moe",
     SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_EXPERT_FF | SL_SYNTH_DENSE_LEAD | SL_SYNTH_WINDOW},
    {"dbrx", SL_SYNTH_MOE},
    {"grok", SL_SYNTH_MOE | SL_SYNTH_EXPERT_FF},
    {"mimo2",
     SL_SYNTH_MOE | SL_SYNTH_EXPERT_FF | SL_SYNTH_DENSE_LEAD | SL_SYNTH_WINDOW | SL_SYNTH_SINKS},
    {"mistral4",
     SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF | SL_SYNTH_LATENT},
    {"minimax-m3", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                       SL_SYNTH_DENSE_LEAD | SL_SYNTH_CLAMPED | SL_SYNTH_BLOCKS},
    {"dots3note", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF |
                      SL_SYNTH_LATENT | SL_SYNTH_INDEX | SL_SYNTH_NOTE},
    {"deepseek32", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF |
                       SL_SYNTH_LATENT | SL_SYNTH_INDEX},
    {"deepseek4",
     SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_EXPERT_FF | SL_SYNTH_WINDOW | SL_SYNTH_V4},
    {"glm-dsa", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF |
                    SL_SYNTH_LATENT | SL_SYNTH_INDEX | SL_SYNTH_INDEX_SOME},
    {"kimi-linear", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF |
                        SL_SYNTH_LATENT | SL_SYNTH_KDA},
    {"kimi-k3", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF |
                    SL_SYNTH_LATENT | SL_SYNTH_KDA | SL_SYNTH_K3},
    {"bailingmoe3", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_DENSE_LEAD | SL_SYNTH_EXPERT_FF |
                        SL_SYNTH_LATENT | SL_SYNTH_KDA | SL_SYNTH_LING3},
    {"arctic", SL_SYNTH_MOE},
    {"grovemoe", SL_SYNTH_MOE | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF | SL_SYNTH_ADJUGATE},
    {"mistral3", SL_SYNTH_MAY_MOE},
    {"step35", SL_SYNTH_MOE | SL_SYNTH_SHARED | SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_EXPERT_FF |
                   SL_SYNTH_DENSE_LEAD | SL_SYNTH_WINDOW},
};

const char *sl_synth_arch_at(uint32_t i) {
    return i < sizeof families / sizeof *families ? families[i].arch : NULL;
}

const struct sl_synth_family *sl_synth_family_find(const char *arch) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].arch, arch) == 0)
            return &families[i];
    return NULL;
}

uint32_t sl_synth_parts(const char *arch) {
    static const struct {
        const char *arch;
        uint32_t parts;
    } own[] = {
        {"smallthinker", SL_SYNTH_SMALLTHINKER | SL_SYNTH_PATTERN | SL_SYNTH_FULL_FIRST},
        {"maple", SL_SYNTH_MAPLE | SL_SYNTH_PATTERN},
        {"phimoe", SL_SYNTH_PHI},
        {"jamba", SL_SYNTH_MAMBA1},
        {"granitehybrid", SL_SYNTH_GRANITE | SL_SYNTH_MAMBA},
        {"nemotron_h", SL_SYNTH_MAMBA},
        {"nemotron_h_moe", SL_SYNTH_MAMBA | SL_SYNTH_SIGMOID | SL_SYNTH_NEXTN},
        {"lfm2moe", SL_SYNTH_SIGMOID | SL_SYNTH_CONV},
        {"hy_v3", SL_SYNTH_SIGMOID | SL_SYNTH_NEXTN | SL_SYNTH_HY3},
        {"mellum", SL_SYNTH_PATTERN},
        {"granitemoe", SL_SYNTH_GRANITE},
        {"exaone-moe", SL_SYNTH_SIGMOID | SL_SYNTH_NEXTN | SL_SYNTH_NEXTN_DENSE | SL_SYNTH_PATTERN},
        {"dots1", SL_SYNTH_SIGMOID | SL_SYNTH_COUNTED},
        {"deepseek", SL_SYNTH_COUNTED},
        {"deepseek4", SL_SYNTH_COUNTED},
        {"bailingmoe", SL_SYNTH_COUNTED | SL_SYNTH_WEIGHTS_NORM},
        {"bailingmoe2", SL_SYNTH_SIGMOID | SL_SYNTH_COUNTED | SL_SYNTH_SHARED_EACH |
                            SL_SYNTH_NEXTN | SL_SYNTH_NEXTN_OUT},
        {"minimax-m2", SL_SYNTH_SIGMOID | SL_SYNTH_BOTH_FF},
        {"minimax-m3", SL_SYNTH_SIGMOID | SL_SYNTH_COUNTED},
        {"glm4moe", SL_SYNTH_SIGMOID | SL_SYNTH_COUNTED | SL_SYNTH_NEXTN | SL_SYNTH_MAY_NORM |
                        SL_SYNTH_MAY_SECTIONS | SL_SYNTH_MAY_BIAS},
        {"llama4", SL_SYNTH_LLAMA4},
        {"afmoe", SL_SYNTH_GATE | SL_SYNTH_SANDWICH | SL_SYNTH_SIGMOID | SL_SYNTH_COUNTED |
                      SL_SYNTH_PATTERN},
        {"laguna", SL_SYNTH_GATE | SL_SYNTH_SIGMOID | SL_SYNTH_PATTERN | SL_SYNTH_FULL_FIRST},
        {"cohere2moe", SL_SYNTH_PARALLEL | SL_SYNTH_LAYER_NORM | SL_SYNTH_COUNTED |
                           SL_SYNTH_PATTERN | SL_SYNTH_FULL_FIRST},
        {"dbrx", SL_SYNTH_LAYER_NORM | SL_SYNTH_DBRX},
        {"grok", SL_SYNTH_GROK},
        {"mimo2", SL_SYNTH_SIGMOID | SL_SYNTH_PATTERN | SL_SYNTH_MIMO},
        {"arctic", SL_SYNTH_ARCTIC},
        {"mistral3", SL_SYNTH_TEMPER},
        {"step35",
         SL_SYNTH_SIGMOID | SL_SYNTH_PATTERN | SL_SYNTH_GATE | SL_SYNTH_STEP | SL_SYNTH_NEXTN},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i].arch, arch) == 0)
            return own[i].parts;
    return 0;
}

/* Appends a tensor; a NULL plan->tensors afterwards means out of memory. */
static void add(struct sl_synth_plan *p, enum sl_dtype dtype, enum sl_synth_fill fill, float std,
                uint64_t ne0, uint64_t ne1, uint64_t ne2, const char *suffix, int layer) {
    if (p->n == p->cap) {
        uint32_t cap = p->cap ? p->cap * 2 : 64;
        struct sl_synth_tensor *t =
            p->cap && !p->tensors ? NULL : realloc(p->tensors, cap * sizeof *t);
        if (!t)
            free(p->tensors);
        p->tensors = t;
        p->cap = cap;
    }
    if (!p->tensors) {
        p->n++;
        return;
    }
    struct sl_synth_tensor *t = &p->tensors[p->n++];
    memset(t, 0, sizeof *t);
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", suffix);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, suffix);
    t->dtype = sl_synth_fit_dtype(dtype, ne0);
    t->fill = fill;
    t->std = std;
    t->ne[0] = ne0;
    t->ne[1] = ne1 ? ne1 : 1;
    t->ne[2] = ne2 ? ne2 : 1;
    t->n_dims = ne2 ? 3 : ne1 ? 2 : 1;
}

static void add_norm(struct sl_synth_plan *p, uint64_t n, const char *suffix, int layer) {
    add(p, SL_DTYPE_F32, SL_FILL_NORM, 0.1f, n, 0, 0, suffix, layer);
}

static enum sl_dtype pick(const struct sl_synth_types *types, uint32_t layer) {
    return types->dtype[layer % types->n];
}

/* A dense part next to experts. */
static void add_dense(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l,
                      uint64_t ff) {
    int i = (int)l;
    uint64_t n = c->n_embd;
    float in = 1 / sqrtf((float)n);
    enum sl_dtype ffn = pick(&c->ffn, l);
    add(p, ffn, SL_FILL_RANDOM, in, n, ff, 0, "ffn_gate.weight", i);
    add(p, ffn, SL_FILL_RANDOM, in, n, ff, 0, "ffn_up.weight", i);
    add(p, ffn, SL_FILL_RANDOM, 1 / sqrtf((float)ff), ff, n, 0, "ffn_down.weight", i);
}

/* Of a layer of gemma4 what no other family has; before it experts [n_ff_expert] if there are any.
 */
static void add_gemma4(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd;
    add_norm(p, n, "post_attention_norm.weight", i);
    add_norm(p, n, "post_ffw_norm.weight", i);
    add_norm(p, 1, "layer_output_scale.weight", i);
    if (c->n_embd_layer) {
        uint64_t own = c->n_embd_layer;
        float share = 1 / sqrtf(2.0f * (float)c->n_layer);
        enum sl_dtype dtype = pick(&c->ffn, l);
        add(p, dtype, SL_FILL_RANDOM, 1 / sqrtf((float)n), n, own, 0, "inp_gate.weight", i);
        add(p, dtype, SL_FILL_RANDOM, share / sqrtf((float)own), own, n, 0, "proj.weight", i);
        add_norm(p, n, "post_norm.weight", i);
    }
    if (!sl_synth_experts(c, l))
        return;
    add_norm(p, n, "post_ffw_norm_1.weight", i);
    add_norm(p, n, "post_ffw_norm_2.weight", i);
    add_norm(p, n, "pre_ffw_norm_2.weight", i);
    add_norm(p, n, "ffn_gate_inp.scale", i);
    add_norm(p, sl_synth_experts(c, l), "ffn_down_exps.scale", i);
    add_dense(p, c, l, c->n_ff);
}

/* A gated delta net. */
static void add_delta(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t traits,
                      uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd, heads = c->n_delta_head, v = heads * c->delta_dim;
    uint64_t qkv = 2 * (uint64_t)c->n_delta_head_k * c->delta_dim + v;
    float in = 1 / sqrtf((float)n), share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    enum sl_dtype attn = pick(&c->attn, l);
    add(p, attn, SL_FILL_RANDOM, in, n, qkv, 0, "attn_qkv.weight", i);
    add(p, attn, SL_FILL_RANDOM, in, n, v, 0, "attn_gate.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.5f, c->n_taps, qkv, 0, "ssm_conv1d.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1, heads, 0, 0, "ssm_dt.bias", i);
    add(p, SL_DTYPE_F32, SL_FILL_DECAY, 1, heads, 0, 0, "ssm_a", i);
    if (traits & SL_SYNTH_DELTA_BA) {
        add(p, attn, SL_FILL_RANDOM, in, n, 2 * heads, 0, "ssm_ba.weight", i);
    } else {
        add(p, attn, SL_FILL_RANDOM, in, n, heads, 0, "ssm_beta.weight", i);
        add(p, attn, SL_FILL_RANDOM, in, n, heads, 0, "ssm_alpha.weight", i);
    }
    add_norm(p, c->delta_dim, "ssm_norm.weight", i);
    add(p, attn, SL_FILL_RANDOM, share / (0.6f * sqrtf((float)v)), v, n, 0, "ssm_out.weight", i);
}

/* A short convolution between gates, whose product of three has unit size. */
static void add_conv(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd;
    float in = 1 / sqrtf((float)n), share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    enum sl_dtype attn = pick(&c->attn, l);
    add(p, attn, SL_FILL_RANDOM, in, n, 3 * n, 0, "shortconv.in_proj.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1 / sqrtf((float)c->n_taps), c->n_taps, n, 0,
        "shortconv.conv.weight", i);
    add(p, attn, SL_FILL_RANDOM, share * in, n, n, 0, "shortconv.out_proj.weight", i);
}

/* Mamba-2, whose output is normed. */
static void add_mamba(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd, heads = c->n_delta_head, inner = heads * c->delta_dim;
    uint64_t conv = inner + 2 * (uint64_t)c->n_delta_head_k * c->n_state;
    float share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    enum sl_dtype attn = pick(&c->attn, l);
    add(p, attn, SL_FILL_RANDOM, 1 / sqrtf((float)n), n, inner + conv + heads, 0, "ssm_in.weight",
        i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.5f, c->n_taps, conv, 0, "ssm_conv1d.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.2f, conv, 0, 0, "ssm_conv1d.bias", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1, heads, 0, 0, "ssm_dt.bias", i);
    add(p, SL_DTYPE_F32, SL_FILL_DECAY, 1, 1, heads, 0, "ssm_a", i);
    add(p, SL_DTYPE_F32, SL_FILL_NORM, 0.5f, 1, heads, 0, "ssm_d", i);
    add(p, SL_DTYPE_F32, SL_FILL_NORM, 0.1f, inner / c->n_delta_head_k, c->n_delta_head_k, 0,
        "ssm_norm.weight", i);
    add(p, attn, SL_FILL_RANDOM, share / sqrtf((float)inner), inner, n, 0, "ssm_out.weight", i);
}

/* Mamba-1 of 2 n_embd channels, whose time steps have a rank of delta_dim. */
static void add_mamba1(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd, inner = 2 * n, rank = c->delta_dim, state = c->n_state;
    float share = 1.0f / sqrtf(2.0f * (float)c->n_layer), of_inner = 1 / sqrtf((float)inner);
    enum sl_dtype attn = pick(&c->attn, l);
    add(p, attn, SL_FILL_RANDOM, 1 / sqrtf((float)n), n, 2 * inner, 0, "ssm_in.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.5f, c->n_taps, inner, 0, "ssm_conv1d.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.2f, inner, 0, 0, "ssm_conv1d.bias", i);
    add(p, attn, SL_FILL_RANDOM, of_inner, inner, rank + 2 * state, 0, "ssm_x.weight", i);
    add_norm(p, rank, "ssm_dt_norm.weight", i);
    add_norm(p, state, "ssm_b_norm.weight", i);
    add_norm(p, state, "ssm_c_norm.weight", i);
    add(p, attn, SL_FILL_RANDOM, 1 / sqrtf((float)rank), rank, inner, 0, "ssm_dt.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1, inner, 0, 0, "ssm_dt.bias", i);
    add(p, SL_DTYPE_F32, SL_FILL_DECAY, 1, state, inner, 0, "ssm_a", i);
    add(p, SL_DTYPE_F32, SL_FILL_NORM, 0.5f, inner, 0, 0, "ssm_d", i);
    add(p, attn, SL_FILL_RANDOM, share * of_inner, inner, n, 0, "ssm_out.weight", i);
}

/* Latent attention. The latent is normed, so that keys and values have about unit size. */
static void add_latent(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t traits,
                       uint32_t l) {
    int i = (int)l;
    bool own = traits & SL_SYNTH_NOTE && sl_synth_note_window(c, l); /* a shape of its own */
    uint64_t n = c->n_embd, heads = own && c->n_head_window ? c->n_head_window : c->n_head;
    uint64_t dim = own && c->head_dim_window ? c->head_dim_window : c->head_dim;
    uint64_t dim_v = own && c->head_dim_v_window ? c->head_dim_v_window : c->head_dim_v;
    uint64_t latent = own && c->n_latent_window ? c->n_latent_window : c->n_latent;
    uint64_t q = heads * dim, o = heads * dim_v;
    uint64_t rot = sl_synth_latent_rot(c), nope = dim - rot, low = sl_synth_lora_q(c);
    float in = 1 / sqrtf((float)n), of_latent = 1 / sqrtf((float)latent);
    float share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    enum sl_dtype attn = pick(&c->attn, l);
    if (low) {
        add(p, attn, SL_FILL_RANDOM, in, n, low, 0, "attn_q_a.weight", i);
        add_norm(p, low, "attn_q_a_norm.weight", i);
        add(p, attn, SL_FILL_RANDOM, 1 / sqrtf((float)low), low, q, 0, "attn_q_b.weight", i);
    } else {
        add(p, attn, SL_FILL_RANDOM, in, n, q, 0, "attn_q.weight", i);
    }
    add(p, attn, SL_FILL_RANDOM, in, n, latent + rot, 0, "attn_kv_a_mqa.weight", i);
    add_norm(p, latent, "attn_kv_a_norm.weight", i);
    if (traits & SL_SYNTH_NOTE)
        add_norm(p, rot, "attn_k_norm.weight", i);
    if (c->joined_kv) {
        add(p, attn, SL_FILL_RANDOM, of_latent, latent, heads * (nope + dim_v), 0,
            "attn_kv_b.weight", i);
    } else {
        add(p, attn, SL_FILL_RANDOM, of_latent, nope, latent, heads, "attn_k_b.weight", i);
        add(p, attn, SL_FILL_RANDOM, of_latent, latent, dim_v, heads, "attn_v_b.weight", i);
    }
    if (traits & (SL_SYNTH_LING3 | SL_SYNTH_NOTE))
        add(p, attn, SL_FILL_RANDOM, in, n, heads, 0, "attn_gate.weight", i);
    if (traits & SL_SYNTH_K3)
        add(p, attn, SL_FILL_RANDOM, in, n, o, 0, "attn_gate.weight", i);
    add(p, attn, SL_FILL_RANDOM, share / sqrtf((float)o), o, n, 0, "attn_output.weight", i);
}

/* An indexer, whose queries come from those of the attention. */
static void add_indexer(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd, low = sl_synth_lora_q(c), heads = c->n_index_head, dim = c->index_dim;
    float in = 1 / sqrtf((float)n);
    enum sl_dtype attn = pick(&c->attn, l);
    add(p, attn, SL_FILL_RANDOM, 1 / sqrtf((float)low), low, heads * dim, 0,
        "indexer.attn_q_b.weight", i);
    add(p, attn, SL_FILL_RANDOM, in, n, dim, 0, "indexer.attn_k.weight", i);
    add_norm(p, dim, "indexer.k_norm.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.1f, dim, 0, 0, "indexer.k_norm.bias", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, in, n, heads, 0, "indexer.proj.weight", i);
}

/* Of a part the weights between the streams. */
static void add_streams(struct sl_synth_plan *p, const struct sl_synth_config *c, const char *part,
                        uint32_t l) {
    uint64_t n = SL_SYNTH_STREAMS, row = n * c->n_embd, weights = n * (2 + n);
    char name[64];
    snprintf(name, sizeof name, "hc_%s_fn.weight", part);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1 / sqrtf((float)row), row, weights, 0, name, (int)l);
    snprintf(name, sizeof name, "hc_%s_base.weight", part);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.7f, weights, 0, 0, name, (int)l);
    snprintf(name, sizeof name, "hc_%s_scale.weight", part);
    add_norm(p, 3, name, (int)l);
}

/* What becomes rows of blocks, or their keys: n elements of each. */
static void add_compressor(struct sl_synth_plan *p, const struct sl_synth_config *c,
                           const char *part, uint64_t n, uint32_t l) {
    uint64_t ratio = sl_synth_ratio(c, l), width = ratio == 4 ? 2 * n : n;
    float in = 1 / sqrtf((float)c->n_embd);
    enum sl_dtype attn = pick(&c->attn, l);
    char name[64];
    snprintf(name, sizeof name, "%s_compressor_kv.weight", part);
    add(p, attn, SL_FILL_RANDOM, in, c->n_embd, width, 0, name, (int)l);
    snprintf(name, sizeof name, "%s_compressor_gate.weight", part);
    add(p, attn, SL_FILL_RANDOM, in, c->n_embd, width, 0, name, (int)l);
    snprintf(name, sizeof name, "%s_compressor_ape.weight", part);
    add(p, attn, SL_FILL_RANDOM, 0.5f, width, ratio, 0, name, (int)l);
    snprintf(name, sizeof name, "%s_compressor_norm.weight", part);
    add_norm(p, n, name, (int)l);
}

/* Compressed attention, whose rows are normed: keys and values have about unit size. */
static void add_compressed(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd, dim = c->head_dim, heads = c->n_head, low = sl_synth_lora_q(c);
    uint64_t group = heads * dim / c->n_group_out, out = c->n_group_out * (uint64_t)c->n_lora_out;
    float in = 1 / sqrtf((float)n), of_low = 1 / sqrtf((float)low);
    float share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    enum sl_dtype attn = pick(&c->attn, l);
    add_streams(p, c, "attn", l);
    add_streams(p, c, "ffn", l);
    add(p, attn, SL_FILL_RANDOM, in, n, low, 0, "attn_q_a.weight", i);
    add_norm(p, low, "attn_q_a_norm.weight", i);
    add(p, attn, SL_FILL_RANDOM, of_low, low, heads * dim, 0, "attn_q_b.weight", i);
    add(p, attn, SL_FILL_RANDOM, in, n, dim, 0, "attn_kv.weight", i);
    add_norm(p, dim, "attn_kv_a_norm.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1.5f, heads, 0, 0, "attn_sinks.weight", i);
    add(p, attn, SL_FILL_RANDOM, 2 / sqrtf((float)group), group, out, 0, "attn_output_a.weight", i);
    add(p, attn, SL_FILL_RANDOM, share / sqrtf((float)out), out, n, 0, "attn_output_b.weight", i);
    if (sl_synth_ratio(c, l))
        add_compressor(p, c, "attn", dim, l);
    if (sl_synth_ratio(c, l) != 4)
        return;
    add_compressor(p, c, "indexer", c->index_dim, l);
    add(p, attn, SL_FILL_RANDOM, of_low, low, (uint64_t)c->n_index_head * c->index_dim, 0,
        "indexer.attn_q_b.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, in, n, c->n_index_head, 0, "indexer.proj.weight", i);
}

/* Hyper-connections by way of a low rank: of the output (l < 0), or of a part of a layer. */
static void add_low_streams(struct sl_synth_plan *p, const struct sl_synth_config *c,
                            const char *part, int l) {
    uint64_t row = (uint64_t)SL_SYNTH_STREAMS * c->n_embd, rank = c->n_lora_out;
    float in = (float)SL_SYNTH_STREAMS / sqrtf((float)row), low = 2 / sqrtf((float)rank);
    enum sl_dtype dtype = pick(&c->attn, l < 0 ? 0 : (uint32_t)l);
    char name[64];
    snprintf(name, sizeof name, "%s_norm.weight", part);
    add_norm(p, row, name, l);
    snprintf(name, sizeof name, "%s_down.weight", part);
    add(p, dtype, SL_FILL_RANDOM, in, row, rank, 0, name, l);
    snprintf(name, sizeof name, "%s_up.weight", part);
    add(p, dtype, SL_FILL_RANDOM, low, rank, row, 0, name, l);
    snprintf(name, sizeof name, "%s_inject.weight", part);
    if (l >= 0)
        add(p, dtype, SL_FILL_RANDOM, in, row, SL_SYNTH_STREAMS, 0, name, l);
}

/* Embeddings of n-grams, but for their table. */
static void add_ngrams(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    static const char *const norms[] = {"ple_norm_key.weight", "ple_norm_query.weight",
                                        "ple_norm_conv.weight"};
    uint64_t n = c->n_embd, row = SL_SYNTH_STREAMS * n;
    float in = 1 / sqrtf((float)n);
    enum sl_dtype dtype = pick(&c->attn, l);
    add(p, dtype, SL_FILL_RANDOM, in, n, row, 0, "ple_key.weight", (int)l);
    add(p, dtype, SL_FILL_RANDOM, 0.5f * in, n, n, 0, "ple_value.weight", (int)l);
    for (uint32_t i = 0; i < 3; i++)
        add_norm(p, row, norms[i], (int)l);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.3f, 4, row, 0, "ple_conv1d.weight", (int)l);
}

/* One that chooses blocks of positions, n_head of them. */
static void add_block_indexer(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l,
                              uint32_t n_head) {
    int i = (int)l;
    uint64_t n = c->n_embd, dim = c->index_dim;
    float in = 1 / sqrtf((float)n);
    enum sl_dtype attn = pick(&c->attn, l);
    add(p, attn, SL_FILL_RANDOM, in, n, n_head * dim, 0, "indexer.q_proj.weight", i);
    add(p, attn, SL_FILL_RANDOM, in, n, dim, 0, "indexer.k_proj.weight", i);
    add_norm(p, dim, "indexer.q_norm.weight", i);
    add_norm(p, dim, "indexer.k_norm.weight", i);
}

/* Behind the last layer: what drafts tokens has a layer, and what joins a token to its state. */
static void add_nextn(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    uint64_t n = c->n_embd;
    add(p, pick(&c->attn, l), c->nextn_right ? SL_FILL_FIRST_HALF : SL_FILL_RANDOM,
        1 / sqrtf(2 * (float)n), 2 * n, n, 0, "nextn.eh_proj.weight", (int)l);
    add_norm(p, n, "nextn.enorm.weight", (int)l);
    add_norm(p, n, "nextn.hnorm.weight", (int)l);
    bool ling3 = sl_synth_family_find(c->arch)->traits & SL_SYNTH_LING3;
    add_norm(p, n, ling3 ? "layer_output_norm.weight" : "nextn.shared_head_norm.weight", (int)l);
    if (c->nextn_right)
        add(p, c->output, SL_FILL_SOME, 1 / sqrtf((float)n), n, c->n_vocab, 0,
            "nextn.shared_head_head.weight", (int)l);
    if (sl_synth_parts(c->arch) & SL_SYNTH_NEXTN_OUT)
        add_norm(p, n, "layer_output_norm.weight", (int)l);
}

static void add_attention(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t traits,
                          uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd;
    uint32_t head_dim = sl_synth_head_dim(c, l);
    uint32_t parts = sl_synth_parts(c->arch), n_head = sl_synth_heads(c, l);
    uint64_t q = (uint64_t)n_head * head_dim;
    uint64_t kv = (uint64_t)sl_synth_kv_heads(c, l) * head_dim, vdim = sl_synth_value_dim(c, l);
    uint64_t v = sl_synth_kv_heads(c, l) * vdim, o = n_head * vdim;
    float in = 1 / sqrtf((float)n);
    /* Each block adds a share of the residual's size such that all layers together about double
     * it: enough to matter to the answer, little enough that the embedding still leads routing. */
    float share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    enum sl_dtype attn = pick(&c->attn, l);

    uint64_t gated = traits & SL_SYNTH_DELTA ? 2 * q : q;
    if (c->fused_qkv || parts & SL_SYNTH_DBRX) {
        add(p, attn, SL_FILL_RANDOM, in, n, gated + kv + v, 0, "attn_qkv.weight", i);
    } else {
        add(p, attn, SL_FILL_RANDOM, in, n, gated, 0, "attn_q.weight", i);
        bool keeps = l + c->n_shared_kv < c->n_layer || !c->n_shared_kv;
        if (keeps)
            add(p, attn, SL_FILL_RANDOM, in, n, kv, 0, "attn_k.weight", i);
        if (keeps && (!(traits & SL_SYNTH_GEMMA4) || sl_synth_has_window(c, l)))
            add(p, attn, SL_FILL_RANDOM, in, n, v, 0, "attn_v.weight", i);
    }
    if (parts & SL_SYNTH_GATE)
        add(p, attn, SL_FILL_RANDOM, in, n, c->gate_heads || parts & SL_SYNTH_STEP ? n_head : o, 0,
            "attn_gate.weight", i);
    if (parts & (SL_SYNTH_SANDWICH | SL_SYNTH_GROK))
        add_norm(p, n,
                 parts & SL_SYNTH_GROK ? "attn_output_norm.weight" : "post_attention_norm.weight",
                 i);
    add(p, attn, SL_FILL_RANDOM, share / sqrtf((float)o), o, n, 0, "attn_output.weight", i);
    if (traits & SL_SYNTH_QKV_BIAS || c->qkv_bias) {
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.2f, q, 0, 0, "attn_q.bias", i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.2f, kv, 0, 0, "attn_k.bias", i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.2f, kv, 0, 0, "attn_v.bias", i);
    }
    if (traits & (SL_SYNTH_QK_NORM_HEAD | SL_SYNTH_QK_NORM_ROW) && !c->no_qk_norm) {
        bool row = traits & SL_SYNTH_QK_NORM_ROW;
        add_norm(p, row ? q : head_dim, "attn_q_norm.weight", i);
        if (l + c->n_shared_kv < c->n_layer || !c->n_shared_kv)
            add_norm(p, row ? kv : head_dim, "attn_k_norm.weight", i);
    }
    if (traits & SL_SYNTH_OUT_BIAS)
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.2f * share, n, 0, 0, "attn_output.bias", i);
    if (traits & SL_SYNTH_SINKS && (!(parts & SL_SYNTH_MIMO) || sl_synth_has_window(c, l)))
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1.5f, n_head, 0, 0, "attn_sinks.weight", i);
}

/* Kimi Delta Attention of n_head heads, of delta_dim elements. */
static void add_kda(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t traits,
                    uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd, dim = c->delta_dim, heads = c->n_head, inner = heads * dim;
    float in = 1 / sqrtf((float)n), of_dim = 1 / sqrtf((float)dim);
    float share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    enum sl_dtype attn = pick(&c->attn, l);
    static const char *const qkv[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight"};
    static const char *const taps[] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                       "ssm_conv1d_v.weight"};
    for (uint32_t k = 0; k < 3; k++) {
        add(p, attn, SL_FILL_RANDOM, in, n, inner, 0, qkv[k], i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.5f, c->n_taps, 1, inner, taps[k], i);
    }
    bool full = traits & SL_SYNTH_LING3, flat = traits & SL_SYNTH_K3;
    uint64_t low = full ? inner : dim;
    add(p, attn, SL_FILL_RANDOM, in, n, low, 0, "ssm_f_a.weight", i);
    if (!full)
        add(p, attn, SL_FILL_RANDOM, of_dim, dim, inner, 0, "ssm_f_b.weight", i);
    add(p, attn, SL_FILL_RANDOM, in, n, heads, 0, "ssm_beta.weight", i);
    add(p, SL_DTYPE_F32, full ? SL_FILL_GROWTH : SL_FILL_DECAY, 1, flat ? heads : 1,
        flat ? 0 : heads, 0, "ssm_a", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1, inner, 0, 0, "ssm_dt.bias", i);
    if (flat)
        add(p, attn, SL_FILL_RANDOM, in, n, inner, 0, "ssm_g.weight", i);
    else
        add(p, attn, SL_FILL_RANDOM, in, n, low, 0, "ssm_g_a.weight", i);
    if (!full && !flat)
        add(p, attn, SL_FILL_RANDOM, of_dim, dim, inner, 0, "ssm_g_b.weight", i);
    add_norm(p, dim, "ssm_norm.weight", i);
    add(p, attn, SL_FILL_RANDOM, 2 * share / sqrtf((float)inner), inner, n, 0, "attn_output.weight",
        i);
}

/* A feed-forward part without a gate. The square of a unit normal's positive part has a root mean
 * square of 1.2. */
static void add_squared(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd, ff = c->n_ff_expert, ne = c->n_expert, sh = c->n_ff_shared;
    uint64_t low = c->n_expert_latent ? c->n_expert_latent : n;
    float in = 1 / sqrtf((float)n), of_low = 1 / sqrtf((float)low), mid = 1.2f;
    float share = 1.0f / sqrtf((float)c->n_layer);
    enum sl_dtype ffn = pick(&c->ffn, l);
    if (!ne) {
        add(p, ffn, SL_FILL_RANDOM, in, n, c->n_ff, 0, "ffn_up.weight", i);
        add(p, ffn, SL_FILL_RANDOM, share / (mid * sqrtf((float)c->n_ff)), c->n_ff, n, 0,
            "ffn_down.weight", i);
        return;
    }
    float down = sqrtf((float)sl_synth_used(c, l)) / (mid * sqrtf((float)ff));
    add(p, SL_DTYPE_F32, SL_FILL_ROUTER, 2 * in, n, ne, 0, "ffn_gate_inp.weight", i);
    add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.1f, ne, 0, 0, "exp_probs_b.bias", i);
    if (c->n_expert_latent) {
        add(p, ffn, SL_FILL_RANDOM, in, n, low, 0, "ffn_latent_down.weight", i);
        add(p, ffn, SL_FILL_RANDOM, share * of_low, low, n, 0, "ffn_latent_up.weight", i);
    }
    add(p, pick(&c->up, l), SL_FILL_RANDOM, of_low, low, ff, ne, "ffn_up_exps.weight", i);
    add(p, pick(&c->down, l), SL_FILL_RANDOM, c->n_expert_latent ? down : share * down, ff, low, ne,
        "ffn_down_exps.weight", i);
    add(p, ffn, SL_FILL_RANDOM, in, n, sh, 0, "ffn_up_shexp.weight", i);
    add(p, ffn, SL_FILL_RANDOM, share / (mid * sqrtf((float)sh)), sh, n, 0, "ffn_down_shexp.weight",
        i);
}

/* Has it residual attention? */
static bool k3_streams(const struct sl_synth_config *c, uint32_t traits) {
    return traits & SL_SYNTH_K3 && c->keep_every;
}

static void add_layer(struct sl_synth_plan *p, const struct sl_synth_config *c, uint32_t traits,
                      uint32_t l) {
    int i = (int)l;
    uint64_t n = c->n_embd;
    float in = 1 / sqrtf((float)n), share = 1.0f / sqrtf(2.0f * (float)c->n_layer);
    if (!(traits & SL_SYNTH_FLASH))
        add_norm(p, n, "attn_norm.weight", i);
    if (k3_streams(c, traits)) {
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.7f * in, n, 0, 0, "attn_res_score.weight", i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.7f * in, n, 0, 0, "ffn_res_score.weight", i);
    }
    if (traits & SL_SYNTH_ONE_PART && l >= c->n_layer) {
        add_attention(p, c, traits, l);
        add_norm(p, n, "post_attention_norm.weight", i);
    }
    if (traits & SL_SYNTH_ONE_PART && sl_synth_part(c, l) == 'E') {
        add_squared(p, c, l);
        return;
    }
    if (sl_synth_parts(c->arch) & SL_SYNTH_PHI) {
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.1f, n, 0, 0, "attn_norm.bias", i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.1f, n, 0, 0, "ffn_norm.bias", i);
    }
    if (traits & SL_SYNTH_LATENT && sl_synth_has_indexer(c, traits, l))
        add_indexer(p, c, l);
    if (traits & SL_SYNTH_BLOCKS && sl_synth_experts(c, l))
        add_block_indexer(p, c, l, c->n_head_kv);
    if (traits & SL_SYNTH_FLASH) {
        add_low_streams(p, c, "hc_attn", i);
        add_low_streams(p, c, "hc_ffn", i);
        if (sl_synth_attends(c, traits, l))
            add_block_indexer(p, c, l, c->n_index_head);
        if (l == sl_synth_ngram_layer(c))
            add_ngrams(p, c, l);
    }
    if (traits & SL_SYNTH_V4)
        add_compressed(p, c, l);
    else if (sl_synth_has_kda(c, traits, l))
        add_kda(p, c, traits, l);
    else if (traits & SL_SYNTH_LATENT)
        add_latent(p, c, traits, l);
    else if (sl_synth_attends(c, traits, l))
        add_attention(p, c, traits, l);
    else if (sl_synth_parts(c->arch) & SL_SYNTH_CONV)
        add_conv(p, c, l);
    else if (sl_synth_parts(c->arch) & SL_SYNTH_MAMBA)
        add_mamba(p, c, l);
    else if (sl_synth_parts(c->arch) & SL_SYNTH_MAMBA1)
        add_mamba1(p, c, l);
    else
        add_delta(p, c, traits, l);
    if (traits & SL_SYNTH_ONE_PART)
        return;
    uint32_t parts = sl_synth_parts(c->arch);
    if (!(parts & SL_SYNTH_PARALLEL) && !(traits & SL_SYNTH_FLASH))
        add_norm(p, n,
                 traits & SL_SYNTH_POST_NORM ? "post_attention_norm.weight"
                 : parts & SL_SYNTH_DBRX     ? "attn_output_norm.weight"
                                             : "ffn_norm.weight",
                 i);
    if (traits & SL_SYNTH_GEMMA4)
        add_gemma4(p, c, l);
    if (parts & SL_SYNTH_SANDWICH)
        add_norm(p, n, "post_ffw_norm.weight", i);
    if (parts & SL_SYNTH_GROK)
        add_norm(p, n, c->with_dense ? "post_ffw_norm.weight" : "layer_output_norm.weight", i);
    if (c->with_dense)
        add_dense(p, c, l, c->n_ff);
    if (parts & SL_SYNTH_ARCTIC) {
        add_norm(p, n, "ffn_norm_exps.weight", i);
        add_dense(p, c, l, c->n_embd);
    }

    /* silu(g) * u of two unit normals has a standard deviation of 0.6. Where it is clamped gate and
     * up are so wide that one value in fifty is; its root mean square is then 6.4. */
    float mid = traits & SL_SYNTH_CLAMPED ? 6.4f : 0.6f, wide = traits & SL_SYNTH_CLAMPED ? 3 : 1;
    bool dense = (parts & SL_SYNTH_NEXTN_DENSE || traits & SL_SYNTH_NOTE) && l >= c->n_layer;
    if (!sl_synth_experts(c, l) || dense) {
        uint64_t ff = parts & SL_SYNTH_MAMBA1 ? c->n_ff_expert : c->n_ff; /* one key for both */
        enum sl_dtype ffn = pick(&c->ffn, l);
        add(p, ffn, SL_FILL_RANDOM, wide * in, n, ff, 0, "ffn_gate.weight", i);
        add(p, ffn, SL_FILL_RANDOM, wide * in, n, ff, 0, "ffn_up.weight", i);
        add(p, ffn, SL_FILL_RANDOM, share / (mid * sqrtf((float)ff)), ff, n, 0, "ffn_down.weight",
            i);
        return;
    }
    uint64_t ff = c->n_ff_expert, ne = sl_synth_experts(c, l);
    /* The weighted sum of k random outputs shrinks by about sqrt(k). */
    float down = share * sqrtf((float)sl_synth_used(c, l)) / (mid * sqrtf((float)ff));
    /* gemma4 divides the router's logits by sqrt(n). */
    float router = traits & SL_SYNTH_GEMMA4 ? 2 : 2 * in;
    add(p, SL_DTYPE_F32, SL_FILL_ROUTER, router, n, ne, 0, "ffn_gate_inp.weight", i);
    if (traits & SL_SYNTH_V4 && l < c->n_layer_table)
        add(p, SL_DTYPE_I32, SL_FILL_TABLE, 1, c->n_expert_used, c->n_vocab, 0,
            "ffn_gate_tid2eid.weight", i);
    else if (traits & SL_SYNTH_V4)
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.1f, ne, 0, 0, "exp_probs_b.bias", i);
    if (traits & SL_SYNTH_ROUTER_BIAS) /* scores are 1 / n_expert in the mean */
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.3f / (float)ne, ne, 0, 0, "exp_probs_b.bias", i);
    if (sl_synth_sigmoid(c) || parts & SL_SYNTH_SIGMOID) /* scores are around a half */
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.1f, ne, 0, 0,
            parts & SL_SYNTH_HY3 ? "exp_probs_b" : "exp_probs_b.bias", i);
    bool own_rows = traits & SL_SYNTH_K3 && c->n_expert_latent;
    uint64_t low = own_rows ? c->n_expert_latent : n;
    if (own_rows) { /* their sum is normed before it is turned back */
        enum sl_dtype ffn = pick(&c->ffn, l);
        add(p, ffn, SL_FILL_RANDOM, in, n, low, 0, "ffn_routed_down.weight", i);
        add(p, ffn, SL_FILL_RANDOM, share / sqrtf((float)low), low, n, 0, "ffn_routed_up.weight",
            i);
        add_norm(p, low, "ffn_routed_norm.weight", i);
        down /= share;
    }
    float of_low = 1 / sqrtf((float)low);
    if (c->fused_experts) {
        add(p, pick(&c->gate, l), SL_FILL_RANDOM, of_low, low, 2 * ff, ne,
            "ffn_gate_up_exps.weight", i);
    } else {
        add(p, pick(&c->gate, l), SL_FILL_RANDOM, wide * of_low, low, ff, ne,
            "ffn_gate_exps.weight", i);
        add(p, pick(&c->up, l), SL_FILL_RANDOM, wide * of_low, low, ff, ne, "ffn_up_exps.weight",
            i);
    }
    add(p, pick(&c->down, l), SL_FILL_RANDOM, down, ff, low, ne, "ffn_down_exps.weight", i);
    if (traits & SL_SYNTH_ADJUGATE) {
        /* They read the routed experts' sum, which is small: gate and up make up for it. */
        uint64_t own = c->n_ff_adjugate, many = ne / c->n_per_adjugate;
        float of_sum = in / share;
        add(p, pick(&c->gate, l), SL_FILL_RANDOM, of_sum, n, own, many, "ffn_gate_chexps.weight",
            i);
        add(p, pick(&c->up, l), SL_FILL_RANDOM, of_sum, n, own, many, "ffn_up_chexps.weight", i);
        add(p, pick(&c->down, l), SL_FILL_RANDOM, 10 * down * sqrtf((float)ff) / sqrtf((float)own),
            own, n, many, "ffn_down_chexps.weight", i);
    }
    if (traits & SL_SYNTH_EXPERT_BIAS) {
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.3f, ne, 0, 0, "ffn_gate_inp.bias", i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.3f, ff, ne, 0, "ffn_gate_exps.bias", i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.3f, ff, ne, 0, "ffn_up_exps.bias", i);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.3f * share, n, ne, 0, "ffn_down_exps.bias", i);
    }
    if (traits & SL_SYNTH_SHARED && c->n_ff_shared) {
        uint64_t sh = parts & SL_SYNTH_LLAMA4 ? ff : c->n_ff_shared;
        enum sl_dtype ffn = pick(&c->ffn, l);
        if (traits & SL_SYNTH_SHARED_GATE)
            add(p, SL_DTYPE_F32, SL_FILL_RANDOM, in, n, 0, 0, "ffn_gate_inp_shexp.weight", i);
        add(p, ffn, SL_FILL_RANDOM, wide * in, n, sh, 0, "ffn_gate_shexp.weight", i);
        add(p, ffn, SL_FILL_RANDOM, wide * in, n, sh, 0, "ffn_up_shexp.weight", i);
        add(p, ffn, SL_FILL_RANDOM, share / (mid * sqrtf((float)sh)), sh, n, 0,
            "ffn_down_shexp.weight", i);
    }
}

static enum sl_status refuse_arch(const char *arch, struct sl_err *err) {
    char list[1000] = "";
    size_t n = sizeof families / sizeof *families, len = 0;
    for (size_t i = 0; i < n && len < sizeof list; i++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s",
                                !i          ? ""
                                : i + 1 < n ? ", "
                                            : " or ",
                                families[i].arch);
    return sl_fail(err, SL_ERR_CONFIG, "--arch is '%s': must be %s", arch, list);
}

/* Layers of the list must have enough experts for a row, and dense ones a width of their own. */
static enum sl_status check_each(const struct sl_synth_config *c, uint32_t traits,
                                 struct sl_err *err) {
    if (c->n_each > SL_SYNTH_MAX_EACH)
        return sl_fail(err, SL_ERR_CONFIG, "--experts-each has %u numbers: %u are possible",
                       c->n_each, SL_SYNTH_MAX_EACH);
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->n_each; i++) {
        uint32_t n = c->n_expert_each[i];
        most = n > most ? n : most;
        if (n && n < c->n_expert_used)
            return sl_fail(err, SL_ERR_CONFIG,
                           "--experts-each has %u: must be 0, or at least --top-k, which is %u", n,
                           c->n_expert_used);
        if (!n && (!(traits & SL_SYNTH_EXPERT_FF) || c->with_dense))
            return sl_fail(err, SL_ERR_CONFIG,
                           "--experts-each has 0: %s's dense layers have no width of their own",
                           c->arch);
    }
    if (c->n_each && most != c->n_expert)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--experts is %u: must be the most of --experts-each, which is %u",
                       c->n_expert, most);
    return SL_OK;
}

static enum sl_status check(const struct sl_synth_config *c, uint32_t *out_traits,
                            struct sl_err *err) {
    const struct sl_synth_family *family = sl_synth_family_find(c->arch);
    if (!family)
        return refuse_arch(c->arch, err);
    uint32_t traits = family->traits, parts = sl_synth_parts(c->arch);
    bool moe = traits & SL_SYNTH_MOE, shared = traits & SL_SYNTH_SHARED;
    bool latent = traits & SL_SYNTH_LATENT, index = traits & SL_SYNTH_INDEX;
    bool kimi = traits & SL_SYNTH_KDA && !(traits & SL_SYNTH_LING3), k3 = traits & SL_SYNTH_K3;
    bool dense = !c->n_expert || c->n_layer_dense || c->moe_step > 1 ||
                 (c->n_nextn && (parts & SL_SYNTH_NEXTN_DENSE || traits & SL_SYNTH_NOTE));
    for (uint32_t i = 0; i < c->n_each && i < SL_SYNTH_MAX_EACH; i++)
        dense = dense || !c->n_expert_each[i];
    bool own_window = traits & SL_SYNTH_GEMMA4, pattern = parts & SL_SYNTH_PATTERN;
    bool blocks = traits & SL_SYNTH_BLOCKS, note = traits & SL_SYNTH_NOTE;
    bool v4 = traits & SL_SYNTH_V4, flash = traits & SL_SYNTH_FLASH;
    const struct {
        const char *name;
        uint32_t value, min, max;
    } ranges[] = {
        {"layers", c->n_layer, 1, SL_MAX_LAYERS},
        {"embd", c->n_embd, 8, 65536},
        {"heads", c->n_head, 1, 1024},
        {"kv-heads", c->n_head_kv, 1, 1024},
        {"head-dim", c->head_dim, 2, 1024},
        {"vocab", c->n_vocab, 300, 1u << 20},
        {"ctx", c->n_ctx, 1, 1u << 24},
        {"experts", c->n_expert, moe ? 1 : 0, SL_MAX_EXPERTS},
        {"top-k", c->n_expert_used, c->n_expert ? 1 : 0,
         c->n_expert < SL_MAX_EXPERTS_USED ? c->n_expert : SL_MAX_EXPERTS_USED},
        {"odd-top-k", c->n_expert_used_odd, 0, c->n_expert_used},
        {"adjugate-ff", c->n_ff_adjugate, 1, 1u << 20},
        {"per-adjugate", c->n_per_adjugate, 2,
         traits & SL_SYNTH_ADJUGATE ? c->n_expert : UINT32_MAX},
        {"expert-ff", c->n_ff_expert, c->n_expert ? 1 : 0, 1u << 20},
        {"ff", c->n_ff, dense ? 1 : 0, 1u << 20},
        {"shared-ff", c->n_ff_shared, shared && !(parts & SL_SYNTH_GRANITE) ? 1 : 0, 1u << 20},
        {"dense-layers", c->n_layer_dense, 0,
         traits & SL_SYNTH_DENSE_LEAD && c->n_expert ? c->n_layer - 1 : 0},
        {"window", c->window, traits & SL_SYNTH_WINDOW || note ? 1 : 0, 1u << 24},
        {"odd-kv-heads", c->n_head_kv_odd, 0, 1024},
        {"rotated", c->n_rot, 0, c->head_dim},
        {"attn-every", c->attn_every, 1, SL_MAX_LAYERS},
        {"delta-heads", c->n_delta_head, 1, 1024},
        {"delta-key-heads", c->n_delta_head_k, 1, 1024},
        {"delta-dim", c->delta_dim, 1, 1024},
        {"taps", c->n_taps, 2, 8},
        {"state-dim", c->n_state, 1, parts & SL_SYNTH_MAMBA1 ? 64 : 1024},
        {"expert-latent", c->n_expert_latent, 0,
         (traits & SL_SYNTH_ONE_PART || k3) && moe ? c->n_embd : 0},
        {"keep-every", c->keep_every, 0, k3 ? SL_MAX_LAYERS : UINT32_MAX},
        {"no-rope", c->no_rope, 0, parts & SL_SYNTH_MAMBA ? 1 : 0},
        {"ngram-heads", c->n_ngram_head, 1, 32},
        {"ngram-rows", c->n_ngram_rows, 1, 1u << 25},
        {"nextn", c->n_nextn, 0,
         (traits & (SL_SYNTH_DELTA | SL_SYNTH_LATENT) && !kimi && !flash) || parts & SL_SYNTH_NEXTN
             ? SL_MAX_LAYERS - c->n_layer
             : 0},
        {"nextn-right", c->nextn_right, 0, c->n_nextn ? 100 : 0},
        {"q-lora", c->n_lora_q, 0, (latent && (!kimi || k3)) || v4 ? 1u << 16 : 0},
        {"out-groups", c->n_group_out, 1, v4 ? c->n_head : UINT32_MAX},
        {"out-lora", c->n_lora_out, 1, 1u << 16},
        {"table-layers", c->n_layer_table, 0, v4 ? c->n_layer : UINT32_MAX},
        {"index-heads", c->n_index_head, 1, 1024},
        {"index-dim", c->index_dim,
         index || v4       ? sl_synth_latent_rot(c)
         : blocks || flash ? sl_synth_rot(c)
                           : 1,
         1024},
        {"index-block", c->index_block, 1, 1u << 20},
        {"index-local", c->n_index_local, 1, blocks ? c->n_index_top : UINT32_MAX},
        {"window-latent", c->n_latent_window, 0, note ? 4096 : 0},
        {"window-value-dim", c->head_dim_v_window, 0, note ? 1024 : 0},
        {"index-top", c->n_index_top, 1, 1u << 20},
        {"index-every", c->index_every, 0, traits & SL_SYNTH_INDEX_SOME ? SL_MAX_LAYERS : 0},
        {"latent", c->n_latent, 1, 4096},
        {"value-dim", c->head_dim_v, 1, 1024},
        {"sigmoid", c->router_sigmoid, 0, latent},
        {"joined-kv", c->joined_kv, 0, latent && !(traits & SL_SYNTH_KDA) && !note},
        {"no-qk-norm", c->no_qk_norm, 0, parts & SL_SYNTH_MAY_NORM ? 1 : 0},
        {"qkv-bias", c->qkv_bias, 0, parts & SL_SYNTH_MAY_BIAS ? 1 : 0},
        {"sections", c->sections, 0, parts & SL_SYNTH_MAY_SECTIONS ? 1 : 0},
        {"fused-experts", c->fused_experts, 0, !(traits & SL_SYNTH_EXPERT_BIAS)},
        {"window-kv-heads", c->n_head_kv_window, 0, own_window || parts & SL_SYNTH_MIMO ? 1024 : 0},
        {"layer-embd", c->n_embd_layer, 0, own_window ? 4096 : 0},
        {"shared-kv", c->n_shared_kv, 0, own_window ? c->n_layer - 1 : 0},
        {"beside", c->with_dense, 0, parts & SL_SYNTH_GROK ? 1 : 0},
        {"window-head-dim", c->head_dim_window, 0, own_window || note ? 1024 : 0},
        {"window-period", c->window_period, 0, own_window || pattern || note ? 1024 : 0},
        {"window-heads", c->n_head_window, 0, pattern || note ? 1024 : 0},
        {"window-rotated", c->n_rot_window, 0, pattern ? c->head_dim : 0},
        {"temper", c->temper, 0, latent ? 1u << 24 : 0},
        {"chunk", c->chunk, 0, parts & SL_SYNTH_LLAMA4 ? 1u << 24 : 0},
        {"moe-step", c->moe_step, 0, parts & (SL_SYNTH_LLAMA4 | SL_SYNTH_MAMBA1) ? c->n_layer : 0},
        {"gate-heads", c->gate_heads, 0, parts & SL_SYNTH_GATE ? 1 : 0},
        {"fused-qkv", c->fused_qkv, 0,
         !(traits & (SL_SYNTH_DELTA | SL_SYNTH_LATENT | SL_SYNTH_GEMMA4))},
        {"split", c->n_split, 1, 999},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (ranges[i].value < ranges[i].min || ranges[i].value > ranges[i].max)
            return sl_fail(err, SL_ERR_CONFIG, "--%s is %u: must be from %u to %u for %s",
                           ranges[i].name, ranges[i].value, ranges[i].min, ranges[i].max, c->arch);
    bool one_part = traits & SL_SYNTH_ONE_PART;
    size_t known = c->pattern ? strspn(c->pattern, "M*E") : 1;
    if (!known || (c->pattern && (c->pattern[known] || !one_part)))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--pattern is '%s': must be of M, * and E, for layers of one part",
                       c->pattern);
    bool parts_of_it[2] = {false};
    for (uint32_t l = 0; l < c->n_layer && one_part; l++)
        parts_of_it[sl_synth_part(c, l) == 'E'] = true;
    if (one_part && moe && !parts_of_it[true])
        return sl_fail(err, SL_ERR_CONFIG, "--pattern gives no layer experts, which %s has",
                       c->arch);
    if (c->n_head_kv_window && c->n_head % c->n_head_kv_window)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--heads is %u: must be a multiple of --window-kv-heads, which is %u",
                       c->n_head, c->n_head_kv_window);
    for (uint32_t l = 0; l < 2 && !latent; l++) {
        uint32_t n = sl_synth_kv_heads(c, l);
        if (c->n_head % n || c->n_head_window % n)
            return sl_fail(err, SL_ERR_CONFIG,
                           "--heads is %u: must be a multiple of --%skv-heads, which is %u",
                           c->n_head, l && c->n_head_kv_odd ? "odd-" : "", n);
    }
    if (v4 && c->n_head % c->n_group_out)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--heads is %u: must be a multiple of --out-groups, which is %u", c->n_head,
                       c->n_group_out);
    if ((latent || v4) && (!sl_synth_latent_rot(c) || sl_synth_latent_rot(c) >= c->head_dim))
        return sl_fail(err, SL_ERR_CONFIG, "--rotated is %u: must leave some of --head-dim, %u",
                       sl_synth_latent_rot(c), c->head_dim);
    if (note && c->head_dim_window && c->head_dim_window <= sl_synth_latent_rot(c))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--rotated is %u: must leave some of --window-head-dim, %u",
                       sl_synth_latent_rot(c), c->head_dim_window);
    for (uint32_t l = 0; traits & SL_SYNTH_ADJUGATE && l < c->n_layer; l++)
        if (sl_synth_experts(c, l) % c->n_per_adjugate)
            return sl_fail(err, SL_ERR_CONFIG,
                           "--per-adjugate is %u: must divide a layer's experts, which are %u",
                           c->n_per_adjugate, sl_synth_experts(c, l));
    bool counted = latent || parts & SL_SYNTH_COUNTED;
    if (counted && c->n_ff_shared % c->n_ff_expert)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--shared-ff is %u: must be a multiple of --expert-ff, which is %u",
                       c->n_ff_shared, c->n_ff_expert);
    if (c->head_dim % 2 || c->n_rot % 2)
        return sl_fail(err, SL_ERR_CONFIG, "--%s is %u: must be even",
                       c->n_rot % 2 ? "rotated" : "head-dim",
                       c->n_rot % 2 ? c->n_rot : c->head_dim);
    if (c->head_dim_window % 2)
        return sl_fail(err, SL_ERR_CONFIG, "--window-head-dim is %u: must be even",
                       c->head_dim_window);
    if (c->n_delta_head % c->n_delta_head_k)
        return sl_fail(err, SL_ERR_CONFIG,
                       "--delta-heads is %u: must be a multiple of --delta-key-heads, which is %u",
                       c->n_delta_head, c->n_delta_head_k);
    if (flash && (64 % c->index_block || c->n_index_top % c->index_block))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--index-block is %u: must divide 64, and --index-top, which is %u",
                       c->index_block, c->n_index_top);
    if (flash && c->n_embd % sl_synth_ngram_heads(c))
        return sl_fail(err, SL_ERR_CONFIG,
                       "--ngram-heads is %u: twice as many must divide --embd, which is %u",
                       c->n_ngram_head, c->n_embd);
    if (c->n_expert && !(traits & (SL_SYNTH_MOE | SL_SYNTH_MAY_MOE)))
        return sl_fail(err, SL_ERR_CONFIG, "%s has no experts: give --experts 0 --top-k 0",
                       c->arch);
    const struct {
        const char *name;
        float value, max;
    } shares[] = {{"locality", c->locality, 1},
                  {"stay", c->stay, 1},
                  {"skew", c->skew, 100},
                  {"yarn", c->yarn_factor, 1024},
                  {"yarn-multiplier", c->yarn_log_mul, 10},
                  {"router-scale", c->router_scale, 100},
                  {"rope-base", c->rope_base, 1e9f},
                  {"window-rope-base", c->rope_base_window, 1e9f},
                  {"softcap", c->logit_softcap, own_window || parts & SL_SYNTH_GROK ? 1e6f : 0}};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        if (!(shares[i].value >= 0 && shares[i].value <= shares[i].max))
            return sl_fail(err, SL_ERR_CONFIG, "--%s is %g: must be from 0 to %g", shares[i].name,
                           (double)shares[i].value, (double)shares[i].max);
    *out_traits = traits;
    return check_each(c, traits, err);
}

enum sl_status sl_synth_plan(const struct sl_synth_config *c, struct sl_synth_plan *p,
                             struct sl_err *err) {
    uint32_t traits;
    memset(p, 0, sizeof *p);
    SL_TRY(check(c, &traits, err));
    uint64_t n = c->n_embd;
    add(p, c->embd, SL_FILL_EMBEDDING, 1, n, c->n_vocab, 0, "token_embd.weight", -1);
    for (uint32_t l = 0; l < c->n_layer + c->n_nextn; l++)
        add_layer(p, c, traits, l);
    for (uint32_t l = c->n_layer; l < c->n_layer + c->n_nextn; l++)
        add_nextn(p, c, l);
    if (traits & SL_SYNTH_FLASH)
        add_low_streams(p, c, "output_hc", -1);
    else
        add_norm(p, n,
                 sl_synth_parts(c->arch) & SL_SYNTH_CONV ? "token_embd_norm.weight"
                                                         : "output_norm.weight",
                 -1);
    if (traits & SL_SYNTH_FLASH && sl_synth_ngram_layer(c) < c->n_layer) {
        uint64_t heads = sl_synth_ngram_heads(c);
        add(p, c->embd, SL_FILL_RANDOM, 1, n / heads, heads * c->n_ngram_rows, 0,
            "per_layer_token_embd.weight", -1);
    }
    if (!c->tied)
        add(p, c->output, SL_FILL_SUCCESSOR, 1 / sqrtf((float)n), n, c->n_vocab, 0, "output.weight",
            -1);
    if (k3_streams(c, traits))
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.7f / sqrtf((float)n), n, 0, 0,
            "output_res_score.weight", -1);
    if (traits & SL_SYNTH_V4) {
        uint64_t streams = SL_SYNTH_STREAMS, row = streams * n;
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 1 / sqrtf((float)row), row, streams, 0,
            "output_hc_fn.weight", -1);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.7f, streams, 0, 0, "output_hc_base.weight", -1);
        add_norm(p, 1, "output_hc_scale.weight", -1);
    }
    if (c->n_embd_layer) {
        uint64_t all = (uint64_t)c->n_embd_layer * c->n_layer;
        add(p, c->embd, SL_FILL_RANDOM, 1 / sqrtf((float)c->n_embd_layer), all, c->n_vocab, 0,
            "per_layer_token_embd.weight", -1);
        add(p, pick(&c->ffn, 0), SL_FILL_RANDOM, 1, n, all, 0, "per_layer_model_proj.weight", -1);
        add_norm(p, c->n_embd_layer, "per_layer_proj_norm.weight", -1);
    }
    if (sl_synth_parts(c->arch) & SL_SYNTH_PHI) {
        uint64_t half = sl_synth_rot(c) / 2;
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.1f, n, 0, 0, "output_norm.bias", -1);
        add(p, SL_DTYPE_F32, SL_FILL_RANDOM, 0.3f, c->n_vocab, 0, 0, "output.bias", -1);
        add(p, SL_DTYPE_F32, SL_FILL_ROPE_FREQS, 0, half, 0, 0, "rope_factors_long.weight", -1);
        add_norm(p, half, "rope_factors_short.weight", -1);
    }
    if (c->rope_freqs || traits & SL_SYNTH_GEMMA4)
        add(p, SL_DTYPE_F32, SL_FILL_ROPE_FREQS, 0, sl_synth_rot(c) / 2, 0, 0, "rope_freqs.weight",
            -1);
    return p->tensors ? SL_OK : sl_fail(err, SL_ERR_NOMEM, "out of memory");
}
