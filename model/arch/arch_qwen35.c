/* Qwen3-Next and Qwen3.5: three layers of four have a gated delta net, the fourth attention with a
 * gate on its output and a partial rotation. Qwen3-Next keeps value heads beside their key head and
 * both gates in one matrix; Qwen3.5 has neither, and multi-section RoPE for pictures. Perhaps draft
 * layers, which have attention.
 * Source: Qwen Team 2025, "Qwen3-Next"; Yang et al. 2024, "Gated Delta Networks". */
#include "model/arch/arch.h"

#define DELTA_GATES (SL_ROLE(SL_L_DELTA_BETA) | SL_ROLE(SL_L_DELTA_ALPHA))

const struct sl_arch sl_arch_qwen3next = {
    .name = "qwen3next",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .shared = SL_ARCH_SHARED,
    .split_ff = true,
    .router_normalize = true,
    .delta = true,
    .delta_grouped = true,
    .gated = true,
    .nextn = true,
    .drafts = true,
    .ffn_norm = "post_attention_norm.weight",
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_SHARED_ROUTER) | SL_ROLE(SL_L_DELTA_BA),
};

const struct sl_arch sl_arch_qwen35moe = {
    .name = "qwen35moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .shared = SL_ARCH_SHARED,
    .split_ff = true,
    .router_normalize = true,
    .delta = true,
    .gated = true,
    .sections = true,
    .nextn = true,
    .drafts = true,
    .ffn_norm = "post_attention_norm.weight",
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_SHARED_ROUTER) | DELTA_GATES,
};

const struct sl_arch sl_arch_qwen35 = {
    .name = "qwen35",
    .experts = SL_ARCH_DENSE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .delta = true,
    .gated = true,
    .sections = true,
    .nextn = true,
    .drafts = true,
    .ffn_norm = "post_attention_norm.weight",
    .needs = SL_ROLES_QK_NORM | DELTA_GATES,
};

/* Qwen3-VL with experts, of which text needs what Qwen3 has: pictures would add to the first
 * layers' outputs. */
const struct sl_arch sl_arch_qwen3vlmoe = {
    .name = "qwen3vlmoe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .split_ff = true,
    .router_normalize = true,
    .sections = true,
    .needs = SL_ROLES_QK_NORM,
};
