/* Mellum 2: windows in three layers of four, which rotate without YaRN; norms of q and k.
 * Source: JetBrains 2026, "Mellum2", model card and configuration. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_mellum = {
    .name = "mellum",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .window_period = 4,
    .window_rope_plain = true,
    .split_ff = true,
    .router_normalize = true,
    .needs = SL_ROLES_QK_NORM,
    .optional = SL_ROLES_ATTN_BIAS,
};
