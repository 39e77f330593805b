/* dots.llm1: the first layers are dense; the router takes sigmoids, perhaps with a bias for the
 * choice; shared experts without a gate. Source: rednote-hilab 2025, "dots.llm1 Technical Report".
 */
#include "model/arch/arch.h"

const struct sl_arch sl_arch_dots1 = {
    .name = "dots1",
    .experts = SL_ARCH_MOE,
    .rope_kind = SL_ROPE_KIND_NEOX,
    .qk_norm = SL_QK_NORM_HEAD,
    .shared = SL_ARCH_SHARED_COUNT,
    .dense_lead = true,
    .router_sigmoid = true,
    .needs = SL_ROLES_QK_NORM,
    .optional = SL_ROLES_ATTN_BIAS | SL_ROLE(SL_L_ROUTER_BIAS),
};
