#include "model/arch/arch.h"

#define OPTIONAL_BIASES (SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ATTN_OUT_BIAS))

const struct sl_arch sl_arch_qwen2 = {
    .name = "qwen2",
    .experts = SL_ARCH_DENSE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .optional = OPTIONAL_BIASES,
};

const struct sl_arch sl_arch_qwen2moe = {
    .name = "qwen2moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .shared = SL_ARCH_SHARED,
    .split_ff = true,
    .needs = SL_ROLE(SL_L_SHARED_ROUTER),
    .optional = OPTIONAL_BIASES,
};

const struct sl_arch sl_arch_qwen3 = {
    .name = "qwen3",
    .experts = SL_ARCH_DENSE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .needs = SL_ROLES_QK_NORM,
    .optional = OPTIONAL_BIASES,
};

const struct sl_arch sl_arch_qwen3moe = {
    .name = "qwen3moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .split_ff = true,
    .router_normalize = true,
    .needs = SL_ROLES_QK_NORM,
    .optional = OPTIONAL_BIASES,
};
