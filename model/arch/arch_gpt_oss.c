/* gpt-oss: layers with a window and without alternate; sinks; biases on q, k, v, output, router and
 * experts; the router's softmax runs over the chosen experts; clamped SwiGLU; YaRN.
 * Source: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", section 2. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_gpt_oss = {
    .name = "gpt-oss",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .window_freqs = true,
    .window_period = 2,
    .router_softmax_topk = true,
    .activation = SL_EXPERT_SWIGLU_CLAMPED,
    .ffn_norm = "post_attention_norm.weight",
    .needs = SL_ROLE(SL_L_ATTN_OUT_BIAS) | SL_ROLE(SL_L_ATTN_SINKS) |
             SL_ROLE(SL_L_ROUTER_LOGIT_BIAS) | SL_ROLES_EXPERT_BIAS,
    .optional = SL_ROLES_ATTN_BIAS,
};
