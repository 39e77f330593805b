/* Qwen 2 and 3. Qwen 2 has biases on q, k and v; Qwen 3 has none and norms q and k per head.
 * Qwen2-MoE adds a shared expert behind a sigmoid gate and does not renormalise the router's
 * weights; Qwen3-MoE renormalises them and has no shared expert.
 * Source: Yang et al. 2024, "Qwen2 Technical Report"; 2025, "Qwen3 Technical Report". */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_qwen2 = {
    .name = "qwen2",
    .experts = SL_ARCH_DENSE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .always = SL_ROLES_ATTENTION,
    .dense = SL_ROLES_FFN,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
};

const struct sl_arch sl_arch_qwen2moe = {
    .name = "qwen2moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .shared_expert = true,
    .split_ff = true,
    .always = SL_ROLES_ATTENTION,
    .moe = SL_ROLES_EXPERTS | SL_ROLES_SHARED | SL_ROLE(SL_L_SHARED_ROUTER),
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
};

const struct sl_arch sl_arch_qwen3 = {
    .name = "qwen3",
    .experts = SL_ARCH_DENSE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .always = SL_ROLES_ATTENTION | SL_ROLES_QK_NORM,
    .dense = SL_ROLES_FFN,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
};

const struct sl_arch sl_arch_qwen3moe = {
    .name = "qwen3moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .split_ff = true,
    .router_normalize = true,
    .always = SL_ROLES_ATTENTION | SL_ROLES_QK_NORM,
    .moe = SL_ROLES_EXPERTS,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS),
};
