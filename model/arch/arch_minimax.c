/* MiniMax-M2: q and k are normed over all heads of a row together, and half of each head is
 * rotated; every layer has experts, whose router takes sigmoids with a bias for the choice; none
 * are shared. Source: MiniMax 2025, "MiniMax-M2", model card and configuration. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_minimax_m2 = {
    .name = "minimax-m2",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_ROW,
    .router_sigmoid = true,
    .router_normalize = true,
    .needs = SL_ROLES_QK_NORM | SL_ROLE(SL_L_ROUTER_BIAS),
    .optional = SL_ROLES_ATTN_BIAS,
};
