/* Gemma 4: heads of two sizes (those with a window have the smaller one), norms behind attention
 * and feed-forward parts, a dense feed-forward part beside the experts, scores that are not scaled.
 * In layers without a window values may be the keys' projection. Source: Google's Gemma 4 as in
 * Hugging Face Transformers, "modeling_gemma4". */
#include "model/arch/arch.h"

static const char *const keys[] = {"final_logit_softcapping", "attention.key_length_swa",
                                   "attention.value_length_swa", "rope.dimension_count_swa", NULL};

const struct sl_arch sl_arch_gemma4 = {
    .name = "gemma4",
    .experts = SL_ARCH_EITHER,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .v_norm = true,
    .v_of_k = true,
    .attention_scale = 1,
    .rope_freqs = true,
    .embd_sqrt = true,
    .gelu = true,
    .beside = true,
    .router_normalize = true,
    .activation = SL_EXPERT_GEGLU,
    .keys = keys,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_ATTN_POST_NORM) | SL_ROLE(SL_L_FFN_POST_NORM) |
             SL_ROLE(SL_L_SHARED_POST_NORM) | SL_ROLE(SL_L_EXPERTS_POST_NORM) |
             SL_ROLE(SL_L_EXPERTS_NORM) | SL_ROLE(SL_L_ROUTER_NORM),
    .optional = SL_ROLE(SL_L_LAYER_SCALE) | SL_ROLE(SL_L_EXPERTS_SCALE),
};
