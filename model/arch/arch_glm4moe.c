/* GLM with experts, 4.5-Air to 4.7, and the text of 4.5V: half of each head is rotated; q and k are
 * normed in the larger models alone; the first layers are dense; the router takes sigmoids, with a
 * bias for the choice; a shared expert without a gate; perhaps draft layers.
 * Source: GLM-4.5 Team 2025, "GLM-4.5: Agentic, Reasoning, and Coding Foundation Models". */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_glm4moe = {
    .name = "glm4moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .router_sigmoid = true,
    .sections = true,
    .nextn = true,
    .drafts = true,
    .ffn_norm = "post_attention_norm.weight",
    .needs = SL_ROLE(SL_L_ROUTER_BIAS),
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLES_QK_NORM,
};
