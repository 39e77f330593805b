/* Hunyuan with experts (Hunyuan-A13B): q and k are normed per head after the rotation; every layer
 * has a shared expert without a gate.
 * Source: Tencent 2025, "Hunyuan-A13B Technical Report", section 2. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_hunyuan_moe = {
    .name = "hunyuan-moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .norm_after_rope = true,
    .shared = SL_ARCH_SHARED,
    .router_normalize = true,
    .needs = SL_ROLES_QK_NORM,
    .optional = SL_ROLES_ATTN_BIAS,
};
