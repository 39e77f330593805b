/* ERNIE 4.5 with experts: the first layers are dense; the router's choice, not its weights, is
 * biased; the shared expert, which smaller models lack, has no gate.
 * Source: Baidu 2025, "ERNIE 4.5 Technical Report", section 2. */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_ernie4_5_moe = {
    .name = "ernie4_5-moe",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NORM,
    .shared = SL_ARCH_MAY_SHARE,
    .dense_lead = true,
    .router_normalize = true,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ROUTER_BIAS),
};
