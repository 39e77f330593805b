/* Tensor names, shapes and types. Names as in ggml docs/gguf.md, "Standardized tensor names". */
#include "model/arch/arch.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum dim {
    D_1 = 1, /* zero-filled entries count as 1 too */
    D_EMBD,
    D_EMBD_2, /* twice n_embd */
    D_VOCAB,
    D_ROT_HALF,
    D_Q, /* n_head * head_dim_k, twice where each has a gate */
    D_K, /* n_head_kv * head_dim_k */
    D_V, /* n_head_kv * head_dim_v */
    D_O, /* n_head * head_dim_v */
    D_HEADS,
    D_Q_NORM, /* head_dim_k, or D_Q where the norm spans the row */
    D_K_NORM,
    D_FF,
    D_FF_EXPERT,
    D_FF_EXPERT_2, /* twice that */
    D_FF_SHARED,
    D_EXPERT,
    D_FF_ADJUGATE,
    D_ADJUGATE,    /* how many */
    D_EXPERT_IN,   /* elements of experts' rows: n_embd, or their n_latent */
    D_DELTA_QKV,   /* of all heads q, k and v */
    D_DELTA_V,     /* n_head * head_dim */
    D_DELTA_HEADS, /* n_head, and twice that */
    D_DELTA_GATES,
    D_DELTA_DIM,
    D_DELTA_TAPS,
    D_CONV_IN, /* three times n_embd */
    D_CONV_TAPS,
    D_MAMBA_IN, /* inner + D_MAMBA_CONV + n_head */
    D_MAMBA_CONV,
    D_MAMBA_INNER,
    D_MAMBA_HEADS,
    D_MAMBA_GROUP, /* inner / n_group */
    D_MAMBA_GROUPS,
    D_MAMBA_TAPS,
    D_MAMBA1_INNER,
    D_MAMBA1_INNER_2,
    D_MAMBA1_TAPS,
    D_MAMBA1_X, /* n_rank + 2 n_state */
    D_MAMBA1_RANK,
    D_MAMBA1_STATE,
    D_KDA_INNER, /* n_head * head_dim */
    D_KDA_DIM,
    D_KDA_LOW, /* what decays go by way of, or D_KDA_INNER */
    D_KDA_LOW_GATE,
    D_KDA_HEADS,
    D_KDA_ROW, /* 1, and heads; or heads, and 1 */
    D_KDA_ROWS,
    D_KDA_TAPS,
    D_LORA_Q,
    D_LATENT,
    D_LATENT_ROW, /* n_latent + n_rot */
    D_NOPE,
    D_LATENT_V,
    D_LATENT_JOINED, /* n_head * (n_nope + head_dim_v) */
    D_INDEX_Q,       /* n_index_head * index_dim */
    D_INDEX_DIM,
    D_INDEX_HEADS,
    D_INDEX_KEY, /* index_dim, or what an indexer of blocks keeps of a position */
    D_BLOCK,     /* sl_compressed_width() */
    D_RATIO,
    D_OUT_GROUP, /* elements of a group of heads */
    D_OUT_LOW,   /* n_group * n_lora_out */
    D_STREAMS,   /* n_stream * n_embd */
    D_STREAM,    /* n_stream */
    D_STREAM_W,  /* weights of a row; n_embd of residual attention */
    D_STREAM_RANK,
    D_NGRAM,
    D_NGRAM_ROWS,
    D_NGRAM_TAPS,
    D_3,
    D_USED,
    D_QKV,
    D_EMBD_LAYER,
    D_EMBD_LAYERS, /* of all layers */
    D_GATE,        /* of attention's output: D_O or D_HEADS */
};

_Static_assert(SL_L_ASKED <= 8 * sizeof(sl_roles), "a role is a bit");

static bool in_set(sl_roles set, unsigned role) {
    return role < SL_L_ASKED && (set & SL_ROLE(role));
}

struct rule {
    const char *name; /* after "blk.N." for layers */
    uint8_t dim[3];
    bool f32; /* kernels read it as plain floats; converters never quantise it */
    bool i32; /* a table of numbers */
};

static const struct rule global_rules[SL_G_NAMED] = {
    [SL_G_TOKEN_EMBD] = {"token_embd.weight", {D_EMBD, D_VOCAB}, false},
    [SL_G_OUTPUT_NORM] = {"output_norm.weight", {D_EMBD}, true},
    [SL_G_OUTPUT] = {"output.weight", {D_EMBD, D_VOCAB}, false},
    [SL_G_ROPE_FREQS] = {"rope_freqs.weight", {D_ROT_HALF}, true},
    [SL_G_OUTPUT_NORM_BIAS] = {"output_norm.bias", {D_EMBD}, true},
    [SL_G_OUTPUT_BIAS] = {"output.bias", {D_VOCAB}, true},
    [SL_G_ROPE_LONG] = {"rope_factors_long.weight", {D_ROT_HALF}, true},
    [SL_G_ROPE_SHORT] = {"rope_factors_short.weight", {D_ROT_HALF}, true},
    [SL_G_LAYER_EMBD] = {"per_layer_token_embd.weight", {D_EMBD_LAYERS, D_VOCAB}, false},
    [SL_G_LAYER_PROJ] = {"per_layer_model_proj.weight", {D_EMBD, D_EMBD_LAYERS}, false},
    [SL_G_LAYER_PROJ_NORM] = {"per_layer_proj_norm.weight", {D_EMBD_LAYER}, true},
    [SL_G_STREAMS] = {"output_hc_fn.weight", {D_STREAMS, D_STREAM}, false},
    [SL_G_STREAMS_BASE] = {"output_hc_base.weight", {D_STREAM}, true},
    [SL_G_STREAMS_SCALE] = {"output_hc_scale.weight", {D_1}, true},
    [SL_G_STREAMS_SCORE] = {"output_res_score.weight", {D_EMBD}, true},
    [SL_G_STREAMS_NORM] = {"output_hc_norm.weight", {D_STREAMS}, true},
    [SL_G_STREAMS_DOWN] = {"output_hc_down.weight", {D_STREAMS, D_STREAM_RANK}, false},
    [SL_G_STREAMS_UP] = {"output_hc_up.weight", {D_STREAM_RANK, D_STREAMS}, false},
    [SL_G_NGRAMS] = {"per_layer_token_embd.weight", {D_NGRAM, D_NGRAM_ROWS}, false},
};

static const struct rule layer_rules[SL_L_COUNT] = {
    [SL_L_ATTN_NORM] = {"attn_norm.weight", {D_EMBD}, true},
    [SL_L_ATTN_Q] = {"attn_q.weight", {D_EMBD, D_Q}, false},
    [SL_L_ATTN_K] = {"attn_k.weight", {D_EMBD, D_K}, false},
    [SL_L_ATTN_V] = {"attn_v.weight", {D_EMBD, D_V}, false},
    [SL_L_ATTN_OUT] = {"attn_output.weight", {D_O, D_EMBD}, false},
    [SL_L_ATTN_Q_BIAS] = {"attn_q.bias", {D_Q}, true},
    [SL_L_ATTN_K_BIAS] = {"attn_k.bias", {D_K}, true},
    [SL_L_ATTN_V_BIAS] = {"attn_v.bias", {D_V}, true},
    [SL_L_ATTN_OUT_BIAS] = {"attn_output.bias", {D_EMBD}, true},
    [SL_L_ATTN_SINKS] = {"attn_sinks.weight", {D_HEADS}, true},
    [SL_L_ATTN_Q_NORM] = {"attn_q_norm.weight", {D_Q_NORM}, true},
    [SL_L_ATTN_K_NORM] = {"attn_k_norm.weight", {D_K_NORM}, true},
    [SL_L_FFN_NORM] = {"ffn_norm.weight", {D_EMBD}, true},
    [SL_L_FFN_GATE] = {"ffn_gate.weight", {D_EMBD, D_FF}, false},
    [SL_L_FFN_UP] = {"ffn_up.weight", {D_EMBD, D_FF}, false},
    [SL_L_FFN_DOWN] = {"ffn_down.weight", {D_FF, D_EMBD}, false},
    [SL_L_ROUTER] = {"ffn_gate_inp.weight", {D_EMBD, D_EXPERT}, false},
    [SL_L_ROUTER_BIAS] = {"exp_probs_b.bias", {D_EXPERT}, true},
    [SL_L_ROUTER_LOGIT_BIAS] = {"ffn_gate_inp.bias", {D_EXPERT}, true},
    [SL_L_ROUTER_TABLE] = {"ffn_gate_tid2eid.weight", {D_USED, D_VOCAB}, false, true},
    [SL_L_EXPERTS_GATE] = {"ffn_gate_exps.weight", {D_EXPERT_IN, D_FF_EXPERT, D_EXPERT}, false},
    [SL_L_EXPERTS_UP] = {"ffn_up_exps.weight", {D_EXPERT_IN, D_FF_EXPERT, D_EXPERT}, false},
    [SL_L_EXPERTS_DOWN] = {"ffn_down_exps.weight", {D_FF_EXPERT, D_EXPERT_IN, D_EXPERT}, false},
    [SL_L_EXPERTS_GATE_BIAS] = {"ffn_gate_exps.bias", {D_FF_EXPERT, D_EXPERT}, true},
    [SL_L_EXPERTS_UP_BIAS] = {"ffn_up_exps.bias", {D_FF_EXPERT, D_EXPERT}, true},
    [SL_L_EXPERTS_DOWN_BIAS] = {"ffn_down_exps.bias", {D_EXPERT_IN, D_EXPERT}, true},
    [SL_L_SHARED_GATE] = {"ffn_gate_shexp.weight", {D_EMBD, D_FF_SHARED}, false},
    [SL_L_SHARED_UP] = {"ffn_up_shexp.weight", {D_EMBD, D_FF_SHARED}, false},
    [SL_L_SHARED_DOWN] = {"ffn_down_shexp.weight", {D_FF_SHARED, D_EMBD}, false},
    [SL_L_SHARED_ROUTER] = {"ffn_gate_inp_shexp.weight", {D_EMBD, D_1}, false},
    [SL_L_DELTA_QKV] = {"attn_qkv.weight", {D_EMBD, D_DELTA_QKV}, false},
    [SL_L_DELTA_Z] = {"attn_gate.weight", {D_EMBD, D_DELTA_V}, false},
    [SL_L_DELTA_CONV] = {"ssm_conv1d.weight", {D_DELTA_TAPS, D_DELTA_QKV}, true},
    [SL_L_DELTA_DT] = {"ssm_dt.bias", {D_DELTA_HEADS}, true},
    [SL_L_DELTA_A] = {"ssm_a", {D_DELTA_HEADS}, true},
    [SL_L_DELTA_NORM] = {"ssm_norm.weight", {D_DELTA_DIM}, true},
    [SL_L_DELTA_OUT] = {"ssm_out.weight", {D_DELTA_V, D_EMBD}, false},
    [SL_L_DELTA_BETA] = {"ssm_beta.weight", {D_EMBD, D_DELTA_HEADS}, false},
    [SL_L_DELTA_ALPHA] = {"ssm_alpha.weight", {D_EMBD, D_DELTA_HEADS}, false},
    [SL_L_DELTA_BA] = {"ssm_ba.weight", {D_EMBD, D_DELTA_GATES}, false},
    [SL_L_CONV_IN] = {"shortconv.in_proj.weight", {D_EMBD, D_CONV_IN}, false},
    [SL_L_CONV] = {"shortconv.conv.weight", {D_CONV_TAPS, D_EMBD}, true},
    [SL_L_CONV_OUT] = {"shortconv.out_proj.weight", {D_EMBD, D_EMBD}, false},
    [SL_L_MAMBA_IN] = {"ssm_in.weight", {D_EMBD, D_MAMBA_IN}, false},
    [SL_L_MAMBA_CONV] = {"ssm_conv1d.weight", {D_MAMBA_TAPS, D_MAMBA_CONV}, true},
    [SL_L_MAMBA_CONV_BIAS] = {"ssm_conv1d.bias", {D_MAMBA_CONV}, true},
    [SL_L_MAMBA_DT] = {"ssm_dt.bias", {D_MAMBA_HEADS}, true},
    [SL_L_MAMBA_A] = {"ssm_a", {D_1, D_MAMBA_HEADS}, true},
    [SL_L_MAMBA_SKIP] = {"ssm_d", {D_1, D_MAMBA_HEADS}, true},
    [SL_L_MAMBA_NORM] = {"ssm_norm.weight", {D_MAMBA_GROUP, D_MAMBA_GROUPS}, true},
    [SL_L_MAMBA_OUT] = {"ssm_out.weight", {D_MAMBA_INNER, D_EMBD}, false},
    [SL_L_MAMBA1_IN] = {"ssm_in.weight", {D_EMBD, D_MAMBA1_INNER_2}, false},
    [SL_L_MAMBA1_CONV] = {"ssm_conv1d.weight", {D_MAMBA1_TAPS, D_MAMBA1_INNER}, true},
    [SL_L_MAMBA1_CONV_BIAS] = {"ssm_conv1d.bias", {D_MAMBA1_INNER}, true},
    [SL_L_MAMBA1_X] = {"ssm_x.weight", {D_MAMBA1_INNER, D_MAMBA1_X}, false},
    [SL_L_MAMBA1_DT_NORM] = {"ssm_dt_norm.weight", {D_MAMBA1_RANK}, true},
    [SL_L_MAMBA1_B_NORM] = {"ssm_b_norm.weight", {D_MAMBA1_STATE}, true},
    [SL_L_MAMBA1_C_NORM] = {"ssm_c_norm.weight", {D_MAMBA1_STATE}, true},
    [SL_L_MAMBA1_DT] = {"ssm_dt.weight", {D_MAMBA1_RANK, D_MAMBA1_INNER}, false},
    [SL_L_MAMBA1_DT_BIAS] = {"ssm_dt.bias", {D_MAMBA1_INNER}, true},
    [SL_L_MAMBA1_A] = {"ssm_a", {D_MAMBA1_STATE, D_MAMBA1_INNER}, true},
    [SL_L_MAMBA1_SKIP] = {"ssm_d", {D_MAMBA1_INNER}, true},
    [SL_L_MAMBA1_OUT] = {"ssm_out.weight", {D_MAMBA1_INNER, D_EMBD}, false},
    [SL_L_KDA_CONV_Q] = {"ssm_conv1d_q.weight", {D_KDA_TAPS, D_1, D_KDA_INNER}, true},
    [SL_L_KDA_CONV_K] = {"ssm_conv1d_k.weight", {D_KDA_TAPS, D_1, D_KDA_INNER}, true},
    [SL_L_KDA_CONV_V] = {"ssm_conv1d_v.weight", {D_KDA_TAPS, D_1, D_KDA_INNER}, true},
    [SL_L_KDA_DECAY_A] = {"ssm_f_a.weight", {D_EMBD, D_KDA_LOW}, false},
    [SL_L_KDA_DECAY_B] = {"ssm_f_b.weight", {D_KDA_DIM, D_KDA_INNER}, false},
    [SL_L_KDA_BETA] = {"ssm_beta.weight", {D_EMBD, D_KDA_HEADS}, false},
    [SL_L_KDA_A] = {"ssm_a", {D_KDA_ROW, D_KDA_ROWS}, true},
    [SL_L_KDA_DT] = {"ssm_dt.bias", {D_KDA_INNER}, true},
    [SL_L_KDA_GATE_A] = {"ssm_g_a.weight", {D_EMBD, D_KDA_LOW_GATE}, false},
    [SL_L_KDA_GATE_B] = {"ssm_g_b.weight", {D_KDA_DIM, D_KDA_INNER}, false},
    [SL_L_KDA_NORM] = {"ssm_norm.weight", {D_KDA_DIM}, true},
    [SL_L_LATENT_Q_A] = {"attn_q_a.weight", {D_EMBD, D_LORA_Q}, false},
    [SL_L_LATENT_Q_A_NORM] = {"attn_q_a_norm.weight", {D_LORA_Q}, true},
    [SL_L_LATENT_Q_B] = {"attn_q_b.weight", {D_LORA_Q, D_Q}, false},
    [SL_L_LATENT_KV_A] = {"attn_kv_a_mqa.weight", {D_EMBD, D_LATENT_ROW}, false},
    [SL_L_LATENT_KV_A_NORM] = {"attn_kv_a_norm.weight", {D_LATENT}, true},
    [SL_L_LATENT_K_B] = {"attn_k_b.weight", {D_NOPE, D_LATENT, D_HEADS}, false},
    [SL_L_LATENT_V_B] = {"attn_v_b.weight", {D_LATENT, D_LATENT_V, D_HEADS}, false},
    [SL_L_LATENT_KV_B] = {"attn_kv_b.weight", {D_LATENT, D_LATENT_JOINED}, false},
    [SL_L_INDEX_Q] = {"indexer.attn_q_b.weight", {D_LORA_Q, D_INDEX_Q}, false},
    [SL_L_INDEX_K] = {"indexer.attn_k.weight", {D_EMBD, D_INDEX_KEY}, false},
    [SL_L_INDEX_K_NORM] = {"indexer.k_norm.weight", {D_INDEX_DIM}, true},
    [SL_L_INDEX_K_BIAS] = {"indexer.k_norm.bias", {D_INDEX_DIM}, true},
    [SL_L_INDEX_Q_NORM] = {"indexer.q_norm.weight", {D_INDEX_DIM}, true},
    [SL_L_INDEX_WEIGHTS] = {"indexer.proj.weight", {D_EMBD, D_INDEX_HEADS}, false},
    [SL_L_BLOCK_KV] = {"attn_compressor_kv.weight", {D_EMBD, D_BLOCK}, false},
    [SL_L_BLOCK_GATE] = {"attn_compressor_gate.weight", {D_EMBD, D_BLOCK}, false},
    [SL_L_BLOCK_PLACE] = {"attn_compressor_ape.weight", {D_BLOCK, D_RATIO}, false},
    [SL_L_BLOCK_NORM] = {"attn_compressor_norm.weight", {D_LATENT}, true},
    [SL_L_INDEX_GATE] = {"indexer_compressor_gate.weight", {D_EMBD, D_INDEX_KEY}, false},
    [SL_L_INDEX_PLACE] = {"indexer_compressor_ape.weight", {D_INDEX_KEY, D_RATIO}, false},
    [SL_L_ATTN_OUT_GROUP] = {"attn_output_a.weight", {D_OUT_GROUP, D_OUT_LOW}, false},
    [SL_L_STREAMS_MIX] = {"hc_attn_fn.weight", {D_STREAMS, D_STREAM_W}, false},
    [SL_L_STREAMS_MIX_BASE] = {"hc_attn_base.weight", {D_STREAM_W}, true},
    [SL_L_STREAMS_MIX_SCALE] = {"hc_attn_scale.weight", {D_3}, true},
    [SL_L_STREAMS_FFN] = {"hc_ffn_fn.weight", {D_STREAMS, D_STREAM_W}, false},
    [SL_L_STREAMS_FFN_BASE] = {"hc_ffn_base.weight", {D_STREAM_W}, true},
    [SL_L_STREAMS_FFN_SCALE] = {"hc_ffn_scale.weight", {D_3}, true},
    [SL_L_ATTN_POST_NORM] = {"post_attention_norm.weight", {D_EMBD}, true},
    [SL_L_FFN_POST_NORM] = {"post_ffw_norm.weight", {D_EMBD}, true},
    [SL_L_SHARED_POST_NORM] = {"post_ffw_norm_1.weight", {D_EMBD}, true},
    [SL_L_EXPERTS_POST_NORM] = {"post_ffw_norm_2.weight", {D_EXPERT_IN}, true},
    [SL_L_EXPERTS_NORM] = {"pre_ffw_norm_2.weight", {D_EMBD}, true},
    [SL_L_ROUTER_NORM] = {"ffn_gate_inp.scale", {D_EMBD}, true},
    [SL_L_EXPERTS_SCALE] = {"ffn_down_exps.scale", {D_EXPERT}, true},
    [SL_L_LAYER_SCALE] = {"layer_output_scale.weight", {D_1}, true},
    [SL_L_ATTN_QKV] = {"attn_qkv.weight", {D_EMBD, D_QKV}, false},
    [SL_L_ATTN_GATE] = {"attn_gate.weight", {D_EMBD, D_GATE}, false},
    [SL_L_ATTN_NORM_BIAS] = {"attn_norm.bias", {D_EMBD}, true},
    [SL_L_FFN_NORM_BIAS] = {"ffn_norm.bias", {D_EMBD}, true},
    [SL_L_EMBD_GATE] = {"inp_gate.weight", {D_EMBD, D_EMBD_LAYER}, false},
    [SL_L_EMBD_PROJ] = {"proj.weight", {D_EMBD_LAYER, D_EMBD}, false},
    [SL_L_EMBD_NORM] = {"post_norm.weight", {D_EMBD}, true},
    [SL_L_EXPERTS_LATENT_DOWN] = {"ffn_latent_down.weight", {D_EMBD, D_EXPERT_IN}, false},
    [SL_L_EXPERTS_LATENT_UP] = {"ffn_latent_up.weight", {D_EXPERT_IN, D_EMBD}, false},
    [SL_L_ADJUGATE_GATE] = {"ffn_gate_chexps.weight", {D_EMBD, D_FF_ADJUGATE, D_ADJUGATE}, false},
    [SL_L_ADJUGATE_UP] = {"ffn_up_chexps.weight", {D_EMBD, D_FF_ADJUGATE, D_ADJUGATE}, false},
    [SL_L_ADJUGATE_DOWN] = {"ffn_down_chexps.weight", {D_FF_ADJUGATE, D_EMBD, D_ADJUGATE}, false},
    [SL_L_EXPERTS_GATE_UP] = {"ffn_gate_up_exps.weight",
                              {D_EXPERT_IN, D_FF_EXPERT_2, D_EXPERT},
                              false},
    [SL_L_DRAFT_EMBD_NORM] = {"nextn.enorm.weight", {D_EMBD}, true},
    [SL_L_DRAFT_STATE_NORM] = {"nextn.hnorm.weight", {D_EMBD}, true},
    [SL_L_DRAFT_JOIN] = {"nextn.eh_proj.weight", {D_EMBD_2, D_EMBD}, false},
    [SL_L_DRAFT_NORM] = {"nextn.shared_head_norm.weight", {D_EMBD}, true},
    [SL_L_DRAFT_EMBD] = {"nextn.embed_tokens.weight", {D_EMBD, D_VOCAB}, false},
    [SL_L_DRAFT_OUTPUT] = {"nextn.shared_head_head.weight", {D_EMBD, D_VOCAB}, false},
    [SL_L_LOW_MIX_NORM] = {"hc_attn_norm.weight", {D_STREAMS}, true},
    [SL_L_LOW_MIX_DOWN] = {"hc_attn_down.weight", {D_STREAMS, D_STREAM_RANK}, false},
    [SL_L_LOW_MIX_UP] = {"hc_attn_up.weight", {D_STREAM_RANK, D_STREAMS}, false},
    [SL_L_LOW_MIX_INJECT] = {"hc_attn_inject.weight", {D_STREAMS, D_STREAM}, false},
    [SL_L_LOW_FFN_NORM] = {"hc_ffn_norm.weight", {D_STREAMS}, true},
    [SL_L_LOW_FFN_DOWN] = {"hc_ffn_down.weight", {D_STREAMS, D_STREAM_RANK}, false},
    [SL_L_LOW_FFN_UP] = {"hc_ffn_up.weight", {D_STREAM_RANK, D_STREAMS}, false},
    [SL_L_LOW_FFN_INJECT] = {"hc_ffn_inject.weight", {D_STREAMS, D_STREAM}, false},
    [SL_L_NGRAM_KEY] = {"ple_key.weight", {D_EMBD, D_STREAMS}, false},
    [SL_L_NGRAM_VALUE] = {"ple_value.weight", {D_EMBD, D_EMBD}, false},
    [SL_L_NGRAM_KEY_NORM] = {"ple_norm_key.weight", {D_STREAMS}, true},
    [SL_L_NGRAM_QUERY_NORM] = {"ple_norm_query.weight", {D_STREAMS}, true},
    [SL_L_NGRAM_CONV_NORM] = {"ple_norm_conv.weight", {D_STREAMS}, true},
    [SL_L_NGRAM_CONV] = {"ple_conv1d.weight", {D_NGRAM_TAPS, D_STREAMS}, false},
};

/* What a layer of a kind must have, and what it may. */
struct kind_roles {
    sl_roles needs, may;
};
static const struct kind_roles mixer_roles[SL_MIXER_KINDS] = {
    [SL_MIXER_ATTENTION] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_ATTN_Q) | SL_ROLE(SL_L_ATTN_K) |
                                SL_ROLE(SL_L_ATTN_V) | SL_ROLE(SL_L_ATTN_OUT),
                            SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS) |
                                SL_ROLE(SL_L_ATTN_SINKS) | SL_ROLES_QK_NORM |
                                SL_ROLE(SL_L_ATTN_POST_NORM) | SL_ROLE(SL_L_ATTN_GATE) |
                                SL_ROLE(SL_L_ATTN_NORM_BIAS)},
    [SL_MIXER_DELTA] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_DELTA_QKV) | SL_ROLE(SL_L_DELTA_Z) |
                            SL_ROLE(SL_L_DELTA_CONV) | SL_ROLE(SL_L_DELTA_DT) |
                            SL_ROLE(SL_L_DELTA_A) | SL_ROLE(SL_L_DELTA_NORM) |
                            SL_ROLE(SL_L_DELTA_OUT),
                        SL_ROLE(SL_L_DELTA_BETA) | SL_ROLE(SL_L_DELTA_ALPHA) |
                            SL_ROLE(SL_L_DELTA_BA)},
    [SL_MIXER_LATENT] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_LATENT_KV_A) |
                             SL_ROLE(SL_L_LATENT_KV_A_NORM) | SL_ROLE(SL_L_ATTN_OUT),
                         0},
    [SL_MIXER_CONV] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_CONV_IN) | SL_ROLE(SL_L_CONV) |
                           SL_ROLE(SL_L_CONV_OUT),
                       0},
    [SL_MIXER_MAMBA] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_MAMBA_IN) |
                            SL_ROLE(SL_L_MAMBA_CONV) | SL_ROLE(SL_L_MAMBA_CONV_BIAS) |
                            SL_ROLE(SL_L_MAMBA_DT) | SL_ROLE(SL_L_MAMBA_A) |
                            SL_ROLE(SL_L_MAMBA_SKIP) | SL_ROLE(SL_L_MAMBA_NORM) |
                            SL_ROLE(SL_L_MAMBA_OUT),
                        0},
    [SL_MIXER_MAMBA1] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_MAMBA1_IN) |
                             SL_ROLE(SL_L_MAMBA1_CONV) | SL_ROLE(SL_L_MAMBA1_CONV_BIAS) |
                             SL_ROLE(SL_L_MAMBA1_X) | SL_ROLE(SL_L_MAMBA1_DT_NORM) |
                             SL_ROLE(SL_L_MAMBA1_B_NORM) | SL_ROLE(SL_L_MAMBA1_C_NORM) |
                             SL_ROLE(SL_L_MAMBA1_DT) | SL_ROLE(SL_L_MAMBA1_DT_BIAS) |
                             SL_ROLE(SL_L_MAMBA1_A) | SL_ROLE(SL_L_MAMBA1_SKIP) |
                             SL_ROLE(SL_L_MAMBA1_OUT),
                         0},
    [SL_MIXER_KDA] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_ATTN_Q) | SL_ROLE(SL_L_ATTN_K) |
                          SL_ROLE(SL_L_ATTN_V) | SL_ROLE(SL_L_ATTN_OUT) | SL_ROLE(SL_L_KDA_CONV_Q) |
                          SL_ROLE(SL_L_KDA_CONV_K) | SL_ROLE(SL_L_KDA_CONV_V) |
                          SL_ROLE(SL_L_KDA_DECAY_A) | SL_ROLE(SL_L_KDA_DECAY_B) |
                          SL_ROLE(SL_L_KDA_BETA) | SL_ROLE(SL_L_KDA_A) | SL_ROLE(SL_L_KDA_DT) |
                          SL_ROLE(SL_L_KDA_GATE_A) | SL_ROLE(SL_L_KDA_GATE_B) |
                          SL_ROLE(SL_L_KDA_NORM),
                      0},
    [SL_MIXER_COMPRESSED] = {SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_LATENT_Q_A) |
                                 SL_ROLE(SL_L_LATENT_Q_A_NORM) | SL_ROLE(SL_L_LATENT_Q_B) |
                                 SL_ROLE(SL_L_LATENT_KV_A) | SL_ROLE(SL_L_LATENT_KV_A_NORM) |
                                 SL_ROLE(SL_L_ATTN_SINKS) | SL_ROLE(SL_L_ATTN_OUT_GROUP) |
                                 SL_ROLE(SL_L_ATTN_OUT),
                             0},
    [SL_MIXER_NONE] = {0, 0}};
static const struct kind_roles ffn_roles[SL_FFN_KINDS] = {
    [SL_FFN_DENSE] = {SL_ROLE(SL_L_FFN_NORM) | SL_ROLE(SL_L_FFN_GATE) | SL_ROLE(SL_L_FFN_UP) |
                          SL_ROLE(SL_L_FFN_DOWN),
                      SL_ROLE(SL_L_FFN_POST_NORM) | SL_ROLE(SL_L_LAYER_SCALE) |
                          SL_ROLE(SL_L_FFN_NORM_BIAS)},
    [SL_FFN_EXPERTS] = {SL_ROLE(SL_L_FFN_NORM) | SL_ROLE(SL_L_ROUTER) | SL_ROLE(SL_L_EXPERTS_GATE) |
                            SL_ROLE(SL_L_EXPERTS_UP) | SL_ROLE(SL_L_EXPERTS_DOWN),
                        SL_ROLE(SL_L_ROUTER_BIAS) | SL_ROLE(SL_L_ROUTER_LOGIT_BIAS) |
                            SL_ROLES_EXPERT_BIAS | SL_ROLE(SL_L_SHARED_ROUTER) |
                            SL_ROLE(SL_L_FFN_POST_NORM) | SL_ROLE(SL_L_SHARED_POST_NORM) |
                            SL_ROLE(SL_L_EXPERTS_POST_NORM) | SL_ROLE(SL_L_EXPERTS_NORM) |
                            SL_ROLE(SL_L_ROUTER_NORM) | SL_ROLE(SL_L_EXPERTS_SCALE) |
                            SL_ROLE(SL_L_LAYER_SCALE) | SL_ROLE(SL_L_FFN_NORM_BIAS)},
    [SL_FFN_NONE] = {0, 0}};
/* One tensor that may stand for several. */
static const struct {
    enum sl_layer_role role;
    sl_roles for_roles;
} joined[] = {
    {SL_L_EXPERTS_GATE_UP, SL_ROLE(SL_L_EXPERTS_GATE) | SL_ROLE(SL_L_EXPERTS_UP)},
    {SL_L_ATTN_QKV, SL_ROLE(SL_L_ATTN_Q) | SL_ROLE(SL_L_ATTN_K) | SL_ROLE(SL_L_ATTN_V)},
};

#define ROLES_EMBD (SL_ROLE(SL_L_EMBD_GATE) | SL_ROLE(SL_L_EMBD_PROJ) | SL_ROLE(SL_L_EMBD_NORM))
/* What a layer that reads another's keys and values may have in a file, and has no use for. */
#define ROLES_KV    (SL_ROLE(SL_L_ATTN_K) | SL_ROLE(SL_L_ATTN_V) | SL_ROLE(SL_L_ATTN_K_NORM))
#define ROLES_DENSE (SL_ROLE(SL_L_FFN_GATE) | SL_ROLE(SL_L_FFN_UP) | SL_ROLE(SL_L_FFN_DOWN))
#define ROLES_INDEX                                                                                \
    (SL_ROLE(SL_L_INDEX_Q) | SL_ROLE(SL_L_INDEX_K) | SL_ROLE(SL_L_INDEX_K_NORM) |                  \
     SL_ROLE(SL_L_INDEX_K_BIAS) | SL_ROLE(SL_L_INDEX_WEIGHTS))
#define ROLES_BLOCKS                                                                               \
    (SL_ROLE(SL_L_INDEX_Q) | SL_ROLE(SL_L_INDEX_Q_NORM) | SL_ROLE(SL_L_INDEX_K) |                  \
     SL_ROLE(SL_L_INDEX_K_NORM))
#define ROLES_COMPRESSED                                                                           \
    (SL_ROLE(SL_L_BLOCK_KV) | SL_ROLE(SL_L_BLOCK_GATE) | SL_ROLE(SL_L_BLOCK_PLACE) |               \
     SL_ROLE(SL_L_BLOCK_NORM))
#define ROLES_BLOCK_INDEX                                                                          \
    (SL_ROLE(SL_L_INDEX_Q) | SL_ROLE(SL_L_INDEX_WEIGHTS) | SL_ROLE(SL_L_INDEX_K) |                 \
     SL_ROLE(SL_L_INDEX_GATE) | SL_ROLE(SL_L_INDEX_PLACE) | SL_ROLE(SL_L_INDEX_K_NORM))
#define ROLES_STREAMS_MIX                                                                          \
    (SL_ROLE(SL_L_STREAMS_MIX) | SL_ROLE(SL_L_STREAMS_MIX_BASE) | SL_ROLE(SL_L_STREAMS_MIX_SCALE))
#define ROLES_STREAMS_FFN                                                                          \
    (SL_ROLE(SL_L_STREAMS_FFN) | SL_ROLE(SL_L_STREAMS_FFN_BASE) | SL_ROLE(SL_L_STREAMS_FFN_SCALE))
#define ROLES_DRAFT                                                                                \
    (SL_ROLE(SL_L_DRAFT_EMBD_NORM) | SL_ROLE(SL_L_DRAFT_STATE_NORM) | SL_ROLE(SL_L_DRAFT_JOIN))
#define MAY_DRAFT (SL_ROLE(SL_L_DRAFT_NORM) | SL_ROLE(SL_L_DRAFT_EMBD) | SL_ROLE(SL_L_DRAFT_OUTPUT))
#define ROLES_ADJUGATE                                                                             \
    (SL_ROLE(SL_L_ADJUGATE_GATE) | SL_ROLE(SL_L_ADJUGATE_UP) | SL_ROLE(SL_L_ADJUGATE_DOWN))
#define ROLES_SHARED                                                                               \
    (SL_ROLE(SL_L_SHARED_GATE) | SL_ROLE(SL_L_SHARED_UP) | SL_ROLE(SL_L_SHARED_DOWN))

/* Which of two forms q's projection has, and which of two those of keys and values. */
static sl_roles latent_roles(const struct sl_latent_spec *s) {
    sl_roles q = s->n_lora_q ? SL_ROLE(SL_L_LATENT_Q_A) | SL_ROLE(SL_L_LATENT_Q_A_NORM) |
                                   SL_ROLE(SL_L_LATENT_Q_B)
                             : SL_ROLE(SL_L_ATTN_Q);
    if (sl_latent_chooses(s))
        q |= ROLES_INDEX;
    if (s->gate)
        q |= SL_ROLE(SL_L_ATTN_GATE);
    if (s->k_norm)
        q |= SL_ROLE(SL_L_ATTN_K_NORM);
    return q | (s->joined ? SL_ROLE(SL_L_LATENT_KV_B)
                          : SL_ROLE(SL_L_LATENT_K_B) | SL_ROLE(SL_L_LATENT_V_B));
}

static struct kind_roles roles_of(const struct sl_arch *arch, const struct sl_hparams *hp,
                                  const struct sl_layer_spec *s) {
    const struct kind_roles *mixer = &mixer_roles[s->mixer], *ffn = &ffn_roles[s->ffn];
    sl_roles may = mixer->may | ffn->may;
    struct kind_roles r = {mixer->needs | ffn->needs | (arch->needs & may), 0};
    if (s->mixer == SL_MIXER_LATENT)
        r.needs |= latent_roles(&s->latent);
    if (s->mixer == SL_MIXER_ATTENTION && (s->attention.n_index_top || s->attention.pool))
        r.needs |= ROLES_BLOCKS;
    if (s->mixer == SL_MIXER_COMPRESSED && s->compressed.ratio)
        r.needs |= ROLES_COMPRESSED;
    if (s->mixer == SL_MIXER_COMPRESSED && s->compressed.n_index_top)
        r.needs |= ROLES_BLOCK_INDEX;
    if (hp->keep_every)
        r.needs |= SL_ROLE(SL_L_STREAMS_MIX_BASE) | SL_ROLE(SL_L_STREAMS_FFN_BASE);
    else if (hp->n_stream && !hp->stream_rank)
        r.needs |= ROLES_STREAMS_MIX | ROLES_STREAMS_FFN;
    if (hp->stream_rank)
        r.needs &= ~(SL_ROLE(SL_L_ATTN_NORM) | SL_ROLE(SL_L_FFN_NORM));
    if (s->mixer == SL_MIXER_KDA && s->kda.full)
        r.needs &= ~SL_ROLE(SL_L_KDA_DECAY_B);
    if (s->mixer == SL_MIXER_KDA && s->kda.full_gate)
        r.needs &= ~SL_ROLE(SL_L_KDA_GATE_B);
    if (s->ffn == SL_FFN_EXPERTS && s->experts.with_dense)
        r.needs |= ROLES_DENSE;
    else if (s->ffn == SL_FFN_EXPERTS && s->experts.n_ff_shared)
        r.needs |= ROLES_SHARED;
    if (s->ffn == SL_FFN_EXPERTS && s->experts.by_token)
        r.needs = (r.needs | SL_ROLE(SL_L_ROUTER_TABLE)) & ~SL_ROLE(SL_L_ROUTER_BIAS);
    if (s->ffn == SL_FFN_EXPERTS && s->experts.n_latent)
        r.needs |= SL_ROLE(SL_L_EXPERTS_LATENT_DOWN) | SL_ROLE(SL_L_EXPERTS_LATENT_UP);
    if (s->ffn == SL_FFN_EXPERTS && s->experts.n_ff_adjugate)
        r.needs |= ROLES_ADJUGATE;
    if (s->relu_squared)
        r.needs &= ~(SL_ROLE(SL_L_FFN_GATE) | SL_ROLE(SL_L_SHARED_GATE));
    if (!sl_experts_gated(&s->experts))
        r.needs &= ~SL_ROLE(SL_L_EXPERTS_GATE);
    if (arch->parallel)
        r.needs &= ~SL_ROLE(SL_L_FFN_NORM);
    if (hp->n_embd_layer)
        r.needs |= ROLES_EMBD;
    if (s->draft)
        r.needs |= ROLES_DRAFT;
    r.may = r.needs | (arch->optional & may);
    if (s->draft)
        r.may |= MAY_DRAFT;
    if (s->ffn == SL_FFN_EXPERTS && !(r.may & SL_ROLES_EXPERT_BIAS) &&
        sl_experts_gated(&s->experts))
        r.may |= SL_ROLE(SL_L_EXPERTS_GATE_UP);
    if (s->mixer == SL_MIXER_ATTENTION && !s->attention.gated)
        r.may |= SL_ROLE(SL_L_ATTN_QKV);
    if (s->mixer == SL_MIXER_ATTENTION && s->attention.kv_back) {
        r.needs &= ~ROLES_KV;
        r.may &= ~SL_ROLE(SL_L_ATTN_QKV);
    }
    if (s->mixer == SL_MIXER_ATTENTION && arch->gate) {
        r.may |= SL_ROLE(SL_L_ATTN_GATE);
        r.needs |= SL_ROLE(SL_L_ATTN_GATE) & ~arch->optional;
    }
    if (arch->v_of_k)
        r.needs &= ~SL_ROLE(SL_L_ATTN_V);
    return r;
}

/* Has the layer the tensor of a role that no architecture asks for? It is then required. */
static bool has_by_spec(const struct sl_hparams *hp, const struct sl_layer_spec *s, unsigned role) {
    if (role < SL_L_ASKED)
        return false;
    return role < SL_L_NGRAM_KEY ? hp->stream_rank > 0 : s->ngram.n_taps > 0;
}

/* s: the layer's; NULL for tensors that are in none. */
static uint64_t dim_value(const struct sl_hparams *hp, const struct sl_layer_spec *s,
                          unsigned dim) {
    const struct sl_attention_spec *a = s ? &s->attention : NULL;
    bool row = a && a->qk_norm == SL_QK_NORM_ROW;
    const struct sl_latent_spec *c = s && s->mixer == SL_MIXER_LATENT ? &s->latent : NULL;
    const struct sl_compressed_spec *z =
        s && s->mixer == SL_MIXER_COMPRESSED ? &s->compressed : NULL;
    bool kda = s && s->mixer == SL_MIXER_KDA;
    if (kda && (dim == D_Q || dim == D_K || dim == D_V || dim == D_O))
        dim = D_KDA_INNER;
    switch ((enum dim)dim) {
    case D_EMBD:
        return hp->n_embd;
    case D_EMBD_2:
        return 2 * (uint64_t)hp->n_embd;
    case D_VOCAB:
        return hp->n_vocab;
    case D_ROT_HALF:
        return hp->n_rope_freqs ? hp->n_rope_freqs : hp->rope[0].n_rot / 2;
    case D_Q:
        if (z)
            return (uint64_t)z->n_head * z->head_dim;
        if (c)
            return (uint64_t)c->n_head * (c->n_nope + c->n_rot);
        return (uint64_t)a->n_head * a->head_dim_k * (a->gated ? 2 : 1);
    case D_K:
        return (uint64_t)a->n_head_kv * a->head_dim_k;
    case D_V:
        return (uint64_t)a->n_head_kv * a->head_dim_v;
    case D_O:
        if (z)
            return (uint64_t)z->n_group * z->n_lora_out;
        return c ? (uint64_t)c->n_head * c->head_dim_v : (uint64_t)a->n_head * a->head_dim_v;
    case D_HEADS:
        if (z)
            return z->n_head;
        return c ? c->n_head : a->n_head;
    case D_Q_NORM:
        return (uint64_t)(row ? a->n_head : 1) * a->head_dim_k;
    case D_K_NORM:
        if (c)
            return c->n_rot;
        return (uint64_t)(row ? a->n_head_kv : 1) * a->head_dim_k;
    case D_FF:
        return s->n_ff;
    case D_FF_EXPERT:
        return s->experts.n_ff;
    case D_FF_EXPERT_2:
        return 2 * (uint64_t)s->experts.n_ff;
    case D_FF_SHARED:
        return s->experts.n_ff_shared;
    case D_EXPERT:
        return s->experts.n_expert;
    case D_FF_ADJUGATE:
        return s->experts.n_ff_adjugate;
    case D_ADJUGATE:
        return sl_experts_adjugate(&s->experts);
    case D_EXPERT_IN:
        return s->experts.n_latent ? s->experts.n_latent : hp->n_embd;
    case D_DELTA_QKV:
        return (2 * (uint64_t)s->delta.n_head_k + s->delta.n_head) * s->delta.head_dim;
    case D_DELTA_V:
        return (uint64_t)s->delta.n_head * s->delta.head_dim;
    case D_DELTA_HEADS:
        return s->delta.n_head;
    case D_DELTA_GATES:
        return 2 * (uint64_t)s->delta.n_head;
    case D_DELTA_DIM:
        return s->delta.head_dim;
    case D_DELTA_TAPS:
        return s->delta.n_taps;
    case D_CONV_IN:
        return 3 * (uint64_t)hp->n_embd;
    case D_CONV_TAPS:
        return s->conv.n_taps;
    case D_MAMBA_IN:
        return 2 * ((uint64_t)s->mamba.n_head * s->mamba.head_dim +
                    (uint64_t)s->mamba.n_group * s->mamba.n_state) +
               s->mamba.n_head;
    case D_MAMBA_CONV:
        return (uint64_t)s->mamba.n_head * s->mamba.head_dim +
               2 * (uint64_t)s->mamba.n_group * s->mamba.n_state;
    case D_MAMBA_INNER:
        return (uint64_t)s->mamba.n_head * s->mamba.head_dim;
    case D_MAMBA_HEADS:
        return s->mamba.n_head;
    case D_MAMBA_GROUP:
        return (uint64_t)s->mamba.n_head * s->mamba.head_dim / s->mamba.n_group;
    case D_MAMBA_GROUPS:
        return s->mamba.n_group;
    case D_MAMBA_TAPS:
        return s->mamba.n_taps;
    case D_MAMBA1_INNER:
        return s->mamba1.n_inner;
    case D_MAMBA1_INNER_2:
        return 2 * (uint64_t)s->mamba1.n_inner;
    case D_MAMBA1_TAPS:
        return s->mamba1.n_taps;
    case D_MAMBA1_X:
        return s->mamba1.n_rank + 2 * (uint64_t)s->mamba1.n_state;
    case D_MAMBA1_RANK:
        return s->mamba1.n_rank;
    case D_MAMBA1_STATE:
        return s->mamba1.n_state;
    case D_KDA_INNER:
        return (uint64_t)s->kda.n_head * s->kda.head_dim;
    case D_KDA_DIM:
        return s->kda.head_dim;
    case D_KDA_LOW:
        return s->kda.full ? (uint64_t)s->kda.n_head * s->kda.head_dim : s->kda.head_dim;
    case D_KDA_LOW_GATE:
        return s->kda.full_gate ? (uint64_t)s->kda.n_head * s->kda.head_dim : s->kda.head_dim;
    case D_KDA_ROW:
        return s->kda.flat ? s->kda.n_head : 1;
    case D_KDA_ROWS:
        return s->kda.flat ? 1 : s->kda.n_head;
    case D_KDA_HEADS:
        return s->kda.n_head;
    case D_KDA_TAPS:
        return s->kda.n_taps;
    case D_LORA_Q: /* an indexer that chooses blocks makes its queries of the layer's input */
        return z ? z->n_lora_q : c ? c->n_lora_q : hp->n_embd;
    case D_LATENT:
        return z ? z->head_dim : c->n_latent;
    case D_LATENT_ROW:
        return z ? z->head_dim : (uint64_t)c->n_latent + c->n_rot;
    case D_NOPE:
        return c->n_nope;
    case D_LATENT_V:
        return c->head_dim_v;
    case D_LATENT_JOINED:
        return (uint64_t)c->n_head * (c->n_nope + c->head_dim_v);
    case D_INDEX_Q:
        if (z)
            return (uint64_t)z->n_index_head * z->index_dim;
        if (!c)
            return (uint64_t)(a->pool ? a->n_pool_head : a->n_head_kv) * a->index_dim;
        return (uint64_t)c->n_index_head * c->index_dim;
    case D_INDEX_DIM:
        return z ? z->index_dim : c ? c->index_dim : a->index_dim;
    case D_INDEX_HEADS:
        return z ? z->n_index_head : c->n_index_head;
    case D_INDEX_KEY:
        return z ? sl_compressed_index_width(z) : c ? c->index_dim : a->index_dim;
    case D_BLOCK:
        return sl_compressed_width(z);
    case D_RATIO:
        return z->ratio;
    case D_OUT_GROUP:
        return (uint64_t)z->n_head * z->head_dim / z->n_group;
    case D_OUT_LOW:
        return (uint64_t)z->n_group * z->n_lora_out;
    case D_STREAMS:
        return (uint64_t)hp->n_stream * hp->n_embd;
    case D_STREAM:
        return hp->n_stream;
    case D_STREAM_W:
        return hp->keep_every ? hp->n_embd : (uint64_t)hp->n_stream * (2 + hp->n_stream);
    case D_STREAM_RANK:
        return hp->stream_rank;
    case D_NGRAM:
        return hp->ngram.dim;
    case D_NGRAM_ROWS:
        return hp->ngram.n_rows;
    case D_NGRAM_TAPS:
        return s->ngram.n_taps;
    case D_3:
        return 3;
    case D_USED:
        return s->experts.n_used;
    case D_QKV:
        return (uint64_t)a->n_head * a->head_dim_k + (uint64_t)a->n_head_kv * a->head_dim_k +
               (uint64_t)a->n_head_kv * a->head_dim_v;
    case D_GATE:
        if (c)
            return c->gate == SL_GATE_HEAD ? c->n_head : (uint64_t)c->n_head * c->head_dim_v;
        return a->gate == SL_GATE_HEAD ? a->n_head : (uint64_t)a->n_head * a->head_dim_v;
    case D_EMBD_LAYER:
        return hp->n_embd_layer;
    case D_EMBD_LAYERS:
        return (uint64_t)hp->n_embd_layer * hp->n_layer;
    case D_1:
        break;
    }
    return 1;
}

SL_PRINTF(5, 6)
static enum sl_status fail_tensor(const struct sl_model *m, const struct sl_gguf_tensor *t,
                                  enum sl_status status, struct sl_err *err, const char *fmt, ...) {
    char text[256], name[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return sl_fail(err, status, "%.160s: tensor '%s': %s", sl_gguf_file_path(m->gguf, t->file),
                   sl_str_escape(t->name, name, sizeof name), text);
}

static enum sl_status check_shape(const struct sl_model *m, const struct sl_layer_spec *spec,
                                  const struct sl_gguf_tensor *t, const struct rule *rule,
                                  struct sl_err *err) {
    uint64_t want[SL_GGUF_MAX_DIMS] = {1, 1, 1, 1};
    bool same = true;
    for (unsigned d = 0; d < 3; d++)
        want[d] = dim_value(&m->hp, spec, rule->dim[d]);
    for (unsigned d = 0; d < SL_GGUF_MAX_DIMS; d++)
        same = same && t->ne[d] == want[d];
    if (!same)
        return fail_tensor(m, t, SL_ERR_CORRUPT, err,
                           "its shape is [%" PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64
                           "], the hyperparameters ask for [%" PRIu64 ", %" PRIu64 ", %" PRIu64 "]",
                           t->ne[0], t->ne[1], t->ne[2], t->ne[3], want[0], want[1], want[2]);
    if (rule->i32 != (t->dtype == SL_DTYPE_I32))
        return fail_tensor(m, t, SL_ERR_UNSUPPORTED, err, "its type is %s, %s",
                           sl_dtype_name((uint32_t)t->dtype),
                           rule->i32 ? "only I32 is supported here" : "which no weight has");
    if (rule->f32 && t->dtype != SL_DTYPE_F32)
        return fail_tensor(m, t, SL_ERR_UNSUPPORTED, err,
                           "its type is %s, only F32 is supported here",
                           sl_dtype_name((uint32_t)t->dtype));
    return SL_OK;
}

/* "blk.17.attn_q.weight": the number, and the rest; false for other names. */
static bool layer_name(struct sl_str name, uint64_t *out_layer, struct sl_str *out_rest) {
    size_t i = 4;
    uint64_t n = 0;
    if (name.len < 6 || memcmp(name.ptr, "blk.", 4) != 0)
        return false;
    for (; i < name.len && i < 4 + 9 && name.ptr[i] >= '0' && name.ptr[i] <= '9'; i++)
        n = n * 10 + (uint64_t)(name.ptr[i] - '0');
    if (i == 4 || i >= name.len || name.ptr[i] != '.' || (name.ptr[4] == '0' && i > 5))
        return false;
    *out_layer = n;
    out_rest->ptr = name.ptr + i + 1;
    out_rest->len = name.len - i - 1;
    return true;
}

static bool equals(struct sl_str s, const char *text) {
    return s.len == strlen(text) && memcmp(s.ptr, text, s.len) == 0;
}

static bool ends_with(struct sl_str s, const char *tail) {
    size_t n = strlen(tail);
    return s.len >= n && memcmp(s.ptr + s.len - n, tail, n) == 0;
}

/* Names as in llama.cpp's tools/mtmd/clip-impl.h. */
bool sl_model_is_media(struct sl_str name) {
    static const char *const heads[] = {"v.", "a.", "mm."};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        size_t n = strlen(heads[i]);
        if (name.len > n && memcmp(name.ptr, heads[i], n) == 0)
            return true;
    }
    return false;
}

/* Tables that old converters stored and that are computed instead, statistics of quantisation, and
 * what reads pictures and sound: leaving them out changes nothing. */
static bool ignorable(struct sl_str name, bool in_layer) {
    if (!in_layer && sl_model_is_media(name))
        return true;
    static const char *const in_layers[] = {"attn_rot_embd", "attn_rot_embd.weight",
                                            "attn_rot_embd.freqs", "rope_freqs.weight",
                                            "exp_probs_b_vl.bias"}; /* of pictures' rows */
    if (ends_with(name, ".in_sum2") || ends_with(name, ".in_sum") || ends_with(name, ".counts"))
        return true;
    for (size_t i = 0; in_layer && i < sizeof in_layers / sizeof in_layers[0]; i++)
        if (equals(name, in_layers[i]))
            return true;
    return false;
}

/* "ffn_gate.3.weight": files from before experts were merged into one tensor. */
static bool is_single_expert(struct sl_str rest) {
    static const char *const heads[] = {"ffn_gate.", "ffn_up.", "ffn_down."};
    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(heads[i]);
        if (rest.len > n && memcmp(rest.ptr, heads[i], n) == 0 && rest.ptr[n] >= '0' &&
            rest.ptr[n] <= '9')
            return true;
    }
    return false;
}

static enum sl_status refuse_layer_tensor(const struct sl_model *m, const struct sl_gguf_tensor *t,
                                          struct sl_str rest, struct sl_err *err) {
    if (is_single_expert(rest))
        return fail_tensor(m, t, SL_ERR_UNSUPPORTED, err,
                           "one tensor per expert is the layout of early 2024; use a newer "
                           "conversion, with merged ffn_*_exps tensors");
    if (m->arch->delta && equals(rest, "ssm_in.weight"))
        return fail_tensor(m, t, SL_ERR_UNSUPPORTED, err,
                           "one matrix for q, k, v and output gate is the layout of early "
                           "conversions; use a newer one, with attn_qkv and attn_gate");
    return fail_tensor(m, t, SL_ERR_UNSUPPORTED, err, "architecture '%s' has no such tensor here",
                       m->arch->name);
}

static const char *global_name(const struct sl_arch *arch, unsigned role) {
    return role == SL_G_OUTPUT_NORM && arch->output_norm ? arch->output_norm
                                                         : global_rules[role].name;
}

static const char *name_of(const struct sl_arch *arch, unsigned role) {
    for (const struct sl_arch_name *n = arch->names; n && n->name; n++)
        if (n->role == role && !n->also)
            return n->name;
    return role == SL_L_FFN_NORM && arch->ffn_norm ? arch->ffn_norm : layer_rules[role].name;
}

static bool is_named(const struct sl_arch *arch, unsigned role, struct sl_str rest) {
    for (const struct sl_arch_name *n = arch->names; n && n->name; n++)
        if (n->role == role && equals(rest, n->name))
            return true;
    return equals(rest, name_of(arch, role));
}

/* Has the architecture this tensor of none of its layers? */
static bool has_global(const struct sl_arch *arch, const struct sl_hparams *hp, unsigned role) {
    switch (role) {
    case SL_G_ROPE_FREQS:
        return arch->rope_freqs;
    case SL_G_ROPE_LONG:
    case SL_G_ROPE_SHORT:
        return arch->rope_factors;
    case SL_G_OUTPUT_NORM_BIAS:
    case SL_G_OUTPUT_BIAS:
        return arch->output_biases;
    case SL_G_OUTPUT_NORM:
        return !hp->stream_rank;
    case SL_G_STREAMS:
    case SL_G_STREAMS_BASE:
    case SL_G_STREAMS_SCALE:
        return hp->n_stream > 0 && !hp->keep_every && !hp->stream_rank;
    case SL_G_STREAMS_SCORE:
        return hp->keep_every > 0;
    case SL_G_STREAMS_NORM:
    case SL_G_STREAMS_DOWN:
    case SL_G_STREAMS_UP:
        return hp->stream_rank > 0;
    case SL_G_NGRAMS:
        return hp->ngram.n_head > 0;
    case SL_G_LAYER_EMBD:
    case SL_G_LAYER_PROJ:
    case SL_G_LAYER_PROJ_NORM:
        return hp->n_embd_layer > 0;
    default:
        return true;
    }
}

static enum sl_status place(struct sl_model *m, const struct sl_gguf_tensor *t,
                            struct sl_err *err) {
    struct sl_str rest;
    uint64_t layer;
    if (!layer_name(t->name, &layer, &rest)) {
        for (unsigned role = 0; role < SL_G_NAMED; role++) {
            if (!equals(t->name, global_name(m->arch, role)) || !has_global(m->arch, &m->hp, role))
                continue;
            m->global[role] = t;
            return SL_OK;
        }
        if (ignorable(t->name, false))
            return SL_OK;
        return fail_tensor(m, t, SL_ERR_UNSUPPORTED, err, "architecture '%s' has no such tensor",
                           m->arch->name);
    }
    if (ignorable(rest, true))
        return SL_OK;
    if (layer >= m->hp.n_layer && layer < m->hp.n_layer + m->hp.n_layer_nextn)
        return SL_OK; /* left on disk */
    if (layer >= m->hp.n_layer)
        return fail_tensor(m, t, SL_ERR_CORRUPT, err,
                           "key '%s.block_count' declares %" PRIu32 " layers, 0 to %" PRIu32,
                           m->arch->name, m->hp.n_layer + m->hp.n_layer_nextn,
                           m->hp.n_layer + m->hp.n_layer_nextn - 1);
    const struct sl_layer_spec *spec = &m->layers[layer].spec;
    sl_roles allowed = roles_of(m->arch, &m->hp, spec).may;
    for (unsigned role = 0; role < SL_L_COUNT; role++) {
        if (!(in_set(allowed, role) || has_by_spec(&m->hp, spec, role)) ||
            !is_named(m->arch, role, rest))
            continue;
        if (m->layers[layer].t[role])
            return fail_tensor(m, t, SL_ERR_CORRUPT, err, "%s is the same tensor",
                               name_of(m->arch, role));
        bool idle = spec->attention.kv_back && in_set(ROLES_KV, role); /* left on disk */
        m->layers[layer].t[role] = idle ? NULL : t;
        return SL_OK;
    }
    return refuse_layer_tensor(m, t, rest, err);
}

/* The vocabulary is the embedding's rows; the tokenizer in the same file must agree. */
static enum sl_status find_vocab(struct sl_model *m, struct sl_err *err) {
    const struct sl_gguf_tensor *embd = m->global[SL_G_TOKEN_EMBD];
    const struct sl_gguf_kv *tokens = sl_gguf_kv_find(m->gguf, "tokenizer.ggml.tokens");
    if (embd->ne[1] > SL_MAX_VOCAB)
        return fail_tensor(m, embd, SL_ERR_CORRUPT, err,
                           "%" PRIu64 " rows, a vocabulary has at most %u", embd->ne[1],
                           SL_MAX_VOCAB);
    if (tokens && tokens->type == SL_GGUF_ARRAY && tokens->n_elems != embd->ne[1])
        return sl_gguf_kv_fail(m->gguf, tokens, SL_ERR_CORRUPT, err,
                               "%" PRIu64 " tokens, but tensor 'token_embd.weight' has %" PRIu64
                               " rows",
                               tokens->n_elems, embd->ne[1]);
    m->hp.n_vocab = (uint32_t)embd->ne[1];
    return SL_OK;
}

/* The table of n-grams has as many rows as its heads choose among, or more. */
static enum sl_status find_ngrams(struct sl_model *m, struct sl_err *err) {
    const struct sl_gguf_tensor *t = m->global[SL_G_NGRAMS];
    struct sl_ngram_spec *n = &m->hp.ngram;
    uint64_t needed = 0;
    for (uint32_t h = 0; h < n->n_head; h++) {
        uint64_t end = (uint64_t)n->offset[h] + n->size[h];
        needed = end > needed ? end : needed;
    }
    if (t && (t->ne[1] < needed || t->ne[1] > INT32_MAX))
        return fail_tensor(m, t, SL_ERR_CORRUPT, err,
                           "%" PRIu64 " rows, its heads choose among %" PRIu64, t->ne[1], needed);
    n->n_rows = t ? (uint32_t)t->ne[1] : 0;
    return SL_OK;
}

static enum sl_status missing(const struct sl_model *m, struct sl_err *err, const char *name) {
    return sl_fail(err, SL_ERR_CORRUPT, "%.160s: tensor '%s' is missing",
                   sl_gguf_file_path(m->gguf, 0), name);
}

/* Takes what joined tensors stand for out of *required. */
static enum sl_status check_joined(const struct sl_model *m, uint32_t l, sl_roles *required,
                                   struct sl_err *err) {
    const struct sl_layer *layer = &m->layers[l];
    for (size_t i = 0; i < sizeof joined / sizeof joined[0]; i++) {
        const struct sl_gguf_tensor *t = layer->t[joined[i].role];
        for (unsigned role = 0; t && role < SL_L_COUNT; role++)
            if (in_set(joined[i].for_roles, role) && layer->t[role])
                return fail_tensor(m, t, SL_ERR_CORRUPT, err, "blk.%" PRIu32 ".%s is there too", l,
                                   name_of(m->arch, role));
        if (t)
            *required &= ~joined[i].for_roles;
    }
    return SL_OK;
}

/* Which of its shapes the gate on attention's output has. */
static void find_gate(const struct sl_arch *arch, struct sl_layer *layer) {
    const struct sl_gguf_tensor *t = layer->t[SL_L_ATTN_GATE];
    struct sl_attention_spec *a = &layer->spec.attention;
    if (!t || layer->spec.mixer != SL_MIXER_ATTENTION)
        return;
    bool heads = arch->gate == SL_ARCH_GATE_HEAD ||
                 (arch->gate == SL_ARCH_GATE_EITHER && t->ne[1] == a->n_head);
    a->gate = heads ? SL_GATE_HEAD : SL_GATE_ELEMENT;
    a->gate_softplus = arch->gate_softplus;
}

/* Of two sets of divisors the one for contexts beyond the original, or within it: by what the model
 * was made for, so that an answer does not depend on the context that a server is given. */
static enum sl_status choose_factors(struct sl_model *m, struct sl_err *err) {
    const struct sl_gguf_tensor **of = m->global;
    if (!of[SL_G_ROPE_LONG] && !of[SL_G_ROPE_SHORT])
        return SL_OK;
    for (unsigned role = SL_G_ROPE_LONG; role <= SL_G_ROPE_SHORT; role++)
        if (!of[role])
            return missing(m, err, global_rules[role].name);
    bool beyond = m->hp.n_ctx_train > m->hp.rope[0].yarn_ctx_orig;
    of[SL_G_ROPE_FREQS] = of[beyond ? SL_G_ROPE_LONG : SL_G_ROPE_SHORT];
    of[SL_G_ROPE_LONG] = of[SL_G_ROPE_SHORT] = NULL;
    return SL_OK;
}

/* Of tensors that are in no layer. */
static enum sl_status check_globals(struct sl_model *m, struct sl_err *err) {
    enum sl_status status = SL_OK;
    for (unsigned role = 0; role < SL_G_NAMED && status == SL_OK; role++) {
        bool required = role <= SL_G_OUTPUT_NORM || role == SL_G_OUTPUT_NORM_BIAS ||
                        role == SL_G_OUTPUT_BIAS || role >= SL_G_LAYER_EMBD;
        if (m->global[role])
            status = check_shape(m, NULL, m->global[role], &global_rules[role], err);
        else if (required && has_global(m->arch, &m->hp, role))
            status = missing(m, err, global_name(m->arch, role));
    }
    return status == SL_OK ? choose_factors(m, err) : status;
}

enum sl_status sl_arch_bind(struct sl_model *m, struct sl_err *err) {
    for (uint64_t i = 0; i < sl_gguf_n_tensors(m->gguf); i++)
        SL_TRY(place(m, sl_gguf_tensor_at(m->gguf, i), err));
    if (!m->global[SL_G_TOKEN_EMBD])
        return missing(m, err, global_rules[SL_G_TOKEN_EMBD].name);
    SL_TRY(find_vocab(m, err));
    SL_TRY(find_ngrams(m, err));
    if (!m->global[SL_G_OUTPUT])
        m->global[SL_G_OUTPUT] = m->global[SL_G_TOKEN_EMBD]; /* tied */
    if (m->hp.n_embd_layer)
        m->global[SL_G_LAYER_TOKENS] = m->global[SL_G_TOKEN_EMBD];
    enum sl_status status = check_globals(m, err);
    for (uint32_t l = 0; l < m->hp.n_layer && status == SL_OK; l++) {
        struct sl_layer *layer = &m->layers[l];
        sl_roles required = roles_of(m->arch, &m->hp, &layer->spec).needs;
        status = check_joined(m, l, &required, err);
        find_gate(m->arch, layer);
        for (unsigned role = 0; role < SL_L_COUNT && status == SL_OK; role++) {
            const struct sl_gguf_tensor *t = layer->t[role];
            if (t) {
                status = check_shape(m, &layer->spec, t, &layer_rules[role], err);
            } else if (in_set(required, role) || has_by_spec(&m->hp, &layer->spec, role)) {
                char name[64];
                snprintf(name, sizeof name, "blk.%" PRIu32 ".%s", l, name_of(m->arch, role));
                status = missing(m, err, name);
            }
        }
        if (status != SL_OK)
            return status;
        layer->spec.attention.v_of_k = layer->spec.mixer == SL_MIXER_ATTENTION &&
                                       !layer->spec.attention.kv_back && !layer->t[SL_L_ATTN_V] &&
                                       !layer->t[SL_L_ATTN_QKV];
        layer->spec.experts.router_norm = layer->t[SL_L_ROUTER_NORM] != NULL;
        if (layer->spec.experts.router_norm) /* the norm of a vector, not of its mean square */
            layer->spec.experts.router_logit_scale = 1 / sqrtf((float)m->hp.n_embd);
        if (layer->spec.attention.v_of_k &&
            layer->spec.attention.head_dim_k != layer->spec.attention.head_dim_v)
            return sl_fail(err, SL_ERR_CORRUPT,
                           "%.160s: layer %" PRIu32
                           " has no attn_v.weight, and its keys of %" PRIu32
                           " are no values of %" PRIu32,
                           sl_gguf_file_path(m->gguf, 0), l, layer->spec.attention.head_dim_k,
                           layer->spec.attention.head_dim_v);
        layer->spec.attention.sinks = layer->t[SL_L_ATTN_SINKS] != NULL;
        layer->spec.experts.biases = layer->t[SL_L_EXPERTS_GATE_BIAS] ||
                                     layer->t[SL_L_EXPERTS_UP_BIAS] ||
                                     layer->t[SL_L_EXPERTS_DOWN_BIAS];
        if (!layer->t[SL_L_ATTN_Q_NORM] && !layer->t[SL_L_ATTN_K_NORM])
            layer->spec.attention.qk_norm = SL_QK_NORM_NONE;
    }
    return status;
}
